/* SPDX-License-Identifier: Apache-2.0 */
#include "fits/container1.h"

#include <string.h>

static const char *const scaling_words[NAOS_FRAME1_SCALINGS] = { "BZERO", "BSCALE", "BLANK" };

void naos_container1_free(struct naos_container1 *container)
{
	free(container->digits);
	*container = (struct naos_container1){ .digits = NULL };
}

bool naos_container1_hex(const char *digits, uint8_t *ret, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		uint8_t value = 0;
		for (unsigned k = 0; k < 2; k++) {
			char digit = digits[2 * i + k];
			bool number = digit >= '0' && digit <= '9';
			if (!number && (digit < 'a' || digit > 'f'))
				return false;
			value = (uint8_t)(value << 4 | (number ? digit - '0' : digit - 'a' + 10));
		}
		ret[i] = value;
	}
	return true;
}

static uint64_t round_up(uint64_t bytes)
{
	return (bytes + NAOS_FITS_BLOCK_BYTES - 1) / NAOS_FITS_BLOCK_BYTES * NAOS_FITS_BLOCK_BYTES;
}

/* --- cards, both ways --------------------------------------------------------------------------------------------------------- */

static void first_cards(struct naos_cards *cards)
{
	naos_cards_true(cards, "SIMPLE", "conforms to the FITS standard");
	naos_cards_number(cards, "BITPIX", 8, NULL);
	naos_cards_number(cards, "NAXIS", 0, "no data here");
	naos_cards_true(cards, "EXTEND", "extensions follow");
	naos_cards_number(cards, "NAOSFRM", 1, "Naos frame: version of its format");
}

/* Fixed digits that a program must understand: what differs is found by the comparison of the next card. */
static void put_hex(struct naos_cards *cards, const char *name, uint8_t *value, size_t bytes)
{
	char digits[2 * NAOS_FRAME_COMMIT_BYTES + 1] = "";
	if (!cards->reading)
		(void)naos_hex_format(value, bytes, digits);
	naos_cards_digits(cards, name, digits, 2 * bytes);
	if (cards->reading && !naos_container1_hex(digits, value, bytes))
		cards->failed = true;
}

/* The same of one part: damage costs that part only. */
static void put_part_hex(struct naos_cards *cards, const char *name, uint8_t *value, size_t bytes, bool *damaged)
{
	char digits[2 * NAOS_GCM_TAG_BYTES + 1] = "";
	if (!cards->reading)
		(void)naos_hex_format(value, bytes, digits);
	naos_cards_digits(cards, name, digits, 2 * bytes);
	if (cards->reading && !naos_container1_hex(digits, value, bytes))
		*damaged = true;
}

static void put_uuid(struct naos_cards *cards, const char *name, struct naos_uuid *id, const char *comment)
{
	char text[NAOS_UUID_TEXT_BYTES];
	if (cards->reading) {
		naos_cards_peek_text(cards, text, sizeof(text));
		cards->failed |= !naos_uuid_parse(text, id);
	}
	naos_cards_text(cards, name, naos_uuid_format(id, text), comment);
}

static void put_count(struct naos_cards *cards, const char *name, uint64_t *value, const char *comment)
{
	if (cards->reading) {
		long long number = naos_cards_peek_number(cards);
		cards->failed |= number < 0;
		*value = (uint64_t)number;
	}
	naos_cards_number(cards, name, *value, comment);
}

static void put_algorithm(struct naos_cards *cards, struct naos_frame_manifest *manifest)
{
	char text[16];
	if (cards->reading) {
		naos_cards_peek_text(cards, text, sizeof(text));
		cards->failed |= !naos_algorithm_parse(text, &manifest->algorithm);
	}
	if (!cards->failed)
		naos_cards_text(cards, "ALGORITH", naos_algorithm_name(manifest->algorithm), "keys by HKDF-SHA256");
}

static bool known_bitpix(long long value)
{
	return value == 8 || value == 16 || value == 32 || value == 64 || value == -32 || value == -64;
}

