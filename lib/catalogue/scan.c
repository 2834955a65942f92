/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>

#include "base/io.h"
#include "catalogue/catalogue.h"
#include "fits/tree.h"
#include "seal/walk.h"

struct scan {
	struct naos_catalogue *catalogue;
	struct naos_tally *tally;
};

/* A frame that is read. */
struct job {
	const char *path;
	struct naos_catalogue_row row;
	uint8_t *sealed;
	struct naos_error error; /* of this frame, code 0: none */
	int fd;
	bool put; /* the row is written */
};

static int64_t nanoseconds(const struct timespec *time)
{
	return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

static struct naos_catalogue_row row_of(const char *path, const struct stat *status)
{
	return (struct naos_catalogue_row){ .path = path, .bytes = (uint64_t)status->st_size, .inode = status->st_ino,
					    .mtime_ns = nanoseconds(&status->st_mtim), .ctime_ns = nanoseconds(&status->st_ctim) };
}

/* What says something of the frame, and not of this run. */
static bool is_of_frame(int code)
{
	return code == NAOS_E_INTEGRITY || code == NAOS_E_FORMAT || code == NAOS_E_WRONG_KEY || code == NAOS_E_LIMIT || code == NAOS_E_DENIED ||
	       code == NAOS_E_UNSUPPORTED;
}

static int take_attributes(struct scan *scan, struct job *job, struct naos_frame *frame, const struct naos_gcm_key *key,
			   struct naos_error *err)
{
	static const int codes[] = { 0, NAOS_E_DENIED, NAOS_E_WRONG_KEY, NAOS_E_INTEGRITY };
	const struct naos_catalogue *catalogue = scan->catalogue;
	struct naos_catalogue_keywords keywords = { .release = "RELEASE", .proposal = "PROPID" };
	const char *name = NULL;
	json_t *attributes = NULL;
	enum naos_frame_key_state state = naos_frame_key_state(frame, NAOS_FRAME_HEADER);
	if (state != NAOS_FRAME_KEY_RIGHT)
		return naos_error_set(err, codes[state], "%s", naos_frame_key_reason(frame, NAOS_FRAME_HEADER));
	for (size_t i = 0; i < catalogue->collection_count; i++)
		if (naos_uuid_equal(&catalogue->collections[i].id, &job->row.collection_id))
			name = catalogue->collections[i].name;
	if (name) {
		keywords.release = naos_config_string(catalogue->config, "collection", name, "release-keyword");
		keywords.proposal = naos_config_string(catalogue->config, "collection", name, "proposal-keyword");
	}
	int rc = naos_catalogue_header_read(frame, &keywords, &attributes, err);
	if (rc == 0 && name && json_object_set_new(attributes, "collection", json_string(name)) != 0)
		rc = naos_error_set(err, NAOS_E_NOMEM, "no memory for attributes");
	if (rc == 0)
		rc = naos_catalogue_attributes_seal(catalogue, key, &job->row, attributes, &job->sealed, &job->row.sealed_bytes, err);
	json_decref(attributes);
	return rc;
}

/* A failure is recorded only by who has the catalogue's key, or where the frame does not even tell its collection. */
static void read_frame(struct scan *scan, struct job *job, const struct naos_frame_fetched *fetched)
{
	struct naos_frame_opener opener = { .provider = scan->catalogue->provider, .fetched = fetched, .header_only = true };
	const struct naos_frame_source source = naos_frame_opener_source(&opener);
	const struct naos_gcm_key *key = NULL;
	naos_autoframe struct naos_frame *frame = NULL;
	struct stat after;
	int own = fcntl(job->fd, F_DUPFD_CLOEXEC, 3);
	int rc = own < 0 ? naos_error_set_errno(&job->error, errno, "cannot open %s", job->path)
			 : naos_frame_open_fd(own, job->path, &source, &frame, &job->error);
	if (rc != 0) {
		job->put = rc == NAOS_E_INTEGRITY || rc == NAOS_E_FORMAT;
	} else {
		job->row.collection_id = naos_frame_manifest(frame)->collection_id;
		job->row.frame_id = naos_frame_manifest(frame)->frame_id;
		(void)pthread_mutex_lock(&scan->catalogue->lock);
		rc = naos_catalogue_key_get(scan->catalogue, &job->row.collection_id, true, &key, &job->error);
		(void)pthread_mutex_unlock(&scan->catalogue->lock);
		if (rc == 0)
			rc = take_attributes(scan, job, frame, key, &job->error);
		job->put = key && (rc == 0 || is_of_frame(rc));
	}
	if (rc == 0 && (fstat(job->fd, &after) != 0 || nanoseconds(&after.st_ctim) != job->row.ctime_ns)) {
		rc = naos_error_set(&job->error, NAOS_E_CHANGED, "%s changed while it was read", job->path);
		job->put = false;
	}
	job->row.code = rc;
	job->row.reason = rc ? job->error.message : "";
	job->row.sealed = rc ? NULL : job->sealed;
	job->error.code = rc;
}

/* One transaction, so that a kill leaves all of a batch or nothing of it. */
static int write_batch(struct scan *scan, const struct job *jobs, size_t count, struct naos_error *err)
{
	struct naos_catalogue_store *store = scan->catalogue->store;
	(void)pthread_mutex_lock(&scan->catalogue->lock);
	int rc = naos_catalogue_store_begin(store, err);
	for (size_t i = 0; rc == 0 && i < count; i++)
		if (jobs[i].put)
			rc = naos_catalogue_store_put(store, &jobs[i].row, err);
	if (rc == 0)
		rc = naos_catalogue_store_commit(store, err);
	if (rc != 0)
		naos_catalogue_store_undo(store);
	(void)pthread_mutex_unlock(&scan->catalogue->lock);
	return rc;
}

/* False: it is not read: current, or no frame. */
static bool look_at(struct scan *scan, const struct naos_walk_item *item, struct job *job)
{
	bool single = !item->dir->entered, current = false, known = false;
	struct naos_error err = NAOS_ERROR_INIT;
	struct stat status;
	*job = (struct job){ .path = item->path, .row = row_of(item->path, &item->status), .fd = -1 };
	(void)pthread_mutex_lock(&scan->catalogue->lock);
	int rc = naos_catalogue_store_look(scan->catalogue->store, &job->row, &current, &known, &err);
	(void)pthread_mutex_unlock(&scan->catalogue->lock);
	if (rc == 0 && current) {
		naos_tally_current(scan->tally);
		return false;
	}
	if (rc == 0) {
		job->fd = openat(item->dir->fd, item->name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (single ? 0 : O_NOFOLLOW));
		if (job->fd < 0 || fstat(job->fd, &status) != 0)
			rc = naos_error_set_errno(&err, errno, "cannot open %s", item->path);
	}
	if (rc != 0) {
		naos_tally_failure(scan->tally, item->path, &err);
		naos_close_descriptor(&job->fd);
		return false;
	}
	job->row = row_of(item->path, &status);
	if (naos_fits_kind(job->fd) == NAOS_FITS_FRAME)
		return true;
	if (known || single) { /* what was one is listed with its reason */
		job->row.code = naos_error_set(&job->error, NAOS_E_FORMAT, "%s is no frame", item->path);
		job->row.reason = job->error.message;
		job->put = true;
		naos_close_descriptor(&job->fd);
		return true;
	}
	naos_tally_notice(scan->tally, item->path, naos_fits_named(item->name) ? NAOS_NOTICE_PLAIN : NAOS_NOTICE_NO_FITS);
	naos_close_descriptor(&job->fd);
	return false;
}

static void report(struct scan *scan, const struct job *jobs, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (jobs[i].error.code != 0)
			naos_tally_failure(scan->tally, jobs[i].path, &jobs[i].error);
		else
			naos_tally_file(scan->tally, jobs[i].row.bytes);
		naos_tally_progress(scan->tally, jobs[i].row.bytes);
	}
}

