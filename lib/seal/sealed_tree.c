/* Visiting sealed files.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/sealed_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/io.h"
#include "seal/hardlink.h"
#include "seal/publish.h"

struct visit {
	const struct naos_sealed_tree *tree;
	struct naos_tally *tally;
	struct naos_hardlinks links;
};

/* A directory whose leftovers are removed. */
struct sweep {
	struct visit *visit;
	const struct naos_walk_dir *dir;
};

static void found_leftover(void *context, const char *base)
{
	const struct sweep *sweep = context;
	naos_autofree char *path = NULL;
	const char *known = asprintf(&path, "%s/%s", sweep->dir->path, base) < 0 ? base : path;
	naos_tally_notice(sweep->visit->tally, known, NAOS_NOTICE_REMOVED);
}

static int enter(void *context, struct naos_walk_dir *dir)
{
	struct visit *visit = context;
	struct sweep sweep = { .visit = visit, .dir = dir };
	struct naos_error err;
	if (visit->tree->skip && strcmp(dir->path + dir->root_bytes + strspn(dir->path + dir->root_bytes, "/"), visit->tree->skip) == 0)
		return -1;
	if (visit->tree->clean && naos_leftovers_remove(dir->fd, NULL, found_leftover, &sweep, &err) != 0)
		naos_tally_failure(visit->tally, dir->path, &err);
	return 0;
}

static void leave(void *context, struct naos_walk_dir *dir)
{
}

static bool list(void *context, struct naos_walk_item *item)
{
	struct visit *visit = context;
	const char *first = item->below_root;
	struct naos_error err;
	if (item->dir->entered && naos_io_is_temporary(item->name)) {
		naos_tally_notice(visit->tally, item->path, NAOS_NOTICE_LEFTOVER);
		return false;
	}
	if (visit->tree->once && S_ISREG(item->status.st_mode) && item->status.st_nlink > 1 &&
	    naos_hardlinks_meet(&visit->links, &item->status, item->below_root, &first, &err) != 0) {
		naos_tally_failure(visit->tally, item->path, &err);
		return false;
	}
	return strcmp(first, item->below_root) == 0 && naos_walk_in_shard(first, visit->tree->shard_index, visit->tree->shard_count);
}

/* Opens and probes one file; what goes wrong is left in file->err. */
static void look_at(struct naos_tree_file *file)
{
	const struct naos_walk_item *item = file->item;
	bool single = !item->dir->entered; /* the operand itself may be a symbolic link */
	struct naos_store *store;
	int fd = openat(item->dir->fd, item->name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (single ? 0 : O_NOFOLLOW));
	if (fd < 0) {
		(void)naos_error_set_errno(&file->err, errno, "cannot open %s", file->shown);
		return;
	}
	file->fd = fd;
	naos_autoclose int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	int rc = own < 0 ? naos_error_set_errno(&file->err, errno, "cannot open %s", file->shown) :
			   naos_store_posix(own, file->shown, &store, &file->err);
	if (rc != 0)
		return;
	(void)naos_fd_steal(&own);
	rc = naos_sealed_probe(store, &file->info, &file->err);
	file->err.code = rc;
	store->ops->close(store);
}

static void prefetch(const struct naos_sealed_tree *tree, const struct naos_tree_file *files, size_t count)
{
	naos_autofree struct naos_sealed_info *infos = calloc(count, sizeof(*infos));
	size_t used = 0;
	for (size_t i = 0; infos && i < count; i++)
		if (files[i].err.code == 0)
			infos[used++] = files[i].info;
	if (used > 1)
		naos_filesets_prefetch(tree->sets, infos, used);
}

static void work(void *context, unsigned worker, struct naos_walk_item *items, size_t count)
{
	struct visit *visit = context;
	const struct naos_sealed_tree *tree = visit->tree;
	naos_autofree struct naos_tree_file *files = calloc(count, sizeof(*files));
	size_t used = 0;
	for (size_t i = 0; files && i < count; i++) {
		struct naos_tree_file *file = &files[used];
		file->item = &items[i];
		file->fd = -1;
		(void)naos_io_printable(items[i].path, file->shown, sizeof(file->shown));
		if (S_ISREG(items[i].status.st_mode)) {
			look_at(file);
			used += !(tree->in_use && file->err.code == NAOS_E_NOTFOUND);
		} else if (S_ISLNK(items[i].status.st_mode) && tree->link) {
			tree->link(tree->context, &items[i], file->shown);
		}
	}
	if (!files) {
		struct naos_error err;
		(void)naos_error_set(&err, NAOS_E_NOMEM, "no memory for a batch of files");
		naos_tally_failure(visit->tally, items[0].path, &err);
		return;
	}
	if (tree->sets)
		prefetch(tree, files, used);
	if (used)
		tree->files(tree->context, files, used);
	for (size_t i = 0; i < used; i++)
		naos_close_descriptor(&files[i].fd);
}

static void settle(void *context, unsigned worker)
{
}

void naos_sealed_tree_visit(const struct naos_sealed_tree *tree, const char *operand, struct naos_tally *tally)
{
	struct visit visit = { .tree = tree, .tally = tally };
	const struct naos_walk_visitor visitor = {
		.context = &visit, .jobs = tree->jobs, .in_use = tree->in_use, .enter = enter, .leave = leave,
		.list = list, .work = work, .settle = settle,
	};
	naos_walk(operand, &visitor, tally);
	naos_hardlinks_free(&visit.links);
}

int naos_tree_file_open(struct naos_tree_file *file, enum naos_sealed_mode mode, const struct naos_fek_source *source,
			struct naos_sealed_file **ret, struct naos_error *err)
{
	struct naos_store *store;
	int rc = naos_store_posix(file->fd, file->shown, &store, err);
	if (rc != 0)
		return rc;
	file->fd = -1;
	return naos_sealed_file_open(store, mode, source, ret, err);
}
