/* Metrics and health by libevent's HTTP server, in a thread of its own.  SPDX-License-Identifier: Apache-2.0 */
#include "status.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <pthread.h>
#include <string.h>

struct status_page {
	struct event_base *base;
	struct evhttp *http;
	struct front *front;
	struct naos_hsm *hsm;
	pthread_t thread;
	bool running;
	int wake[2]; /* a byte ends the loop */
	struct event *woken;
};

static void add_counter(struct evbuffer *out, const char *name, const char *type, const char *help, unsigned long long value)
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

static void metrics(struct evhttp_request *request, void *argument)
{
	struct status_page *page = argument;
	struct front_counters *counters = front_counters(page->front);
	struct naos_hsm_status hsm;
	struct evbuffer *out = evbuffer_new();
	naos_hsm_status(page->hsm, &hsm);
	add_counter(out, "connections_open", "gauge", "open connections", counters->connections_open);
	add_counter(out, "connections_total", "counter", "connections accepted", counters->connections_total);
	add_counter(out, "connections_refused_total", "counter", "connections over the limit", counters->connections_refused);
	add_counter(out, "handshakes_failed_total", "counter", "clients without a valid certificate",
			counters->handshakes_failed);
	add_counter(out, "messages_refused_total", "counter", "connections closed for what they sent",
			counters->refused_messages);
	add_counter(out, "timeouts_total", "counter", "connections closed for being slow or idle", counters->timeouts);
	add_counter(out, "received_bytes_total", "counter", "bytes of requests", counters->bytes_in);
	add_counter(out, "sent_bytes_total", "counter", "bytes of answers", counters->bytes_out);
	add_counter(out, "hsm_worker_up", "gauge", "1 if the HSM worker answers", hsm.alive);
	add_counter(out, "hsm_worker_restarts_total", "counter", "HSM workers started after one died", hsm.restarts);
	add_latency(out, counters);
	(void)evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type", "text/plain; version=0.0.4");
	evhttp_send_reply(request, HTTP_OK, "OK", out);
	evbuffer_free(out);
}

static void health(struct evhttp_request *request, void *argument)
{
	struct status_page *page = argument;
	struct naos_hsm_status hsm;
	struct evbuffer *out = evbuffer_new();
	naos_hsm_status(page->hsm, &hsm);
	(void)evbuffer_add_printf(out, hsm.alive ? "ok\n" : "the HSM worker does not answer\n");
	evhttp_send_reply(request, hsm.alive ? HTTP_OK : HTTP_SERVUNAVAIL, hsm.alive ? "OK" : "Service Unavailable", out);
	evbuffer_free(out);
}

static void stop_loop(evutil_socket_t fd, short what, void *argument)
{
	(void)event_base_loopbreak(argument);
}

static void *serve(void *argument)
{
	struct status_page *page = argument;
	(void)event_base_dispatch(page->base);
	return NULL;
}

static int bind_page(struct status_page *page, const char *address, struct naos_error *err)
{
	const char *colon = strrchr(address, ':');
	char host[64];
	if (!colon || colon == address || (size_t)(colon - address) >= sizeof(host))
		return naos_error_set(err, NAOS_E_CONFIG, "keyd.metrics: '%s' is not HOST:PORT", address);
	(void)snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
	if (evhttp_bind_socket(page->http, host, (uint16_t)strtoul(colon + 1, NULL, 10)) != 0)
		return naos_error_set_errno(err, errno, "keyd.metrics: cannot listen on %s", address);
	return 0;
}

int status_page_start(const char *address, struct front *front, struct naos_hsm *hsm, struct status_page **ret,
		struct naos_error *err)
{
	*ret = NULL;
	if (!*address)
		return 0;
	struct status_page *page = calloc(1, sizeof(*page));
	if (!page || pipe(page->wake) != 0) {
		free(page);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the page of metrics");
	}
	page->front = front;
	page->hsm = hsm;
	page->base = event_base_new();
	page->http = page->base ? evhttp_new(page->base) : NULL;
	page->woken = page->http ? event_new(page->base, page->wake[0], EV_READ, stop_loop, page->base) : NULL;
	int rc = page->woken && event_add(page->woken, NULL) == 0 ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for the page of metrics");
	if (rc == 0) {
		evhttp_set_allowed_methods(page->http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
		evhttp_set_timeout(page->http, 10);
		evhttp_set_max_headers_size(page->http, 8192);
		evhttp_set_max_body_size(page->http, 0);
		(void)evhttp_set_cb(page->http, "/metrics", metrics, page);
		(void)evhttp_set_cb(page->http, "/healthz", health, page);
		rc = bind_page(page, address, err);
	}
	if (rc == 0 && pthread_create(&page->thread, NULL, serve, page) != 0)
		rc = naos_error_set(err, NAOS_E_NOMEM, "cannot start the thread of the page of metrics");
	page->running = rc == 0;
	if (rc == 0)
		*ret = page;
	else
		(void)status_page_stop(page);
	return rc;
}

struct status_page *status_page_stop(struct status_page *page)
{
	if (!page)
		return NULL;
	if (page->running) {
		(void)!write(page->wake[1], "", 1);
		(void)pthread_join(page->thread, NULL);
	}
	if (page->woken)
		event_free(page->woken);
	if (page->http)
		evhttp_free(page->http);
	if (page->base)
		event_base_free(page->base);
	naos_close_descriptor(&page->wake[0]);
	naos_close_descriptor(&page->wake[1]);
	free(page);
	return NULL;
}
