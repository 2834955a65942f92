/* Filters of system calls: what each program may do works, the rest is refused, what only an intruder asks for ends it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/confine.h"

static const char allowed_program[] = "/bin/true";
static char other_program[] = "/bin/true"; /* the same file, by another address */

/* In a confined child: what `attempt` returns is its exit status; -SIGNAL if it was ended by one. */
static int confined(enum naos_confine_program which, const char *program, int (*attempt)(void))
{
	int status = 0;
	pid_t child = fork();
	if (child == 0)
		_exit(naos_confine(which, program, NULL) == 0 ? attempt() : 99);
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static int does_daily_work(void)
{
	char path[] = "/tmp/naos-confine-XXXXXX";
	int fd = mkstemp(path), pair[2];
	bool good = fd >= 0 && write(fd, "x", 1) == 1 && fsync(fd) == 0 && close(fd) == 0 && unlink(path) == 0 &&
		    socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && socket(AF_UNIX, SOCK_DGRAM, 0) >= 0;
	return good ? 0 : 1;
}

static int failed_with(long rc)
{
	return rc >= 0 ? 0 : errno;
}

static int opens_internet_socket(void)
{
	return failed_with(socket(AF_INET, SOCK_STREAM, 0));
}

static int opens_packet_socket(void)
{
	return failed_with(socket(AF_PACKET, SOCK_RAW, 0));
}

static int executes_other(void)
{
	char *arguments[] = { other_program, NULL };
	return failed_with(execve(other_program, arguments, NULL));
}

static int starts(const char *program)
{
	char *arguments[] = { other_program, NULL };
	pid_t pid;
	int status = 0, rc = posix_spawn(&pid, program, NULL, NULL, arguments, NULL);
	return rc ? rc : waitpid(pid, &status, 0) == pid ? status : 1;
}

static int starts_allowed(void)
{
	return starts(allowed_program);
}

static int starts_other(void)
{
	return starts(other_program);
}

static int makes_device(void)
{
	return failed_with(mknod("/tmp/naos-confine-device", S_IFCHR | 0600, 0));
}

static int renames_host(void)
{
	return failed_with(sethostname("naos", 4));
}

#if !defined(__SANITIZE_ADDRESS__) /* its search for leaks traces */
static int traces(void)
{
	return failed_with(syscall(SYS_ptrace, PTRACE_ATTACH, getppid(), 0, 0));
}
#endif

static int leaves_namespace(void)
{
	return failed_with(unshare(CLONE_NEWNS));
}

static int has_own_directory(void)
{
	return failed_with(unshare(CLONE_FS));
}

static int mounts(void)
{
	return failed_with(mount("none", "/tmp", "tmpfs", 0, NULL));
}

static int loads_into_kernel(void)
{
	return failed_with(syscall(SYS_bpf, 0, NULL, 0));
}

static int has_no_core(void)
{
	struct rlimit limit = { 0, 0 };
	bool none = getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_max == 0 && prctl(PR_GET_DUMPABLE) == 0;
	return none && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : 1;
}

static void what_a_program_needs_works(void **state)
{
	for (enum naos_confine_program which = NAOS_CONFINE_KEYD_FRONT; which <= NAOS_CONFINE_KEYD_NETWORK_WORKER; which++) {
		assert_int_equal(confined(which, NULL, does_daily_work), 0);
		assert_int_equal(confined(which, NULL, has_no_core), 0);
	}
	assert_int_equal(confined(NAOS_CONFINE_KEYD_FRONT, NULL, opens_internet_socket), 0);
	assert_int_equal(confined(NAOS_CONFINE_KEYD_NETWORK_WORKER, NULL, opens_internet_socket), 0);
}

static void the_worker_reaches_no_network(void **state)
{
	assert_int_equal(confined(NAOS_CONFINE_KEYD_WORKER, NULL, opens_internet_socket), EPERM);
}

static void only_the_program_that_is_named_is_executed(void **state)
{
	assert_int_equal(confined(NAOS_CONFINE_KEYD_FRONT, allowed_program, starts_allowed), 0);
	assert_int_equal(confined(NAOS_CONFINE_KEYD_FRONT, allowed_program, starts_other), EPERM);
	assert_int_equal(confined(NAOS_CONFINE_KEYD_FRONT, NULL, executes_other), EPERM);
	assert_int_equal(confined(NAOS_CONFINE_KEYD_WORKER, NULL, executes_other), EPERM);
}

static void a_file_system_serves_but_mounts_and_starts_nothing(void **state)
{
	const enum naos_confine_program fs = NAOS_CONFINE_FS;
	assert_int_equal(confined(fs, NULL, does_daily_work), 0);
	assert_int_equal(confined(fs, NULL, has_no_core), 0);
	assert_int_equal(confined(fs, NULL, opens_internet_socket), 0);
	assert_int_equal(confined(fs, NULL, has_own_directory), 0);
	assert_int_equal(confined(fs, NULL, opens_packet_socket), EPERM);
	assert_int_equal(confined(fs, NULL, renames_host), EPERM);
	assert_int_equal(confined(fs, NULL, executes_other), EPERM);
	assert_int_equal(confined(fs, NULL, starts_other), EPERM);
	assert_int_equal(confined(fs, NULL, leaves_namespace), -SIGSYS);
	assert_int_equal(confined(fs, NULL, mounts), -SIGSYS);
	assert_int_equal(confined(fs, NULL, loads_into_kernel), -SIGSYS);
	assert_int_equal(confined(NAOS_CONFINE_KEYD_FRONT, NULL, has_own_directory), -SIGSYS);
}

static void the_rest_is_refused(void **state)
{
	for (enum naos_confine_program which = NAOS_CONFINE_KEYD_FRONT; which <= NAOS_CONFINE_KEYD_NETWORK_WORKER; which++) {
		assert_int_equal(confined(which, NULL, opens_packet_socket), EPERM);
		assert_int_equal(confined(which, NULL, makes_device), EPERM);
		assert_int_equal(confined(which, NULL, renames_host), EPERM);
	}
}

static void what_only_an_intruder_asks_for_ends_the_process(void **state)
{
	for (enum naos_confine_program which = NAOS_CONFINE_KEYD_FRONT; which <= NAOS_CONFINE_KEYD_NETWORK_WORKER; which++) {
		assert_int_equal(confined(which, NULL, leaves_namespace), -SIGSYS);
		assert_int_equal(confined(which, NULL, loads_into_kernel), -SIGSYS);
#if !defined(__SANITIZE_ADDRESS__)
		assert_int_equal(confined(which, NULL, traces), -SIGSYS);
#endif
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_program_needs_works),
		cmocka_unit_test(the_worker_reaches_no_network),
		cmocka_unit_test(only_the_program_that_is_named_is_executed),
		cmocka_unit_test(a_file_system_serves_but_mounts_and_starts_nothing),
		cmocka_unit_test(the_rest_is_refused),
		cmocka_unit_test(what_only_an_intruder_asks_for_ends_the_process),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
