/* Data of frames in the memory of a GPU (naos/device.h): the segments of a unit go through the engine's GPU; then numbers become
 * native ones there.  SPDX-License-Identifier: Apache-2.0 */
#include <naos/device.h>

#include <string.h>

#include "base/io.h"
#include "engine/gpu.h"
#include "fits/frame_inside.h"
#include "fits/structure.h"

struct naos_device_array {
	struct naos_gpu_memory *memory;
	struct naos_device_shape shape;
};

/* --- reading segments ------------------------------------------------------------------------------------------------------- */

struct unit_source {
	struct naos_frame *frame;
	uint32_t hdu;
	uint64_t total;
	uint8_t *rows; /* of all segments */
};

static int read_exactly(const struct naos_frame *frame, void *buffer, size_t bytes, uint64_t offset, struct naos_error *err)
{
	size_t got;
	int rc = naos_io_pread(frame->fd, buffer, bytes, offset, &got, frame->name, err);
	if (rc == 0 && got < bytes)
		rc = naos_error_set(err, NAOS_E_INTEGRITY, "%s is cut off", frame->name);
	return rc;
}

static void row_of(const struct unit_source *source, uint64_t index, struct naos_frame_row *ret)
{
	uint64_t number;
	naos_container_row(&source->frame->manifest, &source->frame->container, NAOS_FRAME_DATA, source->hdu, index, ret, &number);
}

static int describe_segment(void *context, uint64_t index, struct naos_gpu_segment *ret, struct naos_error *err)
{
	const struct unit_source *source = context;
	const struct naos_frame *frame = source->frame;
	struct naos_frame_row row;
	row_of(source, index, &row);
	int rc = naos_frame_row_decode(source->rows + index * NAOS_FRAME_ROW_BYTES, &row, err);
	if (rc != 0)
		return rc;
	memcpy(ret->nonce, row.nonce, sizeof(ret->nonce));
	memcpy(ret->tag, row.tag, sizeof(ret->tag));
	naos_frame_associated(&frame->manifest, &row, source->total, ret->associated);
	ret->associated_bytes = NAOS_FRAME_ASSOCIATED_BYTES;
	ret->bytes = (size_t)row.bytes;
	ret->offset = index * frame->manifest.segment_bytes;
	return 0;
}

/* Segments of a unit follow each other in the heap, too. */
static int read_segments(void *context, uint64_t index, uint32_t count, uint8_t *buffer, size_t bytes, struct naos_error *err)
{
	const struct unit_source *source = context;
	struct naos_frame_row row;
	row_of(source, index, &row);
	return read_exactly(source->frame, buffer, bytes, source->frame->container.heap_offset + row.offset, err);
}

/* All rows of the unit's data: they stand together. */
static int read_rows(struct unit_source *source, struct naos_error *err)
{
	const struct naos_frame *frame = source->frame;
	struct naos_frame_row row;
	uint64_t first;
	source->rows = malloc(source->total * NAOS_FRAME_ROW_BYTES);
	if (!source->rows)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the rows of %s", frame->name);
	naos_container_row(&frame->manifest, &frame->container, NAOS_FRAME_DATA, source->hdu, 0, &row, &first);
	return read_exactly(frame, source->rows, source->total * NAOS_FRAME_ROW_BYTES,
			    frame->container.rows_offset + first * NAOS_FRAME_ROW_BYTES, err);
}

static int open_unit(struct naos_gpu *gpu, struct naos_frame *frame, uint32_t hdu, struct naos_gpu_memory **ret, struct naos_error *err)
{
	struct unit_source source = { .frame = frame, .hdu = hdu, .total = naos_frame_segments(&frame->manifest, NAOS_FRAME_DATA, hdu) };
	struct naos_gpu_source segments = { .describe = describe_segment, .read = read_segments, .context = &source, .count = source.total,
					    .longest = frame->manifest.segment_bytes };
	naos_autogpumemory struct naos_gpu_memory *memory = NULL;
	uint64_t failed = 0;
	int rc = naos_gpu_memory_create(gpu, frame->manifest.hdus[hdu].data_bytes, &memory, err);
	if (rc == 0 && source.total)
		rc = read_rows(&source, err);
	if (rc == 0)
		rc = naos_gpu_open(gpu, frame->keys[NAOS_FRAME_DATA - 1], &segments, memory, &failed, err);
	free(source.rows);
	if (rc == NAOS_E_INTEGRITY)
		return naos_error_set(err, rc, "%s: unit %u: segment %llu of its data was changed", frame->name, hdu + 1,
				      (unsigned long long)failed);
	if (rc == 0)
		*ret = naos_steal(memory);
	return rc;
}

