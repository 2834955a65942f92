/* SPDX-License-Identifier: Apache-2.0 */
#include "fits/collection.h"

#include <fcntl.h>
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

/* Wraps one part of many fresh keys in one round trip. */
static int wrap_part(const struct naos_collection *collection, struct naos_provider *provider, unsigned part, struct naos_frame_keys *keys,
		     const struct naos_frame_new *what, size_t count, struct naos_error *err)
{
	static const enum naos_wrap_kind kinds[] = { NAOS_WRAP_FRAME_HEADER, NAOS_WRAP_FRAME_DATA };
	naos_autofree struct naos_wrap_item *items = calloc(count, sizeof(*items));
	if (!items)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the keys of %zu frames", count);
	for (size_t i = 0; i < count; i++)
		items[i] = (struct naos_wrap_item){
			.context = { .kind = kinds[part], .group_id = collection->id, .object_id = what[i].frame_id },
			.key = keys[i].keys[part],
		};
	int rc = naos_keys_wrap(provider, collection->meks[part], items, count, err);
	for (size_t i = 0; rc == 0 && i < count; i++)
		keys[i].blobs[part] = items[i].blob;
	return rc;
}

int naos_collection_new_frames(const struct naos_collection *collection, struct naos_provider *provider, struct naos_frame_keys *keys,
			       struct naos_frame_new *what, size_t count, struct naos_error *err)
{
	int rc = 0;
	for (size_t i = 0; i < count; i++)
		keys[i] = (struct naos_frame_keys){ .keys = { NULL, NULL } };
	for (size_t i = 0; rc == 0 && i < count; i++) {
		what[i].algorithm = collection->algorithm;
		what[i].collection_id = collection->id;
		rc = naos_uuid_random(&what[i].frame_id, err);
		for (unsigned part = 0; rc == 0 && part < 2; part++)
			rc = naos_secret_random(NAOS_FRAME_KEY_BYTES, &keys[i].keys[part], err);
	}
	for (unsigned part = 0; rc == 0 && part < 2; part++)
		rc = wrap_part(collection, provider, part, keys, what, count, err);
	for (size_t i = 0; i < count; i++)
		for (unsigned part = 0; part < 2; part++) {
			if (rc != 0)
				keys[i].keys[part] = naos_secret_free(keys[i].keys[part]);
			what[i].keys[part] = rc ? NULL : keys[i].keys[part];
			what[i].blobs[part] = rc ? NULL : &keys[i].blobs[part];
		}
	return rc ? naos_error_prefix(err, rc, "collection '%s'", collection->name) : 0;
}

int naos_collection_new_frame(const struct naos_collection *collection, struct naos_provider *provider, struct naos_frame_keys *ret_keys,
			      struct naos_frame_new *what, struct naos_error *err)
{
	return naos_collection_new_frames(collection, provider, ret_keys, what, 1, err);
}

/* --- opening -------------------------------------------------------------------------------------------------------------- */

/* What the key manager's answer to an unwrap means: a key that it refuses to this user is missing, with its reason. */
static int take_answer(struct naos_wrap_item *item, int rc, struct naos_secret **ret)
{
	if (rc == 0)
		*ret = naos_steal(item->unwrapped);
	bool refused = rc == NAOS_E_NOKEY || rc == NAOS_E_DENIED || rc == NAOS_E_KEY_STATE;
	return refused ? 0 : rc;
}

static struct naos_wrap_item question(const struct naos_frame_manifest *manifest, enum naos_frame_part part, const struct naos_blob *blob)
{
	return (struct naos_wrap_item){
		.context = {
			.kind = part == NAOS_FRAME_HEADER ? NAOS_WRAP_FRAME_HEADER : NAOS_WRAP_FRAME_DATA,
			.group_id = manifest->collection_id,
			.object_id = manifest->frame_id,
		},
		.blob = *blob,
	};
}

