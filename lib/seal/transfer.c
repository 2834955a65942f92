/* The tree operation: makes the target's directories, shares the files among workers, ends with links and durable names.
 * SPDX-License-Identifier: Apache-2.0 */
#include "seal/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/io.h"
#include "seal/manifest.h"
#include "seal/metadata.h"
#include "seal/transfer_inside.h"

static void fail(struct naos_transfer_run *run, const char *path, const struct naos_error *err)
{
	naos_tally_failure(run->tally, path, err);
}

/* --- directories -------------------------------------------------------------------------------------------------------- */

static const char *below_root(const struct naos_walk_dir *dir)
{
	const char *below = dir->path + dir->root_bytes;
	return below + strspn(below, "/");
}

/* "TARGET/a/b", printable. */
static void show_target(const struct naos_transfer_run *run, const char *below, char *shown, size_t bytes)
{
	naos_autofree char *path = NULL;
	const char *target = run->transfer->target;
	bool slash = below[0] && target[0] && target[strlen(target) - 1] != '/';
	if (asprintf(&path, "%s%s%s", target, slash ? "/" : "", below) < 0)
		path = NULL;
	(void)naos_io_printable(path ? path : target, shown, bytes);
}

static void found_leftover(void *context, const char *base)
{
	struct naos_transfer_run *run = context;
	naos_tally_notice(run->tally, base, NAOS_NOTICE_REMOVED);
}

/* Makes or opens the directory; *ret_fd. */
static int make_dir(struct naos_transfer_run *run, const struct naos_walk_dir *dir, int *ret_fd, struct naos_error *err)
{
	bool root = !dir->parent;
	int parent = root ? AT_FDCWD : dir->parent->target_fd;
	const char *name = root ? run->transfer->target : strrchr(dir->path, '/') + 1;
	char shown[1024];
	struct stat status;
	show_target(run, below_root(dir), shown, sizeof(shown));
	bool made = mkdirat(parent, name, 0700) == 0;
	if (!made && errno != EEXIST)
		return naos_error_set_errno(err, errno, "cannot make the directory %s", shown);
	naos_autoclose int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (root ? 0 : O_NOFOLLOW));
	if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
		return naos_error_set(err, NAOS_E_EXISTS, "%s exists and is not a directory", shown);
	if (fd < 0 || fstat(fd, &status) != 0)
		return naos_error_set_errno(err, errno, "cannot open the directory %s", shown);
	if (!made && (status.st_mode & S_IRWXU) != S_IRWXU)
		(void)!fchmod(fd, (status.st_mode & 07777) | S_IRWXU); /* until it is filled */
	/* what an interrupted run left here */
	int rc = made ? 0 : naos_leftovers_remove(fd, NULL, found_leftover, run, err);
	if (rc != 0)
		return naos_error_prefix(err, rc, "%s", shown);
	*ret_fd = naos_fd_steal(&fd);
	return 0;
}

