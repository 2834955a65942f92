/* All names of a file, and the marks that tell an interrupted run.
 *
 * The old file gets user.naos.links: the name that is taken first.  The new one has user.naos.replaces until it has all names: device,
 * inode, size and time of change of the old one.  So whoever meets the old file again finds the new one, and knows whether the
 * old one is still what was copied.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cursor.h"
#include "base/io.h"
#include "seal/hardlink.h"

#define LINKS_ATTRIBUTE "user.naos.links"
#define REPLACES_ATTRIBUTE "user.naos.replaces"
#define REPLACES_BYTES 40

static void replaces_encode(const struct stat *old, uint8_t out[static REPLACES_BYTES])
{
	struct naos_cursor w = naos_cursor_writer(out, REPLACES_BYTES);
	naos_cursor_put_u64(&w, (uint64_t)old->st_dev);
	naos_cursor_put_u64(&w, (uint64_t)old->st_ino);
	naos_cursor_put_u64(&w, (uint64_t)old->st_size);
	naos_cursor_put_u64(&w, (uint64_t)old->st_mtim.tv_sec);
	naos_cursor_put_u64(&w, (uint64_t)old->st_mtim.tv_nsec);
}

/* A name in a directory that was opened for it, and that directory's times. */
struct place {
	int dir_fd;
	const char *base; /* in the name */
	struct stat dir;
};

static void close_place(struct place *place)
{
	naos_close_descriptor(&place->dir_fd);
}

static int open_place(int root_fd, const char *name, struct place *ret, struct naos_error *err)
{
	ret->dir_fd = naos_hardlink_dir(root_fd, name, &ret->base);
	if (ret->dir_fd < 0 || fstat(ret->dir_fd, &ret->dir) != 0)
		return naos_error_set_errno(err, errno, "cannot open the directory of %s", name);
	return 0;
}

static void keep_times(const struct place *place)
{
	const struct timespec times[2] = { place->dir.st_atim, place->dir.st_mtim };
	(void)!futimens(place->dir_fd, times);
}

/* One more name: a link to the new file, exchanged with the old one's. */
static int take_name(int root_fd, const char *name, const struct place *first, const struct naos_replaced *old, bool keep,
		     struct naos_error *err)
{
	naos_cleanup(close_place) struct place place = { .dir_fd = -1 };
	naos_autofree char *temporary = NULL;
	int rc = open_place(root_fd, name, &place, err);
	if (rc == 0 && naos_hardlink_beside(first->dir_fd, first->base, place.dir_fd, place.base, &temporary) != 0)
		rc = naos_error_set_errno(err, errno, "cannot make another name beside %s", name);
	if (rc != 0)
		return rc;
	rc = naos_replace_name(place.dir_fd, temporary, place.base, old, err);
	if (rc != 0)
		(void)unlinkat(place.dir_fd, temporary, 0);
	if (keep)
		keep_times(&place);
	return rc;
}

/* Names [from, count), then everything durable, then the mark goes. */
static int take_rest(int root_fd, const char *const *names, size_t from, size_t count, const struct place *first, int new_fd,
		     const struct naos_replace_file *file, bool keep, struct naos_error *err)
{
	struct stat left;
	for (size_t i = from; i < count; i++) {
		int rc = take_name(root_fd, names[i], first, &file->old, keep, err);
		if (rc != 0 && rc != NAOS_E_CHANGED) /* that name is not the old file's any more */
			return rc;
	}
	if (syncfs(new_fd) != 0)
		return naos_error_set_errno(err, errno, "cannot make the names of %s durable", names[0]);
	if (fstat(file->fd, &left) != 0 || left.st_nlink > 0) /* the marks stay: the next run completes it */
		return naos_error_set(err, NAOS_E_CHANGED, "%s got another name meanwhile", file->shown);
	(void)!fremovexattr(new_fd, REPLACES_ATTRIBUTE);
	return 0;
}

