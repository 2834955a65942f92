/* A KMIP message in, its answer out: header, batch, audit; messages of many connections together.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <time.h>

#include "keyd/batch.h"
#include "kmip/reason.h"

#define HIGHEST_VERSION NAOS_KMIP_1_4

/* A message on its way. */
struct naos_keyd_request {
	struct naos_keyd_peer peer;
	struct naos_call call;
	struct naos_kmip_request message;
	struct naos_batch batch;
	size_t message_bytes;
	bool quick;

	/* the whole message is refused: with these words, or (0) not */
	enum naos_kmip_result_reason refused;
	uint32_t refused_version;
	const char *refusal;

	int result; /* 0: there is an answer */
	struct naos_secret *answer;
	struct naos_error error;
};

static int64_t now_ns(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* --- reading ---------------------------------------------------------------------------------------------------------- */

static void refuse(struct naos_keyd_request *request, uint32_t version, enum naos_kmip_result_reason reason, const char *text)
{
	request->refused = reason;
	request->refused_version = version;
	request->refusal = text;
}

/* Usage Limits are written down before each use. */
static bool uses_limits(struct naos_keyd *keyd, const struct naos_kmip_request *message)
{
	struct naos_kmip_text last = { NULL, 0 };
	for (size_t i = 0; i < message->batch.count; i++) {
		const struct naos_kmip_request_item *item = &message->batch.items[i];
		const struct naos_kmip_text id = item->operation == NAOS_KMIP_OPERATION_ENCRYPT ? item->payload.encrypt.unique_identifier :
												  item->payload.decrypt.unique_identifier;
		if (!id.data || (last.data && last.bytes == id.bytes && memcmp(last.data, id.data, id.bytes) == 0))
			continue;
		last = id;
		if (naos_table_has_limits(keyd->table, id))
			return true;
	}
	return false;
}

static bool is_quick(struct naos_keyd *keyd, const struct naos_keyd_request *request)
{
	return request->message.batch.count <= NAOS_KEYD_QUICK_ITEMS && request->message_bytes <= NAOS_KEYD_QUICK_BYTES &&
	       naos_batch_is_crypts(&request->message) && !uses_limits(keyd, &request->message);
}

/* A UUID that no other request has: the random one of this run, with the request's number in its last seven bytes. */
static void name_request(struct naos_keyd *keyd, char ret[static NAOS_UUID_TEXT_BYTES])
{
	uint64_t number = atomic_fetch_add_explicit(&keyd->requests, 1, memory_order_relaxed);
	struct naos_uuid id = keyd->run_id;
	for (size_t i = 0; i < 7; i++)
		id.bytes[NAOS_UUID_BYTES - 1 - i] ^= (uint8_t)(number >> (8 * i));
	naos_uuid_format(&id, ret);
}

int naos_keyd_request_begin(struct naos_keyd *keyd, const struct naos_keyd_peer *peer, const struct naos_secret *message,
			    struct naos_keyd_request **ret, struct naos_error *err)
{
	struct naos_keyd_request *request = malloc(sizeof(*request));
	if (!request)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a request");
	*request = (struct naos_keyd_request){ .peer = *peer, .message_bytes = naos_secret_bytes(message) };
	request->call = (struct naos_call){ .keyd = keyd, .peer = &request->peer, .now = time(NULL), .version = HIGHEST_VERSION };
	int rc = naos_kmip_arena_create(NAOS_KMIP_ARENA_BYTES, &request->call.arena, err);
	if (rc == 0) {
		name_request(keyd, request->call.request_id);
		rc = naos_kmip_request_decode(naos_secret_view(message), request->message_bytes, request->call.arena, &request->message,
					      err);
		if (rc == 0)
			request->quick = is_quick(keyd, request);
		else if (rc != NAOS_E_NOMEM)
			refuse(request, HIGHEST_VERSION, NAOS_KMIP_REASON_INVALID_MESSAGE, "the message can't be read");
		if (rc != NAOS_E_NOMEM)
			rc = 0;
	}
	if (rc != 0)
		(void)naos_keyd_request_end(request, NULL, NULL);
	else
		*ret = request;
	return rc;
}

bool naos_keyd_request_quick(const struct naos_keyd_request *request)
{
	return request->quick;
}

size_t naos_keyd_request_items(const struct naos_keyd_request *request)
{
	return request->message.batch.count;
}

/* --- judging ---------------------------------------------------------------------------------------------------------- */

/* Why a whole message is refused, or NULL. */
static const char *message_fault(const struct naos_call *call, const struct naos_kmip_request *request,
				 enum naos_kmip_result_reason *reason)
{
	*reason = NAOS_KMIP_REASON_INVALID_MESSAGE;
	if (!call->allowance.known) {
		*reason = NAOS_KMIP_REASON_PERMISSION_DENIED;
		return "this identity has no role here";
	}
	if (request->time_stamp.present && (request->time_stamp.unix_s < call->now - NAOS_KEYD_CLOCK_SKEW_S ||
					    request->time_stamp.unix_s > call->now + NAOS_KEYD_CLOCK_SKEW_S))
		return "the time stamp of the request is more than 5 minutes off: check the clocks";
	if (request->batch.count == 0)
		return "the request has no batch item";
	return NULL;
}

/* Version, role, rate; then the items get their room. */
static void judge(struct naos_keyd_request *request)
{
	struct naos_call *call = &request->call;
	const struct naos_kmip_request *message = &request->message;
	enum naos_kmip_result_reason reason;
	if (request->refused)
		return;
	if (message->version < NAOS_KMIP_1_0 || message->version > HIGHEST_VERSION) {
		refuse(request, HIGHEST_VERSION, NAOS_KMIP_REASON_INVALID_MESSAGE,
		       "this protocol version is not supported; versions 1.0 to 1.4 are");
		return;
	}
	call->version = message->version;
	naos_roles_allowance(call->roles, call->peer->identity, &call->allowance);
	const char *fault = message_fault(call, message, &reason);
	uint64_t count = message->batch.count, rate = call->allowance.rate;
	uint64_t burst = call->allowance.burst > rate ? call->allowance.burst : rate;
	if (!fault && rate > 0 &&
	    !naos_rates_take(call->keyd->rates, call->peer->identity, rate, burst, count < burst ? count : burst, now_ns())) {
		reason = NAOS_KMIP_REASON_SERVER_LIMIT_EXCEEDED;
		fault = "more requests a second than your role allows; try again later";
	}
	if (fault) {
		refuse(request, message->version, reason, fault);
		return;
	}
	(void)atomic_fetch_add_explicit(&call->keyd->items, count, memory_order_relaxed);
	if (naos_batch_open(call, message, &request->batch) != 0)
		refuse(request, message->version, NAOS_KMIP_REASON_GENERAL_FAILURE, "the request needs too much memory");
}

/* --- doing ------------------------------------------------------------------------------------------------------------ */

/* What quick messages have for the HSM goes there in one go; others take their time one after the other. */
static void work(struct naos_keyd *keyd, struct naos_keyd_request *const *requests, size_t count)
{
	size_t ready = 0, at = 0;
	for (size_t i = 0; i < count; i++) {
		if (requests[i]->refused)
			continue;
		if (requests[i]->quick)
			naos_batch_begin_crypts(&requests[i]->call, &requests[i]->batch);
		else
			naos_batch_run(&requests[i]->call, &requests[i]->batch);
		ready += requests[i]->batch.run.ready * requests[i]->quick;
	}
	naos_autofree struct naos_hsm_crypt **items = ready ? calloc(ready, sizeof(struct naos_hsm_crypt *)) : NULL;
	for (size_t i = 0; i < count; i++) {
		if (requests[i]->refused || !requests[i]->quick)
			continue;
		naos_batch_crypts(&requests[i]->batch, items ? items + at : NULL);
		at += requests[i]->batch.run.ready;
	}
	if (items)
		naos_hsm_crypt_all(keyd->hsm, items, ready);
	for (size_t i = 0; i < count; i++)
		if (!requests[i]->refused && requests[i]->quick)
			naos_batch_finish_crypts(&requests[i]->call, &requests[i]->batch);
}

/* The records of all, durable before the first answer leaves. */
static int record(struct naos_keyd *keyd, struct naos_keyd_request *const *requests, size_t count, struct naos_error *err)
{
	size_t total = 0, at = 0;
	for (size_t i = 0; i < count; i++)
		total += requests[i]->refused ? 1 : requests[i]->batch.event_count;
	if (total == 0)
		return 0;
	naos_autofree struct naos_audit_event *events = calloc(total, sizeof(*events));
	if (!events)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for audit records");
	for (size_t i = 0; i < count; i++) {
		const struct naos_batch *batch = &requests[i]->batch;
		if (requests[i]->refused)
			events[at++] = (struct naos_audit_event){ .actor = requests[i]->peer.identity, .action = "kmip.message",
								  .decision = "denied",
								  .reason = naos_batch_reason_name(requests[i]->refused),
								  .request_id = requests[i]->call.request_id };
		else if (batch->event_count > 0)
			memcpy(events + at, batch->events, batch->event_count * sizeof(*events));
		at += requests[i]->refused ? 0 : batch->event_count;
	}
	return naos_audit_append_many(keyd->audit, events, total, err);
}

/* --- answering -------------------------------------------------------------------------------------------------------- */

/* An answer with one failed item, for what concerns the whole message. */
static int answer_failure(struct naos_keyd_request *request, uint32_t version, enum naos_kmip_result_reason reason, const char *text)
{
	const struct naos_kmip_response_item item = { .status = NAOS_KMIP_STATUS_OPERATION_FAILED,
						      .reason = naos_kmip_reason_in_version(reason, version), .message = naos_kmip_text(text) };
	const struct naos_kmip_response response = { .version = version, .time_stamp = naos_kmip_date(request->call.now),
						     .batch = { &item, 1 } };
	(void)atomic_fetch_add_explicit(&request->call.keyd->refusals, 1, memory_order_relaxed);
	return naos_kmip_response_write(&response, 0, &request->answer, &request->error);
}

static int answer_batch(struct naos_keyd_request *request)
{
	const struct naos_kmip_request *message = &request->message;
	size_t limit = 0;
	if (message->maximum_response_size.present)
		limit = message->maximum_response_size.value > 0 ? (size_t)message->maximum_response_size.value : 1;
	const struct naos_kmip_response response = { .version = message->version, .time_stamp = naos_kmip_date(request->call.now),
						     .client_correlation = message->version >= NAOS_KMIP_1_4 ? message->client_correlation :
													       (struct naos_kmip_text){ 0 },
						     .batch = { request->batch.items, request->batch.count } };
	int rc = naos_kmip_response_write(&response, limit, &request->answer, &request->error);
	if (rc == NAOS_E_LIMIT)
		return answer_failure(request, message->version, NAOS_KMIP_REASON_RESPONSE_TOO_LARGE,
				      "the answer is longer than allowed");
	if (rc == NAOS_E_UNSUPPORTED || rc == NAOS_E_USAGE)
		return answer_failure(request, message->version, NAOS_KMIP_REASON_GENERAL_FAILURE,
				      "the answer can't be said in this version of KMIP");
	return rc;
}

/* What can't be recorded is not told: its peer learns no more than that. */
static int answer(struct naos_keyd_request *request, bool recorded)
{
	static const char unrecorded[] = "the request can't be recorded";
	if (request->refused)
		return answer_failure(request, request->refused_version, request->refused, recorded ? request->refusal : unrecorded);
	return recorded ? answer_batch(request) :
			  answer_failure(request, request->message.version, NAOS_KMIP_REASON_GENERAL_FAILURE, unrecorded);
}

void naos_keyd_requests_run(struct naos_keyd *keyd, struct naos_keyd_request *const *requests, size_t count)
{
	(void)pthread_rwlock_rdlock(&keyd->roles_lock);
	for (size_t i = 0; i < count; i++) {
		requests[i]->call.roles = keyd->roles;
		judge(requests[i]);
	}
	work(keyd, requests, count);
	bool recorded = record(keyd, requests, count, NULL) == 0;
	(void)pthread_rwlock_unlock(&keyd->roles_lock);
	for (size_t i = 0; i < count; i++)
		requests[i]->result = answer(requests[i], recorded);
}

int naos_keyd_request_end(struct naos_keyd_request *request, struct naos_secret **ret_answer, struct naos_error *err)
{
	struct naos_call *call = &request->call;
	int rc = request->result;
	if (rc == 0 && ret_answer)
		*ret_answer = naos_steal(request->answer);
	else if (rc != 0)
		(void)naos_error_set(err, rc, "%s", request->error.message);
	(void)naos_secret_free(request->answer);
	for (size_t i = 0; i < call->secret_count; i++)
		(void)naos_secret_free(call->secrets[i]);
	for (size_t i = 0; i < call->object_count; i++)
		(void)naos_object_free(call->objects[i]);
	free(call->secrets);
	free(call->objects);
	(void)naos_kmip_arena_free(call->arena);
	free(request);
	return rc;
}

int naos_keyd_handle(struct naos_keyd *keyd, const struct naos_keyd_peer *peer, const struct naos_secret *message,
		     struct naos_secret **ret_answer, struct naos_error *err)
{
	struct naos_keyd_request *request;
	int rc = naos_keyd_request_begin(keyd, peer, message, &request, err);
	if (rc != 0)
		return rc;
	naos_keyd_requests_run(keyd, &request, 1);
	return naos_keyd_request_end(request, ret_answer, err);
}
