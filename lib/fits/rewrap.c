/* SPDX-License-Identifier: Apache-2.0 */
#include "fits/rewrap.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>

#include "base/io.h"
#include "fits/frame_inside.h"
#include "fits/spare.h"
#include "seal/metadata.h"
#include "seal/publish.h"

#define FEW 2 /* frames that are flushed one by one */

/* One frame on its way. */
struct job {
	struct naos_frame_file *file;
	const struct naos_rewrap_target *target;
	struct naos_frame *frame; /* opened without keys; its descriptor reads only and holds the lock */
	bool wanted[2];           /* parts to be wrapped anew */
	struct naos_secret *keys[2];
	struct naos_blob blobs[2];
	uint8_t slots[NAOS_FRAME_KEYS_BYTES];
	int fd; /* for writing; -1 */
	bool lent_write, by_copy, done;
	struct naos_error err; /* code 0: none */
};

/* --- collections ------------------------------------------------------------------------------------------------------------ */

static int find_active(struct naos_provider *provider, const char *name, struct naos_mek *ret, struct naos_error *err)
{
	naos_autofree struct naos_mek *versions = NULL;
	size_t count;
	int rc = naos_mek_find(provider, name, &versions, &count, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < count; i++)
		if (versions[i].state == NAOS_MEK_ACTIVE) {
			*ret = versions[i];
			return 0;
		}
	return naos_error_set(err, NAOS_E_KEY_STATE, "the MEK '%s' has no active version", name);
}

static int find_target(const struct naos_config *config, const char *name, struct naos_provider *provider, struct naos_rewrap_target *ret,
		       struct naos_error *err)
{
	int rc = naos_collection_find(config, name, provider, &ret->collection, err);
	for (unsigned i = 0; rc == 0 && i < 2; i++)
		rc = find_active(provider, ret->collection.meks[i], &ret->active[i], err);
	return rc ? naos_error_prefix(err, rc, "collection '%s'", name) : 0;
}

/* A collection that is of no use now is passed over: its frames are told of one by one.  Not so a key manager that is away. */
static int add_target(const struct naos_config *config, const char *name, struct naos_frame_rewrap *rewrap, struct naos_error *ret_why,
		      struct naos_error *err)
{
	for (size_t i = 0; i < rewrap->target_count; i++)
		if (strcmp(rewrap->targets[i].collection.name, name) == 0)
			return 0;
	if (rewrap->target_count == NAOS_REWRAP_MAX_COLLECTIONS)
		return naos_error_set(err, NAOS_E_LIMIT, "there are more than %d collections: name one", NAOS_REWRAP_MAX_COLLECTIONS);
	int rc = find_target(config, name, rewrap->provider, &rewrap->targets[rewrap->target_count], ret_why);
	if (rc == NAOS_E_KEYMANAGER)
		return naos_error_set(err, rc, "%s", ret_why->message);
	rewrap->target_count += rc == 0;
	return 0;
}

/* Collections that have no line in the configuration, only the two MEKs that are theirs by name. */
static int add_by_name(const struct naos_config *config, struct naos_frame_rewrap *rewrap, struct naos_error *err)
{
	static const char suffix[] = "-header";
	naos_autofree struct naos_mek *meks = NULL;
	struct naos_error ignored;
	size_t count;
	int rc = naos_mek_list(rewrap->provider, &meks, &count, err);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		char *name = meks[i].name;
		size_t length = strlen(name), ending = sizeof(suffix) - 1;
		if (length <= ending || strcmp(name + length - ending, suffix) != 0)
			continue;
		name[length - ending] = 0;
		rc = add_target(config, name, rewrap, &ignored, err);
	}
	return rc == NAOS_E_DENIED || rc == NAOS_E_UNSUPPORTED ? 0 : rc;
}

int naos_frame_rewrap_targets(const struct naos_config *config, const char *name, struct naos_frame_rewrap *rewrap, struct naos_error *err)
{
	struct naos_error why = NAOS_ERROR_INIT;
	const char *section;
	int rc = 0;
	rewrap->targets = calloc(NAOS_REWRAP_MAX_COLLECTIONS, sizeof(*rewrap->targets));
	if (!rewrap->targets)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the collections");
	if (name) {
		rewrap->target_count = 1;
		return find_target(config, name, rewrap->provider, &rewrap->targets[0], err);
	}
	for (unsigned i = 0; rc == 0 && (section = naos_config_section_name(config, "collection", i)); i++)
		rc = add_target(config, section, rewrap, &why, err);
	if (rc == 0)
		rc = add_by_name(config, rewrap, err);
	if (rc == 0 && rewrap->target_count == 0)
		rc = naos_error_set(err, why.code ? why.code : NAOS_E_NOKEY, "%s",
				    why.code ? why.message : "the key manager has no MEKs of a collection (NAME-header, NAME-data)");
	return rc;
}

