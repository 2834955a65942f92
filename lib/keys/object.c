/* Objects of a token: searching, checking, making and destroying keys.  SPDX-License-Identifier: Apache-2.0 */
#include "keys/token.h"

#include <string.h>
#include <time.h>

#define LABEL_PREFIX "naos:"
#define SEARCH_STEP 64

void naos_token_id(const struct naos_uuid *mek_id, uint32_t version, uint8_t ret[static NAOS_TOKEN_ID_BYTES])
{
	struct naos_cursor out = naos_cursor_writer(ret, NAOS_TOKEN_ID_BYTES);
	naos_cursor_put(&out, mek_id->bytes, sizeof(mek_id->bytes));
	naos_cursor_put_u32be(&out, version);
}

static int refused(const struct naos_token *token, const char *doing, CK_RV rv, struct naos_error *err)
{
	char text[NAOS_RV_TEXT_BYTES];
	return naos_error_set(err, NAOS_E_KEYMANAGER, "token '%s' cannot %s: %s", token->label, doing, naos_rv_text(rv, text));
}

/* All objects that match, in a buffer that the caller frees.  `objects` is held. */
static int search(struct naos_token *token, CK_ATTRIBUTE *template, CK_ULONG template_count, CK_OBJECT_HANDLE **ret, size_t *ret_count,
		  struct naos_error *err)
{
	CK_FUNCTION_LIST *f = token->module->functions;
	naos_autofree CK_OBJECT_HANDLE *found = NULL;
	size_t count = 0;
	CK_ULONG got = 1;
	CK_RV rv = f->C_FindObjectsInit(token->anchor, template, template_count);
	if (rv != CKR_OK)
		return refused(token, "search its objects", rv, err);
	while (rv == CKR_OK && got > 0) {
		CK_OBJECT_HANDLE *grown = reallocarray(found, count + SEARCH_STEP, sizeof(*grown));
		if (!grown) {
			rv = CKR_HOST_MEMORY;
			break;
		}
		found = grown;
		got = 0;
		rv = f->C_FindObjects(token->anchor, found + count, SEARCH_STEP, &got);
		count += got;
	}
	(void)f->C_FindObjectsFinal(token->anchor);
	if (rv != CKR_OK)
		return refused(token, "search its objects", rv, err);
	*ret_count = count;
	*ret = naos_steal(found);
	return 0;
}

static int compare_keys(const void *left, const void *right)
{
	const struct naos_token_key *a = left, *b = right;
	int order = memcmp(a->mek_id.bytes, b->mek_id.bytes, sizeof(a->mek_id.bytes));
	return order ? order : (a->version > b->version) - (a->version < b->version);
}

/* The map's entry of a key, or NULL.  `lock` is held. */
static struct naos_token_key *map_entry(struct naos_token *token, const struct naos_uuid *mek_id, uint32_t version)
{
	struct naos_token_key wanted = { .mek_id = *mek_id, .version = version };
	return token->key_count ? bsearch(&wanted, token->keys, token->key_count, sizeof(wanted), compare_keys) : NULL;
}

/* Whether an object carries our label and id; the rest of it is checked at its first use. */
static bool is_ours(struct naos_token *token, CK_OBJECT_HANDLE object, struct naos_token_key *ret)
{
	uint8_t id[NAOS_TOKEN_ID_BYTES];
	char label[160];
	CK_ATTRIBUTE attributes[] = { { CKA_ID, id, sizeof(id) }, { CKA_LABEL, label, sizeof(label) } };
	CK_RV rv = token->module->functions->C_GetAttributeValue(token->anchor, object, attributes, NAOS_ARRAY_LENGTH(attributes));
	if (rv != CKR_OK || attributes[0].ulValueLen != sizeof(id) || attributes[1].ulValueLen < strlen(LABEL_PREFIX) ||
	    memcmp(label, LABEL_PREFIX, strlen(LABEL_PREFIX)) != 0)
		return false;
	struct naos_cursor in = naos_cursor_reader(id, sizeof(id));
	*ret = (struct naos_token_key){ .object = object };
	naos_cursor_get(&in, ret->mek_id.bytes, sizeof(ret->mek_id.bytes));
	ret->version = naos_cursor_get_u32be(&in);
	return true;
}

