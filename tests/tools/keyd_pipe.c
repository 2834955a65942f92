/* The key manager without TLS, for tests: requests on standard input, answers on standard output, one after the other or, with
 * --threads N, by N threads.
 *
 *     keyd_pipe IDENTITY            everything is asked by this identity
 *     a frame: identity length (1 byte), identity, request number (u32, little-endian), KMIP message; an identity of length 0: IDENTITY
 *     an answer: the request number, KMIP message; a message of length 0: no answer could be made
 *
 * Configuration by NAOS_CONFIG.  The HSM worker is this program again.  SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "keyd/keyd.h"

struct pipe_state {
	struct naos_keyd *keyd;
	const char *identity;
	pthread_mutex_t in, out;
	bool ended;
};

/* One frame; false at the end. */
static bool read_frame(struct pipe_state *state, char *identity, uint8_t number[4], struct naos_secret **ret)
{
	uint8_t length, head[NAOS_KMIP_HEADER_BYTES];
	size_t bytes = 0, got = 0;
	bool good = false;
	(void)pthread_mutex_lock(&state->in);
	if (!state->ended && naos_io_read(STDIN_FILENO, &length, 1, &got, "stdin", NULL) == 0 && got == 1 &&
	    naos_io_read(STDIN_FILENO, identity, length, &got, "stdin", NULL) == 0 && got == length &&
	    naos_io_read(STDIN_FILENO, number, 4, &got, "stdin", NULL) == 0 && got == 4 &&
	    naos_io_read(STDIN_FILENO, head, sizeof(head), &got, "stdin", NULL) == 0 && got == sizeof(head)) {
		identity[length] = 0;
		if (length == 0)
			(void)snprintf(identity, 256, "%s", state->identity);
		bytes = ((size_t)head[4] << 24 | (size_t)head[5] << 16 | (size_t)head[6] << 8 | head[7]) + sizeof(head);
		if (bytes <= NAOS_KMIP_MAX_MESSAGE_BYTES && naos_secret_create(bytes, ret, NULL) == 0) {
			memcpy(naos_secret_data(*ret), head, sizeof(head)); /* lint-ok: what came from the wire goes in */
			bytes -= sizeof(head);
			good = naos_io_read(STDIN_FILENO, naos_secret_data(*ret) + sizeof(head), bytes, &got, "stdin", NULL) == 0 &&
			       got == bytes;
		}
	}
	state->ended |= !good;
	(void)pthread_mutex_unlock(&state->in);
	return good;
}

static void write_answer(struct pipe_state *state, const uint8_t number[4], const struct naos_secret *answer)
{
	static const uint8_t none[NAOS_KMIP_HEADER_BYTES] = { 0 };
	(void)pthread_mutex_lock(&state->out);
	if (naos_io_write(STDOUT_FILENO, number, 4, "stdout", NULL) != 0 ||
	    naos_io_write(STDOUT_FILENO, answer ? naos_secret_view(answer) : none, answer ? naos_secret_bytes(answer) : sizeof(none),
			  "stdout", NULL) != 0)
		state->ended = true;
	(void)pthread_mutex_unlock(&state->out);
}

static void *serve(void *argument)
{
	struct pipe_state *state = argument;
	char identity[256];
	uint8_t number[4];
	for (;;) {
		naos_autosecret struct naos_secret *message = NULL, *answer = NULL;
		struct naos_error err = NAOS_ERROR_INIT;
		if (!read_frame(state, identity, number, &message))
			return NULL;
		const struct naos_keyd_peer peer = { .identity = identity, .issuer = "CN=test", .serial = "01", .address = "pipe" };
		if (naos_keyd_handle(state->keyd, &peer, message, &answer, &err) != 0)
			naos_log_error(&err);
		write_answer(state, number, answer);
	}
}

static int run(const char *identity, unsigned threads, struct naos_error *err)
{
	naos_autoconfig struct naos_config *config = NULL;
	naos_autohsm struct naos_hsm *hsm = NULL;
	struct pipe_state state = { .identity = identity, .in = PTHREAD_MUTEX_INITIALIZER, .out = PTHREAD_MUTEX_INITIALIZER };
	struct naos_audit_log *audit = NULL;
	pthread_t ids[64];
	int rc = naos_config_load(NULL, &config, err);
	if (rc != 0)
		return rc;
	const struct naos_hsm_options options = { .token_uri = naos_config_string(config, "keyd", NULL, "token"),
						  .store_path = naos_config_string(config, "keyd", NULL, "token-store"),
						  .channels = (unsigned)naos_config_number(config, "keyd", NULL, "hsm-threads") };
	rc = naos_hsm_start(&options, &hsm, err);
	if (rc == 0)
		rc = naos_audit_open(naos_config_string(config, "keyd", NULL, "audit"), NULL, true, &audit, err);
	if (rc == 0)
		rc = naos_keyd_open(config, hsm, audit, &state.keyd, err);
	if (rc == 0) {
		struct naos_hsm_status status;
		naos_hsm_status(hsm, &status);
		(void)fprintf(stderr, "ready worker=%d\n", status.pid);
		for (unsigned i = 0; i < threads; i++)
			if (pthread_create(&ids[i], NULL, serve, &state) != 0)
				return naos_error_set(err, NAOS_E_SYSTEM, "no thread");
		for (unsigned i = 0; i < threads; i++)
			(void)pthread_join(ids[i], NULL);
	}
	(void)naos_keyd_close(state.keyd);
	(void)naos_audit_close(audit);
	return rc;
}

int main(int argc, char **argv)
{
	struct naos_error err = NAOS_ERROR_INIT;
	unsigned threads = 1;
	if (argc > 1 && strcmp(argv[1], "--worker") == 0)
		return naos_hsm_worker_main(argc, argv);
	if (argc == 4 && strcmp(argv[2], "--threads") == 0)
		threads = (unsigned)strtoul(argv[3], NULL, 10);
	if (argc < 2 || threads == 0 || threads > 64)
		return 2;
	naos_log_start("keyd_pipe", NAOS_LOG_WARNING);
	if (run(argv[1], threads, &err) == 0)
		return 0;
	naos_log_error(&err);
	return naos_error_exit_status(err.code);
}
