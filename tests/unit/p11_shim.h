/* What tests tell the shim (p11_shim.c), a PKCS#11 module that passes every call on to the real SoftHSM and, when asked to,
 * behaves as other HSMs do, or fails.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_P11_SHIM_H
#define NAOS_TESTS_P11_SHIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Fails the next `count` calls with rv. */
struct shim_fault {
	atomic_ulong rv;
	atomic_int count;
};

struct shim {
	/* behaviour */
	atomic_bool luna;	    /* C_Encrypt makes its own 16-byte IV and appends it behind the tag */
	atomic_bool writes_iv;	    /* C_EncryptInit makes its own IV and writes it over the one given */
	atomic_bool drops_associated; /* as a key manager that has no associated data */
	atomic_bool other_vendor;   /* C_GetInfo does not say SoftHSM */
	atomic_bool accepts_bad_tag;
	atomic_bool keeps_destroyed; /* C_DestroyObject says it did */
	atomic_bool final_try;	    /* C_GetTokenInfo says that the next wrong PIN locks */
	atomic_int max_sessions;    /* 0: no limit */
	atomic_int decrypt_delay_us;
	atomic_bool holds_encrypt; /* C_Encrypt does not return until this is over */
	struct shim_fault encrypt, decrypt, open_session, generate, find, login, copy;

	/* what was seen */
	atomic_int encrypts, decrypts, copies, finds, initializes, logins, sessions;
	atomic_int inside, changing; /* threads now in any function; in one that searches or changes objects */
	atomic_bool overlapped;	     /* two of the latter at once */
	atomic_bool finalized_under_use;
	atomic_bool wrote_attribute; /* C_SetAttributeValue was called */
};

#endif
