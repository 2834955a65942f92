/* The database of the key manager (docs/formats/keyd-database.md): SQLite behind this interface; PostgreSQL may come later.
 *
 * Everything is read once, at the start; from then on it is only written.  Changes are durable before the call returns; changes of
 * threads that come together are one transaction (the first becomes the leader and takes the others' along).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_STORE_H
#define NAOS_KEYD_STORE_H

#include "keyd/object.h"

struct naos_keyd_store;

enum naos_change_kind {
	NAOS_CHANGE_OBJECT = 1, /* the whole row of `object` */
	NAOS_CHANGE_USES,       /* of object `id` */
	NAOS_CHANGE_DELETE,     /* an object that was never acknowledged */
	NAOS_CHANGE_APPROVE,    /* `identity` approves the destruction of `id` */
	NAOS_CHANGE_UNAPPROVE,  /* all approvals of `id` are gone */
};

struct naos_change {
	enum naos_change_kind kind;
	const struct naos_object *object;
	struct naos_uuid id;
	uint64_t uses;
	const char *identity;
	int64_t unix_s;
};

struct naos_keyd_store_reader {
	void *context;
	int (*object)(void *context, const struct naos_object_core *core, const uint8_t *attributes, size_t bytes, uint64_t uses,
		      struct naos_error *err);
	int (*approval)(void *context, const struct naos_uuid *id, const char *identity, int64_t unix_s, struct naos_error *err);
};

/* Makes the file (mode 0600) if it is absent.  One key manager per database: NAOS_E_BUSY. */
int naos_keyd_store_open(const char *path, struct naos_keyd_store **ret, struct naos_error *err) naos_must_check;
struct naos_keyd_store *naos_keyd_store_close(struct naos_keyd_store *store);
int naos_keyd_store_read(struct naos_keyd_store *store, const struct naos_keyd_store_reader *reader,
			 struct naos_error *err) naos_must_check;
/* All of them or none, durable. */
int naos_keyd_store_commit(struct naos_keyd_store *store, const struct naos_change *changes, size_t count,
			   struct naos_error *err) naos_must_check;
/* False while the last change could not be made durable. */
bool naos_keyd_store_is_well(struct naos_keyd_store *store);

#endif
