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
	struct metrics_source source;
	pthread_t thread;
	bool running;
	int wake[2]; /* a byte ends the loop */
	struct event *woken;
};

static void metrics(struct evhttp_request *request, void *argument)
{
	struct status_page *page = argument;
	struct evbuffer *out = evbuffer_new();
	metrics_write(out, &page->source);
	(void)evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type", "text/plain; version=0.0.4");
	evhttp_send_reply(request, HTTP_OK, "OK", out);
	evbuffer_free(out);
}

static void health(struct evhttp_request *request, void *argument)
{
	struct status_page *page = argument;
	struct evbuffer *out = evbuffer_new();
	const char *fault = metrics_fault(&page->source);
	(void)evbuffer_add_printf(out, "%s\n", fault ? fault : "ok");
	evhttp_send_reply(request, fault ? HTTP_SERVUNAVAIL : HTTP_OK, fault ? "Service Unavailable" : "OK", out);
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

int status_page_start(const char *address, const struct metrics_source *source, struct status_page **ret, struct naos_error *err)
{
	*ret = NULL;
	if (!*address)
		return 0;
	struct status_page *page = calloc(1, sizeof(*page));
	if (!page || pipe(page->wake) != 0) {
		free(page);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the page of metrics");
	}
	page->source = *source;
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
