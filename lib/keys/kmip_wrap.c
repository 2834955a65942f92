/* Wrapping by a KMIP server is Encrypt, unwrapping is Decrypt: AES-GCM with the associated data of the blob.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <string.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "keys/kmip_state.h"

#define DIGEST_BYTES 32
#define TAG_BYTES 16
#define IV_BYTES 12
#define TABLE_AGE_S 60 /* after so long the active version is asked for again: another client may have rotated */
#define REFUSAL_AGE_S 5 /* after so long the state of a key that was refused is asked for again */
#define ITEMS_AT_ONCE 256 /* of one request: far below a megabyte */

typedef const struct naos_kmip_row *find_function(const struct naos_kmip_table *table, const void *what);

static const struct naos_kmip_row *find_active(const struct naos_kmip_table *table, const void *what)
{
	return naos_kmip_table_active(table, what);
}

static const struct naos_kmip_row *find_blob(const struct naos_kmip_table *table, const void *what)
{
	const struct naos_blob *blob = what;
	return naos_kmip_table_id(table, &blob->mek_id, blob->mek_version);
}

/* A copy of the row; *ret_found false if there is none. */
static void look(struct kmip *k, find_function *find, const void *what, struct naos_kmip_row *ret, bool *ret_found)
{
	(void)pthread_mutex_lock(&k->lock);
	const struct naos_kmip_row *row = find(&k->table, what);
	*ret_found = row != NULL;
	if (row)
		*ret = *row;
	(void)pthread_mutex_unlock(&k->lock);
}

static const struct naos_kmip_cryptographic_parameters gcm = {
	.block_cipher_mode = NAOS_KMIP_MODE_GCM,
	.cryptographic_algorithm = NAOS_KMIP_ALGORITHM_AES,
	.tag_length = { .present = true, .value = TAG_BYTES },
	.random_iv = { .present = true, .value = true },
	.iv_length = { .present = true, .value = 8 * IV_BYTES },
};

/* What one item of a batch needs while its request is under way. */
struct crossing {
	struct naos_wrap_item *item;
	struct naos_kmip_row row;
	uint8_t associated[NAOS_BLOB_ASSOCIATED_BYTES];
	uint8_t *text; /* in the batch's secret: key || digest, or (quirk, before 1.4) IV, ciphertext and tag in a row */
	size_t text_bytes;
};

#define TEXT_ROOM 128

static int fail(struct naos_wrap_item *item, int rc, int *first, struct naos_error *err)
{
	item->result = rc;
	if (rc != 0 && *first == 0) {
		*first = rc;
		if (err)
			*err = item->error;
	}
	return rc;
}

/* Fetched once: the library looks an algorithm up at each use otherwise, which takes longer than the digest. */
static EVP_MD *sha256;

static void fetch_sha256(void)
{
	sha256 = EVP_MD_fetch(NULL, "SHA2-256", NULL);
}

static int digest(const uint8_t *associated, uint8_t *ret, struct naos_error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	(void)pthread_once(&once, fetch_sha256);
	return sha256 && EVP_Digest(associated, NAOS_BLOB_ASSOCIATED_BYTES, ret, NULL, sha256, NULL) == 1 ?
		       0 : naos_error_set(err, NAOS_E_SYSTEM, "OpenSSL cannot compute SHA-256");
}

static int prepare_wrap(const struct naos_kmip_row *row, struct crossing *crossing, struct naos_error *err)
{
	struct naos_wrap_item *item = crossing->item;
	size_t key_bytes = naos_secret_bytes(item->key);
	if (key_bytes != 16 && key_bytes != 32)
		return naos_error_set(err, NAOS_E_LIMIT, "a key of %zu bytes can't be wrapped, only 16 or 32", key_bytes);
	item->blob = (struct naos_blob){ .mek_id = row->mek.id, .mek_version = row->mek.version,
			.algorithm = NAOS_WRAP_AES_256_GCM };
	naos_blob_associated(&item->context, &item->blob, crossing->associated);
	memcpy(crossing->text, naos_secret_view(item->key), key_bytes); /* lint-ok: from slab to slab */
	crossing->text_bytes = key_bytes + DIGEST_BYTES;
	crossing->row = *row;
	return digest(crossing->associated, crossing->text + key_bytes, err);
}

/* What the server made of the key: IV, ciphertext and tag, wherever this server puts them.  The IV is the server's: a client that
 * may choose it could decrypt without the right to. */
