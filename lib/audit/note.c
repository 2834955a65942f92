/* Signed notes with Ed25519.  SPDX-License-Identifier: Apache-2.0 */
#include "audit/note.h"

#include <string.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>

#include "audit/base64.h"
#include "base/cursor.h"
#include "base/uuid.h"

#define DASH "\xe2\x80\x94 " /* em dash, space */
#define DASH_BYTES 4
#define SIGNATURE_BYTES 64
#define BLOB_MAX_BYTES 8192 /* key id and signature; the largest of those in use are post-quantum ones of under 5 KiB */

bool naos_note_name_ok(const char *name)
{
	size_t bytes = strlen(name);
	if (bytes == 0 || bytes >= NAOS_NOTE_NAME_BYTES)
		return false;
	for (size_t i = 0; i < bytes; i++)
		if ((uint8_t)name[i] <= 0x20 || name[i] == '+' || (uint8_t)name[i] >= 0x7f)
			return false; /* ASCII only: no Unicode space can hide */
	return true;
}

int naos_verifier_make(const char *name, enum naos_note_type type, const uint8_t public_key[static NAOS_ED25519_BYTES],
		       struct naos_verifier *ret, struct naos_error *err)
{
	struct naos_verifier verifier = { .type = (uint8_t)type };
	uint8_t input[NAOS_NOTE_NAME_BYTES + 2 + NAOS_ED25519_BYTES], digest[EVP_MAX_MD_SIZE];
	if (!naos_note_name_ok(name))
		return naos_error_set(err, NAOS_E_USAGE, "a log or witness is named by 1 to %d printable ASCII characters without space or +",
				      NAOS_NOTE_NAME_BYTES - 1);
	struct naos_cursor cursor = naos_cursor_writer(input, sizeof(input));
	naos_cursor_put(&cursor, name, strlen(name));
	naos_cursor_put_u8(&cursor, '\n');
	naos_cursor_put_u8(&cursor, verifier.type);
	naos_cursor_put(&cursor, public_key, NAOS_ED25519_BYTES);
	if (!naos_cursor_ok(&cursor) || EVP_Q_digest(NULL, "SHA2-256", NULL, input, cursor.position, digest, NULL) != 1)
		return naos_error_set(err, NAOS_E_SYSTEM, "SHA-256 failed in the cryptographic library");
	memcpy(verifier.name, name, strlen(name) + 1);
	memcpy(verifier.id, digest, sizeof(verifier.id));
	memcpy(verifier.public_key, public_key, NAOS_ED25519_BYTES);
	*ret = verifier;
	return 0;
}

int naos_verifier_parse(const char *text, const char *what, struct naos_verifier *ret, struct naos_error *err)
{
	char name[NAOS_NOTE_NAME_BYTES], id[9], again[NAOS_NOTE_KEY_BYTES];
	uint8_t blob[1 + NAOS_ED25519_BYTES];
	struct naos_verifier verifier;
	size_t bytes = strlen(text), blob_bytes;
	if (bytes > 0 && text[bytes - 1] == '\n')
		bytes--;
	const char *first = memchr(text, '+', bytes);
	const char *second = first ? memchr(first + 1, '+', bytes - (size_t)(first + 1 - text)) : NULL;
	if (!second || (size_t)(first - text) >= sizeof(name) || second - first != 9 ||
	    !naos_base64_decode(second + 1, bytes - (size_t)(second + 1 - text), blob, sizeof(blob), &blob_bytes) ||
	    blob_bytes != sizeof(blob) || (blob[0] != NAOS_NOTE_ED25519 && blob[0] != NAOS_NOTE_COSIGNATURE))
		return naos_error_set(err, NAOS_E_FORMAT, "%s is not an Ed25519 verifier key (NAME+ID+BASE64)", what);
	memcpy(name, text, (size_t)(first - text));
	name[first - text] = 0;
	memcpy(id, first + 1, 8);
	id[8] = 0;
	if (!naos_note_name_ok(name) || naos_verifier_make(name, blob[0], blob + 1, &verifier, NULL) != 0)
		return naos_error_set(err, NAOS_E_FORMAT, "%s holds a name that no verifier key may have", what);
	/* one spelling only: an altered byte is never passed over */
	(void)naos_verifier_format(&verifier, again);
	if (strlen(again) != bytes || memcmp(again, text, bytes) != 0)
		return naos_error_set(err, NAOS_E_FORMAT, "%s is damaged: key id %s does not belong to that name and key", what, id);
	*ret = verifier;
	return 0;
}

