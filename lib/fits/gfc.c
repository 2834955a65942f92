/* include/naos/gfc.h: the interface of the paper's library.  SPDX-License-Identifier: Apache-2.0 */
#include <naos/gfc.h>

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "base/io.h"
#include "fits/collection.h"
#include "fits/container1.h"
#include "fits/whole.h"

#define KEY_BYTES 16u
#define SWAP_BYTES ((size_t)1 << 20)

struct DecryptorContext {
	size_t max_output, bytes;
	uint8_t *buffer;
};

struct EncryptorContext {
	char none;
};

static double now_s(void)
{
	struct timespec time;
	(void)clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static FitsOperationResult done(FitsOperationResult result, double start_s, int error, int warning, const char *message)
{
	result.error_code = error;
	result.warning_code = warning;
	size_t bytes = strnlen(message, sizeof(result.error_message) - 1); /* a longer sentence is cut */
	memcpy(result.error_message, message, bytes);
	result.error_message[bytes] = 0;
	result.time_total_c_function_s = now_s() - start_s;
	return result;
}

/* --- keys --------------------------------------------------------------------------------------------------------------------- */

struct keys {
	struct naos_secret *secrets[2]; /* NULL: none was given */
};

static void keys_end(struct keys *keys)
{
	for (unsigned i = 0; i < 2; i++)
		keys->secrets[i] = naos_secret_free(keys->secrets[i]);
}

static bool is_missing(const char *text)
{
	return !text || !text[0] || strcmp(text, "NO_KEY") == 0;
}

/* 0, or the code of the paper's library. */
static int take_keys(const char *header_key, const char *data_key, struct keys *keys, struct naos_error *err)
{
	const char *const texts[2] = { header_key, data_key };
	for (unsigned i = 0; i < 2; i++) {
		if (is_missing(texts[i]))
			continue;
		if (naos_secret_create(KEY_BYTES, &keys->secrets[i], err) != 0)
			return GFC_ERROR_FAILED;
		if (strlen(texts[i]) != 2 * KEY_BYTES || !naos_hex_parse(texts[i], naos_secret_data(keys->secrets[i]), KEY_BYTES)) {
			(void)naos_error_set(err, NAOS_E_USAGE, "the %s key is not 32 hexadecimal digits", i ? "data" : "header");
			return i ? -1004 : -1003;
		}
	}
	return 0;
}

/* --- opening ------------------------------------------------------------------------------------------------------------------ */

DecryptorContext *gfc_context_create(size_t max_output, size_t max_read)
{
	DecryptorContext *context = calloc(1, sizeof(*context));
	if (context)
		context->max_output = max_output;
	return context;
}

static void drop_buffer(DecryptorContext *context)
{
	if (context->buffer)
		naos_wipe(context->buffer, context->bytes);
	free(context->buffer);
	context->buffer = NULL;
	context->bytes = 0;
}

void gfc_context_destroy(DecryptorContext *context)
{
	if (!context)
		return;
	drop_buffer(context);
	free(context);
}

void free_fits_operation_result(FitsOperationResult *result)
{
	if (!result)
		return;
	if (result->error_code == GFC_ERROR_NO_KEYS)
		free(result->data_buffer);
	result->data_buffer = NULL;
	result->buffer_size = 0;
}

/* Without any key: the sealed file. */
static FitsOperationResult copy_sealed(const char *path, FitsOperationResult result, double start_s)
{
	naos_autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	struct naos_error err = NAOS_ERROR_INIT;
	struct stat status;
	size_t got = 0;
	if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
		(void)naos_error_set_errno(&err, errno ? errno : EINVAL, "cannot open %s", path);
		return done(result, start_s, -1010, 0, err.message);
	}
	naos_autofree uint8_t *copy = malloc((size_t)status.st_size + 1);
	int rc = copy ? naos_io_pread(fd, copy, (size_t)status.st_size, 0, &got, path, &err) :
			naos_error_set(&err, NAOS_E_NOMEM, "no memory for %s", path);
	if (rc != 0)
		return done(result, start_s, -1011, 0, err.message);
	result.data_buffer = naos_steal(copy);
	result.buffer_size = got;
	return done(result, start_s, GFC_ERROR_NO_KEYS, 0, "No key was given: this is the sealed file as it is.");
}

