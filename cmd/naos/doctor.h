/* What the checks of `naos doctor` share.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CMD_DOCTOR_H
#define NAOS_CMD_DOCTOR_H

#include <stdint.h>
#include <sys/resource.h>

#include "base/config.h"
#include "base/errors.h"

#define NAOS_MAX_FINDINGS 48

enum naos_finding_status { NAOS_FINDING_OK, NAOS_FINDING_WARNING, NAOS_FINDING_PROBLEM };

struct naos_finding {
	enum naos_finding_status status;
	const char *check;  /* one word, static */
	char what[512];	    /* what was found, printable */
	const char *why;    /* why it matters, static */
	const char *remedy; /* static; NULL where all is well */
};

/* What is looked at, and what was found.  A check adds its findings and never fails. */
struct naos_examination {
	const char *root;	  /* "" or, in tests, the folder that stands for / in front of proc and sys */
	const char *directory;	  /* where sealed files shall lie; NULL: not asked */
	const char *config_path;  /* --config or NULL */
	struct rlimit core_limit; /* before main() lowered it */
	struct naos_config *config; /* NULL if it could not be read */
	struct naos_finding findings[NAOS_MAX_FINDINGS];
	size_t count;
};

void naos_finding_add(struct naos_examination *examination, enum naos_finding_status status, const char *check, const char *why,
		      const char *remedy, const char *format, ...) naos_printf(6, 7);

/* doctor_machine.c: kernel, locked memory, swap, core files, CPU, tracing, clock. */
void naos_examine_machine(struct naos_examination *examination);
/* doctor_config.c: configuration, engine, key manager and its PIN file, file sets, audit log. */
void naos_examine_config(struct naos_examination *examination);
/* doctor_gpu.c: driver, plug-in, confidential computing. */
void naos_examine_gpu(struct naos_examination *examination);
/* doctor_directory.c: what the file system of `directory` can do. */
void naos_examine_directory(struct naos_examination *examination);

#endif
