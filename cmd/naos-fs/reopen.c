/* SPDX-License-Identifier: Apache-2.0 */
#include "reopen.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <string.h>
#include <sys/vfs.h>

#define SLOTS 16384u
#define FILEID_INO32_GEN 1 /* <linux/exportfs.h>: inode number and generation, 32 bits each */

struct reopen {
	pthread_mutex_t lock;
	bool number_is_enough; /* the file system below takes generation 0 for any */
	struct slot {
		fuse_ino_t node;
		struct file_handle_kept handle;
	} slots[SLOTS];
};

union handle_room {
	struct file_handle handle;
	uint8_t room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
};

struct file_handle_kept reopen_handle(int path_fd)
{
	struct file_handle_kept kept = { .bytes = 0 };
	union handle_room room = { .handle = { .handle_bytes = NAOS_FS_HANDLE_BYTES } };
	int mount;
	if (name_to_handle_at(path_fd, "", &room.handle, &mount, AT_EMPTY_PATH) == 0 && room.handle.handle_bytes <= NAOS_FS_HANDLE_BYTES) {
		kept.type = room.handle.handle_type;
		kept.bytes = room.handle.handle_bytes;
		memcpy(kept.data, room.handle.f_handle, kept.bytes);
	}
	return kept;
}

uint64_t reopen_generation(const struct file_handle_kept *handle)
{
	uint32_t hash = 2166136261u; /* FNV-1a; the kernel keeps 32 bits */
	for (unsigned i = 0; i < handle->bytes; i++)
		hash = (hash ^ handle->data[i]) * 16777619u;
	return hash;
}

int reopen_create(struct naos_fs *fs, struct naos_error *err)
{
	struct statfs status;
	struct reopen *reopen = calloc(1, sizeof(*reopen));
	if (!reopen)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for file handles");
	(void)pthread_mutex_init(&reopen->lock, NULL);
	struct file_handle_kept root = reopen_handle(fs->root_fd);
	reopen->number_is_enough = fstatfs(fs->root_dir_fd, &status) == 0 && status.f_type == EXT4_SUPER_MAGIC &&
				   root.type == FILEID_INO32_GEN && root.bytes == 2 * sizeof(uint32_t);
	fs->reopen = reopen;
	return 0;
}

void reopen_free(struct naos_fs *fs)
{
	if (!fs->reopen)
		return;
	(void)pthread_mutex_destroy(&fs->reopen->lock);
	free(fs->reopen);
	fs->reopen = NULL;
}

static struct slot *slot_of(struct reopen *reopen, fuse_ino_t node)
{
	return &reopen->slots[(node * 0x9e3779b97f4a7c15u >> 40) % SLOTS];
}

void reopen_remember(struct naos_fs *fs, fuse_ino_t node, const struct file_handle_kept *handle)
{
	struct reopen *reopen = fs->reopen;
	if (!reopen || handle->bytes == 0)
		return;
	(void)pthread_mutex_lock(&reopen->lock);
	*slot_of(reopen, node) = (struct slot){ .node = node, .handle = *handle };
	(void)pthread_mutex_unlock(&reopen->lock);
}

int reopen_node(struct naos_fs *fs, fuse_ino_t node)
{
	struct reopen *reopen = fs->reopen;
	struct file_handle_kept kept = { .bytes = 0 };
	(void)pthread_mutex_lock(&reopen->lock);
	if (slot_of(reopen, node)->node == node)
		kept = slot_of(reopen, node)->handle;
	(void)pthread_mutex_unlock(&reopen->lock);
	if (kept.bytes == 0 && reopen->number_is_enough && node <= UINT32_MAX) {
		/* a handle of an earlier mount; the kernel compares the generation that the answer has */
		const uint32_t number = (uint32_t)node;
		kept = (struct file_handle_kept){ .type = FILEID_INO32_GEN, .bytes = 2 * sizeof(uint32_t) };
		memcpy(kept.data, &number, sizeof(number));
	}
	if (kept.bytes == 0) {
		errno = ESTALE;
		return -1;
	}
	union handle_room room = { .handle = { .handle_bytes = kept.bytes, .handle_type = kept.type } };
	memcpy(room.handle.f_handle, kept.data, kept.bytes);
	int fd = open_by_handle_at(fs->root_dir_fd, &room.handle, O_PATH | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		errno = ESTALE;
	return fd;
}
