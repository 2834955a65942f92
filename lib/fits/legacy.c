/* SPDX-License-Identifier: Apache-2.0 */
#include "fits/legacy.h"

#include <ctype.h>
#include <string.h>
#include <openssl/evp.h>

#include "base/io.h"
#include "base/uuid.h"
#include "fits/structure.h"

#define GROUP_BYTES 128u /* eight AES blocks, bit-sliced */
#define BLOCKS 8u
#define MAX_AXES 9 /* as the writer has it */
#define RUN_BYTES ((size_t)1 << 20) /* a multiple of a group */
#define MAX_CARDS_BYTES ((size_t)64 << 20) /* the header that the encrypted one is in, as digits */
#define MAX_TABLE_BYTES ((size_t)1 << 20) /* the header of the table with the pixels */

/* --- the keystream, with its faults ------------------------------------------------------------------------------------- */

/* Block b of group g: only block 0 has the nonce, with the bytes of each word reversed; counter bits from 25 on come from the
 * wrong bits of g. */
static void make_blocks(const uint8_t *nonce, enum naos_legacy_mode mode, uint64_t group, uint8_t ret[static GROUP_BYTES])
{
	memset(ret, 0, GROUP_BYTES);
	for (unsigned i = 0; i < 12; i++)
		ret[i] = nonce[i / 4 * 4 + 3 - i % 4];
	uint32_t counter = (uint32_t)(group & 0x3fffff) << 3 | (uint32_t)(group >> 25 & 1) << 25 | (uint32_t)(group >> 26 & 1) << 26;
	for (uint32_t b = 0; b < BLOCKS; b++) {
		uint32_t value = counter | b;
		if (mode == NAOS_LEGACY_GCM && b == 7)
			value |= 0x10000000u; /* what became of counting from 1 */
		for (unsigned i = 0; i < 4; i++)
			ret[b * 16 + 12 + i] = (uint8_t)(value >> (24 - 8 * i));
	}
}

/* The encrypted blocks leave as they lie in the sliced state. */
static void slice(const uint8_t blocks[static GROUP_BYTES], uint8_t ret[static GROUP_BYTES])
{
	for (unsigned o = 0; o < GROUP_BYTES; o++) {
		unsigned word = o / 4, column = o % 4, row = word / 8, bit = word % 8;
		uint8_t value = 0;
		for (unsigned b = 0; b < BLOCKS; b++)
			value |= (uint8_t)((blocks[b * 16 + 4 * column + row] >> (7 - bit) & 1) << (7 - b));
		ret[o] = value;
	}
}

static void free_cipher(EVP_CIPHER_CTX **context)
{
	EVP_CIPHER_CTX_free(*context);
}

int naos_legacy_crypt(const struct naos_secret *key, const uint8_t nonce[static 12], enum naos_legacy_mode mode, uint8_t *data,
		      size_t bytes, uint64_t offset, struct naos_error *err)
{
	naos_cleanup(free_cipher) EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
	uint8_t blocks[GROUP_BYTES], stream[GROUP_BYTES];
	bool ok = cipher && EVP_EncryptInit_ex(cipher, EVP_aes_128_ecb(), NULL, naos_secret_view(key), NULL) == 1 &&
		  EVP_CIPHER_CTX_set_padding(cipher, 0) == 1;
	for (size_t done = 0; ok && done < bytes;) {
		uint64_t at = offset + done;
		size_t skip = (size_t)(at % GROUP_BYTES), take = GROUP_BYTES - skip < bytes - done ? GROUP_BYTES - skip : bytes - done;
		int written;
		make_blocks(nonce, mode, at / GROUP_BYTES, blocks);
		ok = EVP_EncryptUpdate(cipher, blocks, &written, blocks, GROUP_BYTES) == 1;
		slice(blocks, stream);
		for (size_t i = 0; i < take; i++)
			data[done + i] ^= stream[skip + i];
		done += take;
	}
	naos_wipe(blocks, sizeof(blocks));
	naos_wipe(stream, sizeof(stream));
	return ok ? 0 : naos_error_set(err, NAOS_E_SYSTEM, "AES is not available in the cryptographic library");
}

