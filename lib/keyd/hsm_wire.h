/* What travels between the key manager's front and its HSM worker: frames of records over a stream socket, little-endian.
 * A frame is its length (u32, of all that follows) and its records; the answer is a frame with as many records in the same order.
 * Front and worker are one program, so there is one version only.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_HSM_WIRE_H
#define NAOS_KEYD_HSM_WIRE_H

#include "base/cursor.h"
#include "keyd/hsm.h"

enum naos_hsm_operation {
	NAOS_HSM_HELLO = 1, /* associated: address of the token; in: path of the store; encrypt: sockets stay allowed */
	NAOS_HSM_CREATE,
	NAOS_HSM_DESTROY,
	NAOS_HSM_CRYPT,
	NAOS_HSM_KEEP,        /* in: the value; out: kept */
	NAOS_HSM_RELEASE,     /* out: the value */
	NAOS_HSM_CREATE_KEPT, /* wanted: bytes of the value; out: kept */
	NAOS_HSM_DIGEST,      /* out: 32 bytes */
	NAOS_HSM_RANDOM,      /* wanted: bytes; out */
	NAOS_HSM_OPERATIONS,
};

/* One operation; what it needs and gives stands in `item`. */
struct naos_hsm_job {
	enum naos_hsm_operation operation;
	struct naos_hsm_crypt *item;
	uint32_t wanted;
	/* inside the front: where it waits */
	struct naos_hsm_job *next;
	struct naos_hsm_waiter *waiter;
	bool lost; /* the worker died meanwhile */
};

/* A frame fits one secret. */
#define NAOS_HSM_FRAME_BYTES NAOS_SECRET_MAX_BYTES
#define NAOS_HSM_FRAME_HEADER_BYTES 4

/* Bytes of a record and, at most, of its answer; room for the output. */
size_t naos_hsm_request_bytes(const struct naos_hsm_job *job);
size_t naos_hsm_answer_bytes(const struct naos_hsm_job *job);
size_t naos_hsm_output_bytes(const struct naos_hsm_job *job);

void naos_hsm_request_encode(const struct naos_hsm_job *job, struct naos_cursor *out);
/* item's pointers then point into the frame; false if it is malformed. */
bool naos_hsm_request_decode(struct naos_cursor *in, struct naos_hsm_job *ret, struct naos_hsm_crypt *ret_item) naos_must_check;
/* The output is made in place: naos_hsm_answer_output says where; then the answer is encoded around it. */
uint8_t *naos_hsm_answer_output(const struct naos_hsm_job *job, struct naos_cursor *out);
void naos_hsm_answer_encode(const struct naos_hsm_job *job, struct naos_cursor *out);
/* Into job->item, its output to item->out. */
bool naos_hsm_answer_decode(struct naos_cursor *in, struct naos_hsm_job *job) naos_must_check;

/* A whole frame, content only; false at the end of the stream, a time limit or an error.  The secret grows as needed. */
bool naos_hsm_frame_send(int fd, const struct naos_secret *frame, size_t bytes) naos_must_check;
bool naos_hsm_frame_receive(int fd, struct naos_secret **frame, size_t *ret_bytes) naos_must_check;
/* Makes the secret at least this long. */
int naos_hsm_frame_reserve(struct naos_secret **frame, size_t bytes, struct naos_error *err) naos_must_check;

#endif
