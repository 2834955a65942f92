/* A KMIP message in, its answer out: header, batch, audit.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <time.h>

#include "keyd/call.h"
#include "kmip/reason.h"

#define HIGHEST_VERSION NAOS_KMIP_1_4

struct batch {
	const struct naos_kmip_request *request;
	struct naos_kmip_response_item *items; /* the answers so far */
	struct naos_audit_event *events;
	size_t count, event_count;
};

static int64_t now_ns(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static const char *reason_name(uint32_t reason)
{
	const char *name = naos_kmip_enum_name(NAOS_KMIP_TAG_RESULT_REASON, reason);
	return name ? name : "GeneralFailure";
}

static const char *keep_text(struct naos_call *call, const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *kept = naos_kmip_arena_take(call->arena, 1, bytes);
	return kept ? memcpy(kept, text, bytes) : "";
}

/* The answer of an item and its record.  rc 0: the payload is in the item already. */
static void settle(struct naos_call *call, struct batch *batch, const struct naos_kmip_request_item *in,
		   struct naos_kmip_response_item *out, int rc)
{
	const struct naos_operation *row = naos_operation_find(in->operation);
	out->operation = in->operation;
	out->unique_batch_item_id = in->unique_batch_item_id;
	out->status = rc ? NAOS_KMIP_STATUS_OPERATION_FAILED : NAOS_KMIP_STATUS_SUCCESS;
	out->has_payload = rc == 0;
	if (rc != 0) {
		out->reason = call->reason;
		out->message = naos_kmip_text(keep_text(call, call->message));
		(void)atomic_fetch_add_explicit(&call->keyd->refusals, 1, memory_order_relaxed);
	}
	if (rc == 0 && (!row || row->quiet))
		return;
	batch->events[batch->event_count++] = (struct naos_audit_event){
		.actor = call->peer->identity, .action = row ? row->audit : "key.unknown",
		.object = call->audit_object[0] ? keep_text(call, call->audit_object) : NULL,
		.decision = rc == 0 ? "allowed" : call->audited ? "failed" : "denied",
		.reason = rc == 0 ? NULL : call->audited ? call->audited : reason_name(call->reason), .request_id = call->request_id };
}

static void begin_item(struct naos_call *call)
{
	call->reason = 0;
	call->message[0] = 0;
	call->audited = NULL;
	call->audit_object[0] = 0;
}

/* What is wrong with an item before its operation is looked at. */
static int check_item(struct naos_call *call, const struct naos_kmip_request_item *in)
{
	if (in->reason != 0)
		return naos_call_refuse(call, in->reason, "%.190s", in->problem ? in->problem : "the item can't be read");
	if (in->message_extension && in->message_extension->criticality.present && in->message_extension->criticality.value)
		return naos_call_refuse(call, NAOS_KMIP_REASON_FEATURE_NOT_SUPPORTED, "a critical message extension is not known here");
	return 0;
}

static bool is_crypt(const struct naos_kmip_request_item *in)
{
	return in->reason == 0 && (in->operation == NAOS_KMIP_OPERATION_ENCRYPT || in->operation == NAOS_KMIP_OPERATION_DECRYPT);
}

/* What an item that was prepared and not finished holds. */
static void drop_slots(struct naos_crypt_slot *slots, size_t from, size_t to)
{
	for (size_t i = from; slots && i < to; i++)
		slots[i].stream = naos_stream_free(slots[i].stream);
}

/* A run of Encrypt and Decrypt items from `first`, through the HSM in one go.  Returns how many were answered; *ret_failed says
 * whether one of them failed and the batch must stop behind it. */
static size_t run_crypts(struct naos_call *call, struct batch *batch, size_t first, bool stop, bool *ret_failed)
{
	size_t count = 0, ready = 0, total = batch->request->batch.count;
	while (first + count < total && is_crypt(&batch->request->batch.items[first + count]))
		count++;
	struct naos_crypt_slot *slots = naos_kmip_arena_take(call->arena, count, sizeof(*slots));
	struct naos_hsm_crypt *items = naos_kmip_arena_take(call->arena, count, sizeof(*items));
	bool *bad = naos_kmip_arena_take(call->arena, count, sizeof(*bad));
	for (size_t i = 0; i < count; i++) {
		const struct naos_kmip_request_item *in = &batch->request->batch.items[first + i];
		struct naos_kmip_response_item *out = &batch->items[first + i];
		bool encrypt = in->operation == NAOS_KMIP_OPERATION_ENCRYPT;
		begin_item(call);
		int rc = slots && items && bad ? check_item(call, in)
					       : naos_call_refuse(call, NAOS_KMIP_REASON_GENERAL_FAILURE, "out of memory");
		if (rc == 0)
			rc = naos_crypt_prepare(call, encrypt, encrypt ? &in->payload.encrypt : &in->payload.decrypt, &slots[i]);
		if (rc == 0) {
			if (!slots[i].idle)
				items[ready++] = slots[i].item;
			continue;
		}
		settle(call, batch, in, out, rc);
		if (bad)
			bad[i] = true;
		if (!slots || !items || !bad || stop) {
			count = i + 1; /* nothing behind it is done */
			break;
		}
	}
	if (ready > 0) {
		int ignored = naos_hsm_crypt(call->keyd->hsm, items, ready, NULL); /* each item has its result */
		(void)ignored;
	}
	size_t at = 0;
	for (size_t i = 0; i < count; i++) {
		const struct naos_kmip_request_item *in = &batch->request->batch.items[first + i];
		struct naos_kmip_response_item *out = &batch->items[first + i];
		if (!bad || bad[i]) {
			*ret_failed = true;
			if (stop || !bad) {
				drop_slots(slots, i + 1, count);
				return i + 1;
			}
			continue;
		}
		begin_item(call);
		if (!slots[i].idle)
			slots[i].item = items[at++];
		(void)snprintf(call->audit_object, sizeof(call->audit_object), "%s", slots[i].uid);
		int rc = naos_crypt_finish(call, &slots[i],
					   in->operation == NAOS_KMIP_OPERATION_ENCRYPT ? &out->payload.encrypt : &out->payload.decrypt);
		settle(call, batch, in, out, rc);
		if (rc != 0) {
			*ret_failed = true;
			if (stop) {
				drop_slots(slots, i + 1, count);
				return i + 1;
			}
		}
	}
	return count;
}

static int run_item(struct naos_call *call, const struct naos_kmip_request_item *in, struct naos_kmip_response_item *out)
{
	const struct naos_operation *row = naos_operation_find(in->operation);
	int rc = check_item(call, in);
	if (rc != 0)
		return rc;
	if (!row || call->version < naos_kmip_operation_since(in->operation))
		return naos_call_refuse(call, NAOS_KMIP_REASON_OPERATION_NOT_SUPPORTED, "this operation is not supported here");
	return row->run(call, &in->payload, &out->payload);
}

static void run_batch(struct naos_call *call, struct batch *batch)
{
	/* Undo is done as Stop: what was done stays done, and its item says so */
	bool stop = batch->request->batch_error_continuation != NAOS_KMIP_BATCH_ERROR_CONTINUE, failed = false;
	size_t at = 0, total = batch->request->batch.count;
	while (at < total && !(failed && stop)) {
		const struct naos_kmip_request_item *in = &batch->request->batch.items[at];
		if (is_crypt(in) && call->version >= NAOS_KMIP_1_2) {
			at += run_crypts(call, batch, at, stop, &failed);
			continue;
		}
		begin_item(call);
		int rc = run_item(call, in, &batch->items[at]);
		settle(call, batch, in, &batch->items[at], rc);
		failed |= rc != 0;
		at++;
	}
	batch->count = at;
}

/* An answer with one failed item, for what concerns the whole message. */
static int answer_failure(struct naos_call *call, uint32_t version, enum naos_kmip_result_reason reason, const char *text,
			  struct naos_secret **ret, struct naos_error *err)
{
	const struct naos_kmip_response_item item = { .status = NAOS_KMIP_STATUS_OPERATION_FAILED,
						      .reason = naos_kmip_reason_in_version(reason, version), .message = naos_kmip_text(text) };
	const struct naos_kmip_response response = { .version = version, .time_stamp = naos_kmip_date(call->now), .batch = { &item, 1 } };
	(void)atomic_fetch_add_explicit(&call->keyd->refusals, 1, memory_order_relaxed);
	return naos_kmip_response_write(&response, 0, ret, err);
}

static int refuse_message(struct naos_call *call, uint32_t version, enum naos_kmip_result_reason reason, const char *text,
			  struct naos_secret **ret, struct naos_error *err)
{
	const struct naos_audit_event event = { .actor = call->peer->identity, .action = "kmip.message", .decision = "denied",
						.reason = reason_name(reason), .request_id = call->request_id };
	/* nothing was done: if it can't be recorded, the peer is told the same */
	int rc = naos_audit_append(call->keyd->audit, &event, err);
	return answer_failure(call, version, reason, rc ? "the request can't be recorded" : text, ret, err);
}

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

static int answer_batch(struct naos_call *call, const struct naos_kmip_request *request, struct naos_secret **ret,
			struct naos_error *err)
{
	struct batch batch = { .request = request };
	size_t count = request->batch.count, limit = 0;
	batch.items = naos_kmip_arena_take(call->arena, count, sizeof(*batch.items));
	batch.events = naos_kmip_arena_take(call->arena, count, sizeof(*batch.events));
	if (!batch.items || !batch.events)
		return answer_failure(call, request->version, NAOS_KMIP_REASON_GENERAL_FAILURE, "the request needs too much memory",
				      ret, err);
	run_batch(call, &batch);
	/* durable before the answer */
	if (batch.event_count > 0 && naos_audit_append_many(call->keyd->audit, batch.events, batch.event_count, err) != 0)
		return answer_failure(call, request->version, NAOS_KMIP_REASON_GENERAL_FAILURE, "the request can't be recorded", ret, err);
	if (request->maximum_response_size.present)
		limit = request->maximum_response_size.value > 0 ? (size_t)request->maximum_response_size.value : 1;
	const struct naos_kmip_response response = { .version = request->version, .time_stamp = naos_kmip_date(call->now),
						     .client_correlation = request->version >= NAOS_KMIP_1_4 ? request->client_correlation :
													       (struct naos_kmip_text){ 0 },
						     .batch = { batch.items, batch.count } };
	int rc = naos_kmip_response_write(&response, limit, ret, err);
	if (rc == NAOS_E_LIMIT)
		return answer_failure(call, request->version, NAOS_KMIP_REASON_RESPONSE_TOO_LARGE, "the answer is longer than allowed",
				      ret, err);
	if (rc == NAOS_E_UNSUPPORTED || rc == NAOS_E_USAGE)
		return answer_failure(call, request->version, NAOS_KMIP_REASON_GENERAL_FAILURE,
				      "the answer can't be said in this version of KMIP", ret, err);
	return rc;
}

static int answer_request(struct naos_call *call, const struct naos_kmip_request *request, struct naos_secret **ret,
			  struct naos_error *err)
{
	enum naos_kmip_result_reason reason;
	const char *fault;
	uint64_t count = request->batch.count;
	if (request->version < NAOS_KMIP_1_0 || request->version > HIGHEST_VERSION)
		return refuse_message(call, HIGHEST_VERSION, NAOS_KMIP_REASON_INVALID_MESSAGE,
				      "this protocol version is not supported; versions 1.0 to 1.4 are", ret, err);
	call->version = request->version;
	naos_roles_allowance(call->roles, call->peer->identity, &call->allowance);
	fault = message_fault(call, request, &reason);
	if (fault)
		return refuse_message(call, request->version, reason, fault, ret, err);
	uint64_t burst = call->allowance.burst > call->allowance.rate ? call->allowance.burst : call->allowance.rate;
	if (call->allowance.rate > 0 && !naos_rates_take(call->keyd->rates, call->peer->identity, call->allowance.rate, burst,
							 count < burst ? count : burst, now_ns()))
		return refuse_message(call, request->version, NAOS_KMIP_REASON_SERVER_LIMIT_EXCEEDED,
				      "more requests a second than your role allows; try again later", ret, err);
	(void)atomic_fetch_add_explicit(&call->keyd->items, count, memory_order_relaxed);
	return answer_batch(call, request, ret, err);
}

static void clear_call(struct naos_call *call)
{
	for (size_t i = 0; i < call->secret_count; i++)
		(void)naos_secret_free(call->secrets[i]);
	for (size_t i = 0; i < call->object_count; i++)
		(void)naos_object_free(call->objects[i]);
	free(call->secrets);
	free(call->objects);
}

int naos_keyd_handle(struct naos_keyd *keyd, const struct naos_keyd_peer *peer, const struct naos_secret *message,
		     struct naos_secret **ret_answer, struct naos_error *err)
{
	struct naos_call call = { .keyd = keyd, .peer = peer, .now = time(NULL), .version = HIGHEST_VERSION };
	struct naos_kmip_request request;
	naos_autoarena struct naos_kmip_arena *arena = NULL;
	struct naos_uuid id;
	int rc = naos_kmip_arena_create(NAOS_KMIP_ARENA_BYTES, &arena, err);
	if (rc == 0)
		rc = naos_uuid_random(&id, err);
	if (rc != 0)
		return rc;
	naos_uuid_format(&id, call.request_id);
	call.arena = arena;
	(void)atomic_fetch_add_explicit(&keyd->requests, 1, memory_order_relaxed);
	(void)pthread_rwlock_rdlock(&keyd->roles_lock);
	call.roles = keyd->roles;
	rc = naos_kmip_request_decode(naos_secret_view(message), naos_secret_bytes(message), arena, &request, err);
	if (rc == NAOS_E_NOMEM)
		; /* no answer can be made */
	else if (rc != 0)
		rc = refuse_message(&call, HIGHEST_VERSION, NAOS_KMIP_REASON_INVALID_MESSAGE, "the message can't be read", ret_answer, err);
	else
		rc = answer_request(&call, &request, ret_answer, err);
	(void)pthread_rwlock_unlock(&keyd->roles_lock);
	clear_call(&call);
	return rc;
}
