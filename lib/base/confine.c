/* Filters of system calls, by libseccomp, which knows the numbers of every architecture and writes the filter programs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/confine.h"

#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

/* --- groups: names of system calls with blanks; a name that an architecture lacks is left out ------------------------------ */

#define MEMORY "mmap mmap2 munmap mremap mprotect madvise brk mlock mlock2 munlock mincore membarrier "
#define TIME \
	"clock_gettime clock_gettime64 clock_getres clock_nanosleep clock_nanosleep_time64 nanosleep gettimeofday time restart_syscall "
#define THREADS \
	"clone clone3 futex futex_time64 futex_waitv set_robust_list get_robust_list rseq set_tid_address arch_prctl gettid getpid getppid " \
	"sched_yield sched_getaffinity sched_getparam sched_getscheduler getcpu exit exit_group tgkill rt_sigaction rt_sigprocmask " \
	"rt_sigreturn rt_sigtimedwait rt_sigpending sigaltstack prctl seccomp "
#define SELF \
	"getuid geteuid getgid getegid getresuid getresgid getgroups uname sysinfo getrusage times getrlimit ugetrlimit " \
	"prlimit64 setrlimit getrandom capget "
#define INPUT_OUTPUT \
	"read write readv writev pread64 pwrite64 preadv pwritev close close_range fstat fstat64 lseek _llseek dup dup2 dup3 fcntl fcntl64 " \
	"pipe pipe2 poll ppoll select _newselect pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 " \
	"eventfd eventfd2 signalfd4 timerfd_create timerfd_settime "
#define FILES \
	"open openat openat2 creat stat stat64 lstat lstat64 newfstatat fstatat64 statx access faccessat faccessat2 readlink readlinkat " \
	"getcwd getdents getdents64 statfs statfs64 fstatfs fstatfs64 "
#define CHANGES_OF_FILES \
	"mkdir mkdirat rename renameat renameat2 unlink unlinkat rmdir link linkat truncate ftruncate ftruncate64 fallocate fadvise64 " \
	"fsync fdatasync sync syncfs sync_file_range flock chmod fchmod fchmodat fchown fchownat umask utime utimes futimesat utimensat " \
	"fgetxattr flistxattr getxattr lgetxattr "
#define SOCKETS \
	"socketpair connect accept accept4 bind listen getsockname getpeername setsockopt getsockopt sendto recvfrom sendmsg recvmsg " \
	"sendmmsg recvmmsg shutdown "
#define CHILDREN "vfork wait4 waitid kill " /* posix_spawn is clone */
#define MODULES /* what PKCS#11 modules of vendors use to reach their daemon */ \
	"shmget shmat shmdt shmctl semget semop semctl semtimedop msgget msgsnd msgrcv ioctl "

#define AS_ANY_USER "setfsuid setfsuid32 setfsgid setfsgid32 setgroups setgroups32 umask "
#define ANY_FILE /* what a file system does below, beside the changes above */ \
	"openat2 name_to_handle_at open_by_handle_at mknodat symlinkat fchmodat2 readahead copy_file_range setxattr lsetxattr fsetxattr " \
	"listxattr llistxattr removexattr lremovexattr fremovexattr statx "
#define REQUESTS_OF_THE_KERNEL /* io_uring, whose rings stay on one CPU; /dev/fuse is read; the mount goes at the end */ \
	"io_uring_setup io_uring_enter io_uring_register sched_setaffinity umount2 wait4 "
#define WAITING_LOCKS "timer_create timer_settime timer_settime64 timer_delete "

#define KEYD_WORKER MEMORY TIME THREADS SELF INPUT_OUTPUT FILES CHANGES_OF_FILES SOCKETS MODULES

/* Bits of domains of sockets. */
enum { LOCAL = 1, INTERNET = 2 };

static const struct row {
	const char *calls;
	unsigned domains;
	bool own_directory; /* threads may have a working directory and umask of their own: unshare, for nothing else */
} rows[] = {
	/* a worker inherits the front's filter, so the front's list holds the worker's */
	[NAOS_CONFINE_KEYD_FRONT] = { KEYD_WORKER CHILDREN, LOCAL | INTERNET },
	[NAOS_CONFINE_KEYD_WORKER] = { KEYD_WORKER, LOCAL },
	[NAOS_CONFINE_KEYD_NETWORK_WORKER] = { KEYD_WORKER, LOCAL | INTERNET },
	[NAOS_CONFINE_FS] = { KEYD_WORKER AS_ANY_USER ANY_FILE REQUESTS_OF_THE_KERNEL WAITING_LOCKS, LOCAL | INTERNET, true },
};

