/* Records as JSON lines.  SPDX-License-Identifier: Apache-2.0 */
#include "audit/record.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/io.h"

#define HEAD "{\"format\":1,\"time\":\"%s\",\"sequence\":%" PRIu64 ","
#define HEAD_BEFORE_TIME "{\"format\":1,\"time\":\""
#define HEAD_AFTER_TIME "\",\"sequence\":"

/* Adds one member; absent where value is NULL.  What is not printable UTF-8 becomes \xHH, so that any bytes are valid JSON. */
static int add(json_t *object, const char *name, const char *value, struct naos_error *err)
{
	if (!value)
		return 0;
	size_t bytes = strlen(value);
	if (bytes > NAOS_AUDIT_MAX_RECORD_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "the %s of an audit record is %zu bytes long, a record has at most %d", name, bytes,
				      NAOS_AUDIT_MAX_RECORD_BYTES);
	naos_autofree char *text = malloc(4 * bytes + 8);
	if (!text || json_object_set_new(object, name, json_string(naos_io_printable(value, text, 4 * bytes + 8))) != 0)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for an audit record");
	return 0;
}

/* The members of a record, in their order. */
#define MEMBERS 6
struct member {
	const char *name, *value;
	size_t bytes; /* of value */
};

static void take_members(const struct naos_audit_event *event, struct member ret[static MEMBERS])
{
	const struct member members[MEMBERS] = { { "actor", event->actor, 0 },	     { "action", event->action, 0 },
						 { "object", event->object, 0 },     { "decision", event->decision, 0 },
						 { "reason", event->reason, 0 }, { "request_id", event->request_id, 0 } };
	memcpy(ret, members, sizeof(members));
}

/* Text that stands in JSON as it is: printable ASCII without quote and backslash. */
static bool is_plain(const char *text, size_t *ret_bytes)
{
	size_t bytes = 0;
	for (; text[bytes]; bytes++)
		if (text[bytes] < 0x20 || text[bytes] > 0x7e || text[bytes] == '"' || text[bytes] == '\\')
			return false;
	*ret_bytes = bytes;
	return true;
}

static char *put(char *at, const char *text, size_t bytes)
{
	return (char *)memcpy(at, text, bytes) + bytes;
}

/* What nearly every record is: plain texts only, which need no escaping.  NULL: one is not, or there is no memory. */
static char *plain_body(struct member members[static MEMBERS], size_t *ret_bytes)
{
	size_t room = 1;
	for (size_t i = 0; i < MEMBERS; i++) {
		if (members[i].value && !is_plain(members[i].value, &members[i].bytes))
			return NULL;
		room += members[i].value ? strlen(members[i].name) + members[i].bytes + strlen(",\"\":\"\"") : 0;
	}
	char *text = malloc(room), *at = text;
	for (size_t i = 0; text && i < MEMBERS; i++) {
		if (!members[i].value)
			continue;
		at = at == text ? put(at, "\"", 1) : put(at, ",\"", 2);
		at = put(at, members[i].name, strlen(members[i].name));
		at = put(at, "\":\"", 3);
		at = put(at, members[i].value, members[i].bytes);
		at = put(at, "\"", 1);
	}
	if (text) {
		*at = 0;
		*ret_bytes = (size_t)(at - text);
	}
	return text;
}

/* The same for any texts. */
static int escaped_body(const struct member members[static MEMBERS], char **ret, size_t *ret_bytes, struct naos_error *err)
{
	json_t *object = json_object();
	int rc = object ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for an audit record");
	for (size_t i = 0; rc == 0 && i < MEMBERS; i++)
		rc = add(object, members[i].name, members[i].value, err);
	char *text = rc == 0 ? json_dumps(object, JSON_COMPACT) : NULL;
	json_decref(object);
	if (rc == 0 && !text)
		rc = naos_error_set(err, NAOS_E_NOMEM, "no memory for an audit record");
	if (rc != 0)
		return rc;
	*ret_bytes = strlen(text) - 2;
	memmove(text, text + 1, *ret_bytes);
	text[*ret_bytes] = 0;
	*ret = text;
	return 0;
}

