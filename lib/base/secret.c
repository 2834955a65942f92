/* Secret memory: a slab of pages, each page cut into slots of one power-of-two size; larger secrets take runs of pages.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/secret.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>

#define PAGE 4096u
#define PAGES (NAOS_SECRET_SLAB_BYTES / PAGE)
#define SMALLEST 16u
#define CLASSES 9 /* 16, 32, … 4096 */

struct naos_secret {
	uint8_t *data;
	size_t bytes;    /* as the owner sees it */
	size_t capacity; /* slot or run */
};

/* One page of the slab. run is the length of a run at its first page; used counts slots. */
struct page {
	uint8_t class_index; /* CLASSES: part of a run; only where in_use */
	bool in_use;
	uint16_t used;
	uint32_t run;
	uint64_t slots[PAGE / SMALLEST / 64];
};

static struct {
	pthread_mutex_t lock;
	uint8_t *base; /* first page behind the leading guard */
	struct page *pages;
	size_t locked_pages; /* pages [0, locked_pages) are accessible and locked */
	size_t used_bytes;
	size_t hints[CLASSES]; /* a page of each class that had a free slot lately */
} slab = { .lock = PTHREAD_MUTEX_INITIALIZER };

static unsigned class_of(size_t bytes)
{
	unsigned index = 0;
	while (((size_t)SMALLEST << index) < bytes)
		index++;
	return index;
}

