/* The plug-in's device on a CPU: the kernels' own source on the emulation, memory with a guard page behind it, and failures on demand.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <sys/mman.h>

#include "convert.h"
#include "driver.h"
#include "gcm.h"

#define BLOCKS_AT_ONCE 3 /* "multiprocessors" */
#define PAGE 4096u

static struct {
	pthread_mutex_t lock;
	uint32_t t0[256];
	unsigned calls, fail_at; /* the call (of those that can fail) that fails; 0: none */
	int fail_code;
	bool lost;
	uint64_t live_bytes; /* of device and pinned memory */
} state = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* For tests: from now on the at-th call fails with code; LOST stays.  Returns how many there were. */
__attribute__((visibility("default"))) unsigned naos_emulated_fail(unsigned at, int code);
unsigned naos_emulated_fail(unsigned at, int code)
{
	unsigned before = state.calls;
	state.calls = 0;
	state.fail_at = at;
	state.fail_code = code;
	state.lost = false;
	return before;
}
__attribute__((visibility("default"))) uint64_t naos_emulated_live_bytes(void);
uint64_t naos_emulated_live_bytes(void)
{
	return state.live_bytes;
}

static int trial(struct naos_cuda_reason *reason)
{
	(void)pthread_mutex_lock(&state.lock);
	bool fails = ++state.calls == state.fail_at || state.lost;
	if (fails && state.fail_code == NAOS_CUDA_LOST)
		state.lost = true;
	(void)pthread_mutex_unlock(&state.lock);
	if (fails)
		(void)snprintf(reason->text, sizeof(reason->text), "failed on demand");
	return fails ? state.fail_code : 0;
}

int driver_open(int device, struct naos_cuda_info *ret_info, struct driver_sizes *ret_sizes, struct naos_cuda_reason *reason)
{
	int rc = trial(reason);
	if (rc != 0)
		return rc;
	driver_fill_t0(state.t0);
	*ret_info = (struct naos_cuda_info){ .name = "emulation", .bus = "none", .multiprocessors = BLOCKS_AT_ONCE,
					     .memory_bytes = (uint64_t)1 << 30, .confidential = -1 };
	(void)snprintf(ret_info->kernels, sizeof(ret_info->kernels), "emulation, hash %d, %d AES tables, %d warps", HASH, TABLES, WARPS);
	*ret_sizes = (struct driver_sizes){ sizeof(struct gpu_key), sizeof(struct gpu_segment), ROUND_BLOCKS * 16, AES_KEY_SLOTS };
	return 0;
}

int driver_use(int device, struct naos_cuda_reason *reason)
{
	return trial(reason);
}

/* The last byte of a multiple of 16 lies before a page that can't be touched; the length stands on a page in front. */
int driver_memory(uint64_t bytes, void **ret, struct naos_cuda_reason *reason)
{
	int rc = trial(reason);
	uint64_t whole = (bytes + 15) & ~(uint64_t)15, pages = (whole + PAGE - 1) / PAGE * PAGE;
	if (rc != 0)
		return rc;
	uint8_t *area = mmap(NULL, pages + 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED || mprotect(area + PAGE + pages, PAGE, PROT_NONE) != 0)
		return NAOS_CUDA_NOMEM;
	*(uint64_t *)area = pages;
	memset(area + PAGE, 0xa5, pages); /* device memory is not zero */
	*ret = area + PAGE + pages - whole;
	(void)__atomic_fetch_add(&state.live_bytes, pages, __ATOMIC_SEQ_CST);
	return 0;
}
void driver_memory_free(void *memory)
{
	uint8_t *area = (uint8_t *)((uintptr_t)memory & ~(uintptr_t)(PAGE - 1)) - PAGE;
	uint64_t pages = *(uint64_t *)area;
	(void)__atomic_fetch_sub(&state.live_bytes, pages, __ATOMIC_SEQ_CST);
	(void)munmap(area, pages + 2 * PAGE);
}
int driver_pinned(uint64_t bytes, void **ret, struct naos_cuda_reason *reason)
{
	return driver_memory(bytes, ret, reason);
}
void driver_pinned_free(void *memory)
{
	driver_memory_free(memory);
}
int driver_zero_now(void *memory, uint64_t bytes)
{
	memset(memory, 0, bytes);
	return 0;
}
int driver_stream(void **ret, struct naos_cuda_reason *reason)
{
	*ret = &state;
	return trial(reason);
}
void driver_stream_free(void *stream)
{
}
int driver_event(void **ret, struct naos_cuda_reason *reason)
{
	*ret = &state;
	return trial(reason);
}
void driver_event_free(void *event)
{
}
int driver_record(void *event, void *stream, struct naos_cuda_reason *reason)
{
	return trial(reason);
}
double driver_elapsed_ms(void *from, void *to)
{
	return 1;
}
int driver_copy(void *to, const void *from, uint64_t bytes, void *stream, struct naos_cuda_reason *reason)
{
	int rc = trial(reason);
	if (rc == 0)
		memcpy(to, from, bytes);
	return rc;
}
int driver_zero(void *memory, uint64_t bytes, void *stream, struct naos_cuda_reason *reason)
{
	int rc = trial(reason);
	if (rc == 0)
		memset(memory, 0, bytes);
	return rc;
}
int driver_wait(void *stream, struct naos_cuda_reason *reason)
{
	return trial(reason);
}
int driver_wipe_slot(uint32_t slot, void *stream, struct naos_cuda_reason *reason)
{
	memset(aes_constant_keys[slot], 0, sizeof(aes_constant_keys[slot]));
	return trial(reason);
}

