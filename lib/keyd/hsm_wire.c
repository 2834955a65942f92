/* Frames and records between front and HSM worker.  SPDX-License-Identifier: Apache-2.0 */
#include "keyd/hsm_wire.h"

#include <string.h>
#include <sys/socket.h>

#define REQUEST_BYTES (60 + NAOS_HSM_MAX_IV_BYTES) /* without what follows it */
#define ANSWER_BYTES (32 + NAOS_HSM_MAX_IV_BYTES)
#define FIRST_FRAME_BYTES ((size_t)16 << 10)

size_t naos_hsm_request_bytes(const struct naos_hsm_job *job)
{
	return REQUEST_BYTES + job->item->key.kept_bytes + job->item->associated_bytes + job->item->in_bytes;
}

size_t naos_hsm_output_bytes(const struct naos_hsm_job *job)
{
	switch (job->operation) {
	case NAOS_HSM_CRYPT:
	case NAOS_HSM_KEEP:
		return job->item->in_bytes + NAOS_HSM_GROWTH_BYTES;
	case NAOS_HSM_RELEASE:
		return job->item->key.kept_bytes;
	case NAOS_HSM_CREATE_KEPT:
	case NAOS_HSM_RANDOM:
		return job->wanted + NAOS_HSM_GROWTH_BYTES;
	case NAOS_HSM_DIGEST:
		return 32;
	default:
		return 0;
	}
}

size_t naos_hsm_answer_bytes(const struct naos_hsm_job *job)
{
	size_t output = naos_hsm_output_bytes(job);
	return ANSWER_BYTES + (output > NAOS_ERROR_MESSAGE_BYTES ? output : NAOS_ERROR_MESSAGE_BYTES);
}

void naos_hsm_request_encode(const struct naos_hsm_job *job, struct naos_cursor *out)
{
	const struct naos_hsm_crypt *item = job->item;
	naos_cursor_put_u8(out, (uint8_t)job->operation);
	naos_cursor_put_u8(out, item->encrypt);
	naos_cursor_put_u8(out, (uint8_t)item->mode);
	naos_cursor_put_u8(out, item->key.resident);
	naos_cursor_put_u8(out, (uint8_t)item->iv_bytes);
	naos_cursor_put_u8(out, (uint8_t)item->tag_bytes);
	naos_cursor_put_zero(out, 2);
	naos_cursor_put(out, item->key.id.bytes, sizeof(item->key.id.bytes));
	naos_cursor_put(out, item->iv, sizeof(item->iv));
	naos_cursor_put(out, item->tag, sizeof(item->tag));
	naos_cursor_put_u32(out, (uint32_t)item->key.kept_bytes);
	naos_cursor_put_u32(out, (uint32_t)item->associated_bytes);
	naos_cursor_put_u32(out, (uint32_t)item->in_bytes);
	naos_cursor_put_u32(out, job->wanted);
	naos_cursor_put_zero(out, 4);
	naos_cursor_put(out, item->key.kept, item->key.kept_bytes);
	naos_cursor_put(out, item->associated, item->associated_bytes);
	naos_cursor_put(out, item->in, item->in_bytes);
}

bool naos_hsm_request_decode(struct naos_cursor *in, struct naos_hsm_job *ret, struct naos_hsm_crypt *ret_item)
{
	struct naos_hsm_crypt item = { .result = 0 };
	struct naos_hsm_job job = { .operation = (enum naos_hsm_operation)naos_cursor_get_u8(in), .item = ret_item };
	item.encrypt = naos_cursor_get_u8(in) != 0;
	item.mode = (enum naos_hsm_mode)naos_cursor_get_u8(in);
	item.key.resident = naos_cursor_get_u8(in) != 0;
	item.iv_bytes = naos_cursor_get_u8(in);
	item.tag_bytes = naos_cursor_get_u8(in);
	naos_cursor_get_zero(in, 2);
	naos_cursor_get(in, item.key.id.bytes, sizeof(item.key.id.bytes));
	naos_cursor_get(in, item.iv, sizeof(item.iv));
	naos_cursor_get(in, item.tag, sizeof(item.tag));
	item.key.kept_bytes = naos_cursor_get_u32(in);
	item.associated_bytes = naos_cursor_get_u32(in);
	item.in_bytes = naos_cursor_get_u32(in);
	job.wanted = naos_cursor_get_u32(in);
	naos_cursor_get_zero(in, 4);
	item.key.kept = naos_cursor_get_view(in, item.key.kept_bytes);
	item.associated = naos_cursor_get_view(in, item.associated_bytes);
	item.in = naos_cursor_get_view(in, item.in_bytes);
	if (!naos_cursor_ok(in) || job.operation < NAOS_HSM_HELLO || job.operation >= NAOS_HSM_OPERATIONS ||
	    item.mode > NAOS_HSM_KEY_WRAP || item.iv_bytes > sizeof(item.iv) || item.tag_bytes > sizeof(item.tag) ||
	    item.in_bytes > NAOS_HSM_MAX_DATA_BYTES || item.associated_bytes > NAOS_HSM_MAX_ASSOCIATED_BYTES ||
	    item.key.kept_bytes > NAOS_HSM_MAX_VALUE_BYTES + NAOS_HSM_GROWTH_BYTES || job.wanted > NAOS_HSM_MAX_VALUE_BYTES)
		return false;
	*ret_item = item;
	*ret = job;
	return true;
}

