/* What the files of a transfer share.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_TRANSFER_INSIDE_H
#define NAOS_SEAL_TRANSFER_INSIDE_H

#include "seal/copy.h"
#include "seal/draft.h"
#include "seal/mirror.h"
#include "seal/publish.h"
#include "seal/transfer.h"

struct naos_transfer_worker {
	struct naos_transfer_run *run;
	struct naos_copy_buffer *buffer; /* made when first needed */
	struct naos_publish_batch batch;
};

struct naos_transfer_run {
	const struct naos_transfer *transfer;
	const struct naos_walk_visitor *visitor;
	struct naos_tally *tally;
	struct naos_mirror mirror;
	struct naos_transfer_worker *workers;
};

/* transfer_file.c: one regular file.  What is copied is counted when its batch is published. */
int naos_transfer_file(struct naos_transfer_worker *worker, const struct naos_walk_item *item, const struct naos_place *place,
		       struct naos_error *err) naos_must_check;
/* What the batch of a worker calls in the end. */
void naos_transfer_published(void *worker, void *pending, const struct naos_error *failure);
/* A pipe or device to a sealed file; a sealed file to standard output. */
int naos_transfer_stream(struct naos_transfer_worker *worker, int from, const char *name, const struct naos_place *place,
			 struct naos_error *err) naos_must_check;
int naos_transfer_to_stream(struct naos_transfer_worker *worker, const char *source, int to,
			    struct naos_error *err) naos_must_check;

#endif
