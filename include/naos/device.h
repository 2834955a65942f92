/* Data of frames in the memory of a GPU: read, uploaded, decrypted and verified there, so that the plaintext never is in the
 * memory of the host.
 *
 * Conventions are those of naos/frame.h.  It needs the plug-in libnaos-cuda.so, which is looked for where Naos was installed;
 * NAOS_CUDA_PLUGIN names another.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_DEVICE_H
#define NAOS_DEVICE_H

#include <naos/frame.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

struct naos_device_array;

enum naos_device_numbers {
	NAOS_DEVICE_STORED = 0,  /* bytes as they are in the FITS file, of any unit */
	NAOS_DEVICE_NATIVE = 1,  /* an image's numbers of the same kind in the machine's order of bytes; not scaled */
	NAOS_DEVICE_FLOAT32 = 2, /* an image's values: BZERO + BSCALE * number, BLANK becomes NaN */
	NAOS_DEVICE_FLOAT64 = 3,
};

#define NAOS_DEVICE_MAX_AXES 9u /* of an image in the memory of a device */

/* What lies where. */
struct naos_device_shape {
	void *address; /* on the device: not for the CPU */
	uint64_t bytes;
	int device;    /* number of the GPU in this process, as CUDA counts */
	int bitpix;    /* 8 unsigned, 16, 32, 64 signed, -32, -64 floating point; STORED: 8 */
	unsigned axes; /* STORED: 1 */
	uint64_t axis[NAOS_DEVICE_MAX_AXES]; /* NAXIS1, which varies fastest, first */
};

/* Reads the data of a unit (from 0) into a GPU.  Nothing is handed out unless all of it was verified.
 * NAOS_E_UNSUPPORTED: there is no GPU, it failed, or the frame is of version 1: read the frame by the CPU; NAOS_E_NOMEM: it has not
 * enough memory; NAOS_E_INTEGRITY: a segment was changed; NAOS_E_USAGE: no such unit, or no image; NAOS_E_DENIED and others: as for
 * naos_frame_write, if the data key is not right. */
int naos_frame_read_device(struct naos_frame *frame, size_t unit, enum naos_device_numbers numbers, struct naos_device_array **ret,
			   struct naos_error *err);
void naos_device_array_describe(const struct naos_device_array *array, struct naos_device_shape *ret);
/* Copies part of it to the memory of the host. */
int naos_device_array_read(const struct naos_device_array *array, uint64_t offset, void *to, uint64_t bytes, struct naos_error *err);
/* Wipes it on the device.  Takes NULL, returns NULL.  Whatever uses its address must have ended. */
struct naos_device_array *naos_device_array_free(struct naos_device_array *array);

/* When this process uses the GPU, instead of what the configuration says ([gpu] use, confidential in naos.conf(5)).  AUTO: into device
 * memory, and from host to host where it is known to be faster; NEVER: naos_frame_read_device gives NAOS_E_UNSUPPORTED; ALWAYS: from
 * host to host too; NAOS_E_UNSUPPORTED if there is none.  demand_confidential: a GPU that is not known to be in
 * confidential-computing mode is refused (NAOS_E_DENIED). */
enum naos_device_use { NAOS_DEVICE_AUTO = 0, NAOS_DEVICE_NEVER = 1, NAOS_DEVICE_ALWAYS = 2 };
int naos_device_policy(enum naos_device_use use, bool demand_confidential, struct naos_error *err);

/* One line about the GPU of this process and its confidential-computing mode.  NAOS_E_UNSUPPORTED with the reason if there is none. */
int naos_device_describe(char *text, size_t text_bytes, struct naos_error *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
