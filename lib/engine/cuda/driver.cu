/* The device through the CUDA runtime, and the kernels as it launches them.  SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "convert.h"
#include "driver.h"
#include "gcm.h"

template <int ROUNDS, int SEALING, int MANY_KEYS>
__global__ void __launch_bounds__(WARPS * 32, 1) gcm_kernel(const __grid_constant__ struct gpu_launch launch)
{
	gcm_run(&launch, ROUNDS, SEALING, MANY_KEYS);
}

__global__ void __launch_bounds__(SETUP_THREADS) keys_kernel(const uint32_t *t0, const uint32_t *raw, uint32_t key_words,
							      struct gpu_key *keys, uint32_t *constants)
{
	setup_key(t0, raw, key_words, keys, constants);
}

template <int SEALING>
__global__ void __launch_bounds__(128) segments_kernel(const uint32_t *t0, const struct gpu_key *keys, struct gpu_segment *segments,
							uint32_t count, uint32_t *failures)
{
	setup_segment(t0, keys, segments, count, failures, SEALING);
}

__global__ void settle_kernel(struct gpu_segment *segments, const uint32_t *failures)
{
	gcm_settle(segments, failures);
}

__global__ void convert_kernel(const __grid_constant__ struct naos_cuda_conversion conversion)
{
	convert_numbers(&conversion);
}

__global__ void probe_kernel(struct gpu_probe *ret)
{
#ifdef __CUDA_ARCH__
	ret->architecture = __CUDA_ARCH__ / 10;
	ret->hash = HASH;
	ret->tables = TABLES;
	ret->shared_bytes = SHARED_BYTES;
	ret->round_bytes = ROUND_BLOCKS * 16;
	ret->key_bytes = sizeof(struct gpu_key);
	ret->warps = WARPS;
#endif
}

/* --- the device ------------------------------------------------------------------------------------------------------------ */

static struct {
	struct gpu_probe probe;
	int multiprocessors;
	uint32_t *t0, *constants;
} device;

static int failed(cudaError_t error, const char *what, struct naos_cuda_reason *reason)
{
	if (error == cudaSuccess)
		return 0;
	(void)cudaGetLastError();
	if (reason)
		(void)snprintf(reason->text, sizeof(reason->text), "%s: %s", what, cudaGetErrorString(error));
	switch (error) {
	case cudaErrorMemoryAllocation:
		return NAOS_CUDA_NOMEM;
	case cudaErrorNoDevice:
	case cudaErrorInsufficientDriver:
	case cudaErrorInvalidDevice:
	case cudaErrorNoKernelImageForDevice:
	case cudaErrorInvalidDeviceFunction:
	case cudaErrorUnsupportedPtxVersion:
	case cudaErrorSystemDriverMismatch:
	case cudaErrorCompatNotSupportedOnDevice:
	case cudaErrorStubLibrary:
		return NAOS_CUDA_UNSUPPORTED;
	default:
		return NAOS_CUDA_LOST;
	}
}

/* Whether the system runs in confidential-computing mode: NVML tells, if its driver is new enough. */
static int confidential(void)
{
	struct {
		unsigned environment, feature, tools;
	} state = { 0, 0, 0 };
	int answer = -1;
	void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!nvml)
		return -1;
	int (*begin)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
	int (*end)(void) = (int (*)(void))dlsym(nvml, "nvmlShutdown");
	int (*get)(void *) = (int (*)(void *))dlsym(nvml, "nvmlSystemGetConfComputeState");
	if (begin && end && get && begin() == 0) {
		if (get(&state) == 0)
			answer = state.feature == 1;
		(void)end();
	}
	(void)dlclose(nvml);
	return answer;
}

template <int ROUNDS, int SEALING> static cudaError_t allow_shared(void)
{
	cudaError_t e = cudaFuncSetAttribute(gcm_kernel<ROUNDS, SEALING, 0>, cudaFuncAttributeMaxDynamicSharedMemorySize,
					     (int)device.probe.shared_bytes);
	return e ? e : cudaFuncSetAttribute(gcm_kernel<ROUNDS, SEALING, 1>, cudaFuncAttributeMaxDynamicSharedMemorySize,
					    (int)device.probe.shared_bytes);
}

