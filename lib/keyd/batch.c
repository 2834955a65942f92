/* The items of a message: run, answered, recorded.  SPDX-License-Identifier: Apache-2.0 */
#include "keyd/batch.h"

#include <string.h>

#include "kmip/reason.h"

const char *naos_batch_reason_name(uint32_t reason)
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

/* The answer of an item and its record.  rc 0: the payload is in the item already.  object: what it was about, valid as long as the
 * call; NULL: nothing. */
static void settle(struct naos_call *call, struct naos_batch *batch, size_t at, const char *object, int rc)
{
	const struct naos_kmip_request_item *in = &batch->request->batch.items[at];
	struct naos_kmip_response_item *out = &batch->items[at];
	const struct naos_operation *row = naos_operation_find(in->operation);
	out->operation = in->operation;
	out->unique_batch_item_id = in->unique_batch_item_id;
	out->status = rc ? NAOS_KMIP_STATUS_OPERATION_FAILED : NAOS_KMIP_STATUS_SUCCESS;
	out->has_payload = rc == 0;
	if (rc != 0) {
		batch->failed = true;
		out->reason = call->reason;
		out->message = naos_kmip_text(keep_text(call, call->message));
		(void)atomic_fetch_add_explicit(&call->keyd->refusals, 1, memory_order_relaxed);
	}
	if (rc == 0 && (!row || row->quiet))
		return;
	batch->events[batch->event_count++] = (struct naos_audit_event){
		.actor = call->peer->identity, .action = row ? row->audit : "key.unknown", .object = object,
		.decision = rc == 0 ? "allowed" : call->audited ? "failed" : "denied",
		.reason = rc == 0 ? NULL : call->audited ? call->audited : naos_batch_reason_name(call->reason),
		.request_id = call->request_id };
}

static void begin_item(struct naos_call *call)
{
	call->reason = 0;
	call->message[0] = 0;
	call->audited = NULL;
	call->audit_object[0] = 0;
}

