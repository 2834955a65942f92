/* All objects of the key manager in memory: by identifier, in the order in which they were made.
 *
 * An entry lives as long as the table.  Its snapshot is replaced when a change is durable; changes of one object are made one
 * after the other (entry->change).  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_TABLE_H
#define NAOS_KEYD_TABLE_H

#include <pthread.h>

#include "keyd/store.h"

struct naos_approval {
	struct naos_approval *next;
	int64_t unix_s;
	char identity[NAOS_KEYD_MAX_IDENTITY_BYTES + 1];
};

struct naos_entry {
	struct naos_entry *chain;
	struct naos_uuid id;
	struct naos_object *object; /* under the table's lock; NULL: gone before anybody saw it */
	pthread_mutex_t change;     /* held from reading the snapshot to publishing the next one */
	struct naos_approval *approvals; /* under change */

	pthread_mutex_t uses_lock;
	uint64_t uses, uses_durable; /* uses so far; counted ahead in the database */
	bool rotating;
};

struct naos_table;

int naos_table_create(struct naos_table **ret, struct naos_error *err) naos_must_check;
struct naos_table *naos_table_free(struct naos_table *table);

/* NULL if there is none. */
struct naos_entry *naos_table_find(struct naos_table *table, const struct naos_uuid *id);
/* A reference to the newest snapshot; NULL if the entry is empty. */
struct naos_object *naos_table_snapshot(struct naos_table *table, struct naos_entry *entry);
/* Whether the object with this identifier has Usage Limits. */
bool naos_table_has_limits(struct naos_table *table, struct naos_kmip_text id);
/* Puts a new object in; the table takes the reference.  NAOS_E_LIMIT. */
int naos_table_add(struct naos_table *table, struct naos_object *object, struct naos_entry **ret,
		   struct naos_error *err) naos_must_check;
/* Replaces the snapshot; the table takes the reference (NULL: the object is gone). */
void naos_table_publish(struct naos_table *table, struct naos_entry *entry, struct naos_object *object);

/* Calls visit for each object, oldest first, with the table locked for reading; false ends it. */
void naos_table_each(struct naos_table *table, bool (*visit)(void *context, struct naos_entry *entry, struct naos_object *object),
		     void *context);
size_t naos_table_count(struct naos_table *table);

#endif
