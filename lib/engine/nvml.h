/* What NVIDIA's management library tells about the driver and the GPUs, without the plug-in and without CUDA.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_ENGINE_NVML_H
#define NAOS_ENGINE_NVML_H

#include <stdbool.h>

struct naos_nvml {
	bool driver;          /* the library is there and answers */
	unsigned gpus;
	char version[80];     /* of the driver */
	char name[96];        /* of the first GPU */
	int major, minor;     /* its compute capability */
	int confidential;     /* 1: confidential computing is on; 0: off; -1: the driver does not tell */
};

/* Fills *ret in any case. */
void naos_nvml_read(struct naos_nvml *ret);

#endif