static int give_key(void *context, const struct naos_frame_manifest *manifest, enum naos_frame_part part,
		    const struct naos_blob *blob,
		    struct naos_secret **ret, struct naos_error *ret_why)
{
	const struct naos_frame_opener *opener = context;
	const struct naos_frame_fetched *fetched = opener->fetched;
	*ret = NULL;
	if (opener->given[part - 1])
		return naos_secret_clone(opener->given[part - 1], ret, ret_why);
	if (!opener->provider || !blob || (opener->header_only && part == NAOS_FRAME_DATA))
		return 0;
	if (fetched && fetched->asked[part - 1]) {
		if (fetched->why[part - 1].code != 0)
			*ret_why = fetched->why[part - 1];
		return fetched->keys[part - 1] ? naos_secret_clone(fetched->keys[part - 1], ret, ret_why) : fetched->results[part - 1];
	}
	struct naos_wrap_item item = question(manifest, part, blob);
	return take_answer(&item, naos_keys_unwrap(opener->provider, &item, 1, ret_why), ret);
}

struct naos_frame_source naos_frame_opener_source(struct naos_frame_opener *opener)
{
	return (struct naos_frame_source){ .key = give_key, .context = opener };
}

/* --- many frames ---------------------------------------------------------------------------------------------------------- */

/* The questions of one frame, as they are met while it is looked at. */
struct peek {
	struct naos_frame_fetched *fetched;
	struct naos_wrap_item *items;
	size_t used;
	const struct naos_secret *const *given;
	bool header_only;
};

static int note_question(void *context, const struct naos_frame_manifest *manifest, enum naos_frame_part part,
			 const struct naos_blob *blob, struct naos_secret **ret, struct naos_error *ret_why)
{
	struct peek *peek = context;
	*ret = NULL;
	if (!blob || peek->given[part - 1] || (peek->header_only && part == NAOS_FRAME_DATA))
		return 0;
	peek->items[peek->used++] = question(manifest, part, blob);
	peek->fetched->asked[part - 1] = true;
	return 0;
}

void naos_frame_fetch(const struct naos_frame_opener *opener, const int *fds, struct naos_frame_fetched *ret, size_t count)
{
	naos_autofree struct naos_wrap_item *items = calloc(2 * count, sizeof(*items));
	struct naos_error err = NAOS_ERROR_INIT;
	size_t used = 0;
	for (size_t i = 0; i < count; i++)
		ret[i] = (struct naos_frame_fetched){ .keys = { NULL, NULL } };
	if (!items || !opener->provider)
		return;
	for (size_t i = 0; i < count; i++) {
		struct peek peek = { .fetched = &ret[i], .items = items + used, .given = opener->given, .header_only = opener->header_only };
		const struct naos_frame_source source = { .key = note_question, .context = &peek };
		struct naos_frame *frame;
		int own = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
		if (own >= 0 && naos_frame_open_fd(own, "", &source, &frame, NULL) == 0)
			(void)naos_frame_close(frame);
		used += peek.used;
	}
	int rc = used ? naos_keys_unwrap(opener->provider, items, used, &err) : 0;
	used = 0;
	for (size_t i = 0; i < count; i++)
		for (unsigned part = 0; part < 2; part++) {
			if (!ret[i].asked[part])
				continue;
			struct naos_wrap_item *item = &items[used++];
			/* a batch that failed as a whole has no results of its own */
			bool whole = rc != 0 && item->result == 0 && !item->unwrapped;
			int result = whole ? rc : item->result;
			ret[i].results[part] = take_answer(item, result, &ret[i].keys[part]);
			if (result != 0)
				ret[i].why[part] = whole ? err : item->error;
		}
}

void naos_frame_fetched_free(struct naos_frame_fetched *fetched, size_t count)
{
	for (size_t i = 0; i < count; i++)
		for (unsigned part = 0; part < 2; part++)
			fetched[i].keys[part] = naos_secret_free(fetched[i].keys[part]);
}