static void put_shape(struct naos_cards *cards, struct naos_container1 *c)
{
	static const char *const names[NAOS_FRAME1_SCALINGS] = { "ORIG_BZE", "ORIG_BSC", "ORIG_BLK" };
	char text[32];
	uint64_t axes = c->axes;
	if (cards->reading) {
		long long bitpix = naos_cards_peek_number(cards);
		cards->failed |= !known_bitpix(bitpix);
		c->bitpix = cards->failed ? 8 : (int)bitpix;
	}
	(void)snprintf(text, sizeof(text), "%20d", c->bitpix);
	naos_cards_card(cards, "ORIG_BPX", text, "BITPIX of the image");
	put_count(cards, "ORIG_NAX", &axes, "NAXIS of the image");
	cards->failed |= axes > NAOS_FRAME1_MAX_AXES;
	c->axes = cards->failed ? 0 : (unsigned)axes;
	for (unsigned i = 0; i < c->axes; i++) {
		(void)snprintf(text, sizeof(text), "ORIG_NA%u", i + 1);
		put_count(cards, text, &c->size[i], NULL);
	}
	for (unsigned i = 0; i < NAOS_FRAME1_SCALINGS; i++) {
		if (cards->reading && naos_cards_next_is(cards, names[i])) {
			naos_cards_peek_text(cards, c->scaling[i], sizeof(c->scaling[i]));
			cards->failed |= c->scaling[i][0] == 0;
		}
		if (c->scaling[i][0])
			naos_cards_text(cards, names[i], c->scaling[i], NULL);
	}
	put_count(cards, "ORIG_HDR", &c->header_bytes, "bytes of the header");
	put_count(cards, "ORIG_LEN", &c->data_bytes, "bytes behind the header");
}

/* A wrapped key is there or not. */
static void put_slot(struct naos_cards *cards, const char *name, uint8_t *slot, bool *used, bool *damaged)
{
	char digits[2 * NAOS_FRAME_SLOT_BYTES + 1] = "";
	if (cards->reading)
		*used = naos_cards_next_is(cards, name);
	if (!*used)
		return;
	if (!cards->reading)
		(void)naos_hex_format(slot, NAOS_FRAME_SLOT_BYTES, digits);
	naos_cards_digits(cards, name, digits, 2 * (size_t)NAOS_FRAME_SLOT_BYTES);
	if (cards->reading)
		*damaged = !naos_container1_hex(digits, slot, NAOS_FRAME_SLOT_BYTES);
}

/* What the cards of the primary header speak of. */
struct spoken {
	struct naos_frame_manifest *manifest;
	struct naos_container1 *container;
	uint8_t (*slots)[NAOS_FRAME_SLOT_BYTES];
	bool *used, *damaged; /* of the slots */
};

/* All cards before the encrypted header; they lie in the first two blocks. */
static void start_of_primary(struct naos_cards *cards, const struct spoken *spoken)
{
	struct naos_frame_manifest *manifest = spoken->manifest;
	struct naos_container1 *c = spoken->container;
	first_cards(cards);
	naos_cards_comment(cards, "A sealed FITS file. Its header and its data are encrypted with keys of");
	naos_cards_comment(cards, "their own (AES-GCM); 'naos fits open' opens it, in full or in part.");
	naos_cards_text(cards, "LONGSTRN", "OGIP 1.0", "long strings go on in CONTINUE cards");
	put_uuid(cards, "FRAMEID", &manifest->frame_id, NULL);
	put_uuid(cards, "COLLID", &manifest->collection_id, NULL);
	put_algorithm(cards, manifest);
	put_hex(cards, "KEYCHK_H", manifest->commit[0], NAOS_FRAME_COMMIT_BYTES);
	put_hex(cards, "KEYCHK_D", manifest->commit[1], NAOS_FRAME_COMMIT_BYTES);
	put_shape(cards, c);
	put_part_hex(cards, "NONCE_H", c->nonces[0], NAOS_GCM_NONCE_BYTES, &c->damaged[0]);
	put_part_hex(cards, "NONCE_D", c->nonces[1], NAOS_GCM_NONCE_BYTES, &c->damaged[1]);
	put_part_hex(cards, "HIERARCH AUTHTAG_H", c->tags[0], NAOS_GCM_TAG_BYTES, &c->damaged[0]);
	put_part_hex(cards, "HIERARCH AUTHTAG_D", c->tags[1], NAOS_GCM_TAG_BYTES, &c->damaged[1]);
	put_slot(cards, "WRAPKEYH", spoken->slots[0], &spoken->used[0], &spoken->damaged[0]);
	put_slot(cards, "WRAPKEYD", spoken->slots[1], &spoken->used[1], &spoken->damaged[1]);
}

