/* The tree: files one by one or in batches that share their flushes, files with several names in the end, files in use in a later
 * pass.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "seal/hardlink.h"
#include "seal/walk.h"

#define PAUSE_S 1 /* before the next pass */

struct worker {
	struct run *run;
	struct naos_copy_buffer *buffer; /* made when first needed */
	struct naos_publish_batch batch;
};

/* Paths below the root. */
struct names {
	char **list;
	size_t count, room;
};

struct run {
	const struct naos_replace *replace;
	const struct naos_walk_visitor *visitor;
	struct naos_hardlinks links;
	struct worker *workers;
	unsigned pass; /* from 1 */
	pthread_mutex_t lock;
	struct names later;  /* in use in this pass */
	struct names wanted; /* in a later pass: these only, in order */
	struct names marked; /* new files that have the mark of an interrupted run still */
};

/* A file between its copy and its new name. */
struct pending {
	struct run *run;
	struct naos_replace_file file;
	struct naos_walk_dir *dir; /* held; NULL for a file with several names */
	char *path, *base;
	const char *below_root; /* in path */
	uint64_t bytes;
};

/* --- what came of a file ------------------------------------------------------------------------------------------------ */

static void free_pending(struct pending *pending)
{
	if (!pending)
		return;
	naos_close_descriptor(&pending->file.fd);
	if (pending->dir)
		naos_walk_release(pending->run->visitor, pending->dir);
	free(pending->path);
	free(pending->base);
	free(pending);
}

/* False without memory. */
static bool add_name(struct run *run, struct names *names, const char *below_root)
{
	(void)pthread_mutex_lock(&run->lock);
	if (names->count == names->room) {
		size_t room = names->room ? 2 * names->room : 64;
		char **grown = reallocarray(names->list, room, sizeof(*grown));
		if (grown) {
			names->list = grown;
			names->room = room;
		}
	}
	char *copy = names->count < names->room ? strdup(below_root) : NULL;
	if (copy)
		names->list[names->count++] = copy;
	(void)pthread_mutex_unlock(&run->lock);
	return copy != NULL;
}

static void free_names(struct names *names)
{
	for (size_t i = 0; i < names->count; i++)
		free(names->list[i]);
	free(names->list);
	*names = (struct names){ .count = 0 };
}

static void settle_result(struct run *run, const char *path, const char *below_root, int rc, struct naos_error *err)
{
	if (rc == NAOS_E_NOTFOUND)
		return; /* removed meanwhile */
	if ((rc == NAOS_E_BUSY || rc == NAOS_E_CHANGED) && run->pass < run->replace->passes &&
	    add_name(run, &run->later, below_root)) /* tried again */
		return;
	naos_tally_failure(run->replace->tally, path, err);
}

static void published(void *context, void *owner, const struct naos_error *failure)
{
	struct worker *worker = context;
	struct pending *pending = owner;
	if (failure) {
		struct naos_error err = *failure;
		settle_result(worker->run, pending->path, pending->below_root, err.code, &err);
	} else {
		atomic_store(&pending->dir->touched, true);
		naos_tally_file(worker->run->replace->tally, pending->bytes);
	}
	free_pending(pending);
}

/* --- one file ----------------------------------------------------------------------------------------------------------- */

/* Keeps writers of a plain file away while it is copied, as far as its file system can. */
static int keep_writers_away(struct naos_replace_file *file, struct naos_error *err)
{
	if (fcntl(file->fd, F_SETLEASE, F_RDLCK) == 0) {
		file->old.lease_fd = file->fd;
		return 0;
	}
	return errno == EAGAIN ? naos_error_set(err, NAOS_E_BUSY, "%s is open for writing", file->shown) : 0;
}

