/* The numbers of /metrics and what /healthz says.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_METRICS_H
#define NAOS_KEYD_METRICS_H

#include "front.h"

struct evbuffer;

/* Where the numbers come from; all borrowed. */
struct metrics_source {
	struct front *front;
	struct naos_hsm *hsm;
	struct naos_keyd *keyd;
	const char *database, *audit; /* paths, for the room that is left on their disks; audit may be "" */
};

void metrics_write(struct evbuffer *out, const struct metrics_source *source);
/* What keeps it from serving, in one sentence; NULL if all is well. */
const char *metrics_fault(const struct metrics_source *source);

#endif