static void work(void *context, unsigned worker, struct naos_walk_item *items, size_t count)
{
	struct scan *scan = context;
	const struct naos_frame_opener opener = { .provider = scan->catalogue->provider, .header_only = true };
	naos_autofree struct job *jobs = calloc(count, sizeof(*jobs));
	naos_autofree struct naos_frame_fetched *fetched = calloc(count, sizeof(*fetched));
	struct naos_error err = NAOS_ERROR_INIT;
	int fds[NAOS_WALK_BATCH];
	size_t used = 0;
	if (!jobs || !fetched) {
		(void)naos_error_set(&err, NAOS_E_NOMEM, "no memory for a batch of files");
		naos_tally_failure(scan->tally, items[0].path, &err);
		return;
	}
	for (size_t i = 0; i < count && !naos_tally_stopped(scan->tally); i++)
		if (S_ISREG(items[i].status.st_mode) && look_at(scan, &items[i], &jobs[used]))
			fds[used] = jobs[used].fd, used++;
	if (used == 0)
		return;
	naos_frame_fetch(&opener, fds, fetched, used);
	for (size_t i = 0; i < used; i++)
		if (jobs[i].fd >= 0)
			read_frame(scan, &jobs[i], &fetched[i]);
	if (write_batch(scan, jobs, used, &err) != 0)
		naos_tally_failure(scan->tally, items[0].path, &err);
	else
		report(scan, jobs, used);
	naos_frame_fetched_free(fetched, used);
	for (size_t i = 0; i < used; i++) {
		naos_close_descriptor(&jobs[i].fd);
		free(jobs[i].sealed);
	}
}

