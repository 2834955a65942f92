/* Tile-compressed images: CFITSIO reads the frame through a driver of its own kind, and so only the tiles that it needs; only the segments
 * that hold them are read and decrypted.  SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <fitsio.h>
#include <fitsio2.h>

#include "base/cursor.h"
#include "fits/cutout_inside.h"
#include "fits/structure.h"

#define PREFIX "naosframe://"
#define MAX_OPEN 256 /* frames that CFITSIO reads at once */

struct frame_tiles {
	fitsfile *fits;
	int handle;
	int type;           /* of the values that CFITSIO is asked for */
	size_t value_bytes;
	double scale, zero; /* values are scaled by these; the file holds them unscaled */
	int bitpix;
	uint8_t *values;
	size_t room;
};

/* --- the driver ---------------------------------------------------------------------------------------------------------------- */

static struct {
	struct naos_frame *frame; /* NULL: free */
	uint64_t at;
	struct naos_error err;    /* what CFITSIO can't tell */
} table[MAX_OPEN];
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int registered;

static int nothing(void)
{
	return 0;
}

static int no_options(int option)
{
	return 0;
}

static int get_number(int *number)
{
	*number = 10;
	return 0;
}

static int open_handle(char *name, int mode, int *ret_handle)
{
	char *end;
	long handle = strtol(name, &end, 10);
	if (mode != READONLY || *end || handle < 0 || handle >= MAX_OPEN || !table[handle].frame)
		return FILE_NOT_OPENED;
	*ret_handle = (int)handle;
	return 0;
}

static int close_handle(int handle)
{
	return 0; /* it is the caller's */
}

static int size_of(int handle, LONGLONG *ret)
{
	*ret = (LONGLONG)naos_frame_result_bytes(table[handle].frame);
	return 0;
}

static int seek_to(int handle, LONGLONG offset)
{
	table[handle].at = (uint64_t)offset;
	return 0;
}

static int read_bytes(int handle, void *buffer, long bytes)
{
	size_t got;
	if (naos_frame_read_at(table[handle].frame, buffer, (size_t)bytes, table[handle].at, &got, &table[handle].err) != 0)
		return READ_ERROR;
	table[handle].at += got;
	return got == (size_t)bytes ? 0 : END_OF_FILE;
}

static void register_driver(void)
{
	(void)fits_init_cfitsio();
	registered = fits_register_driver(PREFIX, nothing, nothing, no_options, get_number, get_number, NULL, open_handle, NULL, NULL,
					  close_handle, NULL, size_of, NULL, seek_to, read_bytes, NULL);
}

static int take_handle(struct naos_frame *frame, struct naos_error *err)
{
	int handle = -1;
	(void)pthread_once(&once, register_driver);
	if (registered != 0)
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "CFITSIO takes no driver for frames");
	(void)pthread_mutex_lock(&table_lock);
	for (int i = 0; handle < 0 && i < MAX_OPEN; i++)
		if (!table[i].frame) {
			table[i].frame = frame;
			table[i].at = 0;
			table[i].err = (struct naos_error)NAOS_ERROR_INIT;
			handle = i;
		}
	(void)pthread_mutex_unlock(&table_lock);
	return handle >= 0 ? handle : naos_error_set(err, NAOS_E_LIMIT, "at most %d compressed images are cut at once", MAX_OPEN);
}

static int failed(const struct frame_tiles *tiles, int status, struct naos_error *err)
{
	char text[FLEN_STATUS];
	const struct naos_error *own = &table[tiles->handle].err;
	fits_get_errstatus(status, text);
	fits_clear_errmsg();
	if (own->code != 0)
		return naos_error_set(err, own->code, "%s", own->message);
	return naos_error_set(err, NAOS_E_FORMAT, "CFITSIO can't read the compressed image (%s); open the frame as a whole", text);
}

/* --- the image ----------------------------------------------------------------------------------------------------------------- */

/* Integers are asked for as scaled doubles, which hold 32 bits exactly, and are scaled back. */
static int choose_type(struct frame_tiles *tiles, struct naos_error *err)
{
	int none = 0;
	tiles->scale = 1;
	if (fits_read_key(tiles->fits, TDOUBLE, "BSCALE", &tiles->scale, NULL, &none) != 0)
		none = 0;
	if (fits_read_key(tiles->fits, TDOUBLE, "BZERO", &tiles->zero, NULL, &none) != 0)
		tiles->zero = 0;
	fits_clear_errmsg();
	bool scaled = tiles->scale != 1 || tiles->zero != 0;
	if (tiles->bitpix == 64 || (tiles->bitpix < 0 && scaled) || tiles->scale == 0)
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "a compressed image of this type is opened as a whole");
	tiles->type = tiles->bitpix == FLOAT_IMG ? TFLOAT : TDOUBLE;
	tiles->value_bytes = tiles->type == TFLOAT ? sizeof(float) : sizeof(double);
	return 0;
}

