/* SPDX-License-Identifier: Apache-2.0 */
#include "unmount.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Holds nothing of what naos-fs was given: whoever started it may wait for the end of its output. */
static int keep_only(int fd)
{
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int i = 0; i < 3; i++)
		(void)dup2(nothing, i);
	(void)dup2(fd, 3);
	(void)close_range(4, ~0U, 0);
	return 3;
}

/* Who looks for the naos-fs of a mount by its command line must not find this process. */
static void take_name(void)
{
	static const char name[] = "unmount";
	if (strlen(program_invocation_short_name) >= sizeof(name) - 1) /* argv[0] itself */
		memcpy(program_invocation_short_name, name, sizeof(name) - 1);
	(void)prctl(PR_SET_NAME, name);
}

static void wait_and_unmount(int given, const char *mountpoint)
{
	const char *const arguments[] = { "fusermount3", "--unmount", "--quiet", "--lazy", "--", mountpoint, NULL };
	const int fd = keep_only(given);
	take_name();
	sigset_t all;
	char byte;
	ssize_t got;
	(void)sigfillset(&all); /* what ends naos-fs must not end this before */
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
	do
		got = read(fd, &byte, 1);
	while (got < 0 && errno == EINTR);
	if (got != 1)
		_exit(0);
	(void)sigprocmask(SIG_UNBLOCK, &all, NULL);
	(void)execvp(arguments[0], (char *const *)arguments);
	_exit(1);
}

int unmounter_start(struct unmounter *ret, const char *mountpoint, struct naos_error *err)
{
	int ends[2];
	if (geteuid() == 0)
		return 0;
	if (pipe2(ends, O_CLOEXEC) != 0)
		return naos_error_set_errno(err, errno, "cannot make a pipe");
	pid_t pid = fork();
	if (pid == 0) {
		(void)close(ends[1]);
		wait_and_unmount(ends[0], mountpoint);
	}
	(void)close(ends[0]);
	if (pid < 0) {
		(void)close(ends[1]);
		return naos_error_set_errno(err, errno, "cannot start a process that unmounts");
	}
	*ret = (struct unmounter){ .pid = pid, .fd = ends[1], .mountpoint = mountpoint };
	return 0;
}

void unmounter_use(struct unmounter *unmounter)
{
	if (!unmounter->pid || umount2(unmounter->mountpoint, MNT_DETACH) == 0) /* with the capability for it */
		return;
	if (write(unmounter->fd, "", 1) == 1)
		unmounter_end(unmounter);
}

void unmounter_end(struct unmounter *unmounter)
{
	if (!unmounter->pid)
		return;
	(void)close(unmounter->fd);
	while (waitpid(unmounter->pid, NULL, 0) < 0 && errno == EINTR)
		;
	unmounter->pid = 0;
}