/* --- which frames, which keys ------------------------------------------------------------------------------------------------ */

static int no_key(void *context, const struct naos_frame_manifest *manifest, enum naos_frame_part part, const struct naos_blob *blob,
		  struct naos_secret **ret, struct naos_error *ret_why)
{
	*ret = NULL;
	return 0;
}

static const struct naos_rewrap_target *target_of(const struct naos_frame_rewrap *rewrap, const struct naos_uuid *id)
{
	for (size_t i = 0; i < rewrap->target_count; i++)
		if (naos_uuid_equal(&rewrap->targets[i].collection.id, id))
			return &rewrap->targets[i];
	return NULL;
}

static void tell(const struct naos_frame_rewrap *rewrap, const struct naos_frame_file *file, const char *left_out)
{
	if (rewrap->done)
		rewrap->done(rewrap->context, file->shown, left_out);
}

static void leave_out(const struct naos_frame_rewrap *rewrap, const struct naos_frame_file *file, enum naos_notice notice)
{
	naos_tally_notice(rewrap->tally, file->item->path, notice);
	tell(rewrap, file, naos_notice_name(notice));
}

/* Opens the frame, and locks it against another run. */
static int open_job(struct job *job, struct naos_error *err)
{
	const struct naos_frame_source source = { .key = no_key };
	struct naos_frame_file *file = job->file;
	int fd = naos_fd_steal(&file->fd);
	if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
		(void)close(fd);
		return naos_error_set(err, NAOS_E_BUSY, "%s is being rewrapped by another process", file->shown);
	}
	naos_metadata_put_times_back(fd); /* of a run that was killed */
	if (fstat(fd, &file->status) != 0) {
		int rc = naos_error_set_errno(err, errno, "cannot read the metadata of %s", file->shown);
		(void)close(fd);
		return rc;
	}
	return naos_frame_open_fd(fd, file->shown, &source, &job->frame, err);
}

/* Parts that are not under the active version of the MEK that they should be under, or whose copy in the frame is damaged. */
static int choose_parts(const struct naos_frame_rewrap *rewrap, struct job *job, struct naos_error *err)
{
	const struct naos_frame_manifest *manifest = naos_frame_manifest(job->frame);
	char id[NAOS_UUID_TEXT_BYTES];
	if (manifest->version != 2)
		return naos_error_set(err, NAOS_E_UNSUPPORTED,
				      "%s is a frame of version 1, whose keys are part of its header: seal it anew as one of version 2",
				      job->file->shown);
	job->target = target_of(rewrap, &manifest->collection_id);
	if (!job->target)
		return naos_error_set(err, NAOS_E_WRONG_KEY, "%s belongs to the collection %s, which is %s", job->file->shown,
				      naos_uuid_format(&manifest->collection_id, id),
				      rewrap->target_count == 1 ? "another one" : "none of the configuration");
	for (unsigned i = 0; i < 2; i++) {
		const struct naos_mek *active = &job->target->active[i];
		struct naos_blob blob;
		if (!naos_frame_blob(job->frame, (enum naos_frame_part)(i + 1), &blob))
			return naos_error_set(err, NAOS_E_INTEGRITY, "%s: its wrapped %s key is damaged, and there is no spare copy",
					      job->file->shown, i == 0 ? "header" : "data");
		job->blobs[i] = blob;
		job->wanted[i] = job->frame->slot_damaged[i] || blob.mek_version != active->version ||
				 !naos_uuid_equal(&blob.mek_id, &active->id);
	}
	return 0;
}

static bool has_blobs(const struct naos_frame *frame)
{
	return frame->has_blob[0] || frame->has_blob[1] || frame->slot_damaged[0] || frame->slot_damaged[1];
}

