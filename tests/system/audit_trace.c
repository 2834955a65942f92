/* Stands between a program and the calls that change files: writes each to the file named by NAOS_TRACE, one JSON object a line,
 * and lets call number NAOS_FAIL_AT of them fail with EIO.  Files are told apart by inode.  Only what the audit log uses is here.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int trace_fd = -1;
static long fail_at, calls;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("NAOS_TRACE"), *at = getenv("NAOS_FAIL_AT");
	fail_at = at ? atol(at) : 0;
	if (path)
		trace_fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

__attribute__((format(printf, 1, 2))) static void trace(const char *format, ...)
{
	static char line[1 << 18];
	va_list args;
	va_start(args, format);
	int bytes = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (trace_fd >= 0 && syscall(SYS_write, trace_fd, line, bytes) != bytes)
		abort();
}

static int fails(void)
{
	if (++calls != fail_at)
		return 0;
	trace("{\"op\":\"failed\"}\n");
	errno = EIO;
	return 1;
}

static unsigned long inode(int fd)
{
	struct stat status;
	return fstat(fd, &status) == 0 ? (unsigned long)status.st_ino : 0;
}

static int is_file(int fd)
{
	struct stat status;
	return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

static const char *hex(const void *data, size_t bytes)
{
	static char text[1 << 17];
	if (bytes > sizeof(text) / 2 - 1)
		abort();
	for (size_t i = 0; i < bytes; i++)
		(void)snprintf(text + 2 * i, 3, "%02x", ((const uint8_t *)data)[i]);
	text[2 * bytes] = 0;
	return text;
}

/* Absolute path of a name relative to a directory. */
static const char *path_of(int dir_fd, const char *name, char *buffer, size_t bytes)
{
	char link[64], dir[2048] = "";
	if (name[0] == '/')
		return name;
	(void)snprintf(link, sizeof(link), dir_fd == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", dir_fd);
	if (readlink(link, dir, sizeof(dir) - 1) < 0)
		abort();
	(void)snprintf(buffer, bytes, "%s/%s", dir, name);
	return buffer;
}

int openat(int dir_fd, const char *name, int flags, ...)
{
	va_list args;
	va_start(args, flags);
	mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	char path[4096];
	struct stat status;
	int existed = fstatat(dir_fd, name, &status, 0) == 0;
	if (flags & O_CREAT && fails())
		return -1;
	int fd = (int)syscall(SYS_openat, dir_fd, name, flags, mode);
	if (fd >= 0 && flags & O_CREAT && !existed)
		trace("{\"op\":\"create\",\"path\":\"%s\",\"ino\":%lu,\"mode\":%u}\n", path_of(dir_fd, name, path, sizeof(path)), inode(fd), mode);
	else if (fd >= 0 && flags & O_TRUNC)
		trace("{\"op\":\"truncate\",\"ino\":%lu,\"size\":0}\n", inode(fd));
	return fd;
}

int mkdirat(int dir_fd, const char *name, mode_t mode)
{
	char path[4096];
	long rc = fails() ? -1 : syscall(SYS_mkdirat, dir_fd, name, mode);
	if (rc == 0)
		trace("{\"op\":\"mkdir\",\"path\":\"%s\"}\n", path_of(dir_fd, name, path, sizeof(path)));
	return (int)rc;
}

int mkdir(const char *name, mode_t mode)
{
	return mkdirat(AT_FDCWD, name, mode);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
	ssize_t rc = fails() ? -1 : syscall(SYS_pwrite64, fd, data, bytes, offset);
	if (rc > 0)
		trace("{\"op\":\"write\",\"ino\":%lu,\"offset\":%lld,\"data\":\"%s\"}\n", inode(fd), (long long)offset, hex(data, (size_t)rc));
	return rc;
}

ssize_t write(int fd, const void *data, size_t bytes)
{
	off_t offset = lseek(fd, 0, SEEK_CUR);
	if (fd == STDOUT_FILENO) /* the writer tells what was acknowledged */
		trace("{\"op\":\"told\",\"data\":\"%s\"}\n", hex(data, bytes));
	if (fd <= STDERR_FILENO || !is_file(fd))
		return syscall(SYS_write, fd, data, bytes);
	ssize_t rc = fails() ? -1 : syscall(SYS_write, fd, data, bytes);
	if (rc > 0)
		trace("{\"op\":\"write\",\"ino\":%lu,\"offset\":%lld,\"data\":\"%s\"}\n", inode(fd), (long long)offset, hex(data, (size_t)rc));
	return rc;
}

int ftruncate(int fd, off_t size)
{
	long rc = fails() ? -1 : syscall(SYS_ftruncate, fd, size);
	if (rc == 0)
		trace("{\"op\":\"truncate\",\"ino\":%lu,\"size\":%lld}\n", inode(fd), (long long)size);
	return (int)rc;
}

static int sync_traced(int fd, long number)
{
	char path[4096];
	long rc = fails() ? -1 : syscall(number, fd);
	if (rc == 0 && is_file(fd))
		trace("{\"op\":\"sync\",\"ino\":%lu}\n", inode(fd));
	else if (rc == 0)
		trace("{\"op\":\"sync_names\",\"path\":\"%s\"}\n", path_of(fd, "", path, sizeof(path)));
	return (int)rc;
}

int fsync(int fd)
{
	return sync_traced(fd, SYS_fsync);
}

int fdatasync(int fd)
{
	return sync_traced(fd, SYS_fdatasync);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
	char from_path[4096], to_path[4096];
	long rc = fails() ? -1 : syscall(SYS_renameat2, from_fd, from, to_fd, to, 0);
	if (rc == 0)
		trace("{\"op\":\"rename\",\"path\":\"%s\",\"to\":\"%s\"}\n", path_of(from_fd, from, from_path, sizeof(from_path)),
		      path_of(to_fd, to, to_path, sizeof(to_path)));
	return (int)rc;
}

int unlinkat(int dir_fd, const char *name, int flags)
{
	char path[4096];
	long rc = syscall(SYS_unlinkat, dir_fd, name, flags);
	if (rc == 0)
		trace("{\"op\":\"unlink\",\"path\":\"%s\"}\n", path_of(dir_fd, name, path, sizeof(path)));
	return (int)rc;
}
