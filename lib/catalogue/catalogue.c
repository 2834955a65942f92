/* Keys of a catalogue, and the sealing of its rows.  SPDX-License-Identifier: Apache-2.0 */
#include "catalogue/catalogue.h"

#include <openssl/evp.h>
#include <string.h>

#define PAD_BYTES 512u /* attributes are padded, so that their length tells little */
#define HEAD_BYTES (NAOS_GCM_NONCE_BYTES + NAOS_GCM_TAG_BYTES)
#define ASSOCIATED_BYTES 88u
#define KEY_BYTES 32u

static int find_collections(struct naos_catalogue *catalogue, struct naos_error *err)
{
	const char *name;
	size_t count = 0;
	while (naos_config_section_name(catalogue->config, "collection", (unsigned)count))
		count++;
	if (count > NAOS_CATALOGUE_MAX_COLLECTIONS)
		return naos_error_set(err, NAOS_E_LIMIT, "more than %u collections", NAOS_CATALOGUE_MAX_COLLECTIONS);
	catalogue->collections = calloc(count + 1, sizeof(*catalogue->collections));
	if (!catalogue->collections)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for collections");
	for (unsigned i = 0; (name = naos_config_section_name(catalogue->config, "collection", i)); i++) {
		int rc = naos_collection_find(catalogue->config, name, catalogue->provider,
					      &catalogue->collections[catalogue->collection_count], err);
		if (rc == 0)
			catalogue->collection_count++;
		else if (rc != NAOS_E_NOKEY && rc != NAOS_E_DENIED) /* this user may see other collections only */
			return rc;
	}
	return 0;
}

int naos_catalogue_open(struct naos_catalogue *catalogue, const char *path, bool writing, const struct naos_config *config,
			struct naos_provider *provider, struct naos_error *err)
{
	*catalogue = (struct naos_catalogue){ .config = config, .provider = provider };
	(void)pthread_mutex_init(&catalogue->lock, NULL);
	int rc = naos_catalogue_store_open(path, writing, &catalogue->store, err);
	return rc == 0 && writing ? find_collections(catalogue, err) : rc;
}

void naos_catalogue_close(struct naos_catalogue *catalogue)
{
	for (size_t i = 0; i < catalogue->key_count; i++)
		(void)naos_gcm_key_free(catalogue->keys[i].key);
	free(catalogue->keys);
	free(catalogue->collections);
	catalogue->store = naos_catalogue_store_close(catalogue->store);
	(void)pthread_mutex_destroy(&catalogue->lock);
}

/* --- keys ------------------------------------------------------------------------------------------------------------------ */

static const struct naos_collection *collection_of(const struct naos_catalogue *catalogue, const struct naos_uuid *id)
{
	for (size_t i = 0; i < catalogue->collection_count; i++)
		if (naos_uuid_equal(&catalogue->collections[i].id, id))
			return &catalogue->collections[i];
	return NULL;
}

/* Only who can also unwrap it may make one: a curator that seals and reads nothing can't start a catalogue. */
static int make_key(struct naos_catalogue *catalogue, const struct naos_uuid *id, struct naos_wrap_item *item, struct naos_error *err)
{
	const struct naos_collection *collection = collection_of(catalogue, id);
	naos_autosecret struct naos_secret *key = NULL;
	char text[NAOS_UUID_TEXT_BYTES];
	if (!collection)
		return naos_error_set(err, NAOS_E_NOKEY, "no [collection] of the configuration has the id %s, or its MEK is not to be seen",
				      naos_uuid_format(id, text));
	int rc = naos_secret_random(KEY_BYTES, &key, err);
	item->key = key;
	if (rc == 0)
		rc = naos_keys_wrap(catalogue->provider, collection->meks[0], item, 1, err);
	item->key = NULL;
	if (rc == 0)
		rc = naos_keys_unwrap(catalogue->provider, item, 1, err);
	if (rc == 0)
		rc = naos_catalogue_store_put_key(catalogue->store, id, &item->blob, err);
	return rc;
}

static int get_key(struct naos_catalogue *catalogue, const struct naos_uuid *id, bool make, struct naos_gcm_key **ret,
		   struct naos_error *err)
{
	struct naos_wrap_item item = {
		.context = { .kind = NAOS_WRAP_CATALOGUE, .group_id = *id, .object_id = *naos_catalogue_store_id(catalogue->store) },
	};
	bool found = false;
	int rc = naos_catalogue_store_key(catalogue->store, id, &item.blob, &found, err);
	if (rc == 0 && !found && !make)
		return naos_error_set(err, NAOS_E_INTEGRITY, "the catalogue lacks the key of a collection");
	if (rc == 0 && found)
		rc = naos_keys_unwrap(catalogue->provider, &item, 1, err);
	else if (rc == 0)
		rc = make_key(catalogue, id, &item, err);
	naos_autosecret struct naos_secret *key = item.unwrapped;
	return rc ? rc : naos_gcm_key_create(NAOS_AES_256_GCM, key, ret, err);
}

