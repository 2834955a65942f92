/* The front's side of the HSM: jobs of many threads travel together.
 *
 * A thread puts its jobs in the queue.  Whoever finds a channel free becomes its leader: takes what has gathered, sends it as one
 * frame, waits for the answer and hands out the results.  SPDX-License-Identifier: Apache-2.0 */
#include "keyd/hsm_client.h"

#include <string.h>

/* One waiting thread; lives on its stack. */
struct naos_hsm_waiter {
	pthread_cond_t wake;
	size_t left; /* jobs not done */
};

static void fail_job(struct naos_hsm_job *job, const struct naos_error *why)
{
	job->item->result = naos_error_set(&job->item->error, NAOS_E_KEYMANAGER, "%s", why->message);
	job->lost = true;
}

static void finish_job(struct naos_hsm_job *job)
{
	if (--job->waiter->left == 0)
		(void)pthread_cond_signal(&job->waiter->wake);
}

/* Takes jobs from the queue, as many as fit one frame there and back. */
static struct naos_hsm_job *take_jobs(struct naos_hsm *hsm)
{
	size_t request = NAOS_HSM_FRAME_HEADER_BYTES, answer = NAOS_HSM_FRAME_HEADER_BYTES;
	struct naos_hsm_job *first = hsm->head, *last = NULL, *next = first;
	while (next) {
		request += naos_hsm_request_bytes(next);
		answer += naos_hsm_answer_bytes(next);
		if (last && (request > NAOS_HSM_FRAME_BYTES || answer > NAOS_HSM_FRAME_BYTES))
			break;
		last = next;
		next = next->next;
	}
	last->next = NULL;
	hsm->head = next;
	if (!next)
		hsm->tail = &hsm->head;
	return first;
}

/* One frame there and back; false if the worker is lost. */
static bool transact(struct naos_hsm_channel *channel, struct naos_hsm_job *jobs)
{
	size_t bytes = NAOS_HSM_FRAME_HEADER_BYTES;
	for (const struct naos_hsm_job *job = jobs; job; job = job->next)
		bytes += naos_hsm_request_bytes(job);
	if (naos_hsm_frame_reserve(&channel->request, bytes, NULL) != 0)
		return false;
	struct naos_cursor out = naos_cursor_writer(naos_secret_data(channel->request), naos_secret_bytes(channel->request));
	naos_cursor_put_u32(&out, (uint32_t)(bytes - NAOS_HSM_FRAME_HEADER_BYTES));
	for (const struct naos_hsm_job *job = jobs; job; job = job->next)
		naos_hsm_request_encode(job, &out);
	if (!naos_cursor_ok(&out) || !naos_hsm_frame_send(channel->fd, channel->request, out.position) ||
	    !naos_hsm_frame_receive(channel->fd, &channel->answer, &bytes))
		return false;
	struct naos_cursor in = naos_cursor_reader(naos_secret_view(channel->answer), bytes);
	bool good = true;
	for (struct naos_hsm_job *job = jobs; good && job; job = job->next)
		good = naos_hsm_answer_decode(&in, job);
	naos_wipe(naos_secret_data(channel->request), out.position);
	naos_wipe(naos_secret_data(channel->answer), bytes);
	return good && naos_cursor_at_end(&in);
}

/* The lock is held; it is given up while the frame travels. */
static void lead(struct naos_hsm *hsm, struct naos_hsm_channel *channel)
{
	static const struct naos_error lost = { .code = NAOS_E_KEYMANAGER,
					   .message = "the HSM worker died during this request; it is started again" };
	struct naos_hsm_job *jobs = take_jobs(hsm), *next;
	channel->busy = true;
	hsm->busy++;
	(void)pthread_mutex_unlock(&hsm->lock);
	bool good = transact(channel, jobs);
	(void)pthread_mutex_lock(&hsm->lock);
	channel->busy = false;
	hsm->busy--;
	if (!good) {
		hsm->down = true;
		naos_close_descriptor(&channel->fd);
	}
	for (struct naos_hsm_job *job = jobs; job; job = next) {
		next = job->next;
		if (!good)
			fail_job(job, &lost);
		finish_job(job);
	}
	if (hsm->head) /* someone must lead on */
		(void)pthread_cond_signal(&hsm->head->waiter->wake);
}