/* --- the container --------------------------------------------------------------------------------------------------------- */

struct legacy {
	int fd;
	const char *name;
	enum naos_legacy_mode mode;
	uint8_t *cards; /* the primary header, whole blocks */
	size_t card_bytes;
	uint8_t nonces[2][12];
	uint8_t *header;
	size_t header_bytes, encrypted_bytes; /* padded to blocks; of them encrypted */
	int bitpix, axes;
	uint64_t data_bytes;
};

static int bad(const struct legacy *legacy, struct naos_error *err, const char *what)
{
	return naos_error_set(err, NAOS_E_FORMAT, "%s: %s", legacy->name, what);
}

static void free_legacy(struct legacy *legacy)
{
	if (legacy->header)
		naos_wipe(legacy->header, legacy->header_bytes);
	free(legacy->header);
	free(legacy->cards);
}

/* The blocks of a header up to its END; the caller frees *ret.  CFITSIO is not used on these files, which anyone may have written: 4.2
 * writes behind its own message where a number is none.  NAOS_E_FORMAT: there is no END within max_bytes. */
static int read_cards(int fd, uint64_t offset, size_t max_bytes, const char *name, uint8_t **ret, size_t *ret_bytes, struct naos_error *err)
{
	naos_autofree uint8_t *text = NULL;
	size_t bytes = 0, room = 0;
	while (bytes < max_bytes) {
		size_t got;
		if (bytes == room) {
			room = room ? 2 * room : (size_t)4 * NAOS_FITS_BLOCK_BYTES;
			uint8_t *larger = realloc(text, room);
			if (!larger)
				return naos_error_set(err, NAOS_E_NOMEM, "no memory for a header of %s", name);
			text = larger;
		}
		int rc = naos_io_pread(fd, text + bytes, NAOS_FITS_BLOCK_BYTES, offset + bytes, &got, name, err);
		if (rc != 0)
			return rc;
		if (got < NAOS_FITS_BLOCK_BYTES)
			break;
		for (size_t at = bytes; at < bytes + got; at += NAOS_FITS_CARD_BYTES)
			if (memcmp(text + at, "END     ", 8) == 0) {
				*ret_bytes = bytes + got;
				*ret = naos_steal(text);
				return 0;
			}
		bytes += got;
	}
	return naos_error_set(err, NAOS_E_FORMAT, "%s: a header has no end", name);
}

/* A card by its name of more than eight letters. */
static bool has_hierarchy(const struct legacy *legacy, const char *name)
{
	char start[32];
	int length = snprintf(start, sizeof(start), "HIERARCH %s", name);
	for (size_t at = 0; at < legacy->card_bytes; at += NAOS_FITS_CARD_BYTES) {
		uint8_t behind = legacy->cards[at + (size_t)length];
		if (memcmp(legacy->cards + at, start, (size_t)length) == 0 && (behind == ' ' || behind == '='))
			return true;
	}
	return false;
}

static bool has_card(const struct legacy *legacy, const char *name)
{
	return naos_fits_card_find(legacy->cards, legacy->card_bytes, name) != NULL;
}