/* All that the keys open into the context's buffer; data that turns out to be changed is left out. */
static int fill_buffer(DecryptorContext *context, struct naos_frame *frame, struct naos_error *err)
{
	for (;;) {
		uint64_t bytes = naos_frame_result_bytes(frame);
		size_t got;
		drop_buffer(context);
		if (bytes == 0)
			return 0;
		if (bytes > context->max_output)
			return naos_error_set(err, NAOS_E_LIMIT, "the opened file has %llu bytes, the context allows %zu",
					      (unsigned long long)bytes, context->max_output);
		context->buffer = malloc((size_t)bytes);
		context->bytes = (size_t)bytes;
		if (!context->buffer)
			return naos_error_set(err, NAOS_E_NOMEM, "no memory for the opened file");
		int rc = naos_frame_read_at(frame, context->buffer, context->bytes, 0, &got, err);
		if (rc != NAOS_E_INTEGRITY || naos_frame_key_state(frame, NAOS_FRAME_DATA) != NAOS_FRAME_KEY_RIGHT)
			return rc;
		rc = naos_frame_suppress_data(frame, err);
		if (rc != 0)
			return rc;
	}
}

static FitsOperationResult judge(const struct naos_frame *frame, FitsOperationResult result, double start_s)
{
	static const char *const words[] = { "Header and data are open.", "Data is open, the header is not.",
					     "The header is open, data is zeros.", "Neither key opens this frame." };
	enum naos_frame_key_state header = naos_frame_key_state(frame, NAOS_FRAME_HEADER);
	enum naos_frame_key_state data = naos_frame_key_state(frame, NAOS_FRAME_DATA);
	int warning = (header != NAOS_FRAME_KEY_RIGHT ? 1 : 0) | (data != NAOS_FRAME_KEY_RIGHT ? 2 : 0);
	bool tampered = header == NAOS_FRAME_KEY_TAMPERED || data == NAOS_FRAME_KEY_TAMPERED;
	int error = tampered ? GFC_ERROR_TAMPERED : warning == 3 ? GFC_ERROR_FAILED : 0;
	enum naos_frame_part part = header == NAOS_FRAME_KEY_TAMPERED ? NAOS_FRAME_HEADER : NAOS_FRAME_DATA;
	return done(result, start_s, error, warning, tampered ? naos_frame_key_reason(frame, part) : words[warning]);
}

FitsOperationResult gfc_decrypt_frame(DecryptorContext *context, const char *path, const char *header_key, const char *data_key)
{
	naos_cleanup(keys_end) struct keys keys = { .secrets = { NULL, NULL } };
	naos_autoframe struct naos_frame *frame = NULL;
	FitsOperationResult result = { .data_buffer = NULL };
	struct naos_error err = NAOS_ERROR_INIT;
	double start_s = now_s(), opened_s;
	if (!context)
		return done(result, start_s, -302, 0, "There is no context.");
	drop_buffer(context);
	if (!path)
		return done(result, start_s, -1002, 0, "There is no path.");
	int rc = take_keys(header_key, data_key, &keys, &err);
	if (rc != 0)
		return done(result, start_s, rc, 0, err.message);
	if (!keys.secrets[0] && !keys.secrets[1])
		return copy_sealed(path, result, start_s);
	struct naos_frame_opener opener = { .given = { keys.secrets[0], keys.secrets[1] } };
	const struct naos_frame_source source = naos_frame_opener_source(&opener);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	rc = fd < 0 ? naos_error_set_errno(&err, errno, "cannot open %s", path) : naos_frame_open_fd(fd, path, &source, &frame, &err);
	opened_s = now_s();
	result.time_open_fits_file_s = opened_s - start_s;
	if (rc == 0)
		rc = fill_buffer(context, frame, &err);
	result.time_data_decryption_gpu_s = now_s() - opened_s;
	if (rc != 0) {
		drop_buffer(context);
		bool changed = rc == NAOS_E_INTEGRITY;
		return done(result, start_s, changed ? GFC_ERROR_TAMPERED : GFC_ERROR_FAILED, changed ? 3 : 0, err.message);
	}
	result.data_buffer = context->buffer;
	result.buffer_size = context->bytes;
	return judge(frame, result, start_s);
}

