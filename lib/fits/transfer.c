/* SPDX-License-Identifier: Apache-2.0 */
#include "fits/transfer.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/xattr.h>

#include "base/io.h"
#include "fits/framekeys.h"
#include "fits/legacy.h"
#include "fits/whole.h"
#include "seal/metadata.h"

/* What a target was made of besides its frame; without it a part would be taken for the whole when it is made again. */
#define RECIPE_ATTRIBUTE "user.naos.recipe"
#define RECIPE_BYTES 512

struct run {
	const struct naos_frame_transfer *transfer;
	struct naos_tally *tally;
	pthread_mutex_t lock; /* one done() at a time */
};

/* A file between its draft and its name. */
struct result {
	struct run *run;
	struct naos_frame_done done;
	char *path, *shown, *target;
	struct naos_error err; /* written, but not all of it: data was changed */
};

void naos_frame_opened_take(const struct naos_frame *frame, struct naos_frame_opened *ret)
{
	*ret = (struct naos_frame_opened){ .level = naos_frame_level(frame) };
	for (enum naos_frame_part part = NAOS_FRAME_HEADER; part <= NAOS_FRAME_DATA; part++) {
		ret->states[part - 1] = naos_frame_key_state(frame, part);
		const char *reason = naos_frame_key_reason(frame, part);
		if (reason[0])
			(void)naos_error_set(&ret->reasons[part - 1], naos_frame_worst(frame), "%s", reason);
	}
}

/* --- what became of a file -------------------------------------------------------------------------------------------------- */

static void fail(struct run *run, const struct naos_frame_file *file, const struct naos_error *err)
{
	naos_tally_failure(run->tally, file->item->path, err);
}

static void tell(struct run *run, const struct naos_frame_done *done)
{
	if (!run->transfer->done)
		return;
	(void)pthread_mutex_lock(&run->lock);
	run->transfer->done(run->transfer->context, done);
	(void)pthread_mutex_unlock(&run->lock);
}

static void leave_out(struct run *run, const struct naos_frame_file *file, enum naos_notice notice)
{
	const struct naos_frame_done done = { .source = file->shown, .target = file->place.shown, .left_out = naos_notice_name(notice) };
	naos_tally_notice(run->tally, file->item->path, notice);
	tell(run, &done);
}

static void is_done_already(struct run *run, const struct naos_frame_file *file)
{
	const struct naos_frame_done done = { .source = file->shown, .target = file->place.shown, .left_out = "current" };
	naos_tally_current(run->tally);
	tell(run, &done);
}

static void free_result(struct result *result)
{
	if (!result)
		return;
	free(result->path);
	free(result->shown);
	free(result->target);
	free(result);
}

static struct result *new_result(struct run *run, const struct naos_frame_file *file)
{
	struct result *result = calloc(1, sizeof(*result));
	if (!result)
		return NULL;
	*result = (struct result){ .run = run, .path = strdup(file->item->path), .shown = strdup(file->shown),
				   .target = strdup(file->place.shown) };
	if (!result->path || !result->shown || !result->target) {
		free_result(result);
		return NULL;
	}
	result->done.source = result->shown;
	result->done.target = result->target;
	return result;
}

static void published(void *context, void *owner, const struct naos_error *failure)
{
	struct result *result = owner;
	struct run *run = result->run;
	if (failure) {
		naos_tally_failure(run->tally, result->path, failure);
	} else {
		tell(run, &result->done);
		if (result->err.code != 0)
			naos_tally_failure(run->tally, result->path, &result->err);
		else
			naos_tally_file(run->tally, result->done.bytes);
	}
	free_result(result);
}

/* --- targets ---------------------------------------------------------------------------------------------------------------- */

static int refuse_existing(const struct run *run, const struct naos_frame_file *file, struct naos_error *err)
{
	if (!file->place.exists || run->transfer->replace)
		return 0;
	return naos_error_set(err, NAOS_E_EXISTS, "%s exists and is not current", file->place.shown);
}

