/* Key ring: a hash table of unwrapped keys, a list by last use, and unwraps in flight that others wait for.
 * SPDX-License-Identifier: Apache-2.0 */
#include "keys/ring.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#define ID_BYTES 32
#define SEED_BYTES 32
#define BATCH 256
#define MAX_BUCKETS ((size_t)1 << 20)

struct entry {
	struct entry *next;	       /* in its bucket */
	struct entry *newer, *older;   /* by last use; ready entries only */
	uint8_t id[ID_BYTES];	       /* digest of context and blob */
	struct naos_uuid mek_id;       /* that wrapped it */
	uint32_t mek_version;
	struct naos_secret *key;       /* NULL: in flight, or failed */
	int64_t used_ns;
	unsigned holders; /* threads that unwrap it or wait for it */
	bool linked;	  /* in the table */
	bool done;
	int result;
	struct naos_error error;
};

struct naos_ring {
	struct naos_provider *provider;
	size_t max_keys;
	int64_t max_age_ns;
	pid_t pid;
	EVP_MD *sha256;
	uint8_t seed[SEED_BYTES]; /* so that nobody can choose ids that fall into one bucket */
	pthread_mutex_t lock;
	pthread_cond_t landed;
	struct entry **buckets;
	size_t bucket_count; /* a power of two */
	struct entry *newest, *oldest;
	size_t count;
};

static int64_t now_ns(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_BOOTTIME, &now); /* a suspended machine ages too */
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int make_id(const struct naos_ring *ring, const struct naos_wrap_context *context, const struct naos_blob *blob,
		   uint8_t ret[static ID_BYTES], struct naos_error *err)
{
	uint8_t text[SEED_BYTES + NAOS_BLOB_ASSOCIATED_BYTES + NAOS_BLOB_MAX_BYTES];
	struct naos_cursor out = naos_cursor_writer(text, sizeof(text));
	uint8_t associated[NAOS_BLOB_ASSOCIATED_BYTES];
	naos_blob_associated(context, blob, associated);
	naos_cursor_put(&out, ring->seed, sizeof(ring->seed));
	naos_cursor_put(&out, associated, sizeof(associated));
	naos_blob_encode(blob, &out);
	if (!naos_cursor_ok(&out))
		return naos_error_set(err, NAOS_E_FORMAT, "a wrapped key with an unknown algorithm, a wrong length or no key named");
	if (EVP_Digest(text, out.position, ret, NULL, ring->sha256, NULL) != 1)
		return naos_error_set(err, NAOS_E_SYSTEM, "OpenSSL cannot compute SHA-256");
	return 0;
}

static struct entry **bucket_of(struct naos_ring *ring, const uint8_t *id)
{
	struct naos_cursor in = naos_cursor_reader(id, ID_BYTES);
	return &ring->buckets[naos_cursor_get_u64(&in) & (ring->bucket_count - 1)];
}

static struct entry *find(struct naos_ring *ring, const uint8_t *id)
{
	struct entry *entry = *bucket_of(ring, id);
	while (entry && memcmp(entry->id, id, ID_BYTES) != 0)
		entry = entry->next;
	return entry;
}

static void list_remove(struct naos_ring *ring, struct entry *entry)
{
	*(entry->newer ? &entry->newer->older : &ring->newest) = entry->older;
	*(entry->older ? &entry->older->newer : &ring->oldest) = entry->newer;
	entry->newer = entry->older = NULL;
	ring->count--;
}

static void list_add(struct naos_ring *ring, struct entry *entry)
{
	entry->used_ns = now_ns();
	entry->older = ring->newest;
	*(ring->newest ? &ring->newest->newer : &ring->oldest) = entry;
	ring->newest = entry;
	ring->count++;
}

static void free_unused(struct entry *entry)
{
	if (entry->linked || entry->holders > 0)
		return;
	(void)naos_secret_free(entry->key);
	free(entry);
}

