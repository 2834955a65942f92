/* SPDX-License-Identifier: Apache-2.0 */
#include "ahead.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "seal/store.h"

#define SORTED_NAMES 16384u /* of a directory with more of them the order is not looked for */

/* What a sealed file tells without a key; false if it is none or its key is at hand. */
static bool probe(struct naos_fs *fs, int directory, const char *name, struct naos_sealed_info *ret)
{
	struct naos_store *store;
	struct naos_error err;
	int fd = inode_open_unseen(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (naos_store_posix(fd, name, &store, &err) != 0) {
		(void)close(fd);
		return false;
	}
	bool wanted = naos_sealed_probe(store, ret, &err) == 0 && !naos_filesets_knows(fs->sets, ret);
	store->ops->close(store);
	return wanted;
}

static bool is_file(const struct dirent *entry)
{
	return entry->d_type == DT_REG || entry->d_type == DT_UNKNOWN;
}

static bool is_among(const struct naos_sealed_info *infos, size_t count, const struct naos_sealed_info *wanted)
{
	for (size_t i = 0; i < count; i++)
		if (naos_uuid_equal(&infos[i].header.file_id, &wanted->header.file_id))
			return true;
	return false;
}

/* Fills infos up with the files that the directory lists next, from where the last batch ended, and from its beginning behind its end:
 * the order of tar or grep -r. */
static size_t next_listed(struct naos_fs *fs, struct inode *directory, DIR *stream, struct naos_sealed_info *infos, size_t count,
			  size_t room)
{
	bool wrapped = directory->ahead.position == 0;
	seekdir(stream, directory->ahead.position);
	while (count < room) {
		const struct dirent *entry = readdir(stream);
		if (!entry && wrapped)
			break;
		if (!entry) {
			wrapped = true;
			rewinddir(stream);
			continue;
		}
		if (is_file(entry) && probe(fs, dirfd(stream), entry->d_name, &infos[count]) &&
		    !is_among(infos, count, &infos[count]))
			count++;
	}
	directory->ahead.position = telldir(stream);
	return count;
}

static int by_name(const void *left, const void *right)
{
	return strcmp(*(char *const *)left, *(char *const *)right);
}

struct names {
	size_t count;
	char *names[SORTED_NAMES];
};

static void names_free(struct names *names)
{
	for (size_t i = 0; names && i < names->count; i++)
		free(names->names[i]);
	free(names);
}

/* Names of files, sorted; NULL if there are too many.  *ret_own: that of the file with this number, as a copy. */
static struct names *sorted_names(DIR *stream, ino_t number, const char **ret_own)
{
	struct names *names = calloc(1, sizeof(*names));
	const struct dirent *entry;
	*ret_own = NULL;
	rewinddir(stream);
	while (names && (entry = readdir(stream))) {
		char *copy = !is_file(entry) || names->count == SORTED_NAMES ? NULL : strdup(entry->d_name);
		if (!is_file(entry))
			continue;
		if (!copy) {
			names_free(names);
			return NULL;
		}
		names->names[names->count++] = copy;
		if (entry->d_ino == number)
			*ret_own = copy;
	}
	if (names)
		qsort(names->names, names->count, sizeof(names->names[0]), by_name);
	return names;
}

/* The same with files whose names follow that of the file being opened: the order of the shell, ls and most programs. */
static size_t next_sorted(struct naos_fs *fs, DIR *stream, ino_t number, struct naos_sealed_info *infos, size_t count, size_t room)
{
	const char *own;
	struct names *names = sorted_names(stream, number, &own);
	for (size_t i = 0; names && own && i < names->count && count < room; i++)
		if (strcmp(names->names[i], own) > 0 && probe(fs, dirfd(stream), names->names[i], &infos[count]))
			count++;
	names_free(names);
	return count;
}

/* Behind the first of infos, which is that of the file being opened.  Nobody says in which order a program goes through a directory: half
 * a batch for each of two.  Returns how many there are then. */
static size_t next_files(struct naos_fs *fs, struct inode *directory, ino_t number, struct naos_sealed_info *infos, size_t room)
{
	struct inode_path path = inode_path(directory);
	int fd = inode_open_unseen(fs->proc_fd, path.text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	if (!stream) {
		if (fd >= 0)
			(void)close(fd);
		return 1;
	}
	size_t count = next_sorted(fs, stream, number, infos, 1, 1 + room / 2);
	count = next_listed(fs, directory, stream, infos, count, room);
	(void)closedir(stream);
	return count;
}

void ahead_unwrap(struct naos_fs *fs, struct inode *inode, const struct naos_sealed_info *info)
{
	struct inode *directory = inode->parent;
	if (!directory)
		return;
	(void)pthread_mutex_lock(&directory->lock);
	unsigned before = directory->ahead.batch;
	unsigned batch = before <= 1 || directory->ahead.hits * 4 >= before ? before * 2 + 1 : before / 2;
	batch = batch < NAOS_FILESET_BATCH ? batch : NAOS_FILESET_BATCH - 1;
	naos_autofree struct naos_sealed_info *infos = batch > 1 ? calloc(batch + 1, sizeof(*infos)) : NULL;
	directory->ahead.batch = batch;
	directory->ahead.hits = 0;
	size_t count = 1;
	if (infos) {
		infos[0] = *info;
		count = next_files(fs, directory, inode->number, infos, batch + 1);
	}
	(void)pthread_mutex_unlock(&directory->lock);
	if (count > 1)
		naos_filesets_prefetch(fs->sets, infos, count);
}

void ahead_count_hit(struct inode *inode)
{
	if (inode->parent)
		inode->parent->ahead.hits++;
}
