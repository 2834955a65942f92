/* Identifiers and hexadecimal text.  SPDX-License-Identifier: Apache-2.0 */
#include "base/uuid.h"

#include <string.h>
#include <openssl/rand.h>

int naos_uuid_random(struct naos_uuid *ret, struct naos_error *err)
{
	struct naos_uuid uuid;
	if (RAND_bytes(uuid.bytes, sizeof(uuid.bytes)) != 1)
		return naos_error_set(err, NAOS_E_SYSTEM, "the random generator failed");
	uuid.bytes[6] = (uint8_t)((uuid.bytes[6] & 0x0f) | 0x40);
	uuid.bytes[8] = (uint8_t)((uuid.bytes[8] & 0x3f) | 0x80);
	*ret = uuid;
	return 0;
}

const char *naos_hex_format(const void *data, size_t bytes, char *text)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *at = data;
	for (size_t i = 0; i < bytes; i++) {
		text[2 * i] = digits[at[i] >> 4];
		text[2 * i + 1] = digits[at[i] & 15];
	}
	text[2 * bytes] = 0;
	return text;
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool naos_hex_parse(const char *text, void *ret_data, size_t bytes)
{
	if (strnlen(text, 2 * bytes + 1) != 2 * bytes)
		return false;
	for (size_t i = 0; i < 2 * bytes; i++)
		if (digit(text[i]) < 0)
			return false;
	for (size_t i = 0; i < bytes; i++)
		((uint8_t *)ret_data)[i] = (uint8_t)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
	return true;
}

const char *naos_uuid_format(const struct naos_uuid *uuid, char buffer[static NAOS_UUID_TEXT_BYTES])
{
	static const uint8_t groups[] = { 4, 2, 2, 2, 6 };
	char *at = buffer;
	const uint8_t *from = uuid->bytes;
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(groups); i++) {
		if (i)
			*at++ = '-';
		(void)naos_hex_format(from, groups[i], at);
		from += groups[i];
		at += 2 * groups[i];
	}
	return buffer;
}

bool naos_uuid_parse(const char *text, struct naos_uuid *ret)
{
	char plain[33];
	if (strnlen(text, NAOS_UUID_TEXT_BYTES) != NAOS_UUID_TEXT_BYTES - 1)
		return false;
	for (unsigned i = 0, used = 0; i < NAOS_UUID_TEXT_BYTES - 1; i++) {
		bool hyphen = i == 8 || i == 13 || i == 18 || i == 23;
		if (hyphen != (text[i] == '-'))
			return false;
		if (!hyphen)
			plain[used++] = text[i];
	}
	plain[32] = 0;
	return naos_hex_parse(plain, ret->bytes, sizeof(ret->bytes));
}

bool naos_uuid_equal(const struct naos_uuid *left, const struct naos_uuid *right)
{
	return memcmp(left->bytes, right->bytes, sizeof(left->bytes)) == 0;
}

bool naos_uuid_is_zero(const struct naos_uuid *uuid)
{
	static const struct naos_uuid zero;
	return naos_uuid_equal(uuid, &zero);
}