/* True: there is work; else what is to be said of it is said. */
static bool begin(const struct naos_frame_rewrap *rewrap, const struct naos_frame_walk *walk, struct job *job)
{
	struct naos_frame_file *file = job->file;
	bool frame = file->kind == NAOS_FITS_FRAME || file->kind == NAOS_FITS_LEGACY;
	struct naos_error err;
	if (!frame && !naos_frame_tree_single(walk) && (file->kind == NAOS_FITS_PLAIN || !naos_fits_named(file->item->name))) {
		leave_out(rewrap, file, file->kind == NAOS_FITS_PLAIN ? NAOS_NOTICE_PLAIN : NAOS_NOTICE_NO_FITS);
		return false;
	}
	int rc = open_job(job, &err);
	if (rc == 0 && !has_blobs(job->frame)) {
		leave_out(rewrap, file, NAOS_NOTICE_BY_HAND);
		return false;
	}
	if (rc == 0)
		rc = choose_parts(rewrap, job, &err);
	if (rc != 0) {
		naos_tally_failure(rewrap->tally, file->item->path, &err);
		return false;
	}
	if (job->wanted[0] || job->wanted[1])
		return true;
	frame_spare_remove(job->frame->fd); /* of a run that was killed at its very end */
	naos_tally_current(rewrap->tally);
	tell(rewrap, file, "current");
	return false;
}

/* --- the key manager ---------------------------------------------------------------------------------------------------------- */

static struct naos_wrap_item question(const struct job *job, unsigned part)
{
	const struct naos_frame_manifest *manifest = naos_frame_manifest(job->frame);
	return (struct naos_wrap_item){
		.context = {
			.kind = part == 0 ? NAOS_WRAP_FRAME_HEADER : NAOS_WRAP_FRAME_DATA,
			.group_id = manifest->collection_id,
			.object_id = manifest->frame_id,
		},
		.blob = job->blobs[part],
		.key = job->keys[part],
	};
}

static void spoil(struct job *job, const struct naos_error *err)
{
	if (job->err.code == 0)
		job->err = *err;
}

/* What a batch says of one item. */
static int result_of(const struct naos_wrap_item *item, bool answered, int rc, const struct naos_error *err, struct naos_error *ret)
{
	if (rc != 0)
		*ret = item->result ? item->error : *err;
	return item->result ? item->result : rc == 0 || answered ? 0 : rc;
}

/* Unwraps the wanted keys of all jobs in one round trip; with `check` they must be those that the jobs have. */
static void unwrap_all(const struct naos_frame_rewrap *rewrap, struct job *jobs, size_t count, bool check)
{
	struct naos_wrap_item items[2 * NAOS_WALK_BATCH];
	struct naos_error err, own;
	size_t used = 0;
	for (size_t i = 0; i < count; i++)
		for (unsigned part = 0; part < 2; part++)
			if (jobs[i].wanted[part] && jobs[i].err.code == 0) {
				items[used] = question(&jobs[i], part);
				items[used++].key = NULL;
			}
	if (used == 0)
		return;
	int rc = naos_keys_unwrap(rewrap->provider, items, used, &err);
	size_t next = 0;
	for (size_t i = 0; i < count; i++) {
		bool asked = jobs[i].err.code == 0;
		for (unsigned part = 0; part < 2; part++) {
			if (!asked || !jobs[i].wanted[part])
				continue;
			naos_autosecret struct naos_secret *key = items[next].unwrapped;
			int result = result_of(&items[next++], key != NULL, rc, &err, &own);
			if (result == 0 && check &&
			    !naos_secret_equal(key, naos_secret_view(jobs[i].keys[part]), naos_secret_bytes(jobs[i].keys[part])))
				result = naos_error_set(&own, NAOS_E_KEYMANAGER, "the key manager wrapped another key than it was given");
			if (result != 0) {
				(void)naos_error_prefix(&own, result, "%s", jobs[i].file->shown);
				spoil(&jobs[i], &own);
			} else if (!check) {
				jobs[i].keys[part] = naos_steal(key);
			}
		}
	}
}

/* The key that comes out must be the frame's: only then may its old copy go. */
static void check_keys(struct job *job)
{
	const struct naos_frame_manifest *manifest = naos_frame_manifest(job->frame);
	for (unsigned part = 0; part < 2 && job->err.code == 0; part++) {
		uint8_t commit[NAOS_FRAME_COMMIT_BYTES];
		struct naos_error err;
		if (!job->wanted[part])
			continue;
		int rc = naos_frame_key_derive(manifest, (enum naos_frame_part)(part + 1), job->keys[part], commit, NULL, &err);
		if (rc == 0 && memcmp(commit, manifest->commit[part], sizeof(commit)) != 0)
			rc = naos_error_set(&err, NAOS_E_WRONG_KEY, "%s: its wrapped %s key is not its %s key", job->file->shown,
					    part == 0 ? "header" : "data", part == 0 ? "header" : "data");
		if (rc != 0)
			spoil(job, &err);
	}
}

