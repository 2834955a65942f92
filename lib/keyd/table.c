/* The table of objects: a hash over identifiers and an array in order.  SPDX-License-Identifier: Apache-2.0 */
#include "keyd/table.h"

#include <string.h>

#define CHAINS 65536 /* identifiers are random: their first bytes spread well */

struct naos_table {
	pthread_rwlock_t lock;
	struct naos_entry **order;
	size_t count, room;
	struct naos_entry *chains[CHAINS];
};

static struct naos_entry **chain_of(struct naos_table *table, const struct naos_uuid *id)
{
	return &table->chains[(size_t)id->bytes[0] << 8 | id->bytes[1]];
}

int naos_table_create(struct naos_table **ret, struct naos_error *err)
{
	struct naos_table *table = calloc(1, sizeof(*table));
	if (!table)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the table of objects");
	(void)pthread_rwlock_init(&table->lock, NULL);
	*ret = table;
	return 0;
}

static void free_entry(struct naos_entry *entry)
{
	while (entry->approvals) {
		struct naos_approval *next = entry->approvals->next;
		free(entry->approvals);
		entry->approvals = next;
	}
	(void)naos_object_free(entry->object);
	(void)pthread_mutex_destroy(&entry->change);
	(void)pthread_mutex_destroy(&entry->uses_lock);
	free(entry);
}

struct naos_table *naos_table_free(struct naos_table *table)
{
	if (!table)
		return NULL;
	for (size_t i = 0; i < table->count; i++)
		free_entry(table->order[i]);
	free(table->order);
	(void)pthread_rwlock_destroy(&table->lock);
	free(table);
	return NULL;
}

/* The lock is held. */
static struct naos_entry *find(struct naos_table *table, const struct naos_uuid *id)
{
	struct naos_entry *entry = *chain_of(table, id);
	while (entry && !naos_uuid_equal(&entry->id, id))
		entry = entry->chain;
	return entry;
}

struct naos_entry *naos_table_find(struct naos_table *table, const struct naos_uuid *id)
{
	(void)pthread_rwlock_rdlock(&table->lock);
	struct naos_entry *entry = find(table, id);
	(void)pthread_rwlock_unlock(&table->lock);
	return entry;
}

bool naos_table_has_limits(struct naos_table *table, struct naos_kmip_text id)
{
	char text[NAOS_UUID_TEXT_BYTES];
	struct naos_uuid uuid;
	if (id.bytes >= sizeof(text))
		return false;
	memcpy(text, id.data, id.bytes);
	text[id.bytes] = 0;
	if (!naos_uuid_parse(text, &uuid))
		return false;
	(void)pthread_rwlock_rdlock(&table->lock);
	struct naos_entry *entry = find(table, &uuid);
	bool limits = entry && entry->object && entry->object->limits;
	(void)pthread_rwlock_unlock(&table->lock);
	return limits;
}

struct naos_object *naos_table_snapshot(struct naos_table *table, struct naos_entry *entry)
{
	(void)pthread_rwlock_rdlock(&table->lock);
	struct naos_object *object = entry->object ? naos_object_keep(entry->object) : NULL;
	(void)pthread_rwlock_unlock(&table->lock);
	return object;
}

static bool make_room(struct naos_table *table)
{
	if (table->count < table->room)
		return true;
	size_t room = table->room ? 2 * table->room : 64;
	struct naos_entry **grown = reallocarray(table->order, room, sizeof(*grown));
	if (!grown)
		return false;
	table->order = grown;
	table->room = room;
	return true;
}

int naos_table_add(struct naos_table *table, struct naos_object *object, struct naos_entry **ret, struct naos_error *err)
{
	struct naos_entry *entry = calloc(1, sizeof(*entry));
	int rc = entry ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for an object");
	(void)pthread_rwlock_wrlock(&table->lock);
	if (rc == 0 && table->count >= NAOS_KEYD_MAX_OBJECTS)
		rc = naos_error_set(err, NAOS_E_LIMIT, "the key manager holds at most %d objects", NAOS_KEYD_MAX_OBJECTS);
	if (rc == 0 && !make_room(table))
		rc = naos_error_set(err, NAOS_E_NOMEM, "no memory for an object");
	if (rc == 0) {
		entry->id = object->core.id;
		entry->object = object;
		(void)pthread_mutex_init(&entry->change, NULL);
		(void)pthread_mutex_init(&entry->uses_lock, NULL);
		entry->chain = *chain_of(table, &entry->id);
		*chain_of(table, &entry->id) = entry;
		table->order[table->count++] = entry;
	}
	(void)pthread_rwlock_unlock(&table->lock);
	if (rc != 0) {
		free(entry);
		return rc;
	}
	*ret = entry;
	return 0;
}

void naos_table_publish(struct naos_table *table, struct naos_entry *entry, struct naos_object *object)
{
	(void)pthread_rwlock_wrlock(&table->lock);
	struct naos_object *former = entry->object;
	entry->object = object;
	(void)pthread_rwlock_unlock(&table->lock);
	(void)naos_object_free(former);
}

void naos_table_each(struct naos_table *table, bool (*visit)(void *context, struct naos_entry *entry, struct naos_object *object),
		     void *context)
{
	(void)pthread_rwlock_rdlock(&table->lock);
	for (size_t i = 0; i < table->count; i++)
		if (table->order[i]->object && !visit(context, table->order[i], table->order[i]->object))
			break;
	(void)pthread_rwlock_unlock(&table->lock);
}

size_t naos_table_count(struct naos_table *table)
{
	(void)pthread_rwlock_rdlock(&table->lock);
	size_t count = table->count;
	(void)pthread_rwlock_unlock(&table->lock);
	return count;
}
