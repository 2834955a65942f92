/* The state of a log on disk: what the checkpoint vouches for is kept, what follows it was never acknowledged and is cut.
 * SPDX-License-Identifier: Apache-2.0 */
#include "audit/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

/* What was found beyond the checkpoint. */
struct tail {
	uint64_t records, bytes;
	bool mended;
};

/* Leaf hashes of the acknowledged lines of the last bundle. */
static int hash_bundle(struct naos_audit_log *log, const struct naos_bundle *bundle, unsigned width, struct naos_hash *hashes,
		       struct naos_error *err)
{
	char path[NAOS_TILE_PATH_BYTES];
	if (bundle->count < width)
		return naos_error_set(err, NAOS_E_INTEGRITY, "%s has lost records: it holds %u of %u",
				      naos_bundle_path(log->tree.size / NAOS_TILE_HASHES, path), bundle->count, width);
	for (unsigned i = 0; i < width; i++) {
		size_t bytes;
		const char *line = naos_bundle_line(bundle, i, &bytes);
		naos_hash_leaf(log->hasher, line, bytes, &hashes[i]);
	}
	return 0;
}

/* The growing tile of level 0 is not made durable by each commit: after a power cut it is written again from the records. */
static int mend_tile(struct naos_audit_log *log, const struct naos_hash *hashes, unsigned width, struct tail *tail, struct naos_error *err)
{
	struct naos_hash stored[NAOS_TILE_HASHES];
	uint64_t number = log->tree.size / NAOS_TILE_HASHES;
	if (width == 0)
		return 0;
	int rc = naos_tile_read(log->dir_fd, 0, number, width, stored, NULL);
	if (rc == 0 && memcmp(stored, hashes, width * sizeof(*hashes)) == 0)
		return 0;
	tail->mended = true;
	return naos_tile_write(log->dir_fd, 0, number, 0, width, hashes, true, err);
}

/* Cuts the files of the first bundle (and tile) to their acknowledged part and removes those behind it. */
static int cut(struct naos_audit_log *log, const struct naos_bundle *bundle, unsigned width, struct tail *tail, struct naos_error *err)
{
	char path[NAOS_TILE_PATH_BYTES];
	uint64_t number = log->tree.size / NAOS_TILE_HASHES;
	log->bundle_bytes = width > 0 ? bundle->ends[width - 1] : 0;
	tail->records = bundle->count - width;
	tail->bytes = bundle->bytes - log->bundle_bytes;
	if (tail->bytes > 0) {
		naos_autoclose int fd = -1;
		int rc = naos_tile_open(log->dir_fd, naos_bundle_path(number, path), false, &fd, err);
		if (rc != 0)
			return rc;
		if (ftruncate(fd, (off_t)log->bundle_bytes) != 0)
			return naos_error_set_errno(err, errno, "cannot cut %s to its acknowledged records", path);
	}
	for (;;) {
		naos_autobundle struct naos_bundle next = { .data = NULL };
		int rc = naos_bundle_read(log->dir_fd, ++number, &next, err);
		if (rc != 0)
			return rc;
		if (unlinkat(log->dir_fd, naos_bundle_path(number, path), 0) != 0) {
			if (errno == ENOENT)
				return 0;
			return naos_error_set_errno(err, errno, "cannot remove the unacknowledged %s", path);
		}
		tail->records += next.count;
		tail->bytes += next.bytes;
	}
}