static int take_wrapped(const struct kmip *k, uint32_t version, const struct naos_kmip_response_item *answer,
		struct crossing *crossing,
			struct naos_error *err)
{
	const struct naos_kmip_crypt_response *crypt = &answer->payload.encrypt;
	struct naos_blob *blob = &crossing->item->blob;
	struct naos_kmip_bytes iv = crypt->iv_counter_nonce, data = crypt->data, tag = crypt->tag;
	if (k->iv_in_data && data.bytes > IV_BYTES) {
		iv = naos_kmip_bytes(data.data, IV_BYTES);
		data = naos_kmip_bytes(data.data + IV_BYTES, data.bytes - IV_BYTES);
	}
	if (version < NAOS_KMIP_1_4 && data.bytes == crossing->text_bytes + TAG_BYTES) {
		tag = naos_kmip_bytes(data.data + crossing->text_bytes, TAG_BYTES);
		data.bytes = crossing->text_bytes;
	}
	if (data.bytes != crossing->text_bytes || tag.bytes != TAG_BYTES || (iv.bytes != 12 && iv.bytes != 16))
		return naos_error_set(err, NAOS_E_KEYMANAGER,
				"the key manager's Encrypt gives %zu bytes, a tag of %zu and an IV of %zu: not AES-GCM as asked%s",
				      data.bytes, tag.bytes, iv.bytes, version < NAOS_KMIP_1_4 ?
						" (it speaks KMIP before 1.4)" : "");
	blob->iv_bytes = (uint8_t)iv.bytes;
	memcpy(blob->iv, iv.data, iv.bytes);
	blob->ciphertext_bytes = (uint16_t)data.bytes;
	memcpy(blob->ciphertext, data.data, data.bytes);
	memcpy(blob->tag, tag.data, TAG_BYTES);
	return 0;
}

static int wrap_some(struct kmip *k, uint32_t version, struct crossing *crossings, size_t count, int *first,
		struct naos_error *err)
{
	naos_autofree struct naos_kmip_request_item *requests = calloc(count, sizeof(*requests));
	naos_autoanswer struct naos_kmip_answer answer = { .arena = NULL };
	if (!requests)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a request");
	for (size_t i = 0; i < count; i++)
		requests[i] = (struct naos_kmip_request_item){
			.operation = NAOS_KMIP_OPERATION_ENCRYPT,
			.payload.encrypt = {
				.unique_identifier = naos_kmip_text(crossings[i].row.uid),
				.cryptographic_parameters = &gcm,
				.data = naos_kmip_bytes(crossings[i].text, crossings[i].text_bytes),
				.additional_data = version >= NAOS_KMIP_1_4 ? naos_kmip_bytes(crossings[i].associated,
						NAOS_BLOB_ASSOCIATED_BYTES) :
									      naos_kmip_bytes(NULL, 0),
			},
		};
	int rc = naos_kmip_client_call(k->client, requests, count, true, &answer, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < count; i++) {
		struct naos_wrap_item *item = crossings[i].item;
		const struct naos_kmip_response_item *reply = &answer.response.batch.items[i];
		int result = naos_kmip_item_result(reply, "to wrap a key", &item->error);
		if (result == 0)
			result = take_wrapped(k, version, reply, &crossings[i], &item->error);
		(void)fail(item, result, first, err);
	}
	return 0;
}

static int active_row(struct kmip *k, const char *name, struct naos_kmip_row *ret, struct naos_error *err)
{
	bool found;
	(void)pthread_mutex_lock(&k->lock);
	bool old = naos_kmip_now_s() - k->loaded_s > TABLE_AGE_S;
	(void)pthread_mutex_unlock(&k->lock);
	look(k, find_active, name, ret, &found);
	if (found && !old)
		return 0;
	int rc = naos_kmip_reload(k, err);
	if (rc != 0)
		return rc;
	look(k, find_active, name, ret, &found);
	return found ? 0 : naos_error_set(err, NAOS_E_NOKEY, "the key manager shows this client no active key '%s'", name);
}

/* The whole batch failed: so did each item that had no result yet. */
static int fail_all(struct naos_wrap_item *items, size_t count, int rc, const struct naos_error *why)
{
	for (size_t i = 0; i < count; i++) {
		items[i].result = rc;
		items[i].error = *why;
	}
	return rc;
}

static int wrap_under(struct kmip *k, const struct naos_kmip_row *row, struct naos_wrap_item *items, size_t count, int *first,
		struct naos_error *err)
{
	naos_autosecret struct naos_secret *texts = NULL;
	size_t room = count < ITEMS_AT_ONCE ? count : ITEMS_AT_ONCE;
	naos_autofree struct crossing *crossings = calloc(room, sizeof(*crossings));
	uint32_t version = 0;
	int rc = crossings ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory to wrap keys");
	if (rc == 0)
		rc = naos_kmip_client_version(k->client, &version, err);
	if (rc == 0)
		rc = naos_secret_create(room * TEXT_ROOM, &texts, err);
	for (size_t done = 0; rc == 0 && done < count;) {
		size_t used = 0;
		for (; done < count && used < ITEMS_AT_ONCE; done++) {
			struct crossing *crossing = &crossings[used];
			*crossing = (struct crossing){ .item = &items[done], .text = naos_secret_data(texts) + used * TEXT_ROOM };
			used += fail(&items[done], prepare_wrap(row, crossing, &items[done].error), first, err) == 0;
		}
		rc = used ? wrap_some(k, version, crossings, used, first, err) : 0;
	}
	return rc;
}

