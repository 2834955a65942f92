/* Metadata of keys in memory.  SPDX-License-Identifier: Apache-2.0 */
#include "keys/cache.h"

#include <string.h>

#define CHECK_NS 250000000LL /* how long another process's change may go unseen */
#define FIRST_STEP 16	     /* a command that seals one file should not use up thousands */
#define LAST_STEP 65536

struct entry {
	struct naos_key_store_row row;
	uint64_t ahead; /* uses counted in the store and not yet made */
	uint64_t step;
};

struct naos_key_cache {
	struct naos_key_store *store;
	struct naos_token *token;
	pthread_mutex_t lock;
	struct entry *entries; /* by name and version */
	struct entry **by_id;  /* by id and version */
	size_t count;
	bool stale;
	int64_t checked_ns;
};

static int compare_id(const struct naos_mek *left, const struct naos_uuid *id, uint32_t version)
{
	int order = memcmp(left->id.bytes, id->bytes, sizeof(id->bytes));
	return order ? order : (left->version > version) - (left->version < version);
}

static int compare_entries(const void *left, const void *right)
{
	const struct entry *const *a = left, *const *b = right;
	return compare_id(&(*a)->row.mek, &(*b)->row.mek.id, (*b)->row.mek.version);
}

static struct entry *entry_by_id(struct naos_key_cache *cache, const struct naos_uuid *id, uint32_t version)
{
	size_t low = 0, high = cache->count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		int order = compare_id(&cache->by_id[middle]->row.mek, id, version);
		if (order == 0)
			return cache->by_id[middle];
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

/* Behind the last entry of this name. */
static size_t end_of_name(struct naos_key_cache *cache, const char *name)
{
	size_t low = 0, high = cache->count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (strcmp(cache->entries[middle].row.mek.name, name) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* A version that another process destroyed must not live on as a copy here. */
static void forget(struct naos_key_cache *cache, const struct naos_mek *mek)
{
	if (naos_token_enter_alone(cache->token, NULL) != 0)
		return;
	naos_token_forget(cache->token, mek);
	naos_token_leave(cache->token);
}

static int reload(struct naos_key_cache *cache, struct naos_error *err)
{
	naos_autofree struct naos_key_store_row *rows = NULL;
	naos_autofree struct entry *entries = NULL;
	naos_autofree struct entry **by_id = NULL;
	size_t count, kept = 0;
	int rc = naos_key_store_list(cache->store, &rows, &count, err);
	if (rc != 0)
		return rc;
	entries = calloc(count + 1, sizeof(*entries));
	by_id = calloc(count + 1, sizeof(struct entry *));
	if (!entries || !by_id)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the metadata of keys");
	for (size_t i = 0; i < count; i++) {
		if (rows[i].phase == NAOS_KEY_STORE_CREATING)
			continue;
		const struct entry *old = entry_by_id(cache, &rows[i].mek.id, rows[i].mek.version);
		entries[kept] = old ? *old : (struct entry){ .step = FIRST_STEP };
		entries[kept].row = rows[i];
		by_id[kept] = &entries[kept];
		if (old && old->row.mek.state != NAOS_MEK_DESTROYED && rows[i].mek.state == NAOS_MEK_DESTROYED)
			forget(cache, &rows[i].mek);
		kept++;
	}
	if (kept > 0)
		qsort(by_id, kept, sizeof(struct entry *), compare_entries);
	free(cache->entries);
	free(cache->by_id);
	cache->entries = naos_steal(entries);
	cache->by_id = naos_steal(by_id);
	cache->count = kept;
	cache->stale = false;
	return 0;
}

/* Reads the store again if it changed; `force`: looks now. */
static int bring_up_to_date(struct naos_key_cache *cache, bool force, struct naos_error *err)
{
	int64_t now = naos_now_ns();
	if (force || now - cache->checked_ns >= CHECK_NS) {
		cache->stale |= naos_key_store_changed(cache->store);
		cache->checked_ns = now;
	}
	return cache->stale ? reload(cache, err) : 0;
}

int naos_key_cache_create(struct naos_key_store *store, struct naos_token *token, struct naos_key_cache **ret,
		struct naos_error *err)
{
	struct naos_key_cache *cache = calloc(1, sizeof(*cache));
	if (!cache)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the metadata of keys");
	*cache = (struct naos_key_cache){ .store = store, .token = token, .stale = true };
	(void)pthread_mutex_init(&cache->lock, NULL);
	int rc = bring_up_to_date(cache, true, err);
	if (rc != 0)
		cache = naos_key_cache_free(cache);
	else
		*ret = cache;
	return rc;
}

struct naos_key_cache *naos_key_cache_free(struct naos_key_cache *cache)
{
	if (!cache)
		return NULL;
	for (size_t i = 0; i < cache->count; i++) {
		const struct entry *entry = &cache->entries[i];
		int rc = entry->ahead ? naos_key_store_return_uses(cache->store, &entry->row.mek, entry->ahead, NULL) : 0;
		(void)rc; /* then too many are counted, never too few */
	}
	free(cache->entries);
	free(cache->by_id);
	(void)pthread_mutex_destroy(&cache->lock);
	free(cache);
	return NULL;
}

void naos_key_cache_refresh(struct naos_key_cache *cache)
{
	(void)pthread_mutex_lock(&cache->lock);
	cache->stale = true;
	(void)pthread_mutex_unlock(&cache->lock);
}

static int no_active(struct naos_key_cache *cache, const char *name, struct naos_error *err)
{
	size_t end = end_of_name(cache, name);
	if (end == 0 || strcmp(cache->entries[end - 1].row.mek.name, name) != 0)
		return naos_error_set(err, NAOS_E_NOKEY, "there is no key named '%s'", name);
	const struct naos_mek *newest = &cache->entries[end - 1].row.mek;
	return naos_error_set(err, NAOS_E_KEY_STATE,
			"the key '%s' has no active version (the newest, %u, is %s): rotate or activate it", name,
			      newest->version, naos_mek_state_name(newest->state));
}

static struct entry *newest_active(struct naos_key_cache *cache, const char *name)
{
	for (size_t i = end_of_name(cache, name); i-- > 0 && strcmp(cache->entries[i].row.mek.name, name) == 0;)
		if (cache->entries[i].row.mek.state == NAOS_MEK_ACTIVE)
			return &cache->entries[i];
	return NULL;
}

/* One use of a version; the steps grow while a process goes on. */
static int count_use(struct naos_key_cache *cache, struct entry *entry, struct naos_error *err)
{
	if (entry->ahead == 0) {
		int rc = naos_key_store_reserve_uses(cache->store, &entry->row.mek, entry->step, &entry->ahead, err);
		if (rc != 0)
			return rc;
		entry->row.mek.uses += entry->ahead;
		entry->step = entry->step >= LAST_STEP / 4 ? LAST_STEP : 4 * entry->step;
	}
	entry->ahead--;
	return 0;
}

int naos_key_cache_use(struct naos_key_cache *cache, const char *name, struct naos_key_store_row *ret, struct naos_error *err)
{
	int rc = 0;
	(void)pthread_mutex_lock(&cache->lock);
	/* a second look: the store refuses what was rotated or revoked since, or the key is new */
	for (int look = 0; look < 2; look++) {
		rc = bring_up_to_date(cache, look > 0, err);
		struct entry *entry = rc ? NULL : newest_active(cache, name);
		if (rc == 0)
			rc = entry ? count_use(cache, entry, err) : no_active(cache, name, err);
		if (rc == 0)
			*ret = entry->row;
		if (rc != NAOS_E_KEY_STATE && rc != NAOS_E_NOKEY)
			break;
	}
	(void)pthread_mutex_unlock(&cache->lock);
	return rc;
}

int naos_key_cache_find(struct naos_key_cache *cache, const struct naos_uuid *mek_id, uint32_t version,
		struct naos_key_store_row *ret,
			struct naos_error *err)
{
	char id[NAOS_UUID_TEXT_BYTES];
	(void)pthread_mutex_lock(&cache->lock);
	int rc = bring_up_to_date(cache, false, err);
	const struct entry *entry = rc ? NULL : entry_by_id(cache, mek_id, version);
	if (rc == 0 && !entry) { /* made by another process just now? */
		rc = bring_up_to_date(cache, true, err);
		entry = rc ? NULL : entry_by_id(cache, mek_id, version);
	}
	if (rc == 0 && !entry)
		rc = naos_error_set(err, NAOS_E_NOKEY, "key %s version %u is not in the key store %s",
				naos_uuid_format(mek_id, id), version,
				    naos_key_store_path(cache->store));
	else if (rc == 0 && entry->row.mek.state != NAOS_MEK_ACTIVE && entry->row.mek.state != NAOS_MEK_DEACTIVATED)
		rc = naos_error_set(err, NAOS_E_KEY_STATE, "version %u of the key '%s' is %s", version, entry->row.mek.name,
				    naos_mek_state_name(entry->row.mek.state));
	if (rc == 0)
		*ret = entry->row;
	(void)pthread_mutex_unlock(&cache->lock);
	return rc;
}
