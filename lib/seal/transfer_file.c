/* One file, either way: open, copy into a draft, give it its metadata, hand it to the batch.
 * SPDX-License-Identifier: Apache-2.0 */
#include "seal/transfer_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/io.h"
#include "seal/manifest.h"
#include "seal/metadata.h"

#define ATTEMPTS 2 /* for a file that changes while it is read */

/* --- publication -------------------------------------------------------------------------------------------------------- */

/* A file between its copy and its publication. */
struct pending {
	struct naos_walk_dir *dir; /* held: its own times are set when all in it have their names */
	struct naos_manifest_entry entry;
	uint64_t bytes;
	const char *below_root; /* in path */
	char *path, *base;
};

static void free_pending(const struct naos_transfer_run *run, struct pending *pending)
{
	naos_walk_release(run->visitor, pending->dir);
	free(pending->path);
	free(pending->base);
	free(pending);
}

void naos_transfer_published(void *context, void *owner, const struct naos_error *failure)
{
	struct naos_transfer_worker *worker = context;
	struct pending *pending = owner;
	struct naos_manifest_writer *manifest = worker->run->transfer->manifest;
	struct naos_error err;
	if (!failure && manifest && naos_manifest_add(manifest, pending->below_root, &pending->entry, &err) != 0)
		failure = &err;
	if (failure)
		naos_tally_failure(worker->run->tally, pending->path, failure);
	else
		naos_tally_file(worker->run->tally, pending->bytes);
	free_pending(worker->run, pending);
}

/* Hands a finished draft to the worker's batch. */
static int put_off(struct naos_transfer_worker *worker, const struct naos_walk_item *item, struct naos_draft *draft,
		   uint64_t bytes, const struct naos_manifest_entry *entry, struct naos_error *err)
{
	struct pending *pending = calloc(1, sizeof(*pending));
	if (!pending)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to publish a file");
	*pending = (struct pending){ .dir = naos_walk_hold(item->dir), .bytes = bytes, .entry = *entry, .path = strdup(item->path),
				     .base = strdup(draft->name) };
	if (!pending->path || !pending->base) {
		free_pending(worker->run, pending);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to publish a file");
	}
	pending->below_root = pending->path + (item->below_root - item->path);
	draft->name = pending->base;
	naos_publish_add(&worker->batch, draft, pending, bytes);
	return 0;
}

static int need_buffer(struct naos_transfer_worker *worker, struct naos_error *err)
{
	return worker->buffer ? 0 : naos_copy_buffer_create(&worker->buffer, err);
}

/* --- sealing ------------------------------------------------------------------------------------------------------------ */

static int tell_losses(struct naos_transfer_run *run, const char *path, const struct naos_metadata_loss *loss)
{
	if (loss->attributes)
		naos_tally_notice(run->tally, path, NAOS_NOTICE_ATTRIBUTES);
	if (loss->setid)
		naos_tally_notice(run->tally, path, NAOS_NOTICE_SETID);
	return 0;
}

static bool same_file(const struct stat *before, const struct stat *after)
{
	return before->st_size == after->st_size && before->st_mtim.tv_sec == after->st_mtim.tv_sec &&
	       before->st_mtim.tv_nsec == after->st_mtim.tv_nsec && before->st_ctim.tv_sec == after->st_ctim.tv_sec &&
	       before->st_ctim.tv_nsec == after->st_ctim.tv_nsec;
}

/* One attempt: `from` sealed into a new draft.  *ret_changed: it changed meanwhile, the draft is of no use. */
static int seal_once(struct naos_transfer_worker *worker, int from, const struct naos_walk_item *item,
		     const struct naos_place *place, struct naos_draft *draft, struct naos_manifest_entry *entry,
		     struct stat *status, struct naos_error *err)
{
	struct naos_transfer_run *run = worker->run;
	struct naos_sealed_file *sealed;
	struct naos_metadata_loss loss;
	struct stat after;
	char shown[1024];
	(void)naos_io_printable(item->path, shown, sizeof(shown));
	if (fstat(from, status) != 0)
		return naos_error_set_errno(err, errno, "cannot read the metadata of %s", shown);
	int rc = naos_draft_create(place->dir_fd, place->base, run->transfer->force, draft, err);
	if (rc != 0)
		return naos_error_prefix(err, rc, "%s", place->shown);
	rc = naos_sealed_draft(run->transfer->sets, run->transfer->set, draft->fd, place->shown, &sealed, err);
	if (rc != 0)
		return rc;
	rc = naos_copy_in(worker->buffer, from, shown, (uint64_t)status->st_size, sealed, run->tally, err);
	entry->file_id = naos_sealed_file_header(sealed)->file_id;
	int closed = naos_sealed_file_close(sealed, rc == 0, rc == 0 ? err : NULL);
	rc = rc ? rc : closed;
	if (rc == 0)
		rc = naos_metadata_copy(from, status, 0, draft->fd, place->shown, &loss, err);
	if (rc == 0 && run->transfer->manifest)
		rc = naos_manifest_digest(draft->fd, place->shown, entry, err);
	if (rc != 0)
		return rc;
	if (fstat(from, &after) != 0 || !same_file(status, &after))
		return naos_error_set(err, NAOS_E_CHANGED, "%s changed while it was read", shown);
	return tell_losses(run, item->path, &loss);
}

