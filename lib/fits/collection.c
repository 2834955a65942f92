/* SPDX-License-Identifier: Apache-2.0 */
#include "fits/collection.h"

#include <string.h>

#include "fits/framekeys.h"

static int take_name(char *to, size_t room, const char *name, const char *suffix, const char *what, struct naos_error *err)
{
	int length = snprintf(to, room, "%s%s", name, suffix);
	if (length < 0 || (size_t)length >= room)
		return naos_error_set(err, NAOS_E_CONFIG, "the name of %s '%s%s' is longer than %zu bytes", what, name,
			suffix, room - 1);
	return 0;
}

int naos_collection_find(const struct naos_config *config, const char *name, struct naos_provider *provider,
			 struct naos_collection *ret, struct naos_error *err)
{
	static const char *const keys[] = { "header-mek", "data-mek" }, *const suffixes[] = { "-header", "-data" };
	const char *id = naos_config_string(config, "collection", name, "id");
	struct naos_collection found = { .algorithm = 0 };
	int rc = take_name(found.name, sizeof(found.name), name, "", "the collection", err);
	for (unsigned i = 0; rc == 0 && i < 2; i++) {
		const char *mek = naos_config_string(config, "collection", name, keys[i]);
		rc = take_name(found.meks[i], sizeof(found.meks[i]), mek[0] ? mek : name, mek[0] ? "" : suffixes[i],
			"the MEK", err);
	}
	if (rc != 0)
		return rc;
	if (strcmp(found.meks[0], found.meks[1]) == 0)
		return naos_error_set(err, NAOS_E_CONFIG, "collection '%s': header and data must have different MEKs", name);
	if (!naos_algorithm_parse(naos_config_string(config, "collection", name, "algorithm"), &found.algorithm))
		return naos_error_set(err, NAOS_E_CONFIG, "collection '%s': unknown algorithm", name);
	if (id[0] && !naos_uuid_parse(id, &found.id))
		return naos_error_set(err, NAOS_E_CONFIG, "%s: the id of collection '%s' is not a UUID",
				      naos_config_origin(config, "collection", name, "id"), name);
	if (!id[0]) {
		naos_autofree struct naos_mek *versions = NULL;
		size_t count;
		rc = naos_mek_find(provider, found.meks[0], &versions, &count, err);
		if (rc != 0)
			return naos_error_prefix(err, rc, "collection '%s'", name);
		found.id = versions[0].id;
	}
	*ret = found;
	return 0;
}

void naos_frame_keys_free(struct naos_frame_keys *keys)
{
	for (unsigned i = 0; i < 2; i++)
		keys->keys[i] = naos_secret_free(keys->keys[i]);
}

int naos_collection_new_frame(const struct naos_collection *collection, struct naos_provider *provider, struct naos_frame_keys *ret_keys,
			      struct naos_frame_new *what, struct naos_error *err)
{
	static const enum naos_wrap_kind kinds[] = { NAOS_WRAP_FRAME_HEADER, NAOS_WRAP_FRAME_DATA };
	naos_cleanup(naos_frame_keys_free) struct naos_frame_keys made = { .keys = { NULL, NULL } };
	struct naos_uuid frame_id;
	int rc = naos_uuid_random(&frame_id, err);
	for (unsigned i = 0; rc == 0 && i < 2; i++) {
		rc = naos_secret_random(NAOS_FRAME_KEY_BYTES, &made.keys[i], err);
		struct naos_wrap_item item = {
			.context = { .kind = kinds[i], .group_id = collection->id, .object_id = frame_id }, .key = made.keys[i],
		};
		if (rc == 0)
			rc = naos_keys_wrap(provider, collection->meks[i], &item, 1, err);
		if (rc != 0)
			return naos_error_prefix(err, rc, "collection '%s'", collection->name);
		made.blobs[i] = item.blob;
	}
	if (rc != 0)
		return rc;
	*ret_keys = made;
	made.keys[0] = made.keys[1] = NULL;
	what->algorithm = collection->algorithm;
	what->frame_id = frame_id;
	what->collection_id = collection->id;
	for (unsigned i = 0; i < 2; i++) {
		what->keys[i] = ret_keys->keys[i];
		what->blobs[i] = &ret_keys->blobs[i];
	}
	return 0;
}

/* --- opening -------------------------------------------------------------------------------------------------------------- */

static int give_key(void *context, const struct naos_frame_manifest *manifest, enum naos_frame_part part,
		    const struct naos_blob *blob,
		    struct naos_secret **ret, struct naos_error *ret_why)
{
	const struct naos_frame_opener *opener = context;
	*ret = NULL;
	if (opener->given[part - 1])
		return naos_secret_clone(opener->given[part - 1], ret, ret_why);
	if (!opener->provider || !blob)
		return 0;
	struct naos_wrap_item item = {
		.context = {
			.kind = part == NAOS_FRAME_HEADER ? NAOS_WRAP_FRAME_HEADER : NAOS_WRAP_FRAME_DATA,
			.group_id = manifest->collection_id,
			.object_id = manifest->frame_id,
		},
		.blob = *blob,
	};
	int rc = naos_keys_unwrap(opener->provider, &item, 1, ret_why);
	if (rc == 0)
		*ret = item.unwrapped;
	bool refused = rc == NAOS_E_NOKEY || rc == NAOS_E_DENIED || rc == NAOS_E_KEY_STATE;
	return refused ? 0 : rc;
}

struct naos_frame_source naos_frame_opener_source(struct naos_frame_opener *opener)
{
	return (struct naos_frame_source){ .key = give_key, .context = opener };
}