/* Its primary header and mode, if it is one of these files; else NAOS_E_FORMAT. */
static int read_primary(struct legacy *legacy, struct naos_error *err)
{
	static const char what[] = "it is no file of GpuFitsCrypt";
	uint8_t block[NAOS_FITS_BLOCK_BYTES];
	size_t got;
	int rc = naos_io_pread(legacy->fd, block, sizeof(block), 0, &got, legacy->name, err);
	if (rc != 0)
		return rc;
	if (got < sizeof(block) || memcmp(block, "SIMPLE  =", 9) != 0 || !naos_fits_card_find(block, sizeof(block), "NONCE_H"))
		return bad(legacy, err, what);
	rc = read_cards(legacy->fd, 0, MAX_CARDS_BYTES, legacy->name, &legacy->cards, &legacy->card_bytes, err);
	if (rc == NAOS_E_FORMAT)
		return bad(legacy, err, what);
	if (rc == 0 && (!has_card(legacy, "ENCHDR") || !has_card(legacy, "ORIG_BPX") || has_card(legacy, "NAOSFRM")))
		return bad(legacy, err, what); /* a frame of version 1 has the others too */
	if (rc == 0)
		legacy->mode = has_hierarchy(legacy, "AUTHTAG_H") ? NAOS_LEGACY_GCM : NAOS_LEGACY_CTR;
	return rc;
}

bool naos_legacy_probe(int fd, enum naos_legacy_mode *ret_mode)
{
	naos_cleanup(free_legacy) struct legacy legacy = { .fd = fd, .name = "" };
	struct naos_error ignored = NAOS_ERROR_INIT;
	if (read_primary(&legacy, &ignored) != 0)
		return false;
	*ret_mode = legacy.mode;
	return true;
}

/* The text between the quotes of a card, a doubled quote inside being one; appended to `to`, which has room for a card. */
static size_t take_quoted(const uint8_t *card, char *to)
{
	size_t at = 8, used = 0;
	while (at < NAOS_FITS_CARD_BYTES && card[at] != '\'')
		at++;
	for (at++; at < NAOS_FITS_CARD_BYTES; at++) {
		if (card[at] == '\'' && (at + 1 == NAOS_FITS_CARD_BYTES || card[++at] != '\''))
			break;
		to[used++] = (char)card[at];
	}
	while (used > 0 && to[used - 1] == ' ')
		used--;
	return used;
}

/* The string of a keyword with the CONTINUE cards that follow; the caller frees it.  NULL: there is none, or no memory. */
static char *read_string(const struct legacy *legacy, const char *name)
{
	const uint8_t *card = naos_fits_card_find(legacy->cards, legacy->card_bytes, name), *end = legacy->cards + legacy->card_bytes;
	char *text = card ? malloc((size_t)(end - card) + 1) : NULL;
	if (!text)
		return NULL;
	size_t used = take_quoted(card, text);
	for (card += NAOS_FITS_CARD_BYTES; used > 0 && text[used - 1] == '&' && card < end && memcmp(card, "CONTINUE", 8) == 0;
	     card += NAOS_FITS_CARD_BYTES)
		used += take_quoted(card, text + used - 1) - 1u; /* newer CFITSIOs end with an empty one */
	text[used] = 0;
	return text;
}

/* Hexadecimal digits, perhaps within quotes of their own. */
static bool take_hex(const char *text, uint8_t *ret, size_t bytes)
{
	size_t length = strlen(text);
	if (length >= 2 && text[0] == '\'' && text[length - 1] == '\'') {
		text++;
		length -= 2;
	}
	char digits[25];
	if (length != 2 * bytes || length >= sizeof(digits))
		return false;
	memcpy(digits, text, length);
	digits[length] = 0;
	return naos_hex_parse(digits, ret, bytes);
}

static int read_nonces(struct legacy *legacy, struct naos_error *err)
{
	static const char *const names[] = { "NONCE_H", "NONCE_D" };
	for (unsigned i = 0; i < 2; i++) {
		naos_autofree char *value = read_string(legacy, names[i]);
		if (!value || !take_hex(value, legacy->nonces[i], sizeof(legacy->nonces[i])))
			return bad(legacy, err, "its nonces are not 24 hexadecimal digits");
	}
	return 0;
}

