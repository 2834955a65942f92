/* naos-keyd: the key manager.  One program, two processes: the front (here) and the HSM worker, which the front starts.
 * SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <poll.h>

#include "base/confine.h"
#include "base/log.h"
#include "base/notify.h"
#include "check.h"
#include "front.h"
#include "planted.h"
#include "status.h"

#define LOOK_AT_FILES_MS 10000

struct daemon {
	const char *config_path;
	struct naos_config *config;
	struct naos_hsm *hsm;
	struct naos_audit_log *audit;
	struct naos_keyd *keyd;
	struct front *front;
	struct status_page *page;
	char *database, *audit_path; /* what the page tells about */
	struct timespec files_changed; /* newest change of certificate, key, CA, CRL when they were read */
};

static const struct option options[] = {
	{ "config", required_argument, NULL, 'c' }, { "check-config", no_argument, NULL, 'k' }, { "verbose", no_argument,
			NULL, 'v' },
	{ "version", no_argument, NULL, 'V' },	    { "help", no_argument, NULL, 'h' },		{ NULL, 0, NULL, 0 },
};

static void usage(void)
{
	(void)fputs("Usage: naos-keyd [--config FILE] [--check-config] [--verbose]\n"
		    "The key manager: KMIP over mutual TLS, master keys in an HSM.\n\n"
		    "      --config FILE   configuration instead of /etc/naos/naos.conf\n"
		    "      --check-config  says what is unsafe or missing, and ends\n"
		    "      --verbose       logs connections too\n"
		    "      --version       version\n"
		    "      --help          this text\n\n"
		    "SIGHUP reads configuration, certificates and CRL again; SIGTERM ends it when requests under way are answered.\n"
		    "Example: naos-keyd --config /etc/naos/naos.conf --check-config\n",
		    stdout);
}

/* --- certificates that change while it runs ------------------------------------------------------------------------- */

static struct timespec newest_change(const struct naos_config *config)
{
	static const char *const keys[] = { "certificate", "key", "ca", "crl" };
	struct timespec newest = { 0, 0 };
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(keys); i++) {
		const char *path = naos_config_string(config, "keyd", NULL, keys[i]);
		struct stat status;
		if (!*path || stat(path, &status) != 0)
			continue;
		if (status.st_ctim.tv_sec > newest.tv_sec ||
		    (status.st_ctim.tv_sec == newest.tv_sec && status.st_ctim.tv_nsec > newest.tv_nsec))
			newest = status.st_ctim;
	}
	return newest;
}

/* What can't be read leaves the old state in force. */
static void reload_tls(struct daemon *daemon)
{
	struct naos_error err = NAOS_ERROR_INIT;
	SSL_CTX *tls;
	daemon->files_changed = newest_change(daemon->config);
	if (keyd_tls_load(daemon->config, &tls, &err) == 0) {
		front_set_tls(daemon->front, tls);
		naos_log(NAOS_LOG_INFO, "event=certificates-read");
	} else {
		naos_log(NAOS_LOG_ERROR, "event=reload-failed reason=\"%s\" (the certificates read before stay in force)",
				err.message);
	}
}

static void reload_config(struct daemon *daemon)
{
	struct naos_error err = NAOS_ERROR_INIT;
	naos_autoconfig struct naos_config *config = NULL;
	naos_notify("RELOADING=1");
	int rc = naos_config_load(daemon->config_path, &config, &err);
	if (rc == 0)
		rc = naos_keyd_reload(daemon->keyd, config, &err);
	if (rc == 0) {
		(void)naos_config_free(daemon->config);
		daemon->config = naos_steal(config);
		reload_tls(daemon);
	} else {
		naos_log(NAOS_LOG_ERROR, "event=reload-failed reason=\"%s\" (the configuration read before stays in force)",
				err.message);
	}
	naos_notify("READY=1");
}

static void look_at_files(struct daemon *daemon)
{
	struct timespec now = newest_change(daemon->config);
	if (now.tv_sec != daemon->files_changed.tv_sec || now.tv_nsec != daemon->files_changed.tv_nsec)
		reload_tls(daemon);
}

/* --- life ------------------------------------------------------------------------------------------------------------ */

static int start_hsm(struct daemon *daemon, struct naos_error *err)
{
	const struct naos_hsm_options hsm = {
		.token_uri = naos_config_string(daemon->config, "keyd", NULL, "token"),
		.store_path = naos_config_string(daemon->config, "keyd", NULL, "token-store"),
		.channels = (unsigned)naos_config_number(daemon->config, "keyd", NULL, "hsm-threads"),
		.network = naos_config_bool(daemon->config, "keyd", NULL, "hsm-network"),
	};
	return naos_hsm_start(&hsm, &daemon->hsm, err);
}

static int start_page(struct daemon *daemon, struct naos_error *err)
{
	const char *address = naos_config_string(daemon->config, "keyd", NULL, "metrics");
	daemon->database = strdup(naos_config_string(daemon->config, "keyd", NULL, "database")); /* a reload frees the configuration */
	daemon->audit_path = strdup(naos_config_string(daemon->config, "keyd", NULL, "audit"));
	if (!daemon->database || !daemon->audit_path)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the page of metrics");
	const struct metrics_source source = { .front = daemon->front, .hsm = daemon->hsm, .keyd = daemon->keyd,
					       .database = daemon->database, .audit = daemon->audit_path };
	return status_page_start(address, &source, &daemon->page, err);
}

