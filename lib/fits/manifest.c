/* SPDX-License-Identifier: Apache-2.0 */
#include "fits/manifest.h"

#include <string.h>
#include <openssl/evp.h>

#define MAGIC "NFR2MAN1"
#define VERSION 2u
#define FIXED_BYTES 128u
#define UNIT_BYTES 24u

void naos_frame_manifest_free(struct naos_frame_manifest *manifest)
{
	free(manifest->hdus);
	free(manifest->raw);
	*manifest = (struct naos_frame_manifest){ .hdus = NULL };
}

static int digest(struct naos_frame_manifest *manifest, struct naos_error *err)
{
	size_t bytes = sizeof(manifest->digest);
	if (EVP_Q_digest(NULL, "SHA256", NULL, manifest->raw, manifest->raw_bytes, manifest->digest, &bytes) != 1)
		return naos_error_set(err, NAOS_E_SYSTEM, "SHA-256 is not available in the cryptographic library");
	return 0;
}

int naos_frame_manifest_encode(struct naos_frame_manifest *manifest, struct naos_error *err)
{
	size_t bytes = FIXED_BYTES;
	for (uint32_t i = 0; i < manifest->hdu_count; i++)
		bytes += UNIT_BYTES + (size_t)manifest->hdus[i].cards * NAOS_FITS_CARD_BYTES;
	if (bytes > NAOS_FRAME_MAX_MANIFEST_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "the structure of the file takes %zu bytes; %zu are allowed", bytes,
				      NAOS_FRAME_MAX_MANIFEST_BYTES);
	uint8_t *raw = malloc(bytes);
	if (!raw)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the manifest of a frame");
	struct naos_cursor w = naos_cursor_writer(raw, bytes);
	naos_cursor_put(&w, MAGIC, 8);
	naos_cursor_put_u32(&w, VERSION);
	naos_cursor_put_u32(&w, (uint32_t)manifest->algorithm);
	naos_cursor_put(&w, manifest->frame_id.bytes, NAOS_UUID_BYTES);
	naos_cursor_put(&w, manifest->collection_id.bytes, NAOS_UUID_BYTES);
	naos_cursor_put(&w, manifest->commit, sizeof(manifest->commit));
	naos_cursor_put_u64(&w, manifest->file_bytes);
	naos_cursor_put_u32(&w, manifest->segment_bytes);
	naos_cursor_put_u32(&w, manifest->hdu_count);
	for (uint32_t i = 0; i < manifest->hdu_count; i++) {
		struct naos_frame_hdu *unit = &manifest->hdus[i];
		naos_cursor_put_u32(&w, unit->cards);
		naos_cursor_put_zero(&w, 4);
		naos_cursor_put_u64(&w, unit->header_bytes);
		naos_cursor_put_u64(&w, unit->data_bytes);
		const uint8_t *at = raw + w.position;
		naos_cursor_put(&w, unit->text, (size_t)unit->cards * NAOS_FITS_CARD_BYTES);
		unit->text = at;
	}
	free(manifest->raw);
	manifest->version = VERSION;
	manifest->raw = raw;
	manifest->raw_bytes = bytes;
	if (!naos_cursor_at_end(&w))
		return naos_error_set(err, NAOS_E_SYSTEM, "the manifest of a frame has another size than computed");
	return digest(manifest, err);
}

static int bad(struct naos_error *err, const char *what)
{
	return naos_error_set(err, NAOS_E_FORMAT, "manifest: %s", what);
}

