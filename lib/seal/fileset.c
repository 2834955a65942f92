/* The file sets of a configuration, and which is meant; their keys are in fileset_keys.c.  SPDX-License-Identifier: Apache-2.0 */
#include "engine/configure.h"
#include "seal/fileset_inside.h"

#include <string.h>

/* --- open and close --------------------------------------------------------------------------------------------------- */

struct naos_filesets *naos_filesets_close(struct naos_filesets *sets)
{
	int saved = errno;
	if (!sets)
		return NULL;
	for (struct naos_fileset_member *member = sets->members, *next; member; member = next) {
		next = member->next;
		naos_fileset_member_free(member);
	}
	(void)pthread_mutex_destroy(&sets->lock);
	(void)pthread_mutex_destroy(&sets->wake_lock);
	(void)pthread_cond_destroy(&sets->wake);
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
	struct naos_fileset_member *member = calloc(1, sizeof(*member));
	if (!member)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a file set");
	member->set = *set;
	member->batch = 1;
	(void)pthread_mutex_init(&member->lock, NULL);
	(void)pthread_mutex_init(&member->filling, NULL);
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

/* later: what is asked for is known without the key manager, so it may be away. */
static int open_keys(struct naos_filesets *sets, const struct naos_config *config, const char *uri, bool later, struct naos_error *err)
{
	const char *store = naos_config_string(config, "keymanager", NULL, "store");
	int rc = naos_engine_configure(config, err);
	if (rc == 0 && !uri)
		uri = naos_config_string(config, "keymanager", NULL, "uri");
	if (rc == 0)
		rc = later ? naos_provider_open_later(uri, store, &sets->provider, err) : naos_provider_open(uri, store, &sets->provider, err);
	if (rc == 0)
		rc = naos_ring_create(sets->provider, (size_t)naos_config_number(config, "keyring", NULL, "max-keys"),
				      naos_config_number(config, "keyring", NULL, "max-age"), &sets->ring, err);
	return rc;
}

/* A set whose MEK this key manager does not have is known by its id only, which matters when it is asked for.  While the key
 * manager is away that is the same with every set but the wanted one. */
static bool can_wait(int rc, const char *name, const char *wanted)
{
	return wanted && strcmp(wanted, name) == 0 ? false : rc == NAOS_E_NOKEY || (wanted && rc == NAOS_E_KEYMANAGER);
}

int naos_filesets_open(const struct naos_config *config, const char *wanted, const char *uri, struct naos_filesets **ret,
		       struct naos_error *err)
{
	const char *name;
	bool away = false;
	naos_autofilesets struct naos_filesets *sets = calloc(1, sizeof(*sets));
	if (!sets)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for file sets");
	(void)pthread_mutex_init(&sets->lock, NULL);
	(void)pthread_mutex_init(&sets->wake_lock, NULL);
	(void)pthread_cond_init(&sets->wake, NULL);
	int rc = open_keys(sets, config, uri, wanted && naos_config_string(config, "fileset", wanted, "id")[0], err);
	for (unsigned i = 0; rc == 0 && (name = naos_config_section_name(config, "fileset", i)); i++) {
		struct naos_error why;
		if (away && strcmp(wanted, name) != 0 && !naos_config_string(config, "fileset", name, "id")[0])
			continue; /* one wait for a key manager that does not answer is enough */
		rc = add_member(sets, config, name, &why);
		away |= rc == NAOS_E_KEYMANAGER;
		if (can_wait(rc, name, wanted))
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
		struct naos_fileset_member *only = sets->members;
		if (!only || only->next)
			return naos_error_set(err, NAOS_E_USAGE, "name the file set with --fileset: the configuration has %s",
					      only ? "several" : "none");
		*ret = &only->set;
		return 0;
	}
	for (struct naos_fileset_member *member = sets->members; member; member = member->next)
		if (strcmp(member->set.name, name) == 0) {
			*ret = &member->set;
			return 0;
		}
	return naos_error_set(err, NAOS_E_NOTFOUND, "there is no file set '%s'", name);
}

const struct naos_fileset *naos_filesets_by_id(struct naos_filesets *sets, const struct naos_uuid *id)
{
	for (struct naos_fileset_member *member = sets->members; member; member = member->next)
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