/* Sorts, and marks keys that are there twice. */
static size_t settle_map(struct naos_token_key *keys, size_t count)
{
	size_t kept = 0;
	if (count > 0)
		qsort(keys, count, sizeof(*keys), compare_keys);
	for (size_t i = 0; i < count; i++) {
		if (kept > 0 && compare_keys(&keys[kept - 1], &keys[i]) == 0)
			keys[kept - 1].duplicate = true;
		else
			keys[kept++] = keys[i];
	}
	return kept;
}

static CK_OBJECT_CLASS class_secret = CKO_SECRET_KEY;
static CK_KEY_TYPE type_aes = CKK_AES;
static CK_BBOOL yes = CK_TRUE, no = CK_FALSE;

int naos_token_search(struct naos_token *token, struct naos_error *err)
{
	CK_ATTRIBUTE template[] = { { CKA_CLASS, &class_secret, sizeof(class_secret) }, { CKA_TOKEN, &yes, sizeof(yes) } };
	naos_autofree CK_OBJECT_HANDLE *found = NULL;
	naos_autofree struct naos_token_key *keys = NULL;
	size_t found_count, count = 0;
	(void)pthread_mutex_lock(&token->objects);
	int rc = search(token, template, NAOS_ARRAY_LENGTH(template), &found, &found_count, err);
	if (rc == 0) {
		keys = calloc(found_count + 1, sizeof(*keys));
		if (!keys)
			rc = naos_error_set(err, NAOS_E_NOMEM, "no memory for the keys of a token");
	}
	for (size_t i = 0; rc == 0 && i < found_count; i++)
		count += is_ours(token, found[i], &keys[count]);
	if (rc == 0) {
		count = settle_map(keys, count);
		(void)pthread_mutex_lock(&token->lock);
		for (size_t i = 0; i < count; i++) { /* copies go on */
			const struct naos_token_key *old = map_entry(token, &keys[i].mek_id, keys[i].version);
			if (old && old->object == keys[i].object)
				keys[i].handle = old->handle;
		}
		struct naos_token_key *former = token->keys;
		token->keys = naos_steal(keys);
		token->key_count = count;
		free(former);
		(void)pthread_mutex_unlock(&token->lock);
	}
	(void)pthread_mutex_unlock(&token->objects);
	return rc;
}

/* What is wrong with a key, or NULL. */
static const char *key_fault(struct naos_token *token, CK_OBJECT_HANDLE object, CK_RV *ret_rv)
{
	CK_OBJECT_CLASS class = 0;
	CK_KEY_TYPE type = 0;
	CK_ULONG value_bytes = 0;
	CK_BBOOL sensitive = 0, always_sensitive = 0, extractable = 1, never_extractable = 0, encrypt = 0, decrypt = 0, wrap = 1, unwrap = 1;
	CK_ATTRIBUTE attributes[] = {
		{ CKA_CLASS, &class, sizeof(class) },
		{ CKA_KEY_TYPE, &type, sizeof(type) },
		{ CKA_VALUE_LEN, &value_bytes, sizeof(value_bytes) },
		{ CKA_SENSITIVE, &sensitive, 1 },
		{ CKA_ALWAYS_SENSITIVE, &always_sensitive, 1 },
		{ CKA_EXTRACTABLE, &extractable, 1 },
		{ CKA_NEVER_EXTRACTABLE, &never_extractable, 1 },
		{ CKA_ENCRYPT, &encrypt, 1 },
		{ CKA_DECRYPT, &decrypt, 1 },
		{ CKA_WRAP, &wrap, 1 },
		{ CKA_UNWRAP, &unwrap, 1 },
	};
	*ret_rv = token->module->functions->C_GetAttributeValue(token->anchor, object, attributes, NAOS_ARRAY_LENGTH(attributes));
	if (*ret_rv != CKR_OK)
		return "its attributes can't be read";
	if (class != CKO_SECRET_KEY || type != CKK_AES || value_bytes != 32)
		return "it is not an AES key of 256 bits";
	if (!sensitive || extractable)
		return "it may be read out of the token (not sensitive, or extractable)";
	if (!always_sensitive || !never_extractable)
		return "it was outside the token once (never-extractable and always-sensitive are not set)";
	if (wrap || unwrap)
		return "it may wrap or unwrap keys inside the token; together with decrypt that gives other keys away";
	if (!encrypt || !decrypt)
		return "it may not encrypt and decrypt";
	return NULL;
}

