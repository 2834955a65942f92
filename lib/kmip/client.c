/* Pool, fail-over, negotiation of the KMIP client; one connection is in client_connection.c.  SPDX-License-Identifier: Apache-2.0 */
#include "kmip/client.h"

#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "kmip/client_connection.h"
#include "kmip/reason.h"

#define DEFAULT_POOL 8
#define DEFAULT_TIMEOUT_S 10
#define LEAVE_ALONE_NS 5000000000LL /* a server that failed is asked last for so long */

struct host {
	char *name, *port;
	int64_t failed_ns; /* 0: fine */
};

/* A connection and whose it is. */
struct link {
	struct naos_kmip_connection *connection;
	struct host *host;
};

/* What tells that a file was replaced or changed. */
struct version {
	ino_t inode;
	off_t bytes;
	struct timespec changed;
};

enum { CERTIFICATE, KEY, CA, FILES };

struct naos_kmip_client {
	SSL_CTX *tls; /* made of these files when they had these versions */
	char *files[FILES];
	struct version versions[FILES];
	struct host hosts[NAOS_KMIP_MAX_HOSTS];
	size_t host_count;
	unsigned timeout_s, pool;
	uint32_t highest;
	pthread_mutex_t lock;
	uint32_t version; /* 0: not yet negotiated */
	struct link *idle;
	unsigned idle_count;
};

