/* Records as JSON lines: escaping, limits, what is refused.  SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

#include "audit/record.h"

static struct naos_error err;
static char line[NAOS_AUDIT_MAX_RECORD_BYTES + 1];

/* The line of an event as number `sequence`. */
static size_t format(const struct naos_audit_event *event, uint64_t sequence)
{
	char *body, time[NAOS_RECORD_TIME_BYTES];
	size_t bytes;
	assert_ok(naos_record_body(event, &body, &bytes, &err), &err);
	assert_int_equal(strlen(body), bytes);
	bytes = naos_record_format(sequence, naos_record_time(1764524319123456, time), body, bytes, line);
	assert_true(bytes <= NAOS_AUDIT_MAX_RECORD_BYTES);
	line[bytes] = 0;
	free(body);
	return bytes;
}

static void fields_stand_in_their_order_and_absent_ones_are_left_out(void **state)
{
	const struct naos_audit_event all = { "alice", "key.rotate", "genomes", "denied", "NAOS_E_DENIED", "r-1" };
	const struct naos_audit_event few = { .action = "audit.recover" };
	format(&all, 17);
	assert_string_equal(line, "{\"format\":1,\"time\":\"2025-11-30T17:38:39.123456Z\",\"sequence\":17,"
				  "\"actor\":\"alice\",\"action\":\"key.rotate\","
				  "\"object\":\"genomes\",\"decision\":\"denied\",\"reason\":\"NAOS_E_DENIED\",\"request_id\":\"r-1\"}");
	format(&few, 0);
	assert_string_equal(line, "{\"format\":1,\"time\":\"2025-11-30T17:38:39.123456Z\",\"sequence\":0,\"action\":\"audit.recover\"}");
	assert_code(naos_record_body(&(struct naos_audit_event){ .actor = "x" }, &(char *){ NULL }, &(size_t){ 0 }, &err), NAOS_E_USAGE);
}

/* Any bytes give one line of valid JSON, from which they come back: \xHH stands for what is not printable UTF-8. */
static void any_bytes_are_valid_json(void **state)
{
	for (unsigned first = 1; first < 256; first++)
		for (unsigned second = 1; second < 256; second += 7) {
			const char bytes[] = { (char)first, (char)second, '"', 'x', 0 };
			const struct naos_audit_event event = { .action = "a", .object = bytes };
			json_t *record;
			size_t length = format(&event, 1);
			assert_null(memchr(line, '\n', length));
			for (size_t i = 0; i < length; i++)
				assert_true((unsigned char)line[i] >= 0x20 && line[i] != 0x7f);
			assert_ok(naos_record_parse(line, length, "it", &record, &err), &err);
			const char *at = json_string_value(json_object_get(record, "object"));
			for (unsigned i = 0; i < 4; i++) {
				unsigned value = (unsigned char)*at++;
				if (value == '\\') {
					assert_int_equal(sscanf(at, "x%2x", &value), 1);
					at += 3;
				}
				assert_int_equal(value, (unsigned char)bytes[i]);
			}
			assert_int_equal(*at, 0);
			json_decref(record);
		}
}

static void utf8_is_kept(void **state)
{
	const struct naos_audit_event event = { .action = "a", .object = "/data/Ξενοφών €.fits" };
	format(&event, 1);
	assert_non_null(strstr(line, "\"/data/Ξενοφών €.fits\""));
}