/* --- sealing ------------------------------------------------------------------------------------------------------------------ */

EncryptorContext *gfc_encrypt_context_create(size_t max_input, size_t max_header)
{
	return calloc(1, sizeof(EncryptorContext));
}

void gfc_encrypt_context_destroy(EncryptorContext *context)
{
	free(context);
}

static FitsOperationResult seal(int fd, const char *name, const char *output, const char *header_key, const char *data_key, int refused,
				double start_s)
{
	naos_cleanup(keys_end) struct keys keys = { .secrets = { NULL, NULL } };
	FitsOperationResult result = { .data_buffer = NULL };
	struct naos_error err = NAOS_ERROR_INIT;
	int rc = take_keys(header_key, data_key, &keys, &err);
	if (rc == 0 && (!keys.secrets[0] || !keys.secrets[1])) {
		(void)naos_error_set(&err, NAOS_E_USAGE, "sealing needs both keys");
		rc = keys.secrets[0] ? -1004 : -1003;
	}
	if (rc != 0)
		return done(result, start_s, rc, 0, err.message);
	struct naos_frame_new what = { .version = 1, .algorithm = NAOS_AES_256_GCM, .keys = { keys.secrets[0], keys.secrets[1] } };
	rc = naos_uuid_random(&what.frame_id, &err);
	if (rc == 0)
		rc = naos_frame_seal_file(fd, name, output, true, &what, &err);
	return rc ? done(result, start_s, refused, 0, err.message) : done(result, start_s, 0, 0, "Sealed.");
}

FitsOperationResult gfc_encrypt_file_without_context(const char *input, const char *output, const char *header_key, const char *data_key)
{
	FitsOperationResult result = { .data_buffer = NULL };
	struct naos_error err = NAOS_ERROR_INIT;
	double start_s = now_s();
	if (!input || !output || !header_key || !data_key)
		return done(result, start_s, -402, 0, "A path or a key is NULL.");
	naos_autoclose int fd = open(input, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0) {
		(void)naos_error_set_errno(&err, errno, "cannot open %s", input);
		return done(result, start_s, -401, 0, err.message);
	}
	return seal(fd, input, output, header_key, data_key, -401, start_s);
}

FitsOperationResult gfc_encrypt_file(EncryptorContext *context, const char *input, const char *output, const char *header_key,
				     const char *data_key)
{
	FitsOperationResult result = { .data_buffer = NULL };
	if (!context)
		return done(result, now_s(), -502, 0, "There is no context.");
	return gfc_encrypt_file_without_context(input, output, header_key, data_key);
}

/* The header and the other arguments must speak of the same image. */
static int check_image(const uint8_t *header, size_t bytes, size_t data_bytes, int bitpix, int naxis, const long *axes,
		       struct naos_error *err)
{
	uint64_t expected = naxis > 0 ? (uint64_t)abs(bitpix) / 8 : 0;
	long long value;
	char keyword[24];
	bool same = naxis >= 0 && naxis <= (int)NAOS_FRAME1_MAX_AXES && naos_fits_card_number(header, bytes, "BITPIX", &value) &&
		    value == bitpix && naos_fits_card_number(header, bytes, "NAXIS", &value) && value == naxis;
	for (int i = 0; same && i < naxis; i++) {
		(void)snprintf(keyword, sizeof(keyword), "NAXIS%d", i + 1);
		same = naos_fits_card_number(header, bytes, keyword, &value) && value == axes[i] && value >= 0 &&
		       !__builtin_mul_overflow(expected, (uint64_t)value, &expected);
	}
	return same && expected == data_bytes ? 0 : naos_error_set(err, NAOS_E_USAGE,
		"the header speaks of another image than bitpix, naxis, axes and the size of the data");
}

