/* File sets, their keys, and the pool of fresh FEKs.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/fileset.h"

#include <pthread.h>
#include <string.h>

/* One known file set and its fresh keys. */
struct member {
	struct member *next;
	struct naos_fileset set;
	pthread_mutex_t lock; /* guards what follows; held while a batch is wrapped */
	struct naos_new_key *pool;
	size_t ready, batch;
	struct naos_mek active; /* version 0: not asked for yet */
};

struct naos_filesets {
	struct naos_provider *provider;
	struct naos_ring *ring;
	pthread_mutex_t lock;             /* for adding a member */
	struct member *_Atomic members; /* only ever gets more */
};

/* --- open and close --------------------------------------------------------------------------------------------------- */

static void free_pool(struct member *member)
{
	for (size_t i = 0; i < member->ready; i++)
		(void)naos_secret_free(member->pool[i].fek);
	free(member->pool);
	(void)pthread_mutex_destroy(&member->lock);
	free(member);
}

struct naos_filesets *naos_filesets_close(struct naos_filesets *sets)
{
	int saved = errno;
	if (!sets)
		return NULL;
	for (struct member *member = sets->members, *next; member; member = next) {
		next = member->next;
		free_pool(member);
	}
	(void)pthread_mutex_destroy(&sets->lock);
	(void)naos_ring_free(sets->ring);
	(void)naos_provider_close(sets->provider);
	free(sets);
	errno = saved;
	return NULL;
}

/* The id that a file set has where the configuration gives none: that of its MEK. */
static int mek_id(struct naos_filesets *sets, const struct naos_fileset *set, struct naos_uuid *ret, struct naos_error *err)
{
	naos_autofree struct naos_mek *versions = NULL;
	size_t count;
	int rc = naos_mek_find(sets->provider, set->mek, &versions, &count, err);
	if (rc != 0)
		return naos_error_prefix(err, rc, "file set '%s'", set->name);
	*ret = versions[0].id;
	return 0;
}

static int add_set(struct naos_filesets *sets, const struct naos_fileset *set, struct naos_error *err)
{
	struct member *member = calloc(1, sizeof(*member));
	if (!member)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a file set");
	member->set = *set;
	member->batch = 1;
	(void)pthread_mutex_init(&member->lock, NULL);
	member->next = sets->members;
	sets->members = member;
	return 0;
}

static int add_member(struct naos_filesets *sets, const struct naos_config *config, const char *name, struct naos_error *err)
{
	const char *mek = naos_config_string(config, "fileset", name, "mek"), *id = naos_config_string(config, "fileset", name, "id");
	struct naos_fileset set = { .algorithm = 0 };
	if (strlen(name) >= sizeof(set.name))
		return naos_error_set(err, NAOS_E_CONFIG, "the name of a file set has at most %zu bytes", sizeof(set.name) - 1);
	(void)snprintf(set.name, sizeof(set.name), "%s", name);
	mek = mek[0] ? mek : name;
	if (strlen(mek) >= sizeof(set.mek))
		return naos_error_set(err, NAOS_E_CONFIG, "file set '%s': the name of a MEK has at most %zu bytes", name,
				      sizeof(set.mek) - 1);
	(void)snprintf(set.mek, sizeof(set.mek), "%s", mek);
	if (!naos_algorithm_parse(naos_config_string(config, "fileset", name, "algorithm"), &set.algorithm))
		return naos_error_set(err, NAOS_E_CONFIG, "file set '%s': unknown algorithm", name);
	if (id[0] && !naos_uuid_parse(id, &set.id))
		return naos_error_set(err, NAOS_E_CONFIG, "%s: the id of file set '%s' is not a UUID",
				      naos_config_origin(config, "fileset", name, "id"), name);
	int rc = id[0] ? 0 : mek_id(sets, &set, &set.id, err);
	if (rc != 0)
		return rc;
	return add_set(sets, &set, err);
}

