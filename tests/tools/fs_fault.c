/* Loaded into naos-fs (LD_PRELOAD): calls on files below FS_FAULT_DIRECTORY fail, are interrupted or are done by halves, as the first
 * byte of the file FS_FAULT_CONTROL says: '0' nothing, 's' short and interrupted at random, 'w' writing is an I/O error, 'r' reading,
 * 'f' flushing ('l': it takes long), 'q' the quota is exceeded, 't' the status of a file comes seconds late, 'z' setting a size
 * is an I/O error.  SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static const volatile char *control = "0";
static const char *directory;
static atomic_uint calls;

__attribute__((constructor)) static void start(void)
{
	const char *path = getenv("FS_FAULT_CONTROL");
	directory = getenv("FS_FAULT_DIRECTORY");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *map = fd >= 0 ? mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
	if (map != MAP_FAILED)
		control = map;
	if (fd >= 0)
		(void)close(fd);
}

/* The fault that this call on this descriptor gets; '0' for none. */
static char fault(int fd)
{
	char path[64], target[4096];
	char kind = *control;
	if (kind == '0' || !directory)
		return '0';
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t bytes = readlink(path, target, sizeof(target) - 1);
	return bytes > 0 && strncmp(target, directory, strlen(directory)) == 0 ? kind : '0';
}

/* How many bytes a call may do; -1: it fails with errno. */
static ssize_t allowed(int fd, size_t bytes, char failing)
{
	char kind = fault(fd);
	unsigned call = ++calls * 2654435761u >> 16;
	if (kind == 's' && call % 4 == 0) {
		errno = EINTR;
		return -1;
	}
	if (kind == failing || (kind == 'q' && failing == 'w')) {
		errno = kind == 'q' ? EDQUOT : EIO;
		return -1;
	}
	return kind == 's' && bytes > 1 ? (ssize_t)(1 + call % bytes) : (ssize_t)bytes;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pread64(int fd, void *buffer, size_t bytes, off64_t offset)
{
	ssize_t room = allowed(fd, bytes, 'r');
	return room < 0 ? -1 : REAL(pread64)(fd, buffer, (size_t)room, offset);
}

ssize_t pwrite64(int fd, const void *buffer, size_t bytes, off64_t offset)
{
	ssize_t room = allowed(fd, bytes, 'w');
	return room < 0 ? -1 : REAL(pwrite64)(fd, buffer, (size_t)room, offset);
}

int fsync(int fd)
{
	if (fault(fd) == 'l')
		(void)sleep(2);
	return allowed(fd, 0, 'f') < 0 && errno == EIO ? -1 : REAL(fsync)(fd);
}

int fdatasync(int fd)
{
	return allowed(fd, 0, 'f') < 0 && errno == EIO ? -1 : REAL(fdatasync)(fd);
}

int syncfs(int fd)
{
	return allowed(fd, 0, 'f') < 0 && errno == EIO ? -1 : REAL(syncfs)(fd);
}

int fstatat64(int fd, const char *path, struct stat64 *ret, int flags)
{
	int rc = REAL(fstatat64)(fd, path, ret, flags);
	if (fault(fd) == 't' && S_ISREG(ret->st_mode))
		(void)sleep(4);
	return rc;
}

int ftruncate64(int fd, off64_t bytes)
{
	return allowed(fd, 0, 'z') < 0 && errno == EIO ? -1 : REAL(ftruncate64)(fd, bytes);
}
