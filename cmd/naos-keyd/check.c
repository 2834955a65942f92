/* An unsafe production configuration, and why it is one.  SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

struct findings {
	const struct naos_config *config;
	unsigned problems;
};

static void find(struct findings *findings, bool problem, const char *format, ...) naos_printf(3, 4);

static void find(struct findings *findings, bool problem, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	(void)fputs(problem ? "problem  " : "warning  ", stdout);
	(void)vprintf(format, args);
	(void)putchar('\n');
	va_end(args);
	findings->problems += problem;
}

static const char *text(const struct findings *findings, const char *section, const char *key)
{
	return naos_config_string(findings->config, section, NULL, key);
}

/* A file that only its owner may read (secret) or write. */
static void check_file(struct findings *findings, const char *what, const char *path, bool secret)
{
	struct stat status;
	if (!*path) {
		find(findings, true, "%s is not set", what);
		return;
	}
	if (stat(path, &status) != 0) {
		find(findings, true, "%s: %s: %s", what, path, strerror(errno));
		return;
	}
	mode_t forbidden = secret ? S_IRWXG | S_IRWXO : S_IWGRP | S_IWOTH;
	if (status.st_mode & forbidden)
		find(findings, true, "%s: %s has mode %04o: others can %s it; remedy: chmod %s", what, path,
				status.st_mode & 07777,
		     secret ? "read or write" : "write", secret ? "0600" : "go-w");
	if (status.st_uid != geteuid() && status.st_uid != 0)
		find(findings, true, "%s: %s belongs to user %u, neither root nor the user of the key manager", what, path,
				status.st_uid);
}

/* The PIN file of a pkcs11: address, where it names one. */
static void check_pin(struct findings *findings)
{
	const char *uri = text(findings, "keyd", "token"), *at = strstr(uri, "pin-source=file:");
	char path[1024];
	if (strstr(uri, "pin-value="))
		find(findings, true,
				"keyd.token has the PIN in its address (pin-value): it belongs into a file of mode 0600 or a credential");
	if (!at)
		return;
	at += strlen("pin-source=file:");
	(void)snprintf(path, sizeof(path), "%.*s", (int)strcspn(at, "&?"), at);
	check_file(findings, "the PIN file of keyd.token", path, true);
}

static void check_network(struct findings *findings)
{
	const char *metrics = text(findings, "keyd", "metrics");
	if (*metrics && strncmp(metrics, "127.0.0.1:", 10) != 0 && strncmp(metrics, "[::1]:", 6) != 0)
		find(findings, true, "keyd.metrics is %s: numbers without a password belong on a loopback address", metrics);
	if (!*text(findings, "keyd", "crl"))
		find(findings, false, "keyd.crl is not set: a revoked client certificate works until it expires");
}

static void check_process(struct findings *findings)
{
	struct rlimit limit;
	if (geteuid() == 0)
		find(findings, true, "it runs as root: start it as the user naos-keyd (the systemd unit does)");
	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur < (rlim_t)4 << 20)
		find(findings, true,
				"RLIMIT_MEMLOCK is %llu KiB: messages are held in locked memory, 4 MiB are the least (LimitMEMLOCK=64M)",
		     (unsigned long long)limit.rlim_cur >> 10);
}

void keyd_check(const struct naos_config *config, unsigned *ret_problems)
{
	struct findings findings = { .config = config };
	check_file(&findings, "keyd.certificate", text(&findings, "keyd", "certificate"), false);
	check_file(&findings, "keyd.key", text(&findings, "keyd", "key"), true);
	check_file(&findings, "keyd.ca", text(&findings, "keyd", "ca"), false);
	if (!*text(&findings, "keyd", "token"))
		find(&findings, true, "keyd.token is not set: it says where the HSM is (pkcs11:…)");
	check_pin(&findings);
	if (!*text(&findings, "keyd", "audit"))
		find(&findings, true, "keyd.audit is not set: the use of keys would leave no record");
	if (!naos_config_section_name(config, "role", 0))
		find(&findings, true, "there is no section [role NAME]: nobody may do anything");
	check_network(&findings);
	check_process(&findings);
	*ret_problems = findings.problems;
}
