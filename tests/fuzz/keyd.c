/* Any bytes as a request to the key manager, with a database and an audit log of its own and the HSM's operations in this process.
 * An answer is always made, and can be read.  Input: identity (first byte: whose role), then the message.
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "fuzz.h"
#include "keyd/keyd.h"

#define MAX_BYTES ((size_t)64 << 10)
#define MODULE "/usr/lib/softhsm/libsofthsm2.so"

static const char roles[] = "[role one]\nidentities = one\noperations = all\nclass = either\nkeys = *\n"
			    "[role two]\nidentities = two\noperations = all approve\nclass = exportable\nmax-objects = 64\n"
			    "[role three]\nidentities = three\noperations = locate read encrypt\nkeys = *\n";

static struct naos_keyd *keyd;
static char directory[64];

static void clear_away(void)
{
	char *arguments[] = { "rm", "-rf", directory, NULL };
	pid_t child;
	int status;
	if (posix_spawnp(&child, "rm", NULL, NULL, arguments, environ) == 0)
		(void)waitpid(child, &status, 0);
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || close(fd) != 0)
		abort();
}

/* A token of SoftHSM in the directory; false where there is no SoftHSM. */
static bool make_token(void)
{
	char path[128], text[512];
	char *arguments[] = { "softhsm2-util", "--init-token", "--free", "--label", "fuzz", "--so-pin", "12345678", "--pin",
			"1234567890", NULL };
	posix_spawn_file_actions_t actions;
	pid_t child;
	int status = 1;
	(void)snprintf(path, sizeof(path), "%s/tokens", directory);
	if (access(MODULE, R_OK) != 0 || mkdir(path, 0700) != 0)
		return false;
	(void)snprintf(text, sizeof(text), "directories.tokendir = %s\nobjectstore.backend = file\nlog.level = ERROR\n", path);
	(void)snprintf(path, sizeof(path), "%s/softhsm2.conf", directory);
	write_file(path, text);
	(void)setenv("SOFTHSM2_CONF", path, 1);
	(void)snprintf(path, sizeof(path), "%s/pin", directory);
	write_file(path, "1234567890\n");
	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	bool started = posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ) == 0;
	(void)posix_spawn_file_actions_destroy(&actions);
	return started && waitpid(child, &status, 0) == child && status == 0;
}

static void start(void)
{
	char uri[256], store[128], audit[128], text[2048];
	naos_autoconfig struct naos_config *config = NULL;
	struct naos_audit_log *log = NULL;
	struct naos_hsm *hsm = NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	/* in memory where that is possible: each refusal is made durable in the audit log */
	(void)snprintf(directory, sizeof(directory), "%s/naos-fuzz-keyd-XXXXXX", access("/dev/shm", W_OK) == 0 ?
			"/dev/shm" : "/tmp");
	if (!mkdtemp(directory))
		abort();
	(void)atexit(clear_away);
	if (!make_token()) {
		(void)fprintf(stderr, "skipped: SoftHSM 2 is not installed\n");
		exit(77);
	}
	(void)snprintf(uri, sizeof(uri), "pkcs11:token=fuzz?module-path=" MODULE "&pin-source=file:%s/pin", directory);
	(void)snprintf(store, sizeof(store), "%s/token.db", directory);
	(void)snprintf(audit, sizeof(audit), "%s/audit", directory);
	(void)snprintf(text, sizeof(text), "[keyd]\ndatabase = %s/objects.db\n%s", directory, roles);
	const struct naos_hsm_options options = { .token_uri = uri, .store_path = store };
	if (naos_config_parse(text, strlen(text), "fuzz", &config, &err) != 0 || naos_hsm_open_direct(&options, &hsm,
			&err) != 0 ||
	    naos_audit_open(audit, NULL, true, &log, &err) != 0 || naos_keyd_open(config, hsm, log, &keyd, &err) != 0) {
		(void)fprintf(stderr, "%s\n", err.message);
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const char *const identities[] = { "one", "two", "three", "stranger" };
	naos_autosecret struct naos_secret *message = NULL, *answer = NULL;
	naos_autoarena struct naos_kmip_arena *arena = NULL;
	struct naos_kmip_response response;
	struct naos_error err = NAOS_ERROR_INIT;
	if (bytes < 2 || bytes > MAX_BYTES)
		return 0;
	if (!keyd)
		start();
	const struct naos_keyd_peer peer = { .identity = identities[data[0] % 4], .issuer = "CN=fuzz", .serial = "01",
			.address = "fuzz" };
	if (naos_secret_create(bytes - 1, &message, &err) != 0)
		return 0;
	memcpy(naos_secret_data(message), data + 1, bytes - 1); /* lint-ok: the input goes in */
	if (naos_keyd_handle(keyd, &peer, message, &answer, &err) != 0)
		abort(); /* nothing but memory may keep the answer away */
	if (naos_kmip_arena_create(NAOS_KMIP_ARENA_BYTES, &arena, &err) != 0)
		return 0;
	if (naos_kmip_response_decode(naos_secret_view(answer), naos_secret_bytes(answer), arena, &response, &err) != 0)
		abort(); /* whatever was asked, the answer is one that clients can read */
	return 0;
}