static int start(struct daemon *daemon, struct naos_error *err)
{
	const char *audit = naos_config_string(daemon->config, "keyd", NULL, "audit");
	SSL_CTX *tls;
	int rc = naos_confine(NAOS_CONFINE_KEYD_FRONT, naos_hsm_own_program, err); /* before there are threads and clients */
	if (rc == 0 && *audit)
		rc = naos_audit_open(audit, NULL, true, &daemon->audit, err);
	if (rc == 0)
		rc = start_hsm(daemon, err);
	if (rc == 0)
		rc = naos_keyd_open(daemon->config, daemon->hsm, daemon->audit, &daemon->keyd, err);
	daemon->files_changed = newest_change(daemon->config);
	if (rc == 0)
		rc = keyd_tls_load(daemon->config, &tls, err);
	if (rc == 0)
		rc = front_open(daemon->config, tls, daemon->keyd, &daemon->front, err);
	if (rc == 0)
		rc = start_page(daemon, err);
	return rc ? rc : front_start(daemon->front, err);
}

static void stop(struct daemon *daemon)
{
	daemon->page = status_page_stop(daemon->page);
	if (daemon->front)
		daemon->front = front_stop(daemon->front);
	daemon->keyd = naos_keyd_close(daemon->keyd);
	daemon->hsm = naos_hsm_close(daemon->hsm);
	daemon->audit = naos_audit_close(daemon->audit);
	daemon->config = naos_config_free(daemon->config);
	free(daemon->database);
	free(daemon->audit_path);
}

/* Until SIGTERM or SIGINT. */
static void run(struct daemon *daemon, int signals)
{
	for (;;) {
		struct pollfd wait = { .fd = signals, .events = POLLIN };
		struct signalfd_siginfo info;
		if (poll(&wait, 1, LOOK_AT_FILES_MS) <= 0) {
			look_at_files(daemon);
			continue;
		}
		if (read(signals, &info, sizeof(info)) != sizeof(info))
			continue;
		if (info.ssi_signo != SIGHUP)
			return;
		reload_config(daemon);
	}
}

static int serve(struct daemon *daemon, int signals)
{
	struct naos_error err = NAOS_ERROR_INIT;
	unsigned problems = 0;
	int rc = 0;
	if (naos_config_bool(daemon->config, "keyd", NULL, "production"))
		keyd_check(daemon->config, &problems);
	if (problems)
		rc = naos_error_set(&err, NAOS_E_CONFIG,
				    "%u problems make this configuration unsafe for production (keyd.production = no is for a try-out only)", problems);
	if (rc == 0)
		rc = start(daemon, &err);
	if (rc == 0) {
		naos_log(NAOS_LOG_INFO, "event=ready address=%s", front_address(daemon->front));
		(void)printf("naos-keyd: ready on %s\n", front_address(daemon->front));
		(void)fflush(stdout);
		naos_notify("READY=1");
		run(daemon, signals);
		naos_notify("STOPPING=1");
	} else {
		naos_log_error(&err);
	}
	stop(daemon);
	return naos_error_exit_status(rc);
}

/* No core, no tracing by others of the same user, nothing gained by exec. */
static void harden(void)
{
	const struct rlimit none = { 0, 0 };
	if (!planted_allows_core()) {
		(void)setrlimit(RLIMIT_CORE, &none);
		(void)prctl(PR_SET_DUMPABLE, 0);
	}
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

/* Signals are taken from a descriptor; threads and the worker start with them blocked. */
static int block_signals(void)
{
	sigset_t set;
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

int main(int argc, char **argv)
{
	struct daemon daemon = { 0 };
	bool check_only = false;
	int letter;
	harden();
	if (argc > 1 && strcmp(argv[1], "--worker") == 0)
		return naos_hsm_worker_main(argc, argv);
	keyd_tls_wipe_allocations();
	naos_log_start("naos-keyd", NAOS_LOG_WARNING);
	while ((letter = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (letter) {
		case 'c':
			daemon.config_path = optarg;
			break;
		case 'k':
			check_only = true;
			break;
		case 'v':
			naos_log_start("naos-keyd", NAOS_LOG_INFO);
			break;
		case 'V':
			(void)puts("naos-keyd " NAOS_VERSION);
			return 0;
		case 'h':
			usage();
			return 0;
		default:
			return 2;
		}
	}
	struct naos_error err = NAOS_ERROR_INIT;
	if (optind < argc || naos_config_load(daemon.config_path, &daemon.config, &err) != 0) {
		if (err.code)
			naos_log_error(&err);
		else
			naos_log(NAOS_LOG_ERROR, "unexpected '%s'; see naos-keyd --help", argv[optind]);
		return 2;
	}
	if (!check_only)
		return serve(&daemon, block_signals());
	unsigned problems;
	keyd_check(daemon.config, &problems);
	if (problems)
		(void)printf("%u problems: it would not start with keyd.production = yes\n", problems);
	else
		(void)puts("the configuration is fit for production");
	(void)naos_config_free(daemon.config);
	return problems ? 1 : 0;
}
