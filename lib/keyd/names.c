/* The table of names in use: a hash over owner and name.  SPDX-License-Identifier: Apache-2.0 */
#include "keyd/names.h"

#include <pthread.h>
#include <string.h>

#define CHAINS 65536

struct claimed {
	struct claimed *next;
	uint64_t hash;
	struct naos_uuid id;
	size_t owner_bytes, name_bytes;
	char text[]; /* owner, then name */
};

struct naos_names {
	pthread_mutex_t lock;
	struct claimed *chains[CHAINS];
};

/* FNV-1a; a client that makes its own names collide slows down itself. */
static uint64_t hash_more(uint64_t hash, const char *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ (uint8_t)data[i]) * 0x100000001b3;
	return hash;
}

/* Where the pointer to the entry of a name is, or would be put. */
static struct claimed **find(struct naos_names *names, const char *owner, const struct naos_kmip_text *name, uint64_t *ret_hash)
{
	size_t owner_bytes = strlen(owner);
	uint64_t hash = hash_more(hash_more(0xcbf29ce484222325, owner, owner_bytes + 1), name->data, name->bytes);
	struct claimed **at = &names->chains[(hash ^ hash >> 32) % CHAINS];
	while (*at && ((*at)->hash != hash || (*at)->owner_bytes != owner_bytes || (*at)->name_bytes != name->bytes ||
		       memcmp((*at)->text, owner, owner_bytes) != 0 || memcmp((*at)->text + owner_bytes, name->data, name->bytes) != 0))
		at = &(*at)->next;
	*ret_hash = hash;
	return at;
}

static const struct naos_kmip_text *name_of(const struct naos_kmip_attribute *attribute)
{
	return attribute->tag == NAOS_KMIP_TAG_NAME && attribute->value.name ? &attribute->value.name->value : NULL;
}

int naos_names_create(struct naos_names **ret, struct naos_error *err)
{
	struct naos_names *names = calloc(1, sizeof(*names));
	if (!names)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the table of names");
	(void)pthread_mutex_init(&names->lock, NULL);
	*ret = names;
	return 0;
}

struct naos_names *naos_names_free(struct naos_names *names)
{
	if (!names)
		return NULL;
	for (size_t i = 0; i < CHAINS; i++)
		while (names->chains[i]) {
			struct claimed *next = names->chains[i]->next;
			free(names->chains[i]);
			names->chains[i] = next;
		}
	(void)pthread_mutex_destroy(&names->lock);
	free(names);
	return NULL;
}

static bool add(struct claimed **at, uint64_t hash, const char *owner, const struct naos_kmip_text *name, const struct naos_uuid *id)
{
	size_t owner_bytes = strlen(owner);
	struct claimed *claimed = malloc(sizeof(*claimed) + owner_bytes + name->bytes);
	if (!claimed)
		return false;
	*claimed = (struct claimed){ .hash = hash, .id = *id, .owner_bytes = owner_bytes, .name_bytes = name->bytes };
	memcpy(claimed->text, owner, owner_bytes);
	if (name->bytes > 0)
		memcpy(claimed->text + owner_bytes, name->data, name->bytes);
	*at = claimed;
	return true;
}

static bool listed(const struct naos_kmip_attribute *items, size_t count, const struct naos_kmip_text *name)
{
	for (size_t i = 0; i < count; i++) {
		const struct naos_kmip_text *other = name_of(&items[i]);
		if (other && other->bytes == name->bytes && memcmp(other->data, name->data, name->bytes) == 0)
			return true;
	}
	return false;
}

static void drop(struct claimed **at)
{
	struct claimed *next = (*at)->next;
	free(*at);
	*at = next;
}

int naos_names_claim(struct naos_names *names, const char *owner, const struct naos_kmip_attribute *items, size_t count,
		     const struct naos_uuid *id, const struct naos_uuid *from, struct naos_error *err)
{
	const struct naos_kmip_text *name;
	uint64_t hash;
	int rc = 0;
	(void)pthread_mutex_lock(&names->lock);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		if (!(name = name_of(&items[i])))
			continue;
		struct claimed *present = *find(names, owner, name, &hash);
		if (present && !naos_uuid_equal(&present->id, id) && !(from && naos_uuid_equal(&present->id, from)))
			rc = naos_error_set(err, NAOS_E_EXISTS, "another object of yours has this name");
	}
	for (size_t i = 0; rc == 0 && i < count; i++) {
		if (!(name = name_of(&items[i])))
			continue;
		struct claimed **at = find(names, owner, name, &hash);
		if (!*at && !add(at, hash, owner, name, id))
			rc = naos_error_set(err, NAOS_E_NOMEM, "no memory for a name");
	}
	(void)pthread_mutex_unlock(&names->lock);
	return rc; /* what was claimed before memory ran out is released with the rest by the caller */
}

void naos_names_move(struct naos_names *names, const char *owner, const struct naos_kmip_attribute *items, size_t count,
		     const struct naos_uuid *id, const struct naos_uuid *from)
{
	const struct naos_kmip_text *name;
	uint64_t hash;
	(void)pthread_mutex_lock(&names->lock);
	for (size_t i = 0; i < count; i++) {
		struct claimed *present = (name = name_of(&items[i])) ? *find(names, owner, name, &hash) : NULL;
		if (present && naos_uuid_equal(&present->id, from))
			present->id = *id;
	}
	(void)pthread_mutex_unlock(&names->lock);
}

void naos_names_release(struct naos_names *names, const char *owner, const struct naos_kmip_attribute *items, size_t count,
			const struct naos_kmip_attribute *but, size_t but_count, const struct naos_uuid *id)
{
	const struct naos_kmip_text *name;
	uint64_t hash;
	(void)pthread_mutex_lock(&names->lock);
	for (size_t i = 0; i < count; i++) {
		if (!(name = name_of(&items[i])) || listed(but, but_count, name))
			continue;
		struct claimed **at = find(names, owner, name, &hash);
		if (*at && naos_uuid_equal(&(*at)->id, id))
			drop(at);
	}
	(void)pthread_mutex_unlock(&names->lock);
}
