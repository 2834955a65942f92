/* A managed object of the key manager: a snapshot that never changes.  A change makes a new snapshot from an edit, writes it to
 * the store and publishes it (table.h); readers keep the one they have.
 *
 * All attributes of KMIP stand in one list, encoded as the database has them; what rules ask often is taken out of it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_OBJECT_H
#define NAOS_KEYD_OBJECT_H

#include <stdatomic.h>

#include "base/secret.h"
#include "base/uuid.h"
#include "keyd/hsm.h"
#include "keyd/limits.h"
#include "kmip/arena.h"
#include "kmip/object.h"

enum naos_object_class { NAOS_CLASS_RESIDENT = 1, NAOS_CLASS_EXPORTABLE = 2 };

/* Where an object is in its life as the database sees it. */
enum naos_object_phase {
	NAOS_OBJECT_SETTLED = 0,
	NAOS_OBJECT_CREATING = 1,   /* written before the token has the key: seen by nobody */
	NAOS_OBJECT_DESTROYING = 2, /* its state is Destroyed; the token may have the key still */
};

/* What is not an attribute. */
struct naos_object_core {
	struct naos_uuid id;
	char owner[NAOS_KEYD_MAX_IDENTITY_BYTES + 1];
	enum naos_object_class object_class;
	enum naos_object_phase phase;
	uint8_t *kept; /* exportable: the wrapped value, NULL when destroyed */
	size_t kept_bytes;
	uint32_t format;  /* of the key block: enum naos_kmip_key_format_type */
	uint32_t subtype; /* secret data or opaque data type */
};

struct naos_object {
	atomic_uint references;
	struct naos_object_core core;
	char uid[NAOS_UUID_TEXT_BYTES];
	uint8_t *encoded; /* attributes as the database has them */
	size_t encoded_bytes;
	struct naos_kmip_arena *arena;
	struct naos_kmip_attributes attributes; /* points into encoded and arena */

	/* taken out of the attributes; dates are INT64_MIN where absent */
	enum naos_kmip_object_type type;
	enum naos_kmip_state stored_state;
	enum naos_kmip_cryptographic_algorithm algorithm;
	int32_t length_bits, usage_mask;
	int64_t activation, process_start, protect_stop, deactivation;
	const struct naos_kmip_usage_limits *limits; /* NULL: none */
};

struct naos_object *naos_object_keep(struct naos_object *object);
struct naos_object *naos_object_free(struct naos_object *object); /* one reference */

/* The state at a time: dates that have come change it (KMIP 3.22). */
enum naos_kmip_state naos_object_state(const struct naos_object *object, int64_t now);

/* A list of attributes being changed.  Values are borrowed until naos_object_make, or taken from the arena. */
struct naos_edit {
	struct naos_object_core core; /* kept is borrowed */
	struct naos_kmip_attribute *items;
	size_t count;
	struct naos_kmip_arena *arena;
};

/* From an object, or a new one (NULL). */
int naos_edit_begin(const struct naos_object *object, struct naos_edit *ret, struct naos_error *err) naos_must_check;
void naos_edit_clear(struct naos_edit *edit);
#define naos_autoedit naos_cleanup(naos_edit_clear) struct naos_edit

/* The attribute with this tag, or with this name where tag is 0, and this index (-1: the first); NULL if there is none. */
struct naos_kmip_attribute *naos_edit_find(struct naos_edit *edit, uint32_t tag, struct naos_kmip_text name, int32_t index);
/* Puts an instance behind the others, with the next index. */
int naos_edit_add(struct naos_edit *edit, const struct naos_kmip_attribute *attribute, struct naos_error *err) naos_must_check;
/* Puts the only instance. */
int naos_edit_set(struct naos_edit *edit, const struct naos_kmip_attribute *attribute, struct naos_error *err) naos_must_check;
void naos_edit_remove(struct naos_edit *edit, const struct naos_kmip_attribute *attribute);
/* All instances. */
void naos_edit_drop(struct naos_edit *edit, uint32_t tag);

/* The snapshot.  NAOS_E_LIMIT: too many or too long attributes. */
int naos_object_make(const struct naos_edit *edit, struct naos_object **ret, struct naos_error *err) naos_must_check;
/* The same from the database. */
int naos_object_read(const struct naos_object_core *core, const uint8_t *encoded, size_t bytes, struct naos_object **ret,
		     struct naos_error *err) naos_must_check;

/* The nth name, object group or other text, as a C string (NULL if there is none); valid as long as the object. */
const struct naos_kmip_attribute *naos_object_attribute(const struct naos_object *object, uint32_t tag, size_t nth);
struct naos_hsm_key naos_object_key(const struct naos_object *object);

static inline void naos_object_free_pointer(struct naos_object **object)
{
	*object = naos_object_free(*object);
}
#define naos_autoobject naos_cleanup(naos_object_free_pointer)

#endif
