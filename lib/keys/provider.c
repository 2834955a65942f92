/* Key providers by scheme, and what all of them share: checks of names and arguments.  SPDX-License-Identifier: Apache-2.0 */
#include "keys/provider.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "keys/kmip.h"
#include "keys/pkcs11.h"

#define DEFAULT_STORE "/var/lib/naos/keys.db"

struct naos_provider {
	const struct naos_provider_ops *ops;
	void *_Atomic state; /* NULL: not opened yet, only with naos_provider_open_later */
	char *uri, *store;   /* what to open */
	pthread_mutex_t lock;
};

static const struct naos_provider_ops *const providers[] = {
	&naos_pkcs11_provider,
	&naos_kmip_provider,
};

static const struct naos_provider_ops *find_provider(const char *uri)
{
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(providers); i++) {
		size_t length = strlen(providers[i]->scheme);
		if (strncmp(uri, providers[i]->scheme, length) == 0 && uri[length] == ':')
			return providers[i];
	}
	return NULL;
}

/* Names the scheme only, never the rest: an address may hold what must not be shown. */
static int unknown_scheme(const char *uri, struct naos_error *err)
{
	char known[256] = "";
	for (size_t i = 0, used = 0; i < NAOS_ARRAY_LENGTH(providers) && used < sizeof(known); i++)
		used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s:", i ? ", " : "", providers[i]->scheme);
	size_t scheme = strspn(uri, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.");
	if (scheme == 0 || scheme > 32 || uri[scheme] != ':')
		return naos_error_set(err, NAOS_E_USAGE, "the address of the key manager must begin with a scheme; there is %s", known);
	return naos_error_set(err, NAOS_E_UNSUPPORTED, "no kind of key manager is called '%.*s:'; there is %s", (int)scheme, uri, known);
}

/* Opens what was put off.  A state, once there, stays. */
static int ready(struct naos_provider *provider, struct naos_error *err)
{
	void *state = atomic_load(&provider->state);
	int rc = 0;
	if (state)
		return 0;
	(void)pthread_mutex_lock(&provider->lock);
	if (!atomic_load(&provider->state))
		rc = provider->ops->open(provider->uri, provider->store, &state, err);
	if (rc == 0 && state)
		atomic_store(&provider->state, state);
	(void)pthread_mutex_unlock(&provider->lock);
	return rc;
}

static int prepare(const char *uri, const char *store_path, struct naos_provider **ret, struct naos_error *err)
{
	if (!uri || uri[0] == 0)
		return naos_error_set(err, NAOS_E_CONFIG, "no key manager is configured: set keymanager.uri or give --keys");
	const struct naos_provider_ops *ops = find_provider(uri);
	if (!ops)
		return unknown_scheme(uri, err);
	struct naos_provider *provider = calloc(1, sizeof(*provider));
	if (!provider)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the key manager");
	(void)pthread_mutex_init(&provider->lock, NULL);
	provider->ops = ops;
	provider->uri = strdup(uri);
	provider->store = strdup(store_path && store_path[0] ? store_path : DEFAULT_STORE);
	*ret = provider;
	if (provider->uri && provider->store)
		return 0;
	*ret = naos_provider_close(provider);
	return naos_error_set(err, NAOS_E_NOMEM, "no memory for the key manager");
}

int naos_provider_open(const char *uri, const char *store_path, struct naos_provider **ret, struct naos_error *err)
{
	naos_autoprovider struct naos_provider *provider = NULL;
	int rc = prepare(uri, store_path, &provider, err);
	if (rc == 0)
		rc = ready(provider, err);
	if (rc == 0)
		*ret = naos_steal(provider);
	return rc;
}

int naos_provider_open_later(const char *uri, const char *store_path, struct naos_provider **ret, struct naos_error *err)
{
	naos_autoprovider struct naos_provider *provider = NULL;
	int rc = prepare(uri, store_path, &provider, err);
	if (rc == 0)
		rc = ready(provider, err);
	if (rc == NAOS_E_KEYMANAGER)
		rc = 0;
	if (rc == 0)
		*ret = naos_steal(provider);
	return rc;
}

struct naos_provider *naos_provider_close(struct naos_provider *provider)
{
	int saved = errno;
	if (!provider)
		return NULL;
	if (provider->state)
		provider->ops->close(provider->state);
	(void)pthread_mutex_destroy(&provider->lock);
	free(provider->uri);
	free(provider->store);
	free(provider);
	errno = saved;
	return NULL;
}

static int check_name(const char *name, struct naos_error *err)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	size_t length = strnlen(name, NAOS_MEK_NAME_BYTES);
	if (length == 0 || length == NAOS_MEK_NAME_BYTES || strspn(name, letters) != length || name[0] == '-' || name[0] == '.')
		return naos_error_set(err, NAOS_E_USAGE,
				      "a key's name has 1 to %d letters, digits, '.', '_' or '-', and begins with a letter, digit or '_'",
				      NAOS_MEK_NAME_BYTES - 1);
	return 0;
}

static int unsupported(const struct naos_provider *provider, const char *what, struct naos_error *err)
{
	return naos_error_set(err, NAOS_E_UNSUPPORTED, "a key manager of kind '%s:' can't %s", provider->ops->scheme, what);
}

