/* Rewrapping the keys of many files: the same FEK under the active version of its file set's MEK, no data touched.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_REWRAP_TREE_H
#define NAOS_SEAL_REWRAP_TREE_H

#include "seal/sealed_tree.h"

struct naos_rewrap {
	struct naos_filesets *sets;
	const struct naos_fileset *set; /* files of other sets are refused; NULL: each file's own set */
	struct naos_tally *tally;
	bool repair; /* also rebuilds damaged or missing copies of the wrapped key from a good one */
};

/* The files visitor of a naos_sealed_tree whose context is a struct naos_rewrap.  Files that are current are counted so. */
void naos_rewrap_files(void *context, struct naos_tree_file *files, size_t count);

/* Mends one file: recovers it if its last writer did not close it (told as a notice), and with `rebuild` writes all copies of
 * its wrapped key anew from a good one.  Times stay.  Takes file->fd.  NAOS_E_BUSY if a writer has it open. */
int naos_rewrap_mend(const struct naos_rewrap *rewrap, struct naos_tree_file *file, bool rebuild, struct naos_error *err) naos_must_check;

#endif