static int enter(void *context, struct naos_walk_dir *dir)
{
	return 0;
}

static void leave(void *context, struct naos_walk_dir *dir)
{
}

static void settle(void *context, unsigned worker)
{
}

static bool list(void *context, struct naos_walk_item *item)
{
	return !(item->dir->entered && naos_io_is_temporary(item->name));
}

/* --- what vanished --------------------------------------------------------------------------------------------------------- */

struct vanished {
	char **paths;
	size_t count;
};

static int note_vanished(void *context, const struct naos_catalogue_row *row, struct naos_error *err)
{
	struct vanished *vanished = context;
	struct stat status;
	if (lstat(row->path, &status) == 0 || (errno != ENOENT && errno != ENOTDIR))
		return 0;
	char **paths = reallocarray(vanished->paths, vanished->count + 1, sizeof(*paths));
	vanished->paths = paths ? paths : vanished->paths;
	char *path = paths ? strdup(row->path) : NULL;
	if (!path)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a path");
	vanished->paths[vanished->count++] = path;
	return 0;
}

static int remove_vanished(struct naos_catalogue_store *store, const char *below, uint64_t *ret_removed, struct naos_error *err)
{
	struct vanished vanished = { .count = 0 };
	int rc = naos_catalogue_store_each(store, below, note_vanished, &vanished, err);
	if (rc == 0 && vanished.count) {
		rc = naos_catalogue_store_begin(store, err);
		for (size_t i = 0; rc == 0 && i < vanished.count; i++)
			rc = naos_catalogue_store_remove(store, vanished.paths[i], err);
		if (rc == 0)
			rc = naos_catalogue_store_commit(store, err);
		if (rc != 0)
			naos_catalogue_store_undo(store);
	}
	if (rc == 0)
		*ret_removed += vanished.count;
	for (size_t i = 0; i < vanished.count; i++)
		free(vanished.paths[i]);
	free(vanished.paths);
	return rc;
}

int naos_catalogue_scan(struct naos_catalogue *catalogue, const char *operand, unsigned jobs, struct naos_tally *tally,
			uint64_t *ret_removed, struct naos_error *err)
{
	struct scan scan = { .catalogue = catalogue, .tally = tally };
	const struct naos_walk_visitor visitor = { .context = &scan, .jobs = jobs, .enter = enter, .leave = leave, .list = list, .work = work,
						   .settle = settle };
	naos_autofree char *path = realpath(operand, NULL);
	if (!path)
		return naos_error_set_errno(err, errno, "cannot open %s", operand);
	naos_walk(path, &visitor, tally);
	return naos_tally_stopped(tally) ? 0 : remove_vanished(catalogue->store, path, ret_removed, err);
}