/* SoftHSM reads two files at each use of a token object; a copy in the anchor session is three times as fast.  Where the
 * token refuses, or would make a lesser key, the object itself is used. */
static CK_OBJECT_HANDLE copy_key(struct naos_token *token, CK_OBJECT_HANDLE object)
{
	CK_ATTRIBUTE template[] = { { CKA_TOKEN, &no, sizeof(no) }, { CKA_MODIFIABLE, &no, sizeof(no) } };
	CK_OBJECT_HANDLE copy;
	if (!token->module->softhsm)
		return object;
	CK_RV rv = token->module->functions->C_CopyObject(token->anchor, object, template, NAOS_ARRAY_LENGTH(template), &copy);
	if (rv != CKR_OK)
		return object;
	if (!key_fault(token, copy, &rv))
		return copy;
	(void)token->module->functions->C_DestroyObject(token->anchor, copy);
	return object;
}

/* Checks the key at its first use.  `objects` is held, so only one thread does it. */
static int make_ready(struct naos_token *token, const struct naos_mek *mek, const struct naos_blob *proof, CK_OBJECT_HANDLE object,
		      CK_OBJECT_HANDLE *ret, struct naos_error *err)
{
	char id[NAOS_UUID_TEXT_BYTES];
	CK_RV rv;
	const char *fault = key_fault(token, object, &rv);
	if (rv != CKR_OK)
		return refused(token, "show the attributes of a key", rv, err);
	if (fault)
		return naos_error_set(err, NAOS_E_KEY_STATE, "token '%s': key %s version %u is refused: %s", token->label,
				      naos_uuid_format(&mek->id, id), mek->version, fault);
	CK_OBJECT_HANDLE handle = copy_key(token, object);
	int rc = naos_proof_check(token, handle, proof, err);
	if (rc != 0) {
		if (handle != object)
			(void)token->module->functions->C_DestroyObject(token->anchor, handle);
		return rc;
	}
	*ret = handle;
	(void)pthread_mutex_lock(&token->lock);
	struct naos_token_key *key = map_entry(token, &mek->id, mek->version);
	if (key)
		key->handle = *ret;
	(void)pthread_mutex_unlock(&token->lock);
	return 0;
}

int naos_token_key(struct naos_token *token, const struct naos_mek *mek, const struct naos_blob *proof, CK_OBJECT_HANDLE *ret,
		   struct naos_error *err)
{
	char id[NAOS_UUID_TEXT_BYTES];
	struct naos_token_key key = { 0 };
	int rc = 0;
	(void)pthread_mutex_lock(&token->lock);
	const struct naos_token_key *entry = map_entry(token, &mek->id, mek->version);
	if (entry)
		key = *entry;
	(void)pthread_mutex_unlock(&token->lock);
	if (key.duplicate)
		return naos_error_set(err, NAOS_E_KEY_STATE, "token '%s' has two objects for key %s version %u: remove the one that is not yours",
				      token->label, naos_uuid_format(&mek->id, id), mek->version);
	if (key.handle == 0 && key.object != 0) {
		(void)pthread_mutex_lock(&token->objects);
		(void)pthread_mutex_lock(&token->lock);
		entry = map_entry(token, &mek->id, mek->version);
		key = entry ? *entry : (struct naos_token_key){ 0 };
		(void)pthread_mutex_unlock(&token->lock);
		if (key.handle == 0 && key.object != 0)
			rc = make_ready(token, mek, proof, key.object, &key.handle, err);
		(void)pthread_mutex_unlock(&token->objects);
	}
	if (rc == 0)
		*ret = key.handle;
	return rc;
}

