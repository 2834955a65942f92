/* The tree operation: makes the target's directories, shares the files among workers, ends with links and durable names.
 * SPDX-License-Identifier: Apache-2.0 */
#include "seal/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/io.h"
#include "seal/manifest.h"
#include "seal/transfer_inside.h"

static void fail(struct naos_transfer_run *run, const char *path, const struct naos_error *err)
{
	naos_tally_failure(run->tally, path, err);
}

/* --- what the walk calls ------------------------------------------------------------------------------------------------- */

static int enter(void *context, struct naos_walk_dir *dir)
{
	struct naos_transfer_run *run = context;
	return naos_mirror_enter(&run->mirror, dir);
}

static void leave(void *context, struct naos_walk_dir *dir)
{
	struct naos_transfer_run *run = context;
	naos_mirror_leave(&run->mirror, dir);
}

static bool list(void *context, struct naos_walk_item *item)
{
	struct naos_transfer_run *run = context;
	if (run->mirror.root_fd >= 0 && !run->transfer->sealing && naos_io_is_temporary(item->name)) {
		naos_tally_notice(run->tally, item->path, NAOS_NOTICE_LEFTOVER);
		return false;
	}
	return naos_mirror_list(&run->mirror, item);
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
		naos_mirror_place(&run->mirror, &items[i], &place);
		int rc = S_ISREG(items[i].status.st_mode) ? naos_transfer_file(&run->workers[number], &items[i], &place, &err) :
							     naos_mirror_special(&run->mirror, &items[i], &place, run->transfer->manifest, &err);
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

/* --- the end ------------------------------------------------------------------------------------------------------------ */

static int linked(void *context, const struct naos_hardlink *link, struct naos_error *err)
{
	const struct naos_transfer_run *run = context;
	return naos_manifest_add_again(run->transfer->manifest, link->below_root, link->first, err);
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
	naos_mirror_free(&run->mirror);
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
	naos_mirror_place(&run->mirror, NULL, &place);
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
	bool stream = false;
	int rc = check_operands(transfer, &stream, err);
	if (rc != 0)
		return rc;
	struct naos_transfer_run run = {
		.transfer = transfer,
		.tally = tally,
		.mirror = {
			.target = transfer->target, .replace = transfer->force, .shard_index = transfer->shard_index,
			.shard_count = transfer->shard_count, .tally = tally, .linked = transfer->manifest ? linked : NULL,
			.context = &run, .root_fd = -1,
		},
	};
	const struct naos_walk_visitor visitor = {
		.context = &run, .jobs = transfer->jobs, .enter = enter, .leave = leave, .list = list, .work = work, .settle = settle,
	};
	run.visitor = &visitor;
	rc = start_workers(&run, transfer->jobs, err);
	if (rc == 0 && strcmp(transfer->target, "-") != 0)
		rc = naos_mirror_sweep(&run.mirror, err);
	if (rc == 0 && stream) {
		rc = run_stream(&run, err);
	} else if (rc == 0) {
		naos_walk(transfer->source, &visitor, tally);
		naos_mirror_links(&run.mirror);
		if (tally->files || tally->others)
			rc = naos_mirror_sync(&run.mirror, err);
	}
	run_free(&run);
	return rc;
}