/* A worker that died is started again when its last frame is given up.  False: the queue was failed. */
static bool make_worker(struct naos_hsm *hsm)
{
	if (!hsm->down)
		return true;
	if (hsm->busy > 0)
		return false;
	if (naos_now_ns() >= hsm->retry_ns) {
		hsm->restarts++;
		if (naos_hsm_spawn(hsm, &hsm->why) == 0)
			return true;
	}
	struct naos_hsm_job *next;
	for (struct naos_hsm_job *job = hsm->head; job; job = next) {
		next = job->next;
		fail_job(job, &hsm->why);
		finish_job(job);
	}
	hsm->head = NULL;
	hsm->tail = &hsm->head;
	return false;
}

static struct naos_hsm_channel *free_channel(struct naos_hsm *hsm)
{
	for (size_t i = 0; i < hsm->channel_count; i++)
		if (!hsm->channels[i].busy && hsm->channels[i].fd >= 0)
			return &hsm->channels[i];
	return NULL;
}

static void travel(struct naos_hsm *hsm, struct naos_hsm_job *jobs, size_t count)
{
	struct naos_hsm_waiter waiter = { .left = count };
	(void)pthread_cond_init(&waiter.wake, NULL);
	(void)pthread_mutex_lock(&hsm->lock);
	for (size_t i = 0; i < count; i++) {
		jobs[i].waiter = &waiter;
		jobs[i].next = NULL;
		jobs[i].lost = false;
		*hsm->tail = &jobs[i];
		hsm->tail = &jobs[i].next;
	}
	while (waiter.left > 0) {
		struct naos_hsm_channel *channel = hsm->head && make_worker(hsm) ? free_channel(hsm) : NULL;
		if (waiter.left == 0)
			break;
		if (channel)
			lead(hsm, channel);
		else
			(void)pthread_cond_wait(&waiter.wake, &hsm->lock);
	}
	(void)pthread_mutex_unlock(&hsm->lock);
	(void)pthread_cond_destroy(&waiter.wake);
}

/* What can be asked twice without harm. */
static bool may_repeat(const struct naos_hsm_job *job)
{
	return job->lost && job->operation != NAOS_HSM_CREATE && job->operation != NAOS_HSM_DESTROY;
}

void naos_hsm_submit(struct naos_hsm *hsm, struct naos_hsm_job *jobs, size_t count)
{
	if (hsm->direct) {
		for (size_t i = 0; i < count; i++)
			naos_hsm_token_run(hsm->direct, &jobs[i]);
		return;
	}
	travel(hsm, jobs, count);
	for (size_t i = 0; i < count; i++)
		if (may_repeat(&jobs[i]))
			travel(hsm, &jobs[i], 1);
}

static int one(struct naos_hsm *hsm, enum naos_hsm_operation operation, struct naos_hsm_crypt *item, size_t wanted,
	       struct naos_error *err)
{
	struct naos_hsm_job job = { .operation = operation, .item = item, .wanted = (uint32_t)wanted };
	naos_hsm_submit(hsm, &job, 1);
	return item->result ? naos_error_set(err, item->result, "%s", item->error.message) : 0;
}

int naos_hsm_create(struct naos_hsm *hsm, const struct naos_uuid *id, struct naos_error *err)
{
	struct naos_hsm_crypt item = { .key = { .resident = true, .id = *id } };
	return one(hsm, NAOS_HSM_CREATE, &item, 0, err);
}

int naos_hsm_destroy(struct naos_hsm *hsm, const struct naos_uuid *id, struct naos_error *err)
{
	struct naos_hsm_crypt item = { .key = { .resident = true, .id = *id } };
	return one(hsm, NAOS_HSM_DESTROY, &item, 0, err);
}

int naos_hsm_crypt(struct naos_hsm *hsm, struct naos_hsm_crypt *items, size_t count, struct naos_error *err)
{
	naos_autofree struct naos_hsm_job *jobs = count <= NAOS_HSM_MAX_ITEMS ? calloc(count + 1, sizeof(*jobs)) : NULL;
	if (!jobs)
		return naos_error_set(err, count > NAOS_HSM_MAX_ITEMS ? NAOS_E_LIMIT : NAOS_E_NOMEM, "no memory for %zu items", count);
	for (size_t i = 0; i < count; i++) {
		if (items[i].in_bytes > NAOS_HSM_MAX_DATA_BYTES || items[i].associated_bytes > NAOS_HSM_MAX_ASSOCIATED_BYTES)
			return naos_error_set(err, NAOS_E_LIMIT, "at most %zu bytes at once", NAOS_HSM_MAX_DATA_BYTES);
		jobs[i] = (struct naos_hsm_job){ .operation = NAOS_HSM_CRYPT, .item = &items[i] };
	}
	naos_hsm_submit(hsm, jobs, count);
	for (size_t i = 0; i < count; i++)
		if (items[i].result != 0)
			return naos_error_set(err, items[i].result, "%s", items[i].error.message);
	return 0;
}