/* One part of all jobs of one collection, in one round trip. */
static void wrap_part(const struct naos_frame_rewrap *rewrap, const struct naos_rewrap_target *target, unsigned part, struct job *jobs,
		      size_t count)
{
	struct naos_wrap_item items[NAOS_WALK_BATCH];
	struct job *owners[NAOS_WALK_BATCH];
	struct naos_error err, own;
	size_t used = 0;
	for (size_t i = 0; i < count; i++)
		if (jobs[i].target == target && jobs[i].wanted[part] && jobs[i].err.code == 0) {
			items[used] = question(&jobs[i], part);
			items[used].blob = (struct naos_blob){ .ciphertext_bytes = 0 };
			owners[used++] = &jobs[i];
		}
	int rc = used ? naos_keys_wrap(rewrap->provider, target->collection.meks[part], items, used, &err) : 0;
	for (size_t i = 0; i < used; i++) {
		int result = result_of(&items[i], items[i].blob.ciphertext_bytes != 0, rc, &err, &own);
		if (result != 0) {
			(void)naos_error_prefix(&own, result, "%s", owners[i]->file->shown);
			spoil(owners[i], &own);
		} else {
			owners[i]->blobs[part] = items[i].blob;
		}
	}
}

/* Fresh copies of the keys, proven to open. */
static void ask(const struct naos_frame_rewrap *rewrap, struct job *jobs, size_t count)
{
	unwrap_all(rewrap, jobs, count, false);
	for (size_t i = 0; i < count; i++)
		check_keys(&jobs[i]);
	for (size_t i = 0; i < rewrap->target_count; i++)
		for (unsigned part = 0; part < 2; part++)
			wrap_part(rewrap, &rewrap->targets[i], part, jobs, count);
	unwrap_all(rewrap, jobs, count, true);
	for (size_t i = 0; i < count; i++)
		for (unsigned part = 0; part < 2; part++)
			naos_frame_slot_encode(naos_frame_manifest(jobs[i].frame), (enum naos_frame_part)(part + 1), &jobs[i].blobs[part],
					       jobs[i].slots + part * NAOS_FRAME_SLOT_BYTES);
}

/* --- writing in place --------------------------------------------------------------------------------------------------------- */

