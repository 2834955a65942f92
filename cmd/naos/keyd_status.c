/* naos keyd status: what the page of a running naos-keyd says.  SPDX-License-Identifier: Apache-2.0 */
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "base/log.h"
#include "command.h"

#define MAX_PAGE_BYTES (1 << 20)
#define TIMEOUT_S 10
#define SOON_S (30 * 86400)
#define DAY_S 86400

static const struct naos_option status_options[] = {
	{ "url", 'u', "URL", "page of the key manager, as http://127.0.0.1:9696, instead of the configured keyd.metrics" },
	{ .name = NULL },
};

/* ---- asking */

struct page {
	int status; /* of HTTP; 0: no answer */
	char *text; /* NUL-terminated */
	struct event_base *base;
};

static void free_page(struct page *page)
{
	free(page->text);
}
#define autopage naos_cleanup(free_page) struct page

static void take_answer(struct evhttp_request *request, void *argument)
{
	struct page *page = argument;
	struct evbuffer *body = request ? evhttp_request_get_input_buffer(request) : NULL;
	size_t bytes = body ? evbuffer_get_length(body) : 0;
	(void)event_base_loopbreak(page->base); /* the connection would be kept for another request */
	if (!request || evhttp_request_get_response_code(request) == 0)
		return;
	page->text = calloc(1, bytes + 1);
	if (page->text && evbuffer_copyout(body, page->text, bytes) == (ev_ssize_t)bytes)
		page->status = evhttp_request_get_response_code(request);
}

/* One GET; *ret has status 0 if nobody answers. */
static int get(const char *host, uint16_t port, const char *path, struct page *ret, struct naos_error *err)
{
	struct event_base *base = event_base_new();
	struct evhttp_connection *connection = base ? evhttp_connection_base_new(base, NULL, host, port) : NULL;
	struct evhttp_request *request = connection ? evhttp_request_new(take_answer, ret) : NULL;
	ret->base = base;
	bool good = request && evhttp_add_header(evhttp_request_get_output_headers(request), "Host", host) == 0;
	if (good) {
		evhttp_connection_set_timeout(connection, TIMEOUT_S);
		evhttp_connection_set_max_body_size(connection, MAX_PAGE_BYTES);
		/* the connection owns the request from here on, also if this fails */
		if (evhttp_make_request(connection, request, EVHTTP_REQ_GET, path) == 0)
			(void)event_base_dispatch(base);
	} else if (request) {
		evhttp_request_free(request);
	}
	if (connection)
		evhttp_connection_free(connection);
	if (base)
		event_base_free(base);
	return good ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory to ask the key manager");
}

/* "http://host:port" or "host:port". */
static int split_address(const char *url, char host[static 256], uint16_t *ret_port, struct naos_error *err)
{
	const char *rest = strncmp(url, "http://", 7) == 0 ? url + 7 : url, *colon = strrchr(rest, ':');
	char *end = NULL;
	unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;
	if (!colon || colon == rest || colon - rest > 255 || strspn(end, "/") != strlen(end) || port == 0 || port > 65535)
		return naos_error_set(err, NAOS_E_USAGE, "'%s' is no address of a page of the key manager, as http://127.0.0.1:9696", url);
	bool bracket = rest[0] == '[' && colon[-1] == ']';
	(void)snprintf(host, 256, "%.*s", (int)(colon - rest) - 2 * bracket, rest + bracket);
	*ret_port = (uint16_t)port;
	return 0;
}

/* ---- what it says */

/* A number of the page; -1 if it is not there. */
static double number(const struct page *page, const char *name)
{
	char line[96];
	int bytes = snprintf(line, sizeof(line), "\nnaos_keyd_%s ", name);
	const char *at = strstr(page->text, line);
	return at ? strtod(at + bytes, NULL) : -1;
}

static bool is_up(const struct page *page, const char *name)
{
	return number(page, name) == 1;
}

static const struct {
	const char *json, *metric;
} numbers[] = {
	{ "connections_open", "connections_open" },
	{ "connections", "connections_total" },
	{ "connections_refused", "connections_refused_total" },
	{ "handshakes_failed", "handshakes_failed_total" },
	{ "messages_refused", "messages_refused_total" },
	{ "timeouts", "timeouts_total" },
	{ "requests", "requests_total" },
	{ "refusals", "refusals_total" },
	{ "wraps", "encrypts_total" },
	{ "unwraps", "decrypts_total" },
	{ "requests_under_way", "connections_busy" },
	{ "hsm_jobs_waiting", "hsm_jobs_waiting" },
	{ "hsm_worker_restarts", "hsm_worker_restarts_total" },
	{ "objects", "objects" },
	{ "database_free_bytes", "database_free_bytes" },
	{ "audit_log_free_bytes", "audit_log_free_bytes" },
};

static const struct {
	const char *json, *metric, *what;
} ends[] = {
	{ "certificate_end", "certificate_end_seconds", "its certificate" },
	{ "authority_end", "authority_end_seconds", "the first authority of its clients" },
	{ "revocation_list_end", "revocation_list_end_seconds", "the revocation list" },
};