static int slab_map(struct naos_error *err)
{
	if (slab.base)
		return 0;
	uint8_t *area = mmap(NULL, NAOS_SECRET_SLAB_BYTES + 2 * PAGE, PROT_NONE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (area == MAP_FAILED)
		return naos_error_set(err, NAOS_E_NOMEM, "no address space for the memory of keys");
	slab.pages = mmap(NULL, PAGES * sizeof(struct page), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (slab.pages == MAP_FAILED) {
		(void)munmap(area, NAOS_SECRET_SLAB_BYTES + 2 * PAGE);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to keep track of keys");
	}
	slab.base = area + PAGE;
	return 0;
}

/* Makes `count` more pages usable.  What fails is undone. */
static int slab_grow(size_t count, struct naos_error *err)
{
	uint8_t *start = slab.base + slab.locked_pages * PAGE;
	size_t bytes = count * PAGE;
	if (slab.locked_pages + count > PAGES)
		return naos_error_set(err, NAOS_E_NOMEM, "more than %zu MiB of keys in one process",
				      NAOS_SECRET_SLAB_BYTES >> 20);
	if (mprotect(start, bytes, PROT_READ | PROT_WRITE) != 0)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for %zu KiB of keys", bytes >> 10);
	if (mlock(start, bytes) != 0) {
		struct rlimit limit = { 0, 0 };
		(void)mprotect(start, bytes, PROT_NONE);
		(void)getrlimit(RLIMIT_MEMLOCK, &limit);
		return naos_error_set(err, NAOS_E_MEMLOCK,
				      "cannot lock %zu KiB of memory for keys: RLIMIT_MEMLOCK is %llu KiB, %zu KiB are in use by keys",
				      bytes >> 10, (unsigned long long)limit.rlim_cur >> 10, slab.locked_pages * PAGE >> 10);
	}
	(void)madvise(start, bytes, MADV_DONTDUMP);
	(void)madvise(start, bytes, MADV_WIPEONFORK);
	slab.locked_pages += count;
	return 0;
}

/* First page of `count` consecutive free ones, growing the slab if there are none. */
static int find_pages(size_t count, size_t *ret_first, struct naos_error *err)
{
	size_t run = 0;
	for (size_t i = 0; i < slab.locked_pages; i++) {
		run = slab.pages[i].in_use ? 0 : run + 1;
		if (run == count) {
			*ret_first = i + 1 - count;
			return 0;
		}
	}
	int rc = slab_grow(count - run, err);
	if (rc == 0)
		*ret_first = slab.locked_pages - count;
	return rc;
}

static int take_run(size_t bytes, uint8_t **ret, struct naos_error *err)
{
	size_t count = (bytes + PAGE - 1) / PAGE, first;
	int rc = find_pages(count, &first, err);
	if (rc != 0)
		return rc;
	for (size_t i = first; i < first + count; i++)
		slab.pages[i] = (struct page){ .class_index = CLASSES, .in_use = true };
	slab.pages[first].run = (uint32_t)count;
	*ret = slab.base + first * PAGE;
	return 0;
}

static bool has_slot(size_t index, unsigned class_index)
{
	const struct page *page = &slab.pages[index];
	return page->in_use && page->class_index == class_index && page->used < PAGE / ((size_t)SMALLEST << class_index);
}

static int take_slot(unsigned class_index, uint8_t **ret, struct naos_error *err)
{
	size_t slot_bytes = (size_t)SMALLEST << class_index, count = PAGE / slot_bytes, index = slab.hints[class_index];
	if (index >= slab.locked_pages || !has_slot(index, class_index))
		for (index = 0; index < slab.locked_pages && !has_slot(index, class_index); index++)
			;
	if (index == slab.locked_pages) {
		int rc = find_pages(1, &index, err);
		if (rc != 0)
			return rc;
		slab.pages[index] = (struct page){ .class_index = (uint8_t)class_index, .in_use = true };
	}
	struct page *page = &slab.pages[index];
	slab.hints[class_index] = index;
	for (size_t slot = 0; slot < count; slot++) {
		uint64_t bit = (uint64_t)1 << (slot % 64);
		if (page->slots[slot / 64] & bit)
			continue;
		page->slots[slot / 64] |= bit;
		page->used++;
		*ret = slab.base + index * PAGE + slot * slot_bytes;
		return 0;
	}
	return naos_error_set(err, NAOS_E_NOMEM, "the memory of keys is inconsistent");
}

static void give_back(uint8_t *data)
{
	size_t index = (size_t)(data - slab.base) / PAGE;
	struct page *page = &slab.pages[index];
	if (page->class_index == CLASSES) {
		for (size_t i = 0, count = page->run; i < count; i++)
			slab.pages[index + i] = (struct page){ .in_use = false };
		return;
	}
	size_t slot = ((size_t)(data - slab.base) % PAGE) / ((size_t)SMALLEST << page->class_index);
	page->slots[slot / 64] &= ~((uint64_t)1 << (slot % 64));
	if (--page->used == 0)
		page->in_use = false;
	else
		slab.hints[page->class_index] = index;
}

int naos_secret_create(size_t bytes, struct naos_secret **ret, struct naos_error *err)
{
	if (bytes == 0 || bytes > NAOS_SECRET_MAX_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "a secret of %zu bytes is outside 1 … %zu", bytes, NAOS_SECRET_MAX_BYTES);
	struct naos_secret *secret = calloc(1, sizeof(*secret));
	if (!secret)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a key");
	unsigned class_index = class_of(bytes);
	(void)pthread_mutex_lock(&slab.lock);
	int rc = slab_map(err);
	if (rc == 0)
		rc = class_index < CLASSES ? take_slot(class_index, &secret->data, err) : take_run(bytes, &secret->data, err);
	if (rc == 0) {
		secret->bytes = bytes;
		secret->capacity = class_index < CLASSES ? (size_t)SMALLEST << class_index : (bytes + PAGE - 1) / PAGE * PAGE;
		slab.used_bytes += secret->capacity;
	}
	(void)pthread_mutex_unlock(&slab.lock);
	if (rc != 0) {
		free(secret);
		return rc;
	}
	*ret = secret;
	return 0;
}

int naos_secret_random(size_t bytes, struct naos_secret **ret, struct naos_error *err)
{
	naos_autosecret struct naos_secret *secret = NULL;
	int rc = naos_secret_create(bytes, &secret, err);
	if (rc != 0)
		return rc;
	if (RAND_priv_bytes(secret->data, (int)bytes) != 1)
		return naos_error_set(err, NAOS_E_SYSTEM, "the random generator failed");
	*ret = naos_steal(secret);
	return 0;
}

int naos_secret_take(void *source, size_t bytes, struct naos_secret **ret, struct naos_error *err)
{
	struct naos_secret *secret;
	int rc = naos_secret_create(bytes, &secret, err);
	if (rc == 0) {
		memcpy(secret->data, source, bytes); /* lint-ok: the slab's own copy in */
		*ret = secret;
	}
	naos_wipe(source, bytes);
	return rc;
}

int naos_secret_read_fd(int fd, size_t max_bytes, const char *what, struct naos_secret **ret, struct naos_error *err)
{
	naos_autosecret struct naos_secret *secret = NULL;
	size_t filled = 0;
	int rc = naos_secret_create(max_bytes + 1, &secret, err);
	if (rc != 0)
		return rc;
	while (filled <= max_bytes) {
		ssize_t got = read(fd, secret->data + filled, max_bytes + 1 - filled);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return naos_error_set_errno(err, errno, "cannot read the %s from descriptor %d", what, fd);
		if (got == 0)
			break;
		filled += (size_t)got;
	}
	if (filled > max_bytes)
		return naos_error_set(err, NAOS_E_LIMIT, "the %s is longer than %zu bytes", what, max_bytes);
	if (filled > 0 && secret->data[filled - 1] == '\n')
		filled--;
	if (filled == 0)
		return naos_error_set(err, NAOS_E_USAGE, "the %s is empty", what);
	naos_secret_shrink(secret, filled);
	*ret = naos_steal(secret);
	return 0;
}

uint8_t *naos_secret_data(struct naos_secret *secret)
{
	return secret->data;
}

const uint8_t *naos_secret_view(const struct naos_secret *secret)
{
	return secret->data;
}

size_t naos_secret_bytes(const struct naos_secret *secret)
{
	return secret->bytes;
}

void naos_secret_shrink(struct naos_secret *secret, size_t bytes)
{
	if (bytes >= secret->bytes)
		return;
	naos_wipe(secret->data + bytes, secret->bytes - bytes);
	secret->bytes = bytes;
}

int naos_secret_clone(const struct naos_secret *secret, struct naos_secret **ret, struct naos_error *err)
{
	int rc = naos_secret_create(secret->bytes, ret, err);
	if (rc == 0)
		memcpy((*ret)->data, secret->data, secret->bytes); /* lint-ok: from slab to slab */
	return rc;
}

bool naos_secret_equal(const struct naos_secret *secret, const void *other, size_t bytes)
{
	return secret->bytes == bytes && CRYPTO_memcmp(secret->data, other, bytes) == 0;
}

struct naos_secret *naos_secret_free(struct naos_secret *secret)
{
	int saved = errno;
	if (!secret)
		return NULL;
	naos_wipe(secret->data, secret->capacity);
	(void)pthread_mutex_lock(&slab.lock);
	give_back(secret->data);
	slab.used_bytes -= secret->capacity;
	(void)pthread_mutex_unlock(&slab.lock);
	free(secret);
	errno = saved;
	return NULL;
}

void naos_secret_usage(size_t *ret_used_bytes, size_t *ret_locked_bytes)
{
	(void)pthread_mutex_lock(&slab.lock);
	*ret_used_bytes = slab.used_bytes;
	*ret_locked_bytes = slab.locked_pages * PAGE;
	(void)pthread_mutex_unlock(&slab.lock);
}

void naos_wipe(void *memory, size_t bytes)
{
	if (memory)
		explicit_bzero(memory, bytes);
}
