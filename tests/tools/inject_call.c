/* Has another process make one system call, and prints what it returned (a negative number: -errno).
 *
 *     inject_call PID NUMBER [ARGUMENT…]
 *
 * By ptrace, in the process's first thread, which must be waiting in the kernel.  Exit status 77 where this is not known to work.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/user.h>
#include <sys/wait.h>

#define UNKNOWN 77

#ifdef __x86_64__
static int call(pid_t pid, const unsigned long *words, long long *ret)
{
	struct user_regs_struct saved, regs;
	int status;
	if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) != 0)
		return UNKNOWN;
	if (waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status) || ptrace(PTRACE_GETREGS, pid, NULL, &saved) != 0)
		return 1;
	errno = 0;
	if ((ptrace(PTRACE_PEEKTEXT, pid, (void *)(saved.rip - 2), NULL) & 0xffff) != 0x050f) /* syscall, behind which it waits */
		return 1;
	regs = saved;
	regs.rip -= 2;
	regs.rax = words[0];
	regs.orig_rax = (unsigned long long)-1; /* what it waited for is not begun anew by this */
	regs.rdi = words[1];
	regs.rsi = words[2];
	regs.rdx = words[3];
	regs.r10 = words[4];
	if (ptrace(PTRACE_SETREGS, pid, NULL, &regs) != 0 || ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0 ||
	    waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status) || ptrace(PTRACE_GETREGS, pid, NULL, &regs) != 0)
		return 1;
	*ret = (long long)regs.rax;
	return ptrace(PTRACE_SETREGS, pid, NULL, &saved) == 0 && ptrace(PTRACE_DETACH, pid, NULL, NULL) == 0 ? 0 : 1;
}
#else
static int call(pid_t pid, const unsigned long *words, long long *ret)
{
	return UNKNOWN;
}
#endif

int main(int argc, char **argv)
{
	unsigned long words[5] = { 0 };
	long long returned = 0;
	if (argc < 3 || argc > 7)
		return 2;
	for (int i = 2; i < argc; i++)
		words[i - 2] = strtoul(argv[i], NULL, 0);
	int rc = call((pid_t)strtol(argv[1], NULL, 10), words, &returned);
	if (rc == 0)
		printf("%lld\n", returned);
	return rc;
}
