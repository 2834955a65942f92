/* Keys of file sets: fresh ones in a pool, those of files that exist from the ring, and what a daemon tends.
 * SPDX-License-Identifier: Apache-2.0 */
#include "seal/fileset_inside.h"

#include <time.h>

#define FIRST_TARGET 16
#define RETRY_S 5    /* after the key manager was away */
#define REFUSED_S 60 /* after it refused: asking more often would only fill its log */

static int64_t now_s(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

static int64_t retry_at(int rc)
{
	return now_s() + (naos_error_info(rc)->retryable ? RETRY_S : REFUSED_S);
}

static void free_key(struct naos_new_key *key)
{
	key->fek = naos_secret_free(key->fek);
}

void naos_fileset_member_free(struct naos_fileset_member *member)
{
	for (size_t i = 0; i < member->ready; i++)
		free_key(&member->pool[i]);
	free(member->pool);
	(void)pthread_mutex_destroy(&member->lock);
	(void)pthread_mutex_destroy(&member->filling);
	free(member);
}

/* --- the version that wraps ------------------------------------------------------------------------------------------- */

/* The lock is held: keys that another version wrapped are of no use for new files. */
static void drop_superseded(struct naos_fileset_member *member)
{
	size_t kept = 0;
	for (size_t i = 0; i < member->ready; i++) {
		struct naos_new_key *key = &member->pool[i];
		if (member->active.version && key->blob.mek_version == member->active.version &&
		    naos_uuid_equal(&key->blob.mek_id, &member->active.id))
			member->pool[kept++] = *key;
		else
			free_key(key);
	}
	member->ready = kept;
}

/* Asks for the versions of the set's MEK, and acts on what is new. */
static int refresh(struct naos_filesets *sets, struct naos_fileset_member *member, struct naos_mek *ret, struct naos_error *err)
{
	naos_autofree struct naos_mek *versions = NULL;
	size_t count = 0;
	const struct naos_mek *active = NULL;
	int rc = naos_mek_find(sets->provider, member->set.mek, &versions, &count, err);
	for (size_t i = 0; rc == 0 && !active && i < count; i++)
		active = versions[i].state == NAOS_MEK_ACTIVE ? &versions[i] : NULL;
	(void)pthread_mutex_lock(&member->lock);
	member->refresh_at_s = rc == 0 || rc == NAOS_E_NOKEY ? now_s() + NAOS_FILESET_REFRESH_S : retry_at(rc);
	/* a key manager may no longer show what is destroyed; then its id is the one that was seen, or the set's */
	struct naos_uuid mek_id = count ? versions[0].id : member->active.version ? member->active.id : member->set.id;
	if (rc == 0 || rc == NAOS_E_NOKEY) {
		member->active = active ? *active : (struct naos_mek){ .version = 0 };
		drop_superseded(member);
	}
	(void)pthread_mutex_unlock(&member->lock);
	if (rc == 0 || rc == NAOS_E_NOKEY)
		naos_ring_forget(sets->ring, &mek_id, versions, count);
	if (rc == 0 && !active)
		return naos_error_set(err, NAOS_E_KEY_STATE, "the MEK '%s' has no active version", member->set.mek);
	if (rc == 0)
		*ret = *active;
	return rc;
}

int naos_filesets_active(struct naos_filesets *sets, const struct naos_fileset *set, struct naos_mek *ret, struct naos_error *err)
{
	struct naos_fileset_member *member = naos_fileset_member_of(sets, set);
	(void)pthread_mutex_lock(&member->filling); /* one asks, the others find the answer */
	(void)pthread_mutex_lock(&member->lock);
	const struct naos_mek active = member->active;
	member->used = true;
	(void)pthread_mutex_unlock(&member->lock);
	int rc = active.version ? 0 : refresh(sets, member, ret, err);
	(void)pthread_mutex_unlock(&member->filling);
	if (active.version)
		*ret = active;
	return rc;
}

/* --- keys for new files ----------------------------------------------------------------------------------------------- */

static struct naos_wrap_context context_of(const struct naos_uuid *fileset_id, const struct naos_uuid *file_id)
{
	return (struct naos_wrap_context){ .kind = NAOS_WRAP_FILE, .group_id = *fileset_id, .object_id = *file_id };
}

static int make_key(const struct naos_fileset_member *member, struct naos_new_key *key, struct naos_wrap_item *item, struct naos_error *err)
{
	int rc = naos_uuid_random(&key->file_id, err);
	if (rc == 0)
		rc = naos_secret_random(NAOS_FEK_BYTES, &key->fek, err);
	*item = (struct naos_wrap_item){ .context = context_of(&member->set.id, &key->file_id), .key = key->fek };
	return rc;
}

/* Makes and wraps `count` keys; none on failure. */
static int make_keys(struct naos_filesets *sets, struct naos_fileset_member *member, struct naos_new_key *keys, size_t count,
		     struct naos_error *err)
{
	naos_autofree struct naos_wrap_item *items = calloc(count, sizeof(*items));
	int rc = items ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for new file keys");
	for (size_t i = 0; rc == 0 && i < count; i++)
		rc = make_key(member, &keys[i], &items[i], err);
	if (rc == 0)
		rc = naos_keys_wrap(sets->provider, member->set.mek, items, count, err);
	for (size_t i = 0; i < count; i++) {
		if (rc == 0)
			keys[i].blob = items[i].blob;
		else
			free_key(&keys[i]);
	}
	return rc ? naos_error_prefix(err, rc, "file set '%s'", member->set.name) : 0;
}

/* The lock is held.  How many keys to make now so that the pool is worth it; 0: somebody else filled it. */
static size_t wanted(struct naos_fileset_member *member, bool ahead)
{
	size_t room = ahead ? member->target : NAOS_FILESET_BATCH;
	if (ahead ? member->ready >= room : member->ready > 0)
		return 0;
	size_t count = ahead ? room - member->ready : member->batch;
	return count < NAOS_FILESET_BATCH ? count : NAOS_FILESET_BATCH;
}

static void put_keys(struct naos_fileset_member *member, struct naos_new_key **keys, size_t count)
{
	(void)pthread_mutex_lock(&member->lock);
	if (!member->pool) {
		member->pool = naos_steal(*keys);
		member->ready = count;
	} else {
		for (size_t i = 0; i < count; i++)
			member->pool[member->ready++] = (*keys)[i];
	}
	member->batch = member->batch * 2 < NAOS_FILESET_BATCH ? member->batch * 2 : NAOS_FILESET_BATCH;
	(void)pthread_mutex_unlock(&member->lock);
}

/* One batch; wrapped without the lock, so that others take what there is.  ahead: before the pool is empty. */
static int fill(struct naos_filesets *sets, struct naos_fileset_member *member, bool ahead, struct naos_error *err)
{
	naos_autofree struct naos_new_key *keys = NULL;
	int rc = 0;
	(void)pthread_mutex_lock(&member->filling);
	(void)pthread_mutex_lock(&member->lock);
	size_t count = wanted(member, ahead);
	bool first = !member->pool;
	(void)pthread_mutex_unlock(&member->lock);
	if (count > 0) {
		keys = calloc(first ? NAOS_FILESET_POOL : count, sizeof(*keys));
		rc = keys ? make_keys(sets, member, keys, count, err) : naos_error_set(err, NAOS_E_NOMEM, "no memory for new file keys");
		if (rc == 0)
			put_keys(member, &keys, count);
	}
	(void)pthread_mutex_unlock(&member->filling);
	return rc;
}

int naos_filesets_new_key(struct naos_filesets *sets, const struct naos_fileset *set, struct naos_new_key *ret, struct naos_error *err)
{
	struct naos_fileset_member *member = naos_fileset_member_of(sets, set);
	struct naos_new_key key = { .fek = NULL };
	bool low = false;
	while (!key.fek) {
		(void)pthread_mutex_lock(&member->lock);
		member->used = true;
		if (member->ready > 0) {
			key = member->pool[--member->ready];
			low = member->prepared && member->ready * 2 == member->target;
		}
		(void)pthread_mutex_unlock(&member->lock);
		int rc = key.fek ? 0 : fill(sets, member, false, err);
		if (rc != 0)
			return rc;
	}
	if (low)
		naos_filesets_wake(sets);
	/* a file just made is often opened again: but one that can't be kept at hand can be unwrapped */
	const struct naos_wrap_context context = context_of(&set->id, &key.file_id);
	(void)!naos_ring_put(sets->ring, &context, &key.blob, key.fek, NULL);
	*ret = key;
	return 0;
}

/* --- what a daemon tends ---------------------------------------------------------------------------------------------- */

void naos_filesets_prepare(struct naos_filesets *sets, const struct naos_fileset *set)
{
	struct naos_fileset_member *member = naos_fileset_member_of(sets, set);
	(void)pthread_mutex_lock(&member->lock);
	member->used = member->prepared = true;
	if (member->target == 0)
		member->target = FIRST_TARGET;
	(void)pthread_mutex_unlock(&member->lock);
	naos_filesets_wake(sets);
}

/* Whether so few keys are ready that more are to be made.  A pool that was used up meanwhile was too small. */
static bool is_short(struct naos_fileset_member *member)
{
	(void)pthread_mutex_lock(&member->lock);
	bool is = member->prepared && member->ready * 2 <= member->target && now_s() >= member->refill_at_s;
	if (is && member->pool && member->ready == 0 && member->refill_at_s == 0 && member->target < NAOS_FILESET_POOL)
		member->target *= 2;
	(void)pthread_mutex_unlock(&member->lock);
	return is;
}

static void refill(struct naos_filesets *sets, struct naos_fileset_member *member)
{
	for (bool more = is_short(member); more;) {
		struct naos_error why = NAOS_ERROR_INIT;
		int rc = fill(sets, member, true, &why);
		(void)pthread_mutex_lock(&member->lock);
		more = rc == 0 && member->ready < member->target;
		member->refill_at_s = rc ? retry_at(rc) : 0;
		member->refilled = why;
		(void)pthread_mutex_unlock(&member->lock);
	}
}

static void tend(struct naos_filesets *sets, bool at_once)
{
	naos_ring_expire(sets->ring);
	for (struct naos_fileset_member *member = sets->members; member; member = member->next) {
		struct naos_error why = NAOS_ERROR_INIT;
		struct naos_mek active;
		(void)pthread_mutex_lock(&member->lock);
		bool due = member->used && (at_once || now_s() >= member->refresh_at_s);
		(void)pthread_mutex_unlock(&member->lock);
		int rc = due ? refresh(sets, member, &active, &why) : 0;
		if (due) {
			(void)pthread_mutex_lock(&member->lock);
			member->refreshed = why;
			(void)pthread_mutex_unlock(&member->lock);
		}
		if (rc == 0)
			refill(sets, member);
	}
}

void naos_filesets_tend(struct naos_filesets *sets)
{
	tend(sets, false);
}

void naos_filesets_refresh(struct naos_filesets *sets)
{
	tend(sets, true);
}

void naos_filesets_wake(struct naos_filesets *sets)
{
	(void)pthread_mutex_lock(&sets->wake_lock);
	sets->woken = true;
	(void)pthread_cond_broadcast(&sets->wake);
	(void)pthread_mutex_unlock(&sets->wake_lock);
}

void naos_filesets_await(struct naos_filesets *sets, unsigned seconds)
{
	struct timespec until;
	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += seconds;
	(void)pthread_mutex_lock(&sets->wake_lock);
	while (!sets->woken && pthread_cond_timedwait(&sets->wake, &sets->wake_lock, &until) == 0)
		continue;
	sets->woken = false;
	(void)pthread_mutex_unlock(&sets->wake_lock);
}

int naos_filesets_condition(struct naos_filesets *sets, struct naos_error *err)
{
	struct naos_error first = NAOS_ERROR_INIT;
	for (struct naos_fileset_member *member = sets->members; member && first.code == 0; member = member->next) {
		(void)pthread_mutex_lock(&member->lock);
		first = member->refreshed.code ? member->refreshed : member->refilled;
		(void)pthread_mutex_unlock(&member->lock);
	}
	return first.code ? naos_error_set(err, first.code, "%s", first.message) : 0;
}

/* --- keys of files that exist ----------------------------------------------------------------------------------------- */

static int unwrap(void *context, const struct naos_wrap_context *wrap, const struct naos_blob *blob, struct naos_secret **ret,
		  struct naos_error *err)
{
	struct naos_filesets *sets = context;
	return naos_ring_get(sets->ring, wrap, blob, ret, err);
}

struct naos_fek_source naos_filesets_source(struct naos_filesets *sets, const struct naos_fileset *only,
					    const struct naos_sealed_info *info)
{
	const struct naos_fileset *set = only ? only : naos_filesets_by_id(sets, &info->header.fileset_id);
	return (struct naos_fek_source){
		.unwrap = unwrap, .context = sets, .fileset_id = set ? &set->id : NULL, .algorithm = set ? set->algorithm : 0,
	};
}

bool naos_filesets_knows(struct naos_filesets *sets, const struct naos_sealed_info *info)
{
	const struct naos_wrap_context context = context_of(&info->header.fileset_id, &info->header.file_id);
	for (unsigned i = 0; i < NAOS_FEK_SLOTS; i++)
		if (info->slots[i].used && naos_ring_has(sets->ring, &context, &info->slots[i].blob))
			return true;
	return false;
}

void naos_filesets_prefetch(struct naos_filesets *sets, const struct naos_sealed_info *infos, size_t count)
{
	struct naos_wrap_context contexts[NAOS_FILESET_BATCH];
	struct naos_blob blobs[NAOS_FILESET_BATCH];
	size_t used = 0;
	for (size_t i = 0; i < count && used < NAOS_FILESET_BATCH; i++) {
		const struct naos_fek_slot *newest = NULL;
		for (unsigned j = 0; j < NAOS_FEK_SLOTS; j++)
			if (infos[i].slots[j].used && (!newest || infos[i].slots[j].generation > newest->generation))
				newest = &infos[i].slots[j];
		if (!newest)
			continue;
		contexts[used] = context_of(&infos[i].header.fileset_id, &infos[i].header.file_id);
		blobs[used++] = newest->blob;
	}
	if (used > 1)
		naos_ring_prefetch(sets->ring, contexts, blobs, used);
}
