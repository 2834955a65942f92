/* The wrapped-key blob: encode beside decode.  SPDX-License-Identifier: Apache-2.0 */
#include "keys/blob.h"

#include <string.h>

#define BLOB_VERSION 1
#define DIGEST_BYTES 32 /* SHA-256 of the associated data stands behind the key */

static bool is_sound(const struct naos_blob *blob)
{
	static const struct naos_uuid none;
	size_t key_bytes = (size_t)blob->ciphertext_bytes - DIGEST_BYTES;
	return blob->algorithm == NAOS_WRAP_AES_256_GCM && (blob->iv_bytes == 12 || blob->iv_bytes == 16) &&
	       blob->ciphertext_bytes > DIGEST_BYTES && (key_bytes == 16 || key_bytes == 32) && blob->mek_version > 0 &&
	       !naos_uuid_equal(&blob->mek_id, &none);
}

void naos_blob_encode(const struct naos_blob *blob, struct naos_cursor *out)
{
	if (!is_sound(blob)) {
		naos_cursor_fail(out);
		return;
	}
	naos_cursor_put_u8(out, BLOB_VERSION);
	naos_cursor_put_u8(out, (uint8_t)blob->algorithm);
	naos_cursor_put_u8(out, blob->iv_bytes);
	naos_cursor_put_zero(out, 1);
	naos_cursor_put_u16(out, blob->ciphertext_bytes);
	naos_cursor_put_zero(out, 2);
	naos_cursor_put(out, blob->mek_id.bytes, sizeof(blob->mek_id.bytes));
	naos_cursor_put_u32(out, blob->mek_version);
	naos_cursor_put(out, blob->iv, blob->iv_bytes);
	naos_cursor_put_zero(out, NAOS_BLOB_MAX_IV_BYTES - blob->iv_bytes);
	naos_cursor_put(out, blob->tag, sizeof(blob->tag));
	naos_cursor_put(out, blob->ciphertext, blob->ciphertext_bytes);
}

int naos_blob_decode(struct naos_cursor *in, struct naos_blob *ret, struct naos_error *err)
{
	struct naos_blob blob = { 0 };
	uint8_t version = naos_cursor_get_u8(in);
	if (naos_cursor_ok(in) && version != BLOB_VERSION)
		return naos_error_set(err, NAOS_E_FORMAT, "a wrapped key of version %u, this program knows version %u", version,
				      BLOB_VERSION);
	blob.algorithm = naos_cursor_get_u8(in);
	blob.iv_bytes = naos_cursor_get_u8(in);
	naos_cursor_get_zero(in, 1);
	blob.ciphertext_bytes = naos_cursor_get_u16(in);
	naos_cursor_get_zero(in, 2);
	naos_cursor_get(in, blob.mek_id.bytes, sizeof(blob.mek_id.bytes));
	blob.mek_version = naos_cursor_get_u32(in);
	/* lengths are used only when they are known to be sound: a failed get fills with zeros what it was told to fill */
	if (!naos_cursor_ok(in))
		return naos_error_set(err, NAOS_E_FORMAT, "a wrapped key is cut short or its reserved bytes are not zero");
	if (!is_sound(&blob))
		return naos_error_set(err, NAOS_E_FORMAT, "a wrapped key with an unknown algorithm, a wrong length or no key named");
	naos_cursor_get(in, blob.iv, blob.iv_bytes);
	naos_cursor_get_zero(in, NAOS_BLOB_MAX_IV_BYTES - (size_t)blob.iv_bytes);
	naos_cursor_get(in, blob.tag, sizeof(blob.tag));
	naos_cursor_get(in, blob.ciphertext, blob.ciphertext_bytes);
	if (!naos_cursor_ok(in))
		return naos_error_set(err, NAOS_E_FORMAT, "a wrapped key is cut short or its reserved bytes are not zero");
	*ret = blob;
	return 0;
}

void naos_blob_associated(const struct naos_wrap_context *context, const struct naos_blob *blob,
			  uint8_t ret[static NAOS_BLOB_ASSOCIATED_BYTES])
{
	struct naos_cursor out = naos_cursor_writer(ret, NAOS_BLOB_ASSOCIATED_BYTES);
	naos_cursor_put(&out, "NAOSWRP1", 8);
	naos_cursor_put_u8(&out, (uint8_t)context->kind);
	naos_cursor_put_zero(&out, 7);
	naos_cursor_put(&out, context->group_id.bytes, sizeof(context->group_id.bytes));
	naos_cursor_put(&out, context->object_id.bytes, sizeof(context->object_id.bytes));
	naos_cursor_put(&out, blob->mek_id.bytes, sizeof(blob->mek_id.bytes));
	naos_cursor_put_u32(&out, blob->mek_version);
	naos_cursor_put_u32(&out, (uint32_t)blob->algorithm);
}
