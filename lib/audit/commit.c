/* One group commit: records, tiles, fsync, then the checkpoint by atomic replacement.  SPDX-License-Identifier: Apache-2.0 */
#include "audit/log.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "audit/record.h"
#include "base/io.h"

#define KEEP_LINES ((size_t)1 << 20) /* as much memory for records stays with the log */

/* What of one bundle is not yet written. */
struct batch {
	struct naos_audit_log *log;
	struct naos_tree tree;
	uint64_t bundle_bytes;
	char time[NAOS_RECORD_TIME_BYTES];
	size_t bytes; /* in log->lines */
	unsigned count;
	struct naos_hash leaves[NAOS_TILE_HASHES];
};

/* Hash tiles above level 0 get one hash per full tile below: rare, so each is made durable. */
static int completed(void *context, unsigned height, uint64_t index, const struct naos_hash *hash, struct naos_error *err)
{
	struct batch *batch = context;
	if (height == 0 || height % 8 != 0)
		return 0;
	return naos_tile_write(batch->log->dir_fd, height / 8, index / NAOS_TILE_HASHES, (unsigned)(index % NAOS_TILE_HASHES), 1, hash,
			       true, err);
}

/* Writes the waiting lines and hashes, all of one bundle, and makes the lines durable. */
static int flush(struct batch *batch, struct naos_error *err)
{
	struct naos_audit_log *log = batch->log;
	char path[NAOS_TILE_PATH_BYTES];
	uint64_t first = batch->tree.size - batch->count, number = first / NAOS_TILE_HASHES;
	unsigned place = (unsigned)(first % NAOS_TILE_HASHES);
	bool full = place + batch->count == NAOS_TILE_HASHES;
	int rc = 0;
	if (batch->count == 0)
		return 0;
	if (place == 0) {
		naos_close_descriptor(&log->bundle_fd);
		naos_close_descriptor(&log->tile_fd);
	}
	(void)naos_tile_path(0, number, path);
	if (log->tile_fd < 0)
		rc = naos_tile_open(log->dir_fd, path, place == 0, &log->tile_fd, err);
	if (rc == 0)
		rc = naos_io_pwrite(log->tile_fd, batch->leaves, batch->count * sizeof(*batch->leaves), place * sizeof(*batch->leaves), path,
				    err);
	/* the growing tile follows from the records, so only a full one must be durable */
	if (rc == 0 && full && fdatasync(log->tile_fd) != 0)
		rc = naos_error_set_errno(err, errno, "cannot make %s durable", path);
	(void)naos_bundle_path(number, path);
	if (rc == 0 && log->bundle_fd < 0)
		rc = naos_tile_open(log->dir_fd, path, place == 0, &log->bundle_fd, err);
	if (rc == 0)
		rc = naos_io_pwrite(log->bundle_fd, log->lines, batch->bytes, batch->bundle_bytes, path, err);
	if (rc == 0 && fdatasync(log->bundle_fd) != 0)
		rc = naos_error_set_errno(err, errno, "cannot make %s durable", path);
	batch->bundle_bytes = full ? 0 : batch->bundle_bytes + batch->bytes;
	batch->bytes = 0;
	batch->count = 0;
	return rc;
}

/* Room for one record more. */
static int make_room(struct batch *batch, struct naos_error *err)
{
	struct naos_audit_log *log = batch->log;
	if (log->lines_room - batch->bytes >= NAOS_AUDIT_MAX_RECORD_BYTES + 1)
		return 0;
	size_t room = 2 * log->lines_room + NAOS_AUDIT_MAX_RECORD_BYTES + 1;
	char *lines = realloc(log->lines, room);
	if (!lines)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for audit records");
	log->lines = lines;
	log->lines_room = room;
	return 0;
}

static int add(struct batch *batch, const char *body, size_t body_bytes, struct naos_error *err)
{
	int rc = make_room(batch, err);
	if (rc != 0)
		return rc;
	char *line = batch->log->lines + batch->bytes;
	size_t bytes = naos_record_format(batch->tree.size, batch->time, body, body_bytes, line);
	line[bytes] = '\n';
	batch->bytes += bytes + 1;
	naos_hash_leaf(batch->log->hasher, line, bytes, &batch->leaves[batch->count++]);
	rc = naos_tree_append(batch->log->hasher, &batch->tree, &batch->leaves[batch->count - 1], completed, batch, err);
	if (rc == 0 && batch->tree.size % NAOS_TILE_HASHES == 0)
		rc = flush(batch, err);
	return rc;
}

static int add_note(struct batch *batch, struct naos_error *err)
{
	const struct naos_audit_event event = { .actor = "naos", .action = "audit.recover", .object = batch->log->signer.verifier.name,
						.reason = batch->log->note };
	naos_autofree char *body = NULL;
	size_t bytes;
	int rc = naos_record_body(&event, &body, &bytes, err);
	return rc != 0 ? rc : add(batch, body, bytes, err);
}

static int write_checkpoint(struct batch *batch, struct naos_error *err)
{
	struct naos_audit_log *log = batch->log;
	naos_autocheckpoint struct naos_checkpoint checkpoint = { .note = NULL };
	struct naos_hash root;
	naos_tree_root(log->hasher, &batch->tree, &root);
	int rc = naos_hasher_check(log->hasher, err);
	if (rc == 0)
		rc = naos_checkpoint_make(&log->signer, batch->tree.size, &root, &checkpoint, err);
	if (rc == 0)
		rc = naos_io_replace_file(log->dir_fd, NAOS_CHECKPOINT_FILE, checkpoint.note, checkpoint.note_bytes, 0640, err);
	return rc;
}

static int write_all(struct batch *batch, const struct naos_audit_request *requests, struct naos_error *err)
{
	int rc = batch->log->note[0] ? add_note(batch, err) : 0;
	for (; rc == 0 && requests; requests = requests->next)
		for (size_t i = 0; rc == 0 && i < requests->count; i++)
			rc = add(batch, requests->bodies[i].text, requests->bodies[i].bytes, err);
	if (rc == 0)
		rc = flush(batch, err);
	return rc == 0 ? write_checkpoint(batch, err) : rc;
}

int naos_audit_commit(struct naos_audit_log *log, const struct naos_audit_request *requests, struct naos_error *err)
{
	struct timespec now;
	int rc = log->stale ? naos_audit_recover(log, false, err) : 0;
	if (rc != 0)
		return rc;
	naos_autofree struct batch *batch = calloc(1, sizeof(*batch));
	if (!batch)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for audit records");
	(void)clock_gettime(CLOCK_REALTIME, &now);
	batch->log = log;
	batch->tree = log->tree;
	batch->bundle_bytes = log->bundle_bytes;
	(void)naos_record_time((int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000, batch->time);
	rc = write_all(batch, requests, err);
	if (log->lines_room > KEEP_LINES) {
		naos_free_pointer(&log->lines);
		log->lines = NULL;
		log->lines_room = 0;
	}
	if (rc == 0) {
		log->tree = batch->tree;
		log->bundle_bytes = batch->bundle_bytes;
		log->note[0] = 0;
		return 0;
	}
	/* take back what was written, at once if it can be done, else before the next commit */
	log->stale = true;
	(void)!naos_audit_recover(log, false, NULL);
	return rc;
}
