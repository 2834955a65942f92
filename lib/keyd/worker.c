/* The HSM worker: a process with the PIN, the token and nothing else.  It talks to the front over the sockets that it was born
 * with, one thread each, and ends when they are closed.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <time.h>
#include <openssl/rand.h>

#include "base/confine.h"
#include "keyd/hsm_token.h"

#define FIRST_DESCRIPTOR 3
#define FORMER_WAIT_NS 60000000000LL

struct channel {
	struct naos_hsm_token *token;
	int fd;
	pthread_t thread;
};

/* The IVs of a frame are drawn at once: the generator takes as long for one as for many. */
#define IV_BYTES 12
#define IVS_AT_ONCE 128
struct ivs {
	uint8_t bytes[IVS_AT_ONCE * IV_BYTES];
	size_t left;    /* of those drawn */
	size_t to_come; /* items that will need one */
};

static bool needs_iv(const struct naos_hsm_job *job)
{
	return job->operation == NAOS_HSM_CRYPT && job->item->encrypt && job->item->mode == NAOS_HSM_GCM && job->item->iv_bytes == 0;
}

/* Without one the token code draws it itself, or fails. */
static void give_iv(struct ivs *ivs, struct naos_hsm_crypt *item)
{
	if (ivs->left == 0) {
		size_t wanted = ivs->to_come < IVS_AT_ONCE ? ivs->to_come : IVS_AT_ONCE;
		if (wanted == 0 || RAND_bytes(ivs->bytes, (int)(wanted * IV_BYTES)) != 1)
			return;
		ivs->left = wanted;
		ivs->to_come -= wanted;
	}
	memcpy(item->iv, ivs->bytes + --ivs->left * IV_BYTES, IV_BYTES);
	item->iv_bytes = IV_BYTES;
}

/* All records of a frame; the answer stands in *answer.  False if the frame is malformed: the front is then not ours. */
static bool serve_frame(struct naos_hsm_token *token, const struct naos_secret *frame, size_t bytes, struct naos_secret **answer,
			size_t *ret_bytes)
{
	struct naos_cursor in = naos_cursor_reader(naos_secret_view(frame), bytes);
	size_t room = NAOS_HSM_FRAME_HEADER_BYTES;
	struct naos_hsm_crypt item;
	struct naos_hsm_job job;
	struct ivs ivs;
	ivs.left = ivs.to_come = 0;
	while (naos_cursor_left(&in) > 0) {
		if (!naos_hsm_request_decode(&in, &job, &item))
			return false;
		ivs.to_come += needs_iv(&job);
		room += naos_hsm_answer_bytes(&job);
	}
	if (room > NAOS_HSM_FRAME_BYTES || naos_hsm_frame_reserve(answer, room, NULL) != 0)
		return false;
	in.position = 0;
	struct naos_cursor out = naos_cursor_writer(naos_secret_data(*answer), naos_secret_bytes(*answer));
	naos_cursor_put_u32(&out, 0);
	while (naos_cursor_left(&in) > 0) {
		if (!naos_hsm_request_decode(&in, &job, &item))
			return false;
		if (needs_iv(&job))
			give_iv(&ivs, &item);
		item.out = naos_hsm_answer_output(&job, &out);
		naos_hsm_token_run(token, &job);
		naos_hsm_answer_encode(&job, &out);
	}
	struct naos_cursor head = naos_cursor_writer(naos_secret_data(*answer), NAOS_HSM_FRAME_HEADER_BYTES);
	naos_cursor_put_u32(&head, (uint32_t)(out.position - NAOS_HSM_FRAME_HEADER_BYTES));
	*ret_bytes = out.position;
	return naos_cursor_ok(&out);
}

static void *serve(void *argument)
{
	struct channel *channel = argument;
	naos_autosecret struct naos_secret *frame = NULL, *answer = NULL;
	size_t bytes, answer_bytes;
	while (naos_hsm_frame_receive(channel->fd, &frame, &bytes) &&
	       serve_frame(channel->token, frame, bytes, &answer, &answer_bytes) &&
	       naos_hsm_frame_send(channel->fd, answer, answer_bytes))
		;
	(void)shutdown(channel->fd, SHUT_RDWR);
	return NULL;
}