static void rest_of_primary(struct naos_cards *cards, struct naos_container1 *c)
{
	naos_cards_digits(cards, "ENCHDR", c->digits, 2 * (size_t)c->header_bytes);
	naos_cards_end(cards);
}

static void table_header(struct naos_cards *cards, uint64_t data_bytes)
{
	char form[32];
	(void)snprintf(form, sizeof(form), "%lluB", (unsigned long long)data_bytes);
	naos_cards_table(cards, data_bytes, 1, 0, 1);
	naos_cards_field(cards, 1, "RAW_BYTES", form);
	naos_cards_text(cards, "EXTNAME", "ENCRYPTED_DATA", NULL);
	naos_cards_end(cards);
}

/* Bytes of a primary header whose first `start` bytes are those before ENCHDR. */
static uint64_t primary_bytes(uint64_t start, uint64_t header_bytes)
{
	uint64_t digits = 2 * header_bytes, cards = 1;
	if (digits > NAOS_CARDS_LONG_DIGITS + 1)
		cards += (digits - 2) / NAOS_CARDS_LONG_DIGITS; /* the last card holds one digit more than the others */
	return round_up(start + (cards + 1) * NAOS_FITS_CARD_BYTES);
}

static void lay_out(struct naos_container1 *c, uint64_t primary)
{
	c->data_offset = primary + NAOS_FITS_BLOCK_BYTES;
	c->file_bytes = c->data_offset + round_up(c->data_bytes);
}

/* --- shape ------------------------------------------------------------------------------------------------------------------------ */

/* Bytes of the image; false: they are more than any file has. */
static bool image_bytes(const struct naos_container1 *c, uint64_t *ret)
{
	uint64_t bytes = c->axes ? (uint64_t)abs(c->bitpix) / 8 : 0;
	for (unsigned i = 0; i < c->axes; i++)
		if (__builtin_mul_overflow(bytes, c->size[i], &bytes) || bytes > NAOS_FRAME_MAX_BYTES)
			return false;
	*ret = bytes;
	return true;
}

static int check_shape(const struct naos_container1 *c, struct naos_error *err)
{
	uint64_t image = 0;
	if (c->header_bytes == 0 || c->header_bytes % NAOS_FITS_BLOCK_BYTES != 0 || !image_bytes(c, &image) || c->data_bytes > round_up(image))
		return naos_error_set(err, NAOS_E_FORMAT, "its ORIG_ keywords make no image");
	if (c->header_bytes > NAOS_FRAME1_MAX_HEADER_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "the header of a frame of version 1 has at most 16 MiB: use version 2");
	if (c->data_bytes > NAOS_GCM_MAX_MESSAGE_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "AES-GCM encrypts at most 64 GiB at once, which a frame of version 1 does: use version 2");
	return 0;
}

