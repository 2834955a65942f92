/* A thread that looks after what is half done.  SPDX-License-Identifier: Apache-2.0 */
#include "keyd/tend.h"

#include <time.h>

#define LOOK_S 2

struct pending {
	struct naos_entry **items;
	size_t count, room;
};

static bool visit(void *context, struct naos_entry *entry, struct naos_object *object)
{
	struct pending *pending = context;
	if (object->core.phase == NAOS_OBJECT_SETTLED)
		return true;
	if (pending->count == pending->room) {
		size_t room = pending->room ? 2 * pending->room : 16;
		struct naos_entry **grown = reallocarray(pending->items, room, sizeof(*grown));
		if (!grown)
			return false; /* the rest is found at the next look */
		pending->items = grown;
		pending->room = room;
	}
	pending->items[pending->count++] = entry;
	return true;
}

static int drop_creation(struct naos_keyd *keyd, struct naos_entry *entry, struct naos_error *err)
{
	const struct naos_change gone = { .kind = NAOS_CHANGE_DELETE, .id = entry->id };
	int rc = naos_hsm_destroy(keyd->hsm, &entry->id, err);
	if (rc == 0)
		rc = naos_keyd_store_commit(keyd->store, &gone, 1, err);
	if (rc == 0)
		naos_table_publish(keyd->table, entry, NULL);
	return rc;
}

/* A destruction that was told as failed is recorded as done. */
static int end_destruction(struct naos_keyd *keyd, struct naos_entry *entry, const char *uid, struct naos_error *err)
{
	const struct naos_audit_event event = { .actor = "naos-keyd", .action = "key.destroy", .object = uid, .decision = "allowed",
						.reason = "ended after it was begun" };
	int rc = naos_destroy_settle(keyd, entry, err);
	return rc ? rc : naos_audit_append(keyd->audit, &event, err);
}

static int settle(struct naos_keyd *keyd, struct naos_entry *entry, struct naos_error *err)
{
	(void)pthread_mutex_lock(&entry->change);
	naos_autoobject struct naos_object *object = naos_table_snapshot(keyd->table, entry);
	int rc = 0;
	if (object && object->core.phase == NAOS_OBJECT_CREATING) /* of a former life: one that is being made is in no table yet */
		rc = drop_creation(keyd, entry, err);
	else if (object && object->core.phase == NAOS_OBJECT_DESTROYING)
		rc = end_destruction(keyd, entry, object->uid, err);
	(void)pthread_mutex_unlock(&entry->change);
	return rc;
}

int naos_tend_once(struct naos_keyd *keyd, size_t *ret_left, struct naos_error *err)
{
	struct pending pending = { .count = 0 };
	size_t left = 0;
	int rc = 0;
	naos_table_each(keyd->table, visit, &pending);
	for (size_t i = 0; rc == 0 && i < pending.count; i++) {
		rc = settle(keyd, pending.items[i], err);
		left += rc != 0;
		if (rc == NAOS_E_KEYMANAGER)
			rc = 0;
	}
	free(pending.items);
	*ret_left = left;
	return rc;
}

static void *tend(void *argument)
{
	struct naos_keyd *keyd = argument;
	(void)pthread_mutex_lock(&keyd->tending.lock);
	while (!keyd->tending.ended) {
		struct timespec until;
		(void)clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += LOOK_S;
		(void)pthread_cond_timedwait(&keyd->tending.wake, &keyd->tending.lock, &until);
		if (keyd->tending.ended || !atomic_exchange(&keyd->unsettled, false))
			continue;
		(void)pthread_mutex_unlock(&keyd->tending.lock);
		size_t left = 0;
		int rc = naos_tend_once(keyd, &left, NULL);
		if (rc != 0 || left > 0)
			atomic_store(&keyd->unsettled, true);
		(void)pthread_mutex_lock(&keyd->tending.lock);
	}
	(void)pthread_mutex_unlock(&keyd->tending.lock);
	return NULL;
}

int naos_tend_start(struct naos_keyd *keyd, struct naos_error *err)
{
	if (pthread_create(&keyd->tending.thread, NULL, tend, keyd) != 0)
		return naos_error_set(err, NAOS_E_NOMEM, "cannot start the thread that ends what is half done");
	keyd->tending.running = true;
	return 0;
}

void naos_tend_stop(struct naos_keyd *keyd)
{
	if (!keyd->tending.running)
		return;
	(void)pthread_mutex_lock(&keyd->tending.lock);
	keyd->tending.ended = true;
	(void)pthread_cond_signal(&keyd->tending.wake);
	(void)pthread_mutex_unlock(&keyd->tending.lock);
	(void)pthread_join(keyd->tending.thread, NULL);
	keyd->tending.running = false;
}
