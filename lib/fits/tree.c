/* SPDX-License-Identifier: Apache-2.0 */
#include "fits/tree.h"

#include <fcntl.h>
#include <string.h>
#include <strings.h>

#include "base/io.h"
#include "fits/container1.h"
#include "fits/legacy.h"

/* Between a draft and its name. */
struct pending {
	struct naos_walk_dir *dir; /* held: it gets its times when all in it have their names */
	char *name;
	void *owner;
};

struct naos_frame_walk {
	const struct naos_frame_tree *tree;
	struct naos_tally *tally;
	struct naos_walk_visitor visitor;
	struct naos_mirror mirror;
	struct naos_publish_batch *batches; /* one a worker */
	bool single;
	atomic_uint active; /* files that are worked on */
};

/* --- kinds of files ------------------------------------------------------------------------------------------------------ */

enum naos_fits_kind naos_fits_kind(int fd)
{
	uint8_t head[NAOS_FRAME_HEAD_BYTES];
	enum naos_legacy_mode mode;
	size_t got = 0, bytes;
	if (naos_io_pread(fd, head, sizeof(head), 0, &got, "", NULL) != 0 || got < 9 || memcmp(head, "SIMPLE  =", 9) != 0)
		return NAOS_FITS_OTHER;
	if (got == sizeof(head) && (naos_container_probe(head, &bytes, NULL) == 0 || naos_container1_probe(head)))
		return NAOS_FITS_FRAME;
	return naos_legacy_probe(fd, &mode) ? NAOS_FITS_LEGACY : NAOS_FITS_PLAIN;
}

bool naos_fits_named(const char *name)
{
	static const char *const endings[] = { ".fits", ".fit", ".fts" }, *const wrappings[] = { "", ".fz", ".gz", ".bz2", ".Z" };
	size_t length = strlen(name);
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(endings); i++)
		for (unsigned j = 0; j < NAOS_ARRAY_LENGTH(wrappings); j++) {
			size_t ending = strlen(endings[i]), wrapping = strlen(wrappings[j]);
			if (length > ending + wrapping && strcasecmp(name + length - wrapping, wrappings[j]) == 0 &&
			    strncasecmp(name + length - wrapping - ending, endings[i], ending) == 0)
				return true;
		}
	return false;
}

/* --- what the walk calls ------------------------------------------------------------------------------------------------- */

static int enter(void *context, struct naos_walk_dir *dir)
{
	struct naos_frame_walk *walk = context;
	return walk->tree->target ? naos_mirror_enter(&walk->mirror, dir) : 0;
}

static void leave(void *context, struct naos_walk_dir *dir)
{
	struct naos_frame_walk *walk = context;
	if (walk->tree->target)
		naos_mirror_leave(&walk->mirror, dir);
}

static bool list(void *context, struct naos_walk_item *item)
{
	struct naos_frame_walk *walk = context;
	const struct naos_frame_tree *tree = walk->tree;
	const char *first = item->below_root;
	struct naos_error err;
	if (item->dir->entered && naos_io_is_temporary(item->name)) {
		naos_tally_notice(walk->tally, item->path, NAOS_NOTICE_LEFTOVER);
		return false;
	}
	if (tree->target)
		return naos_mirror_list(&walk->mirror, item);
	if (S_ISREG(item->status.st_mode) && item->status.st_nlink > 1 &&
	    naos_hardlinks_meet(&walk->mirror.links, &item->status, item->below_root, &first, &err) != 0) {
		naos_tally_failure(walk->tally, item->path, &err);
		return false;
	}
	return strcmp(first, item->below_root) == 0 && naos_walk_in_shard(first, tree->shard_index, tree->shard_count);
}

/* Links, pipes and devices: in the target as they are, else left out. */
static void take_special(struct naos_frame_walk *walk, const struct naos_walk_item *item)
{
	struct naos_place place;
	struct naos_error err;
	if (walk->tree->target) {
		naos_mirror_place(&walk->mirror, item, &place);
		if (naos_mirror_special(&walk->mirror, item, &place, NULL, &err) != 0)
			naos_tally_failure(walk->tally, item->path, &err);
	} else if (S_ISLNK(item->status.st_mode)) {
		naos_tally_notice(walk->tally, item->path, NAOS_NOTICE_LINK);
	}
}

/* False: it failed, which is reported. */
static bool look_at(struct naos_frame_walk *walk, const struct naos_walk_item *item, struct naos_frame_file *file)
{
	struct naos_error err = NAOS_ERROR_INIT;
	bool single = !item->dir->entered; /* the operand itself may be a symbolic link */
	int rc = 0;
	file->item = item;
	(void)naos_io_printable(item->path, file->shown, sizeof(file->shown));
	file->fd = openat(item->dir->fd, item->name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (single ? 0 : O_NOFOLLOW));
	if (file->fd < 0 || fstat(file->fd, &file->status) != 0)
		rc = naos_error_set_errno(&err, errno, "cannot open %s", file->shown);
	else if (!S_ISREG(file->status.st_mode))
		rc = naos_error_set(&err, NAOS_E_USAGE, "%s is no regular file", file->shown);
	if (rc == 0 && walk->tree->target) {
		naos_mirror_place(&walk->mirror, item, &file->place);
		if (file->place.exists && file->place.status.st_dev == file->status.st_dev &&
		    file->place.status.st_ino == file->status.st_ino)
			rc = naos_error_set(&err, NAOS_E_USAGE, "%s and %s are the same file", file->shown, file->place.shown);
		else if (file->place.exists && S_ISDIR(file->place.status.st_mode))
			rc = naos_error_set(&err, NAOS_E_EXISTS, "%s is a directory", file->place.shown);
	}
	if (rc != 0) {
		naos_tally_failure(walk->tally, item->path, &err);
		naos_close_descriptor(&file->fd);
		return false;
	}
	file->kind = naos_fits_kind(file->fd);
	return true;
}