static int read_header(struct legacy *legacy, struct naos_error *err)
{
	naos_autofree char *value = read_string(legacy, "ENCHDR");
	if (!value)
		return bad(legacy, err, "its encrypted header can't be read");
	size_t digits = strlen(value), bytes = digits / 2;
	if (digits % 2 || bytes == 0)
		return bad(legacy, err, "its encrypted header has an impossible size");
	size_t room = (bytes + NAOS_FITS_BLOCK_BYTES - 1) / NAOS_FITS_BLOCK_BYTES * NAOS_FITS_BLOCK_BYTES;
	legacy->header = malloc(room);
	if (!legacy->header)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a header");
	legacy->header_bytes = room;
	legacy->encrypted_bytes = bytes;
	memset(legacy->header, ' ', room);
	return naos_hex_parse(value, legacy->header, bytes) ? 0 : bad(legacy, err, "its encrypted header is not hexadecimal");
}

static int read_shape(struct legacy *legacy, struct naos_error *err)
{
	static const char what[] = "its ORIG_ keywords make no image";
	long long bitpix, axes, length;
	if (!naos_fits_card_number(legacy->cards, legacy->card_bytes, "ORIG_BPX", &bitpix) ||
	    !naos_fits_card_number(legacy->cards, legacy->card_bytes, "ORIG_NAX", &axes) || axes < 0 || axes > MAX_AXES)
		return bad(legacy, err, what);
	if (bitpix != 8 && bitpix != 16 && bitpix != 32 && bitpix != 64 && bitpix != -32 && bitpix != -64)
		return bad(legacy, err, what);
	uint64_t bytes = axes ? (uint64_t)llabs(bitpix) / 8 : 0;
	for (int i = 1; i <= axes; i++) {
		char keyword[24];
		(void)snprintf(keyword, sizeof(keyword), "ORIG_NA%d", i);
		if (!naos_fits_card_number(legacy->cards, legacy->card_bytes, keyword, &length) || length < 0 ||
		    __builtin_mul_overflow(bytes, (uint64_t)length, &bytes) || bytes > NAOS_FRAME_MAX_BYTES)
			return bad(legacy, err, what);
	}
	legacy->bitpix = (int)bitpix;
	legacy->axes = (int)axes;
	legacy->data_bytes = bytes;
	return 0;
}

static int decrypt_header(struct legacy *legacy, const struct naos_secret *key, struct naos_error *err)
{
	int rc = naos_legacy_crypt(key, legacy->nonces[0], legacy->mode, legacy->header, legacy->encrypted_bytes, 0, err);
	if (rc != 0)
		return rc;
	bool fits = memcmp(legacy->header, "SIMPLE  =", 9) == 0, extension = memcmp(legacy->header, "XTENSION=", 9) == 0;
	if (extension)
		return bad(legacy, err, "it holds an extension without the primary unit that it belonged to, which is no FITS file");
	if (!fits)
		return naos_error_set(err, NAOS_E_WRONG_KEY, "%s: this is not its header key (or the header was changed)", legacy->name);
	bool ended = false;
	for (size_t at = 0; at < legacy->header_bytes && !ended; at += NAOS_FITS_CARD_BYTES) {
		ended = memcmp(legacy->header + at, "END     ", 8) == 0;
		if (ended)
			memset(legacy->header + at + 8, ' ', legacy->header_bytes - at - 8);
	}
	return ended ? 0 : naos_error_set(err, NAOS_E_WRONG_KEY, "%s: the header that comes out has no end", legacy->name);
}

/* Pixels were encrypted as numbers of the machine: least byte first. */
static void swap_bytes(uint8_t *data, size_t bytes, unsigned size)
{
	for (size_t at = 0; at + size <= bytes; at += size)
		for (unsigned i = 0; i < size / 2; i++) {
			uint8_t byte = data[at + i];
			data[at + i] = data[at + size - 1 - i];
			data[at + size - 1 - i] = byte;
		}
}