/* The text of a card's value, as it stands there; false if it is none that can be held. */
static bool value_text(const uint8_t *card, char ret[static NAOS_FRAME1_SCALING_BYTES])
{
	const char *text = (const char *)card + 10;
	size_t from = 0, to = 0;
	if (card[8] != '=' || card[9] != ' ')
		return false;
	while (from < 70 && text[from] == ' ')
		from++;
	for (to = from; to < 70 && text[to] != '/'; to++)
		if (!strchr("0123456789+-.EDed ", text[to]))
			return false;
	while (to > from && text[to - 1] == ' ')
		to--;
	if (to == from || to - from >= NAOS_FRAME1_SCALING_BYTES)
		return false;
	memcpy(ret, text + from, to - from);
	ret[to - from] = 0;
	return true;
}

static int take_shape(const struct naos_fits_unit *unit, const char *name, struct naos_container1 *c, struct naos_error *err)
{
	uint64_t bytes = (uint64_t)unit->card_count * NAOS_FITS_CARD_BYTES;
	long long bitpix = 0, axes = 0, size;
	if (!naos_fits_card_number(unit->cards, bytes, "BITPIX", &bitpix) || !known_bitpix(bitpix) ||
	    !naos_fits_card_number(unit->cards, bytes, "NAXIS", &axes) || axes < 0)
		return naos_error_set(err, NAOS_E_FORMAT, "%s: its header makes no image", name);
	if (naos_fits_card_find(unit->cards, bytes, "GROUPS") || axes > (long long)NAOS_FRAME1_MAX_AXES)
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "%s: a frame of version 1 holds no random groups and at most %u axes: use version 2",
				      name, NAOS_FRAME1_MAX_AXES);
	c->bitpix = (int)bitpix;
	c->axes = (unsigned)axes;
	for (unsigned i = 0; i < c->axes; i++) {
		char keyword[24];
		(void)snprintf(keyword, sizeof(keyword), "NAXIS%u", i + 1);
		if (!naos_fits_card_number(unit->cards, bytes, keyword, &size) || size < 0)
			return naos_error_set(err, NAOS_E_FORMAT, "%s: its header has no %s", name, keyword);
		c->size[i] = (uint64_t)size;
	}
	for (unsigned i = 0; i < NAOS_FRAME1_SCALINGS; i++) {
		const uint8_t *card = naos_fits_card_find(unit->cards, bytes, scaling_words[i]);
		if (card && !value_text(card, c->scaling[i]))
			return naos_error_set(err, NAOS_E_UNSUPPORTED, "%s: the value of %s is no plain number: use version 2", name, scaling_words[i]);
	}
	return 0;
}

int naos_container1_describe(const struct naos_fits_structure *structure, const char *name, struct naos_container1 *ret,
			     struct naos_error *err)
{
	const struct naos_fits_unit *unit = &structure->units[0];
	struct naos_container1 c = { .header_bytes = unit->header_bytes, .data_bytes = unit->data_bytes };
	if (structure->count != 1)
		return naos_error_set(err, NAOS_E_UNSUPPORTED,
				      "%s: a frame of version 1 holds one image; this file has %zu units more (or bytes behind it): use version 2",
				      name, structure->count - 1);
	int rc = take_shape(unit, name, &c, err);
	if (rc != 0)
		return rc;
	rc = check_shape(&c, err);
	if (rc != 0)
		return naos_error_prefix(err, rc, "%s", name);
	*ret = c;
	return 0;
}

/* --- the manifest that it stands for ------------------------------------------------------------------------------------------------- */

