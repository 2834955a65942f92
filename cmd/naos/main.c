/* naos: the command line.  SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

#include "base/log.h"
#include "command.h"
#include "engine/gpu.h"

/* A closed descriptor 0, 1 or 2 would be taken by the next file that is opened, which messages would then overwrite.
 * Each is filled with /dev/null in the direction that fails when it is used. */
static void fill_standard_descriptors(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			_exit(1);
}

/* Keys lie outside core dumps anyway; plaintext in ordinary buffers is kept out of them by writing none.  The hard limit
 * stays, so that someone who debugs can allow one from outside (prlimit). */
static struct rlimit write_no_core(void)
{
	struct rlimit before = { 0 };
	if (getrlimit(RLIMIT_CORE, &before) == 0)
		(void)setrlimit(RLIMIT_CORE, &(struct rlimit){ .rlim_cur = 0, .rlim_max = before.rlim_max });
	return before;
}

/* A reader that went away (EPIPE: `naos … | head`) has seen what it wanted: no error. */
static int finish_output(int rc, struct naos_error *err)
{
	bool failed = ferror(stdout) != 0;
	errno = 0;
	if (fflush(stdout) != 0)
		failed = true;
	if (!failed || errno == EPIPE || rc != 0)
		return rc;
	return naos_error_set_errno(err, errno ? errno : EIO, "cannot write to standard output");
}

static int run_command(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_autoconfig struct naos_config *config = NULL;
	if (!invocation->command->without_config) {
		int rc = naos_config_load(invocation->config_path, &config, err);
		if (rc != 0)
			return rc;
	}
	invocation->config = config;
	int rc = invocation->command->run(invocation, err);
	invocation->config = NULL;
	return rc;
}

/* --json counts for the error too when the arguments are what is wrong. */
static bool wants_json(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--json") == 0)
			return true;
	return false;
}

int main(int argc, char **argv)
{
	struct naos_invocation invocation = { 0 };
	struct naos_error err = NAOS_ERROR_INIT;

	fill_standard_descriptors();
	struct rlimit core_limit = write_no_core();
	(void)signal(SIGPIPE, SIG_IGN);
	naos_log_start("naos", NAOS_LOG_WARNING);
	naos_log_json(wants_json(argc, argv));
	int rc = naos_parse(argc, argv, &invocation, &err);
	if (rc != 0) {
		if (wants_json(argc, argv))
			naos_log_error(&err);
		else
			naos_log(NAOS_LOG_ERROR, "%s", err.message); /* one calm line: it says where to look */
		return naos_error_exit_status(rc);
	}
	invocation.core_limit = core_limit;
	naos_log_json(invocation.json);
	if (invocation.verbose)
		naos_log_start("naos", NAOS_LOG_INFO);
	rc = finish_output(run_command(&invocation, &err), &err);
	const char *gpu = naos_gpu_warning();
	if (gpu)
		naos_log(NAOS_LOG_WARNING, "%s", gpu);
	if (rc != 0)
		naos_log_error(&err);
	return naos_error_exit_status(rc);
}
