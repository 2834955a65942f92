/* The files of a log directory.  Hash tiles lie as in c2sp.org/tlog-tiles: tile/LEVEL/NUMBER, 256 hashes each; the last tile
 * of a level grows in place.  Records lie in bundles of 256 lines: records/NUMBER.jsonl.  NUMBER is written in groups of
 * three digits, all but the last in a folder with an x in front.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_AUDIT_TILE_H
#define NAOS_AUDIT_TILE_H

#include "audit/audit.h"
#include "audit/merkle.h"

#define NAOS_CHECKPOINT_FILE "checkpoint"
#define NAOS_PRIVATE_KEY_FILE "key"
#define NAOS_PUBLIC_KEY_FILE "key.pub"
#define NAOS_LOCK_FILE "lock"

#define NAOS_TILE_HASHES 256
#define NAOS_TILE_BYTES (NAOS_TILE_HASHES * NAOS_HASH_BYTES)
#define NAOS_TILE_LEVELS 8
#define NAOS_TILE_PATH_BYTES 64
#define NAOS_BUNDLE_MAX_BYTES ((size_t)NAOS_TILE_HASHES * (NAOS_AUDIT_MAX_RECORD_BYTES + 1)) /* a file of 256 audit records */

/* Both return path. */
const char *naos_tile_path(unsigned level, uint64_t number, char path[static NAOS_TILE_PATH_BYTES]);
const char *naos_bundle_path(uint64_t number, char path[static NAOS_TILE_PATH_BYTES]);

/* How many hashes of the tree of `size` the tile has: 256, fewer for the last of its level, 0 if there is none. */
unsigned naos_tile_width(unsigned level, uint64_t number, uint64_t size);
/* Reads the first `width` hashes; fewer in the file is NAOS_E_INTEGRITY. */
int naos_tile_read(int dir_fd, unsigned level, uint64_t number, unsigned width, struct naos_hash *ret_hashes,
		   struct naos_error *err) naos_must_check;
/* Writes hashes from place `first` on; makes them durable if asked.  From place 0 on it makes the file anew. */
int naos_tile_write(int dir_fd, unsigned level, uint64_t number, unsigned first, unsigned count, const struct naos_hash *hashes,
		    bool durable, struct naos_error *err) naos_must_check;
/* Opens a file of the log for writing; a fresh one is emptied, and its name and folders are made durable. */
int naos_tile_open(int dir_fd, const char *path, bool fresh, int *ret_fd, struct naos_error *err) naos_must_check;

/* A bundle in memory: the lines of its records, and what follows the 256th or is not ended by a newline. */
struct naos_bundle {
	char *data;
	size_t bytes;
	unsigned count;                        /* whole lines, at most 256 */
	size_t ends[NAOS_TILE_HASHES];         /* offset behind the newline of each */
};
/* A missing file is an empty bundle. */
int naos_bundle_read(int dir_fd, uint64_t number, struct naos_bundle *ret, struct naos_error *err) naos_must_check;
/* Finds the lines of data; naos_bundle_read has done so. */
void naos_bundle_split(struct naos_bundle *bundle);
/* A line without its newline; borrowed from the bundle. */
const char *naos_bundle_line(const struct naos_bundle *bundle, unsigned place, size_t *ret_bytes);

static inline void naos_bundle_clear(struct naos_bundle *bundle)
{
	naos_free_pointer(&bundle->data);
	bundle->data = NULL;
}
#define naos_autobundle naos_cleanup(naos_bundle_clear)

/* Sets the peaks that a growing tile of `width` hashes holds. */
void naos_tile_peaks(struct naos_hasher *hasher, unsigned level, const struct naos_hash *hashes, unsigned width, struct naos_tree *tree);

#endif