static int64_t now_ns(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* --- open and close --------------------------------------------------------------------------------------------------- */

static int take_hosts(struct naos_kmip_client *client, const char *list, struct naos_error *err)
{
	naos_autofree char *copy = strdup(list);
	char *rest = NULL;
	if (!copy)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a key manager's address");
	for (char *item = strtok_r(copy, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
		char *colon = strrchr(item, ':'), *bracket = strchr(item, ']');
		if (client->host_count == NAOS_KMIP_MAX_HOSTS)
			return naos_error_set(err, NAOS_E_LIMIT, "more than %d servers in '%s'", NAOS_KMIP_MAX_HOSTS, list);
		if (colon && bracket && colon < bracket)
			colon = NULL;
		if (colon)
			*colon = 0;
		if (item[0] == '[' && bracket) {
			*bracket = 0;
			item++;
		}
		struct host *host = &client->hosts[client->host_count++];
		host->name = strdup(item);
		host->port = strdup(colon ? colon + 1 : NAOS_KMIP_DEFAULT_PORT);
		if (!host->name || !host->port)
			return naos_error_set(err, NAOS_E_NOMEM, "no memory for a key manager's address");
		if (!*host->name || !*host->port)
			return naos_error_set(err, NAOS_E_USAGE, "'%s' is not HOST:PORT[,HOST:PORT…]", list);
	}
	return client->host_count ? 0 : naos_error_set(err, NAOS_E_USAGE, "the key manager's address names no host");
}

static void look_at_files(const struct naos_kmip_client *client, struct version *ret)
{
	struct stat status;
	for (unsigned i = 0; i < FILES; i++)
		if (stat(client->files[i], &status) == 0)
			ret[i] = (struct version){ status.st_ino, status.st_size, status.st_mtim };
}

static int take_files(struct naos_kmip_client *client, const struct naos_kmip_client_options *options, struct naos_error *err)
{
	client->files[CERTIFICATE] = strdup(options->certificate);
	client->files[KEY] = strdup(options->key);
	client->files[CA] = strdup(options->ca);
	if (!client->files[CERTIFICATE] || !client->files[KEY] || !client->files[CA])
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a key manager's client");
	look_at_files(client, client->versions);
	return naos_kmip_connection_tls(options->certificate, options->key, options->ca, &client->tls, err);
}

int naos_kmip_client_open(const struct naos_kmip_client_options *options, struct naos_kmip_client **ret, struct naos_error *err)
{
	struct naos_kmip_client *client = calloc(1, sizeof(*client));
	if (!client)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a key manager's client");
	(void)pthread_mutex_init(&client->lock, NULL);
	client->pool = options->pool ? options->pool : DEFAULT_POOL;
	client->timeout_s = options->timeout_s ? options->timeout_s : DEFAULT_TIMEOUT_S;
	client->highest = options->version ? options->version : NAOS_KMIP_1_4;
	client->idle = calloc(client->pool, sizeof(*client->idle));
	int rc = client->idle ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for a key manager's client");
	if (rc == 0)
		rc = take_hosts(client, options->hosts, err);
	if (rc == 0)
		rc = take_files(client, options, err);
	if (rc != 0) {
		(void)naos_kmip_client_close(client);
		return rc;
	}
	*ret = client;
	return 0;
}

struct naos_kmip_client *naos_kmip_client_close(struct naos_kmip_client *client)
{
	if (!client)
		return NULL;
	for (unsigned i = 0; i < client->idle_count; i++)
		(void)naos_kmip_connection_close(client->idle[i].connection);
	for (size_t i = 0; i < client->host_count; i++) {
		free(client->hosts[i].name);
		free(client->hosts[i].port);
	}
	for (unsigned i = 0; i < FILES; i++)
		free(client->files[i]);
	free(client->idle);
	SSL_CTX_free(client->tls);
	(void)pthread_mutex_destroy(&client->lock);
	free(client);
	return NULL;
}

void naos_kmip_answer_free(struct naos_kmip_answer *answer)
{
	answer->arena = naos_kmip_arena_free(answer->arena);
	answer->message = naos_secret_free(answer->message);
}

/* --- connections ------------------------------------------------------------------------------------------------------ */

static void set_failed(struct naos_kmip_client *client, struct host *host, bool failed)
{
	(void)pthread_mutex_lock(&client->lock);
	host->failed_ns = failed ? now_ns() : 0;
	(void)pthread_mutex_unlock(&client->lock);
}

/* What new connections are made with; the caller frees it.  A certificate that was renewed on disk is taken from now on; while its
 * files don't fit together (they are being written), the one before is. */
static SSL_CTX *current_tls(struct naos_kmip_client *client)
{
	struct version now[FILES] = { 0 };
	SSL_CTX *fresh = NULL;
	(void)pthread_mutex_lock(&client->lock);
	memcpy(now, client->versions, sizeof(now));
	look_at_files(client, now);
	if (memcmp(now, client->versions, sizeof(now)) != 0 &&
	    naos_kmip_connection_tls(client->files[CERTIFICATE], client->files[KEY], client->files[CA], &fresh, NULL) == 0) {
		SSL_CTX_free(client->tls);
		client->tls = fresh;
		memcpy(client->versions, now, sizeof(now));
	}
	SSL_CTX *tls = client->tls;
	(void)SSL_CTX_up_ref(tls);
	(void)pthread_mutex_unlock(&client->lock);
	return tls;
}

/* Servers in order; those that failed a moment ago last. */
static int connect_any(struct naos_kmip_client *client, struct link *ret, struct naos_error *err)
{
	bool tried[NAOS_KMIP_MAX_HOSTS] = { false };
	SSL_CTX *tls = current_tls(client);
	int rc = NAOS_E_KEYMANAGER;
	ret->connection = NULL;
	for (int round = 0; round < 2 && !ret->connection; round++)
		for (size_t i = 0; i < client->host_count && !ret->connection; i++) {
			struct host *host = &client->hosts[i];
			(void)pthread_mutex_lock(&client->lock);
			bool avoid = host->failed_ns && now_ns() - host->failed_ns < LEAVE_ALONE_NS;
			(void)pthread_mutex_unlock(&client->lock);
			if (tried[i] || (avoid && round == 0))
				continue;
			tried[i] = true;
			rc = naos_kmip_connection_open(tls, host->name, host->port, client->timeout_s,
					&ret->connection, err);
			set_failed(client, host, rc != 0);
			ret->host = host;
		}
	SSL_CTX_free(tls);
	return rc;
}

static bool take_idle(struct naos_kmip_client *client, struct link *ret)
{
	(void)pthread_mutex_lock(&client->lock);
	bool found = client->idle_count > 0;
	if (found)
		*ret = client->idle[--client->idle_count];
	(void)pthread_mutex_unlock(&client->lock);
	return found;
}

static void put_idle(struct naos_kmip_client *client, struct link link)
{
	(void)pthread_mutex_lock(&client->lock);
	if (client->idle_count < client->pool) {
		client->idle[client->idle_count++] = link;
		link.connection = NULL;
	}
	(void)pthread_mutex_unlock(&client->lock);
	(void)naos_kmip_connection_close(link.connection);
}

/* After one connection broke, the idle ones are as old and likely broken too. */
static void drop_idle(struct naos_kmip_client *client)
{
	for (struct link link; take_idle(client, &link);)
		(void)naos_kmip_connection_close(link.connection);
}

/* --- calls ------------------------------------------------------------------------------------------------------------ */

/* Sends an encoded request and decodes what comes back. */
static int exchange(struct naos_kmip_connection *connection, const struct naos_secret *request, struct naos_kmip_answer *ret,
		    struct naos_error *err)
{
	naos_autoanswer struct naos_kmip_answer answer = { .arena = NULL };
	int rc = naos_kmip_connection_send(connection, request, err);
	if (rc == 0)
		rc = naos_kmip_connection_receive(connection, &answer.message, err);
	if (rc == 0)
		rc = naos_kmip_arena_create(NAOS_KMIP_ARENA_BYTES, &answer.arena, err);
	if (rc == 0)
		rc = naos_kmip_response_decode(naos_secret_view(answer.message), naos_secret_bytes(answer.message), answer.arena,
					       &answer.response, err);
	if (rc == NAOS_E_FORMAT || rc == NAOS_E_LIMIT || (rc == 0 && answer.response.batch.count == 0))
		rc = naos_error_set(err, NAOS_E_KEYMANAGER, "the key manager %s answers nonsense",
				naos_kmip_connection_name(connection));
	if (rc == 0) {
		*ret = answer;
		answer = (struct naos_kmip_answer){ .arena = NULL };
	}
	return rc;
}

/* On a pooled connection first; where that was stale, on a new one; then on the other servers, once each. */
static int call(struct naos_kmip_client *client, const struct naos_kmip_request *request, bool repeatable,
		struct naos_kmip_answer *ret,
		struct naos_error *err)
{
	naos_autosecret struct naos_secret *message = NULL;
	struct link link;
	int rc = naos_kmip_request_write(request, 0, &message, err);
	/* a pooled connection may have ended unseen: what must not be done twice is not risked on it */
	bool pooled = rc == 0 && repeatable && take_idle(client, &link);
	for (size_t left = client->host_count; rc == 0; pooled = false) {
		if (!pooled)
			rc = connect_any(client, &link, err);
		if (rc != 0)
			return rc;
		rc = exchange(link.connection, message, ret, err);
		if (rc == 0) {
			put_idle(client, link);
			return 0;
		}
		if (!pooled || naos_kmip_connection_late(link.connection)) {
			set_failed(client, link.host, true);
			left--;
		}
		(void)naos_kmip_connection_close(link.connection);
		drop_idle(client);
		if (rc == NAOS_E_KEYMANAGER && repeatable && left > 0)
			rc = 0; /* again, elsewhere */
	}
	return rc;
}

/* DiscoverVersions; a server too old for it speaks 1.0. */
static int negotiate(struct naos_kmip_client *client, uint32_t *ret, struct naos_error *err)
{
	uint32_t ours[] = { NAOS_KMIP_1_4, NAOS_KMIP_1_3, NAOS_KMIP_1_2, NAOS_KMIP_1_1, NAOS_KMIP_1_0 };
	size_t skip = 0;
	while (skip + 1 < NAOS_ARRAY_LENGTH(ours) && ours[skip] > client->highest)
		skip++;
	const struct naos_kmip_request_item item = {
		.operation = NAOS_KMIP_OPERATION_DISCOVER_VERSIONS,
		.payload.discover_versions.versions = { ours + skip, NAOS_ARRAY_LENGTH(ours) - skip },
	};
	const struct naos_kmip_request request = { .version = NAOS_KMIP_1_1, .batch = { &item, 1 } };
	naos_autoanswer struct naos_kmip_answer answer = { .arena = NULL };
	uint32_t version = NAOS_KMIP_1_0;
	int rc = call(client, &request, true, &answer, err);
	if (rc != 0)
		return rc;
	const struct naos_kmip_response_item *first = answer.response.batch.count ? answer.response.batch.items : NULL;
	if (first && first->has_payload && first->payload.discover_versions.versions.count)
		version = first->payload.discover_versions.versions.items[0];
	if (version > client->highest)
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "the key manager speaks no version of KMIP up to the one allowed");
	(void)pthread_mutex_lock(&client->lock);
	client->version = version;
	(void)pthread_mutex_unlock(&client->lock);
	*ret = version;
	return 0;
}

int naos_kmip_client_version(struct naos_kmip_client *client, uint32_t *ret, struct naos_error *err)
{
	(void)pthread_mutex_lock(&client->lock);
	uint32_t version = client->version;
	(void)pthread_mutex_unlock(&client->lock);
	if (!version)
		return negotiate(client, ret, err);
	*ret = version;
	return 0;
}

/* A batch's items are told apart by their number, four bytes. */
static int number_items(const struct naos_kmip_request_item *items, size_t count, struct naos_kmip_request_item **ret,
		uint8_t (**ret_ids)[4],
			struct naos_error *err)
{
	struct naos_kmip_request_item *copy = calloc(count, sizeof(*copy));
	uint8_t(*ids)[4] = calloc(count, sizeof(*ids));
	if (!copy || !ids) {
		free(copy);
		free(ids);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a request of %zu items", count);
	}
	for (size_t i = 0; i < count; i++) {
		struct naos_cursor w = naos_cursor_writer(ids[i], sizeof(ids[i]));
		naos_cursor_put_u32be(&w, (uint32_t)i + 1);
		copy[i] = items[i];
		if (count > 1)
			copy[i].unique_batch_item_id = naos_kmip_bytes(ids[i], sizeof(ids[i]));
	}
	*ret = copy;
	*ret_ids = ids;
	return 0;
}

/* The answer must have our items, in our order. */
static int check_answer(const struct naos_kmip_response *response, size_t count, const uint8_t (*ids)[4], struct naos_error *err)
{
	const struct naos_kmip_response_item *items = response->batch.items;
	/* a message that was refused as a whole has one item, whatever was asked */
	if (response->batch.count == 1 && count > 1 && items->status != NAOS_KMIP_STATUS_SUCCESS)
		return naos_kmip_item_result(items, "the request", err);
	if (response->batch.count != count)
		return naos_error_set(err, NAOS_E_KEYMANAGER, "the key manager answers %zu of %zu items",
				response->batch.count, count);
	for (size_t i = 0; i < count && count > 1; i++)
		if (items[i].unique_batch_item_id.bytes != sizeof(ids[i]) || memcmp(items[i].unique_batch_item_id.data,
				ids[i], sizeof(ids[i])) != 0)
			return naos_error_set(err, NAOS_E_KEYMANAGER,
					"the key manager answers the items of a batch in another order");
	return 0;
}

int naos_kmip_client_call(struct naos_kmip_client *client, const struct naos_kmip_request_item *items, size_t count,
		bool repeatable,
			  struct naos_kmip_answer *ret, struct naos_error *err)
{
	struct naos_kmip_request request = { .batch_error_continuation = count > 1 ? NAOS_KMIP_BATCH_ERROR_CONTINUE : 0 };
	naos_autofree struct naos_kmip_request_item *numbered = NULL;
	naos_autofree uint8_t(*ids)[4] = NULL;
	naos_autoanswer struct naos_kmip_answer answer = { .arena = NULL };
	int rc = naos_kmip_client_version(client, &request.version, err);
	if (rc == 0)
		rc = number_items(items, count, &numbered, &ids, err);
	if (rc != 0)
		return rc;
	request.batch.items = numbered;
	request.batch.count = count;
	rc = call(client, &request, repeatable, &answer, err);
	if (rc == 0)
		rc = check_answer(&answer.response, count, (const uint8_t(*)[4])ids, err);
	if (rc == 0) {
		*ret = answer;
		answer = (struct naos_kmip_answer){ .arena = NULL };
	}
	return rc;
}

int naos_kmip_item_result(const struct naos_kmip_response_item *item, const char *what, struct naos_error *err)
{
	if (item->status == NAOS_KMIP_STATUS_SUCCESS)
		return item->problem ? naos_error_set(err, NAOS_E_KEYMANAGER,
				"the key manager's answer to %s can't be read: %s", what, item->problem) : 0;
	int bytes = item->message.bytes < 200 ? (int)item->message.bytes : 200;
	return naos_error_set(err, naos_kmip_reason_to_code(item->reason), "the key manager refuses %s: %.*s", what, bytes,
			      item->message.data ? item->message.data : "(no reason given)");
}
