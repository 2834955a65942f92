/* Messages of the host through the GPU and back: the back end "cuda", and the known answers of a device.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "engine/backend.h"
#include "engine/gpu_inside.h"

#define MOST_TOGETHER 256u
#define ROOM_BYTES ((size_t)8 << 20) /* what is sent together, if one message is not longer */

/* Up, through, down; messages whose data fits `room` bytes of device memory. */
static int round_trip(struct naos_gpu *gpu, struct gpu_lane *lane, bool sealing, struct naos_gcm_message *messages, size_t count,
		      uint8_t *room, struct naos_cuda_segment *segments, bool *ret_touched, struct naos_cuda_reason *reason)
{
	uint64_t at = 0;
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < count; i++) {
		const struct naos_gcm_message *m = &messages[i];
		segments[i] = (struct naos_cuda_segment){ .in = room + at, .out = room + at, .bytes = m->bytes, .associated = m->associated,
							  .associated_bytes = m->associated_bytes };
		gpu_j0(m->nonce, segments[i].j0);
		if (!sealing)
			memcpy(segments[i].tag, m->tag, NAOS_GCM_TAG_BYTES);
		rc = gpu->table->copy(lane->cuda, room + at, m->in, m->bytes, reason);
		at += (m->bytes + 15) & ~(uint64_t)15;
	}
	if (rc == 0)
		rc = gpu->table->run(lane->cuda, sealing, segments, (uint32_t)count, reason);
	int waited = gpu->table->wait(lane->cuda, rc == 0 ? reason : &(struct naos_cuda_reason){ "" });
	rc = rc ? rc : waited;
	*ret_touched = rc == 0;
	for (size_t i = 0; rc == 0 && i < count; i++)
		rc = gpu->table->copy(lane->cuda, messages[i].out, segments[i].out, messages[i].bytes, reason);
	if (rc == 0)
		rc = gpu->table->wait(lane->cuda, reason);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		struct naos_gcm_message *m = &messages[i];
		if (sealing)
			memcpy(m->tag, segments[i].tag, NAOS_GCM_TAG_BYTES);
		else
			naos_gcm_settle(m, segments[i].result == 0);
	}
	return rc;
}

static int reserve_room(struct naos_gpu *gpu, struct gpu_lane *lane, uint64_t bytes, struct naos_error *err)
{
	struct naos_cuda_reason reason = { "" };
	if (lane->room_bytes >= bytes)
		return 0;
	gpu->table->memory_free(gpu->cuda, lane->room, lane->room_bytes);
	lane->room = NULL;
	lane->room_bytes = 0;
	int rc = gpu->table->memory(gpu->cuda, bytes, &lane->room, &reason);
	if (rc != 0)
		return gpu_failed(gpu, rc, &reason, err);
	lane->room_bytes = bytes;
	return 0;
}

