/* Hard links of a tree.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/hardlink.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <string.h>

#include "base/io.h"

struct seen {
	dev_t device;
	ino_t inode;
	char *first;
};

static int compare(const void *left, const void *right)
{
	const struct seen *a = left, *b = right;
	if (a->device != b->device)
		return a->device < b->device ? -1 : 1;
	return a->inode < b->inode ? -1 : a->inode > b->inode;
}

static void free_seen(void *seen)
{
	free(((struct seen *)seen)->first);
	free(seen);
}

int naos_hardlinks_meet(struct naos_hardlinks *links, const struct stat *status, const char *below_root, const char **ret_first,
			struct naos_error *err)
{
	struct seen key = { .device = status->st_dev, .inode = status->st_ino }, **found = tfind(&key, &links->seen, compare);
	if (!found) {
		struct seen *seen = malloc(sizeof(*seen));
		char *first = strdup(below_root);
		if (seen && first) {
			*seen = (struct seen){ .device = status->st_dev, .inode = status->st_ino, .first = first };
			found = tsearch(seen, &links->seen, compare);
		}
		if (!found) {
			free(seen);
			free(first);
			return naos_error_set(err, NAOS_E_NOMEM, "no memory for the hard links of the tree");
		}
	}
	*ret_first = (*found)->first;
	return 0;
}

int naos_hardlinks_add(struct naos_hardlinks *links, const char *first, const char *below_root, const char *path,
		       struct naos_error *err)
{
	if (links->count == links->room) {
		size_t room = links->room ? 2 * links->room : 64;
		struct naos_hardlink *list = realloc(links->list, room * sizeof(*list));
		if (!list)
			return naos_error_set(err, NAOS_E_NOMEM, "no memory for the hard links of the tree");
		links->list = list;
		links->room = room;
	}
	struct naos_hardlink link = { .first = first, .below_root = strdup(below_root), .path = strdup(path) };
	links->list[links->count++] = link; /* counted, so that it is freed */
	return link.below_root && link.path ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for the hard links of the tree");
}

void naos_hardlinks_free(struct naos_hardlinks *links)
{
	for (size_t i = 0; i < links->count; i++) {
		free(links->list[i].below_root);
		free(links->list[i].path);
	}
	free(links->list);
	tdestroy(links->seen, free_seen);
	*links = (struct naos_hardlinks){ .count = 0 };
}

int naos_hardlink_dir(int root_fd, const char *below_root, const char **ret_base)
{
	naos_autoclose int fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	naos_autofree char *copy = strdup(below_root);
	if (fd < 0 || !copy)
		return -1;
	for (char *at = copy, *slash; (slash = strchr(at, '/')); at = slash + 1) {
		*slash = 0;
		int next = openat(fd, at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		naos_close_descriptor(&fd);
		fd = next;
		if (fd < 0)
			return -1;
	}
	const char *slash = strrchr(below_root, '/');
	*ret_base = slash ? slash + 1 : below_root;
	return naos_fd_steal(&fd);
}

int naos_hardlink_beside(int from_dir, const char *from, int to_dir, const char *to, char **ret_temporary)
{
	naos_autoclose int fd = -1;
	naos_autofree char *temporary = NULL;
	if (naos_io_temporary(to_dir, to, 0600, &fd, &temporary, NULL) != 0)
		return -1;
	if (unlinkat(to_dir, temporary, 0) != 0 || linkat(from_dir, from, to_dir, temporary, 0) != 0)
		return -1;
	*ret_temporary = naos_steal(temporary);
	return 0;
}

/* 0 or -1 with errno: a new name of its own beside the final one, then a rename. */
static int replace_by_link(int from_dir, const char *from, int to_dir, const char *to)
{
	naos_autofree char *temporary = NULL;
	if (naos_hardlink_beside(from_dir, from, to_dir, to, &temporary) != 0)
		return -1;
	if (renameat(to_dir, temporary, to_dir, to) == 0)
		return 0;
	int saved = errno;
	(void)unlinkat(to_dir, temporary, 0);
	errno = saved;
	return -1;
}

int naos_hardlink_make(int root_fd, const struct naos_hardlink *link, bool replace, bool *ret_current, struct naos_error *err)
{
	const char *from, *to;
	struct stat first, there, dir;
	naos_autoclose int from_dir = naos_hardlink_dir(root_fd, link->first, &from);
	naos_autoclose int to_dir = naos_hardlink_dir(root_fd, link->below_root, &to);
	if (from_dir < 0 || to_dir < 0 || fstatat(from_dir, from, &first, AT_SYMLINK_NOFOLLOW) != 0 || fstat(to_dir, &dir) != 0)
		return naos_error_set_errno(err, errno, "cannot link %s to %s", link->below_root, link->first);
	bool exists = fstatat(to_dir, to, &there, AT_SYMLINK_NOFOLLOW) == 0;
	*ret_current = exists && there.st_dev == first.st_dev && there.st_ino == first.st_ino;
	if (*ret_current)
		return 0;
	if (exists && (!replace || S_ISDIR(there.st_mode)))
		return naos_error_set(err, NAOS_E_EXISTS, "%s exists and is not the link that it should be", link->path);
	if ((dir.st_mode & S_IRWXU) != S_IRWXU)
		(void)!fchmod(to_dir, (dir.st_mode & 07777) | S_IRWXU);
	int rc = exists ? replace_by_link(from_dir, from, to_dir, to) : linkat(from_dir, from, to_dir, to, 0);
	int saved = errno;
	const struct timespec times[2] = { dir.st_atim, dir.st_mtim };
	(void)!futimens(to_dir, times);
	if ((dir.st_mode & S_IRWXU) != S_IRWXU)
		(void)!fchmod(to_dir, dir.st_mode & 07777);
	return rc == 0 ? 0 : naos_error_set_errno(err, saved, "cannot link %s to %s", link->below_root, link->first);
}