/* The longest path, of bytes that are escaped to five times their size, still fits. */
static void every_path_fits_and_a_longer_record_is_refused(void **state)
{
	static char path[4096], longest[NAOS_AUDIT_MAX_RECORD_BYTES + 2];
	struct naos_audit_event event = { .actor = "alice", .action = "file.seal", .object = path };
	json_t *record;
	char *body = NULL;
	size_t bytes = 0, most = 0;
	memset(path, '\xff', sizeof(path) - 1);
	bytes = format(&event, UINT64_MAX >> 1);
	assert_true(bytes > 5 * 4095);
	assert_ok(naos_record_parse(line, bytes, "it", &record, &err), &err);
	json_decref(record);

	event.object = longest;
	memset(longest, 'a', sizeof(longest) - 1);
	for (size_t low = 0, high = NAOS_AUDIT_MAX_RECORD_BYTES; low <= high;) { /* the longest that is taken */
		size_t middle = (low + high) / 2;
		longest[middle] = 0;
		if (naos_record_body(&event, &body, &bytes, &err) == 0) {
			free(body);
			most = middle;
			low = middle + 1;
		} else {
			assert_int_equal(err.code, NAOS_E_LIMIT);
			high = middle - 1;
		}
		longest[middle] = 'a';
	}
	longest[most] = 0;
	assert_true(format(&event, UINT64_MAX >> 1) > NAOS_AUDIT_MAX_RECORD_BYTES - NAOS_RECORD_HEAD_BYTES);
	longest[most] = 'a';
	longest[most + 1] = 0;
	assert_code(naos_record_body(&event, &body, &bytes, &err), NAOS_E_LIMIT);
	longest[most + 1] = 'a'; /* far over it */
	assert_code(naos_record_body(&event, &body, &bytes, &err), NAOS_E_LIMIT);
}

static void the_sequence_is_read_from_the_head_only(void **state)
{
	const struct naos_audit_event event = { .action = "a", .object = "\",\"sequence\":5," };
	static const uint64_t sequences[] = { 0, 9, 10, 4294967296, UINT64_MAX >> 1 };
	uint64_t found;
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(sequences); i++) {
		size_t bytes = format(&event, sequences[i]);
		assert_true(naos_record_sequence(line, bytes, &found));
		assert_int_equal(found, sequences[i]);
		assert_false(naos_record_sequence(line, 60, &found));
	}
	static const char *const wrong[] = {
		"", "{}", "{\"format\":2,\"time\":\"2025-11-30T17:38:39.123456Z\",\"sequence\":1,\"action\":\"a\"}",
		"{\"format\":1,\"time\":\"2025-11-30T17:38:39.123456Z\",\"sequence\":01,\"action\":\"a\"}",
		"{\"format\":1,\"time\":\"2025-11-30T17:38:39.123456Z\",\"sequence\":,\"action\":\"a\"}",
		"{\"format\":1,\"time\":\"2025-11-30T17:38:39.123456Z\",\"sequence\":1",
		"{\"format\":1,\"time\":\"2025-11-30T17:38:39.123456Z\",\"sequence\":99999999999999999999,\"action\":\"a\"}",
	};
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(wrong); i++)
		assert_false(naos_record_sequence(wrong[i], strlen(wrong[i]), &found));
}

static void what_is_no_record_is_refused(void **state)
{
#define HEAD "{\"format\":1,\"time\":\"2025-11-30T17:38:39.123456Z\",\"sequence\":1,"
	static const char *const wrong[] = {
		"", "[]", "{}", "null", HEAD "\"action\":\"a\"", HEAD "\"actor\":\"a\"}", HEAD "\"action\":7}",
		HEAD "\"action\":\"a\",\"action\":\"b\"}",
		HEAD "\"action\":\"a\",\"colour\":\"b\"}", HEAD "\"action\":\"\xff\"}", HEAD "\"action\":\"a\"}x",
		HEAD "\"action\":\"a\",\"object\":null}",
		"{\"format\":2,\"time\":\"2025-11-30T17:38:39.123456Z\",\"sequence\":1,\"action\":\"a\"}",
		"{\"format\":1,\"time\":\"2025-11-30 17:38:39.123456Z\",\"sequence\":1,\"action\":\"a\"}",
		"{\"format\":1,\"time\":\"2025\",\"sequence\":1,\"action\":\"a\"}",
		"{\"format\":1,\"time\":\"2025-11-30T17:38:39.123456Z\",\"sequence\":-1,\"action\":\"a\"}",
	};
	json_t *record;
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(wrong); i++)
		assert_code(naos_record_parse(wrong[i], strlen(wrong[i]), "it", &record, &err), NAOS_E_FORMAT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_stand_in_their_order_and_absent_ones_are_left_out), cmocka_unit_test(any_bytes_are_valid_json),
		cmocka_unit_test(utf8_is_kept), cmocka_unit_test(every_path_fits_and_a_longer_record_is_refused),
		cmocka_unit_test(the_sequence_is_read_from_the_head_only), cmocka_unit_test(what_is_no_record_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
