/* Signed notes (c2sp.org/signed-note): a text, an empty line, and one signature line per key.  Ed25519 only: plain
 * signatures (type 1, the log) and timestamped cosignatures (type 4, witnesses, c2sp.org/tlog-cosignature).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_AUDIT_NOTE_H
#define NAOS_AUDIT_NOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/errors.h"
#include "base/secret.h"

#define NAOS_NOTE_MAX_BYTES ((size_t)128 << 10) /* a checkpoint with its signatures */
#define NAOS_NOTE_MAX_SIGNATURES 32 /* of one checkpoint */
#define NAOS_NOTE_NAME_BYTES 256  /* with the final NUL */
#define NAOS_NOTE_KEY_BYTES 512   /* a verifier key as text, with the final NUL */
#define NAOS_NOTE_LINE_BYTES 512  /* a signature line, with newline and NUL */
#define NAOS_ED25519_BYTES 32

enum naos_note_type { NAOS_NOTE_ED25519 = 1, NAOS_NOTE_COSIGNATURE = 4 };

/* Who may have signed: the text form is NAME+ID+BASE64 (a "vkey"). */
struct naos_verifier {
	char name[NAOS_NOTE_NAME_BYTES];
	uint8_t type;
	uint8_t id[4];
	uint8_t public_key[NAOS_ED25519_BYTES];
};

/* A private key with its public half. */
struct naos_signer {
	struct naos_verifier verifier;
	struct naos_secret *seed; /* RFC 8032 private key */
};

/* True if a signature line can carry the name: not empty, no space, no plus, no control bytes, not too long. */
bool naos_note_name_ok(const char *name);

/* Text of `what` (for messages), with or without a final newline. */
int naos_verifier_parse(const char *text, const char *what, struct naos_verifier *ret, struct naos_error *err) naos_must_check;
/* Without a newline; returns buffer. */
const char *naos_verifier_format(const struct naos_verifier *verifier, char buffer[static NAOS_NOTE_KEY_BYTES]);
/* The verifier of a public key under a name. */
int naos_verifier_make(const char *name, enum naos_note_type type, const uint8_t public_key[static NAOS_ED25519_BYTES],
		       struct naos_verifier *ret, struct naos_error *err) naos_must_check;

/* A new key.  The caller releases it with naos_signer_clear. */
int naos_signer_create(const char *name, enum naos_note_type type, struct naos_signer *ret, struct naos_error *err) naos_must_check;
/* PKCS #8 in PEM, as `openssl genpkey -algorithm ed25519` writes it; refuses a file that others may read. */
int naos_signer_load(int dir_fd, const char *path, const char *name, enum naos_note_type type, struct naos_signer *ret,
		     struct naos_error *err) naos_must_check;
/* Writes it with mode 0600; an existing file is NAOS_E_EXISTS. */
int naos_signer_store(const struct naos_signer *signer, int dir_fd, const char *path, struct naos_error *err) naos_must_check;
void naos_signer_clear(struct naos_signer *signer);

/* One signature line over a text that ends in a newline; unix_s is used by cosignatures only. */
int naos_note_sign(const struct naos_signer *signer, const char *text, size_t bytes, uint64_t unix_s,
		   char ret_line[static NAOS_NOTE_LINE_BYTES], struct naos_error *err) naos_must_check;

/* Splits a note: the length of its text (with the final newline); the signature lines follow after one more newline.
 * Checks the form of every line.  NAOS_E_FORMAT. */
int naos_note_parse(const char *note, size_t bytes, const char *what, size_t *ret_text_bytes, struct naos_error *err) naos_must_check;
/* NAOS_E_INTEGRITY if the key's signature is absent or wrong; signatures by others are passed over.  `note` has been parsed.
 * ret_unix_s (may be NULL): the latest time that a cosignature states, else 0. */
int naos_note_verify(const char *note, size_t bytes, size_t text_bytes, const struct naos_verifier *verifier, const char *what,
		     uint64_t *ret_unix_s, struct naos_error *err) naos_must_check;

#endif