/* The object of the item at work, kept for its record. */
static const char *keep_object(struct naos_call *call)
{
	return call->audit_object[0] ? keep_text(call, call->audit_object) : NULL;
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

/* --- Encrypt and Decrypt ---------------------------------------------------------------------------------------------- */

static int prepare(struct naos_call *call, const struct naos_kmip_request_item *in, struct naos_crypt_slot *slot)
{
	bool encrypt = in->operation == NAOS_KMIP_OPERATION_ENCRYPT;
	int rc = check_item(call, in);
	return rc ? rc : naos_crypt_prepare(call, encrypt, encrypt ? &in->payload.encrypt : &in->payload.decrypt, slot);
}

/* Prepares the items from run.first on that are Encrypt or Decrypt. */
static void begin_run(struct naos_call *call, struct naos_batch *batch)
{
	struct naos_crypt_run *run = &batch->run;
	const struct naos_kmip_request_item *items = batch->request->batch.items;
	size_t total = batch->request->batch.count;
	while (run->first + run->count < total && is_crypt(&items[run->first + run->count]))
		run->count++;
	run->slots = naos_kmip_arena_take(call->arena, run->count, sizeof(*run->slots));
	run->bad = naos_kmip_arena_take(call->arena, run->count, sizeof(*run->bad));
	naos_call_remember(call, true); /* a run sees each of its keys as it is now */
	for (size_t i = 0; i < run->count; i++) {
		bool room = run->slots && run->bad;
		begin_item(call);
		int rc = room ? prepare(call, &items[run->first + i], &run->slots[i]) :
				naos_call_refuse(call, NAOS_KMIP_REASON_GENERAL_FAILURE, "out of memory");
		if (rc == 0) {
			run->ready += !run->slots[i].idle;
			continue;
		}
		settle(call, batch, run->first + i, keep_object(call), rc);
		if (room)
			run->bad[i] = true;
		if (!room || batch->stop)
			run->count = i + 1; /* nothing behind it is done */
	}
	naos_call_remember(call, false);
}

void naos_batch_crypts(const struct naos_batch *batch, struct naos_hsm_crypt **items)
{
	const struct naos_crypt_run *run = &batch->run;
	for (size_t i = 0; run->slots && run->bad && i < run->count; i++) {
		struct naos_hsm_crypt *item = &run->slots[i].item;
		if (run->bad[i] || run->slots[i].idle)
			continue;
		if (items)
			*items++ = item;
		else
			item->result = naos_error_set(&item->error, NAOS_E_NOMEM, "no memory for a request to the HSM");
	}
}

/* What an item that was prepared and not finished holds. */
static void drop_slots(struct naos_crypt_slot *slots, size_t from, size_t to)
{
	for (size_t i = from; slots && i < to; i++)
		slots[i].stream = naos_stream_free(slots[i].stream);
}

/* Returns how many items were answered. */
static size_t finish_run(struct naos_call *call, struct naos_batch *batch)
{
	struct naos_crypt_run *run = &batch->run;
	for (size_t i = 0; i < run->count; i++) {
		bool failed = !run->bad || run->bad[i];
		if (!failed) {
			struct naos_kmip_response_item *out = &batch->items[run->first + i];
			bool encrypt = batch->request->batch.items[run->first + i].operation == NAOS_KMIP_OPERATION_ENCRYPT;
			begin_item(call);
			int rc = naos_crypt_finish(call, &run->slots[i], encrypt ? &out->payload.encrypt : &out->payload.decrypt);
			settle(call, batch, run->first + i, run->slots[i].uid, rc);
			failed = rc != 0;
		}
		if (failed && (batch->stop || !run->bad)) {
			drop_slots(run->slots, i + 1, run->count);
			return i + 1;
		}
	}
	return run->count;
}

void naos_batch_begin_crypts(struct naos_call *call, struct naos_batch *batch)
{
	batch->run = (struct naos_crypt_run){ .first = 0 };
	begin_run(call, batch);
}

void naos_batch_finish_crypts(struct naos_call *call, struct naos_batch *batch)
{
	batch->count = finish_run(call, batch);
}

/* A run inside a message of other operations, through the HSM in one go.  Returns how many items were answered. */
static size_t run_crypts(struct naos_call *call, struct naos_batch *batch, size_t first)
{
	batch->run = (struct naos_crypt_run){ .first = first };
	begin_run(call, batch);
	struct naos_hsm_crypt **items = naos_kmip_arena_take(call->arena, batch->run.ready + 1, sizeof(struct naos_hsm_crypt *));
	naos_batch_crypts(batch, items);
	if (items)
		naos_hsm_crypt_all(call->keyd->hsm, items, batch->run.ready);
	return finish_run(call, batch);
}

/* --- all items -------------------------------------------------------------------------------------------------------- */

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

int naos_batch_open(struct naos_call *call, const struct naos_kmip_request *request, struct naos_batch *ret)
{
	struct naos_batch batch = { .request = request };
	/* Undo is done as Stop: what was done stays done, and its item says so */
	batch.stop = request->batch_error_continuation != NAOS_KMIP_BATCH_ERROR_CONTINUE;
	batch.items = naos_kmip_arena_take(call->arena, request->batch.count, sizeof(*batch.items));
	batch.events = naos_kmip_arena_take(call->arena, request->batch.count, sizeof(*batch.events));
	if (!batch.items || !batch.events)
		return -1;
	*ret = batch;
	return 0;
}

void naos_batch_run(struct naos_call *call, struct naos_batch *batch)
{
	size_t at = 0, total = batch->request->batch.count;
	while (at < total && !(batch->failed && batch->stop)) {
		const struct naos_kmip_request_item *in = &batch->request->batch.items[at];
		if (is_crypt(in) && call->version >= NAOS_KMIP_1_2) {
			at += run_crypts(call, batch, at);
			continue;
		}
		begin_item(call);
		int rc = run_item(call, in, &batch->items[at]);
		settle(call, batch, at, keep_object(call), rc);
		at++;
	}
	batch->count = at;
}

bool naos_batch_is_crypts(const struct naos_kmip_request *request)
{
	for (size_t i = 0; i < request->batch.count; i++)
		if (!is_crypt(&request->batch.items[i]))
			return false;
	return request->version >= NAOS_KMIP_1_2 && request->batch.count > 0;
}