/* Opened, looked at and, if there is something to do, out of reach of writers. */
static int open_old(const struct run *run, int dir_fd, const char *name, struct naos_replace_file *file, bool *ret_current,
		    struct naos_error *err)
{
	bool plain = run->replace->plain;
	file->old = (struct naos_replaced){ .same_content = plain, .lease_fd = -1 };
	file->fd = openat(dir_fd, name, (plain ? O_RDONLY : O_RDWR) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (file->fd < 0 || fstat(file->fd, &file->old.status) != 0)
		return naos_error_set_errno(err, errno, "cannot open %s", file->shown);
	if (!S_ISREG(file->old.status.st_mode))
		return naos_error_set(err, NAOS_E_CHANGED, "%s became another kind of file", file->shown);
	int rc = run->replace->look(run->replace->context, file, ret_current, err);
	return rc == 0 && plain && !*ret_current ? keep_writers_away(file, err) : rc;
}

static void count_current(struct run *run, const struct naos_replace_file *file, const char *below_root)
{
	naos_tally_current(run->replace->tally);
	if (naos_names_marked(file->fd))
		(void)add_name(run, &run->marked, below_root);
}

/* The new file in a draft beside the old one. */
static int make_draft(struct worker *worker, int dir_fd, struct pending *pending, struct naos_draft *draft, struct naos_error *err)
{
	const struct naos_replace *replace = worker->run->replace;
	struct naos_replace_file *file = &pending->file;
	int rc = worker->buffer ? 0 : naos_copy_buffer_create(&worker->buffer, err);
	if (rc == 0)
		rc = naos_draft_create(dir_fd, pending->base, true, draft, err);
	if (rc != 0)
		return rc;
	draft->replaced = &file->old;
	rc = replace->fill(replace->context, file, worker->buffer, draft->fd, &pending->bytes, err);
	/* what waits for its name holds the blocks of its old files */
	if (rc == NAOS_E_NOSPACE && worker->batch.count) {
		naos_draft_drop(draft);
		naos_publish_all(&worker->batch);
		rc = naos_draft_create(dir_fd, pending->base, true, draft, err);
		draft->replaced = &file->old;
		if (rc == 0)
			rc = replace->fill(replace->context, file, worker->buffer, draft->fd, &pending->bytes, err);
	}
	return rc;
}

static struct pending *new_pending(struct run *run, const char *path, const char *below_root, const char *base)
{
	struct pending *pending = calloc(1, sizeof(*pending));
	if (!pending)
		return NULL;
	pending->run = run;
	pending->file.fd = -1;
	pending->path = strdup(path);
	pending->base = strdup(base);
	if (!pending->path || !pending->base) {
		free_pending(pending);
		return NULL;
	}
	pending->below_root = pending->path + (below_root - path);
	pending->file.path = pending->path;
	(void)naos_io_printable(path, pending->file.shown, sizeof(pending->file.shown));
	return pending;
}

/* 0: it is done, or nothing was to do, or it waits for its name in the batch. */
static int replace_one(struct worker *worker, struct naos_walk_item *item, struct naos_error *err)
{
	const struct naos_replace *replace = worker->run->replace;
	struct pending *pending = new_pending(worker->run, item->path, item->below_root, item->name);
	naos_autodraft struct naos_draft draft = { .fd = -1 };
	bool current = false, resumed = false;
	if (!pending)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to replace a file");
	int rc = open_old(worker->run, item->dir->fd, item->name, &pending->file, &current, err);
	if (rc == 0 && !current) {
		/* the last name of a file of several, whose other names an interrupted run took */
		naos_autoclose int root_fd = open(replace->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = root_fd < 0 ? naos_error_set_errno(err, errno, "cannot open the directory %s", replace->root) :
				   naos_names_resume(root_fd, &pending->below_root, 1, &pending->file, &resumed, err);
	}
	if (rc == 0 && !current && !resumed)
		rc = make_draft(worker, item->dir->fd, pending, &draft, err);
	if (rc != 0 || current || resumed) {
		if (rc == 0 && current)
			count_current(worker->run, &pending->file, pending->below_root);
		else if (rc == 0)
			naos_tally_file(replace->tally, 0);
		free_pending(pending);
		return rc;
	}
	pending->dir = naos_walk_hold(item->dir);
	draft.name = pending->base;
	naos_publish_add(&worker->batch, &draft, pending, pending->bytes);
	return 0;
}

/* --- files with several names ------------------------------------------------------------------------------------------- */

/* Keeps those of the names that are the file's still. */
static size_t still_names(int root_fd, const struct stat *status, const char **names, size_t count)
{
	size_t kept = 0;
	for (size_t i = 0; i < count; i++) {
		const char *base;
		struct stat there;
		naos_autoclose int dir_fd = naos_hardlink_dir(root_fd, names[i], &base);
		if (dir_fd >= 0 && fstatat(dir_fd, base, &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_ino == status->st_ino &&
		    there.st_dev == status->st_dev)
			names[kept++] = names[i];
	}
	return kept;
}

static int replace_group(struct worker *worker, const char *path, const char **names, size_t count, struct naos_error *err)
{
	const struct naos_replace *replace = worker->run->replace;
	const char *base;
	struct pending *pending = NULL;
	struct stat now, dir;
	bool current = false, resumed = false;
	naos_autodraft struct naos_draft draft = { .fd = -1 };
	naos_autoclose int root_fd = open(replace->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	naos_autoclose int dir_fd = root_fd < 0 ? -1 : naos_hardlink_dir(root_fd, names[0], &base);
	if (dir_fd < 0 || fstat(dir_fd, &dir) != 0)
		return naos_error_set_errno(err, errno, "cannot open the directory of %s", path);
	pending = new_pending(worker->run, path, path + strlen(path) - strlen(names[0]), base);
	if (!pending)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to replace a file");
	int rc = open_old(worker->run, dir_fd, base, &pending->file, &current, err);
	if (rc == 0 && !current) {
		count = still_names(root_fd, &pending->file.old.status, names, count);
		rc = count ? naos_names_resume(root_fd, names, count, &pending->file, &resumed, err) :
			     naos_error_set(err, NAOS_E_CHANGED, "%s was renamed meanwhile", pending->file.shown);
	}
	if (rc == 0 && !current && !resumed) {
		rc = make_draft(worker, dir_fd, pending, &draft, err);
		if (rc == 0 && (fstat(pending->file.fd, &now) != 0 || now.st_nlink != count))
			rc = naos_error_set(err, NAOS_E_BUSY,
					    "%s has %llu names, of which %zu lie in the tree: to replace these would part them from the "
					    "others; copy it in the place of its names here, or remove the others",
					    pending->file.shown, (unsigned long long)now.st_nlink, count);
		if (rc == 0)
			rc = naos_names_replace(root_fd, names, count, &pending->file, &draft, replace->plain, err);
	}
	naos_draft_drop(&draft);
	const struct timespec times[2] = { dir.st_atim, dir.st_mtim };
	if (replace->plain && !current)
		(void)!futimens(dir_fd, times);
	if (rc == 0 && current)
		count_current(worker->run, &pending->file, pending->below_root);
	else if (rc == 0)
		naos_tally_file(replace->tally, pending->bytes);
	free_pending(pending);
	return rc;
}

static int compare_links(const void *left, const void *right)
{
	const struct naos_hardlink *a = left, *b = right;
	int order = strcmp(a->first, b->first);
	if (order)
		return order;
	/* the first name first */
	bool first_a = strcmp(a->below_root, a->first) == 0, first_b = strcmp(b->below_root, b->first) == 0;
	return first_a != first_b ? (first_a ? -1 : 1) : strcmp(a->below_root, b->below_root);
}

static int compare_names(const void *left, const void *right)
{
	return strcmp(*(char *const *)left, *(char *const *)right);
}

static bool is_wanted(const struct run *run, const char *below_root)
{
	return run->pass == 1 ||
	       (run->wanted.count && bsearch(&below_root, run->wanted.list, run->wanted.count, sizeof(*run->wanted.list), compare_names));
}

static void replace_groups(struct run *run)
{
	struct naos_hardlinks *links = &run->links;
	if (links->count)
		qsort(links->list, links->count, sizeof(*links->list), compare_links);
	for (size_t first = 0, next; first < links->count && !naos_tally_stopped(run->replace->tally); first = next) {
		const char *path = links->list[first].path, *below_root = links->list[first].below_root;
		for (next = first; next < links->count && strcmp(links->list[next].first, links->list[first].first) == 0; next++)
			;
		struct naos_error err;
		bool wanted = false;
		naos_autofree const char **names = calloc(next - first, sizeof(*names));
		for (size_t i = first; i < next; i++) {
			if (names)
				names[i - first] = links->list[i].below_root;
			wanted |= is_wanted(run, links->list[i].below_root);
		}
		if (!wanted)
			continue;
		int rc = names ? replace_group(&run->workers[0], path, names, next - first, &err) :
				 naos_error_set(&err, NAOS_E_NOMEM, "no memory for the names of a file");
		if (rc != 0)
			settle_result(run, path, below_root, rc, &err);
	}
}

/* --- the visitor -------------------------------------------------------------------------------------------------------- */

static int enter(void *context, struct naos_walk_dir *dir)
{
	struct run *run = context;
	const char *below_root = dir->path + dir->root_bytes;
	struct naos_error err;
	atomic_init(&dir->touched, false);
	if (run->replace->skip && strcmp(below_root + strspn(below_root, "/"), run->replace->skip) == 0)
		return -1;
	/* of an interrupted run; among them may be old files that were replaced and not removed yet */
	if (run->pass == 1 && naos_leftovers_remove(dir->fd, NULL, NULL, NULL, &err) != 0)
		naos_tally_failure(run->replace->tally, dir->path, &err);
	return 0;
}

static void leave(void *context, struct naos_walk_dir *dir)
{
	struct run *run = context;
	const struct timespec times[2] = { dir->status.st_atim, dir->status.st_mtim };
	if (run->replace->plain && atomic_load(&dir->touched))
		(void)!futimens(dir->fd, times);
}

static bool list(void *context, struct naos_walk_item *item)
{
	struct run *run = context;
	const struct naos_replace *replace = run->replace;
	const char *first;
	struct naos_error err;
	if (!S_ISREG(item->status.st_mode))
		return false;
	if (naos_io_is_temporary(item->name)) {
		if (run->pass == 1)
			naos_tally_notice(replace->tally, item->path, NAOS_NOTICE_LEFTOVER);
		return false;
	}
	if (item->status.st_nlink == 1)
		return naos_walk_in_shard(item->below_root, replace->shard_index, replace->shard_count) &&
		       is_wanted(run, item->below_root);
	int rc = naos_hardlinks_meet(&run->links, &item->status, item->below_root, &first, &err);
	if (rc == 0 && naos_walk_in_shard(first, replace->shard_index, replace->shard_count))
		rc = naos_hardlinks_add(&run->links, first, item->below_root, item->path, &err);
	if (rc != 0)
		naos_tally_failure(replace->tally, item->path, &err);
	return false;
}

static void work(void *context, unsigned worker, struct naos_walk_item *items, size_t count)
{
	struct run *run = context;
	for (size_t i = 0; i < count && !naos_tally_stopped(run->replace->tally); i++) {
		struct naos_error err;
		int rc = replace_one(&run->workers[worker], &items[i], &err);
		if (rc != 0)
			settle_result(run, items[i].path, items[i].below_root, rc, &err);
	}
}

static void settle(void *context, unsigned worker)
{
	struct run *run = context;
	naos_publish_all(&run->workers[worker].batch);
}

/* --- passes ------------------------------------------------------------------------------------------------------------- */

static void one_pass(struct run *run)
{
	struct naos_walk_visitor visitor = {
		.context = run, .jobs = run->replace->jobs, .in_use = true, .enter = enter, .leave = leave, .list = list, .work = work,
		.settle = settle,
	};
	run->visitor = &visitor;
	naos_walk(run->replace->root, &visitor, run->replace->tally);
	replace_groups(run);
	naos_hardlinks_free(&run->links);
}

/* The files of the last pass that were in use become those of the next. */
static bool next_pass(struct run *run)
{
	const struct timespec pause = { .tv_sec = PAUSE_S };
	free_names(&run->wanted);
	run->wanted = run->later;
	run->later = (struct names){ .count = 0 };
	run->pass++;
	if (run->wanted.count == 0 || naos_tally_stopped(run->replace->tally))
		return false;
	qsort(run->wanted.list, run->wanted.count, sizeof(*run->wanted.list), compare_names);
	(void)nanosleep(&pause, NULL);
	return true;
}

/* When all of the tree is done, what is marked has all its names. */
static void unmark(struct run *run)
{
	const struct naos_replace *replace = run->replace;
	naos_autoclose int root_fd = open(replace->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root_fd < 0 || replace->shard_count > 1 || naos_tally_result(replace->tally, NULL) != 0)
		return;
	for (size_t i = 0; i < run->marked.count; i++)
		naos_names_unmark(root_fd, run->marked.list[i]);
}

int naos_replace_tree(const struct naos_replace *replace, struct naos_error *err)
{
	struct run run = { .replace = replace, .pass = 1 };
	run.workers = calloc(replace->jobs, sizeof(*run.workers));
	if (!run.workers)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for %u workers", replace->jobs);
	for (unsigned i = 0; i < replace->jobs; i++) {
		run.workers[i].run = &run;
		run.workers[i].batch.done = published;
		run.workers[i].batch.context = &run.workers[i];
	}
	(void)pthread_mutex_init(&run.lock, NULL);
	do {
		one_pass(&run);
	} while (next_pass(&run));
	for (unsigned i = 0; i < replace->jobs; i++)
		(void)naos_copy_buffer_free(run.workers[i].buffer);
	unmark(&run);
	free_names(&run.wanted);
	free_names(&run.marked);
	(void)pthread_mutex_destroy(&run.lock);
	free(run.workers);
	return 0;
}
