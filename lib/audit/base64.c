/* Canonical base64 over the library's.  SPDX-License-Identifier: Apache-2.0 */
#include "audit/base64.h"

#include <stdlib.h>
#include <string.h>
#include <openssl/evp.h>

#include "base/compiler.h"

const char *naos_base64_encode(const void *data, size_t bytes, char *text)
{
	(void)EVP_EncodeBlock((unsigned char *)text, data, (int)bytes);
	return text;
}

/* The library takes spaces and stray low bits; encoding the result again shows whether it was the one spelling. */
bool naos_base64_decode(const char *text, size_t bytes, uint8_t *ret_data, size_t max_bytes, size_t *ret_bytes)
{
	if (bytes == 0 || bytes % 4 != 0 || bytes / 4 * 3 > max_bytes + 2 || max_bytes > 1 << 20)
		return false;
	naos_autofree uint8_t *buffer = malloc(2 * bytes + 1);
	if (!buffer)
		return false;
	char *again = (char *)buffer + bytes;
	int decoded = EVP_DecodeBlock(buffer, (const unsigned char *)text, (int)bytes);
	size_t padding = (size_t)(text[bytes - 1] == '=') + (text[bytes - 2] == '=');
	bool ok = decoded >= 0 && (size_t)decoded - padding <= max_bytes;
	if (ok) {
		(void)EVP_EncodeBlock((unsigned char *)again, buffer, decoded - (int)padding);
		ok = memcmp(again, text, bytes) == 0;
	}
	if (ok) {
		*ret_bytes = (size_t)decoded - padding;
		memcpy(ret_data, buffer, *ret_bytes);
	}
	return ok;
}