int naos_kmip_wrap(void *state, const char *name, struct naos_wrap_item *items, size_t count, struct naos_error *err)
{
	struct kmip *k = state;
	struct naos_error why = NAOS_ERROR_INIT;
	struct naos_kmip_row row, newer;
	bool found = false;
	int first = 0, rc = active_row(k, name, &row, &why);
	if (rc == 0)
		rc = wrap_under(k, &row, items, count, &first, &why);
	/* the version that was active when we looked may have been revoked or replaced since */
	if (rc == 0 && first != 0 && naos_kmip_reload(k, NULL) == 0)
		look(k, find_active, name, &newer, &found);
	if (found && strcmp(newer.uid, row.uid) != 0) {
		first = 0;
		rc = wrap_under(k, &newer, items, count, &first, &why);
	}
	if (rc != 0)
		(void)fail_all(items, count, rc, &why);
	if ((rc != 0 || first != 0) && err)
		*err = why;
	return rc ? rc : first;
}

static int prepare_unwrap(struct kmip *k, bool *reloaded, struct crossing *crossing, struct naos_error *err)
{
	const struct naos_blob *blob = &crossing->item->blob;
	char id[NAOS_UUID_TEXT_BYTES];
	bool found;
	if (blob->ciphertext_bytes != 16 + DIGEST_BYTES && blob->ciphertext_bytes != 32 + DIGEST_BYTES)
		return naos_error_set(err, NAOS_E_FORMAT, "a wrapped key of a wrong length");
	look(k, find_blob, blob, &crossing->row, &found);
	if (!found && !*reloaded) {
		int rc = naos_kmip_reload(k, err);
		if (rc != 0)
			return rc;
		*reloaded = true;
		look(k, find_blob, blob, &crossing->row, &found);
	}
	if (!found)
		return naos_error_set(err, NAOS_E_NOKEY, "the key manager shows this client no version %u of the key %s",
				blob->mek_version,
				      naos_uuid_format(&blob->mek_id, id));
	if (crossing->row.mek.state == NAOS_MEK_DESTROYED)
		return naos_error_set(err, NAOS_E_KEY_STATE, "version %u of the key '%s' is destroyed", crossing->row.mek.version,
				      crossing->row.mek.name);
	naos_blob_associated(&crossing->item->context, blob, crossing->associated);
	uint8_t *at = crossing->text;
	struct naos_cursor w = naos_cursor_writer(at, TEXT_ROOM);
	if (k->iv_in_data)
		naos_cursor_put(&w, blob->iv, blob->iv_bytes);
	naos_cursor_put(&w, blob->ciphertext, blob->ciphertext_bytes);
	naos_cursor_put(&w, blob->tag, sizeof(blob->tag)); /* sent only before 1.4 */
	crossing->text_bytes = w.position;
	return naos_cursor_ok(&w) ? 0 : naos_error_set(err, NAOS_E_LIMIT, "a wrapped key is too long");
}

static int take_unwrapped(const struct naos_kmip_response_item *reply, struct crossing *crossing, struct naos_error *err)
{
	struct naos_kmip_bytes data = reply->payload.decrypt.data;
	size_t key_bytes = (size_t)crossing->item->blob.ciphertext_bytes - DIGEST_BYTES;
	uint8_t expected[DIGEST_BYTES];
	int rc = digest(crossing->associated, expected, err);
	if (rc != 0)
		return rc;
	if (data.bytes != key_bytes + DIGEST_BYTES || CRYPTO_memcmp(data.data + key_bytes, expected, DIGEST_BYTES) != 0)
		return naos_error_set(err, NAOS_E_INTEGRITY, "the wrapped key belongs to another object");
	return naos_kmip_bytes_keep(naos_kmip_bytes(data.data, key_bytes), &crossing->item->unwrapped, err);
}

/* Some servers answer a bad tag with no more than General Failure. */
static int unwrap_result(const struct naos_kmip_response_item *reply, struct naos_error *err)
{
	int rc = naos_kmip_item_result(reply, "to unwrap a key", err);
	if (rc != 0 && reply->reason == NAOS_KMIP_REASON_GENERAL_FAILURE)
		rc = naos_error_set(err, NAOS_E_INTEGRITY,
				"the key manager can't open the wrapped key: it was changed or is of another object");
	return rc;
}