static int open_keys(struct naos_filesets *sets, const struct naos_config *config, const char *uri, struct naos_error *err)
{
	const char *store = naos_config_string(config, "keymanager", NULL, "store");
	int rc = naos_engine_select(naos_config_string(config, "engine", NULL, "backend"),
				    naos_config_bool(config, "engine", NULL, "fips"), err);
	if (rc == 0)
		rc = naos_provider_open(uri ? uri : naos_config_string(config, "keymanager", NULL, "uri"), store, &sets->provider, err);
	if (rc == 0)
		rc = naos_ring_create(sets->provider, (size_t)naos_config_number(config, "keyring", NULL, "max-keys"),
				      naos_config_number(config, "keyring", NULL, "max-age"), &sets->ring, err);
	return rc;
}

int naos_filesets_open(const struct naos_config *config, const char *wanted, const char *uri, struct naos_filesets **ret,
		       struct naos_error *err)
{
	const char *name;
	naos_autofilesets struct naos_filesets *sets = calloc(1, sizeof(*sets));
	if (!sets)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for file sets");
	(void)pthread_mutex_init(&sets->lock, NULL);
	int rc = open_keys(sets, config, uri, err);
	for (unsigned i = 0; rc == 0 && (name = naos_config_section_name(config, "fileset", i)); i++) {
		struct naos_error why;
		/* a set whose MEK this key manager does not have is known by its id only; it matters when it is asked for */
		rc = add_member(sets, config, name, &why);
		if (rc == NAOS_E_NOKEY && !(wanted && strcmp(wanted, name) == 0))
			rc = 0;
		else if (rc != 0)
			rc = naos_error_set(err, rc, "%s", why.message);
	}
	const struct naos_fileset *found;
	if (rc == 0 && wanted && naos_filesets_find(sets, wanted, &found, NULL) != 0)
		rc = add_member(sets, config, wanted, err); /* without a section: all defaults */
	if (rc == 0)
		*ret = naos_steal(sets);
	return rc;
}

int naos_filesets_find(struct naos_filesets *sets, const char *name, const struct naos_fileset **ret, struct naos_error *err)
{
	if (!name) {
		struct member *only = sets->members;
		if (!only || only->next)
			return naos_error_set(err, NAOS_E_USAGE, "name the file set with --fileset: the configuration has %s",
					      only ? "several" : "none");
		*ret = &only->set;
		return 0;
	}
	for (struct member *member = sets->members; member; member = member->next)
		if (strcmp(member->set.name, name) == 0) {
			*ret = &member->set;
			return 0;
		}
	return naos_error_set(err, NAOS_E_NOTFOUND, "there is no file set '%s'", name);
}

const struct naos_fileset *naos_filesets_by_id(struct naos_filesets *sets, const struct naos_uuid *id)
{
	for (struct member *member = sets->members; member; member = member->next)
		if (naos_uuid_equal(&member->set.id, id))
			return &member->set;
	return NULL;
}

/* A MEK of this id, as a file set without a section. */
static int add_implied(struct naos_filesets *sets, const struct naos_uuid *id, struct naos_error *err)
{
	naos_autofree struct naos_mek *meks = NULL;
	size_t count = 0;
	char text[NAOS_UUID_TEXT_BYTES];
	struct naos_fileset set = { .id = *id };
	int rc = naos_mek_list(sets->provider, &meks, &count, err);
	for (size_t i = 0; rc == 0 && i < count; i++)
		if (naos_uuid_equal(&meks[i].id, id)) {
			(void)snprintf(set.name, sizeof(set.name), "%s", meks[i].name);
			(void)snprintf(set.mek, sizeof(set.mek), "%s", meks[i].name);
			return add_set(sets, &set, err);
		}
	return rc ? rc :
		    naos_error_set(err, NAOS_E_NOTFOUND,
				   "the file set %s is not in the configuration: add its section with this id",
				   naos_uuid_format(id, text));
}

int naos_filesets_of_file(struct naos_filesets *sets, const struct naos_uuid *id, const struct naos_fileset **ret,
			  struct naos_error *err)
{
	int rc = 0;
	(void)pthread_mutex_lock(&sets->lock);
	if (!naos_filesets_by_id(sets, id))
		rc = add_implied(sets, id, err);
	(void)pthread_mutex_unlock(&sets->lock);
	if (rc == 0)
		*ret = naos_filesets_by_id(sets, id);
	return rc;
}