static cudaError_t prepare(void)
{
	struct gpu_probe *probe;
	uint32_t t0[256];
	driver_fill_t0(t0);
	cudaError_t e = cudaMalloc((void **)&probe, sizeof(*probe));
	if (e == cudaSuccess)
		e = cudaMemset(probe, 0, sizeof(*probe));
	if (e == cudaSuccess) {
		probe_kernel<<<1, 1>>>(probe);
		e = cudaGetLastError();
	}
	if (e == cudaSuccess)
		e = cudaMemcpy(&device.probe, probe, sizeof(*probe), cudaMemcpyDeviceToHost);
	(void)cudaFree(probe);
	if (e == cudaSuccess)
		e = cudaMalloc((void **)&device.t0, sizeof(t0));
	if (e == cudaSuccess)
		e = cudaMemcpy(device.t0, t0, sizeof(t0), cudaMemcpyHostToDevice);
	if (e == cudaSuccess)
		e = cudaGetSymbolAddress((void **)&device.constants, aes_constant_keys);
	if (e == cudaSuccess)
		e = allow_shared<10, 0>();
	if (e == cudaSuccess)
		e = allow_shared<10, 1>();
	if (e == cudaSuccess)
		e = allow_shared<14, 0>();
	return e != cudaSuccess ? e : allow_shared<14, 1>();
}

int driver_open(int number, struct naos_cuda_info *ret_info, struct driver_sizes *ret_sizes, struct naos_cuda_reason *reason)
{
	static const char *const hashes[] = { "none", "wgmma", "mma.sync", "tables", "multiplications" };
	cudaDeviceProp properties;
	int count = 0, driver = 0, rc = failed(cudaGetDeviceCount(&count), "CUDA devices", reason);
	if (rc == 0 && number >= count)
		rc = failed(cudaErrorNoDevice, "CUDA devices", reason);
	if (rc == 0)
		rc = failed(cudaSetDevice(number), "choosing the device", reason);
	if (rc == 0)
		rc = failed(cudaGetDeviceProperties(&properties, number), "its properties", reason);
	if (rc == 0)
		rc = failed(prepare(), "its kernels", reason);
	if (rc == 0 && (!device.probe.hash || device.probe.key_bytes != sizeof(struct gpu_key)))
		rc = failed(cudaErrorNoKernelImageForDevice, "its kernels", reason);
	if (rc != 0)
		return rc;
	(void)cudaDriverGetVersion(&driver);
	memset(ret_info, 0, sizeof(*ret_info));
	(void)snprintf(ret_info->name, sizeof(ret_info->name), "%.90s", properties.name);
	(void)snprintf(ret_info->kernels, sizeof(ret_info->kernels), "sm_%u, %s, %u AES tables", device.probe.architecture,
		       hashes[device.probe.hash & 7], device.probe.tables);
	(void)cudaDeviceGetPCIBusId(ret_info->bus, sizeof(ret_info->bus), number);
	ret_info->major = (uint32_t)properties.major;
	ret_info->minor = (uint32_t)properties.minor;
	ret_info->multiprocessors = (uint32_t)properties.multiProcessorCount;
	ret_info->driver_version = (uint32_t)driver;
	ret_info->memory_bytes = properties.totalGlobalMem;
	ret_info->confidential = confidential();
	device.multiprocessors = properties.multiProcessorCount;
	ret_sizes->key_bytes = sizeof(struct gpu_key);
	ret_sizes->segment_bytes = sizeof(struct gpu_segment);
	ret_sizes->round_bytes = device.probe.round_bytes;
	ret_sizes->key_slots = AES_KEY_SLOTS;
	return 0;
}

int driver_use(int number, struct naos_cuda_reason *reason)
{
	return failed(cudaSetDevice(number), "choosing the device", reason);
}

/* --- memory, streams, events -------------------------------------------------------------------------------------------------- */

int driver_memory(uint64_t bytes, void **ret, struct naos_cuda_reason *reason)
{
	return failed(cudaMalloc(ret, bytes), "device memory", reason);
}
void driver_memory_free(void *memory)
{
	(void)cudaFree(memory);
}
int driver_pinned(uint64_t bytes, void **ret, struct naos_cuda_reason *reason)
{
	return failed(cudaHostAlloc(ret, bytes, cudaHostAllocPortable), "pinned memory", reason);
}
void driver_pinned_free(void *memory)
{
	(void)cudaFreeHost(memory);
}
int driver_zero_now(void *memory, uint64_t bytes)
{
	int rc = failed(cudaMemset(memory, 0, bytes), "wiping", NULL);
	return rc ? rc : failed(cudaDeviceSynchronize(), "wiping", NULL);
}
int driver_stream(void **ret, struct naos_cuda_reason *reason)
{
	return failed(cudaStreamCreateWithFlags((cudaStream_t *)ret, cudaStreamNonBlocking), "a stream", reason);
}
void driver_stream_free(void *stream)
{
	(void)cudaStreamDestroy((cudaStream_t)stream);
}
int driver_event(void **ret, struct naos_cuda_reason *reason)
{
	return failed(cudaEventCreate((cudaEvent_t *)ret), "an event", reason);
}
void driver_event_free(void *event)
{
	(void)cudaEventDestroy((cudaEvent_t)event);
}
int driver_record(void *event, void *stream, struct naos_cuda_reason *reason)
{
	return failed(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream), "an event", reason);
}
double driver_elapsed_ms(void *from, void *to)
{
	float ms = 0;
	return cudaEventElapsedTime(&ms, (cudaEvent_t)from, (cudaEvent_t)to) == cudaSuccess ? ms : 0;
}
int driver_copy(void *to, const void *from, uint64_t bytes, void *stream, struct naos_cuda_reason *reason)
{
	return failed(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (cudaStream_t)stream), "a copy", reason);
}
int driver_zero(void *memory, uint64_t bytes, void *stream, struct naos_cuda_reason *reason)
{
	return failed(cudaMemsetAsync(memory, 0, bytes, (cudaStream_t)stream), "wiping", reason);
}
int driver_wait(void *stream, struct naos_cuda_reason *reason)
{
	return failed(cudaStreamSynchronize((cudaStream_t)stream), "the device", reason);
}

