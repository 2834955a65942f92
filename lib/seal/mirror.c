/* A second tree in the shape of a walked one.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/mirror.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/io.h"
#include "seal/metadata.h"
#include "seal/publish.h"

static void fail(struct naos_mirror *mirror, const char *path, const struct naos_error *err)
{
	naos_tally_failure(mirror->tally, path, err);
}

/* --- directories -------------------------------------------------------------------------------------------------------- */

static const char *below_root(const struct naos_walk_dir *dir)
{
	const char *below = dir->path + dir->root_bytes;
	return below + strspn(below, "/");
}

/* "TARGET/a/b", printable. */
static void show_target(const struct naos_mirror *mirror, const char *below, char *shown, size_t bytes)
{
	naos_autofree char *path = NULL;
	const char *target = mirror->target;
	bool slash = below[0] && target[0] && target[strlen(target) - 1] != '/';
	if (asprintf(&path, "%s%s%s", target, slash ? "/" : "", below) < 0)
		path = NULL;
	(void)naos_io_printable(path ? path : target, shown, bytes);
}

static void found_leftover(void *context, const char *base)
{
	struct naos_mirror *mirror = context;
	naos_tally_notice(mirror->tally, base, NAOS_NOTICE_REMOVED);
}

/* Makes or opens the directory; *ret_fd. */
static int make_dir(struct naos_mirror *mirror, const struct naos_walk_dir *dir, int *ret_fd, struct naos_error *err)
{
	bool root = !dir->parent;
	int parent = root ? AT_FDCWD : dir->parent->target_fd;
	const char *name = root ? mirror->target : strrchr(dir->path, '/') + 1;
	char shown[1024];
	struct stat status;
	show_target(mirror, below_root(dir), shown, sizeof(shown));
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
	int rc = made ? 0 : naos_leftovers_remove(fd, NULL, found_leftover, mirror, err);
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

int naos_mirror_enter(struct naos_mirror *mirror, struct naos_walk_dir *dir)
{
	struct naos_error err;
	int rc = make_dir(mirror, dir, &dir->target_fd, &err);
	if (rc == 0 && !dir->parent) {
		mirror->root_fd = fcntl(dir->target_fd, F_DUPFD_CLOEXEC, 3);
		if (mirror->root_fd < 0)
			rc = naos_error_set_errno(&err, errno, "cannot open the target directory twice");
		else if (is_inside(mirror->root_fd, &dir->status))
			rc = naos_error_set(&err, NAOS_E_USAGE, "the target lies inside the source: choose another place for it");
	}
	if (rc != 0)
		fail(mirror, dir->path, &err);
	return rc;
}

void naos_mirror_leave(struct naos_mirror *mirror, struct naos_walk_dir *dir)
{
	struct naos_metadata_loss loss;
	struct naos_error err;
	char shown[1024];
	if (naos_tally_stopped(mirror->tally))
		return;
	show_target(mirror, below_root(dir), shown, sizeof(shown));
	/* other shards may still need to write here */
	mode_t mode_or = mirror->shard_count > 1 ? S_IRWXU : 0;
	if (naos_metadata_copy(dir->fd, &dir->status, mode_or, dir->target_fd, shown, &loss, &err) != 0)
		fail(mirror, dir->path, &err);
	else if (loss.attributes)
		naos_tally_notice(mirror->tally, dir->path, NAOS_NOTICE_ATTRIBUTES);
	if (mirror->shard_index == 1)
		naos_tally_other(mirror->tally);
}

/* --- items -------------------------------------------------------------------------------------------------------------- */

static void put_link_off(struct naos_mirror *mirror, const struct naos_walk_item *item, const char *first)
{
	struct naos_error err;
	if (naos_hardlinks_add(&mirror->links, first, item->below_root, item->path, &err) != 0)
		fail(mirror, item->path, &err);
}

bool naos_mirror_list(struct naos_mirror *mirror, const struct naos_walk_item *item)
{
	const char *first = item->below_root;
	struct naos_error err;
	if (mirror->root_fd < 0)
		return true; /* one file */
	if (S_ISREG(item->status.st_mode) && item->status.st_nlink > 1 &&
	    naos_hardlinks_meet(&mirror->links, &item->status, item->below_root, &first, &err) != 0) {
		fail(mirror, item->path, &err);
		return false;
	}
	if (!naos_walk_in_shard(first, mirror->shard_index, mirror->shard_count))
		return false;
	if (strcmp(first, item->below_root) == 0)
		return true;
	put_link_off(mirror, item, first);
	return false;
}

void naos_mirror_place(const struct naos_mirror *mirror, const struct naos_walk_item *item, struct naos_place *ret)
{
	bool single = mirror->root_fd < 0;
	*ret = (struct naos_place){ .dir_fd = single ? AT_FDCWD : item->dir->target_fd,
				    .base = single ? mirror->target : item->name };
	show_target(mirror, single ? "" : item->below_root, ret->shown, sizeof(ret->shown));
	ret->exists = fstatat(ret->dir_fd, ret->base, &ret->status, AT_SYMLINK_NOFOLLOW) == 0;
}

/* --- the end ------------------------------------------------------------------------------------------------------------ */

void naos_mirror_links(struct naos_mirror *mirror)
{
	for (size_t i = 0; i < mirror->links.count && !naos_tally_stopped(mirror->tally); i++) {
		const struct naos_hardlink *link = &mirror->links.list[i];
		struct naos_error err;
		bool current;
		int rc = naos_hardlink_make(mirror->root_fd, link, mirror->replace, &current, &err);
		if (rc == NAOS_E_NOTFOUND && mirror->leaves_out)
			continue; /* its first name was left out or failed, which is told */
		if (rc == 0 && mirror->linked)
			rc = mirror->linked(mirror->context, link, &err);
		if (rc != 0)
			fail(mirror, link->path, &err);
		else
			(current ? naos_tally_current : naos_tally_other)(mirror->tally);
	}
}

int naos_mirror_sync(const struct naos_mirror *mirror, struct naos_error *err)
{
	char shown[1024];
	if (mirror->root_fd < 0)
		return naos_io_sync_parent(AT_FDCWD, mirror->target, err);
	show_target(mirror, "", shown, sizeof(shown));
	int rc = naos_publish_sync(mirror->root_fd, shown, err);
	return rc ? rc : naos_io_sync_parent(AT_FDCWD, mirror->target, err);
}

int naos_mirror_sweep(struct naos_mirror *mirror, struct naos_error *err)
{
	const char *target = mirror->target;
	const char *slash = strrchr(target, '/');
	naos_autofree char *dir = slash ? strndup(target, (size_t)(slash - target) + 1) : strdup(".");
	naos_autoclose int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	if (fd < 0)
		return 0; /* making the file will say why */
	return naos_leftovers_remove(fd, slash ? slash + 1 : target, found_leftover, mirror, err);
}

void naos_mirror_free(struct naos_mirror *mirror)
{
	naos_hardlinks_free(&mirror->links);
	naos_close_descriptor(&mirror->root_fd);
}