struct naos_provider *naos_filesets_provider(struct naos_filesets *sets)
{
	return sets->provider;
}

static struct member *member_of(struct naos_filesets *sets, const struct naos_fileset *set)
{
	struct member *member = sets->members;
	while (&member->set != set)
		member = member->next;
	return member;
}

static int find_active(struct naos_filesets *sets, struct member *member, struct naos_error *err)
{
	naos_autofree struct naos_mek *versions = NULL;
	size_t count;
	int rc = naos_mek_find(sets->provider, member->set.mek, &versions, &count, err);
	for (size_t i = 0; rc == 0 && i < count; i++)
		if (versions[i].state == NAOS_MEK_ACTIVE) {
			member->active = versions[i];
			return 0;
		}
	return rc ? rc : naos_error_set(err, NAOS_E_KEY_STATE, "the MEK '%s' has no active version", member->set.mek);
}

int naos_filesets_active(struct naos_filesets *sets, const struct naos_fileset *set, struct naos_mek *ret, struct naos_error *err)
{
	struct member *member = member_of(sets, set);
	(void)pthread_mutex_lock(&member->lock);
	int rc = member->active.version ? 0 : find_active(sets, member, err);
	if (rc == 0)
		*ret = member->active;
	(void)pthread_mutex_unlock(&member->lock);
	return rc;
}

/* --- keys for new files ----------------------------------------------------------------------------------------------- */

static int make_key(const struct member *member, struct naos_new_key *key, struct naos_wrap_item *item, struct naos_error *err)
{
	int rc = naos_uuid_random(&key->file_id, err);
	if (rc == 0)
		rc = naos_secret_random(NAOS_FEK_BYTES, &key->fek, err);
	*item = (struct naos_wrap_item){
		.context = { .kind = NAOS_WRAP_FILE, .group_id = member->set.id, .object_id = key->file_id }, .key = key->fek,
	};
	return rc;
}

/* Makes and wraps the next batch; batches grow while more is asked for. */
static int fill_pool(struct naos_filesets *sets, struct member *member, struct naos_error *err)
{
	size_t count = member->batch;
	naos_autofree struct naos_wrap_item *items = calloc(count, sizeof(*items));
	int rc = 0;
	if (!member->pool)
		member->pool = calloc(NAOS_FILESET_BATCH, sizeof(*member->pool));
	if (!items || !member->pool)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for new file keys");
	for (size_t i = 0; rc == 0 && i < count; i++)
		rc = make_key(member, &member->pool[i], &items[i], err);
	if (rc == 0)
		rc = naos_keys_wrap(sets->provider, member->set.mek, items, count, err);
	for (size_t i = 0; i < count; i++) {
		if (rc != 0)
			member->pool[i].fek = naos_secret_free(member->pool[i].fek);
		else
			member->pool[i].blob = items[i].blob;
	}
	if (rc != 0)
		return naos_error_prefix(err, rc, "file set '%s'", member->set.name);
	member->ready = count;
	member->batch = count * 2 < NAOS_FILESET_BATCH ? count * 2 : NAOS_FILESET_BATCH;
	return 0;
}

int naos_filesets_new_key(struct naos_filesets *sets, const struct naos_fileset *set, struct naos_new_key *ret,
			  struct naos_error *err)
{
	struct member *member = member_of(sets, set);
	(void)pthread_mutex_lock(&member->lock);
	int rc = member->ready ? 0 : fill_pool(sets, member, err);
	if (rc == 0) {
		member->ready--;
		*ret = member->pool[member->ready];
		member->pool[member->ready].fek = NULL;
	}
	(void)pthread_mutex_unlock(&member->lock);
	return rc;
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
		contexts[used] = (struct naos_wrap_context){
			.kind = NAOS_WRAP_FILE, .group_id = infos[i].header.fileset_id, .object_id = infos[i].header.file_id,
		};
		blobs[used++] = newest->blob;
	}
	if (used > 1)
		naos_ring_prefetch(sets->ring, contexts, blobs, used);
}