static int decode_units(struct naos_cursor *in, struct naos_frame_manifest *manifest, struct naos_error *err)
{
	uint64_t total = 0, headers = 0;
	for (uint32_t i = 0; i < manifest->hdu_count; i++) {
		struct naos_frame_hdu *unit = &manifest->hdus[i];
		unit->cards = naos_cursor_get_u32(in);
		naos_cursor_get_zero(in, 4);
		unit->header_bytes = naos_cursor_get_u64(in);
		unit->data_bytes = naos_cursor_get_u64(in);
		if (unit->cards > NAOS_FRAME_MAX_MANIFEST_BYTES / NAOS_FITS_CARD_BYTES)
			return bad(err, "more structural cards than allowed");
		unit->text = naos_cursor_get_view(in, (size_t)unit->cards * NAOS_FITS_CARD_BYTES);
		if (!naos_cursor_ok(in))
			return bad(err, "it is cut off, or reserved bytes are not zero");
		bool tail = unit->header_bytes == 0;
		if (unit->header_bytes > NAOS_FRAME_MAX_HEADER_BYTES || unit->data_bytes > NAOS_FRAME_MAX_BYTES)
			return bad(err, "a unit is larger than allowed");
		if (unit->header_bytes % NAOS_FITS_BLOCK_BYTES != 0 || (tail && (i + 1 < manifest->hdu_count || i == 0 || unit->cards)) ||
		    (uint64_t)(unit->cards + 1) * NAOS_FITS_CARD_BYTES > unit->header_bytes + (tail ? NAOS_FITS_CARD_BYTES : 0))
			return bad(err, "a header of impossible size");
		total += unit->header_bytes + unit->data_bytes;
		headers += unit->header_bytes;
		if (total > NAOS_FRAME_MAX_BYTES) /* before it can wrap around */
			return bad(err, "its units are larger than any file");
	}
	if (!naos_cursor_at_end(in))
		return bad(err, "bytes behind its end");
	if (headers > NAOS_FRAME_MAX_HEADER_BYTES)
		return bad(err, "headers are larger than allowed");
	return total == manifest->file_bytes ? 0 : bad(err, "its units do not sum up to the file");
}

int naos_frame_manifest_decode(uint8_t *raw, size_t raw_bytes, struct naos_frame_manifest *ret, struct naos_error *err)
{
	struct naos_frame_manifest manifest = { .version = VERSION, .raw = raw, .raw_bytes = raw_bytes };
	struct naos_cursor in = naos_cursor_reader(raw, raw_bytes);
	naos_cursor_get_match(&in, MAGIC, 8);
	uint32_t version = naos_cursor_get_u32(&in), algorithm = naos_cursor_get_u32(&in);
	naos_cursor_get(&in, manifest.frame_id.bytes, NAOS_UUID_BYTES);
	naos_cursor_get(&in, manifest.collection_id.bytes, NAOS_UUID_BYTES);
	naos_cursor_get(&in, manifest.commit, sizeof(manifest.commit));
	manifest.file_bytes = naos_cursor_get_u64(&in);
	manifest.segment_bytes = naos_cursor_get_u32(&in);
	manifest.hdu_count = naos_cursor_get_u32(&in);
	manifest.algorithm = (enum naos_algorithm)algorithm;
	int rc = 0;
	if (!naos_cursor_ok(&in) || version != VERSION)
		rc = bad(err, "not one of this version");
	else if (naos_algorithm_key_bytes(manifest.algorithm) == 0)
		rc = bad(err, "unknown algorithm");
	else if (manifest.segment_bytes < NAOS_FRAME_MIN_SEGMENT_BYTES || manifest.segment_bytes > NAOS_FRAME_MAX_SEGMENT_BYTES)
		rc = bad(err, "segments of a size that is not allowed");
	else if (manifest.hdu_count == 0 || manifest.hdu_count > NAOS_FRAME_MAX_HDUS || manifest.file_bytes > NAOS_FRAME_MAX_BYTES)
		rc = bad(err, "a file that is not allowed");
	if (rc == 0 && !(manifest.hdus = calloc(manifest.hdu_count, sizeof(*manifest.hdus))))
		rc = naos_error_set(err, NAOS_E_NOMEM, "no memory for the manifest of a frame");
	if (rc == 0)
		rc = decode_units(&in, &manifest, err);
	if (rc == 0)
		rc = digest(&manifest, err);
	if (rc == 0)
		*ret = manifest;
	else
		naos_frame_manifest_free(&manifest);
	return rc;
}
