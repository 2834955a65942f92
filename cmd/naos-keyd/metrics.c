/* The page of metrics, in the text format of Prometheus.  SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"

#include <event2/buffer.h>
#include <string.h>
#include <sys/statvfs.h>

static void add(struct evbuffer *out, const char *name, const char *type, const char *help, unsigned long long value)
{
	(void)evbuffer_add_printf(out, "# HELP naos_keyd_%s %s\n# TYPE naos_keyd_%s %s\nnaos_keyd_%s %llu\n", name, help,
			name, type, name, value);
}

static void add_latency(struct evbuffer *out, const struct front_counters *counters)
{
	const char *name = "naos_keyd_request_seconds";
	unsigned long long sum = 0;
	(void)evbuffer_add_printf(out, "# HELP %s time to handle a request, without TLS\n# TYPE %s histogram\n", name, name);
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(counters->latency_bucket); i++) {
		sum += counters->latency_bucket[i];
		if (i + 1 < NAOS_ARRAY_LENGTH(counters->latency_bucket))
			(void)evbuffer_add_printf(out, "%s_bucket{le=\"%g\"} %llu\n", name, 64e-6 * (double)(1u << i), sum);
	}
	(void)evbuffer_add_printf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %g\n%s_count %llu\n", name, sum, name,
				  (double)counters->handle_ns / 1e9, name, sum);
}

/* Not there where the disk can't be asked. */
static void add_room(struct evbuffer *out, const char *name, const char *help, const char *path)
{
	struct statvfs room;
	char directory[4096];
	(void)snprintf(directory, sizeof(directory), "%s", path);
	char *slash = strrchr(directory, '/');
	if (slash && slash != directory)
		*slash = 0;
	if (*path && statvfs(directory, &room) == 0)
		add(out, name, "gauge", help, (unsigned long long)room.f_bavail * room.f_frsize);
}

static void add_front(struct evbuffer *out, struct front *front)
{
	struct front_counters *counters = front_counters(front);
	add(out, "connections_open", "gauge", "open connections", counters->connections_open);
	add(out, "connections_total", "counter", "connections accepted", counters->connections_total);
	add(out, "connections_refused_total", "counter", "connections over the limit", counters->connections_refused);
	add(out, "handshakes_failed_total", "counter", "clients without a valid certificate", counters->handshakes_failed);
	add(out, "handshakes_resumed_total", "counter", "connections that took up a session of before", counters->handshakes_resumed);
	add(out, "messages_refused_total", "counter", "connections closed for what they sent", counters->refused_messages);
	add(out, "timeouts_total", "counter", "connections closed for being slow or idle", counters->timeouts);
	add(out, "received_bytes_total", "counter", "bytes of requests", counters->bytes_in);
	add(out, "sent_bytes_total", "counter", "bytes of answers", counters->bytes_out);
	add(out, "connections_busy", "gauge", "connections that a thread works on now", front_busy(front));
	add_latency(out, counters);
}

static void add_certificates(struct evbuffer *out, struct front *front)
{
	struct keyd_tls_ends ends;
	front_tls_ends(front, &ends);
	if (ends.certificate_unix_s > 0)
		add(out, "certificate_end_seconds", "gauge", "when its certificate ends, in seconds since 1970",
		    (unsigned long long)ends.certificate_unix_s);
	if (ends.authority_unix_s > 0)
		add(out, "authority_end_seconds", "gauge", "when the first of the authorities of its clients ends",
		    (unsigned long long)ends.authority_unix_s);
	if (ends.revocation_list_unix_s > 0)
		add(out, "revocation_list_end_seconds", "gauge", "when the first revocation list must be renewed",
		    (unsigned long long)ends.revocation_list_unix_s);
}

void metrics_write(struct evbuffer *out, const struct metrics_source *source)
{
	struct naos_keyd_status keyd;
	naos_keyd_status(source->keyd, &keyd);
	add_front(out, source->front);
	add(out, "requests_total", "counter", "messages", keyd.requests);
	add(out, "items_total", "counter", "items of messages", keyd.items);
	add(out, "refusals_total", "counter", "items and messages that were refused or failed", keyd.refusals);
	add(out, "encrypts_total", "counter", "Encrypt items that succeeded: wraps of file keys", keyd.encrypts);
	add(out, "decrypts_total", "counter", "Decrypt items that succeeded: unwraps of file keys", keyd.decrypts);
	add(out, "objects", "gauge", "objects in the database, destroyed ones too", keyd.objects);
	add(out, "hsm_worker_up", "gauge", "1 if the HSM worker answers", keyd.hsm.alive);
	add(out, "hsm_worker_restarts_total", "counter", "HSM workers started after one died", keyd.hsm.restarts);
	add(out, "hsm_jobs_waiting", "gauge", "jobs that wait for the HSM worker", keyd.hsm.waiting);
	add(out, "database_up", "gauge", "1 if the last change of the database became durable", keyd.database_well);
	add(out, "audit_log_up", "gauge", "1 if the last record of the audit log became durable", keyd.audit_well);
	add_room(out, "database_free_bytes", "room on the disk of the database", source->database);
	add_room(out, "audit_log_free_bytes", "room on the disk of the audit log", source->audit);
	add_certificates(out, source->front);
}

const char *metrics_fault(const struct metrics_source *source)
{
	struct naos_keyd_status keyd;
	naos_keyd_status(source->keyd, &keyd);
	return !keyd.hsm.alive	   ? "the HSM worker does not answer" :
	       !keyd.database_well ? "the database can't be written" :
	       !keyd.audit_well	   ? "the audit log can't be written" :
				     NULL;
}
