/* SPDX-License-Identifier: Apache-2.0 */
#include "ahead.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "seal/store.h"

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

/* Reads on where the last batch of this directory ended, and from its beginning behind its end. */
static size_t next_files(struct naos_fs *fs, struct inode *directory, struct naos_sealed_info *infos, size_t room)
{
	size_t count = 0;
	bool wrapped = directory->ahead.position == 0;
	struct inode_path path = inode_path(directory);
	int fd = inode_open_unseen(fs->proc_fd, path.text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	if (!stream) {
		if (fd >= 0)
			(void)close(fd);
		return 0;
	}
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
		if ((entry->d_type == DT_REG || entry->d_type == DT_UNKNOWN) && probe(fs, fd, entry->d_name, &infos[count]))
			count++;
	}
	directory->ahead.position = telldir(stream);
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
	unsigned batch = before <= 1 || directory->ahead.hits * 2 >= before ? before * 2 + 1 : before / 2;
	batch = batch < NAOS_FILESET_BATCH ? batch : NAOS_FILESET_BATCH - 1;
	naos_autofree struct naos_sealed_info *infos = batch > 1 ? calloc(batch + 1, sizeof(*infos)) : NULL;
	directory->ahead.batch = batch;
	directory->ahead.hits = 0;
	size_t count = 1;
	if (infos) {
		infos[0] = *info;
		count += next_files(fs, directory, infos + 1, batch);
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
