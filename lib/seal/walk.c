/* The walk: a listing thread, a bounded queue, workers.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>

#include "base/io.h"

#define QUEUE_ITEMS 1024
#define MAX_LIVE_DIRS 256 /* beyond those on the way down */

struct walk {
	const struct naos_walk_visitor *visitor;
	struct naos_tally *tally;
	pthread_mutex_t lock;
	pthread_cond_t filled, drained;
	struct naos_walk_item queue[QUEUE_ITEMS];
	size_t first, used;
	bool ended;
	unsigned idle;         /* workers that have nothing to do and nothing put off */
	atomic_uint live_dirs; /* each holds up to two descriptors */
	unsigned depth;
};

struct worker {
	struct walk *walk;
	unsigned number;
	pthread_t thread;
};

/* --- directories and items ---------------------------------------------------------------------------------------------- */

struct naos_walk_dir *naos_walk_hold(struct naos_walk_dir *dir)
{
	atomic_fetch_add(&dir->holders, 1);
	return dir;
}

void naos_walk_release(const struct naos_walk_visitor *visitor, struct naos_walk_dir *dir)
{
	while (dir && atomic_fetch_sub(&dir->holders, 1) == 1) {
		struct naos_walk_dir *parent = dir->parent;
		if (dir->entered)
			visitor->leave(visitor->context, dir);
		atomic_fetch_sub(dir->live, 1);
		naos_close_descriptor(&dir->fd);
		naos_close_descriptor(&dir->target_fd);
		free(dir->path);
		free(dir);
		dir = parent;
	}
}

static void free_item(const struct naos_walk_visitor *visitor, struct naos_walk_item *item)
{
	free(item->path);
	naos_walk_release(visitor, item->dir);
}

/* Takes path. */
static struct naos_walk_dir *new_dir(struct walk *walk, struct naos_walk_dir *parent, int fd, char *path, size_t root_bytes)
{
	struct naos_walk_dir *dir = calloc(1, sizeof(*dir));
	if (!dir)
		return NULL;
	*dir = (struct naos_walk_dir){ .parent = parent, .fd = fd, .target_fd = -1, .path = path, .root_bytes = root_bytes,
				       .live = &walk->live_dirs };
	atomic_init(&dir->holders, 1);
	atomic_fetch_add(dir->live, 1);
	if (parent)
		(void)naos_walk_hold(parent);
	return dir;
}

static char *join(const struct naos_walk_dir *dir, const char *name)
{
	char *path;
	const char *slash = dir->path[0] && dir->path[strlen(dir->path) - 1] != '/' ? "/" : "";
	return asprintf(&path, "%s%s%s", dir->path, slash, name) < 0 ? NULL : path;
}

static void report(struct walk *walk, const char *path, int errno_value, const char *what)
{
	char printable[512];
	struct naos_error err;
	(void)naos_error_set_errno(&err, errno_value, "cannot %s %s", what, naos_io_printable(path, printable, sizeof(printable)));
	naos_tally_failure(walk->tally, path, &err);
}

/* --- the queue ---------------------------------------------------------------------------------------------------------- */

static void push(struct walk *walk, struct naos_walk_item *item)
{
	(void)pthread_mutex_lock(&walk->lock);
	while (walk->used == QUEUE_ITEMS)
		(void)pthread_cond_wait(&walk->drained, &walk->lock);
	walk->queue[(walk->first + walk->used++) % QUEUE_ITEMS] = *item;
	(void)pthread_cond_signal(&walk->filled);
	(void)pthread_mutex_unlock(&walk->lock);
}

/* Holds the listing back while many directories wait for their last file. */
static void wait_for_dirs(struct walk *walk)
{
	(void)pthread_mutex_lock(&walk->lock);
	while (atomic_load(&walk->live_dirs) > MAX_LIVE_DIRS + walk->depth && !(walk->used == 0 && walk->idle == walk->visitor->jobs))
		(void)pthread_cond_wait(&walk->drained, &walk->lock);
	(void)pthread_mutex_unlock(&walk->lock);
}

/* A fair share of what waits, so that all workers stay busy to the end. */
static size_t pop(struct walk *walk, struct naos_walk_item *items)
{
	size_t share = walk->used / (2 * walk->visitor->jobs) + 1, count = share < NAOS_WALK_BATCH ? share : NAOS_WALK_BATCH;
	for (size_t i = 0; i < count; i++) {
		items[i] = walk->queue[walk->first];
		walk->first = (walk->first + 1) % QUEUE_ITEMS;
	}
	walk->used -= count;
	(void)pthread_cond_broadcast(&walk->drained);
	return count;
}