static int take_axes(struct frame_image *image, struct frame_tiles *tiles, struct naos_error *err)
{
	LONGLONG size[NAOS_CUTOUT_MAX_AXES];
	int axes, status = 0;
	if (fits_get_img_type(tiles->fits, &tiles->bitpix, &status) != 0 || fits_get_img_dim(tiles->fits, &axes, &status) != 0)
		return failed(tiles, status, err);
	if (axes < 1 || axes > MAX_COMPRESS_DIM)
		return naos_error_set(err, NAOS_E_USAGE, "the compressed image has %d axes", axes);
	if (fits_get_img_sizell(tiles->fits, NAOS_CUTOUT_MAX_AXES, size, &status) != 0)
		return failed(tiles, status, err);
	image->bitpix = tiles->bitpix;
	image->axes = (unsigned)axes;
	for (int i = 0; i < axes; i++) {
		if (size[i] < 1)
			return naos_error_set(err, NAOS_E_FORMAT, "the compressed image has no pixels");
		image->size[i] = (uint64_t)size[i];
	}
	return 0;
}

int frame_tiles_open(struct frame_image *image, size_t unit, struct naos_error *err)
{
	struct frame_tiles *tiles = calloc(1, sizeof(*tiles));
	char name[32];
	int status = 0, kind;
	if (!tiles)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a compressed image");
	tiles->handle = take_handle(image->frame, err);
	if (tiles->handle < 0) {
		int rc = tiles->handle;
		free(tiles);
		return rc;
	}
	image->tiles = tiles; /* the image frees it */
	(void)snprintf(name, sizeof(name), PREFIX "%d", tiles->handle);
	if (fits_open_file(&tiles->fits, name, READONLY, &status) != 0)
		return failed(tiles, status, err);
	if (fits_movabs_hdu(tiles->fits, (int)unit + 1, &kind, &status) != 0)
		return failed(tiles, status, err);
	if (!fits_is_compressed_image(tiles->fits, &status))
		return naos_error_set(err, NAOS_E_FORMAT, "CFITSIO finds no compressed image in unit %zu", unit);
	int rc = take_axes(image, tiles, err);
	return rc ? rc : choose_type(tiles, err);
}

struct frame_tiles *frame_tiles_close(struct frame_tiles *tiles)
{
	int status = 0;
	if (!tiles)
		return NULL;
	if (tiles->fits)
		(void)fits_close_file(tiles->fits, &status);
	fits_clear_errmsg();
	(void)pthread_mutex_lock(&table_lock);
	table[tiles->handle].frame = NULL;
	(void)pthread_mutex_unlock(&table_lock);
	if (tiles->values)
		naos_wipe(tiles->values, tiles->room);
	free(tiles->values);
	free(tiles);
	return NULL;
}

/* --- pixels --------------------------------------------------------------------------------------------------------------------- */

/* A value as it stands in a FITS file. */
static void put_value(const struct frame_tiles *tiles, size_t i, struct naos_cursor *w)
{
	union {
		float single;
		double value;
		uint32_t bits32;
		uint64_t bits64;
	} from;
	memcpy(&from, tiles->values + i * tiles->value_bytes, tiles->value_bytes);
	long long whole = tiles->bitpix > 0 ? llrint((from.value - tiles->zero) / tiles->scale) : 0;
	switch (tiles->bitpix) {
	case FLOAT_IMG:
	case LONG_IMG:
		naos_cursor_put_u32be(w, tiles->bitpix > 0 ? (uint32_t)whole : from.bits32);
		break;
	case DOUBLE_IMG:
		naos_cursor_put_u64be(w, from.bits64);
		break;
	case SHORT_IMG:
		naos_cursor_put_u8(w, (uint8_t)((uint16_t)whole >> 8));
		naos_cursor_put_u8(w, (uint8_t)whole);
		break;
	default:
		naos_cursor_put_u8(w, (uint8_t)whole);
	}
}

int frame_tiles_read(struct frame_tiles *tiles, const long long *at, size_t count, uint8_t *out, struct naos_error *err)
{
	float single = NAN;
	double value = NAN;
	int status = 0, any;
	LONGLONG first[NAOS_CUTOUT_MAX_AXES];
	for (unsigned i = 0; i < NAOS_CUTOUT_MAX_AXES; i++)
		first[i] = at[i];
	if (count * tiles->value_bytes > tiles->room) {
		free(tiles->values);
		tiles->room = count * tiles->value_bytes;
		tiles->values = malloc(tiles->room);
	}
	if (!tiles->values)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a compressed image");
	/* what is not a number in an image of integers is one there (BLANK), and stays that */
	void *blank = tiles->bitpix > 0 ? NULL : tiles->type == TFLOAT ? (void *)&single : (void *)&value;
	if (fits_read_pixll(tiles->fits, tiles->type, first, (LONGLONG)count, blank, tiles->values, &any, &status) != 0)
		return failed(tiles, status, err);
	struct naos_cursor w = naos_cursor_writer(out, count * (size_t)abs(tiles->bitpix) / 8);
	for (size_t i = 0; i < count; i++)
		put_value(tiles, i, &w);
	return naos_cursor_ok(&w) ? 0 : naos_error_set(err, NAOS_E_SYSTEM, "a row of pixels does not fit its buffer");
}
