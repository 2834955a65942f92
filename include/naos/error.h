/* Errors of Naos: one table of codes, one object that carries the sentence for a person.
 *
 * Every function that can fail returns 0 or a negative code of enum naos_error_code and takes a last argument
 * `struct naos_error *` (NULL is allowed), which receives what failed, on which object, and why.
 * The table (category, exit status, remedy) is error.def; `man 7 naos-errors` is made from it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_ERROR_H
#define NAOS_ERROR_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

enum naos_error_code {
	NAOS_OK = 0,
#define X(name, code, category, exit_status, retryable, sentence, remedy) NAOS_E_##name = (code),
#include <naos/error.def>
#undef X
};

#define NAOS_ERROR_MESSAGE_BYTES 768

/* Filled on failure only.  `message` is one sentence without a full stop; it holds no secret. */
struct naos_error {
	int code;
	int errno_value; /* of the system call that failed; 0 if it was none */
	char message[NAOS_ERROR_MESSAGE_BYTES];
};

#define NAOS_ERROR_INIT { .code = NAOS_OK, .message = "" }

/* One row of the table.  Strings are static. */
struct naos_error_info {
	int code;
	const char *name;     /* "NAOS_E_INTEGRITY" */
	const char *category; /* usage, system, denied, integrity, key */
	int exit_status;      /* 1 failed, 2 usage, 3 denied, 4 integrity, 5 key manager */
	bool retryable;       /* the same call may succeed later without a change by the caller */
	const char *sentence;
	const char *remedy;
};

/* The row of a code; an unknown code gives the row of NAOS_E_SYSTEM.  Never NULL. */
const struct naos_error_info *naos_error_info(int code);

/* Exit status of a program that ends with this code; 0 for NAOS_OK. */
int naos_error_exit_status(int code);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
