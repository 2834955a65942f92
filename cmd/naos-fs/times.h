/* Times and mode as users left them: sealing, and writing what was gathered, must not show.  Callers hold content->change from times_save
 * to times_restore.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FS_TIMES_H
#define NAOS_FS_TIMES_H

#include "content.h"

bool times_earlier(const struct timespec *left, const struct timespec *right);
/* The change time that users are shown for the one below. */
void times_show(const struct inode *inode, struct stat *status);
/* What was gathered is a change that the file below does not know yet. */
void times_add_gathered(const struct content *content, struct stat *status);
/* The status as users see it, before something of ours is written; false if it can't be read. */
bool times_save(const struct content *content, struct stat *ret);
/* Puts back the time of the last write, the mode that a write may lose and, as long as the inode is known, the time of the last
 * change. */
void times_restore(const struct content *content, const struct stat *before);

/* mode = shared: looking at the state for others' changes is no access of a user's. */
void times_hide_accesses(const struct content *content, bool hide);
/* mode = shared: a user read it.  The kernel dates the access by the rules of the mount below. */
void times_note_access(struct content *content);

#endif