static void *work(void *context)
{
	struct worker *worker = context;
	struct walk *walk = worker->walk;
	const struct naos_walk_visitor *visitor = walk->visitor;
	struct naos_walk_item items[NAOS_WALK_BATCH];
	bool settled = true;
	(void)pthread_mutex_lock(&walk->lock);
	for (;;) {
		size_t count = walk->used ? pop(walk, items) : 0;
		if (count == 0 && settled) {
			if (walk->ended)
				break;
			walk->idle++;
			(void)pthread_cond_broadcast(&walk->drained);
			(void)pthread_cond_wait(&walk->filled, &walk->lock);
			walk->idle--;
			continue;
		}
		(void)pthread_mutex_unlock(&walk->lock);
		if (count == 0)
			visitor->settle(visitor->context, worker->number);
		else if (!naos_tally_stopped(walk->tally))
			visitor->work(visitor->context, worker->number, items, count);
		for (size_t i = 0; i < count; i++)
			free_item(visitor, &items[i]);
		settled = count == 0;
		(void)pthread_mutex_lock(&walk->lock);
		(void)pthread_cond_broadcast(&walk->drained); /* directories may have ended */
	}
	(void)pthread_mutex_unlock(&walk->lock);
	return NULL;
}

/* --- listing ------------------------------------------------------------------------------------------------------------ */

static int compare_names(const void *left, const void *right)
{
	return strcmp(*(char *const *)left, *(char *const *)right);
}

struct names {
	char **list;
	size_t count, room;
};

static void free_names(struct names *names)
{
	for (size_t i = 0; i < names->count; i++)
		free(names->list[i]);
	free(names->list);
}

static int add_name(struct names *names, const char *name)
{
	if (names->count == names->room) {
		size_t room = names->room ? 2 * names->room : 64;
		char **list = realloc(names->list, room * sizeof(*list));
		if (!list)
			return ENOMEM;
		names->list = list;
		names->room = room;
	}
	names->list[names->count] = strdup(name);
	return names->list[names->count++] ? 0 : (names->count--, ENOMEM);
}

/* 0 or an errno value. */
static int read_names(int dir_fd, struct names *ret)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	int failed = dir ? 0 : errno;
	if (!dir) {
		naos_close_descriptor(&fd);
		return failed;
	}
	while (failed == 0) {
		errno = 0;
		const struct dirent *entry = readdir(dir);
		if (!entry) {
			failed = errno;
			break;
		}
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			failed = add_name(ret, entry->d_name);
	}
	(void)closedir(dir);
	if (failed == 0 && ret->count)
		qsort(ret->list, ret->count, sizeof(*ret->list), compare_names);
	return failed;
}

static void list_dir(struct walk *walk, struct naos_walk_dir *dir);