/* Out of the table; wiped now, or by the last holder. */
static void drop(struct naos_ring *ring, struct entry *entry)
{
	struct entry **at = bucket_of(ring, entry->id);
	while (*at != entry)
		at = &(*at)->next;
	*at = entry->next;
	if (entry->key)
		list_remove(ring, entry);
	entry->linked = false;
	free_unused(entry);
}

static void drop_old(struct naos_ring *ring)
{
	int64_t limit = now_ns() - ring->max_age_ns;
	while (ring->oldest && ring->oldest->used_ns <= limit)
		drop(ring, ring->oldest);
	while (ring->count > ring->max_keys)
		drop(ring, ring->oldest);
}

static struct entry *add(struct naos_ring *ring, const uint8_t *id, const struct naos_blob *blob, struct naos_error *err)
{
	struct entry *entry = calloc(1, sizeof(*entry)), **bucket = bucket_of(ring, id);
	if (!entry) {
		(void)naos_error_set(err, NAOS_E_NOMEM, "no memory for the key ring");
		return NULL;
	}
	memcpy(entry->id, id, ID_BYTES);
	entry->mek_id = blob->mek_id;
	entry->mek_version = blob->mek_version;
	entry->linked = true;
	entry->next = *bucket;
	*bucket = entry;
	return entry;
}

/* The end of an unwrap: the key (taken) or why there is none. */
static void land(struct naos_ring *ring, struct entry *entry, struct naos_wrap_item *item)
{
	entry->done = true;
	entry->result = item->result;
	if (item->result == 0) {
		entry->key = naos_steal(item->unwrapped);
		if (entry->linked) {
			list_add(ring, entry);
			drop_old(ring);
		}
	} else {
		entry->error = item->error;
		if (entry->linked)
			drop(ring, entry);
	}
	(void)pthread_cond_broadcast(&ring->landed);
}

/* The lock is held; the caller is a holder, and ceases to be one. */
static int take_result(struct naos_ring *ring, struct entry *entry, struct naos_secret **ret, struct naos_error *err)
{
	while (!entry->done)
		(void)pthread_cond_wait(&ring->landed, &ring->lock);
	int rc = entry->result ? naos_error_set(err, entry->result, "%s", entry->error.message) : naos_secret_clone(entry->key, ret, err);
	entry->holders--;
	free_unused(entry);
	return rc;
}

static int check_fork(const struct naos_ring *ring, struct naos_error *err)
{
	if (ring->pid == getpid())
		return 0;
	/* secret memory is zero in a child: a key from this ring would be zero too */
	return naos_error_set(err, NAOS_E_UNSUPPORTED,
			      "this process was forked after it made its key ring: open the key manager after the last fork");
}

static void unwrap_one(struct naos_ring *ring, struct entry *entry, const struct naos_wrap_context *context, const struct naos_blob *blob)
{
	struct naos_wrap_item item = { .context = *context, .blob = *blob };
	struct naos_error error = NAOS_ERROR_INIT;
	int rc = naos_keys_unwrap(ring->provider, &item, 1, &error);
	if (item.result == 0 && !item.unwrapped) { /* failed before the item */
		item.result = rc ? rc : NAOS_E_SYSTEM;
		item.error = error;
	}
	(void)pthread_mutex_lock(&ring->lock);
	land(ring, entry, &item);
	(void)pthread_mutex_unlock(&ring->lock);
}

