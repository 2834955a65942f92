/* AES-GCM on a GPU, into the memory of the device: what is opened there never is in the memory of the host.
 *
 * The plug-in (cuda/plugin.h) is found at run time; a machine without it, without a GPU or with a chip that it does not know gets
 * NAOS_E_UNSUPPORTED with the reason, and programs go on with the CPU (cost.h chooses).  When a device fails it is not used
 * any more in this process.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_ENGINE_GPU_H
#define NAOS_ENGINE_GPU_H

#include "engine/cuda/plugin.h"
#include "engine/engine.h"

#define NAOS_GPU_MAX_LANES 16u                   /* threads that feed the device at a time */
#define NAOS_GPU_BUFFER_BYTES ((size_t)4 << 20)  /* pinned memory of a lane, twice; more where one segment is longer */

struct naos_gpu;
struct naos_gpu_settings {
	const char *plugin; /* NULL: NAOS_CUDA_PLUGIN, else where Naos was installed */
	int device;
};
/* Before the first naos_gpu_get; the strings are borrowed for the life of the process. */
void naos_gpu_configure(const struct naos_gpu_settings *settings);

/* When the GPU is used.  AUTO: into device memory always, from host to host where it is faster (cost.h); NEVER: it is not touched;
 * ALWAYS: from host to host too, and its absence is an error. */
enum naos_gpu_use { NAOS_GPU_AUTO, NAOS_GPU_NEVER, NAOS_GPU_ALWAYS };
struct naos_gpu_policy {
	enum naos_gpu_use use;
	bool demand_confidential; /* refuse a GPU that is not known to be in confidential-computing mode */
};
/* forced: a program's own word, which a configuration that is read later does not change. */
void naos_gpu_policy_set(const struct naos_gpu_policy *policy, bool forced);
void naos_gpu_policy_get(struct naos_gpu_policy *ret);

/* The GPU of this process, opened and tested with known answers at the first call; it stays open.  Any thread.
 * NAOS_E_UNSUPPORTED: there is none (the same answer from then on), or the policy forbids it; NAOS_E_DENIED: it is not
 * confidential; NAOS_E_SELFTEST. */
int naos_gpu_get(struct naos_gpu **ret, struct naos_error *err) naos_must_check;
/* Whether that was done already and gave one, and how long it took. */
bool naos_gpu_started(void);
double naos_gpu_start_seconds(void);
const struct naos_cuda_info *naos_gpu_info(const struct naos_gpu *gpu);
/* The sentence that a program should log, once, when the GPU failed or memory ran out and the CPU took over; NULL if there is
 * nothing (more) to say.  Static. */
const char *naos_gpu_warning(void);

/* --- memory of the device ------------------------------------------------------------------------------------------------------ */

struct naos_gpu_memory {
	struct naos_gpu *gpu;
	void *data; /* address on the device: not for the CPU */
	uint64_t bytes;
};
/* NAOS_E_NOMEM.  Freed memory was wiped before. */
int naos_gpu_memory_create(struct naos_gpu *gpu, uint64_t bytes, struct naos_gpu_memory **ret, struct naos_error *err) naos_must_check;
struct naos_gpu_memory *naos_gpu_memory_free(struct naos_gpu_memory *memory);
/* To and from the memory of the host. */
int naos_gpu_memory_read(const struct naos_gpu_memory *memory, uint64_t offset, void *to, uint64_t bytes,
			 struct naos_error *err) naos_must_check;
int naos_gpu_memory_write(struct naos_gpu_memory *memory, uint64_t offset, const void *from, uint64_t bytes,
			  struct naos_error *err) naos_must_check;
/* Numbers of FITS to native ones: to ret's memory, or in place (`to` NAOS_CUDA_SAME) if `to_memory` is `memory`. */
int naos_gpu_memory_convert(const struct naos_gpu_memory *memory, struct naos_gpu_memory *to_memory, uint64_t count, int bitpix,
			    enum naos_cuda_number to, double scale, double zero, const int64_t *blank,
			    struct naos_error *err) naos_must_check;

/* --- opening ------------------------------------------------------------------------------------------------------------------- */

/* A segment: a message of its own. */
struct naos_gpu_segment {
	uint8_t nonce[NAOS_GCM_NONCE_BYTES], tag[NAOS_GCM_TAG_BYTES];
	uint8_t associated[96];
	size_t associated_bytes, bytes;
	uint64_t offset; /* in the memory that it is opened to */
};
struct naos_gpu_source {
	/* Both are called by several threads at once.  `read` reads the ciphertext of `count` segments from `index` on, as they were described,
	 * one behind the other: `bytes` in all, into pinned memory. */
	int (*describe)(void *context, uint64_t index, struct naos_gpu_segment *ret, struct naos_error *err);
	int (*read)(void *context, uint64_t index, uint32_t count, uint8_t *buffer, size_t bytes, struct naos_error *err);
	void *context;
	uint64_t count;
	size_t longest; /* bytes of the longest segment */
	unsigned jobs;  /* threads; 0: as the processors allow */
};
/* Reads, uploads and opens all segments, one beside the other; each is checked before the call returns.  *ret_failed: the first
 * that is known to be changed (NAOS_E_INTEGRITY).  After any failure all of the memory is wiped.
 * NAOS_E_UNSUPPORTED: the device failed; NAOS_E_NOMEM. */
int naos_gpu_open(struct naos_gpu *gpu, const struct naos_gcm_key *key, const struct naos_gpu_source *source,
		  struct naos_gpu_memory *memory, uint64_t *ret_failed, struct naos_error *err) naos_must_check;

/* Many messages from the host's memory to the host's memory (the back end "cuda").  Opening sets their results.  *ret_done, also on
 * failure: how many were finished; the output of the others was not touched, unless the result is NAOS_E_SYSTEM. */
int naos_gpu_messages(struct naos_gpu *gpu, const struct naos_gcm_key *key, bool sealing, struct naos_gcm_message *messages,
		      size_t count, size_t *ret_done, struct naos_error *err) naos_must_check;

static inline void naos_gpu_memory_free_pointer(struct naos_gpu_memory **memory)
{
	*memory = naos_gpu_memory_free(*memory);
}
#define naos_autogpumemory naos_cleanup(naos_gpu_memory_free_pointer)

#endif
