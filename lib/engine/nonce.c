/* Random nonces.  Each is the exclusive or of two independent random values:
 *
 * - 12 bytes of a batch that the thread drew from OpenSSL's DRBG, which got fresh bytes of the kernel and of the CPU's
 *   generator as additional input for that batch;
 * - 12 bytes drawn from the kernel for this call.
 *
 * The batch makes nonces that hold even if the kernel's generator is weak, and those of the FIPS module where FIPS was
 * chosen.  The kernel's bytes make a cloned virtual machine safe: the clone has the same batch in memory, but its kernel
 * reseeds when it sees a new VM generation id (the vmgenid device), and the vDSO's generator notices that in the same
 * call.  README.md says what is not detected.  SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "engine/backend.h"

#define BATCH 256 /* nonces drawn at once: about 3 KiB of DRBG output */

/* One page (MADV_WIPEONFORK): in a forked child `left` is 0, and it draws its own. */
struct batch {
	size_t left;
	uint8_t nonces[BATCH][NAOS_GCM_NONCE_BYTES]; /* taken from the end; zero behind `left` */
	void *kernel_state;                          /* of the vDSO's generator, a page of its own */
};

/* The kernel's generator in user space (Linux 6.11), as linux/random.h describes it. */
typedef ssize_t (*vdso_getrandom)(void *buffer, size_t bytes, unsigned flags, void *state, size_t state_bytes);
struct vdso_parameters {
	uint32_t state_bytes, protection, map_flags, reserved[13];
};

static struct {
	pthread_once_t once;
	pthread_key_t thread_end;
	bool thread_end_made;
	vdso_getrandom draw; /* NULL: an older kernel */
	struct vdso_parameters parameters;
	bool may_be_cloned; /* in a virtual machine, or no way to tell */
	bool cpu_generator; /* RDRAND */
} kernel = { .once = PTHREAD_ONCE_INIT };

static __thread struct batch *mine;

static void batch_free(void *memory)
{
	struct batch *batch = memory;
	if (batch->kernel_state) {
		naos_wipe(batch->kernel_state, kernel.parameters.state_bytes);
		(void)munmap(batch->kernel_state, kernel.parameters.state_bytes);
	}
	naos_wipe(batch, sizeof(*batch));
	(void)munmap(batch, sizeof(*batch));
	mine = NULL;
}

/* Once: in a virtual machine the CPUID instruction takes many microseconds. */
static void look_at_machine(void)
{
	kernel.thread_end_made = pthread_key_create(&kernel.thread_end, batch_free) == 0;
	kernel.may_be_cloned = true;
#ifdef __x86_64__
	unsigned a, b, c, d;
	if (__get_cpuid(1, &a, &b, &c, &d)) {
		kernel.may_be_cloned = c >> 31; /* the bit of hypervisors */
		kernel.cpu_generator = c & bit_RDRND;
	}
#endif
	void *vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
	if (!vdso)
		return;
	vdso_getrandom draw = (vdso_getrandom)dlsym(vdso, "__vdso_getrandom");
	if (draw && draw(NULL, 0, 0, &kernel.parameters, ~(size_t)0) == 0)
		kernel.draw = draw;
}

