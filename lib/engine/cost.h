/* What AES-GCM costs by the CPU and by the GPU, and which of them should do a piece of work.
 *
 * Rates are measured once in a process (about 20 ms); those of a GPU are kept in a file of the user too, because to start the
 * GPU only to find out that it doesn't pay would cost more than it could save.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_ENGINE_COST_H
#define NAOS_ENGINE_COST_H

#include "engine/engine.h"
#include "engine/gpu.h"

/* Measured on this machine; bytes a second are of plaintext. */
struct naos_cost_rates {
	double cpu_bytes_s[2];     /* one core, AES-128 and AES-256, in place */
	double cpu_all_bytes_s[2]; /* all cores of this process at once, in their caches */
	double memory_bytes_s;     /* the same in memory, which then is what limits them */
	unsigned cores;
	bool gpu;                    /* what follows is known */
	double kernel_bytes_s[2][2]; /* opening, sealing; AES-128, AES-256: from device memory to device memory */
	double up_bytes_s, down_bytes_s, both_bytes_s; /* pinned memory over the bus: one way, and each way while both run */
	double stage_bytes_s;        /* one thread, from ordinary memory or the page cache to pinned memory */
	double fixed_s;              /* a call for one small message */
	double start_s;              /* the first use in a process */
};

enum naos_cost_place { NAOS_COST_HOST, NAOS_COST_DEVICE };

struct naos_cost_work {
	enum naos_algorithm algorithm;
	bool sealing;
	uint64_t bytes;
	enum naos_cost_place from, to;
	unsigned cores;   /* that are free for it; 0: all of this process */
	bool gpu_started; /* its start is paid already */
};

struct naos_cost {
	double cpu_s, gpu_s; /* predicted; infinite if it can't be done so */
	bool gpu;            /* which one */
	const char *why;     /* static, a few words */
};

/* Predicts and chooses.  The formulas are in README.md.  What begins or ends in device memory stays with the GPU, also where the
 * CPU were as fast, so that the plaintext never is in the memory of the host. */
void naos_cost_predict(const struct naos_cost_rates *rates, const struct naos_cost_work *work, enum naos_gpu_use use,
		       struct naos_cost *ret);

/* The rates of this process: measured at the first call.  with_gpu: start the GPU if there is one and it may be used; else its rates
 * are known only if it runs already or the file has them.  Any thread. */
int naos_cost_rates(bool with_gpu, struct naos_cost_rates *ret, struct naos_error *err) naos_must_check;
/* Whether they would have a GPU, without measuring anything. */
bool naos_cost_gpu_known(void);
/* Why rates have no GPU; empty if they have one. */
const char *naos_cost_no_gpu(void);

/* naos_gcm_key_create for work of so many bytes from host to host: of the GPU where that is known to be faster (and the back end is
 * "auto"). */
int naos_gcm_key_create_for(enum naos_algorithm algorithm, const struct naos_secret *key, uint64_t bytes, bool sealing,
			    struct naos_gcm_key **ret, struct naos_error *err) naos_must_check;

/* Cores that this process may use. */
unsigned naos_cost_cores(void);

/* The file: $XDG_CACHE_HOME/naos/gpu-costs, else in ~/.cache; false without either.  It holds no secret and decides nothing but speed. */
bool naos_cost_file(char *ret, size_t bytes);
/* false: there is none, it is of another machine or version, or it is not understood. */
bool naos_cost_load(const char *path, const char *machine, struct naos_cost_rates *rates);
void naos_cost_save(const char *path, const char *machine, const struct naos_cost_rates *rates);

#endif
