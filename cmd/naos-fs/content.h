/* Open sealed files.  An inode has at most one open content for writing (and, in mode = shared, one for reading), however many
 * handles users have.  After the last close it stays open for a while: to be opened again at no cost, and to be sealed
 * together with others (rule 16 of the format), so that no close pays a flush.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FS_CONTENT_H
#define NAOS_FS_CONTENT_H

#include "inode.h"

#define NAOS_LOST_DIRECTORY ".naos-lost" /* where `naos fileset check --repair` puts what can't be mended */

struct content {
	struct inode *inode;           /* held */
	struct naos_sealed_file *file;
	int fd;                        /* of the file below; belongs to file */
	bool writable, shared;         /* shared: of mode = shared */
	atomic_uint handles;           /* changed under inode->lock */
	bool busy;                     /* being sealed; guarded by inode->lock */
	atomic_bool paged;             /* the kernel read it through its pages */
	atomic_bool accessed;          /* mode = shared: a user's access since the last opening was dated */
	unsigned failures;             /* to seal it, one after the other */
	_Atomic uint64_t closed_at_ms; /* monotonic; of the last close */
	pthread_mutex_t change;          /* held for each change of the file below; guards written; taken after inode->lock */
	_Atomic uint64_t gathered_at_ms; /* since when it holds gathered bytes, which the file below does not know yet; 0: none */
	struct timespec written;         /* the last change of them by a user */
	atomic_size_t counted;           /* of its gathered bytes, in the table's sum */
	struct content *previous, *next; /* ring of the table */
};

int content_table_create(struct naos_fs *fs, struct naos_error *err) naos_must_check;
/* Starts the thread that seals; after the program has gone to the background. */
int content_table_start(struct naos_fs *fs, struct naos_error *err) naos_must_check;
/* Stops the thread, seals everything, frees.  Returns the number of files that could not be sealed (they are recovered at their
 * next opening). */
unsigned content_table_free(struct naos_fs *fs);

/* Adds a handle.  NAOS_E_BUSY: another program holds the file; NAOS_E_CHANGED: look it up again (the kernel does so when it is told
 * ESTALE), for it was replaced below, or its size is another than was shown, which recovery found out. */
int content_open(struct naos_fs *fs, struct inode *inode, bool write, struct content **ret, struct naos_error *err) naos_must_check;
/* The content of a file just made: takes file, which owns fd; one handle. */
int content_adopt(struct naos_fs *fs, struct inode *inode, struct naos_sealed_file *file, int fd, struct content **ret,
		  struct naos_error *err) naos_must_check;
void content_close(struct naos_fs *fs, struct content *content);
/* Around each change through the content: what is written behind the user's back puts times and mode back as they were, and must not
 * put them back over those of a change that came in between. */
void content_begin_change(struct content *content);
void content_end_change(struct naos_fs *fs, struct content *content);
/* Writes what any file has gathered, and makes all of the file set durable. */
int content_sync_all(struct naos_fs *fs, struct naos_error *err) naos_must_check;
int content_flush(struct naos_fs *fs, struct content *content, struct naos_error *err) naos_must_check;

/* The file may have lost its last name: if nobody has it open it is let go now, so that its blocks are free. */
void content_drop_unlinked(struct naos_fs *fs, struct inode *inode);
/* Seals now what would be sealed later: before metadata is set that a later write would undo (capabilities). */
void content_seal_now(struct naos_fs *fs, struct inode *inode);
/* Between these two.  The time of modification changes also where the size does not. */
int content_truncate(struct content *content, uint64_t size, struct naos_error *err) naos_must_check;
/* Around each change of mode, owner, times or ACL, for the same reason. */
void content_begin_status(struct inode *inode);
void content_end_status(struct inode *inode);
/* Bytes that were gathered are written, before times are set by a user; between content_begin_status and its end. */
int content_settle(struct naos_fs *fs, struct inode *inode, struct naos_error *err) naos_must_check;

/* Times as users see them, and the size if the file is open; false if it is not.  The status was read from below after `moment`: it is read
 * again if the file may have been let go since, for what it had gathered may not have been written when it was read. */
bool content_show(struct naos_fs *fs, struct inode *inode, unsigned long moment, struct stat *status);
unsigned long content_moment(const struct naos_fs *fs);

#endif