int naos_names_replace(int root_fd, const char *const *names, size_t count, const struct naos_replace_file *file,
		       struct naos_draft *draft, bool keep_directory_times, struct naos_error *err)
{
	uint8_t mark[REPLACES_BYTES];
	naos_cleanup(close_place) struct place first = { .dir_fd = -1 };
	replaces_encode(&file->old.status, mark);
	int rc = open_place(root_fd, names[0], &first, err);
	if (rc == 0 && (fsetxattr(draft->fd, REPLACES_ATTRIBUTE, mark, sizeof(mark), 0) != 0 ||
			fsetxattr(file->fd, LINKS_ATTRIBUTE, names[0], strlen(names[0]), 0) != 0))
		rc = naos_error_set(err, NAOS_E_BUSY,
				    "%s has several names, and the file system takes no extended attribute to take them over together: %s",
				    file->shown, strerror(errno));
	if (rc == 0 && (fsync(draft->fd) != 0 || fsync(file->fd) != 0))
		rc = naos_error_set_errno(err, errno, "cannot make %s durable", file->shown);
	if (rc == 0)
		rc = naos_replace_name(first.dir_fd, draft->temporary, first.base, &file->old, err);
	if (rc == 0)
		rc = take_rest(root_fd, names, 1, count, &first, draft->fd, file, keep_directory_times, err);
	else
		(void)!fremovexattr(file->fd, LINKS_ATTRIBUTE);
	naos_draft_drop(draft); /* its temporary name is gone, or not wanted */
	return rc;
}

/* The attribute is the owner's to write: it must not lead out of the tree. */
static bool is_below(const char *name)
{
	for (const char *at = name; at; at = strchr(at, '/')) {
		at += *at == '/' && at != name;
		if (*at == '/' || *at == 0 || (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == 0)))
			return false;
	}
	return true;
}

int naos_names_resume(int root_fd, const char *const *names, size_t count, const struct naos_replace_file *file, bool *ret_resumed,
		      struct naos_error *err)
{
	char name[PATH_MAX];
	uint8_t mark[REPLACES_BYTES], wanted[REPLACES_BYTES];
	naos_cleanup(close_place) struct place first = { .dir_fd = -1 };
	*ret_resumed = false;
	ssize_t bytes = fgetxattr(file->fd, LINKS_ATTRIBUTE, name, sizeof(name) - 1);
	if (bytes <= 0)
		return 0;
	name[bytes] = 0;
	if (!is_below(name) || open_place(root_fd, name, &first, NULL) != 0)
		return 0;
	naos_autoclose int new_fd = openat(first.dir_fd, first.base, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (new_fd < 0 || fgetxattr(new_fd, REPLACES_ATTRIBUTE, mark, sizeof(mark)) != (ssize_t)sizeof(mark))
		return 0; /* killed before the first name was taken */
	replaces_encode(&file->old.status, wanted);
	if (memcmp(mark, wanted, 16) != 0) /* device and inode */
		return 0;
	if (memcmp(mark, wanted, sizeof(mark)) != 0)
		return naos_error_set(err, NAOS_E_CHANGED,
				      "%s was another name of %s when a run was interrupted, and was written to since: they are two files now",
				      file->shown, name);
	int rc = take_rest(root_fd, names, 0, count, &first, new_fd, file, false, err);
	*ret_resumed = rc == 0;
	return rc;
}

bool naos_names_marked(int fd)
{
	return fgetxattr(fd, REPLACES_ATTRIBUTE, NULL, 0) >= 0;
}

void naos_names_unmark(int root_fd, const char *name)
{
	naos_cleanup(close_place) struct place place = { .dir_fd = -1 };
	if (open_place(root_fd, name, &place, NULL) != 0)
		return;
	naos_autoclose int fd = openat(place.dir_fd, place.base, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0)
		(void)!fremovexattr(fd, REPLACES_ATTRIBUTE);
}