/* FITS has the most significant byte first. */
static int write_swapped(int fd, const uint8_t *data, size_t bytes, unsigned size, uint64_t offset, struct naos_error *err)
{
	uint8_t *buffer = malloc(SWAP_BYTES);
	int rc = buffer ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for pixels");
	for (size_t at = 0; rc == 0 && at < bytes;) {
		size_t take = bytes - at < SWAP_BYTES ? bytes - at : SWAP_BYTES;
		for (size_t i = 0; i < take; i++)
			buffer[i] = data[at + (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? i / size * size + (size - 1 - i % size) : i)];
		rc = naos_io_pwrite(fd, buffer, take, offset + at, "an image in memory", err);
		at += take;
	}
	if (buffer)
		naos_wipe(buffer, SWAP_BYTES);
	free(buffer);
	return rc;
}

/* The FITS file, in memory only. */
static int make_plain(const char *header, size_t header_bytes, const void *data, size_t data_bytes, int bitpix, int naxis, const long *axes,
		      int *ret_fd, struct naos_error *err)
{
	size_t padded = (header_bytes + NAOS_FITS_BLOCK_BYTES - 1) / NAOS_FITS_BLOCK_BYTES * NAOS_FITS_BLOCK_BYTES;
	uint64_t total = padded + (data_bytes + NAOS_FITS_BLOCK_BYTES - 1) / NAOS_FITS_BLOCK_BYTES * NAOS_FITS_BLOCK_BYTES;
	naos_autofree uint8_t *text = malloc(padded + 1);
	naos_autoclose int fd = memfd_create("naos-image", MFD_CLOEXEC);
	if (fd < 0 || fchmod(fd, 0644) != 0 || ftruncate(fd, (off_t)total) != 0) /* the frame gets its mode */
		return naos_error_set_errno(err, errno, "no memory for the image");
	if (!text)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the header");
	memset(text, ' ', padded);
	memcpy(text, header, header_bytes);
	int rc = check_image(text, padded, data_bytes, bitpix, naxis, axes, err);
	if (rc == 0)
		rc = naos_io_pwrite(fd, text, padded, 0, "an image in memory", err);
	naos_wipe(text, padded);
	if (rc == 0)
		rc = write_swapped(fd, data, data_bytes, (unsigned)abs(bitpix) / 8, padded, err);
	if (rc == 0) {
		*ret_fd = fd;
		fd = -1;
	}
	return rc;
}

FitsOperationResult gfc_encrypt_frame(EncryptorContext *context, const char *output, const char *header, size_t header_bytes,
				      const void *data, size_t data_bytes, int bitpix, int naxis, const long *axes,
				      const char *header_key, const char *data_key)
{
	FitsOperationResult result = { .data_buffer = NULL };
	struct naos_error err = NAOS_ERROR_INIT;
	double start_s = now_s();
	naos_autoclose int fd = -1;
	if (!output || !header || (!data && data_bytes) || (!axes && naxis > 0) || !header_key || !data_key)
		return done(result, start_s, -402, 0, "An argument is NULL.");
	if (header_bytes > NAOS_FRAME1_MAX_HEADER_BYTES || data_bytes > NAOS_GCM_MAX_MESSAGE_BYTES)
		return done(result, start_s, -500, 0, "Header or data are larger than a frame of version 1 holds.");
	if (make_plain(header, header_bytes, data, data_bytes, bitpix, naxis, axes, &fd, &err) != 0)
		return done(result, start_s, -500, 0, err.message);
	return seal(fd, "the image in memory", output, header_key, data_key, -500, start_s);
}

/* --- the log, which there is not ---------------------------------------------------------------------------------------------- */

static _Atomic int log_level;

void gfc_set_log_level(int level)
{
	log_level = level;
}

int gfc_get_log_level(void)
{
	return log_level;
}