static int batch_create(struct batch **ret, struct naos_error *err)
{
	(void)pthread_once(&kernel.once, look_at_machine);
	struct batch *batch = mmap(NULL, sizeof(*batch), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (batch == MAP_FAILED)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for nonces");
	if (madvise(batch, sizeof(*batch), MADV_WIPEONFORK) != 0 || !kernel.thread_end_made ||
	    pthread_setspecific(kernel.thread_end, batch) != 0) {
		(void)munmap(batch, sizeof(*batch));
		return naos_error_set(err, NAOS_E_UNSUPPORTED,
				      "memory for nonces can't be wiped on fork and at the end of threads: Linux 4.14 or later is needed");
	}
	(void)madvise(batch, sizeof(*batch), MADV_DONTDUMP);
	*ret = batch;
	return 0;
}

/* Fills buffer from the kernel: by the vDSO's generator, else by the system call. */
static int from_kernel(struct batch *batch, uint8_t *buffer, size_t bytes, struct naos_error *err)
{
	if (kernel.draw && !batch->kernel_state) { /* a forked child comes here too: the old page is a few bytes lost */
		void *state = mmap(NULL, kernel.parameters.state_bytes, (int)kernel.parameters.protection,
				   (int)kernel.parameters.map_flags, -1, 0);
		batch->kernel_state = state == MAP_FAILED ? NULL : state;
	}
	if (kernel.draw && batch->kernel_state &&
	    kernel.draw(buffer, bytes, 0, batch->kernel_state, kernel.parameters.state_bytes) == (ssize_t)bytes)
		return 0;
	for (size_t done = 0; done < bytes;) {
		ssize_t got = getrandom(buffer + done, bytes - done, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return naos_error_set_errno(err, errno, "the kernel's random generator failed");
		done += (size_t)got;
	}
	return 0;
}

#ifdef __x86_64__
__attribute__((target("rdrnd"))) static void from_cpu(uint8_t *buffer, size_t bytes)
{
	for (size_t i = 0; i + sizeof(unsigned long long) <= bytes; i += sizeof(unsigned long long)) {
		unsigned long long value;
		if (_rdrand64_step(&value))
			memcpy(buffer + i, &value, sizeof(value));
	}
}
#else
static void from_cpu(uint8_t *buffer, size_t bytes)
{
}
#endif

static int refill(struct batch *batch, struct naos_error *err)
{
	uint8_t fresh[64] = { 0 };
	int rc = from_kernel(batch, fresh, 32, err);
	if (rc != 0)
		return rc;
	if (kernel.cpu_generator)
		from_cpu(fresh + 32, 32);
	EVP_RAND_CTX *drbg = RAND_get0_public(naos_engine_library_context());
	bool drawn = drbg && EVP_RAND_generate(drbg, batch->nonces[0], sizeof(batch->nonces), 0, 0, fresh, sizeof(fresh)) == 1;
	naos_wipe(fresh, sizeof(fresh));
	if (!drawn) {
		naos_wipe(batch->nonces, sizeof(batch->nonces));
		return naos_error_set(err, NAOS_E_SYSTEM, "OpenSSL's random generator failed");
	}
	batch->left = BATCH;
	return 0;
}

/* nonce ^= entry; entry = 0.  The zeros are stored: others can reach that memory. */
static void fold(uint8_t *nonce, uint8_t *entry)
{
	uint64_t a, b;
	uint32_t c, d;
	memcpy(&a, nonce, 8);
	memcpy(&b, entry, 8);
	memcpy(&c, nonce + 8, 4);
	memcpy(&d, entry + 8, 4);
	a ^= b;
	c ^= d;
	memcpy(nonce, &a, 8);
	memcpy(nonce + 8, &c, 4);
	memset(entry, 0, NAOS_GCM_NONCE_BYTES);
}

int naos_nonce_fill(uint8_t *nonces, size_t count, struct naos_error *err)
{
	size_t bytes = count * NAOS_GCM_NONCE_BYTES;
	int rc = mine ? 0 : batch_create(&mine, err);
	if (rc != 0)
		return rc;
	if (kernel.draw || kernel.may_be_cloned)
		rc = from_kernel(mine, nonces, bytes, err);
	else
		memset(nonces, 0, bytes);
	for (size_t i = 0; i < count && rc == 0; i++) {
		if (mine->left == 0)
			rc = refill(mine, err);
		if (rc == 0)
			fold(nonces + i * NAOS_GCM_NONCE_BYTES, mine->nonces[--mine->left]);
	}
	return rc;
}

int naos_nonce_next(uint8_t nonce[static NAOS_GCM_NONCE_BYTES], struct naos_error *err)
{
	return naos_nonce_fill(nonce, 1, err);
}
