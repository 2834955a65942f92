/* Snapshots of managed objects, and how they are changed.  SPDX-License-Identifier: Apache-2.0 */
#include "keyd/object.h"

#include <string.h>

#include "kmip/attribute_store.h"

#define ABSENT INT64_MIN
#define ARENA_BYTES ((size_t)1 << 20)

struct naos_object *naos_object_keep(struct naos_object *object)
{
	(void)atomic_fetch_add_explicit(&object->references, 1, memory_order_relaxed);
	return object;
}

struct naos_object *naos_object_free(struct naos_object *object)
{
	int saved = errno;
	if (object && atomic_fetch_sub_explicit(&object->references, 1, memory_order_acq_rel) == 1) {
		(void)naos_kmip_arena_free(object->arena);
		free(object->encoded);
		free(object->core.kept);
		free(object);
	}
	errno = saved;
	return NULL;
}

enum naos_kmip_state naos_object_state(const struct naos_object *object, int64_t now)
{
	enum naos_kmip_state state = object->stored_state;
	if (state == NAOS_KMIP_STATE_PRE_ACTIVE && object->activation != ABSENT && object->activation <= now)
		state = NAOS_KMIP_STATE_ACTIVE;
	if (state == NAOS_KMIP_STATE_ACTIVE && object->deactivation != ABSENT && object->deactivation <= now)
		state = NAOS_KMIP_STATE_DEACTIVATED;
	return state;
}

int naos_edit_begin(const struct naos_object *object, struct naos_edit *ret, struct naos_error *err)
{
	struct naos_edit edit = { .count = 0 };
	int rc = naos_kmip_arena_create(ARENA_BYTES, &edit.arena, err);
	if (rc == 0) {
		edit.items = calloc(NAOS_KEYD_MAX_ATTRIBUTES, sizeof(*edit.items));
		if (!edit.items)
			rc = naos_error_set(err, NAOS_E_NOMEM, "no memory for attributes");
	}
	if (rc != 0) {
		naos_edit_clear(&edit);
		return rc;
	}
	if (object) {
		edit.core = object->core;
		for (size_t i = 0; i < object->attributes.count; i++)
			edit.items[edit.count++] = object->attributes.items[i];
	}
	*ret = edit;
	return 0;
}

void naos_edit_clear(struct naos_edit *edit)
{
	free(edit->items);
	edit->items = NULL;
	edit->arena = naos_kmip_arena_free(edit->arena);
}

static bool same_text(struct naos_kmip_text left, struct naos_kmip_text right)
{
	return left.bytes == right.bytes && (left.bytes == 0 || memcmp(left.data, right.data, left.bytes) == 0);
}

static bool is_named(const struct naos_kmip_attribute *attribute, uint32_t tag, struct naos_kmip_text name)
{
	return tag ? attribute->tag == tag : attribute->tag == 0 && same_text(attribute->name, name);
}

static int32_t index_of(const struct naos_kmip_attribute *attribute)
{
	return attribute->index.present ? attribute->index.value : 0;
}

struct naos_kmip_attribute *naos_edit_find(struct naos_edit *edit, uint32_t tag, struct naos_kmip_text name, int32_t index)
{
	for (size_t i = 0; i < edit->count; i++)
		if (is_named(&edit->items[i], tag, name) && (index < 0 || index_of(&edit->items[i]) == index))
			return &edit->items[i];
	return NULL;
}

int naos_edit_add(struct naos_edit *edit, const struct naos_kmip_attribute *attribute, struct naos_error *err)
{
	int32_t next = 0;
	if (edit->count >= NAOS_KEYD_MAX_ATTRIBUTES)
		return naos_error_set(err, NAOS_E_LIMIT, "an object has at most %d attributes", NAOS_KEYD_MAX_ATTRIBUTES);
	for (size_t i = 0; i < edit->count; i++)
		if (is_named(&edit->items[i], attribute->tag, attribute->name) && index_of(&edit->items[i]) >= next)
			next = index_of(&edit->items[i]) + 1;
	struct naos_kmip_attribute *added = &edit->items[edit->count++];
	*added = *attribute;
	added->index = (struct naos_kmip_integer){ .present = next > 0, .value = next };
	return 0;
}

int naos_edit_set(struct naos_edit *edit, const struct naos_kmip_attribute *attribute, struct naos_error *err)
{
	struct naos_kmip_attribute *present = naos_edit_find(edit, attribute->tag, attribute->name, -1);
	if (!present)
		return naos_edit_add(edit, attribute, err);
	present->value = attribute->value;
	return 0;
}

void naos_edit_remove(struct naos_edit *edit, const struct naos_kmip_attribute *attribute)
{
	size_t at = (size_t)(attribute - edit->items);
	memmove(&edit->items[at], &edit->items[at + 1], (edit->count - at - 1) * sizeof(*edit->items));
	edit->count--;
}