/* One worker at a time uses a token.  That of a front which was killed finishes what it was asked, which may be to make a key that the next
 * front clears away: the next one waits for it.  The lock lasts as long as the process. */
static int wait_for_former(const char *store, struct naos_error *err)
{
	static const struct timespec pause = { 0, 5000000L };
	naos_autofree char *path = NULL;
	int64_t until = naos_now_ns() + FORMER_WAIT_NS;
	if (asprintf(&path, "%s.worker", store) < 0) {
		path = NULL;
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a file name");
	}
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s", path);
	while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return naos_error_set_errno(err, errno, "cannot lock %s", path);
		if (naos_now_ns() > until)
			return naos_error_set(err, NAOS_E_KEYMANAGER, "another HSM worker uses the token (it holds %s)", path);
		(void)nanosleep(&pause, NULL);
	}
	return 0;
}

/* The first frame says where the token is; its answer says whether the login worked. */
static bool hello(int fd, struct naos_hsm_token **ret)
{
	naos_autosecret struct naos_secret *frame = NULL, *answer = NULL;
	naos_autofree char *uri = NULL, *store = NULL;
	struct naos_hsm_crypt item = { .result = 0 };
	struct naos_hsm_job job;
	size_t bytes;
	if (!naos_hsm_frame_receive(fd, &frame, &bytes))
		return false;
	struct naos_cursor in = naos_cursor_reader(naos_secret_view(frame), bytes);
	if (!naos_hsm_request_decode(&in, &job, &item) || job.operation != NAOS_HSM_HELLO)
		return false;
	uri = strndup((const char *)item.associated, item.associated_bytes);
	store = strndup((const char *)item.in, item.in_bytes);
	item.result = naos_confine(item.encrypt ? NAOS_CONFINE_KEYD_NETWORK_WORKER : NAOS_CONFINE_KEYD_WORKER, NULL, &item.error);
	if (item.result == 0)
		item.result = uri && store ? wait_for_former(store, &item.error) :
					     naos_error_set(&item.error, NAOS_E_NOMEM, "no memory for the HSM worker");
	if (item.result == 0)
		item.result = naos_hsm_token_open(uri, store, ret, &item.error);
	if (naos_hsm_frame_reserve(&answer, NAOS_HSM_FRAME_HEADER_BYTES + naos_hsm_answer_bytes(&job), NULL) != 0)
		return false;
	struct naos_cursor out = naos_cursor_writer(naos_secret_data(answer), naos_secret_bytes(answer));
	naos_cursor_put_u32(&out, 0);
	naos_hsm_answer_encode(&job, &out);
	struct naos_cursor head = naos_cursor_writer(naos_secret_data(answer), NAOS_HSM_FRAME_HEADER_BYTES);
	naos_cursor_put_u32(&head, (uint32_t)(out.position - NAOS_HSM_FRAME_HEADER_BYTES));
	return naos_hsm_frame_send(fd, answer, out.position) && item.result == 0;
}

int naos_hsm_worker_main(int argc, char **argv)
{
	struct channel channels[NAOS_HSM_MAX_CHANNELS] = { 0 };
	struct naos_hsm_token *token = NULL;
	unsigned long count = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	size_t started = 0;
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGINT, SIG_IGN); /* of a terminal: the front ends it */
	if (count == 0 || count > NAOS_HSM_MAX_CHANNELS)
		return 2;
	if (!hello(FIRST_DESCRIPTOR, &token))
		return 1;
	for (size_t i = 0; i < count; i++) {
		channels[i] = (struct channel){ .token = token, .fd = FIRST_DESCRIPTOR + (int)i };
		if (pthread_create(&channels[i].thread, NULL, serve, &channels[i]) != 0)
			break;
		started++;
	}
	for (size_t i = 0; i < started; i++)
		(void)pthread_join(channels[i].thread, NULL);
	(void)naos_hsm_token_close(token);
	return started == count ? 0 : 1;
}
