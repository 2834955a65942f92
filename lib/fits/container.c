/* SPDX-License-Identifier: Apache-2.0 */
#include "fits/container.h"

#include <string.h>
#include <openssl/evp.h>

#include "fits/cards.h"

/* --- headers ------------------------------------------------------------------------------------------------------------ */

static void primary(struct naos_cards *cards)
{
	naos_cards_true(cards, "SIMPLE", "conforms to the FITS standard");
	naos_cards_number(cards, "BITPIX", 8, NULL);
	naos_cards_number(cards, "NAXIS", 0, "no data here");
	naos_cards_true(cards, "EXTEND", "extensions follow");
	naos_cards_number(cards, "NAOSFRM", 2, "Naos frame: version of its format");
	naos_cards_comment(cards, "A sealed FITS file. Its headers and its data are encrypted with keys of");
	naos_cards_comment(cards, "their own (AES-GCM); 'naos fits open' opens it, in full or in part.");
	naos_cards_end(cards);
}

static void manifest_header(struct naos_cards *cards, size_t manifest_bytes)
{
	char form[32];
	(void)snprintf(form, sizeof(form), "%zuB", manifest_bytes);
	naos_cards_table(cards, manifest_bytes + NAOS_FRAME_KEYS_BYTES, 1, 0, 2);
	naos_cards_field(cards, 1, "MANIFEST", form);
	(void)snprintf(form, sizeof(form), "%uB", NAOS_FRAME_KEYS_BYTES);
	naos_cards_field(cards, 2, "KEYS", form);
	naos_cards_text(cards, "EXTNAME", "NAOS-FRAME", "structure, wrapped keys");
	naos_cards_end(cards);
}

static void segments_header(struct naos_cards *cards, uint64_t rows, uint64_t heap_bytes, uint64_t longest)
{
	char form[40];
	(void)snprintf(form, sizeof(form), "1QB(%llu)", (unsigned long long)longest);
	naos_cards_table(cards, NAOS_FRAME_ROW_BYTES, rows, heap_bytes, 6);
	naos_cards_field(cards, 1, "PART", "1B");
	naos_cards_field(cards, 2, "HDU", "1J");
	naos_cards_field(cards, 3, "SEGMENT", "1K");
	naos_cards_field(cards, 4, "NONCE", "12B");
	naos_cards_field(cards, 5, "TAG", "16B");
	naos_cards_field(cards, 6, "DATA", form);
	naos_cards_text(cards, "EXTNAME", "NAOS-SEGMENTS", "encrypted headers, then data");
	naos_cards_end(cards);
}

int naos_container_probe(const uint8_t head[static NAOS_FRAME_HEAD_BYTES], size_t *ret_manifest_bytes, struct naos_error *err)
{
	uint8_t expected[NAOS_FRAME_HEAD_BYTES];
	struct naos_cards cards = { .text = expected, .room = sizeof(expected) };
	unsigned long long row_bytes = 0;
	char text[21] = "";
	primary(&cards);
	if (memcmp(head, expected, NAOS_FITS_BLOCK_BYTES) != 0)
		return naos_error_set(err, NAOS_E_FORMAT, "not a frame of version 2");
	memcpy(text, head + NAOS_FITS_BLOCK_BYTES + 3 * NAOS_FITS_CARD_BYTES + 10, 20);
	row_bytes = strtoull(text, NULL, 10);
	if (row_bytes <= NAOS_FRAME_KEYS_BYTES || row_bytes > NAOS_FRAME_MAX_MANIFEST_BYTES + NAOS_FRAME_KEYS_BYTES)
		return naos_error_set(err, NAOS_E_FORMAT, "a frame whose manifest has an impossible size");
	size_t manifest_bytes = (size_t)row_bytes - NAOS_FRAME_KEYS_BYTES;
	manifest_header(&cards, manifest_bytes);
	if (cards.used != sizeof(expected) || memcmp(head, expected, sizeof(expected)) != 0)
		return naos_error_set(err, NAOS_E_FORMAT, "a frame whose first headers were changed");
	*ret_manifest_bytes = manifest_bytes;
	return 0;
}

/* --- layout ------------------------------------------------------------------------------------------------------------- */

static uint64_t round_up(uint64_t bytes)
{
	return (bytes + NAOS_FITS_BLOCK_BYTES - 1) / NAOS_FITS_BLOCK_BYTES * NAOS_FITS_BLOCK_BYTES;
}

void naos_container_free(struct naos_container *container)
{
	for (unsigned i = 0; i < 2; i++) {
		free(container->first_row[i]);
		free(container->first_byte[i]);
	}
	free(container->head);
	free(container->middle);
	*container = (struct naos_container){ .rows = 0 };
}