static void work(void *context, unsigned worker, struct naos_walk_item *items, size_t count)
{
	struct naos_frame_walk *walk = context;
	naos_autofree struct naos_frame_file *files = calloc(count, sizeof(*files));
	size_t used = 0;
	if (!files) {
		struct naos_error err;
		(void)naos_error_set(&err, NAOS_E_NOMEM, "no memory for a batch of files");
		naos_tally_failure(walk->tally, items[0].path, &err);
		return;
	}
	for (size_t i = 0; i < count && !naos_tally_stopped(walk->tally); i++) {
		if (S_ISREG(items[i].status.st_mode) || walk->single)
			used += look_at(walk, &items[i], &files[used]);
		else
			take_special(walk, &items[i]);
	}
	if (used)
		walk->tree->files(walk->tree->context, walk, worker, files, used);
	for (size_t i = 0; i < used; i++)
		naos_close_descriptor(&files[i].fd);
}

/* --- publication --------------------------------------------------------------------------------------------------------- */

static void published(void *context, void *owner, const struct naos_error *failure)
{
	struct naos_frame_walk *walk = context;
	struct pending *pending = owner;
	walk->tree->published(walk->tree->context, pending->owner, failure);
	naos_walk_release(&walk->visitor, pending->dir);
	free(pending->name);
	free(pending);
}

void naos_frame_tree_publish(struct naos_frame_walk *walk, unsigned worker, struct naos_frame_file *file, struct naos_draft *draft,
			     void *owner, uint64_t bytes)
{
	struct pending *pending = calloc(1, sizeof(*pending));
	char *name = strdup(draft->name);
	if (!pending || !name) {
		struct naos_error err;
		(void)naos_error_set(&err, NAOS_E_NOMEM, "no memory to publish %s", file->place.shown);
		free(pending);
		free(name);
		naos_draft_drop(draft);
		walk->tree->published(walk->tree->context, owner, &err);
		return;
	}
	*pending = (struct pending){ .dir = naos_walk_hold(file->item->dir), .name = name, .owner = owner };
	draft->name = name;
	naos_publish_add(&walk->batches[worker], draft, pending, bytes);
}

static void settle(void *context, unsigned worker)
{
	struct naos_frame_walk *walk = context;
	naos_publish_all(&walk->batches[worker]);
}

/* --- the whole ----------------------------------------------------------------------------------------------------------- */

bool naos_frame_tree_single(const struct naos_frame_walk *walk)
{
	return walk->single;
}

unsigned naos_frame_tree_begin(struct naos_frame_walk *walk)
{
	unsigned active = atomic_fetch_add(&walk->active, 1) + 1, share = walk->tree->jobs / active;
	return share ? share : 1;
}

void naos_frame_tree_end(struct naos_frame_walk *walk)
{
	atomic_fetch_sub(&walk->active, 1);
}

static int check_operands(const struct naos_frame_tree *tree, const char *operand, bool *ret_single, struct naos_error *err)
{
	struct stat source, target;
	char shown[1024];
	if (stat(operand, &source) != 0)
		return naos_error_set_errno(err, errno, "cannot open %s", naos_io_printable(operand, shown, sizeof(shown)));
	*ret_single = !S_ISDIR(source.st_mode);
	if (*ret_single && tree->target && stat(tree->target, &target) == 0 && S_ISDIR(target.st_mode))
		return naos_error_set(err, NAOS_E_USAGE, "%s is a directory: name the file to be made in it",
				      naos_io_printable(tree->target, shown, sizeof(shown)));
	return 0;
}

static int finish(struct naos_frame_walk *walk, struct naos_error *err)
{
	const struct naos_tally *tally = walk->tally;
	naos_mirror_links(&walk->mirror);
	return tally->files || tally->others ? naos_mirror_sync(&walk->mirror, err) : 0;
}

int naos_frame_tree_visit(const struct naos_frame_tree *tree, const char *operand, struct naos_tally *tally, struct naos_error *err)
{
	struct naos_frame_walk walk = {
		.tree = tree,
		.tally = tally,
		.visitor = { .jobs = tree->jobs, .enter = enter, .leave = leave, .list = list, .work = work, .settle = settle },
		.mirror = {
			.target = tree->target, .replace = tree->replace, .leaves_out = true, .shard_index = tree->shard_index,
			.shard_count = tree->shard_count, .tally = tally, .root_fd = -1,
		},
	};
	int rc = check_operands(tree, operand, &walk.single, err);
	if (rc != 0)
		return rc;
	walk.visitor.context = &walk;
	walk.batches = calloc(tree->jobs, sizeof(*walk.batches));
	if (!walk.batches)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for %u workers", tree->jobs);
	for (unsigned i = 0; i < tree->jobs; i++) {
		walk.batches[i].done = published;
		walk.batches[i].context = &walk;
	}
	if (tree->target)
		rc = naos_mirror_sweep(&walk.mirror, err);
	if (rc == 0) {
		naos_walk(operand, &walk.visitor, tally);
		if (tree->target)
			rc = finish(&walk, err);
	}
	naos_mirror_free(&walk.mirror);
	free(walk.batches);
	return rc;
}