/* Asked for by nobody but an intruder. */
static const char deadly[] =
	"ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kexec_load kexec_file_load init_module finit_module "
	"delete_module bpf perf_event_open userfaultfd mount umount2 "
	"pivot_root chroot setns open_by_handle_at iopl ioperm swapon swapoff reboot "
	"add_key request_key keyctl execveat ";

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define SANITIZED 1
#endif
#ifdef SANITIZED /* the search for leaks at the end traces its own process */
static const char sanitizers[] = "ptrace process_vm_readv personality wait4 kill tkill sched_setaffinity ";
#else
static const char sanitizers[] = "";
#endif

static bool is_in(const char *list, const char *name, size_t bytes)
{
	for (const char *at = list; (at = strstr(at, name)); at += bytes)
		if ((at == list || at[-1] == ' ') && at[bytes] == ' ')
			return true;
	return false;
}

/* The same action for each call of a list, but for those of two others. */
static int add_list(scmp_filter_ctx filter, uint32_t action, const char *list, const char *but, const char *nor)
{
	char name[64];
	for (const char *at = list; *at;) {
		size_t bytes = strcspn(at, " ");
		(void)snprintf(name, sizeof(name), "%.*s", (int)bytes, at);
		int number = seccomp_syscall_resolve_name(name);
		bool wanted = number >= 0 && !is_in(but, name, bytes) && !is_in(nor, name, bytes);
		int rc = wanted ? seccomp_rule_add(filter, action, number, 0) : 0;
		if (rc < 0)
			return rc;
		at += bytes + strspn(at + bytes, " ");
	}
	return 0;
}

static int add_domains(scmp_filter_ctx filter, unsigned domains)
{
	static const struct {
		unsigned bit;
		int domain;
	} all[] = { { LOCAL, AF_UNIX }, { INTERNET, AF_INET }, { INTERNET, AF_INET6 }, { INTERNET, AF_NETLINK /* getaddrinfo */ } };
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < NAOS_ARRAY_LENGTH(all); i++)
		if (domains & all[i].bit)
			rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)all[i].domain));
	return rc;
}

static int add_unshare(scmp_filter_ctx filter, bool own_directory)
{
	if (!own_directory)
		return seccomp_rule_add(filter, SCMP_ACT_KILL_PROCESS, SCMP_SYS(unshare), 0);
	int rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(unshare), 1, SCMP_A0(SCMP_CMP_EQ, CLONE_FS));
	return rc ? rc : seccomp_rule_add(filter, SCMP_ACT_KILL_PROCESS, SCMP_SYS(unshare), 1, SCMP_A0(SCMP_CMP_NE, CLONE_FS));
}

static int fill(scmp_filter_ctx filter, const struct row *row, const char *program)
{
	int rc = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
	if (rc == 0)
		rc = add_list(filter, SCMP_ACT_ALLOW, row->calls, "", "");
	if (rc == 0)
		rc = add_list(filter, SCMP_ACT_ALLOW, sanitizers, row->calls, "");
	if (rc == 0)
		rc = add_list(filter, SCMP_ACT_KILL_PROCESS, deadly, sanitizers, row->calls);
	if (rc == 0)
		rc = add_unshare(filter, row->own_directory);
	if (rc == 0)
		rc = add_domains(filter, row->domains);
	if (rc == 0 && program)
		rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(execve), 1, SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)(uintptr_t)program));
	return rc ? rc : seccomp_load(filter);
}

#ifdef NAOS_PLANTED_CRASH /* a test build that crashes on purpose, and whose core is searched (tests/tools) */
static int forbid_core(void)
{
	return 0;
}
#else
static int forbid_core(void)
{
	const struct rlimit none = { 0, 0 };
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 ? setrlimit(RLIMIT_CORE, &none) : -1;
}
#endif

int naos_confine(enum naos_confine_program which, const char *program, struct naos_error *err)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || forbid_core() != 0)
		return naos_error_set_errno(err, errno, "this process cannot give up its privileges");
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	if (!filter)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a filter of system calls");
	int rc = fill(filter, &rows[which], program);
	seccomp_release(filter);
	return rc == 0 ? 0 : naos_error_set_errno(err, -rc, "this process cannot limit its system calls (seccomp)");
}