/* --- numbers ------------------------------------------------------------------------------------------------------------------ */

/* A card's value as a floating-point number, which may have a D for its exponent; `fallback` without the card. */
static double card_real(const uint8_t *cards, uint64_t bytes, const char *keyword, double fallback)
{
	const uint8_t *card = naos_fits_card_find(cards, bytes, keyword);
	char text[71], *end;
	if (!card || card[8] != '=')
		return fallback;
	memcpy(text, card + 10, 70);
	text[70] = 0;
	for (char *at = text; *at && *at != '/'; at++)
		if (*at == 'D' || *at == 'd')
			*at = 'E';
	double value = strtod(text, &end);
	return end == text ? fallback : value;
}

static int image_shape(const struct naos_frame *frame, uint32_t hdu, struct naos_device_shape *ret, struct naos_error *err)
{
	const struct naos_frame_hdu *unit = &frame->manifest.hdus[hdu];
	const uint64_t cards = (uint64_t)unit->cards * NAOS_FITS_CARD_BYTES;
	const uint8_t *extension = naos_fits_card_find(unit->text, cards, "XTENSION");
	long long bitpix = 0, axes = 0, value;
	bool image = naos_fits_card_number(unit->text, cards, "BITPIX", &bitpix) &&
		     naos_fits_card_number(unit->text, cards, "NAXIS", &axes) && !naos_fits_card_find(unit->text, cards, "GROUPS") &&
		     (!extension || memcmp(extension + 10, "'IMAGE   '", 10) == 0);
	bool known = bitpix == 8 || bitpix == 16 || bitpix == 32 || bitpix == 64 || bitpix == -32 || bitpix == -64;
	if (!image || !known || axes < 1)
		return naos_error_set(err, NAOS_E_USAGE, "%s: unit %u is no image (a tile-compressed one is read by the CPU)", frame->name,
				      hdu + 1);
	if (axes > (long long)NAOS_DEVICE_MAX_AXES)
		return naos_error_set(err, NAOS_E_LIMIT, "%s: unit %u has more than %u axes", frame->name, hdu + 1, NAOS_DEVICE_MAX_AXES);
	ret->bitpix = (int)bitpix;
	ret->axes = (unsigned)axes;
	ret->bytes = (uint64_t)llabs(bitpix) / 8;
	for (unsigned i = 0; i < ret->axes; i++) {
		char keyword[24];
		(void)snprintf(keyword, sizeof(keyword), "NAXIS%u", i + 1);
		if (!naos_fits_card_number(unit->text, cards, keyword, &value) || value < 0 ||
		    __builtin_mul_overflow(ret->bytes, (uint64_t)value, &ret->bytes))
			return naos_error_set(err, NAOS_E_FORMAT, "%s: unit %u: %s is not right", frame->name, hdu + 1, keyword);
		ret->axis[i] = (uint64_t)value;
	}
	if (ret->bytes > unit->data_bytes)
		return naos_error_set(err, NAOS_E_FORMAT, "%s: the image of unit %u is cut off", frame->name, hdu + 1);
	return 0;
}

/* Big-endian numbers to what was asked for; the array's memory may become another. */
static int convert(const struct naos_frame *frame, uint32_t hdu, enum naos_device_numbers numbers, struct naos_device_array *array,
		   struct naos_error *err)
{
	const struct naos_frame_hdu *unit = &frame->manifest.hdus[hdu];
	const uint64_t cards = (uint64_t)unit->cards * NAOS_FITS_CARD_BYTES;
	struct naos_device_shape *shape = &array->shape;
	const int bitpix = shape->bitpix;
	const uint64_t count = shape->bytes / ((uint64_t)abs(bitpix) / 8);
	const double scale = card_real(unit->text, cards, "BSCALE", 1), zero = card_real(unit->text, cards, "BZERO", 0);
	const int target = numbers == NAOS_DEVICE_FLOAT32 ? -32 : numbers == NAOS_DEVICE_FLOAT64 ? -64 : bitpix;
	long long blank = 0;
	const bool has_blank = bitpix > 0 && naos_fits_card_number(unit->text, cards, "BLANK", &blank);
	const int64_t blank_number = blank;
	if (target == bitpix && scale == 1 && zero == 0)
		numbers = NAOS_DEVICE_NATIVE;
	if (numbers == NAOS_DEVICE_NATIVE)
		return naos_gpu_memory_convert(array->memory, array->memory, count, bitpix, NAOS_CUDA_SAME, 1, 0, NULL, err);
	naos_autogpumemory struct naos_gpu_memory *values = NULL;
	int rc = naos_gpu_memory_create(array->memory->gpu, count * ((uint64_t)abs(target) / 8), &values, err);
	if (rc == 0)
		rc = naos_gpu_memory_convert(array->memory, values, count, bitpix, target == -32 ? NAOS_CUDA_FLOAT32 : NAOS_CUDA_FLOAT64, scale,
					     zero, has_blank ? &blank_number : NULL, err);
	if (rc != 0)
		return rc;
	struct naos_gpu_memory *stored = array->memory;
	array->memory = naos_steal(values);
	naos_gpu_memory_free(stored);
	shape->bitpix = target;
	shape->bytes = array->memory->bytes;
	return 0;
}