const char *naos_verifier_format(const struct naos_verifier *verifier, char buffer[static NAOS_NOTE_KEY_BYTES])
{
	uint8_t blob[1 + NAOS_ED25519_BYTES];
	char id[9], key[NAOS_BASE64_BYTES(sizeof(blob))];
	blob[0] = verifier->type;
	memcpy(blob + 1, verifier->public_key, NAOS_ED25519_BYTES);
	(void)snprintf(buffer, NAOS_NOTE_KEY_BYTES, "%s+%s+%s", verifier->name, naos_hex_format(verifier->id, 4, id),
		       naos_base64_encode(blob, sizeof(blob), key));
	return buffer;
}

/* What is signed: the text itself, or for a cosignature two lines and the text.  The caller frees it. */
static int signed_message(enum naos_note_type type, uint64_t unix_s, const char *text, size_t bytes, char **ret, size_t *ret_bytes,
			  struct naos_error *err)
{
	size_t room = bytes + 64;
	char *message = malloc(room);
	if (!message)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a signed note");
	int head = type == NAOS_NOTE_COSIGNATURE ? snprintf(message, room, "cosignature/v1\ntime %llu\n", (unsigned long long)unix_s) : 0;
	memcpy(message + head, text, bytes);
	*ret = message;
	*ret_bytes = (size_t)head + bytes;
	return 0;
}

/* The library's copy of the key lives in ordinary memory: for one signature only, and it is wiped when freed.  The public key is given
 * along, for deriving it costs as much as the signature. */
static EVP_PKEY *make_key(const struct naos_signer *signer)
{
	OSSL_PARAM parameters[] = {
		OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PRIV_KEY, (void *)naos_secret_view(signer->seed),
						  naos_secret_bytes(signer->seed)),
		OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY, (void *)signer->verifier.public_key, NAOS_ED25519_BYTES),
		OSSL_PARAM_construct_end(),
	};
	EVP_PKEY *key = NULL;
	EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, "ED25519", NULL);
	if (context && EVP_PKEY_fromdata_init(context) == 1)
		(void)EVP_PKEY_fromdata(context, &key, EVP_PKEY_KEYPAIR, parameters);
	EVP_PKEY_CTX_free(context);
	return key;
}

int naos_note_sign(const struct naos_signer *signer, const char *text, size_t bytes, uint64_t unix_s,
		   char ret_line[static NAOS_NOTE_LINE_BYTES], struct naos_error *err)
{
	naos_autofree char *message = NULL;
	size_t message_bytes = 0, signature_bytes = SIGNATURE_BYTES;
	uint8_t blob[4 + 8 + SIGNATURE_BYTES];
	char encoded[NAOS_BASE64_BYTES(sizeof(blob))];
	int rc = signed_message(signer->verifier.type, unix_s, text, bytes, &message, &message_bytes, err);
	if (rc != 0)
		return rc;
	struct naos_cursor cursor = naos_cursor_writer(blob, sizeof(blob));
	naos_cursor_put(&cursor, signer->verifier.id, 4);
	if (signer->verifier.type == NAOS_NOTE_COSIGNATURE)
		naos_cursor_put_u64be(&cursor, unix_s);
	EVP_PKEY *key = make_key(signer);
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	bool ok = key && context && EVP_DigestSignInit(context, NULL, NULL, NULL, key) == 1 &&
		  EVP_DigestSign(context, blob + cursor.position, &signature_bytes, (const uint8_t *)message, message_bytes) == 1;
	EVP_MD_CTX_free(context);
	EVP_PKEY_free(key);
	if (!ok || signature_bytes != SIGNATURE_BYTES)
		return naos_error_set(err, NAOS_E_SYSTEM, "cannot sign with the key %s", signer->verifier.name);
	(void)snprintf(ret_line, NAOS_NOTE_LINE_BYTES, DASH "%s %s\n", signer->verifier.name,
		       naos_base64_encode(blob, cursor.position + SIGNATURE_BYTES, encoded));
	return 0;
}

/* The next signature line: its name (borrowed) and its decoded blob.  Moves *at behind its newline. */
static bool next_line(const char **at, const char *end, const char **ret_name, size_t *ret_name_bytes, uint8_t *ret_blob,
		      size_t *ret_blob_bytes)
{
	const char *line = *at, *stop = memchr(line, '\n', (size_t)(end - line));
	if (!stop || stop - line < DASH_BYTES || memcmp(line, DASH, DASH_BYTES) != 0)
		return false;
	const char *name = line + DASH_BYTES, *space = memchr(name, ' ', (size_t)(stop - name));
	if (!space || space == name || space - name >= NAOS_NOTE_NAME_BYTES || memchr(name, '+', (size_t)(space - name)))
		return false;
	if (!naos_base64_decode(space + 1, (size_t)(stop - space - 1), ret_blob, BLOB_MAX_BYTES, ret_blob_bytes) || *ret_blob_bytes < 5)
		return false;
	*ret_name = name;
	*ret_name_bytes = (size_t)(space - name);
	*at = stop + 1;
	return true;
}

