/* The record of a kept value.  SPDX-License-Identifier: Apache-2.0 */
#include "keyd/kept.h"

#define MAGIC "NKEP"
#define VERSION 1

void naos_kept_encode(const struct naos_kept *kept, struct naos_cursor *out)
{
	naos_cursor_put(out, MAGIC, 4);
	naos_cursor_put_u8(out, VERSION);
	naos_cursor_put_u8(out, (uint8_t)kept->iv_bytes);
	naos_cursor_put_zero(out, 2);
	naos_cursor_put_u32(out, kept->storage_version);
	naos_cursor_put(out, kept->iv, sizeof(kept->iv));
	naos_cursor_put(out, kept->tag, sizeof(kept->tag));
}

bool naos_kept_decode(const uint8_t *data, size_t bytes, struct naos_kept *ret)
{
	struct naos_cursor in = naos_cursor_reader(data, bytes);
	struct naos_kept kept;
	naos_cursor_get_match(&in, MAGIC, 4);
	uint8_t version = naos_cursor_get_u8(&in);
	kept.iv_bytes = naos_cursor_get_u8(&in);
	naos_cursor_get_zero(&in, 2);
	kept.storage_version = naos_cursor_get_u32(&in);
	naos_cursor_get(&in, kept.iv, sizeof(kept.iv));
	naos_cursor_get(&in, kept.tag, sizeof(kept.tag));
	kept.ciphertext_bytes = naos_cursor_left(&in);
	kept.ciphertext = naos_cursor_get_view(&in, kept.ciphertext_bytes);
	if (!naos_cursor_ok(&in) || version != VERSION || (kept.iv_bytes != 12 && kept.iv_bytes != 16) || kept.storage_version == 0 ||
	    kept.ciphertext_bytes == 0)
		return false;
	*ret = kept;
	return true;
}

void naos_kept_associated(const struct naos_uuid *id, uint8_t ret[static NAOS_KEPT_ASSOCIATED_BYTES])
{
	struct naos_cursor out = naos_cursor_writer(ret, NAOS_KEPT_ASSOCIATED_BYTES);
	naos_cursor_put(&out, "NAOSKEPT", 8);
	naos_cursor_put(&out, id->bytes, sizeof(id->bytes));
}