static int make_headers(const struct naos_frame_manifest *manifest, uint64_t longest, struct naos_container *container,
			struct naos_error *err)
{
	container->head = malloc(NAOS_FRAME_HEAD_BYTES);
	container->middle = malloc(NAOS_FITS_BLOCK_BYTES);
	if (!container->head || !container->middle)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a frame");
	struct naos_cards head = { .text = container->head, .room = NAOS_FRAME_HEAD_BYTES };
	struct naos_cards middle = { .text = container->middle, .room = NAOS_FITS_BLOCK_BYTES };
	primary(&head);
	manifest_header(&head, manifest->raw_bytes);
	segments_header(&middle, container->rows, container->heap_bytes, longest);
	container->head_bytes = head.used;
	container->middle_bytes = middle.used;
	return 0;
}

int naos_container_lay_out(const struct naos_frame_manifest *manifest, struct naos_container *ret, struct naos_error *err)
{
	struct naos_container c = { .rows = 2 };
	uint64_t longest = 0;
	int rc = 0;
	for (unsigned i = 0; i < 2; i++) {
		c.first_row[i] = calloc(manifest->hdu_count, sizeof(uint64_t));
		c.first_byte[i] = calloc(manifest->hdu_count, sizeof(uint64_t));
		if (!c.first_row[i] || !c.first_byte[i]) {
			naos_container_free(&c);
			return naos_error_set(err, NAOS_E_NOMEM, "no memory for a frame");
		}
		for (uint32_t hdu = 0; hdu < manifest->hdu_count; hdu++) {
			const struct naos_frame_hdu *unit = &manifest->hdus[hdu];
			uint64_t bytes = i == 0 ? unit->header_bytes : unit->data_bytes;
			c.first_row[i][hdu] = c.rows;
			c.first_byte[i][hdu] = c.heap_bytes;
			c.rows += naos_frame_segments(manifest, i == 0 ? NAOS_FRAME_HEADER : NAOS_FRAME_DATA, hdu);
			c.heap_bytes += bytes;
			bytes = bytes < manifest->segment_bytes ? bytes : manifest->segment_bytes;
			longest = bytes > longest ? bytes : longest;
		}
		if (i == 0)
			c.header_rows = c.rows - 2;
	}
	rc = make_headers(manifest, longest, &c, err);
	if (rc != 0) {
		naos_container_free(&c);
		return rc;
	}
	c.manifest_offset = c.head_bytes;
	c.keys_offset = c.manifest_offset + manifest->raw_bytes;
	c.rows_offset = c.manifest_offset + round_up(manifest->raw_bytes + NAOS_FRAME_KEYS_BYTES) + c.middle_bytes;
	c.heap_offset = c.rows_offset + c.rows * NAOS_FRAME_ROW_BYTES;
	c.file_bytes = c.rows_offset + round_up(c.rows * NAOS_FRAME_ROW_BYTES + c.heap_bytes);
	*ret = c;
	return 0;
}

/* --- rows ----------------------------------------------------------------------------------------------------------------- */

void naos_container_row(const struct naos_frame_manifest *manifest, const struct naos_container *container,
			enum naos_frame_part part,
			uint32_t hdu, uint64_t index, struct naos_frame_row *ret, uint64_t *ret_number)
{
	*ret = (struct naos_frame_row){ .part = part, .hdu = hdu, .index = index };
	*ret_number = part == NAOS_FRAME_HEADER ? 0 : 1;
	if (hdu == NAOS_FRAME_PROOF_HDU)
		return;
	const struct naos_frame_hdu *unit = &manifest->hdus[hdu];
	uint64_t bytes = part == NAOS_FRAME_HEADER ? unit->header_bytes : unit->data_bytes, at = index * manifest->segment_bytes;
	ret->bytes = bytes - at < manifest->segment_bytes ? bytes - at : manifest->segment_bytes;
	ret->offset = container->first_byte[part - 1][hdu] + at;
	*ret_number = container->first_row[part - 1][hdu] + index;
}

static void put_place(struct naos_cursor *w, const struct naos_frame_row *row)
{
	naos_cursor_put_u8(w, (uint8_t)row->part);
	naos_cursor_put_u32be(w, row->hdu);
	naos_cursor_put_u64be(w, row->index);
}