int naos_ring_get(struct naos_ring *ring, const struct naos_wrap_context *context, const struct naos_blob *blob,
		  struct naos_secret **ret, struct naos_error *err)
{
	uint8_t id[ID_BYTES];
	int rc = check_fork(ring, err);
	if (rc == 0)
		rc = make_id(ring, context, blob, id, err);
	if (rc != 0)
		return rc;
	(void)pthread_mutex_lock(&ring->lock);
	drop_old(ring);
	struct entry *entry = find(ring, id);
	if (entry && entry->key) {
		list_remove(ring, entry);
		list_add(ring, entry);
		rc = naos_secret_clone(entry->key, ret, err);
		(void)pthread_mutex_unlock(&ring->lock);
		return rc;
	}
	bool leads = !entry;
	if (leads)
		entry = add(ring, id, blob, err);
	if (!entry) {
		(void)pthread_mutex_unlock(&ring->lock);
		return NAOS_E_NOMEM;
	}
	entry->holders++;
	if (leads) {
		(void)pthread_mutex_unlock(&ring->lock);
		unwrap_one(ring, entry, context, blob);
		(void)pthread_mutex_lock(&ring->lock);
	}
	rc = take_result(ring, entry, ret, err);
	(void)pthread_mutex_unlock(&ring->lock);
	return rc;
}

/* Up to BATCH keys that are missing, put into the table as in flight. */
static size_t take_off(struct naos_ring *ring, const struct naos_wrap_context *contexts, const struct naos_blob *blobs, size_t count,
		       struct naos_wrap_item *items, struct entry **entries, size_t *next)
{
	size_t taken = 0;
	(void)pthread_mutex_lock(&ring->lock);
	drop_old(ring);
	for (; *next < count && taken < BATCH; (*next)++) {
		uint8_t id[ID_BYTES];
		if (make_id(ring, &contexts[*next], &blobs[*next], id, NULL) != 0 || find(ring, id))
			continue;
		entries[taken] = add(ring, id, &blobs[*next], NULL);
		if (!entries[taken])
			break;
		entries[taken]->holders++;
		items[taken++] = (struct naos_wrap_item){ .context = contexts[*next], .blob = blobs[*next] };
	}
	(void)pthread_mutex_unlock(&ring->lock);
	return taken;
}

void naos_ring_prefetch(struct naos_ring *ring, const struct naos_wrap_context *contexts, const struct naos_blob *blobs, size_t count)
{
	naos_autofree struct naos_wrap_item *items = calloc(BATCH, sizeof(*items));
	naos_autofree struct entry **entries = calloc(BATCH, sizeof(*entries));
	size_t next = 0, taken;
	if (!items || !entries || check_fork(ring, NULL) != 0)
		return;
	if (count > ring->max_keys)
		count = ring->max_keys; /* more would push out the first */
	while ((taken = take_off(ring, contexts, blobs, count, items, entries, &next)) > 0) {
		struct naos_error error = NAOS_ERROR_INIT;
		int rc = naos_keys_unwrap(ring->provider, items, taken, &error);
		(void)pthread_mutex_lock(&ring->lock);
		for (size_t i = 0; i < taken; i++) {
			if (items[i].result == 0 && !items[i].unwrapped) { /* the whole batch failed */
				items[i].result = rc ? rc : NAOS_E_SYSTEM;
				items[i].error = error;
			}
			land(ring, entries[i], &items[i]);
			entries[i]->holders--;
			free_unused(entries[i]);
		}
		(void)pthread_mutex_unlock(&ring->lock);
	}
}

int naos_ring_put(struct naos_ring *ring, const struct naos_wrap_context *context, const struct naos_blob *blob,
		  const struct naos_secret *key, struct naos_error *err)
{
	uint8_t id[ID_BYTES];
	int rc = check_fork(ring, err);
	if (rc == 0)
		rc = make_id(ring, context, blob, id, err);
	if (rc != 0)
		return rc;
	(void)pthread_mutex_lock(&ring->lock);
	if (!find(ring, id)) {
		struct naos_wrap_item item = { .result = 0 };
		rc = naos_secret_clone(key, &item.unwrapped, err);
		struct entry *entry = rc ? NULL : add(ring, id, blob, err);
		if (entry)
			land(ring, entry, &item);
		else if (rc == 0)
			rc = NAOS_E_NOMEM;
		(void)naos_secret_free(item.unwrapped);
	}
	(void)pthread_mutex_unlock(&ring->lock);
	return rc;
}