/* True if the directory at fd is `status` or lies in it. */
static bool is_inside(int fd, const struct stat *status)
{
	naos_autoclose int at = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat here, above = { 0 };
	while (at >= 0 && fstat(at, &here) == 0) {
		if (here.st_dev == status->st_dev && here.st_ino == status->st_ino)
			return true;
		if (here.st_dev == above.st_dev && here.st_ino == above.st_ino)
			return false; /* the root of the file system */
		above = here;
		int up = openat(at, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		naos_close_descriptor(&at);
		at = up;
	}
	return false;
}

static int enter(void *context, struct naos_walk_dir *dir)
{
	struct naos_transfer_run *run = context;
	struct naos_error err;
	int rc = make_dir(run, dir, &dir->target_fd, &err);
	if (rc == 0 && !dir->parent) {
		run->root_fd = fcntl(dir->target_fd, F_DUPFD_CLOEXEC, 3);
		if (run->root_fd < 0)
			rc = naos_error_set_errno(&err, errno, "cannot open the target directory twice");
		else if (is_inside(run->root_fd, &dir->status))
			rc = naos_error_set(&err, NAOS_E_USAGE, "the target lies inside the source: choose another place for it");
	}
	if (rc != 0)
		fail(run, dir->path, &err);
	return rc;
}

static void leave(void *context, struct naos_walk_dir *dir)
{
	struct naos_transfer_run *run = context;
	struct naos_metadata_loss loss;
	struct naos_error err;
	char shown[1024];
	if (naos_tally_stopped(run->tally))
		return;
	show_target(run, below_root(dir), shown, sizeof(shown));
	/* other shards may still need to write here */
	mode_t mode_or = run->transfer->shard_count > 1 ? S_IRWXU : 0;
	if (naos_metadata_copy(dir->fd, &dir->status, mode_or, dir->target_fd, shown, &loss, &err) != 0)
		fail(run, dir->path, &err);
	else if (loss.attributes)
		naos_tally_notice(run->tally, dir->path, NAOS_NOTICE_ATTRIBUTES);
	if (run->transfer->shard_index == 1)
		naos_tally_other(run->tally);
}

/* --- items -------------------------------------------------------------------------------------------------------------- */

static void put_link_off(struct naos_transfer_run *run, const struct naos_walk_item *item, const char *first)
{
	struct naos_error err;
	if (naos_hardlinks_add(&run->links, first, item->below_root, item->path, &err) != 0)
		fail(run, item->path, &err);
}

/* Chooses the items of this shard; a file with several names goes where its first name goes. */
static bool list(void *context, struct naos_walk_item *item)
{
	struct naos_transfer_run *run = context;
	const struct naos_transfer *transfer = run->transfer;
	const char *first = item->below_root;
	struct naos_error err;
	if (run->root_fd < 0)
		return true; /* one file */
	if (!transfer->sealing && naos_io_is_temporary(item->name)) {
		naos_tally_notice(run->tally, item->path, NAOS_NOTICE_LEFTOVER);
		return false;
	}
	if (S_ISREG(item->status.st_mode) && item->status.st_nlink > 1 &&
	    naos_hardlinks_meet(&run->links, &item->status, item->below_root, &first, &err) != 0) {
		fail(run, item->path, &err);
		return false;
	}
	if (!naos_walk_in_shard(first, transfer->shard_index, transfer->shard_count))
		return false;
	if (strcmp(first, item->below_root) == 0)
		return true;
	put_link_off(run, item, first);
	return false;
}

static void find_place(const struct naos_transfer_run *run, const struct naos_walk_item *item, struct naos_place *ret)
{
	bool single = run->root_fd < 0;
	*ret = (struct naos_place){ .dir_fd = single ? AT_FDCWD : item->dir->target_fd,
				    .base = single ? run->transfer->target : item->name };
	show_target(run, single ? "" : item->below_root, ret->shown, sizeof(ret->shown));
	ret->exists = fstatat(ret->dir_fd, ret->base, &ret->status, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Unwraps the keys of a batch of sealed files at once. */
static void prefetch(struct naos_transfer_run *run, const struct naos_walk_item *items, size_t count)
{
	naos_autofree struct naos_sealed_info *infos = calloc(count, sizeof(*infos));
	size_t used = 0;
	for (size_t i = 0; infos && i < count; i++) {
		naos_autoclose int fd = S_ISREG(items[i].status.st_mode) ?
			openat(items[i].dir->fd, items[i].name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
		struct naos_store *store;
		if (fd < 0 || naos_store_posix(fd, items[i].path, &store, NULL) != 0)
			continue;
		(void)naos_fd_steal(&fd);
		used += naos_sealed_probe(store, &infos[used], NULL) == 0;
		store->ops->close(store);
	}
	if (used > 1)
		naos_filesets_prefetch(run->transfer->sets, infos, used);
}

static void work(void *context, unsigned number, struct naos_walk_item *items, size_t count)
{
	struct naos_transfer_run *run = context;
	if (!run->transfer->sealing && count > 1)
		prefetch(run, items, count);
	for (size_t i = 0; i < count && !naos_tally_stopped(run->tally); i++) {
		struct naos_place place;
		struct naos_error err;
		find_place(run, &items[i], &place);
		int rc = S_ISREG(items[i].status.st_mode) ? naos_transfer_file(&run->workers[number], &items[i], &place, &err) :
							     naos_transfer_special(run, &items[i], &place, &err);
		if (rc != 0)
			fail(run, items[i].path, &err);
	}
}

static void settle(void *context, unsigned number)
{
	struct naos_transfer_run *run = context;
	naos_publish_all(&run->workers[number].batch);
}

/* --- the end ------------------------------------------------------------------------------------------------------------ */

static void make_links(struct naos_transfer_run *run)
{
	for (size_t i = 0; i < run->links.count && !naos_tally_stopped(run->tally); i++) {
		const struct naos_hardlink *link = &run->links.list[i];
		struct naos_error err;
		bool current;
		int rc = naos_hardlink_make(run->root_fd, link, run->transfer->force, &current, &err);
		if (rc == 0 && run->transfer->manifest)
			rc = naos_manifest_add_again(run->transfer->manifest, link->below_root, link->first, &err);
		if (rc != 0)
			fail(run, link->path, &err);
		else
			(current ? naos_tally_current : naos_tally_other)(run->tally);
	}
}

static int make_names_durable(const struct naos_transfer_run *run, struct naos_error *err)
{
	char shown[1024];
	if (run->root_fd < 0)
		return naos_io_sync_parent(AT_FDCWD, run->transfer->target, err);
	show_target(run, "", shown, sizeof(shown));
	int rc = naos_publish_sync(run->root_fd, shown, err);
	return rc ? rc : naos_io_sync_parent(AT_FDCWD, run->transfer->target, err);
}

static int start_workers(struct naos_transfer_run *run, unsigned jobs, struct naos_error *err)
{
	run->workers = calloc(jobs, sizeof(*run->workers));
	if (!run->workers)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for %u workers", jobs);
	for (unsigned i = 0; i < jobs; i++) {
		run->workers[i].run = run;
		run->workers[i].batch.done = naos_transfer_published;
		run->workers[i].batch.context = &run->workers[i];
	}
	return 0;
}

static void run_free(struct naos_transfer_run *run)
{
	for (unsigned i = 0; run->workers && i < run->visitor->jobs; i++)
		(void)naos_copy_buffer_free(run->workers[i].buffer);
	free(run->workers);
	naos_hardlinks_free(&run->links);
	naos_close_descriptor(&run->root_fd);
}

/* What an interrupted run left beside a single target. */
static int sweep_beside(const char *target, struct naos_transfer_run *run, struct naos_error *err)
{
	const char *slash = strrchr(target, '/');
	naos_autofree char *dir = slash ? strndup(target, (size_t)(slash - target) + 1) : strdup(".");
	naos_autoclose int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	if (fd < 0)
		return 0; /* making the file will say why */
	return naos_leftovers_remove(fd, slash ? slash + 1 : target, found_leftover, run, err);
}

/* Standard input, a pipe or device to a sealed file; a sealed file to standard output. */
static int run_stream(struct naos_transfer_run *run, struct naos_error *err)
{
	const struct naos_transfer *transfer = run->transfer;
	struct naos_place place;
	char shown[1024];
	if (!transfer->sealing)
		return naos_transfer_to_stream(&run->workers[0], transfer->source, STDOUT_FILENO, err);
	bool standard = strcmp(transfer->source, "-") == 0;
	(void)naos_io_printable(standard ? "standard input" : transfer->source, shown, sizeof(shown));
	naos_autoclose int own = standard ? -1 : open(transfer->source, O_RDONLY | O_CLOEXEC);
	if (!standard && own < 0)
		return naos_error_set_errno(err, errno, "cannot open %s", shown);
	find_place(run, NULL, &place);
	return naos_transfer_stream(&run->workers[0], standard ? STDIN_FILENO : own, shown, &place, err);
}

static int check_operands(const struct naos_transfer *transfer, bool *ret_stream, struct naos_error *err)
{
	struct stat source, target;
	char shown[1024];
	bool from = strcmp(transfer->source, "-") == 0, to = strcmp(transfer->target, "-") == 0;
	if (transfer->sealing && to)
		return naos_error_set(err, NAOS_E_USAGE, "a sealed file has to be a file: name one as TARGET");
	if (!transfer->sealing && from)
		return naos_error_set(err, NAOS_E_USAGE, "a sealed file can't be opened from a stream: name a file as SOURCE");
	*ret_stream = from || to;
	if (from)
		return 0;
	if (stat(transfer->source, &source) != 0)
		return naos_error_set_errno(err, errno, "cannot open %s", naos_io_printable(transfer->source, shown, sizeof(shown)));
	if (transfer->sealing && !S_ISREG(source.st_mode) && !S_ISDIR(source.st_mode))
		*ret_stream = true;
	if (!S_ISDIR(source.st_mode) && !to && stat(transfer->target, &target) == 0 && S_ISDIR(target.st_mode))
		return naos_error_set(err, NAOS_E_USAGE, "%s is a directory: name the file to be made in it",
				      naos_io_printable(transfer->target, shown, sizeof(shown)));
	return 0;
}

int naos_transfer_run(const struct naos_transfer *transfer, struct naos_tally *tally, struct naos_error *err)
{
	bool stream;
	int rc = check_operands(transfer, &stream, err);
	if (rc != 0)
		return rc;
	struct naos_transfer_run run = { .transfer = transfer, .tally = tally, .root_fd = -1 };
	const struct naos_walk_visitor visitor = {
		.context = &run, .jobs = transfer->jobs, .enter = enter, .leave = leave, .list = list, .work = work, .settle = settle,
	};
	run.visitor = &visitor;
	rc = start_workers(&run, transfer->jobs, err);
	if (rc == 0 && strcmp(transfer->target, "-") != 0)
		rc = sweep_beside(transfer->target, &run, err);
	if (rc == 0 && stream) {
		rc = run_stream(&run, err);
	} else if (rc == 0) {
		naos_walk(transfer->source, &visitor, tally);
		make_links(&run);
		if (tally->files || tally->others)
			rc = make_names_durable(&run, err);
	}
	run_free(&run);
	return rc;
}