int naos_record_body(const struct naos_audit_event *event, char **ret, size_t *ret_bytes, struct naos_error *err)
{
	struct member members[MEMBERS];
	size_t bytes = 0;
	if (!event->action || !event->action[0])
		return naos_error_set(err, NAOS_E_USAGE, "an audit record needs an action");
	take_members(event, members);
	naos_autofree char *text = plain_body(members, &bytes);
	int rc = text ? 0 : escaped_body(members, &text, &bytes, err);
	if (rc != 0)
		return rc;
	if (bytes > NAOS_AUDIT_MAX_RECORD_BYTES - NAOS_RECORD_HEAD_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "the audit record of %s would be %zu bytes long, at most %d are allowed", event->action,
				      bytes + NAOS_RECORD_HEAD_BYTES, NAOS_AUDIT_MAX_RECORD_BYTES);
	*ret = naos_steal(text);
	*ret_bytes = bytes;
	return 0;
}

const char *naos_record_time(int64_t unix_us, char buffer[static NAOS_RECORD_TIME_BYTES])
{
	time_t seconds = (time_t)(unix_us / 1000000);
	unsigned microseconds = (unsigned)(unix_us % 1000000);
	struct tm utc;
	char day[NAOS_RECORD_TIME_BYTES];
	(void)gmtime_r(&seconds, &utc);
	(void)strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &utc);
	(void)snprintf(buffer, NAOS_RECORD_TIME_BYTES, "%.19s.%06uZ", day, microseconds % 1000000);
	return buffer;
}

size_t naos_record_format(uint64_t sequence, const char *time, const char *body, size_t body_bytes, char *line)
{
	size_t head = (size_t)snprintf(line, NAOS_RECORD_HEAD_BYTES, HEAD, time, sequence);
	memcpy(line + head, body, body_bytes);
	line[head + body_bytes] = '}';
	return head + body_bytes + 1;
}

bool naos_record_sequence(const char *line, size_t bytes, uint64_t *ret)
{
	size_t before = strlen(HEAD_BEFORE_TIME), at = before + NAOS_RECORD_TIME_BYTES - 1, after = strlen(HEAD_AFTER_TIME);
	uint64_t value = 0;
	if (bytes < at + after + 2 || memcmp(line, HEAD_BEFORE_TIME, before) != 0 || memcmp(line + at, HEAD_AFTER_TIME, after) != 0)
		return false;
	size_t first = at + after, digits = 0;
	for (; first + digits < bytes && line[first + digits] >= '0' && line[first + digits] <= '9' && digits < 19; digits++)
		value = value * 10 + (uint64_t)(line[first + digits] - '0');
	if (digits == 0 || first + digits >= bytes || line[first + digits] != ',' || (digits > 1 && line[first] == '0'))
		return false;
	*ret = value;
	return true;
}

static bool time_ok(const char *text)
{
	static const char shape[] = "dddd-dd-ddTdd:dd:dd.ddddddZ";
	for (size_t i = 0; i < sizeof(shape); i++)
		if (shape[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != shape[i])
			return false;
	return true;
}

static bool members_ok(json_t *record)
{
	static const char *const texts[] = { "actor", "action", "object", "decision", "reason", "request_id" };
	size_t known = 3;
	if (json_integer_value(json_object_get(record, "format")) != NAOS_RECORD_FORMAT ||
	    !json_is_integer(json_object_get(record, "sequence")) || json_integer_value(json_object_get(record, "sequence")) < 0 ||
	    !json_is_string(json_object_get(record, "time")) || !time_ok(json_string_value(json_object_get(record, "time"))) ||
	    !json_is_string(json_object_get(record, "action")))
		return false;
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(texts); i++) {
		json_t *value = json_object_get(record, texts[i]);
		if (value && !json_is_string(value))
			return false;
		known += value != NULL;
	}
	return json_object_size(record) == known;
}

int naos_record_parse(const char *line, size_t bytes, const char *what, json_t **ret, struct naos_error *err)
{
	json_error_t reason;
	json_t *record = bytes <= NAOS_AUDIT_MAX_RECORD_BYTES ? json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &reason) : NULL;
	if (!record || !json_is_object(record) || !members_ok(record)) {
		json_decref(record);
		return naos_error_set(err, NAOS_E_FORMAT, "%s is not an audit record of format %d", what, NAOS_RECORD_FORMAT);
	}
	*ret = record;
	return 0;
}