/* --- kernels ----------------------------------------------------------------------------------------------------------------- */

static int run(uint32_t blocks, uint32_t threads, void (*kernel)(const void *), const void *arguments, struct naos_cuda_reason *reason)
{
	int rc = trial(reason);
	if (rc != 0)
		return rc;
	(void)pthread_mutex_lock(&state.lock);
	emulated.tables_bytes = 0;
	emulated_launch(blocks, threads, kernel, arguments);
	(void)pthread_mutex_unlock(&state.lock);
	return 0;
}

static void keys_kernel(const void *arguments)
{
	const struct driver_work *w = arguments;
	setup_key(state.t0, w->raw, w->key_bytes / 4, w->keys, aes_constant_keys[w->slot]);
}
int driver_run_keys(const struct driver_work *work, void *stream, struct naos_cuda_reason *reason)
{
	return run(work->key_count, SETUP_THREADS, keys_kernel, work, reason);
}

static void segments_kernel(const void *arguments)
{
	const struct driver_work *w = arguments;
	setup_segment(state.t0, w->keys, w->segments, w->count, w->failures, w->sealing);
}
int driver_run_segments(const struct driver_work *work, void *stream, struct naos_cuda_reason *reason)
{
	return run((work->count + 3) / 4, 128, segments_kernel, work, reason);
}

static void main_kernel(const void *arguments)
{
	emulated.tables = aes_tables();
	emulated.tables_bytes = AES_TABLES_BYTES;
	const struct driver_work *w = arguments;
	const struct gpu_launch launch = { state.t0, w->keys, w->segments, w->failures, w->count, w->rounds, w->slot };
	if (w->key_bytes == 16)
		gcm_run(&launch, 10, w->sealing, w->key_count > 1);
	else
		gcm_run(&launch, 14, w->sealing, w->key_count > 1);
}
int driver_run_main(const struct driver_work *work, void *stream, struct naos_cuda_reason *reason)
{
	uint32_t blocks = work->rounds < BLOCKS_AT_ONCE ? work->rounds : BLOCKS_AT_ONCE;
	return run(blocks, WARPS * 32, main_kernel, work, reason);
}

static void settle_kernel(const void *arguments)
{
	const struct driver_work *w = arguments;
	gcm_settle(w->segments, w->failures);
}
int driver_run_settle(const struct driver_work *work, void *stream, struct naos_cuda_reason *reason)
{
	return run(2, 64, settle_kernel, work, reason);
}

static void convert_kernel(const void *arguments)
{
	convert_numbers(arguments);
}
int driver_run_convert(const struct naos_cuda_conversion *conversion, void *stream, struct naos_cuda_reason *reason)
{
	return run(2, 64, convert_kernel, conversion, reason);
}