void naos_frame_row_encode(const struct naos_frame_row *row, uint8_t ret[static NAOS_FRAME_ROW_BYTES])
{
	struct naos_cursor w = naos_cursor_writer(ret, NAOS_FRAME_ROW_BYTES);
	put_place(&w, row);
	naos_cursor_put(&w, row->nonce, sizeof(row->nonce));
	naos_cursor_put(&w, row->tag, sizeof(row->tag));
	naos_cursor_put_u64be(&w, row->bytes);
	naos_cursor_put_u64be(&w, row->offset);
}

int naos_frame_row_decode(const uint8_t raw[static NAOS_FRAME_ROW_BYTES], struct naos_frame_row *expected, struct naos_error *err)
{
	struct naos_cursor in = naos_cursor_reader(raw, NAOS_FRAME_ROW_BYTES);
	bool same = naos_cursor_get_u8(&in) == (uint8_t)expected->part;
	same &= naos_cursor_get_u32be(&in) == expected->hdu;
	same &= naos_cursor_get_u64be(&in) == expected->index;
	naos_cursor_get(&in, expected->nonce, sizeof(expected->nonce));
	naos_cursor_get(&in, expected->tag, sizeof(expected->tag));
	same &= naos_cursor_get_u64be(&in) == expected->bytes;
	same &= naos_cursor_get_u64be(&in) == expected->offset;
	return same && naos_cursor_at_end(&in) ? 0 : naos_error_set(err, NAOS_E_INTEGRITY,
		"a row of the table of segments was changed");
}

/* --- wrapped keys ----------------------------------------------------------------------------------------------------------- */

#define CHECK_BYTES 8u

/* Needs no key: tells damage from a MEK that is not to be had. */
static void checksum(const struct naos_frame_manifest *manifest, enum naos_frame_part part, const uint8_t *raw,
		     uint8_t ret[static 32])
{
	uint8_t text[32 + NAOS_FRAME_SLOT_BYTES];
	size_t bytes = 32;
	struct naos_cursor w = naos_cursor_writer(text, sizeof(text));
	naos_cursor_put(&w, manifest->version == 1 ? "naos/fr/1/slot" : "naos/fr/2/slot", 15);
	naos_cursor_put_u8(&w, (uint8_t)part);
	naos_cursor_put(&w, manifest->frame_id.bytes, NAOS_UUID_BYTES);
	naos_cursor_put(&w, raw, NAOS_FRAME_SLOT_BYTES - CHECK_BYTES);
	if (EVP_Q_digest(NULL, "SHA256", NULL, text, w.position, ret, &bytes) != 1)
		memset(ret, 0, 32);
}

void naos_frame_slot_encode(const struct naos_frame_manifest *manifest, enum naos_frame_part part, const struct naos_blob *blob,
			    uint8_t ret[static NAOS_FRAME_SLOT_BYTES])
{
	uint8_t digest[32];
	memset(ret, 0, NAOS_FRAME_SLOT_BYTES);
	if (!blob)
		return;
	struct naos_cursor w = naos_cursor_writer(ret + 8, NAOS_BLOB_MAX_BYTES);
	naos_blob_encode(blob, &w);
	ret[0] = (uint8_t)w.position;
	checksum(manifest, part, ret, digest);
	memcpy(ret + NAOS_FRAME_SLOT_BYTES - CHECK_BYTES, digest, CHECK_BYTES);
}

int naos_frame_slot_decode(const struct naos_frame_manifest *manifest, enum naos_frame_part part,
			   const uint8_t raw[static NAOS_FRAME_SLOT_BYTES],
			   struct naos_blob *ret, bool *ret_used, struct naos_error *err)
{
	static const uint8_t empty[NAOS_FRAME_SLOT_BYTES];
	uint8_t digest[32];
	if (memcmp(raw, empty, sizeof(empty)) == 0) {
		*ret_used = false;
		return 0;
	}
	checksum(manifest, part, raw, digest);
	struct naos_cursor in = naos_cursor_reader(raw, NAOS_FRAME_SLOT_BYTES - CHECK_BYTES);
	uint8_t bytes = naos_cursor_get_u8(&in);
	naos_cursor_get_zero(&in, 7);
	struct naos_blob blob;
	int rc = naos_blob_decode(&in, &blob, err);
	bool whole = rc == 0 && in.position == 8u + bytes;
	naos_cursor_get_zero(&in, naos_cursor_left(&in));
	if (!whole || !naos_cursor_at_end(&in) || memcmp(raw + NAOS_FRAME_SLOT_BYTES - CHECK_BYTES, digest, CHECK_BYTES) != 0)
		return naos_error_set(err, NAOS_E_INTEGRITY, "the wrapped %s key is damaged",
			part == NAOS_FRAME_HEADER ? "header" : "data");
	*ret = blob;
	*ret_used = true;
	return 0;
}