/* A server refuses a revoked key as it refuses a stranger.  For the one who asks these are two things. */
static int explain_refusal(struct kmip *k, struct naos_wrap_item *item)
{
	const struct naos_error refusal = item->error;
	struct naos_kmip_row row;
	bool found;
	(void)pthread_mutex_lock(&k->lock);
	bool old = naos_kmip_now_s() - k->loaded_s > REFUSAL_AGE_S;
	(void)pthread_mutex_unlock(&k->lock);
	if (old)
		(void)!naos_kmip_reload(k, NULL);
	look(k, find_blob, &item->blob, &row, &found);
	if (!found || (row.mek.state != NAOS_MEK_REVOKED && row.mek.state != NAOS_MEK_DESTROYED))
		return NAOS_E_DENIED;
	return naos_error_set(&item->error, NAOS_E_KEY_STATE, "version %u of the key '%s' is %s (%s)", row.mek.version, row.mek.name,
			      naos_mek_state_name(row.mek.state), refusal.message);
}

static int unwrap_some(struct kmip *k, uint32_t version, struct crossing *crossings, size_t count, int *first,
		struct naos_error *err)
{
	bool fields = version >= NAOS_KMIP_1_4;
	naos_autofree struct naos_kmip_request_item *requests = calloc(count, sizeof(*requests));
	naos_autoanswer struct naos_kmip_answer answer = { .arena = NULL };
	if (!requests)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a request");
	for (size_t i = 0; i < count; i++) {
		const struct naos_blob *blob = &crossings[i].item->blob;
		requests[i] = (struct naos_kmip_request_item){
			.operation = NAOS_KMIP_OPERATION_DECRYPT,
			.payload.decrypt = {
				.unique_identifier = naos_kmip_text(crossings[i].row.uid),
				.cryptographic_parameters = &gcm,
				.data = naos_kmip_bytes(crossings[i].text, crossings[i].text_bytes - (fields ? TAG_BYTES : 0)),
			},
		};
		if (!k->iv_in_data)
			requests[i].payload.decrypt.iv_counter_nonce = naos_kmip_bytes(blob->iv, blob->iv_bytes);
		if (fields) {
			requests[i].payload.decrypt.additional_data = naos_kmip_bytes(crossings[i].associated,
					NAOS_BLOB_ASSOCIATED_BYTES);
			requests[i].payload.decrypt.tag = naos_kmip_bytes(blob->tag, sizeof(blob->tag));
		}
	}
	int rc = naos_kmip_client_call(k->client, requests, count, true, &answer, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < count; i++) {
		struct naos_wrap_item *item = crossings[i].item;
		int result = unwrap_result(&answer.response.batch.items[i], &item->error);
		if (result == NAOS_E_DENIED)
			result = explain_refusal(k, item);
		if (result == 0)
			result = take_unwrapped(&answer.response.batch.items[i], &crossings[i], &item->error);
		(void)fail(item, result, first, err);
	}
	return 0;
}

int naos_kmip_unwrap(void *state, struct naos_wrap_item *items, size_t count, struct naos_error *err)
{
	struct kmip *k = state;
	struct naos_error why = NAOS_ERROR_INIT;
	naos_autosecret struct naos_secret *texts = NULL;
	size_t room = count < ITEMS_AT_ONCE ? count : ITEMS_AT_ONCE;
	naos_autofree struct crossing *crossings = calloc(room, sizeof(*crossings));
	bool reloaded = false;
	uint32_t version = 0;
	int first = 0, rc = crossings ? 0 : naos_error_set(&why, NAOS_E_NOMEM, "no memory to unwrap keys");
	for (size_t i = 0; i < count; i++)
		items[i].unwrapped = NULL;
	if (rc == 0)
		rc = naos_kmip_client_version(k->client, &version, &why);
	if (rc == 0)
		rc = naos_secret_create(room * TEXT_ROOM, &texts, &why);
	for (size_t done = 0; rc == 0 && done < count;) {
		size_t used = 0;
		for (; done < count && used < ITEMS_AT_ONCE; done++) {
			struct crossing *crossing = &crossings[used];
			*crossing = (struct crossing){ .item = &items[done], .text = naos_secret_data(texts) + used * TEXT_ROOM };
			used += fail(&items[done], prepare_unwrap(k, &reloaded, crossing, &items[done].error), &first, &why) == 0;
		}
		rc = used ? unwrap_some(k, version, crossings, used, &first, &why) : 0;
	}
	if (rc != 0)
		for (size_t i = 0; i < count; i++)
			items[i].unwrapped = naos_secret_free(items[i].unwrapped);
	if ((rc != 0 || first != 0) && err)
		*err = why;
	return rc ? fail_all(items, count, rc, &why) : first;
}
