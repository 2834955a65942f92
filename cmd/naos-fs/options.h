/* What a mount was asked for: command line, then the file set's section of the configuration.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FS_OPTIONS_H
#define NAOS_FS_OPTIONS_H

#include "fs.h"

#define NAOS_FS_OPTION_BYTES 1024

struct options {
	const char *fileset, *mountpoint, *path;
	bool foreground;
	bool allow_other, allow_other_set;
	char given[NAOS_FS_OPTION_BYTES];  /* -o, as given, after those of the configuration */
	char kernel[NAOS_FS_OPTION_BYTES]; /* those for libfuse and the kernel */
};

/* Keeps one -o argument for options_read. */
void options_add(struct options *options, const char *text);
/* Fills what is missing from the section [fileset NAME], and fs from all of it. */
int options_read(struct options *options, const struct naos_config *config, struct naos_fs *fs, struct naos_error *err) naos_must_check;

/* Goes to the background.  True in the child, which says by options_report(*ret_report, exit status) how mounting went; the parent
 * gets false and that exit status. */
bool options_background(int *ret_report, int *ret_status);
/* The second call does nothing. */
void options_report(int report, int status);

#endif
