/* A new sealed file under a fresh key, in a draft that nobody sees before its maker has flushed and named it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_DRAFT_H
#define NAOS_SEAL_DRAFT_H

#include "seal/fileset.h"

/* Over the empty file fd, which is duplicated.  `shown` is for messages. */
int naos_sealed_draft(struct naos_filesets *sets, const struct naos_fileset *set, int fd, const char *shown,
		      struct naos_sealed_file **ret, struct naos_error *err) naos_must_check;

#endif