/* Takes path. */
static void list_subdir(struct walk *walk, struct naos_walk_dir *dir, const char *name, char *path)
{
	wait_for_dirs(walk);
	int fd = openat(dir->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct naos_walk_dir *sub = fd < 0 ? NULL : new_dir(walk, dir, fd, path, dir->root_bytes);
	if (!sub || fstat(fd, &sub->status) != 0) {
		if (fd >= 0 || errno != ENOENT || !walk->visitor->in_use)
			report(walk, path, fd < 0 || sub ? errno : ENOMEM, "open the directory");
		if (!sub) {
			naos_close_descriptor(&fd);
			free(path);
			return;
		}
	} else if (walk->depth >= NAOS_WALK_MAX_DEPTH) {
		report(walk, path, ELOOP, "go deeper than 2000 levels into");
	} else if (walk->visitor->enter(walk->visitor->context, sub) == 0) {
		sub->entered = true;
		walk->depth++;
		list_dir(walk, sub);
		walk->depth--;
	}
	naos_walk_release(walk->visitor, sub);
}

static void list_entry(struct walk *walk, struct naos_walk_dir *dir, const char *name)
{
	struct naos_walk_item item = { .dir = dir, .path = join(dir, name) };
	if (!item.path || fstatat(dir->fd, name, &item.status, AT_SYMLINK_NOFOLLOW) != 0) {
		if (!item.path || errno != ENOENT || !walk->visitor->in_use)
			report(walk, item.path ? item.path : name, item.path ? errno : ENOMEM, "read");
		free(item.path);
		return;
	}
	if (S_ISDIR(item.status.st_mode)) {
		list_subdir(walk, dir, name, item.path);
		return;
	}
	item.name = item.path + strlen(item.path) - strlen(name);
	item.below_root = item.path + dir->root_bytes;
	item.below_root += strspn(item.below_root, "/");
	(void)naos_walk_hold(dir);
	if (walk->visitor->list && !walk->visitor->list(walk->visitor->context, &item))
		free_item(walk->visitor, &item);
	else
		push(walk, &item);
}

static void list_dir(struct walk *walk, struct naos_walk_dir *dir)
{
	naos_cleanup(free_names) struct names names = { 0 };
	int failed = read_names(dir->fd, &names);
	if (failed)
		report(walk, dir->path, failed, "list the directory");
	for (size_t i = 0; i < names.count && !naos_tally_stopped(walk->tally); i++)
		list_entry(walk, dir, names.list[i]);
}

/* The operand itself: a directory to list, or one item in a nameless directory. */
static void list_operand(struct walk *walk, const char *operand)
{
	struct stat status;
	char *path = strdup(operand);
	if (!path || stat(operand, &status) != 0) {
		report(walk, operand, path ? errno : ENOMEM, "open");
		free(path);
		return;
	}
	bool directory = S_ISDIR(status.st_mode);
	int fd = directory ? open(operand, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : AT_FDCWD;
	if (directory && fd < 0) {
		report(walk, operand, errno, "open the directory");
		free(path);
		return;
	}
	struct naos_walk_dir *dir = new_dir(walk, NULL, fd, path, strlen(path));
	if (!dir) {
		report(walk, operand, ENOMEM, "open");
		naos_close_descriptor(&fd);
		free(path);
		return;
	}
	dir->status = status;
	if (directory) {
		dir->entered = walk->visitor->enter(walk->visitor->context, dir) == 0;
		if (dir->entered)
			list_dir(walk, dir);
	} else {
		struct naos_walk_item item = { .dir = naos_walk_hold(dir), .path = strdup(operand), .status = status };
		const char *slash = item.path ? strrchr(item.path, '/') : NULL;
		item.name = item.path;
		item.below_root = slash ? slash + 1 : item.path;
		if (!item.path || (walk->visitor->list && !walk->visitor->list(walk->visitor->context, &item)))
			free_item(walk->visitor, &item);
		else
			push(walk, &item);
	}
	naos_walk_release(walk->visitor, dir);
}

/* --- the whole ---------------------------------------------------------------------------------------------------------- */

/* Deep trees and put-off files hold descriptors. */
static void allow_descriptors(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

void naos_walk(const char *operand, const struct naos_walk_visitor *visitor, struct naos_tally *tally)
{
	struct walk walk = { .visitor = visitor, .tally = tally };
	struct worker workers[NAOS_MAX_JOBS];
	unsigned started = 0;
	(void)pthread_mutex_init(&walk.lock, NULL);
	(void)pthread_cond_init(&walk.filled, NULL);
	(void)pthread_cond_init(&walk.drained, NULL);
	allow_descriptors();
	for (; started < visitor->jobs; started++) {
		workers[started] = (struct worker){ .walk = &walk, .number = started };
		if (pthread_create(&workers[started].thread, NULL, work, &workers[started]) != 0)
			break;
	}
	walk.idle = visitor->jobs - started; /* a missing worker is idle for ever */
	if (started == 0)
		report(&walk, operand, EAGAIN, "start a thread for");
	else
		list_operand(&walk, operand);
	(void)pthread_mutex_lock(&walk.lock);
	walk.ended = true;
	(void)pthread_cond_broadcast(&walk.filled);
	(void)pthread_mutex_unlock(&walk.lock);
	for (unsigned i = 0; i < started; i++)
		(void)pthread_join(workers[i].thread, NULL);
	(void)pthread_cond_destroy(&walk.drained);
	(void)pthread_cond_destroy(&walk.filled);
	(void)pthread_mutex_destroy(&walk.lock);
}

bool naos_walk_in_shard(const char *below_root, unsigned index, unsigned count)
{
	uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a, 64 bits */
	for (const unsigned char *at = (const unsigned char *)below_root; *at; at++)
		hash = (hash ^ *at) * 0x100000001b3u;
	hash ^= hash >> 32; /* its low bits alone mix poorly */
	return hash % count == index - 1;
}

unsigned naos_walk_default_jobs(void)
{
	cpu_set_t set;
	int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
	return count < 1 ? 1 : count > NAOS_MAX_JOBS ? NAOS_MAX_JOBS : (unsigned)count;
}