static int seal_file(struct naos_transfer_worker *worker, int from, const struct naos_walk_item *item,
		     const struct naos_place *place, struct naos_error *err)
{
	int rc = 0;
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		naos_autodraft struct naos_draft draft = { .fd = -1 };
		struct naos_manifest_entry entry = { .kind = NAOS_MANIFEST_FILE };
		struct stat status;
		rc = seal_once(worker, from, item, place, &draft, &entry, &status, err);
		if (rc == 0)
			return put_off(worker, item, &draft, (uint64_t)status.st_size, &entry, err);
		if (rc != NAOS_E_CHANGED)
			return rc;
	}
	return rc;
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

/* Takes fd. */
static int open_sealed(const struct naos_transfer_run *run, int *fd, const char *shown, struct naos_sealed_file **ret,
		       struct naos_error *err)
{
	struct naos_sealed_info info;
	struct naos_store *store;
	int rc = naos_store_posix(*fd, shown, &store, err);
	if (rc != 0)
		return rc;
	(void)naos_fd_steal(fd);
	rc = naos_sealed_probe(store, &info, err);
	if (rc != 0) {
		store->ops->close(store);
		return rc;
	}
	const struct naos_fek_source source = naos_filesets_source(run->transfer->sets, run->transfer->set, &info);
	return naos_sealed_file_open(store, NAOS_SEALED_READ, &source, ret, err);
}

static int open_file(struct naos_transfer_worker *worker, int from, const struct naos_walk_item *item,
		     const struct naos_place *place, struct naos_error *err)
{
	struct naos_transfer_run *run = worker->run;
	const struct naos_manifest_entry none = { .kind = NAOS_MANIFEST_FILE };
	naos_autodraft struct naos_draft draft = { .fd = -1 };
	naos_autoclose int own = fcntl(from, F_DUPFD_CLOEXEC, 3);
	struct naos_sealed_file *sealed;
	struct naos_metadata_loss loss;
	struct stat status;
	char shown[1024];
	(void)naos_io_printable(item->path, shown, sizeof(shown));
	if (own < 0 || fstat(from, &status) != 0)
		return naos_error_set_errno(err, errno, "cannot read the metadata of %s", shown);
	int rc = open_sealed(run, &own, shown, &sealed, err);
	if (rc != 0)
		return rc;
	uint64_t size = naos_sealed_file_size(sealed);
	rc = naos_draft_create(place->dir_fd, place->base, run->transfer->force, &draft, err);
	if (rc != 0)
		(void)naos_error_prefix(err, rc, "%s", place->shown);
	if (rc == 0)
		rc = naos_copy_out(worker->buffer, sealed, naos_copy_is_dense(sealed, from), draft.fd, false, place->shown,
				   run->tally, err);
	int closed = naos_sealed_file_close(sealed, false, rc == 0 ? err : NULL);
	rc = rc ? rc : closed;
	if (rc == 0)
		rc = naos_metadata_copy(from, &status, 0, draft.fd, place->shown, &loss, err);
	if (rc != 0)
		return rc;
	(void)tell_losses(run, item->path, &loss);
	return put_off(worker, item, &draft, size, &none, err);
}

/* --- either way --------------------------------------------------------------------------------------------------------- */

/* Whether the target is what this run would make, by size and time of change.  A sealed one must be of the file set. */
static bool is_current(const struct naos_transfer_run *run, int from, const struct stat *source, const struct naos_place *place,
		       struct naos_manifest_entry *ret_entry)
{
	uint64_t size;
	struct naos_sealed_info info;
	struct naos_store *store;
	bool sealing = run->transfer->sealing;
	const struct stat *sealed = sealing ? &place->status : source, *plain = sealing ? source : &place->status;
	if (!S_ISREG(place->status.st_mode) || !naos_metadata_same_time(source, &place->status) ||
	    !naos_layout_logical((uint64_t)sealed->st_size, &size) || size != (uint64_t)plain->st_size)
		return false;
	naos_autoclose int fd = sealing ? openat(place->dir_fd, place->base, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) :
					  fcntl(from, F_DUPFD_CLOEXEC, 3);
	int file = fd;
	if (fd < 0 || naos_store_posix(fd, place->shown, &store, NULL) != 0)
		return false;
	(void)naos_fd_steal(&fd);
	const struct naos_fileset *set = run->transfer->set;
	bool current = naos_sealed_probe(store, &info, NULL) == 0 && info.physical_bytes == (uint64_t)sealed->st_size &&
		       (!set || (naos_uuid_equal(&info.header.fileset_id, &set->id) && info.header.algorithm == set->algorithm));
	if (current && run->transfer->manifest) {
		ret_entry->file_id = info.header.file_id;
		current = naos_manifest_digest(file, place->shown, ret_entry, NULL) == 0;
	}
	store->ops->close(store);
	return current;
}