/* --- kernels ----------------------------------------------------------------------------------------------------------------- */

static uint32_t *slot_of(uint32_t slot)
{
	return device.constants + slot * 64;
}

int driver_run_keys(const struct driver_work *work, void *stream, struct naos_cuda_reason *reason)
{
	keys_kernel<<<work->key_count, SETUP_THREADS, SETUP_SHARED_BYTES, (cudaStream_t)stream>>>(
		device.t0, (const uint32_t *)work->raw, work->key_bytes / 4, (struct gpu_key *)work->keys, slot_of(work->slot));
	return failed(cudaGetLastError(), "preparing keys", reason);
}

int driver_run_segments(const struct driver_work *work, void *stream, struct naos_cuda_reason *reason)
{
	const unsigned blocks = (work->count + 3) / 4;
	const struct gpu_key *keys = (const struct gpu_key *)work->keys;
	struct gpu_segment *segments = (struct gpu_segment *)work->segments;
	if (work->sealing)
		segments_kernel<1><<<blocks, 128, 1024, (cudaStream_t)stream>>>(device.t0, keys, segments, work->count, work->failures);
	else
		segments_kernel<0><<<blocks, 128, 1024, (cudaStream_t)stream>>>(device.t0, keys, segments, work->count, work->failures);
	return failed(cudaGetLastError(), "preparing segments", reason);
}

template <int ROUNDS, int SEALING> static void launch_main(const struct gpu_launch *launch, bool many_keys, cudaStream_t stream)
{
	uint32_t blocks = (uint32_t)device.multiprocessors;
	if (blocks > launch->rounds)
		blocks = launch->rounds;
	if (many_keys)
		gcm_kernel<ROUNDS, SEALING, 1><<<blocks, WARPS * 32, device.probe.shared_bytes, stream>>>(*launch);
	else
		gcm_kernel<ROUNDS, SEALING, 0><<<blocks, WARPS * 32, device.probe.shared_bytes, stream>>>(*launch);
}

int driver_run_main(const struct driver_work *work, void *stream, struct naos_cuda_reason *reason)
{
	const bool many_keys = work->key_count > 1;
	const struct gpu_launch launch = { device.t0, (const struct gpu_key *)work->keys, (struct gpu_segment *)work->segments,
					   work->failures, work->count, work->rounds, work->slot };
	if (work->rounds == 0)
		return 0;
	if (work->key_bytes == 16 && work->sealing)
		launch_main<10, 1>(&launch, many_keys, (cudaStream_t)stream);
	else if (work->key_bytes == 16)
		launch_main<10, 0>(&launch, many_keys, (cudaStream_t)stream);
	else if (work->sealing)
		launch_main<14, 1>(&launch, many_keys, (cudaStream_t)stream);
	else
		launch_main<14, 0>(&launch, many_keys, (cudaStream_t)stream);
	return failed(cudaGetLastError(), "AES-GCM", reason);
}

int driver_run_settle(const struct driver_work *work, void *stream, struct naos_cuda_reason *reason)
{
	settle_kernel<<<device.multiprocessors, 512, 0, (cudaStream_t)stream>>>((struct gpu_segment *)work->segments, work->failures);
	return failed(cudaGetLastError(), "settling", reason);
}

int driver_run_convert(const struct naos_cuda_conversion *conversion, void *stream, struct naos_cuda_reason *reason)
{
	convert_kernel<<<device.multiprocessors * 4, 512, 0, (cudaStream_t)stream>>>(*conversion);
	return failed(cudaGetLastError(), "converting numbers", reason);
}

int driver_wipe_slot(uint32_t slot, void *stream, struct naos_cuda_reason *reason)
{
	return driver_zero(slot_of(slot), 256, stream, reason);
}
