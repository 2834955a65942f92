/* A PKCS#11 module, loaded once per process: initialised by the first user, finalised by the last.
 *
 * The gate keeps C_Finalize apart from everything else: calls into the module hold it shared, a re-initialisation holds it
 * exclusively and raises `generation`, by which each token sees that its sessions and handles are gone.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYS_MODULE_H
#define NAOS_KEYS_MODULE_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>
#include <p11-kit/pkcs11.h>

#include "base/errors.h"

struct naos_module {
	struct naos_module *next;
	char *path;
	CK_FUNCTION_LIST *functions;
	unsigned users;
	pid_t pid;	     /* of the process that initialised it */
	bool ours;	     /* initialised by us: only then may it be finalised by us */
	bool softhsm;	     /* has SoftHSM's habits: see softhsm.h */
	uint64_t generation; /* changed under the gate */
	pthread_rwlock_t gate;
};

/* The module of this file; loaded and initialised if this is its first user.  NAOS_E_KEYMANAGER, or NAOS_E_UNSUPPORTED in a
 * process that was forked while the module was in use. */
int naos_module_acquire(const char *path, struct naos_module **ret, struct naos_error *err) naos_must_check;
void naos_module_release(struct naos_module *module);

/* C_Finalize and C_Initialize, the gate held exclusively by the caller.  Does nothing where the module is not ours. */
int naos_module_restart(struct naos_module *module, struct naos_error *err) naos_must_check;

/* "CKR_PIN_INCORRECT (0xa0)" into buffer, which is returned. */
#define NAOS_RV_TEXT_BYTES 64
const char *naos_rv_text(CK_RV rv, char buffer[static NAOS_RV_TEXT_BYTES]);

#endif