/* --- the interface -------------------------------------------------------------------------------------------------------------- */

struct naos_device_array *naos_device_array_free(struct naos_device_array *array)
{
	if (!array)
		return NULL;
	naos_gpu_memory_free(array->memory);
	free(array);
	return NULL;
}

int naos_frame_read_device(struct naos_frame *frame, size_t unit, enum naos_device_numbers numbers, struct naos_device_array **ret,
			   struct naos_error *err)
{
	struct naos_gpu *gpu;
	if (unit >= frame->manifest.hdu_count || numbers > NAOS_DEVICE_FLOAT64)
		return naos_error_set(err, NAOS_E_USAGE, "%s has no unit %zu, or there are no such numbers", frame->name, unit);
	if (frame->states[NAOS_FRAME_DATA - 1] != NAOS_FRAME_KEY_RIGHT)
		return naos_error_set(err, frame->reasons[1].code, "%s", frame->reasons[1].message);
	if (frame->one)
		return naos_error_set(err, NAOS_E_UNSUPPORTED, "%s is a frame of version 1, whose data is one message: it is read by the CPU",
				      frame->name);
	const uint32_t hdu = (uint32_t)unit;
	struct naos_device_array *array = calloc(1, sizeof(*array));
	if (!array)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for an array");
	array->shape = (struct naos_device_shape){ .bytes = frame->manifest.hdus[hdu].data_bytes, .bitpix = 8, .axes = 1,
						   .axis = { frame->manifest.hdus[hdu].data_bytes } };
	int rc = numbers == NAOS_DEVICE_STORED ? 0 : image_shape(frame, hdu, &array->shape, err);
	if (rc == 0)
		rc = naos_gpu_get(&gpu, err);
	if (rc == 0)
		rc = open_unit(gpu, frame, hdu, &array->memory, err);
	if (rc == 0 && numbers != NAOS_DEVICE_STORED)
		rc = convert(frame, hdu, numbers, array, err);
	if (rc != 0) {
		naos_device_array_free(array);
		return rc;
	}
	array->shape.address = array->memory->data;
	*ret = array;
	return 0;
}

void naos_device_array_describe(const struct naos_device_array *array, struct naos_device_shape *ret)
{
	*ret = array->shape;
}

int naos_device_array_read(const struct naos_device_array *array, uint64_t offset, void *to, uint64_t bytes, struct naos_error *err)
{
	return naos_gpu_memory_read(array->memory, offset, to, bytes, err);
}

int naos_device_policy(enum naos_device_use use, bool demand_confidential, struct naos_error *err)
{
	static const enum naos_gpu_use uses[] = { NAOS_GPU_AUTO, NAOS_GPU_NEVER, NAOS_GPU_ALWAYS };
	if ((unsigned)use >= NAOS_ARRAY_LENGTH(uses))
		return naos_error_set(err, NAOS_E_USAGE, "there is no such use of a device");
	naos_gpu_policy_set(&(struct naos_gpu_policy){ .use = uses[use], .demand_confidential = demand_confidential }, true);
	return naos_engine_select(use == NAOS_DEVICE_ALWAYS ? "cuda" : "auto", false, err);
}

int naos_device_describe(char *text, size_t text_bytes, struct naos_error *err)
{
	struct naos_gpu *gpu;
	int rc = naos_gpu_get(&gpu, err);
	if (rc != 0)
		return rc;
	const struct naos_cuda_info *info = naos_gpu_info(gpu);
	(void)snprintf(text, text_bytes, "%s at %s, %llu MiB, kernels %s, confidential computing %s", info->name, info->bus,
		       (unsigned long long)(info->memory_bytes >> 20), info->kernels,
		       info->confidential == 1 ? "on" : info->confidential == 0 ? "off" : "unknown");
	return 0;
}
