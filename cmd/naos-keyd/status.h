/* /metrics (Prometheus text format) and /healthz on a loopback address.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_STATUS_H
#define NAOS_KEYD_STATUS_H

#include "metrics.h"

struct status_page;

/* address "127.0.0.1:9696"; "" gives no page (*ret NULL).  What the source names is borrowed. */
int status_page_start(const char *address, const struct metrics_source *source, struct status_page **ret,
		struct naos_error *err) naos_must_check;
struct status_page *status_page_stop(struct status_page *page);

#endif
