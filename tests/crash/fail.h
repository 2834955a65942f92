/* How a test here ends when something is wrong.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_CRASH_FAIL_H
#define NAOS_TESTS_CRASH_FAIL_H

#include "base/compiler.h"

/* What is being done, for messages. */
extern char fail_where[200];
void fail_at(const char *format, ...) naos_printf(1, 2);
/* Prints "VIOLATION where: message" and exits with status 1. */
__attribute__((noreturn)) void violation(const char *format, ...) naos_printf(1, 2);
/* Memory must be there. */
void *must(void *pointer);

#endif