/* Hashes behind the acknowledged ones: their files are cut, so that nothing half-written lies around. */
static void cut_tiles(const struct naos_audit_log *log)
{
	char path[NAOS_TILE_PATH_BYTES];
	for (unsigned level = 0; level < NAOS_TILE_LEVELS; level++) {
		uint64_t hashes = log->tree.size >> (8 * level), number = hashes / NAOS_TILE_HASHES;
		unsigned width = (unsigned)(hashes % NAOS_TILE_HASHES);
		if (width > 0) {
			const off_t bytes = (off_t)(width * sizeof(struct naos_hash));
			struct stat status;
			naos_autoclose int fd = openat(log->dir_fd, naos_tile_path(level, number++, path), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
			if (fd >= 0 && fstat(fd, &status) == 0 && status.st_size > bytes && ftruncate(fd, bytes) != 0)
				continue; /* harmless: later hashes are written over it */
		}
		while (unlinkat(log->dir_fd, naos_tile_path(level, number++, path), 0) == 0)
			;
	}
}

/* The peaks of all levels above 0, from their growing tiles. */
static int load_peaks(struct naos_audit_log *log, struct naos_error *err)
{
	for (unsigned level = 1; level < NAOS_TILE_LEVELS; level++) {
		struct naos_hash hashes[NAOS_TILE_HASHES];
		uint64_t count = log->tree.size >> (8 * level);
		unsigned width = (unsigned)(count % NAOS_TILE_HASHES);
		int rc = width > 0 ? naos_tile_read(log->dir_fd, level, count / NAOS_TILE_HASHES, width, hashes, err) : 0;
		if (rc != 0)
			return rc;
		naos_tile_peaks(log->hasher, level, hashes, width, &log->tree);
	}
	return 0;
}

static void take_note(struct naos_audit_log *log, uint64_t known_size, const struct tail *tail, bool after_crash)
{
	if (after_crash && tail->bytes > 0)
		(void)snprintf(log->note, sizeof(log->note), "cut %" PRIu64 " bytes (%" PRIu64 " whole records) that were never acknowledged",
			       tail->bytes, tail->records);
	else if (after_crash && tail->mended)
		(void)snprintf(log->note, sizeof(log->note), "wrote the last hash tile again from the records");
	else if (!after_crash && log->tree.size > known_size)
		(void)snprintf(log->note, sizeof(log->note),
			       "%" PRIu64 " records before this one were reported as failed to their callers, yet are in the log",
			       log->tree.size - known_size);
}

static int recover(struct naos_audit_log *log, uint64_t known_size, bool after_crash, struct naos_error *err)
{
	naos_autocheckpoint struct naos_checkpoint checkpoint = { .note = NULL };
	naos_autobundle struct naos_bundle bundle = { .data = NULL };
	struct naos_hash hashes[NAOS_TILE_HASHES], root;
	struct tail tail = { .mended = false };
	int rc = naos_checkpoint_read(log->dir_fd, NAOS_CHECKPOINT_FILE, &log->signer.verifier, &checkpoint, err);
	if (rc != 0)
		return rc;
	unsigned width = (unsigned)(checkpoint.size % NAOS_TILE_HASHES);
	log->tree.size = checkpoint.size;
	naos_close_descriptor(&log->bundle_fd);
	naos_close_descriptor(&log->tile_fd);
	rc = load_peaks(log, err);
	if (rc == 0)
		rc = naos_bundle_read(log->dir_fd, checkpoint.size / NAOS_TILE_HASHES, &bundle, err);
	if (rc == 0)
		rc = hash_bundle(log, &bundle, width, hashes, err);
	if (rc != 0)
		return rc;
	naos_tile_peaks(log->hasher, 0, hashes, width, &log->tree);
	naos_tree_root(log->hasher, &log->tree, &root);
	rc = naos_hasher_check(log->hasher, err);
	if (rc == 0 && !naos_hash_equal(&root, &checkpoint.root))
		rc = naos_error_set(err, NAOS_E_INTEGRITY,
				    "the last records or tiles don't fit the checkpoint; 'naos audit verify' finds the place");
	if (rc == 0)
		rc = cut(log, &bundle, width, &tail, err);
	if (rc == 0)
		rc = mend_tile(log, hashes, width, &tail, err);
	if (rc != 0)
		return rc;
	cut_tiles(log);
	take_note(log, known_size, &tail, after_crash);
	log->stale = false;
	return 0;
}

int naos_audit_recover(struct naos_audit_log *log, bool after_crash, struct naos_error *err)
{
	uint64_t known_size = log->tree.size;
	int rc = recover(log, known_size, after_crash, err);
	if (rc != 0)
		log->tree.size = known_size; /* what this process knows, until a later attempt succeeds */
	return rc;
}