static int write_pixels(struct legacy *legacy, const struct naos_secret *key, int target_fd, struct naos_error *err)
{
	naos_autofree uint8_t *table = NULL;
	size_t table_bytes;
	if (legacy->data_bytes == 0)
		return 0;
	int found = read_cards(legacy->fd, legacy->card_bytes, MAX_TABLE_BYTES, legacy->name, &table, &table_bytes, err);
	if (found != 0 && found != NAOS_E_FORMAT)
		return found;
	if (found != 0 || memcmp(table, "XTENSION= 'BINTABLE'", 20) != 0)
		return bad(legacy, err, "its table with the pixels can't be read");
	uint64_t data = (uint64_t)legacy->card_bytes + table_bytes;
	naos_autofree uint8_t *buffer = malloc(RUN_BYTES);
	if (!buffer)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for pixels");
	int rc = 0;
	for (uint64_t done = 0; rc == 0 && done < legacy->data_bytes;) {
		size_t take = legacy->data_bytes - done < RUN_BYTES ? (size_t)(legacy->data_bytes - done) : RUN_BYTES, got;
		rc = naos_io_pread(legacy->fd, buffer, take, data + done, &got, legacy->name, err);
		if (rc == 0 && got < take)
			rc = bad(legacy, err, "its pixels are cut off");
		if (rc == 0)
			rc = naos_legacy_crypt(key, legacy->nonces[1], legacy->mode, buffer, take, done, err);
		if (rc == 0) {
			swap_bytes(buffer, take, (unsigned)abs(legacy->bitpix) / 8);
			rc = naos_io_pwrite(target_fd, buffer, take, legacy->header_bytes + done, "the opened file", err);
		}
		done += take;
	}
	naos_wipe(buffer, RUN_BYTES);
	return rc;
}

/* That program reads pixels through the scaling of their header, and keeps its keywords. */
static bool is_scaled(const struct legacy *legacy)
{
	static const struct {
		const char *name;
		double without;
	} words[] = { { "BSCALE", 1 }, { "BZERO", 0 } };
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(words); i++) {
		const uint8_t *card = naos_fits_card_find(legacy->header, legacy->header_bytes, words[i].name);
		char text[NAOS_FITS_CARD_BYTES - 9];
		if (!card || card[8] != '=' || legacy->data_bytes == 0)
			continue;
		memcpy(text, card + 10, NAOS_FITS_CARD_BYTES - 10);
		text[NAOS_FITS_CARD_BYTES - 10] = 0;
		if (strtod(text, NULL) != words[i].without)
			return true;
	}
	return false;
}

int naos_legacy_open(int fd, const char *name, const struct naos_secret *header_key, const struct naos_secret *data_key, int target_fd,
		     bool *ret_scaled, struct naos_error *err)
{
	naos_cleanup(free_legacy) struct legacy legacy = { .fd = fd, .name = name };
	if (naos_secret_bytes(header_key) != 16 || naos_secret_bytes(data_key) != 16)
		return naos_error_set(err, NAOS_E_USAGE, "keys of these files have 16 bytes");
	int rc = read_primary(&legacy, err);
	if (rc == 0)
		rc = read_nonces(&legacy, err);
	if (rc == 0)
		rc = read_shape(&legacy, err);
	if (rc == 0)
		rc = read_header(&legacy, err);
	if (rc == 0)
		rc = decrypt_header(&legacy, header_key, err);
	if (rc == 0)
		rc = naos_io_pwrite(target_fd, legacy.header, legacy.header_bytes, 0, "the opened file", err);
	if (rc == 0)
		rc = write_pixels(&legacy, data_key, target_fd, err);
	uint64_t padded = (legacy.data_bytes + NAOS_FITS_BLOCK_BYTES - 1) / NAOS_FITS_BLOCK_BYTES * NAOS_FITS_BLOCK_BYTES;
	if (rc == 0 && ftruncate(target_fd, (off_t)(legacy.header_bytes + padded)) != 0)
		rc = naos_error_set_errno(err, errno, "cannot set the size of the opened file");
	if (rc == 0)
		*ret_scaled = is_scaled(&legacy);
	return rc;
}