int naos_token_generate(struct naos_token *token, const struct naos_mek *mek, CK_OBJECT_HANDLE *ret, struct naos_error *err)
{
	uint8_t id[NAOS_TOKEN_ID_BYTES];
	char label[160], uuid[NAOS_UUID_TEXT_BYTES];
	CK_ULONG value_bytes = 32;
	CK_MECHANISM mechanism = { CKM_AES_KEY_GEN, NULL, 0 };
	naos_token_id(&mek->id, mek->version, id);
	/* everything to rebuild the metadata from, should its file be lost */
	/* SoftHSM copies only what may be modified.  Nothing is lost by that: a key can't become extractable again, and one that
	 * was given the right to wrap is refused at its next use. */
	CK_BBOOL *copyable = token->module->softhsm ? &yes : &no;
	int label_bytes = snprintf(label, sizeof(label), LABEL_PREFIX "%s:%u:%s", naos_uuid_format(&mek->id, uuid), mek->version, mek->name);
	CK_ATTRIBUTE template[] = {
		{ CKA_CLASS, &class_secret, sizeof(class_secret) },
		{ CKA_KEY_TYPE, &type_aes, sizeof(type_aes) },
		{ CKA_VALUE_LEN, &value_bytes, sizeof(value_bytes) },
		{ CKA_LABEL, label, (CK_ULONG)label_bytes },
		{ CKA_ID, id, sizeof(id) },
		{ CKA_TOKEN, &yes, sizeof(yes) },
		{ CKA_PRIVATE, &yes, sizeof(yes) },
		{ CKA_SENSITIVE, &yes, sizeof(yes) },
		{ CKA_EXTRACTABLE, &no, sizeof(no) },
		{ CKA_MODIFIABLE, copyable, sizeof(*copyable) },
		{ CKA_COPYABLE, copyable, sizeof(*copyable) },
		{ CKA_ENCRYPT, &yes, sizeof(yes) },
		{ CKA_DECRYPT, &yes, sizeof(yes) },
		{ CKA_WRAP, &no, sizeof(no) },
		{ CKA_UNWRAP, &no, sizeof(no) },
		{ CKA_SIGN, &no, sizeof(no) },
		{ CKA_VERIFY, &no, sizeof(no) },
		{ CKA_DERIVE, &no, sizeof(no) },
	};
	(void)pthread_mutex_lock(&token->objects);
	CK_RV rv = token->module->functions->C_GenerateKey(token->anchor, &mechanism, template, NAOS_ARRAY_LENGTH(template), ret);
	(void)pthread_mutex_unlock(&token->objects);
	return rv == CKR_OK ? 0 : refused(token, "make a key", rv, err);
}

/* `objects` is held. */
static int search_key(struct naos_token *token, const struct naos_mek *mek, CK_OBJECT_HANDLE **ret, size_t *ret_count,
		      struct naos_error *err)
{
	uint8_t id[NAOS_TOKEN_ID_BYTES];
	naos_token_id(&mek->id, mek->version, id);
	CK_ATTRIBUTE template[] = { { CKA_TOKEN, &yes, sizeof(yes) }, { CKA_ID, id, sizeof(id) } };
	return search(token, template, NAOS_ARRAY_LENGTH(template), ret, ret_count, err);
}

/* Takes a key out of the map and destroys its copy.  `objects` is held. */
static void drop_from_map(struct naos_token *token, const struct naos_mek *mek)
{
	struct naos_token_key key = { 0 };
	(void)pthread_mutex_lock(&token->lock);
	struct naos_token_key *entry = map_entry(token, &mek->id, mek->version);
	if (entry) {
		key = *entry;
		size_t after = (size_t)(token->keys + token->key_count - (entry + 1));
		memmove(entry, entry + 1, after * sizeof(*entry));
		token->key_count--;
	}
	(void)pthread_mutex_unlock(&token->lock);
	if (key.handle != 0 && key.handle != key.object)
		(void)token->module->functions->C_DestroyObject(token->anchor, key.handle);
}