/* An owner's read-only file is made writable for a moment. */
static int open_for_writing(struct job *job, struct naos_error *err)
{
	const struct naos_walk_item *item = job->file->item;
	const struct stat *before = &job->file->status;
	int flags = O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (item->dir->entered ? O_NOFOLLOW : 0);
	struct stat opened;
	job->fd = openat(item->dir->fd, item->name, flags);
	if (job->fd < 0 && errno == EACCES && fchmod(job->frame->fd, (before->st_mode & 07777) | S_IWUSR) == 0) {
		job->lent_write = true;
		job->fd = openat(item->dir->fd, item->name, flags);
	}
	if (job->fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s for writing", job->file->shown);
	if (fstat(job->fd, &opened) != 0 || opened.st_ino != before->st_ino || opened.st_dev != before->st_dev)
		return naos_error_set(err, NAOS_E_CHANGED, "%s was replaced meanwhile", job->file->shown);
	return 0;
}

/* Times and mode are those of the content, which did not change. */
static void put_back(struct job *job)
{
	const struct stat *before = &job->file->status;
	const struct timespec times[2] = { before->st_atim, before->st_mtim };
	if (job->lent_write)
		(void)!fchmod(job->frame->fd, before->st_mode & 07777);
	if (job->fd < 0)
		return;
	(void)!futimens(job->fd, times);
	naos_metadata_put_times_back(job->fd); /* the same, and forgets the note */
	naos_close_descriptor(&job->fd);
}

static bool in_place(const struct job *job)
{
	return job->err.code == 0 && !job->by_copy;
}

/* Everything that was written to these frames is durable, or they are spoilt. */
static void flush_all(struct job *jobs, size_t count)
{
	size_t used = 0;
	bool same = true;
	const struct job *first = NULL;
	for (size_t i = 0; i < count; i++)
		if (in_place(&jobs[i])) {
			first = first ? first : &jobs[i];
			same &= first->file->status.st_dev == jobs[i].file->status.st_dev;
			used++;
		}
	if (used > FEW && same && syncfs(first->fd) == 0)
		return;
	for (size_t i = 0; i < count; i++) {
		struct naos_error err;
		if (in_place(&jobs[i]) && fsync(jobs[i].fd) != 0) {
			(void)naos_error_set_errno(&err, errno, "cannot make %s durable", jobs[i].file->shown);
			spoil(&jobs[i], &err);
		}
	}
}

static void write_in_place(struct job *jobs, size_t count)
{
	struct naos_error err;
	for (size_t i = 0; i < count; i++) {
		if (jobs[i].err.code != 0)
			continue;
		if (open_for_writing(&jobs[i], &err) != 0) {
			spoil(&jobs[i], &err);
			continue;
		}
		naos_metadata_note_times(jobs[i].fd, &jobs[i].file->status);
		jobs[i].by_copy = !frame_spare_write(jobs[i].fd, jobs[i].slots);
	}
	flush_all(jobs, count);
	for (size_t i = 0; i < count; i++)
		if (in_place(&jobs[i]) && naos_io_pwrite(jobs[i].fd, jobs[i].slots, NAOS_FRAME_KEYS_BYTES,
							 jobs[i].frame->container.keys_offset, jobs[i].file->shown, &err) != 0)
			spoil(&jobs[i], &err);
	flush_all(jobs, count);
	for (size_t i = 0; i < count; i++)
		if (in_place(&jobs[i]))
			frame_spare_remove(jobs[i].fd);
}

/* --- writing by a copy ---------------------------------------------------------------------------------------------------------- */

static int copy_bytes(int from, int to, uint64_t bytes, const char *name, struct naos_error *err)
{
	if (ioctl(to, FICLONE, from) == 0)
		return 0;
	off_t at = 0;
	while ((uint64_t)at < bytes) {
		off_t in = at, out = at;
		ssize_t got = copy_file_range(from, &in, to, &out, bytes - (uint64_t)at, 0);
		if (got <= 0)
			return naos_error_set_errno(err, got == 0 ? EIO : errno, "cannot copy %s", name);
		at += got;
	}
	return 0;
}

/* Where a file system keeps no spare copy: the frame is replaced by one that differs in its wrapped keys only. */
static int replace_by_copy(struct job *job, struct naos_error *err)
{
	const struct naos_walk_item *item = job->file->item;
	const char *shown = job->file->shown;
	const struct naos_replaced replaced = { .status = job->file->status, .same_content = true, .lease_fd = -1 };
	naos_autodraft struct naos_draft draft = { .fd = -1 };
	struct naos_metadata_loss loss;
	if (job->file->status.st_nlink > 1)
		return naos_error_set(err, NAOS_E_UNSUPPORTED,
				      "%s has several names, and its file system takes no extended attributes: rewrap it elsewhere", shown);
	int rc = naos_draft_create(item->dir->fd, item->name, true, &draft, err);
	if (rc == 0)
		rc = copy_bytes(job->frame->fd, draft.fd, (uint64_t)job->file->status.st_size, shown, err);
	if (rc == 0)
		rc = naos_io_pwrite(draft.fd, job->slots, NAOS_FRAME_KEYS_BYTES, job->frame->container.keys_offset, shown, err);
	if (rc == 0)
		rc = naos_metadata_copy(job->frame->fd, &job->file->status, 0, draft.fd, shown, &loss, err);
	draft.replaced = &replaced;
	return rc ? rc : naos_draft_publish(&draft, err);
}

/* --- a batch --------------------------------------------------------------------------------------------------------------------- */

static void end(const struct naos_frame_rewrap *rewrap, struct job *job)
{
	struct naos_error err;
	put_back(job);
	if (job->err.code == 0 && job->by_copy && replace_by_copy(job, &err) != 0)
		spoil(job, &err);
	if (job->err.code != 0) {
		naos_tally_failure(rewrap->tally, job->file->item->path, &job->err);
		return;
	}
	naos_tally_file(rewrap->tally, 0);
	tell(rewrap, job->file, NULL);
}

void naos_frame_rewrap_files(void *context, struct naos_frame_walk *walk, unsigned worker, struct naos_frame_file *files, size_t count)
{
	const struct naos_frame_rewrap *rewrap = context;
	naos_autofree struct job *jobs = calloc(count, sizeof(*jobs));
	struct naos_error err;
	size_t used = 0;
	if (!jobs) {
		(void)naos_error_set(&err, NAOS_E_NOMEM, "no memory for a batch of frames");
		naos_tally_failure(rewrap->tally, files[0].item->path, &err);
		return;
	}
	for (size_t i = 0; i < count && !naos_tally_stopped(rewrap->tally); i++) {
		jobs[used] = (struct job){ .file = &files[i], .fd = -1 };
		if (begin(rewrap, walk, &jobs[used]))
			used++;
		else
			jobs[used].frame = naos_frame_close(jobs[used].frame);
	}
	ask(rewrap, jobs, used);
	write_in_place(jobs, used);
	for (size_t i = 0; i < used; i++) {
		end(rewrap, &jobs[i]);
		for (unsigned part = 0; part < 2; part++)
			jobs[i].keys[part] = naos_secret_free(jobs[i].keys[part]);
		jobs[i].frame = naos_frame_close(jobs[i].frame);
	}
}