void naos_edit_drop(struct naos_edit *edit, uint32_t tag)
{
	const struct naos_kmip_attribute *attribute;
	while ((attribute = naos_edit_find(edit, tag, (struct naos_kmip_text){ 0 }, -1)))
		naos_edit_remove(edit, attribute);
}

const struct naos_kmip_attribute *naos_object_attribute(const struct naos_object *object, uint32_t tag, size_t nth)
{
	return naos_kmip_attributes_find(&object->attributes, tag, nth);
}

static int64_t date(const struct naos_object *object, uint32_t tag)
{
	const struct naos_kmip_attribute *attribute = naos_object_attribute(object, tag, 0);
	return attribute ? attribute->value.unix_s : ABSENT;
}

static uint32_t enumeration(const struct naos_object *object, uint32_t tag)
{
	const struct naos_kmip_attribute *attribute = naos_object_attribute(object, tag, 0);
	return attribute ? attribute->value.enumeration : 0;
}

static int32_t integer(const struct naos_object *object, uint32_t tag)
{
	const struct naos_kmip_attribute *attribute = naos_object_attribute(object, tag, 0);
	return attribute ? attribute->value.integer : 0;
}

static void take_out(struct naos_object *object)
{
	const struct naos_kmip_attribute *limits = naos_object_attribute(object, NAOS_KMIP_TAG_USAGE_LIMITS, 0);
	object->type = enumeration(object, NAOS_KMIP_TAG_OBJECT_TYPE);
	object->stored_state = enumeration(object, NAOS_KMIP_TAG_STATE);
	object->algorithm = enumeration(object, NAOS_KMIP_TAG_CRYPTOGRAPHIC_ALGORITHM);
	object->length_bits = integer(object, NAOS_KMIP_TAG_CRYPTOGRAPHIC_LENGTH);
	object->usage_mask = integer(object, NAOS_KMIP_TAG_CRYPTOGRAPHIC_USAGE_MASK);
	object->activation = date(object, NAOS_KMIP_TAG_ACTIVATION_DATE);
	object->process_start = date(object, NAOS_KMIP_TAG_PROCESS_START_DATE);
	object->protect_stop = date(object, NAOS_KMIP_TAG_PROTECT_STOP_DATE);
	object->deactivation = date(object, NAOS_KMIP_TAG_DEACTIVATION_DATE);
	object->limits = limits ? limits->value.usage_limits : NULL;
}

int naos_object_read(const struct naos_object_core *core, const uint8_t *encoded, size_t bytes, struct naos_object **ret,
		     struct naos_error *err)
{
	naos_autoobject struct naos_object *object = calloc(1, sizeof(*object));
	if (!object)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for an object");
	atomic_init(&object->references, 1);
	object->core = *core;
	object->core.kept = NULL;
	object->encoded = malloc(bytes ? bytes : 1);
	object->core.kept = core->kept ? malloc(core->kept_bytes) : NULL;
	if (!object->encoded || (core->kept && !object->core.kept))
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for an object");
	memcpy(object->encoded, encoded, bytes);
	if (core->kept)
		memcpy(object->core.kept, core->kept, core->kept_bytes);
	object->encoded_bytes = bytes;
	naos_uuid_format(&core->id, object->uid);
	int rc = naos_kmip_arena_create(ARENA_BYTES, &object->arena, err);
	if (rc == 0)
		rc = naos_kmip_attributes_read(object->encoded, bytes, object->arena, &object->attributes, err);
	if (rc != 0)
		return naos_error_prefix(err, rc, "object %s", object->uid);
	take_out(object);
	*ret = naos_steal(object);
	return 0;
}

int naos_object_make(const struct naos_edit *edit, struct naos_object **ret, struct naos_error *err)
{
	const struct naos_kmip_attributes attributes = { .items = edit->items, .count = edit->count, .enclosed = true };
	naos_autofree uint8_t *encoded = malloc(NAOS_KEYD_MAX_ATTRIBUTE_BYTES);
	if (!encoded)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for attributes");
	struct naos_cursor out = naos_cursor_writer(encoded, NAOS_KEYD_MAX_ATTRIBUTE_BYTES);
	int rc = naos_kmip_attributes_write(&attributes, &out, err);
	return rc ? rc : naos_object_read(&edit->core, encoded, out.position, ret, err);
}

struct naos_hsm_key naos_object_key(const struct naos_object *object)
{
	return (struct naos_hsm_key){ .resident = object->core.object_class == NAOS_CLASS_RESIDENT, .id = object->core.id,
				      .kept = object->core.kept, .kept_bytes = object->core.kept_bytes };
}
