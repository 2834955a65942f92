/* What the verbs of `naos fileset` that work on its sealed files share: the operand is a file set of the configuration, the tree
 * its `path`.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CMD_FILESET_TREE_H
#define NAOS_CMD_FILESET_TREE_H

#include "work.h"

/* The directory that holds the files of the set: given, or the `path` of its section.  It must exist and hold ciphertext, not the
 * plain view of a mount.  Borrowed from the configuration or `given`. */
int naos_fileset_tree(const struct naos_invocation *invocation, const char *given, const char **ret_path,
		      struct naos_error *err) naos_must_check;

/* Prints the summary: "VERB genomes: 12 files, …", or JSON with `action` and the file set's name. `extra` (may be NULL) is
 * merged into the JSON and released. */
int naos_fileset_summary(struct naos_work *work, const char *done, const char *current_word, const char *action, json_t *extra,
			 struct naos_error *err) naos_must_check;

#endif