static int open_target(const struct naos_frame_file *file)
{
	return openat(file->place.dir_fd, file->place.base, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

/* A target of another time than its source is not current.  A single file that the user wants replaced is: its source may be another one
 * of the same time and size. */
static bool may_not_stay(const struct run *run, const struct naos_frame_walk *walk, const struct naos_frame_file *file)
{
	return !file->place.exists || !S_ISREG(file->place.status.st_mode) ||
	       (naos_frame_tree_single(walk) && run->transfer->replace) ||
	       !naos_metadata_same_time(&file->status, &file->place.status);
}

/* Whether an opened frame has the keys that this run would give it. */
struct wanted {
	const struct naos_frame_transfer *transfer;
	bool same;
	uint64_t file_bytes;
};

static int compare_keys(void *context, const struct naos_frame_manifest *manifest, enum naos_frame_part part, const struct naos_blob *blob,
			struct naos_secret **ret, struct naos_error *ret_why)
{
	struct wanted *wanted = context;
	const struct naos_frame_transfer *transfer = wanted->transfer;
	uint8_t commit[NAOS_FRAME_COMMIT_BYTES];
	*ret = NULL;
	wanted->file_bytes = manifest->file_bytes;
	if (transfer->collection)
		wanted->same &= blob && naos_uuid_equal(&manifest->collection_id, &transfer->collection->id);
	else
		wanted->same &= naos_frame_key_derive(manifest, part, transfer->given[part - 1], commit, NULL, NULL) == 0 &&
				memcmp(commit, manifest->commit[part - 1], sizeof(commit)) == 0;
	return 0;
}

/* A sealed target is current if it is a frame of this size, time and these keys. */
static bool is_sealed(const struct run *run, const struct naos_frame_walk *walk, const struct naos_frame_file *file)
{
	struct wanted wanted = { .transfer = run->transfer, .same = true };
	const struct naos_frame_source source = { .key = compare_keys, .context = &wanted };
	struct naos_frame *frame;
	if (may_not_stay(run, walk, file))
		return false;
	int fd = open_target(file);
	if (fd < 0 || naos_frame_open_fd(fd, file->place.shown, &source, &frame, NULL) != 0)
		return false;
	(void)naos_frame_close(frame);
	bool size = run->transfer->verb == NAOS_FRAME_VERB_IMPORT || wanted.file_bytes == (uint64_t)file->status.st_size;
	return wanted.same && size;
}

/* "" for the whole file. */
static void recipe_of(const struct run *run, const struct naos_frame *frame, char ret[static RECIPE_BYTES])
{
	enum naos_frame_level level = naos_frame_level(frame);
	bool cut = run->transfer->verb == NAOS_FRAME_VERB_CUT;
	char text[RECIPE_BYTES - 32] = "";
	if (cut)
		naos_cut_request_text(run->transfer->request, text, sizeof(text));
	if (!cut && level == NAOS_FRAME_FULL)
		ret[0] = 0;
	else
		(void)snprintf(ret, RECIPE_BYTES, "%s %s", naos_frame_level_name(level), text);
}

/* An opened target is current if it was made from a frame of this time in the same way. */
static bool is_opened(const struct run *run, const struct naos_frame_walk *walk, const struct naos_frame_file *file,
		      const struct naos_frame *frame, const char *recipe)
{
	char there[RECIPE_BYTES];
	bool whole = run->transfer->verb == NAOS_FRAME_VERB_OPEN;
	if (may_not_stay(run, walk, file) ||
	    (whole && (uint64_t)file->place.status.st_size != naos_frame_result_bytes(frame)))
		return false;
	naos_autoclose int fd = open_target(file);
	ssize_t bytes = fd < 0 ? -1 : fgetxattr(fd, RECIPE_ATTRIBUTE, there, sizeof(there) - 1);
	there[bytes < 0 ? 0 : bytes] = 0;
	return fd >= 0 && strcmp(there, recipe) == 0;
}

/* The time of the frame marks the target as current; where it can't be told from another one it does not get it. */
static int mark_opened(const struct naos_frame_file *file, const struct naos_draft *draft, const char *recipe, struct naos_error *err)
{
	const struct timespec times[2] = { file->status.st_atim, file->status.st_mtim };
	if (recipe[0] && fsetxattr(draft->fd, RECIPE_ATTRIBUTE, recipe, strlen(recipe), 0) != 0)
		return 0;
	return futimens(draft->fd, times) == 0 ? 0 : naos_error_set_errno(err, errno, "cannot set the times of %s", file->place.shown);
}

/* --- sealing ---------------------------------------------------------------------------------------------------------------- */

static void progress(void *context, uint64_t bytes)
{
	struct naos_tally *tally = context;
	naos_tally_progress(tally, bytes);
}

static int seal_draft(struct run *run, struct naos_frame_walk *walk, const struct naos_frame_file *file, int plain,
		      struct naos_frame_new *what, struct naos_draft *draft, struct naos_error *err)
{
	struct naos_metadata_loss loss;
	what->segment_bytes = run->transfer->segment_bytes;
	what->version = run->transfer->version;
	what->progress = progress;
	what->context = run->tally;
	what->jobs = naos_frame_tree_begin(walk);
	int rc = naos_frame_seal_fd(plain, file->shown, draft->fd, file->place.shown, what, err);
	naos_frame_tree_end(walk);
	if (rc == 0)
		rc = naos_metadata_copy(file->fd, &file->status, 0, draft->fd, file->place.shown, &loss, err);
	if (rc == 0 && loss.attributes)
		naos_tally_notice(run->tally, file->item->path, NAOS_NOTICE_ATTRIBUTES);
	if (rc == 0 && loss.setid)
		naos_tally_notice(run->tally, file->item->path, NAOS_NOTICE_SETID);
	return rc;
}

/* The plaintext of an old file is in memory only. */
static int open_legacy(const struct run *run, const struct naos_frame_file *file, int *ret_fd, bool *ret_scaled, struct naos_error *err)
{
	naos_autoclose int plain = memfd_create("naos-legacy", MFD_CLOEXEC);
	if (plain < 0)
		return naos_error_set_errno(err, errno, "no memory for the opened file");
	int rc = naos_legacy_open(file->fd, file->shown, run->transfer->given[0], run->transfer->given[1], plain, ret_scaled, err);
	if (rc == 0)
		*ret_fd = naos_fd_steal(&plain);
	return rc;
}

static int seal_file(struct run *run, struct naos_frame_walk *walk, unsigned worker, struct naos_frame_file *file,
		     struct naos_frame_new *what, struct naos_error *err)
{
	naos_autodraft struct naos_draft draft = { .fd = -1 };
	naos_autoclose int legacy = -1;
	bool scaled = false;
	struct stat plain = file->status;
	int rc = refuse_existing(run, file, err);
	if (rc == 0 && run->transfer->verb == NAOS_FRAME_VERB_IMPORT)
		rc = open_legacy(run, file, &legacy, &scaled, err);
	if (rc == 0 && legacy >= 0 && fstat(legacy, &plain) != 0)
		rc = naos_error_set_errno(err, errno, "cannot read the size of the opened file");
	if (rc == 0)
		rc = naos_draft_create(file->place.dir_fd, file->place.base, run->transfer->replace, &draft, err);
	if (rc == 0)
		rc = seal_draft(run, walk, file, legacy >= 0 ? legacy : file->fd, what, &draft, err);
	struct result *result = rc == 0 ? new_result(run, file) : NULL;
	if (rc == 0 && !result)
		rc = naos_error_set(err, NAOS_E_NOMEM, "no memory to publish %s", file->place.shown);
	if (rc != 0)
		return rc;
	result->done.frame_id = what->frame_id;
	result->done.scaled = scaled;
	result->done.bytes = (uint64_t)plain.st_size;
	naos_frame_tree_publish(walk, worker, file, &draft, result, (uint64_t)plain.st_size);
	return 0;
}

/* Whether a file is to be sealed; else what is to be said of it is said. */
static bool wants_sealing(struct run *run, const struct naos_frame_walk *walk, const struct naos_frame_file *file)
{
	bool single = naos_frame_tree_single(walk), import = run->transfer->verb == NAOS_FRAME_VERB_IMPORT;
	struct naos_error err;
	if (import && file->kind != NAOS_FITS_LEGACY && !single) {
		leave_out(run, file, NAOS_NOTICE_NO_LEGACY);
	} else if (!import && (file->kind == NAOS_FITS_FRAME || file->kind == NAOS_FITS_LEGACY) && !single) {
		leave_out(run, file, NAOS_NOTICE_SEALED);
	} else if (!import && file->kind == NAOS_FITS_FRAME) {
		(void)naos_error_set(&err, NAOS_E_USAGE, "%s is a frame already; 'naos fits rewrap' gives it newer MEKs", file->shown);
		fail(run, file, &err);
	} else if (!import && file->kind == NAOS_FITS_OTHER && !single && !naos_fits_named(file->item->name)) {
		leave_out(run, file, NAOS_NOTICE_NO_FITS);
	} else if (is_sealed(run, walk, file)) {
		is_done_already(run, file);
	} else {
		return true;
	}
	return false;
}

static int new_frames(const struct run *run, struct naos_frame_keys *keys, struct naos_frame_new *what, size_t count,
		      struct naos_error *err)
{
	const struct naos_frame_transfer *transfer = run->transfer;
	int rc = 0;
	if (count == 0)
		return 0;
	if (transfer->collection)
		return naos_collection_new_frames(transfer->collection, transfer->provider, keys, what, count, err);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		what[i] = (struct naos_frame_new){ .algorithm = NAOS_AES_256_GCM, .keys = { transfer->given[0], transfer->given[1] } };
		rc = naos_uuid_random(&what[i].frame_id, err);
	}
	return rc;
}

static void seal_files(struct run *run, struct naos_frame_walk *walk, unsigned worker, struct naos_frame_file *files, size_t count)
{
	naos_autofree struct naos_frame_file **wanted = calloc(count, sizeof(*wanted));
	naos_autofree struct naos_frame_keys *keys = calloc(count, sizeof(*keys));
	naos_autofree struct naos_frame_new *what = calloc(count, sizeof(*what));
	struct naos_error err;
	size_t used = 0;
	for (size_t i = 0; wanted && keys && what && i < count; i++)
		if (wants_sealing(run, walk, &files[i]))
			wanted[used++] = &files[i];
	int rc = wanted && keys && what ? new_frames(run, keys, what, used, &err) :
					  naos_error_set(&err, NAOS_E_NOMEM, "no memory for a batch of files");
	if (rc != 0) {
		for (size_t i = 0; i < (used ? used : count); i++)
			fail(run, used ? wanted[i] : &files[i], &err);
		return;
	}
	for (size_t i = 0; i < used && !naos_tally_stopped(run->tally); i++)
		if (seal_file(run, walk, worker, wanted[i], &what[i], &err) != 0)
			fail(run, wanted[i], &err);
	for (size_t i = 0; i < used; i++)
		naos_frame_keys_free(&keys[i]);
}

/* --- opening, cutting ------------------------------------------------------------------------------------------------------- */

static bool wants_opening(struct run *run, const struct naos_frame_walk *walk, const struct naos_frame_file *file)
{
	if (naos_frame_tree_single(walk) || file->kind == NAOS_FITS_FRAME || file->kind == NAOS_FITS_LEGACY)
		return true;
	if (file->kind == NAOS_FITS_OTHER && naos_fits_named(file->item->name))
		return true; /* and fail: it should be one */
	leave_out(run, file, file->kind == NAOS_FITS_PLAIN ? NAOS_NOTICE_PLAIN : NAOS_NOTICE_NO_FITS);
	return false;
}

static int fill_draft(struct run *run, struct naos_frame_walk *walk, const struct naos_frame_file *file, struct naos_frame *frame,
		      struct naos_draft *draft, struct result *result, struct naos_error *err)
{
	struct naos_frame_writing how = { .full_only = run->transfer->full_only, .progress = progress, .context = run->tally };
	bool suppressed;
	if (run->transfer->verb == NAOS_FRAME_VERB_CUT)
		return naos_frame_cut(frame, run->transfer->request, draft->fd, file->place.shown, &result->done.cut, err);
	how.jobs = naos_frame_tree_begin(walk);
	int rc = naos_frame_write_draft(frame, draft, file->place.shown, &how, &suppressed, err);
	naos_frame_tree_end(walk);
	if (rc == 0 && suppressed)
		(void)naos_error_set(&result->err, NAOS_E_INTEGRITY, "%s: %s holds only what was not changed", err->message,
				     file->place.shown);
	return rc;
}

/* 1: left alone. */
static int write_frame(struct run *run, struct naos_frame_walk *walk, unsigned worker, struct naos_frame_file *file,
		       struct naos_frame *frame, struct naos_error *err)
{
	const struct naos_frame_writing how = { .full_only = run->transfer->full_only };
	naos_autodraft struct naos_draft draft = { .fd = -1 };
	char recipe[RECIPE_BYTES];
	int rc = naos_frame_may_write(frame, file->place.shown, &how, err);
	if (rc != 0)
		return rc;
	recipe_of(run, frame, recipe);
	if (is_opened(run, walk, file, frame, recipe))
		return 1;
	rc = refuse_existing(run, file, err);
	struct result *result = rc == 0 ? new_result(run, file) : NULL;
	if (rc == 0 && !result)
		rc = naos_error_set(err, NAOS_E_NOMEM, "no memory to publish %s", file->place.shown);
	if (rc == 0)
		rc = naos_draft_create(file->place.dir_fd, file->place.base, run->transfer->replace, &draft, err);
	if (rc == 0)
		rc = fill_draft(run, walk, file, frame, &draft, result, err);
	if (rc == 0 && result->err.code == 0)
		rc = mark_opened(file, &draft, recipe, err);
	if (rc == 0) {
		naos_frame_opened_take(frame, &result->done.opened);
		naos_frame_statistics(frame, &result->done.statistics);
		/* the level of a frame that was changed is that of what was written */
		if (result->err.code == 0 && naos_frame_worst(frame) == NAOS_E_INTEGRITY)
			(void)naos_error_set(&result->err, NAOS_E_INTEGRITY, "%s was changed: %s holds only what was not", file->shown,
					     file->place.shown);
		result->done.bytes = naos_frame_result_bytes(frame);
		naos_frame_tree_publish(walk, worker, file, &draft, result, result->done.bytes);
		result = NULL;
	}
	free_result(result);
	return rc;
}

static int open_file(struct run *run, struct naos_frame_walk *walk, unsigned worker, struct naos_frame_file *file,
		     const struct naos_frame_fetched *fetched, struct naos_error *err)
{
	const struct naos_frame_transfer *transfer = run->transfer;
	struct naos_frame_opener opener = {
		.provider = transfer->provider, .given = { transfer->given[0], transfer->given[1] }, .fetched = fetched,
	};
	const struct naos_frame_source source = naos_frame_opener_source(&opener);
	naos_autoframe struct naos_frame *frame = NULL;
	int fd = naos_fd_steal(&file->fd);
	int rc = naos_frame_open_fd(fd, file->shown, &source, &frame, err);
	if (rc == 0)
		rc = write_frame(run, walk, worker, file, frame, err);
	if (rc == 1)
		is_done_already(run, file);
	bool outside = rc == NAOS_E_NOTFOUND && transfer->verb == NAOS_FRAME_VERB_CUT && !naos_frame_tree_single(walk);
	if (outside)
		leave_out(run, file, NAOS_NOTICE_OUTSIDE);
	return rc == 1 || outside ? 0 : rc;
}

static void open_files(struct run *run, struct naos_frame_walk *walk, unsigned worker, struct naos_frame_file *files, size_t count)
{
	const struct naos_frame_transfer *transfer = run->transfer;
	const struct naos_frame_opener opener = { .provider = transfer->provider, .given = { transfer->given[0], transfer->given[1] } };
	naos_autofree struct naos_frame_fetched *fetched = count > 1 ? calloc(count, sizeof(*fetched)) : NULL;
	int fds[NAOS_WALK_BATCH] = { -1 };
	struct naos_error err;
	for (size_t i = 0; i < count; i++)
		fds[i] = files[i].kind == NAOS_FITS_FRAME ? files[i].fd : -1;
	if (fetched)
		naos_frame_fetch(&opener, fds, fetched, count);
	for (size_t i = 0; i < count && !naos_tally_stopped(run->tally); i++)
		if (wants_opening(run, walk, &files[i]) &&
		    open_file(run, walk, worker, &files[i], fetched ? &fetched[i] : NULL, &err) != 0)
			fail(run, &files[i], &err);
	if (fetched)
		naos_frame_fetched_free(fetched, count);
}

/* --- the whole -------------------------------------------------------------------------------------------------------------- */

static void take_files(void *context, struct naos_frame_walk *walk, unsigned worker, struct naos_frame_file *files, size_t count)
{
	struct run *run = context;
	bool seals = run->transfer->verb == NAOS_FRAME_VERB_SEAL || run->transfer->verb == NAOS_FRAME_VERB_IMPORT;
	(seals ? seal_files : open_files)(run, walk, worker, files, count);
}

int naos_frame_transfer_run(const struct naos_frame_transfer *transfer, struct naos_tally *tally, struct naos_error *err)
{
	struct run run = { .transfer = transfer, .tally = tally };
	const struct naos_frame_tree tree = {
		.context = &run,
		.jobs = transfer->jobs,
		.shard_index = transfer->shard_index,
		.shard_count = transfer->shard_count,
		.target = transfer->target,
		.replace = transfer->replace,
		.files = take_files,
		.published = published,
	};
	(void)pthread_mutex_init(&run.lock, NULL);
	int rc = naos_frame_tree_visit(&tree, transfer->source, tally, err);
	(void)pthread_mutex_destroy(&run.lock);
	return rc;
}