static int add_to_map(struct naos_token *token, const struct naos_mek *mek, CK_OBJECT_HANDLE object, bool duplicate, struct naos_error *err)
{
	(void)pthread_mutex_lock(&token->lock);
	struct naos_token_key *grown = reallocarray(token->keys, token->key_count + 1, sizeof(*grown));
	if (grown) {
		token->keys = grown;
		grown[token->key_count++] = (struct naos_token_key){
			.mek_id = mek->id, .version = mek->version, .object = object, .duplicate = duplicate };
		qsort(grown, token->key_count, sizeof(*grown), compare_keys);
	}
	(void)pthread_mutex_unlock(&token->lock);
	return grown ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for the keys of a token");
}

int naos_token_find(struct naos_token *token, const struct naos_mek *mek, size_t *ret_count, struct naos_error *err)
{
	naos_autofree CK_OBJECT_HANDLE *found = NULL;
	size_t count;
	(void)pthread_mutex_lock(&token->objects);
	int rc = search_key(token, mek, &found, &count, err);
	if (rc == 0)
		drop_from_map(token, mek);
	if (rc == 0 && count > 0)
		rc = add_to_map(token, mek, found[0], count > 1, err);
	(void)pthread_mutex_unlock(&token->objects);
	if (rc == 0)
		*ret_count = count;
	return rc;
}

int naos_token_destroy(struct naos_token *token, const struct naos_mek *mek, size_t *ret_count, struct naos_error *err)
{
	naos_autofree CK_OBJECT_HANDLE *found = NULL;
	size_t count = 0;
	(void)pthread_mutex_lock(&token->objects);
	drop_from_map(token, mek);
	int rc = search_key(token, mek, &found, &count, err);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		CK_RV rv = token->module->functions->C_DestroyObject(token->anchor, found[i]);
		if (rv != CKR_OK)
			rc = refused(token, "destroy a key", rv, err);
	}
	(void)pthread_mutex_unlock(&token->objects);
	if (rc == 0)
		*ret_count = count;
	return rc;
}

void naos_token_forget(struct naos_token *token, const struct naos_mek *mek)
{
	(void)pthread_mutex_lock(&token->objects);
	drop_from_map(token, mek);
	(void)pthread_mutex_unlock(&token->objects);
}

/* A secret key with nothing in it. */
static bool is_partial(struct naos_token *token, CK_OBJECT_HANDLE object)
{
	CK_OBJECT_CLASS class = 0;
	CK_ULONG value_bytes = 0;
	CK_BBOOL local = CK_TRUE;
	uint8_t id[64], label[160]; /* asked only for the length, SoftHSM counts what is not there */
	CK_ATTRIBUTE attributes[] = { { CKA_ID, id, sizeof(id) }, { CKA_LABEL, label, sizeof(label) },
				      { CKA_VALUE_LEN, &value_bytes, sizeof(value_bytes) }, { CKA_LOCAL, &local, sizeof(local) },
				      { CKA_CLASS, &class, sizeof(class) } };
	CK_RV rv = token->module->functions->C_GetAttributeValue(token->anchor, object, attributes, NAOS_ARRAY_LENGTH(attributes));
	return rv == CKR_OK && class == CKO_SECRET_KEY && attributes[0].ulValueLen == 0 && attributes[1].ulValueLen == 0 &&
	       value_bytes == 0 && !local;
}

int naos_token_sweep_partial(struct naos_token *token, size_t *ret_count, struct naos_error *err)
{
	/* longer than a creation by another program takes: what is still empty then is dead */
	static const struct timespec pause = { 0, 500000000L };
	naos_autofree CK_OBJECT_HANDLE *found = NULL;
	size_t count = 0, partial = 0, swept = 0;
	(void)pthread_mutex_lock(&token->objects);
	/* all objects: CKA_TOKEN is not set yet in what is half made */
	int rc = search(token, NULL, 0, &found, &count, err);
	for (size_t i = 0; rc == 0 && i < count; i++)
		if (is_partial(token, found[i]))
			found[partial++] = found[i];
	if (partial > 0)
		(void)nanosleep(&pause, NULL);
	for (size_t i = 0; i < partial; i++)
		if (is_partial(token, found[i]) && token->module->functions->C_DestroyObject(token->anchor, found[i]) == CKR_OK)
			swept++;
	(void)pthread_mutex_unlock(&token->objects);
	if (rc == 0)
		*ret_count = swept;
	return rc;
}