int naos_transfer_file(struct naos_transfer_worker *worker, const struct naos_walk_item *item, const struct naos_place *place,
		       struct naos_error *err)
{
	struct naos_transfer_run *run = worker->run;
	bool single = run->mirror.root_fd < 0; /* the operand itself may be a symbolic link */
	struct stat status;
	char shown[1024];
	naos_autoclose int from =
	    openat(item->dir->fd, item->name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (single ? 0 : O_NOFOLLOW));
	(void)naos_io_printable(item->path, shown, sizeof(shown));
	if (from < 0 || fstat(from, &status) != 0)
		return naos_error_set_errno(err, errno, "cannot open %s", shown);
	if (!S_ISREG(status.st_mode))
		return naos_error_set(err, NAOS_E_CHANGED, "%s became another kind of file", shown);
	if (place->exists) {
		struct naos_manifest_entry entry = { .kind = NAOS_MANIFEST_FILE };
		if (place->status.st_dev == status.st_dev && place->status.st_ino == status.st_ino)
			return naos_error_set(err, NAOS_E_USAGE, "%s and %s are the same file", shown, place->shown);
		if (is_current(run, from, &status, place, &entry)) {
			naos_tally_current(run->tally);
			return run->transfer->manifest ? naos_manifest_add(run->transfer->manifest, item->below_root, &entry, err) : 0;
		}
		if (S_ISDIR(place->status.st_mode))
			return naos_error_set(err, NAOS_E_EXISTS, "%s is a directory", place->shown);
		if (!run->transfer->force)
			return naos_error_set(err, NAOS_E_EXISTS, "%s exists and is not current", place->shown);
	}
	(void)posix_fadvise(from, 0, 0, POSIX_FADV_SEQUENTIAL);
	int rc = need_buffer(worker, err);
	if (rc != 0)
		return rc;
	return run->transfer->sealing ? seal_file(worker, from, item, place, err) : open_file(worker, from, item, place, err);
}

/* --- streams ------------------------------------------------------------------------------------------------------------ */

int naos_transfer_stream(struct naos_transfer_worker *worker, int from, const char *name, const struct naos_place *place,
			 struct naos_error *err)
{
	struct naos_transfer_run *run = worker->run;
	naos_autodraft struct naos_draft draft = { .fd = -1 };
	struct naos_sealed_file *sealed;
	uint64_t bytes = 0;
	int rc = need_buffer(worker, err);
	if (rc == 0 && place->exists && (!run->transfer->force || S_ISDIR(place->status.st_mode)))
		rc = naos_error_set(err, NAOS_E_EXISTS, "%s exists", place->shown);
	if (rc == 0)
		rc = naos_draft_create(place->dir_fd, place->base, run->transfer->force, &draft, err);
	if (rc == 0)
		rc = naos_sealed_draft(run->transfer->sets, run->transfer->set, draft.fd, place->shown, &sealed, err);
	if (rc != 0)
		return rc;
	rc = naos_copy_stream_in(worker->buffer, from, name, sealed, run->tally, &bytes, err);
	int closed = naos_sealed_file_close(sealed, rc == 0, rc == 0 ? err : NULL);
	rc = rc ? rc : closed;
	/* a new file of this user: as the umask says */
	mode_t mask = umask(0);
	(void)umask(mask);
	if (rc == 0 && fchmod(draft.fd, 0666 & ~mask) != 0)
		rc = naos_error_set_errno(err, errno, "cannot set the mode of %s", place->shown);
	if (rc == 0)
		rc = naos_draft_publish(&draft, err);
	if (rc == 0)
		naos_tally_file(run->tally, bytes);
	return rc;
}

int naos_transfer_to_stream(struct naos_transfer_worker *worker, const char *source, int to, struct naos_error *err)
{
	struct naos_transfer_run *run = worker->run;
	struct naos_sealed_file *sealed;
	struct stat status;
	char shown[1024];
	naos_autoclose int from = open(source, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	(void)naos_io_printable(source, shown, sizeof(shown));
	if (from < 0 || fstat(from, &status) != 0)
		return naos_error_set_errno(err, errno, "cannot open %s", shown);
	if (!S_ISREG(status.st_mode))
		return naos_error_set(err, NAOS_E_USAGE, "%s is not a file: only a file can be opened to standard output", shown);
	int rc = need_buffer(worker, err);
	if (rc == 0)
		rc = open_sealed(run, &from, shown, &sealed, err);
	if (rc != 0)
		return rc;
	uint64_t size = naos_sealed_file_size(sealed);
	rc = naos_copy_out(worker->buffer, sealed, false, to, true, "standard output", run->tally, err);
	int closed = naos_sealed_file_close(sealed, false, rc == 0 ? err : NULL);
	rc = rc ? rc : closed;
	if (rc == 0)
		naos_tally_file(run->tally, size);
	return rc;
}