void naos_hsm_crypt_all(struct naos_hsm *hsm, struct naos_hsm_crypt *const *items, size_t count)
{
	naos_autofree struct naos_hsm_job *jobs = count ? calloc(count, sizeof(*jobs)) : NULL;
	for (size_t i = 0; i < count; i++) {
		if (jobs)
			jobs[i] = (struct naos_hsm_job){ .operation = NAOS_HSM_CRYPT, .item = items[i] };
		else
			items[i]->result = naos_error_set(&items[i]->error, NAOS_E_NOMEM, "no memory for %zu items", count);
	}
	if (jobs)
		naos_hsm_submit(hsm, jobs, count);
}

static int keep(struct naos_hsm *hsm, enum naos_hsm_operation operation, struct naos_hsm_crypt *item, size_t bytes, uint8_t **ret,
		size_t *ret_bytes, struct naos_error *err)
{
	naos_autofree uint8_t *kept = malloc(bytes + NAOS_HSM_GROWTH_BYTES);
	if (!kept)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a kept key");
	if (bytes == 0 || bytes > NAOS_HSM_MAX_VALUE_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "a value of %zu bytes can't be kept: 1 to %zu can", bytes, NAOS_HSM_MAX_VALUE_BYTES);
	item->out = kept;
	int rc = one(hsm, operation, item, bytes, err);
	if (rc == 0) {
		*ret_bytes = item->out_bytes;
		*ret = naos_steal(kept);
	}
	return rc;
}

int naos_hsm_keep(struct naos_hsm *hsm, const struct naos_uuid *id, const struct naos_secret *value, uint8_t **ret, size_t *ret_bytes,
		  struct naos_error *err)
{
	struct naos_hsm_crypt item = { .key.id = *id, .in = naos_secret_view(value), .in_bytes = naos_secret_bytes(value) };
	return keep(hsm, NAOS_HSM_KEEP, &item, item.in_bytes, ret, ret_bytes, err);
}

int naos_hsm_create_kept(struct naos_hsm *hsm, const struct naos_uuid *id, size_t bytes, uint8_t **ret, size_t *ret_bytes,
			 struct naos_error *err)
{
	struct naos_hsm_crypt item = { .key.id = *id };
	return keep(hsm, NAOS_HSM_CREATE_KEPT, &item, bytes, ret, ret_bytes, err);
}

int naos_hsm_release(struct naos_hsm *hsm, const struct naos_hsm_key *key, struct naos_secret **ret, struct naos_error *err)
{
	naos_autosecret struct naos_secret *value = NULL;
	struct naos_hsm_crypt item = { .key = *key };
	int rc = naos_secret_create(key->kept_bytes + NAOS_HSM_GROWTH_BYTES, &value, err);
	if (rc != 0)
		return rc;
	item.out = naos_secret_data(value);
	rc = one(hsm, NAOS_HSM_RELEASE, &item, 0, err);
	if (rc != 0)
		return rc;
	naos_secret_shrink(value, item.out_bytes);
	*ret = naos_steal(value);
	return 0;
}

int naos_hsm_digest(struct naos_hsm *hsm, const struct naos_hsm_key *key, uint8_t ret[static 32], struct naos_error *err)
{
	struct naos_hsm_crypt item = { .key = *key, .out = ret };
	return one(hsm, NAOS_HSM_DIGEST, &item, 0, err);
}

int naos_hsm_random(struct naos_hsm *hsm, void *ret, size_t bytes, struct naos_error *err)
{
	naos_autosecret struct naos_secret *room = NULL;
	if (bytes == 0 || bytes > NAOS_HSM_MAX_RANDOM_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "1 to %d random bytes at once", NAOS_HSM_MAX_RANDOM_BYTES);
	int rc = naos_secret_create(bytes + NAOS_HSM_GROWTH_BYTES, &room, err);
	if (rc != 0)
		return rc;
	struct naos_hsm_crypt item = { .out = naos_secret_data(room) };
	rc = one(hsm, NAOS_HSM_RANDOM, &item, bytes, err);
	if (rc == 0)
		memcpy(ret, naos_secret_view(room), bytes); /* lint-ok: to where the caller wants it */
	return rc;
}
