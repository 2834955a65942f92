/* Starting and ending the HSM worker.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "keyd/hsm_client.h"

#define FIRST_DESCRIPTOR 3
#define ABOVE_ALL 64 /* where the worker's ends wait, clear of where they go */
#define HELLO_WAIT_S 120
#define ANSWER_WAIT_S 120 /* a worker that says nothing for so long is dead */
#define PAUSE_NS 50000000LL
#define MAX_PAUSE_NS 5000000000LL

const char naos_hsm_own_program[] = "/proc/self/exe";

static void close_all(int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		naos_close_descriptor(&fds[i]);
}

static int make_sockets(struct naos_hsm *hsm, int *ours, int *theirs, struct naos_error *err)
{
	const struct timeval limit = { .tv_sec = ANSWER_WAIT_S };
	for (size_t i = 0; i < hsm->channel_count; i++) {
		int pair[2];
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
			return naos_error_set_errno(err, errno, "cannot make a socket to the HSM worker");
		ours[i] = pair[0];
		theirs[i] = fcntl(pair[1], F_DUPFD_CLOEXEC, ABOVE_ALL);
		int saved = errno;
		(void)close(pair[1]);
		if (theirs[i] < 0 || setsockopt(ours[i], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0)
			return naos_error_set_errno(err, theirs[i] < 0 ? saved : errno, "cannot make a socket to the HSM worker");
	}
	return 0;
}

static int spawn(struct naos_hsm *hsm, const int *theirs, struct naos_error *err)
{
	posix_spawn_file_actions_t actions;
	char count[16], *arguments[] = { (char *)hsm->program, "--worker", count, NULL };
	(void)snprintf(count, sizeof(count), "%u", hsm->channel_count);
	if (posix_spawn_file_actions_init(&actions) != 0)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to start the HSM worker");
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < hsm->channel_count; i++)
		rc = posix_spawn_file_actions_adddup2(&actions, theirs[i], FIRST_DESCRIPTOR + (int)i);
	if (rc == 0)
		rc = posix_spawn(&hsm->pid, hsm->program, &actions, NULL, arguments, environ);
	(void)posix_spawn_file_actions_destroy(&actions);
	if (rc != 0)
		hsm->pid = 0;
	return rc ? naos_error_set_errno(err, rc, "cannot start the HSM worker %s", hsm->program) : 0;
}

/* Sends where the token is and waits for the login. */
static int hello(struct naos_hsm *hsm, struct naos_error *err)
{
	struct naos_hsm_channel *channel = &hsm->channels[0];
	struct naos_hsm_crypt item = { .encrypt = hsm->network,
				       .associated = (const uint8_t *)hsm->uri,
				       .associated_bytes = strlen(hsm->uri),
				       .in = (const uint8_t *)hsm->store,
				       .in_bytes = strlen(hsm->store) };
	struct naos_hsm_job job = { .operation = NAOS_HSM_HELLO, .item = &item };
	size_t bytes = naos_hsm_request_bytes(&job);
	int rc = naos_hsm_frame_reserve(&channel->request, NAOS_HSM_FRAME_HEADER_BYTES + bytes, err);
	if (rc != 0)
		return rc;
	struct naos_cursor out = naos_cursor_writer(naos_secret_data(channel->request), naos_secret_bytes(channel->request));
	naos_cursor_put_u32(&out, (uint32_t)bytes);
	naos_hsm_request_encode(&job, &out);
	if (!naos_hsm_frame_send(channel->fd, channel->request, out.position) ||
	    !naos_hsm_frame_receive(channel->fd, &channel->answer, &bytes))
		return naos_error_set(err, NAOS_E_KEYMANAGER, "the HSM worker died when it was started");
	struct naos_cursor in = naos_cursor_reader(naos_secret_view(channel->answer), bytes);
	if (!naos_hsm_answer_decode(&in, &job))
		return naos_error_set(err, NAOS_E_KEYMANAGER, "the HSM worker answers nonsense");
	return item.result ? naos_error_set(err, item.result, "%s", item.error.message) : 0;
}

static int64_t pause_after(int64_t pause)
{
	return pause == 0 ? PAUSE_NS : 2 * pause < MAX_PAUSE_NS ? 2 * pause : MAX_PAUSE_NS;
}