int naos_container1_manifest(const struct naos_container1 *c, struct naos_frame_manifest *manifest, struct naos_error *err)
{
	size_t room = (3 + NAOS_FRAME1_MAX_AXES + NAOS_FRAME1_SCALINGS) * NAOS_FITS_CARD_BYTES;
	char text[32], name[24];
	manifest->version = 1;
	manifest->file_bytes = c->header_bytes + c->data_bytes;
	manifest->segment_bytes = NAOS_FRAME1_STEP_BYTES;
	manifest->hdu_count = 1;
	manifest->hdus = calloc(1, sizeof(*manifest->hdus));
	manifest->raw = malloc(room);
	if (!manifest->hdus || !manifest->raw)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a frame");
	struct naos_cards cards = { .text = manifest->raw, .room = room };
	naos_cards_true(&cards, "SIMPLE", "conforms to the FITS standard");
	(void)snprintf(text, sizeof(text), "%20d", c->bitpix);
	naos_cards_card(&cards, "BITPIX", text, NULL);
	naos_cards_number(&cards, "NAXIS", c->axes, NULL);
	for (unsigned i = 0; i < c->axes; i++) {
		(void)snprintf(name, sizeof(name), "NAXIS%u", i + 1);
		naos_cards_number(&cards, name, c->size[i], NULL);
	}
	for (unsigned i = 0; i < NAOS_FRAME1_SCALINGS; i++)
		if (c->scaling[i][0]) {
			char value[NAOS_FRAME1_SCALING_BYTES + 20];
			(void)snprintf(value, sizeof(value), "%20s", c->scaling[i]);
			naos_cards_card(&cards, scaling_words[i], value, NULL);
		}
	manifest->raw_bytes = cards.used;
	manifest->hdus[0] = (struct naos_frame_hdu){
		.header_bytes = c->header_bytes, .data_bytes = c->data_bytes,
		.cards = (uint32_t)(cards.used / NAOS_FITS_CARD_BYTES), .text = manifest->raw,
	};
	return 0;
}

/* --- writing and reading ------------------------------------------------------------------------------------------------------------- */

int naos_container1_encode(const struct naos_frame_manifest *manifest, struct naos_container1 *container,
			   const uint8_t *const slots[static 2], uint8_t **ret, size_t *ret_bytes, struct naos_error *err)
{
	struct naos_frame_manifest copy = *manifest;
	uint8_t raw[2][NAOS_FRAME_SLOT_BYTES] = { { 0 } };
	bool used[2], damaged[2];
	size_t room = (size_t)primary_bytes(NAOS_FRAME1_START_BYTES, container->header_bytes) + NAOS_FITS_BLOCK_BYTES;
	struct naos_cards cards = { .text = malloc(room), .room = room };
	if (!cards.text)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a frame");
	for (unsigned i = 0; i < 2; i++) {
		used[i] = slots[i] != NULL;
		if (used[i])
			memcpy(raw[i], slots[i], NAOS_FRAME_SLOT_BYTES);
	}
	start_of_primary(&cards, &(struct spoken){ &copy, container, raw, used, damaged });
	uint64_t expected = primary_bytes(cards.used, container->header_bytes);
	rest_of_primary(&cards, container);
	size_t primary = cards.used;
	table_header(&cards, container->data_bytes);
	if (cards.failed || primary != expected || cards.used != primary + NAOS_FITS_BLOCK_BYTES) {
		free(cards.text);
		return naos_error_set(err, NAOS_E_SYSTEM, "the header of a frame has another size than expected");
	}
	lay_out(container, primary);
	*ret = cards.text;
	*ret_bytes = cards.used;
	return 0;
}

bool naos_container1_probe(const uint8_t block[static NAOS_FITS_BLOCK_BYTES])
{
	uint8_t copy[5 * NAOS_FITS_CARD_BYTES];
	struct naos_cards cards = { .text = copy, .room = sizeof(copy), .reading = true };
	memcpy(copy, block, sizeof(copy));
	first_cards(&cards);
	return !cards.failed;
}