static void format_day(double unix_s, char text[static 24])
{
	time_t when = (time_t)unix_s;
	struct tm parts = { 0 };
	(void)gmtime_r(&when, &parts);
	(void)strftime(text, 24, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

static void warn_of_ends(const struct page *page)
{
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(ends); i++) {
		double end = number(page, ends[i].metric);
		char day[24];
		format_day(end, day);
		if (end > 0 && end < (double)time(NULL) + SOON_S && i != 2)
			naos_log(NAOS_LOG_WARNING, "%s ends at %s: renew it ('naos ca renew')", ends[i].what, day);
		else if (end > 0 && end < (double)time(NULL) + 7 * DAY_S)
			naos_log(NAOS_LOG_WARNING, "%s is good until %s: sign it anew ('naos ca renew DIRECTORY'), or nobody gets in",
				 ends[i].what, day);
	}
}

static int print_json(const char *address, const struct page *page, const char *fault, struct naos_error *err)
{
	json_t *all = json_pack("{s:s, s:b, s:b, s:b, s:b}", "address", address, "well", fault == NULL, "hsm_worker_up",
				is_up(page, "hsm_worker_up"), "database_up", is_up(page, "database_up"), "audit_log_up",
				is_up(page, "audit_log_up"));
	bool good = all && (!fault || json_object_set_new(all, "fault", naos_json_text(fault)) == 0);
	for (size_t i = 0; good && i < NAOS_ARRAY_LENGTH(numbers); i++) {
		double value = number(page, numbers[i].metric);
		if (value >= 0)
			good = json_object_set_new(all, numbers[i].json, json_integer((json_int_t)value)) == 0;
	}
	for (size_t i = 0; good && i < NAOS_ARRAY_LENGTH(ends); i++) {
		double end = number(page, ends[i].metric);
		char day[24];
		format_day(end, day);
		if (end > 0)
			good = json_object_set_new(all, ends[i].json, json_string(day)) == 0;
	}
	double count = number(page, "request_seconds_count"), sum = number(page, "request_seconds_sum");
	if (good && count > 0)
		good = json_object_set_new(all, "mean_request_seconds", json_real(sum / count)) == 0;
	if (!good) {
		json_decref(all);
		all = NULL;
	}
	return naos_print_json(all, err);
}

static void print_room(const struct page *page, const char *metric)
{
	double bytes = number(page, metric);
	if (bytes >= 0)
		(void)printf(", %.1f GiB free on its disk", bytes / (1 << 30));
	(void)putchar('\n');
}

static void print_text(const char *address, const struct page *page, const char *fault)
{
	double count = number(page, "request_seconds_count"), sum = number(page, "request_seconds_sum");
	(void)printf("key manager   %s: %s\n", address, fault ? fault : "well");
	(void)printf("HSM worker    %s, started again %.0f times\n", is_up(page, "hsm_worker_up") ? "up" : "does not answer",
		     number(page, "hsm_worker_restarts_total"));
	(void)printf("database      %s, %.0f objects", is_up(page, "database_up") ? "well" : "can't be written", number(page, "objects"));
	print_room(page, "database_free_bytes");
	(void)printf("audit log     %s", is_up(page, "audit_log_up") ? "well" : "can't be written");
	print_room(page, "audit_log_free_bytes");
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(ends); i++) {
		double end = number(page, ends[i].metric);
		char day[24];
		format_day(end, day);
		if (end > 0)
			(void)printf("%s  %s until %s (%.0f days)\n", i == 0 ? "certificates" : "            ", ends[i].what, day,
				     (end - (double)time(NULL)) / DAY_S);
	}
	(void)printf("connections   %.0f open of %.0f, %.0f without a valid certificate, %.0f over the limit, %.0f timed out\n",
		     number(page, "connections_open"), number(page, "connections_total"), number(page, "handshakes_failed_total"),
		     number(page, "connections_refused_total"), number(page, "timeouts_total"));
	(void)printf("requests      %.0f, %.0f refused; %.0f wraps, %.0f unwraps", number(page, "requests_total"),
		     number(page, "refusals_total"), number(page, "encrypts_total"), number(page, "decrypts_total"));
	if (count > 0)
		(void)printf("; %.3f ms each", 1e3 * sum / count);
	(void)printf("\nqueue         %.0f requests under way, %.0f jobs wait for the HSM\n", number(page, "connections_busy"),
		     number(page, "hsm_jobs_waiting"));
}

static int run_status(struct naos_invocation *invocation, struct naos_error *err)
{
	const char *url = naos_option_value(invocation, "url");
	autopage page = { 0 }, health = { 0 };
	char host[256], sentence[256];
	uint16_t port = 0;
	if (!url)
		url = naos_config_string(invocation->config, "keyd", NULL, "metrics");
	if (!*url)
		return naos_error_set(err, NAOS_E_CONFIG, "keyd.metrics is not set, so naos-keyd has no page to ask; set it, or give --url");
	int rc = split_address(url, host, &port, err);
	if (rc == 0)
		rc = get(host, port, "/metrics", &page, err);
	if (rc == 0)
		rc = get(host, port, "/healthz", &health, err);
	if (rc != 0)
		return rc;
	if (page.status == 0 || health.status == 0)
		return naos_error_set(err, NAOS_E_KEYMANAGER, "no key manager answers at %s within %d seconds", url, TIMEOUT_S);
	if (page.status != HTTP_OK || number(&page, "hsm_worker_up") < 0)
		return naos_error_set(err, NAOS_E_KEYMANAGER, "what answers at %s is no naos-keyd", url);
	health.text[strcspn(health.text, "\r\n")] = 0;
	const char *fault = health.status == HTTP_OK ? NULL : naos_io_printable_text(health.text, sentence, sizeof(sentence));
	if (invocation->json)
		rc = print_json(url, &page, fault, err);
	else
		print_text(url, &page, fault);
	warn_of_ends(&page);
	if (rc == 0 && fault)
		rc = naos_error_set(err, NAOS_E_KEYMANAGER, "the key manager is there, but %s", fault);
	return rc;
}

const struct naos_command naos_command_keyd_status = {
	.path = "keyd status", .operands = "", .summary = "Say how a running key manager is", .example = "naos keyd status",
	.options = status_options, .run = run_status,
};