void naos_hsm_reap(struct naos_hsm *hsm)
{
	int status;
	for (size_t i = 0; i < hsm->channel_count; i++)
		naos_close_descriptor(&hsm->channels[i].fd);
	if (hsm->pid > 0) {
		(void)kill(hsm->pid, SIGKILL);
		while (waitpid(hsm->pid, &status, 0) < 0 && errno == EINTR)
			;
	}
	hsm->pid = 0;
}

int naos_hsm_spawn(struct naos_hsm *hsm, struct naos_error *err)
{
	int ours[NAOS_HSM_MAX_CHANNELS], theirs[NAOS_HSM_MAX_CHANNELS];
	for (size_t i = 0; i < NAOS_HSM_MAX_CHANNELS; i++)
		ours[i] = theirs[i] = -1;
	naos_hsm_reap(hsm);
	int rc = make_sockets(hsm, ours, theirs, err);
	if (rc == 0)
		rc = spawn(hsm, theirs, err);
	close_all(theirs, NAOS_HSM_MAX_CHANNELS);
	for (size_t i = 0; i < hsm->channel_count; i++)
		hsm->channels[i].fd = ours[i];
	if (rc == 0)
		rc = hello(hsm, err);
	hsm->down = rc != 0;
	hsm->pause_ns = rc ? pause_after(hsm->pause_ns) : 0;
	hsm->retry_ns = naos_now_ns() + (rc ? hsm->pause_ns : 0);
	if (rc != 0)
		naos_hsm_reap(hsm);
	return rc;
}

static int prepare(const struct naos_hsm_options *options, struct naos_hsm **ret, struct naos_error *err)
{
	struct naos_hsm *hsm = calloc(1, sizeof(*hsm));
	if (!hsm)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the HSM");
	(void)pthread_mutex_init(&hsm->lock, NULL);
	hsm->tail = &hsm->head;
	for (size_t i = 0; i < NAOS_HSM_MAX_CHANNELS; i++)
		hsm->channels[i].fd = -1;
	hsm->channel_count = options->channels ? options->channels : 1;
	if (hsm->channel_count > NAOS_HSM_MAX_CHANNELS)
		hsm->channel_count = NAOS_HSM_MAX_CHANNELS;
	hsm->network = options->network;
	hsm->uri = strdup(options->token_uri);
	hsm->store = strdup(options->store_path);
	hsm->program = options->program ? options->program : naos_hsm_own_program;
	*ret = hsm;
	return hsm->uri && hsm->store ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for the HSM");
}

int naos_hsm_start(const struct naos_hsm_options *options, struct naos_hsm **ret, struct naos_error *err)
{
	naos_autohsm struct naos_hsm *hsm = NULL;
	int rc = prepare(options, &hsm, err);
	if (rc == 0)
		rc = naos_hsm_spawn(hsm, err);
	if (rc == 0)
		*ret = naos_steal(hsm);
	return rc;
}

int naos_hsm_open_direct(const struct naos_hsm_options *options, struct naos_hsm **ret, struct naos_error *err)
{
	naos_autohsm struct naos_hsm *hsm = NULL;
	int rc = prepare(options, &hsm, err);
	if (rc == 0)
		rc = naos_hsm_token_open(hsm->uri, hsm->store, &hsm->direct, err);
	if (rc == 0)
		*ret = naos_steal(hsm);
	return rc;
}

struct naos_hsm *naos_hsm_close(struct naos_hsm *hsm)
{
	int status;
	if (!hsm)
		return NULL;
	for (size_t i = 0; i < hsm->channel_count; i++) {
		naos_close_descriptor(&hsm->channels[i].fd);
		(void)naos_secret_free(hsm->channels[i].request);
		(void)naos_secret_free(hsm->channels[i].answer);
	}
	/* it ends by itself when its sockets are closed, after what it is doing */
	while (hsm->pid > 0 && waitpid(hsm->pid, &status, 0) < 0 && errno == EINTR)
		;
	(void)naos_hsm_token_close(hsm->direct);
	(void)pthread_mutex_destroy(&hsm->lock);
	free(hsm->uri);
	free(hsm->store);
	free(hsm);
	return NULL;
}

void naos_hsm_status(struct naos_hsm *hsm, struct naos_hsm_status *ret)
{
	(void)pthread_mutex_lock(&hsm->lock);
	*ret = (struct naos_hsm_status){ .alive = hsm->direct || !hsm->down, .pid = hsm->pid, .restarts = hsm->restarts };
	for (const struct naos_hsm_job *job = hsm->head; job; job = job->next)
		ret->waiting++;
	(void)pthread_mutex_unlock(&hsm->lock);
}
