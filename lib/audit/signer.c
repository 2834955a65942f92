/* The private key of a log or witness: 32 bytes in secret memory, PKCS #8 PEM on disk.  The file is made and read here and
 * not by the library's PEM reader, whose buffers can't be kept in secret memory: RFC 8410 fixes all bytes but the key.
 * SPDX-License-Identifier: Apache-2.0 */
#include "audit/note.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <openssl/evp.h>

#include "audit/base64.h"
#include "base/cursor.h"
#include "base/io.h"

#define PEM_HEAD "-----BEGIN PRIVATE KEY-----\n"
#define PEM_TAIL "\n-----END PRIVATE KEY-----\n"
#define PEM_MAX_BYTES 512

/* PrivateKeyInfo { 0, { 1.3.101.112 }, OCTET STRING { OCTET STRING of 32 bytes } } up to the key itself */
static const uint8_t pkcs8_head[16] = { 0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20 };
#define PKCS8_BYTES (sizeof(pkcs8_head) + NAOS_ED25519_BYTES)
#define PEM_BODY_BYTES 64

/* Takes the seed over, on success only. */
static int from_seed(struct naos_secret **seed, const char *name, enum naos_note_type type, struct naos_signer *ret,
		     struct naos_error *err)
{
	uint8_t public_key[NAOS_ED25519_BYTES];
	size_t bytes = sizeof(public_key);
	struct naos_signer signer = { .seed = NULL };
	EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, naos_secret_view(*seed), naos_secret_bytes(*seed));
	bool ok = key && EVP_PKEY_get_raw_public_key(key, public_key, &bytes) == 1;
	EVP_PKEY_free(key);
	if (!ok)
		return naos_error_set(err, NAOS_E_SYSTEM, "cannot use an Ed25519 key");
	int rc = naos_verifier_make(name, type, public_key, &signer.verifier, err);
	if (rc != 0)
		return rc;
	signer.seed = naos_steal(*seed);
	*ret = signer;
	return 0;
}

int naos_signer_create(const char *name, enum naos_note_type type, struct naos_signer *ret, struct naos_error *err)
{
	naos_autosecret struct naos_secret *seed = NULL;
	int rc = naos_secret_random(NAOS_ED25519_BYTES, &seed, err);
	return rc != 0 ? rc : from_seed(&seed, name, type, ret, err);
}

void naos_signer_clear(struct naos_signer *signer)
{
	signer->seed = naos_secret_free(signer->seed);
}

/* PEM as naos_signer_store writes it, and nothing else, into the key. */
static bool pem_decode(struct naos_secret *pem, struct naos_secret *der, struct naos_secret *seed)
{
	struct naos_cursor text = naos_cursor_reader(naos_secret_view(pem), naos_secret_bytes(pem));
	naos_cursor_get_match(&text, PEM_HEAD, strlen(PEM_HEAD));
	const uint8_t *body = naos_cursor_get_view(&text, PEM_BODY_BYTES);
	naos_cursor_get_match(&text, PEM_TAIL, strlen(PEM_TAIL) - 1); /* its newline was cut when it was read */
	/* 64 letters without padding give exactly PKCS8_BYTES, straight into secret memory */
	if (!naos_cursor_at_end(&text) || EVP_DecodeBlock(naos_secret_data(der), body, PEM_BODY_BYTES) != (int)PKCS8_BYTES)
		return false;
	struct naos_cursor info = naos_cursor_reader(naos_secret_view(der), PKCS8_BYTES);
	naos_cursor_get_match(&info, pkcs8_head, sizeof(pkcs8_head));
	naos_cursor_get(&info, naos_secret_data(seed), NAOS_ED25519_BYTES);
	return naos_cursor_at_end(&info);
}

/* The file's bytes into pem, which has room for them and a NUL. */
static void pem_encode(const struct naos_signer *signer, struct naos_secret *der, struct naos_secret *pem)
{
	struct naos_cursor info = naos_cursor_writer(naos_secret_data(der), PKCS8_BYTES);
	naos_cursor_put(&info, pkcs8_head, sizeof(pkcs8_head));
	naos_cursor_put(&info, naos_secret_view(signer->seed), NAOS_ED25519_BYTES);
	struct naos_cursor head = naos_cursor_writer(naos_secret_data(pem), strlen(PEM_HEAD));
	naos_cursor_put(&head, PEM_HEAD, strlen(PEM_HEAD));
	char *body = (char *)naos_secret_data(pem) + strlen(PEM_HEAD);
	(void)naos_base64_encode(naos_secret_view(der), PKCS8_BYTES, body);
	struct naos_cursor tail = naos_cursor_writer(body + PEM_BODY_BYTES, strlen(PEM_TAIL)); /* over the NUL */
	naos_cursor_put(&tail, PEM_TAIL, strlen(PEM_TAIL));
}

int naos_signer_load(int dir_fd, const char *path, const char *name, enum naos_note_type type, struct naos_signer *ret,
		     struct naos_error *err)
{
	naos_autosecret struct naos_secret *pem = NULL, *der = NULL, *seed = NULL;
	struct stat status;
	naos_autoclose int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0 || fstat(fd, &status) != 0)
		return naos_error_set_errno(err, errno, "cannot open the private key %s", path);
	if (status.st_mode & 077)
		return naos_error_set(err, NAOS_E_PERMISSION, "others may read the private key %s (mode %04o): chmod 600 it", path,
				      status.st_mode & 07777);
	int rc = naos_secret_read_fd(fd, PEM_MAX_BYTES, "private key", &pem, err); /* without its last newline */
	if (rc == 0)
		rc = naos_secret_create(PKCS8_BYTES, &der, err);
	if (rc == 0)
		rc = naos_secret_create(NAOS_ED25519_BYTES, &seed, err);
	if (rc != 0)
		return rc;
	if (!pem_decode(pem, der, seed))
		return naos_error_set(err, NAOS_E_FORMAT, "%s is not an unencrypted Ed25519 private key in PEM", path);
	return from_seed(&seed, name, type, ret, err);
}

int naos_signer_store(const struct naos_signer *signer, int dir_fd, const char *path, struct naos_error *err)
{
	naos_autosecret struct naos_secret *pem = NULL, *der = NULL;
	naos_autoclose int fd = -1;
	naos_autofree char *temporary = NULL;
	size_t bytes = strlen(PEM_HEAD) + PEM_BODY_BYTES + strlen(PEM_TAIL);
	int rc = naos_secret_create(PKCS8_BYTES, &der, err);
	if (rc == 0)
		rc = naos_secret_create(bytes + 1, &pem, err);
	if (rc == 0)
		rc = naos_io_temporary(dir_fd, path, 0600, &fd, &temporary, err);
	if (rc != 0)
		return rc;
	pem_encode(signer, der, pem);
	rc = naos_io_write(fd, naos_secret_view(pem), bytes, path, err);
	if (rc == 0 && fsync(fd) != 0)
		rc = naos_error_set_errno(err, errno, "cannot make %s durable", path);
	if (rc == 0)
		rc = naos_io_publish(dir_fd, temporary, path, false, err);
	if (rc != 0)
		(void)unlinkat(dir_fd, temporary, 0);
	return rc;
}