int naos_catalogue_key_get(struct naos_catalogue *catalogue, const struct naos_uuid *collection_id, bool make,
			   const struct naos_gcm_key **ret, struct naos_error *err)
{
	for (size_t i = 0; i < catalogue->key_count; i++)
		if (naos_uuid_equal(&catalogue->keys[i].collection_id, collection_id)) {
			*ret = catalogue->keys[i].key;
			return *ret ? 0 : naos_error_set(err, catalogue->keys[i].refused.code, "%s", catalogue->keys[i].refused.message);
		}
	struct naos_catalogue_key *keys = reallocarray(catalogue->keys, catalogue->key_count + 1, sizeof(*keys));
	if (!keys)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a key");
	catalogue->keys = keys;
	struct naos_catalogue_key *own = &keys[catalogue->key_count];
	*own = (struct naos_catalogue_key){ .collection_id = *collection_id };
	int rc = get_key(catalogue, collection_id, make, &own->key, &own->refused);
	catalogue->key_count++;
	*ret = own->key;
	return rc ? naos_error_set(err, rc, "%s", own->refused.message) : 0;
}

/* --- rows ------------------------------------------------------------------------------------------------------------------ */

/* "NAOSCAT1", catalogue, collection, frame, SHA-256 of the path. */
static int associate(const struct naos_catalogue *catalogue, const struct naos_catalogue_row *row, uint8_t ret[static ASSOCIATED_BYTES],
		     struct naos_error *err)
{
	uint8_t digest[32];
	struct naos_cursor w = naos_cursor_writer(ret, ASSOCIATED_BYTES);
	if (EVP_Digest(row->path, strlen(row->path), digest, NULL, EVP_sha256(), NULL) != 1)
		return naos_error_set(err, NAOS_E_SYSTEM, "SHA-256 failed in the cryptographic library");
	naos_cursor_put(&w, "NAOSCAT1", 8);
	naos_cursor_put(&w, naos_catalogue_store_id(catalogue->store)->bytes, NAOS_UUID_BYTES);
	naos_cursor_put(&w, row->collection_id.bytes, NAOS_UUID_BYTES);
	naos_cursor_put(&w, row->frame_id.bytes, NAOS_UUID_BYTES);
	naos_cursor_put(&w, digest, sizeof(digest));
	return 0;
}

int naos_catalogue_attributes_seal(const struct naos_catalogue *catalogue, const struct naos_gcm_key *key,
				   const struct naos_catalogue_row *row,
				   const json_t *attributes, uint8_t **ret, size_t *ret_bytes, struct naos_error *err)
{
	uint8_t associated[ASSOCIATED_BYTES];
	naos_autofree char *text = json_dumps(attributes, JSON_COMPACT | JSON_SORT_KEYS);
	size_t length = text ? strlen(text) : 0, padded = (length + PAD_BYTES - 1) / PAD_BYTES * PAD_BYTES;
	naos_autofree uint8_t *sealed = malloc(HEAD_BYTES + padded);
	if (!text || !sealed)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for attributes");
	if (length > NAOS_CATALOGUE_MAX_ATTRIBUTE_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "the attributes of the frame take %zu bytes, at most %zu are allowed", length,
				      NAOS_CATALOGUE_MAX_ATTRIBUTE_BYTES);
	memset(sealed + HEAD_BYTES, ' ', padded);
	memcpy(sealed + HEAD_BYTES, text, length);
	const struct naos_gcm_message message = {
		.nonce = sealed, .associated = associated, .associated_bytes = sizeof(associated), .in = sealed + HEAD_BYTES,
		.out = sealed + HEAD_BYTES, .bytes = padded, .tag = sealed + NAOS_GCM_NONCE_BYTES,
	};
	int rc = associate(catalogue, row, associated, err);
	if (rc == 0)
		rc = naos_nonce_next(sealed, err);
	if (rc == 0)
		rc = naos_gcm_seal(key, &message, err);
	if (rc == 0) {
		*ret = naos_steal(sealed);
		*ret_bytes = HEAD_BYTES + padded;
	}
	return rc;
}

int naos_catalogue_attributes_open(const struct naos_catalogue *catalogue, const struct naos_gcm_key *key,
				   const struct naos_catalogue_row *row,
				   json_t **ret, struct naos_error *err)
{
	uint8_t associated[ASSOCIATED_BYTES];
	size_t bytes = row->sealed_bytes > HEAD_BYTES ? row->sealed_bytes - HEAD_BYTES : 0;
	naos_autofree uint8_t *plain = malloc(row->sealed_bytes + 1);
	if (!plain)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for attributes");
	if (bytes == 0)
		return naos_error_set(err, NAOS_E_INTEGRITY, "the catalogue's row of %s was changed", row->path);
	memcpy(plain, row->sealed, row->sealed_bytes);
	const struct naos_gcm_message message = {
		.nonce = plain, .associated = associated, .associated_bytes = sizeof(associated), .in = plain + HEAD_BYTES,
		.out = plain + HEAD_BYTES, .bytes = bytes, .tag = plain + NAOS_GCM_NONCE_BYTES,
	};
	int rc = associate(catalogue, row, associated, err);
	if (rc == 0)
		rc = naos_gcm_open(key, &message, err);
	json_t *attributes = rc ? NULL : json_loadb((const char *)plain + HEAD_BYTES, bytes, 0, NULL);
	if (rc == NAOS_E_INTEGRITY || (rc == 0 && !json_is_object(attributes))) {
		json_decref(attributes);
		return naos_error_set(err, NAOS_E_INTEGRITY, "the catalogue's row of %s was changed", row->path);
	}
	*ret = attributes;
	return rc;
}