int naos_mek_create(struct naos_provider *provider, const char *name, struct naos_mek *ret, struct naos_error *err)
{
	int rc = check_name(name, err);
	if (rc == 0)
		rc = ready(provider, err);
	if (rc != 0)
		return rc;
	return provider->ops->create ? provider->ops->create(provider->state, name, ret, err) : unsupported(provider, "create keys", err);
}

int naos_mek_rotate(struct naos_provider *provider, const char *name, struct naos_mek *ret, struct naos_error *err)
{
	int rc = check_name(name, err);
	if (rc == 0)
		rc = ready(provider, err);
	if (rc != 0)
		return rc;
	return provider->ops->rotate ? provider->ops->rotate(provider->state, name, ret, err) : unsupported(provider, "rotate keys", err);
}

static int set_state(struct naos_provider *provider, const char *name, uint32_t version, enum naos_mek_state to, struct naos_error *err)
{
	int rc = check_name(name, err);
	if (rc == 0)
		rc = ready(provider, err);
	if (rc != 0)
		return rc;
	return provider->ops->set_state ? provider->ops->set_state(provider->state, name, version, to, err) :
					  unsupported(provider, "change the state of keys", err);
}

int naos_mek_activate(struct naos_provider *provider, const char *name, uint32_t version, struct naos_error *err)
{
	return set_state(provider, name, version, NAOS_MEK_ACTIVE, err);
}

int naos_mek_deactivate(struct naos_provider *provider, const char *name, uint32_t version, struct naos_error *err)
{
	return set_state(provider, name, version, NAOS_MEK_DEACTIVATED, err);
}

int naos_mek_revoke(struct naos_provider *provider, const char *name, uint32_t version, struct naos_error *err)
{
	return set_state(provider, name, version, NAOS_MEK_REVOKED, err);
}

int naos_mek_destroy(struct naos_provider *provider, const char *name, uint32_t version, struct naos_error *err)
{
	int rc = check_name(name, err);
	if (rc == 0)
		rc = ready(provider, err);
	if (rc != 0)
		return rc;
	return provider->ops->destroy ? provider->ops->destroy(provider->state, name, version, err) :
					unsupported(provider, "destroy keys", err);
}

int naos_key_import(struct naos_provider *provider, const char *name, const struct naos_secret *key,
		    char ret_id[static NAOS_KEY_ID_BYTES], struct naos_error *err)
{
	size_t bytes = naos_secret_bytes(key);
	int rc = check_name(name, err);
	if (rc == 0)
		rc = ready(provider, err);
	if (rc != 0)
		return rc;
	if (!provider->ops->import)
		return provider->ops->no_import ? naos_error_set(err, NAOS_E_UNSUPPORTED, "%s", provider->ops->no_import) :
						  unsupported(provider, "take keys from outside", err);
	if (bytes != 16 && bytes != 24 && bytes != 32)
		return naos_error_set(err, NAOS_E_USAGE, "a key for AES has 16, 24 or 32 bytes, this one has %zu", bytes);
	return provider->ops->import(provider->state, name, key, ret_id, err);
}

int naos_mek_list(struct naos_provider *provider, struct naos_mek **ret, size_t *ret_count, struct naos_error *err)
{
	int rc = ready(provider, err);
	if (rc != 0)
		return rc;
	return provider->ops->list ? provider->ops->list(provider->state, ret, ret_count, err) : unsupported(provider, "list keys", err);
}

int naos_mek_find(struct naos_provider *provider, const char *name, struct naos_mek **ret, size_t *ret_count, struct naos_error *err)
{
	naos_autofree struct naos_mek *all = NULL, *found = NULL;
	size_t count = 0, kept = 0;
	int rc = check_name(name, err);
	if (rc == 0)
		rc = naos_mek_list(provider, &all, &count, err);
	if (rc != 0)
		return rc;
	found = calloc(count ? count : 1, sizeof(*found));
	if (!found)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the list of keys");
	for (size_t i = count; i-- > 0;)
		if (strcmp(all[i].name, name) == 0)
			found[kept++] = all[i];
	if (kept == 0)
		return naos_error_set(err, NAOS_E_NOKEY, "there is no key named '%s'", name);
	*ret_count = kept;
	*ret = naos_steal(found);
	return 0;
}

int naos_keys_wrap(struct naos_provider *provider, const char *mek_name, struct naos_wrap_item *items, size_t count,
		   struct naos_error *err)
{
	int rc = check_name(mek_name, err);
	if (rc == 0)
		rc = ready(provider, err);
	if (rc != 0)
		return rc;
	return provider->ops->wrap ? provider->ops->wrap(provider->state, mek_name, items, count, err) : unsupported(provider, "wrap", err);
}

int naos_keys_unwrap(struct naos_provider *provider, struct naos_wrap_item *items, size_t count, struct naos_error *err)
{
	int rc = ready(provider, err);
	if (rc != 0)
		return rc;
	return provider->ops->unwrap ? provider->ops->unwrap(provider->state, items, count, err) : unsupported(provider, "unwrap", err);
}

const char *naos_mek_state_name(enum naos_mek_state state)
{
	static const char *const names[] = { "unknown", "pre-active", "active", "deactivated", "revoked", "destroyed" };
	return (unsigned)state < NAOS_ARRAY_LENGTH(names) ? names[state] : names[0];
}
