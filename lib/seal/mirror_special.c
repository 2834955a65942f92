/* What is neither a file nor a directory.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/mirror.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/io.h"
#include "seal/manifest.h"
#include "seal/metadata.h"

#define MAX_LINK_BYTES 65536

/* The text of a symbolic link; the caller frees it. */
static int read_link(int dir_fd, const char *name, const char *shown, char **ret, struct naos_error *err)
{
	naos_autofree char *text = malloc(MAX_LINK_BYTES);
	if (!text)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a symbolic link");
	ssize_t bytes = readlinkat(dir_fd, name, text, MAX_LINK_BYTES - 1);
	if (bytes < 0)
		return naos_error_set_errno(err, errno, "cannot read the symbolic link %s", shown);
	text[bytes] = 0;
	*ret = naos_steal(text);
	return 0;
}

/* Puts what make() makes at the place: under a temporary name first if something is replaced. */
struct recipe {
	const char *link; /* text of a symbolic link, or NULL */
	const struct stat *status;
};

static int make(const struct recipe *recipe, int dir_fd, const char *base)
{
	if (recipe->link)
		return symlinkat(recipe->link, dir_fd, base);
	return mknodat(dir_fd, base, (recipe->status->st_mode & S_IFMT) | 0600, recipe->status->st_rdev);
}

static int put(const struct recipe *recipe, const struct naos_place *place, struct naos_error *err)
{
	naos_autofree char *temporary = NULL;
	naos_autoclose int fd = -1;
	if (!place->exists)
		return make(recipe, place->dir_fd, place->base) == 0 ?
			   0 :
			   naos_error_set_errno(err, errno, "cannot make %s", place->shown);
	int rc = naos_io_temporary(place->dir_fd, place->base, 0600, &fd, &temporary, err); /* for its name */
	if (rc != 0)
		return naos_error_prefix(err, rc, "%s", place->shown);
	if (unlinkat(place->dir_fd, temporary, 0) == 0 && make(recipe, place->dir_fd, temporary) == 0 &&
	    renameat(place->dir_fd, temporary, place->dir_fd, place->base) == 0)
		return 0;
	rc = naos_error_set_errno(err, errno, "cannot make %s", place->shown);
	(void)unlinkat(place->dir_fd, temporary, 0);
	return rc;
}

static bool is_current(const struct recipe *recipe, const struct naos_place *place)
{
	naos_autofree char *there = NULL;
	if ((recipe->status->st_mode & S_IFMT) != (place->status.st_mode & S_IFMT))
		return false;
	if (!recipe->link)
		return recipe->status->st_rdev == place->status.st_rdev;
	return read_link(place->dir_fd, place->base, place->shown, &there, NULL) == 0 && strcmp(there, recipe->link) == 0;
}

/* Kinds that are left out, with a notice. */
static bool is_left_out(struct naos_mirror *mirror, const struct naos_walk_item *item)
{
	bool device = S_ISCHR(item->status.st_mode) || S_ISBLK(item->status.st_mode);
	if (S_ISSOCK(item->status.st_mode))
		naos_tally_notice(mirror->tally, item->path, NAOS_NOTICE_SOCKET);
	else if (device && geteuid() != 0)
		naos_tally_notice(mirror->tally, item->path, NAOS_NOTICE_DEVICE);
	else
		return false;
	return true;
}

int naos_mirror_special(struct naos_mirror *mirror, const struct naos_walk_item *item, const struct naos_place *place,
			struct naos_manifest_writer *manifest, struct naos_error *err)
{
	naos_autofree char *text = NULL;
	struct recipe recipe = { .status = &item->status };
	char shown[1024];
	int rc = 0;
	if (is_left_out(mirror, item))
		return 0;
	(void)naos_io_printable(item->path, shown, sizeof(shown));
	if (S_ISLNK(item->status.st_mode))
		rc = read_link(item->dir->fd, item->name, shown, &text, err);
	recipe.link = text;
	bool current = rc == 0 && place->exists && is_current(&recipe, place);
	if (rc == 0 && place->exists && !current && (!mirror->replace || S_ISDIR(place->status.st_mode)))
		rc = naos_error_set(err, NAOS_E_EXISTS, "%s exists and is not current", place->shown);
	if (rc == 0 && !current)
		rc = put(&recipe, place, err);
	/* also where a run was killed between the two */
	if (rc == 0 && (!current || !naos_metadata_same_time(&item->status, &place->status)))
		rc = naos_metadata_copy_at(&item->status, place->dir_fd, place->base, place->shown, err);
	if (rc == 0 && text && manifest)
		rc = naos_manifest_add_link(manifest, item->below_root, text, err);
	if (rc == 0)
		(current ? naos_tally_current : naos_tally_other)(mirror->tally);
	return rc;
}
