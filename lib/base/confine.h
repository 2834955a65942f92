/* What a daemon may ask of the kernel: a list of system calls per program, from which on everything else is refused.
 *
 * A program is a row of the table in confine.c, made of groups of calls.  What is not in it fails with EPERM; what nobody but an intruder
 * would ask for (ptrace, loading code into the kernel, reading another process) ends the process.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_BASE_CONFINE_H
#define NAOS_BASE_CONFINE_H

#include "base/errors.h"

enum naos_confine_program {
	NAOS_CONFINE_KEYD_FRONT,  /* the network, files, a worker that is started */
	NAOS_CONFINE_KEYD_WORKER, /* files and a PKCS#11 module; no network */
	NAOS_CONFINE_KEYD_NETWORK_WORKER, /* the same, its HSM is reached over the network */
	NAOS_CONFINE_FS,          /* files of any kind as any user, requests of the kernel, a key manager or a PKCS#11 module */
};

/* program: the only file that may be executed, compared by its address, so that it must be a constant; NULL: none.
 * For the threads there are and all to come, and their children; never undone.  No new privileges are gained from then on either, and no
 * core is written.  NAOS_E_SYSTEM. */
int naos_confine(enum naos_confine_program which, const char *program, struct naos_error *err) naos_must_check;

#endif
