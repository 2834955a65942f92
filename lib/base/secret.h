/* The one way to hold a secret.
 *
 * Secrets live in one slab per process: guard pages at both ends, locked in memory (mlock), left out of core dumps
 * (MADV_DONTDUMP) and zero in a forked child (MADV_WIPEONFORK).  The slab grows page by page, so that 2,000 keys fit a
 * RLIMIT_MEMLOCK of 64 KiB.  A secret is wiped when freed.  Book-keeping lies outside the slab.  All functions are
 * thread-safe; one secret is used by one thread at a time, or by many as const.
 *
 * memcpy, memcmp and printf of a secret are refused by tests/lint: use the functions below.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_BASE_SECRET_H
#define NAOS_BASE_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/errors.h"

#define NAOS_SECRET_MAX_BYTES ((size_t)1 << 20) /* one secret */
#define NAOS_SECRET_SLAB_BYTES ((size_t)64 << 20) /* all secrets of a process (address space; locked as used) */

struct naos_secret;

/* A zeroed secret of 1 … NAOS_SECRET_MAX_BYTES bytes, 64-byte aligned from 64 bytes on (16 below).
 * Errors: NAOS_E_MEMLOCK (RLIMIT_MEMLOCK too small, with the limit and the remedy), NAOS_E_NOMEM, NAOS_E_LIMIT. */
int naos_secret_create(size_t bytes, struct naos_secret **ret, struct naos_error *err) naos_must_check;

/* The same, filled from the DRBG (OpenSSL's private generator). */
int naos_secret_random(size_t bytes, struct naos_secret **ret, struct naos_error *err) naos_must_check;

/* The same, copied from source, which is wiped: the caller's copy ends here.  It is wiped on failure too. */
int naos_secret_take(void *source, size_t bytes, struct naos_secret **ret, struct naos_error *err) naos_must_check;

/* Reads a secret of at most max_bytes (≤ 64 KiB) from a descriptor until end of file; one trailing newline is cut.
 * `what` names it in messages ("PIN", "header key"). */
int naos_secret_read_fd(int fd, size_t max_bytes, const char *what, struct naos_secret **ret,
			struct naos_error *err) naos_must_check;

/* Bytes of the secret, valid until it is freed; for handing to a cryptographic library. */
uint8_t *naos_secret_data(struct naos_secret *secret);
const uint8_t *naos_secret_view(const struct naos_secret *secret);
size_t naos_secret_bytes(const struct naos_secret *secret);

/* Shortens a secret (the cut bytes are wiped); never lengthens. */
void naos_secret_shrink(struct naos_secret *secret, size_t bytes);

/* A second copy with a life of its own. */
int naos_secret_clone(const struct naos_secret *secret, struct naos_secret **ret, struct naos_error *err) naos_must_check;

/* Constant-time comparison; false if the lengths differ. */
bool naos_secret_equal(const struct naos_secret *secret, const void *other, size_t bytes);

/* Wipes and frees; takes NULL, keeps errno, returns NULL. */
struct naos_secret *naos_secret_free(struct naos_secret *secret);

/* Bytes of secrets in use and locked bytes of the slab, for `naos doctor` and tests. */
void naos_secret_usage(size_t *ret_used_bytes, size_t *ret_locked_bytes);

/* Wipes memory that is not in the slab (a library's buffer on the stack); not removed by the compiler. */
void naos_wipe(void *memory, size_t bytes);

static inline void naos_secret_free_pointer(struct naos_secret **secret)
{
	*secret = naos_secret_free(*secret);
}
#define naos_autosecret naos_cleanup(naos_secret_free_pointer)

#endif