int naos_gpu_messages(struct naos_gpu *gpu, const struct naos_gcm_key *key, bool sealing, struct naos_gcm_message *messages,
		      size_t count, size_t *ret_done, struct naos_error *err)
{
	struct naos_cuda_reason reason = { "" };
	struct gpu_lane *lane = NULL;
	uint64_t most = 0, total = 0;
	bool touched = false;
	*ret_done = 0;
	for (size_t i = 0; i < count; i++) {
		most = messages[i].bytes > most ? messages[i].bytes : most;
		total += (messages[i].bytes + 15) & ~(uint64_t)15;
	}
	const uint64_t room_bytes = (most > ROOM_BYTES ? most : ROOM_BYTES) + 16;
	naos_autofree struct naos_cuda_segment *segments = calloc(MOST_TOGETHER, sizeof(*segments));
	if (!segments)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for messages of the GPU");
	int rc = gpu_lane_take(gpu, 16, &lane, err);
	if (rc == 0)
		rc = reserve_room(gpu, lane, room_bytes, err);
	if (rc == 0)
		rc = gpu_lane_key(gpu, lane, key, err);
	for (size_t first = 0, together; rc == 0 && first < count; first += together) {
		uint64_t bytes = 0;
		for (together = 0; first + together < count && together < MOST_TOGETHER; together++) {
			bytes += (messages[first + together].bytes + 15) & ~(uint64_t)15;
			if (together && bytes > room_bytes)
				break;
		}
		rc = round_trip(gpu, lane, sealing, messages + first, together, lane->room, segments, &touched, &reason);
		if (rc == 0)
			*ret_done = first + together;
		else
			rc = gpu_failed(gpu, rc, &reason, err);
		if (rc != 0 && touched)
			rc = naos_error_set(err, NAOS_E_SYSTEM, "the GPU failed while its results were fetched: %s", reason.text);
	}
	if (lane && lane->room) { /* no plaintext stays there */
		(void)gpu->table->zero(lane->cuda, lane->room, total < lane->room_bytes ? total : lane->room_bytes, &reason);
		(void)gpu->table->wait(lane->cuda, &reason);
	}
	gpu_lane_put(gpu, lane);
	return rc;
}

/* --- known answers ------------------------------------------------------------------------------------------------------------ */

static int one_answer(struct naos_gpu *gpu, struct gpu_lane *lane, const struct naos_known_answer *answer, uint8_t *room, bool *ret_right,
		      struct naos_cuda_reason *reason)
{
	struct naos_cuda_segment segment = { .in = room, .out = room, .bytes = answer->bytes, .associated = answer->associated,
					     .associated_bytes = answer->associated_bytes };
	uint8_t *buffer = lane->buffers[0];
	gpu_j0(answer->nonce, segment.j0);
	memcpy(buffer, answer->plain, answer->bytes);
	int rc = gpu->table->keys(lane->cuda, (uint32_t)naos_algorithm_key_bytes(answer->algorithm), answer->key, 1, reason);
	if (rc == 0)
		rc = gpu->table->copy(lane->cuda, room, buffer, answer->bytes, reason);
	if (rc == 0)
		rc = gpu->table->run(lane->cuda, 1, &segment, 1, reason);
	if (rc == 0)
		rc = gpu->table->wait(lane->cuda, reason);
	bool right = memcmp(segment.tag, answer->tag, sizeof(segment.tag)) == 0;
	if (rc == 0)
		rc = gpu->table->run(lane->cuda, 0, &segment, 1, reason);
	if (rc == 0)
		rc = gpu->table->copy(lane->cuda, buffer, room, answer->bytes, reason);
	if (rc == 0)
		rc = gpu->table->wait(lane->cuda, reason);
	*ret_right = right && segment.result == 0 && memcmp(buffer, answer->plain, answer->bytes) == 0;
	return rc;
}

int gpu_selftest(struct naos_gpu *gpu, struct naos_error *err)
{
	struct naos_cuda_reason reason = { "" };
	struct naos_known_answer answer;
	struct gpu_lane *lane = NULL;
	naos_autogpumemory struct naos_gpu_memory *room = NULL;
	bool right = true;
	int rc = naos_gpu_memory_create(gpu, NAOS_KNOWN_ANSWER_BYTES, &room, err);
	if (rc == 0)
		rc = gpu_lane_take(gpu, NAOS_KNOWN_ANSWER_BYTES, &lane, err);
	for (unsigned i = 0; rc == 0 && right && naos_known_answer(i, &answer); i++) {
		rc = one_answer(gpu, lane, &answer, room->data, &right, &reason);
		if (rc != 0)
			rc = gpu_failed(gpu, rc, &reason, err);
		else if (!right)
			rc = naos_error_set(err, NAOS_E_SELFTEST, "the GPU %s computes %s of %zu bytes wrongly: do not use it", gpu->info.name,
					    naos_algorithm_name(answer.algorithm), answer.bytes);
	}
	gpu_lane_put(gpu, lane);
	return rc;
}
