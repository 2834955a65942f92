/* Faults that only a test build has (NAOS_PLANTED_CRASH, tests/tools): the front crashes, with a core, while a certain client's request is
 * under way.  In the program that is installed all of this is nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_PLANTED_H
#define NAOS_KEYD_PLANTED_H

#include <stdbool.h>

#ifdef NAOS_PLANTED_CRASH
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static inline bool planted_allows_core(void)
{
	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
	return setrlimit(RLIMIT_CORE, &all) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0;
}

/* point: "request" (it was read), "answer" (it was made), "written" (it was sent). */
static inline void planted_crash(const char *identity, const char *point)
{
	if (strncmp(identity, "naos://test/crash-", 18) != 0 || strcmp(identity + 18, point) != 0)
		return;
	char *marker = malloc(64); /* the control: what lies in ordinary memory is found in the core */
	if (marker)
		(void)snprintf(marker, 64, "planted-%s", "marker-of-the-crash"); /* in two parts, so that the program's text has it not */
	__asm__ volatile("" : : "r"(marker) : "memory");			     /* and it is really written */
	abort();
}
#else
static inline bool planted_allows_core(void)
{
	return false;
}

static inline void planted_crash(const char *identity, const char *point)
{
}
#endif

#endif