/* ENCHDR, END and the header of the table; the digits stay in `c`. */
static int decode_rest(const struct naos_container1_file *file, uint64_t start, struct naos_container1 *c, struct naos_error *err)
{
	uint64_t primary = primary_bytes(start, c->header_bytes);
	size_t bytes = (size_t)(primary - start) + NAOS_FITS_BLOCK_BYTES;
	naos_autofree uint8_t *text = malloc(bytes + (size_t)start); /* its first bytes stay empty: END pads to blocks of the file */
	c->digits = malloc(2 * (size_t)c->header_bytes);
	if (!text || !c->digits)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a frame");
	int rc = file->read(file->context, text + start, bytes, start, err);
	if (rc != 0)
		return rc;
	struct naos_cards cards = { .text = text, .room = (size_t)primary, .used = (size_t)start, .reading = true };
	rest_of_primary(&cards, c);
	if (cards.failed || cards.used != primary)
		return naos_error_set(err, NAOS_E_INTEGRITY, "its first header was changed");
	cards = (struct naos_cards){ .text = text + primary, .room = NAOS_FITS_BLOCK_BYTES, .reading = true };
	table_header(&cards, c->data_bytes);
	if (cards.failed)
		return naos_error_set(err, NAOS_E_INTEGRITY, "the header of its table was changed");
	lay_out(c, primary);
	return 0;
}

int naos_container1_decode(const struct naos_container1_file *file, struct naos_container1 *ret, struct naos_frame_manifest *manifest,
			   uint8_t slots[static 2][NAOS_FRAME_SLOT_BYTES], bool slots_used[static 2], bool slots_damaged[static 2],
			   struct naos_error *err)
{
	uint8_t text[NAOS_FRAME1_START_BYTES];
	struct naos_cards cards = { .text = text, .room = sizeof(text), .reading = true };
	struct naos_container1 c = { .digits = NULL };
	slots_damaged[0] = slots_damaged[1] = false;
	int rc = file->read(file->context, text, sizeof(text), 0, err);
	if (rc != 0)
		return rc;
	start_of_primary(&cards, &(struct spoken){ manifest, &c, slots, slots_used, slots_damaged });
	if (cards.failed)
		return naos_error_set(err, NAOS_E_INTEGRITY, "its first header was changed");
	rc = check_shape(&c, err);
	if (rc == 0)
		rc = decode_rest(file, cards.used, &c, err);
	if (rc == 0)
		rc = naos_container1_manifest(&c, manifest, err);
	if (rc == 0)
		*ret = c;
	else
		naos_container1_free(&c);
	return rc;
}

/* --- associated data ------------------------------------------------------------------------------------------------------------------ */

static void put_field(struct naos_cursor *w, const void *data, size_t bytes)
{
	naos_cursor_put_u32(w, (uint32_t)bytes);
	naos_cursor_put(w, data, bytes);
}

static void put_decimal(struct naos_cursor *w, long long value)
{
	char text[24];
	int length = snprintf(text, sizeof(text), "%lld", value);
	put_field(w, text, (size_t)length);
}

size_t naos_container1_associated(const struct naos_frame_manifest *manifest, const struct naos_container1 *c, enum naos_frame_part part,
				  uint8_t ret[static NAOS_FRAME1_ASSOCIATED_BYTES])
{
	const char *purpose = part == NAOS_FRAME_HEADER ? "naos/fr/1/header" : "naos/fr/1/data";
	const char *algorithm = naos_algorithm_name(manifest->algorithm);
	struct naos_cursor w = naos_cursor_writer(ret, NAOS_FRAME1_ASSOCIATED_BYTES);
	put_field(&w, manifest->frame_id.bytes, NAOS_UUID_BYTES);
	put_field(&w, purpose, strlen(purpose));
	put_field(&w, algorithm, strlen(algorithm));
	put_field(&w, manifest->collection_id.bytes, NAOS_UUID_BYTES);
	for (unsigned i = 0; i < 2; i++)
		put_field(&w, manifest->commit[i], NAOS_FRAME_COMMIT_BYTES);
	put_decimal(&w, c->bitpix);
	put_decimal(&w, c->axes);
	for (unsigned i = 0; i < c->axes; i++)
		put_decimal(&w, (long long)c->size[i]);
	for (unsigned i = 0; i < NAOS_FRAME1_SCALINGS; i++)
		put_field(&w, c->scaling[i], strlen(c->scaling[i]));
	put_decimal(&w, (long long)c->header_bytes);
	put_decimal(&w, (long long)c->data_bytes);
	return w.position;
}
