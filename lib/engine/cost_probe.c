/* Rates of this machine: short measurements, once in a process.  SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "engine/backend.h"
#include "engine/cost.h"
#include "engine/gpu_inside.h"

#define CPU_BYTES ((size_t)1 << 20)    /* of one thread: what fits its cache */
#define MEMORY_BYTES ((size_t)64 << 20) /* of all threads: what fits no cache */
#define CPU_NS 2000000                 /* of one measurement */
#define MOST_PROBES 64u                /* threads of a measurement */
#define GPU_BYTES ((uint64_t)64 << 20)  /* of device memory */
#define ROUNDS_BYTES ((uint64_t)512 << 10) /* of a multiprocessor: several rounds */

static struct {
	pthread_mutex_t lock;
	bool cpu_known, gpu_asked;
	struct naos_cost_rates rates;
	char no_gpu[NAOS_ERROR_MESSAGE_BYTES];
} known = { .lock = PTHREAD_MUTEX_INITIALIZER, .no_gpu = "the GPU was not looked for" };

static double now_s(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

unsigned naos_cost_cores(void)
{
	cpu_set_t set;
	return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

/* --- the CPU ------------------------------------------------------------------------------------------------------------------ */

struct probe {
	const struct naos_gcm_key *key;
	uint8_t *memory;
	size_t bytes;
	double rate; /* 0: it failed */
};

/* Seals one buffer in place again and again.  The nonce repeats: nothing of it leaves the buffer, which is thrown away. */
static void *probe_cpu(void *context)
{
	struct probe *probe = context;
	static const uint8_t nonce[NAOS_GCM_NONCE_BYTES] = { 0 };
	uint8_t tag[NAOS_GCM_TAG_BYTES];
	const struct naos_gcm_message message = { .nonce = nonce, .in = probe->memory, .out = probe->memory, .bytes = probe->bytes,
						  .tag = tag };
	if (naos_gcm_seal(probe->key, &message, NULL) != 0) /* the first turn only warms up */
		return NULL;
	const double start = now_s();
	double end = start;
	uint64_t bytes = 0;
	while (end - start < 1e-9 * CPU_NS) {
		if (naos_gcm_seal(probe->key, &message, NULL) != 0)
			return NULL;
		bytes += probe->bytes;
		end = now_s();
	}
	probe->rate = (double)bytes / (end - start);
	return NULL;
}

/* All of them at once, `bytes` each: their rates together. */
static double probe_all(struct probe *probes, unsigned count, uint8_t *memory, size_t bytes)
{
	pthread_t threads[MOST_PROBES];
	unsigned started = 1;
	double sum = 0;
	for (unsigned i = 0; i < count; i++) {
		probes[i].memory = memory + i * bytes;
		probes[i].bytes = bytes;
		probes[i].rate = 0;
	}
	while (started < count && pthread_create(&threads[started], NULL, probe_cpu, &probes[started]) == 0)
		started++;
	(void)probe_cpu(&probes[0]);
	for (unsigned i = 1; i < started; i++)
		(void)pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < started; i++)
		sum += probes[i].rate;
	return sum;
}

static int measure_cpu(struct naos_cost_rates *rates, struct naos_error *err)
{
	struct probe probes[MOST_PROBES];
	const unsigned cores = naos_cost_cores(), count = cores < MOST_PROBES ? cores : MOST_PROBES;
	const struct naos_engine_backend *cpu;
	uint8_t *memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to measure the processor with");
	(void)madvise(memory, MEMORY_BYTES, MADV_HUGEPAGE);
	int rc = naos_engine_cpu(&cpu, err);
	for (unsigned a = 0; rc == 0 && a < 2; a++) {
		naos_autosecret struct naos_secret *secret = NULL;
		naos_autogcmkey struct naos_gcm_key *key = NULL;
		rc = naos_secret_random(a ? 32 : 16, &secret, err);
		if (rc == 0)
			rc = naos_gcm_key_create_on(cpu, a ? NAOS_AES_256_GCM : NAOS_AES_128_GCM, secret, &key, err);
		if (rc != 0)
			break;
		for (unsigned i = 0; i < count; i++)
			probes[i].key = key;
		rates->cpu_bytes_s[a] = probe_all(probes, 1, memory, CPU_BYTES);
		rates->cpu_all_bytes_s[a] = probe_all(probes, count, memory, CPU_BYTES) * cores / count;
		if (a == 0)
			rates->memory_bytes_s = probe_all(probes, count, memory, MEMORY_BYTES / count);
		if (rates->cpu_bytes_s[a] <= 0 || rates->cpu_all_bytes_s[a] <= 0 || rates->memory_bytes_s <= 0)
			rc = naos_error_set(err, NAOS_E_SYSTEM, "the processor's back end failed while it was measured");
	}
	rates->cores = cores;
	(void)munmap(memory, MEMORY_BYTES);
	return rc;
}

/* --- the GPU -------------------------------------------------------------------------------------------------------------------- */

/* One measurement of the bus: pieces up by one lane, down by another, or both. */
static int bus(struct naos_gpu *gpu, struct gpu_lane *up, struct gpu_lane *down, uint8_t *memory, double *ret,
	       struct naos_cuda_reason *reason)
{
	const uint64_t piece = NAOS_GPU_BUFFER_BYTES, turns = 8;
	const double start = now_s();
	int rc = 0;
	for (unsigned i = 0; rc == 0 && i < turns; i++) {
		if (up)
			rc = gpu->table->copy(up->cuda, memory + i * piece, up->buffers[i & 1], piece, reason);
		if (rc == 0 && down)
			rc = gpu->table->copy(down->cuda, down->buffers[i & 1], memory + (turns + i) * piece, piece, reason);
	}
	if (rc == 0 && up)
		rc = gpu->table->wait(up->cuda, reason);
	if (rc == 0 && down)
		rc = gpu->table->wait(down->cuda, reason);
	*ret = (double)(turns * piece) / (now_s() - start);
	return rc;
}

/* From call to return, of one message; the main kernel's own time in *ret_kernel_s. */
static int message(struct naos_gpu *gpu, struct gpu_lane *lane, bool sealing, unsigned a, uint8_t *memory, uint64_t bytes, double *ret_s,
		   double *ret_kernel_s, struct naos_cuda_reason *reason)
{
	uint8_t key[32];
	struct naos_cuda_segment segment = { .in = memory, .out = memory, .bytes = bytes };
	struct naos_cuda_times times;
	memset(key, 0x6e, sizeof(key)); /* of no data: the memory holds nothing */
	const double start = now_s();
	int rc = gpu->table->keys(lane->cuda, a ? 32 : 16, key, 1, reason);
	if (rc == 0)
		rc = gpu->table->run(lane->cuda, sealing, &segment, 1, reason);
	if (rc == 0)
		rc = gpu->table->wait(lane->cuda, reason);
	if (rc != 0)
		return rc;
	*ret_s = now_s() - start;
	gpu->table->times(lane->cuda, &times);
	*ret_kernel_s = times.main_ms / 1e3;
	return 0;
}

static int measure_on(struct naos_gpu *gpu, struct gpu_lane *lanes[2], uint8_t *memory, struct naos_cost_rates *rates,
		      struct naos_cuda_reason *reason)
{
	const uint64_t wanted = ROUNDS_BYTES * gpu->info.multiprocessors, bytes = wanted < GPU_BYTES ? wanted : GPU_BYTES;
	double seconds, kernel_s;
	int rc = bus(gpu, lanes[0], lanes[1], memory, &rates->both_bytes_s, reason); /* also wakes the device's clocks */
	if (rc == 0)
		rc = bus(gpu, lanes[0], lanes[1], memory, &rates->both_bytes_s, reason);
	if (rc == 0)
		rc = bus(gpu, lanes[0], NULL, memory, &rates->up_bytes_s, reason);
	if (rc == 0)
		rc = bus(gpu, NULL, lanes[1], memory, &rates->down_bytes_s, reason);
	for (unsigned i = 0; rc == 0 && i < 8; i++) { /* every case twice: the second time counts */
		const unsigned sealing = i / 4, a = i / 2 % 2;
		rc = message(gpu, lanes[0], sealing, a, memory, bytes, &seconds, &kernel_s, reason);
		rates->kernel_bytes_s[sealing][a] = (double)bytes / (kernel_s > 0 ? kernel_s : seconds);
	}
	rates->fixed_s = 1;
	for (unsigned i = 0; rc == 0 && i < 5; i++) {
		rc = message(gpu, lanes[0], true, 0, memory, 16, &seconds, &kernel_s, reason);
		rates->fixed_s = seconds < rates->fixed_s ? seconds : rates->fixed_s;
	}
	return rc;
}

static int measure_gpu(struct naos_gpu *gpu, struct naos_cost_rates *rates, struct naos_error *err)
{
	struct naos_cuda_reason reason = { "" };
	naos_autogpumemory struct naos_gpu_memory *memory = NULL;
	struct gpu_lane *lanes[2] = { NULL, NULL };
	uint8_t *ordinary = malloc(NAOS_GPU_BUFFER_BYTES);
	int rc = ordinary ? naos_gpu_memory_create(gpu, GPU_BYTES, &memory, err) : naos_error_set(err, NAOS_E_NOMEM, "no memory");
	for (unsigned i = 0; rc == 0 && i < 2; i++)
		rc = gpu_lane_take(gpu, NAOS_GPU_BUFFER_BYTES, &lanes[i], err);
	if (rc == 0) {
		memset(ordinary, 1, NAOS_GPU_BUFFER_BYTES);
		rc = measure_on(gpu, lanes, memory->data, rates, &reason);
		if (rc != 0)
			rc = gpu_failed(gpu, rc, &reason, err);
	}
	if (rc == 0) {
		const double start = now_s();
		memcpy(lanes[0]->buffers[0], ordinary, NAOS_GPU_BUFFER_BYTES);
		memcpy(lanes[0]->buffers[1], ordinary, NAOS_GPU_BUFFER_BYTES);
		rates->stage_bytes_s = 2.0 * (double)NAOS_GPU_BUFFER_BYTES / (now_s() - start);
		rates->start_s = naos_gpu_start_seconds();
		rates->gpu = true;
	}
	for (unsigned i = 0; i < 2; i++)
		if (lanes[i])
			gpu_lane_put(gpu, lanes[i]);
	free(ordinary);
	return rc;
}

/* --- once ------------------------------------------------------------------------------------------------------------------------- */

/* What the file must be of: this release of Naos and this host.  Whether the GPU is the same is seen when it is started. */
static void machine_name(char *ret, size_t bytes)
{
	char host[65] = "";
	(void)gethostname(host, sizeof(host) - 1);
	(void)snprintf(ret, bytes, "naos %s on %s", NAOS_VERSION, host);
}

static void find_gpu(bool with_gpu)
{
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_gpu *gpu;
	char path[512], machine[160];
	const bool has_file = naos_cost_file(path, sizeof(path));
	machine_name(machine, sizeof(machine));
	if (!with_gpu && !naos_gpu_started()) {
		if (!known.rates.gpu && has_file && naos_cost_load(path, machine, &known.rates))
			known.no_gpu[0] = 0;
		return;
	}
	known.gpu_asked = true;
	known.rates.gpu = false;
	int rc = naos_gpu_get(&gpu, &err);
	if (rc == 0)
		rc = measure_gpu(gpu, &known.rates, &err);
	(void)snprintf(known.no_gpu, sizeof(known.no_gpu), "%s", rc ? err.message : "");
	if (rc == 0 && has_file)
		naos_cost_save(path, machine, &known.rates);
}

int naos_cost_rates(bool with_gpu, struct naos_cost_rates *ret, struct naos_error *err)
{
	int rc = 0;
	(void)pthread_mutex_lock(&known.lock);
	if (!known.cpu_known)
		rc = measure_cpu(&known.rates, err);
	if (rc == 0) {
		known.cpu_known = true;
		if (!known.gpu_asked)
			find_gpu(with_gpu);
		*ret = known.rates;
	}
	(void)pthread_mutex_unlock(&known.lock);
	return rc;
}

bool naos_cost_gpu_known(void)
{
	char path[512];
	return naos_gpu_started() || (naos_cost_file(path, sizeof(path)) && access(path, R_OK) == 0);
}

const char *naos_cost_no_gpu(void)
{
	return known.no_gpu;
}