bool naos_ring_has(struct naos_ring *ring, const struct naos_wrap_context *context, const struct naos_blob *blob)
{
	uint8_t id[ID_BYTES];
	if (check_fork(ring, NULL) != 0 || make_id(ring, context, blob, id, NULL) != 0)
		return false;
	(void)pthread_mutex_lock(&ring->lock);
	drop_old(ring);
	const struct entry *entry = find(ring, id);
	bool has = entry && entry->key;
	(void)pthread_mutex_unlock(&ring->lock);
	return has;
}

static bool still_unwraps(const struct naos_mek *versions, size_t count, uint32_t version)
{
	for (size_t i = 0; i < count; i++)
		if (versions[i].version == version)
			return versions[i].state == NAOS_MEK_ACTIVE || versions[i].state == NAOS_MEK_DEACTIVATED;
	return false;
}

void naos_ring_forget(struct naos_ring *ring, const struct naos_uuid *mek_id, const struct naos_mek *versions, size_t count)
{
	if (check_fork(ring, NULL) != 0)
		return;
	(void)pthread_mutex_lock(&ring->lock);
	for (struct entry *entry = ring->newest, *older; entry; entry = older) {
		older = entry->older;
		if (naos_uuid_equal(&entry->mek_id, mek_id) && !still_unwraps(versions, count, entry->mek_version))
			drop(ring, entry);
	}
	(void)pthread_mutex_unlock(&ring->lock);
}

void naos_ring_expire(struct naos_ring *ring)
{
	if (check_fork(ring, NULL) != 0)
		return;
	(void)pthread_mutex_lock(&ring->lock);
	drop_old(ring);
	(void)pthread_mutex_unlock(&ring->lock);
}

void naos_ring_clear(struct naos_ring *ring)
{
	if (check_fork(ring, NULL) != 0)
		return;
	(void)pthread_mutex_lock(&ring->lock);
	while (ring->oldest)
		drop(ring, ring->oldest);
	(void)pthread_mutex_unlock(&ring->lock);
}

size_t naos_ring_count(struct naos_ring *ring)
{
	if (check_fork(ring, NULL) != 0)
		return 0;
	(void)pthread_mutex_lock(&ring->lock);
	size_t count = ring->count;
	(void)pthread_mutex_unlock(&ring->lock);
	return count;
}

int naos_ring_create(struct naos_provider *provider, size_t max_keys, uint64_t max_age_s, struct naos_ring **ret, struct naos_error *err)
{
	struct naos_ring *ring = calloc(1, sizeof(*ring));
	if (!ring)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the key ring");
	ring->provider = provider;
	ring->max_keys = max_keys;
	ring->max_age_ns = max_age_s > INT64_MAX / 1000000000LL ? INT64_MAX : (int64_t)max_age_s * 1000000000LL;
	ring->pid = getpid();
	for (ring->bucket_count = 64; ring->bucket_count < max_keys && ring->bucket_count < MAX_BUCKETS;)
		ring->bucket_count *= 2;
	(void)pthread_mutex_init(&ring->lock, NULL);
	(void)pthread_cond_init(&ring->landed, NULL);
	int rc = RAND_bytes(ring->seed, SEED_BYTES) == 1 ? 0 : naos_error_set(err, NAOS_E_SYSTEM, "the random generator failed");
	ring->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	ring->buckets = calloc(ring->bucket_count, sizeof(struct entry *));
	if (rc == 0 && (!ring->sha256 || !ring->buckets))
		rc = naos_error_set(err, NAOS_E_NOMEM, "no memory for the key ring");
	if (rc != 0)
		ring = naos_ring_free(ring);
	else
		*ret = ring;
	return rc;
}

struct naos_ring *naos_ring_free(struct naos_ring *ring)
{
	if (!ring)
		return NULL;
	while (ring->oldest)
		drop(ring, ring->oldest);
	EVP_MD_free(ring->sha256);
	(void)pthread_cond_destroy(&ring->landed);
	(void)pthread_mutex_destroy(&ring->lock);
	free(ring->buckets);
	free(ring);
	return NULL;
}
