/* Processes around a mounted file set, from /proc.  SPDX-License-Identifier: Apache-2.0 */
#include "fileset_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/io.h"
#include "fileset_place.h"

#define COMMAND_BYTES ((size_t)64 << 10)
#define USERS 5 /* named at most */

/* The next process of /proc, 0 behind the last one. */
static pid_t next_process(DIR *proc)
{
	for (const struct dirent *entry; (entry = readdir(proc));) {
		char *end;
		long pid = strtol(entry->d_name, &end, 10);
		if (pid > 0 && *end == 0)
			return (pid_t)pid;
	}
	return 0;
}

/* --- the naos-fs of a mount --------------------------------------------------------------------------------------------- */

static bool takes_word(const char *argument)
{
	return strcmp(argument, "--config") == 0 || strcmp(argument, "-o") == 0;
}

/* naos-fs [OPTION…] FILESET [MOUNTPOINT], as in its command line: words that end with a zero byte. */
static bool is_daemon_of(const char *line, size_t bytes, const char *fileset, const char *point, const char *configured)
{
	const char *operands[2] = { NULL, configured }, *program = line, *base = strrchr(program, '/');
	unsigned count = 0;
	if (strcmp(base ? base + 1 : program, "naos-fs") != 0)
		return false;
	for (const char *word = line + strlen(line) + 1; word < line + bytes; word += strlen(word) + 1) {
		if (takes_word(word))
			word += strlen(word) + 1;
		else if (word[0] != '-' && count < NAOS_ARRAY_LENGTH(operands))
			operands[count++] = word;
	}
	if (!operands[0] || strcmp(operands[0], fileset) != 0 || !operands[1])
		return false;
	char resolved[PATH_MAX];
	return strcmp(operands[1], point) == 0 || (realpath(operands[1], resolved) && strcmp(resolved, point) == 0);
}

/* The number of a process may go to another one: the descriptor is opened first, and what it names is looked at then. */
static int open_if_daemon(pid_t pid, const char *fileset, const char *point, const char *configured)
{
	char path[64];
	naos_autofree uint8_t *line = NULL;
	size_t bytes = 0;
	naos_autoclose int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	(void)snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	if (fd < 0 || naos_io_read_file(AT_FDCWD, path, COMMAND_BYTES, &line, &bytes, NULL) != 0 || bytes == 0)
		return -1;
	return is_daemon_of((const char *)line, bytes, fileset, point, configured) ? naos_fd_steal(&fd) : -1;
}

int naos_process_find_daemon(const char *fileset, const char *point, const char *configured)
{
	DIR *proc = opendir("/proc");
	int found = -1;
	for (pid_t pid; proc && found < 0 && (pid = next_process(proc));)
		found = open_if_daemon(pid, fileset, point, configured);
	if (proc)
		(void)closedir(proc);
	return found;
}

/* --- who uses a mount ---------------------------------------------------------------------------------------------------- */

static bool link_is_inside(int dir_fd, const char *name, const char *point)
{
	char target[PATH_MAX];
	ssize_t bytes = readlinkat(dir_fd, name, target, sizeof(target) - 1);
	if (bytes <= 0)
		return false;
	target[bytes] = 0;
	return naos_place_is_inside(target, point);
}

static bool uses(int process_fd, const char *point)
{
	if (link_is_inside(process_fd, "cwd", point) || link_is_inside(process_fd, "root", point) || link_is_inside(process_fd, "exe", point))
		return true;
	int fd = openat(process_fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	bool found = false;
	if (!dir)
		naos_close_descriptor(&fd);
	for (const struct dirent *entry; dir && !found && (entry = readdir(dir));)
		found = link_is_inside(dirfd(dir), entry->d_name, point);
	if (dir)
		(void)closedir(dir);
	return found;
}

void naos_process_users(const char *point, char *ret, size_t bytes)
{
	DIR *proc = opendir("/proc");
	size_t used = 0;
	unsigned count = 0;
	ret[0] = 0;
	for (pid_t pid; proc && used < bytes && (pid = next_process(proc));) {
		char path[32];
		naos_autofree uint8_t *name = NULL;
		size_t name_bytes;
		(void)snprintf(path, sizeof(path), "%d", pid);
		naos_autoclose int fd = openat(dirfd(proc), path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0 || !uses(fd, point))
			continue;
		if (++count > USERS) {
			(void)snprintf(ret + used, bytes - used, ", …");
			break;
		}
		bool named = naos_io_read_file(fd, "comm", 64, &name, &name_bytes, NULL) == 0;
		if (named)
			name[strcspn((char *)name, "\n")] = 0;
		used += (size_t)snprintf(ret + used, bytes - used, "%s%s (%d)", count > 1 ? ", " : "", named ? (char *)name : "process", pid);
	}
	if (proc)
		(void)closedir(proc);
}

/* --- programs ------------------------------------------------------------------------------------------------------------ */

/* The program of this name beside this one, or the name itself. */
static const char *beside(const char *name, char path[static PATH_MAX])
{
	ssize_t bytes = readlink("/proc/self/exe", path, PATH_MAX - 1);
	if (bytes <= 0)
		return name;
	path[bytes] = 0;
	char *slash = strrchr(path, '/');
	size_t room = PATH_MAX - (size_t)(slash + 1 - path);
	if ((size_t)snprintf(slash + 1, room, "%s", name) >= room || access(path, X_OK) != 0)
		return name;
	return path;
}

int naos_process_run(char *const arguments[], int *ret_status, struct naos_error *err)
{
	char path[PATH_MAX];
	pid_t child;
	int status;
	(void)fflush(NULL);
	int failure = posix_spawnp(&child, beside(arguments[0], path), NULL, NULL, arguments, environ);
	if (failure)
		return naos_error_set_errno(err, failure, "cannot run %s", arguments[0]);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return naos_error_set_errno(err, errno, "cannot wait for %s", arguments[0]);
	*ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	return 0;
}
