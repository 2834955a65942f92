/* What the tests of the engine share: every back end that this machine can run, keys, hex, where vectors lie.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_ENGINE_HELPER_H
#define NAOS_TESTS_ENGINE_HELPER_H

#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/backend.h"

#define SKIP_EXIT 77
#define MAX_ROWS 16

static struct naos_error err;
static const struct naos_engine_backend *rows[MAX_ROWS];
static size_t row_count;

/* Rows that this machine can't run are named: nobody should believe that they were tested. */
static int naos_unused start_rows(void **state)
{
	const struct naos_engine_backend *row;
	for (unsigned i = 0; (row = naos_engine_row(i)) && row_count < MAX_ROWS; i++) {
		int rc = naos_engine_select(row->name, row->fips, &err);
		if (rc == 0)
			rows[row_count++] = row;
		else if (rc == NAOS_E_UNSUPPORTED)
			printf("not run: %s: %s\n", row->name, err.message);
		else
			fail_msg("%s: %s", row->name, err.message);
	}
	for (size_t i = 0; i < row_count; i++)
		printf("run: %s\n", rows[i]->name);
	return row_count ? 0 : -1;
}

static naos_unused struct naos_gcm_key *make_key(const struct naos_engine_backend *row, enum naos_algorithm algorithm, const uint8_t *raw)
{
	struct naos_secret *secret;
	struct naos_gcm_key *key;
	uint8_t copy[32];
	memcpy(copy, raw, naos_algorithm_key_bytes(algorithm));
	assert_ok(naos_secret_take(copy, naos_algorithm_key_bytes(algorithm), &secret, &err), &err);
	assert_ok(naos_gcm_key_create_on(row, algorithm, secret, &key, &err), &err);
	naos_secret_free(secret);
	return key;
}

/* Not random: a failure must come again. */
static naos_unused uint64_t next_random(uint64_t *seed)
{
	uint64_t x = (*seed += 0x9e3779b97f4a7c15u);
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static naos_unused void fill_random(uint64_t *seed, uint8_t *buffer, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		buffer[i] = (uint8_t)next_random(seed);
}

static naos_unused bool all_zero(const uint8_t *buffer, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (buffer[i])
			return false;
	return true;
}

/* The number of bytes; the buffer must hold them. */
static naos_unused size_t from_hex(const char *text, uint8_t *buffer, size_t capacity)
{
	size_t bytes = 0;
	unsigned value;
	for (; sscanf(text, "%2x", &value) == 1; text += 2) {
		assert_true(bytes < capacity);
		buffer[bytes++] = (uint8_t)value;
	}
	return bytes;
}

/* $NAOS_SHARED/path, else ../shared/path beside the checkout. */
static naos_unused const char *shared_path(const char *path)
{
	static char full[4096];
	const char *shared = getenv("NAOS_SHARED"), *source = getenv("NAOS_SOURCE");
	if (shared)
		(void)snprintf(full, sizeof(full), "%s/%s", shared, path);
	else
		(void)snprintf(full, sizeof(full), "%s/../shared/%s", source ? source : ".", path);
	return full;
}

#endif