int naos_note_parse(const char *note, size_t bytes, const char *what, size_t *ret_text_bytes, struct naos_error *err)
{
	uint8_t blob[BLOB_MAX_BYTES];
	const char *name;
	size_t name_bytes, blob_bytes, signatures = 0;
	if (bytes > NAOS_NOTE_MAX_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "%s is larger than a signed note may be (%zu bytes)", what, NAOS_NOTE_MAX_BYTES);
	for (size_t i = 0; i < bytes; i++)
		if ((uint8_t)note[i] < 0x20 && note[i] != '\n')
			return naos_error_set(err, NAOS_E_FORMAT, "%s is not a signed note: control byte at offset %zu", what, i);
	const char *end = note + bytes, *split = NULL;
	for (const char *at = note; (at = memmem(at, (size_t)(end - at), "\n\n", 2)) != NULL; at++)
		split = at;
	if (!split || split == note || split + 2 == end)
		return naos_error_set(err, NAOS_E_FORMAT, "%s is not a signed note: it has no signature", what);
	for (const char *at = split + 2; at < end; signatures++)
		if (!next_line(&at, end, &name, &name_bytes, blob, &blob_bytes))
			return naos_error_set(err, NAOS_E_FORMAT, "%s is not a signed note: signature line %zu is malformed", what, signatures + 1);
	if (signatures > NAOS_NOTE_MAX_SIGNATURES)
		return naos_error_set(err, NAOS_E_LIMIT, "%s has more than %d signatures", what, NAOS_NOTE_MAX_SIGNATURES);
	*ret_text_bytes = (size_t)(split + 1 - note);
	return 0;
}

static bool signature_ok(const struct naos_verifier *verifier, const uint8_t *signature, const char *message, size_t bytes)
{
	EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, verifier->public_key, NAOS_ED25519_BYTES);
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	bool ok = key && context && EVP_DigestVerifyInit(context, NULL, NULL, NULL, key) == 1 &&
		  EVP_DigestVerify(context, signature, SIGNATURE_BYTES, (const uint8_t *)message, bytes) == 1;
	EVP_MD_CTX_free(context);
	EVP_PKEY_free(key);
	return ok;
}

/* One line of this key; the time is 0 for a plain signature. */
static int verify_blob(const struct naos_verifier *verifier, const uint8_t *blob, size_t blob_bytes, const char *text, size_t bytes,
		       bool *ret_ok, uint64_t *ret_unix_s, struct naos_error *err)
{
	naos_autofree char *message = NULL;
	size_t message_bytes = 0, head = verifier->type == NAOS_NOTE_COSIGNATURE ? 12 : 4;
	struct naos_cursor cursor = naos_cursor_reader(blob + 4, blob_bytes - 4);
	*ret_ok = false;
	if (blob_bytes != head + SIGNATURE_BYTES)
		return 0;
	*ret_unix_s = head == 12 ? naos_cursor_get_u64be(&cursor) : 0;
	int rc = signed_message(verifier->type, *ret_unix_s, text, bytes, &message, &message_bytes, err);
	if (rc == 0)
		*ret_ok = signature_ok(verifier, blob + head, message, message_bytes);
	return rc;
}

int naos_note_verify(const char *note, size_t bytes, size_t text_bytes, const struct naos_verifier *verifier, const char *what,
		     uint64_t *ret_unix_s, struct naos_error *err)
{
	uint8_t blob[BLOB_MAX_BYTES];
	const char *name, *end = note + bytes;
	size_t name_bytes, blob_bytes;
	uint64_t latest = 0, unix_s = 0;
	bool found = false, ok;
	for (const char *at = note + text_bytes + 1; at < end;) {
		if (!next_line(&at, end, &name, &name_bytes, blob, &blob_bytes))
			return naos_error_set(err, NAOS_E_FORMAT, "%s is not a signed note", what);
		if (name_bytes != strlen(verifier->name) || memcmp(name, verifier->name, name_bytes) != 0 || memcmp(blob, verifier->id, 4) != 0)
			continue;
		int rc = verify_blob(verifier, blob, blob_bytes, note, text_bytes, &ok, &unix_s, err);
		if (rc != 0)
			return rc;
		if (!ok)
			return naos_error_set(err, NAOS_E_INTEGRITY, "%s: the signature of %s is wrong", what, verifier->name);
		found = true;
		latest = unix_s > latest ? unix_s : latest;
	}
	if (!found)
		return naos_error_set(err, NAOS_E_INTEGRITY, "%s: no signature of %s with key id %02x%02x%02x%02x", what, verifier->name,
				      verifier->id[0], verifier->id[1], verifier->id[2], verifier->id[3]);
	if (ret_unix_s)
		*ret_unix_s = latest;
	return 0;
}