uint8_t *naos_hsm_answer_output(const struct naos_hsm_job *job, struct naos_cursor *out)
{
	size_t left = naos_cursor_left(out);
	return left < ANSWER_BYTES + naos_hsm_output_bytes(job) ? NULL : out->data + out->position + ANSWER_BYTES;
}

void naos_hsm_answer_encode(const struct naos_hsm_job *job, struct naos_cursor *out)
{
	const struct naos_hsm_crypt *item = job->item;
	size_t message_bytes = item->result ? strnlen(item->error.message, sizeof(item->error.message)) : 0;
	size_t out_bytes = item->result ? 0 : item->out_bytes;
	naos_cursor_put_u32(out, (uint32_t)item->result);
	naos_cursor_put_u32(out, (uint32_t)message_bytes);
	naos_cursor_put_u32(out, (uint32_t)out_bytes);
	naos_cursor_put_u8(out, (uint8_t)item->iv_bytes);
	naos_cursor_put_u8(out, (uint8_t)item->tag_bytes);
	naos_cursor_put_zero(out, 2);
	naos_cursor_put(out, item->iv, sizeof(item->iv));
	naos_cursor_put(out, item->tag, sizeof(item->tag));
	if (item->result)
		naos_cursor_put(out, item->error.message, message_bytes);
	else
		(void)naos_cursor_get_view(out, out_bytes); /* is there already */
}

bool naos_hsm_answer_decode(struct naos_cursor *in, struct naos_hsm_job *job)
{
	struct naos_hsm_crypt *item = job->item;
	int32_t result = (int32_t)naos_cursor_get_u32(in);
	size_t message_bytes = naos_cursor_get_u32(in), out_bytes = naos_cursor_get_u32(in);
	size_t iv_bytes = naos_cursor_get_u8(in), tag_bytes = naos_cursor_get_u8(in);
	naos_cursor_get_zero(in, 2);
	naos_cursor_get(in, item->iv, sizeof(item->iv));
	naos_cursor_get(in, item->tag, sizeof(item->tag));
	const uint8_t *message = naos_cursor_get_view(in, message_bytes), *output = naos_cursor_get_view(in, out_bytes);
	if (!naos_cursor_ok(in) || out_bytes > naos_hsm_output_bytes(job) || message_bytes >= NAOS_ERROR_MESSAGE_BYTES ||
	    iv_bytes > sizeof(item->iv) || tag_bytes > sizeof(item->tag))
		return false;
	item->result = result;
	item->iv_bytes = iv_bytes;
	item->tag_bytes = tag_bytes;
	item->out_bytes = out_bytes;
	if (result)
		(void)naos_error_set(&item->error, result, "%.*s", (int)message_bytes, (const char *)message);
	if (out_bytes > 0)
		memcpy(item->out, output, out_bytes);
	return true;
}

int naos_hsm_frame_reserve(struct naos_secret **frame, size_t bytes, struct naos_error *err)
{
	size_t wanted = *frame ? naos_secret_bytes(*frame) : FIRST_FRAME_BYTES;
	if (*frame && wanted >= bytes)
		return 0;
	while (wanted < bytes)
		wanted *= 2;
	*frame = naos_secret_free(*frame);
	return naos_secret_create(wanted < NAOS_HSM_FRAME_BYTES ? wanted : NAOS_HSM_FRAME_BYTES, frame, err);
}

static bool transfer(int fd, uint8_t *data, size_t bytes, bool sending)
{
	while (bytes > 0) {
		ssize_t done = sending ? send(fd, data, bytes, MSG_NOSIGNAL) : recv(fd, data, bytes, 0);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return false;
		data += done;
		bytes -= (size_t)done;
	}
	return true;
}

bool naos_hsm_frame_send(int fd, const struct naos_secret *frame, size_t bytes)
{
	/* the length was put in front by the caller: one write */
	return transfer(fd, (uint8_t *)naos_secret_view(frame), bytes, true);
}

bool naos_hsm_frame_receive(int fd, struct naos_secret **frame, size_t *ret_bytes)
{
	uint8_t head[NAOS_HSM_FRAME_HEADER_BYTES];
	if (!transfer(fd, head, sizeof(head), false))
		return false;
	struct naos_cursor in = naos_cursor_reader(head, sizeof(head));
	size_t bytes = naos_cursor_get_u32(&in);
	if (bytes == 0 || bytes > NAOS_HSM_FRAME_BYTES - NAOS_HSM_FRAME_HEADER_BYTES || naos_hsm_frame_reserve(frame, bytes, NULL) != 0 ||
	    !transfer(fd, naos_secret_data(*frame), bytes, false))
		return false;
	*ret_bytes = bytes;
	return true;
}
