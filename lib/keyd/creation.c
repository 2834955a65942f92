/* Making objects: Create, Register, ReKey.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "keyd/call.h"

/* Keys that can be made or taken: bits allowed are from `least` to `most` in steps. */
static const struct {
	enum naos_kmip_cryptographic_algorithm algorithm;
	int32_t least, most, step;
} algorithms[] = {
	{ NAOS_KMIP_ALGORITHM_AES, 128, 256, 64 },
	{ NAOS_KMIP_ALGORITHM_TRIPLE_DES, 64, 192, 8 },
	{ NAOS_KMIP_ALGORITHM_HMAC_SHA1, 80, 4096, 8 },
	{ NAOS_KMIP_ALGORITHM_HMAC_SHA224, 112, 4096, 8 },
	{ NAOS_KMIP_ALGORITHM_HMAC_SHA256, 128, 4096, 8 },
	{ NAOS_KMIP_ALGORITHM_HMAC_SHA384, 192, 4096, 8 },
	{ NAOS_KMIP_ALGORITHM_HMAC_SHA512, 256, 4096, 8 },
};

static int32_t integer_of(struct naos_edit *edit, uint32_t tag)
{
	const struct naos_kmip_attribute *attribute = naos_edit_find(edit, tag, (struct naos_kmip_text){ 0 }, -1);
	return attribute ? attribute->value.integer : 0;
}

static uint32_t enumeration_of(struct naos_edit *edit, uint32_t tag)
{
	return (uint32_t)integer_of(edit, tag); /* the same bits of the union */
}

static bool boolean_of(struct naos_edit *edit, uint32_t tag, bool fallback)
{
	const struct naos_kmip_attribute *attribute = naos_edit_find(edit, tag, (struct naos_kmip_text){ 0 }, -1);
	return attribute ? attribute->value.boolean : fallback;
}

/* Bytes of a key of this length; DES counts no parity bits in its length, or does. */
size_t naos_key_bytes(uint32_t algorithm, int32_t bits)
{
	return algorithm == NAOS_KMIP_ALGORITHM_TRIPLE_DES && bits % 56 == 0 ? (size_t)bits / 7 : (size_t)bits / 8;
}

static int check_key(struct naos_call *call, struct naos_edit *edit)
{
	uint32_t algorithm = enumeration_of(edit, NAOS_KMIP_TAG_CRYPTOGRAPHIC_ALGORITHM);
	int32_t bits = integer_of(edit, NAOS_KMIP_TAG_CRYPTOGRAPHIC_LENGTH);
	if (algorithm == 0 || bits == 0)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "a key needs Cryptographic Algorithm and Cryptographic Length");
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(algorithms); i++)
		if (algorithms[i].algorithm == algorithm && bits >= algorithms[i].least && bits <= algorithms[i].most &&
		    bits % algorithms[i].step == 0)
			return 0;
	return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "this algorithm, or this length of it, is not supported");
}

/* No other object of the owner bears these names: from now on none can get them. */
int naos_call_claim_names(struct naos_call *call, const struct naos_edit *edit, const struct naos_uuid *from)
{
	struct naos_error err = NAOS_ERROR_INIT;
	int rc = naos_names_claim(call->keyd->names, edit->core.owner, edit->items, edit->count, &edit->core.id, from, &err);
	if (rc == NAOS_E_EXISTS)
		return naos_call_refuse(call, NAOS_KMIP_REASON_NON_UNIQUE_NAME_ATTRIBUTE, "%s", err.message);
	return rc ? naos_call_fail(call, rc, &err) : 0;
}

/* A creation is over: the names are the new object's, or free again. */
static void settle_names(struct naos_call *call, const struct naos_creation *creation, const struct naos_edit *edit,
			 const struct naos_object *replaced, int rc)
{
	struct naos_names *names = call->keyd->names;
	const char *owner = edit->core.owner;
	if (rc != 0)
		naos_names_release(names, owner, edit->items, edit->count, NULL, 0, &edit->core.id);
	if (rc != 0 || !creation->replaced)
		return;
	naos_names_move(names, owner, edit->items, edit->count, &edit->core.id, &creation->replaced->id);
	naos_names_release(names, owner, replaced->attributes.items, replaced->attributes.count, NULL, 0, &creation->replaced->id);
}

struct quota {
	const char *owner;
	uint64_t count;
};

static bool visit_owned(void *context, struct naos_entry *entry, struct naos_object *object)
{
	struct quota *quota = context;
	(void)entry;
	quota->count += object->stored_state < NAOS_KMIP_STATE_DESTROYED && strcmp(object->core.owner, quota->owner) == 0;
	return true;
}

static int check_quota(struct naos_call *call)
{
	struct quota quota = { .owner = call->peer->identity };
	if (call->allowance.max_objects == 0)
		return 0;
	naos_table_each(call->keyd->table, visit_owned, &quota);
	if (quota.count < call->allowance.max_objects)
		return 0;
	return naos_call_refuse(call, NAOS_KMIP_REASON_PERMISSION_DENIED, "your role allows %llu objects, and you have as many",
				(unsigned long long)call->allowance.max_objects);
}

/* What the server says of a new object. */
static int add_server_attributes(struct naos_call *call, const struct naos_creation *creation, struct naos_edit *edit,
				 const char *uid)
{
	struct naos_error err = NAOS_ERROR_INIT;
	bool resident = creation->object_class == NAOS_CLASS_RESIDENT;
	bool sensitive = boolean_of(edit, NAOS_KMIP_TAG_SENSITIVE, resident),
	     extractable = boolean_of(edit, NAOS_KMIP_TAG_EXTRACTABLE, !resident);
	const struct naos_kmip_attribute lease = { .tag = NAOS_KMIP_TAG_LEASE_TIME,
						   .value = { .type = NAOS_KMIP_TYPE_INTERVAL, .seconds = NAOS_KEYD_LEASE_S } };
	const struct naos_kmip_attribute fixed[] = {
		naos_kmip_attribute_text(NAOS_KMIP_TAG_UNIQUE_IDENTIFIER, naos_kmip_text(uid)),
		naos_kmip_attribute_enum(NAOS_KMIP_TAG_OBJECT_TYPE, creation->type),
		naos_kmip_attribute_enum(NAOS_KMIP_TAG_STATE, NAOS_KMIP_STATE_PRE_ACTIVE),
		naos_kmip_attribute_date(NAOS_KMIP_TAG_INITIAL_DATE, call->now),
		naos_kmip_attribute_date(NAOS_KMIP_TAG_LAST_CHANGE_DATE, call->now),
		naos_kmip_attribute_date(NAOS_KMIP_TAG_ORIGINAL_CREATION_DATE, call->now),
		lease,
		naos_kmip_attribute_boolean(NAOS_KMIP_TAG_FRESH, true),
		naos_kmip_attribute_boolean(NAOS_KMIP_TAG_SENSITIVE, sensitive || resident),
		naos_kmip_attribute_boolean(NAOS_KMIP_TAG_ALWAYS_SENSITIVE, sensitive || resident),
		naos_kmip_attribute_boolean(NAOS_KMIP_TAG_EXTRACTABLE, extractable && !resident),
		naos_kmip_attribute_boolean(NAOS_KMIP_TAG_NEVER_EXTRACTABLE, !(extractable && !resident)),
	};
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(fixed); i++) {
		int rc = naos_edit_set(edit, &fixed[i], &err);
		if (rc != 0)
			return naos_call_fail(call, rc, &err);
	}
	if (creation->fresh_bytes > 0) {
		struct naos_kmip_rng_parameters *rng = naos_kmip_arena_take(edit->arena, 1, sizeof(*rng));
		if (!rng)
			return naos_call_refuse(call, NAOS_KMIP_REASON_GENERAL_FAILURE, "out of memory");
		rng->rng_algorithm = NAOS_KMIP_RNG_ALGORITHM_UNSPECIFIED;
		struct naos_kmip_attribute attribute = naos_kmip_attribute_structure(NAOS_KMIP_TAG_RANDOM_NUMBER_GENERATOR, rng);
		int rc = naos_edit_set(edit, &attribute, &err);
		if (rc != 0)
			return naos_call_fail(call, rc, &err);
	}
	return 0;
}

/* SHA-256 of the value, of what may leave the HSM anyway. */
static int add_digest(struct naos_call *call, const struct naos_creation *creation, struct naos_edit *edit)
{
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_kmip_digest *digest = naos_kmip_arena_take(edit->arena, 1, sizeof(*digest));
	uint8_t *value = naos_kmip_arena_take(edit->arena, 1, 32);
	if (!digest || !value)
		return naos_call_refuse(call, NAOS_KMIP_REASON_GENERAL_FAILURE, "out of memory");
	const struct naos_hsm_key key = { .id = edit->core.id, .kept = edit->core.kept, .kept_bytes = edit->core.kept_bytes };
	int rc = naos_hsm_digest(call->keyd->hsm, &key, value, &err);
	*digest = (struct naos_kmip_digest){ .hashing_algorithm = NAOS_KMIP_HASH_SHA_256, .value = naos_kmip_bytes(value, 32),
					     .key_format_type = creation->format };
	struct naos_kmip_attribute attribute = naos_kmip_attribute_structure(NAOS_KMIP_TAG_DIGEST, digest);
	if (rc == 0)
		rc = naos_edit_set(edit, &attribute, &err);
	return rc ? naos_call_fail(call, rc, &err) : 0;
}

/* The row of the finished object, and of the one that it replaces, durable; then both are seen. */
static int settle(struct naos_call *call, struct naos_creation *creation, const struct naos_edit *edit, struct naos_entry **ret_entry)
{
	naos_autoobject struct naos_object *object = NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	int rc = naos_object_make(edit, &object, &err);
	const struct naos_change changes[] = { { .kind = NAOS_CHANGE_OBJECT, .object = object },
					       { .kind = NAOS_CHANGE_OBJECT, .object = creation->relieved } };
	if (rc == 0)
		rc = naos_keyd_store_commit(call->keyd->store, changes, creation->relieved ? 2 : 1, &err);
	if (rc == 0)
		rc = naos_table_add(call->keyd->table, object, ret_entry, &err);
	if (rc != 0)
		return naos_call_fail(call, rc, &err);
	(void)naos_steal(object); /* the table's */
	if (creation->relieved)
		naos_table_publish(call->keyd->table, creation->replaced, naos_steal(creation->relieved));
	return 0;
}

/* A key in the token: the row is written first, so that a crash in between leaves nothing that nobody knows of. */
static int make_resident(struct naos_call *call, struct naos_creation *creation, struct naos_edit *edit, struct naos_entry **ret_entry)
{
	naos_autoobject struct naos_object *object = NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	edit->core.phase = NAOS_OBJECT_CREATING;
	int rc = naos_object_make(edit, &object, &err);
	struct naos_change change = { .kind = NAOS_CHANGE_OBJECT, .object = object, .id = edit->core.id };
	if (rc == 0)
		rc = naos_keyd_store_commit(call->keyd->store, &change, 1, &err);
	if (rc != 0)
		return naos_call_fail(call, rc, &err);
	rc = naos_hsm_create(call->keyd->hsm, &edit->core.id, &err);
	if (rc != 0) {
		/* what is left of it is cleared away now or at the next start */
		change.kind = NAOS_CHANGE_DELETE;
		if (naos_hsm_destroy(call->keyd->hsm, &edit->core.id, NULL) == 0 &&
		    naos_keyd_store_commit(call->keyd->store, &change, 1, NULL) != 0)
			call->audited = NULL; /* found by its phase at the next start */
		return naos_call_fail(call, rc, &err);
	}
	edit->core.phase = NAOS_OBJECT_SETTLED;
	return settle(call, creation, edit, ret_entry);
}

static int make_kept(struct naos_call *call, struct naos_creation *creation, struct naos_edit *edit, struct naos_entry **ret_entry)
{
	naos_autofree uint8_t *kept = NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	int rc = creation->value ? naos_hsm_keep(call->keyd->hsm, &edit->core.id, creation->value, &kept, &edit->core.kept_bytes, &err) :
				   naos_hsm_create_kept(call->keyd->hsm, &edit->core.id, creation->fresh_bytes, &kept, &edit->core.kept_bytes, &err);
	if (rc != 0)
		return naos_call_fail(call, rc, &err);
	edit->core.kept = kept;
	rc = add_digest(call, creation, edit);
	if (rc == 0)
		rc = settle(call, creation, edit, ret_entry);
	edit->core.kept = NULL;
	return rc;
}

int naos_creation_make(struct naos_call *call, struct naos_creation *creation, struct naos_edit *edit, struct naos_entry **ret_entry)
{
	naos_autoobject struct naos_object *replaced = creation->replaced ? naos_table_snapshot(call->keyd->table, creation->replaced) : NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	char uid[NAOS_UUID_TEXT_BYTES];
	int rc = creation->replaced ? 0 : naos_uuid_random(&edit->core.id, &err); /* a replacement has its identifier already */
	if (rc != 0)
		return naos_call_fail(call, rc, &err);
	edit->core.object_class = creation->object_class;
	edit->core.format = creation->format;
	edit->core.subtype = creation->subtype;
	(void)snprintf(edit->core.owner, sizeof(edit->core.owner), "%s", creation->owner ? creation->owner : call->peer->identity);
	naos_uuid_format(&edit->core.id, uid);
	rc = creation->replaced ? 0 : check_quota(call);
	if (rc != 0)
		return rc;
	rc = naos_call_claim_names(call, edit, creation->replaced ? &creation->replaced->id : NULL);
	if (rc == 0)
		rc = add_server_attributes(call, creation, edit, uid);
	if (rc == 0)
		rc = creation->object_class == NAOS_CLASS_RESIDENT ? make_resident(call, creation, edit, ret_entry)
								   : make_kept(call, creation, edit, ret_entry);
	settle_names(call, creation, edit, replaced, rc);
	if (rc == 0) {
		(void)snprintf(call->placeholder, sizeof(call->placeholder), "%s", uid);
		(void)snprintf(call->audit_object, sizeof(call->audit_object), "%s", uid);
	}
	return rc;
}

static int answer_uid(struct naos_call *call, struct naos_kmip_text *ret)
{
	char *uid = naos_call_take(call, 1, NAOS_UUID_TEXT_BYTES);
	if (!uid)
		return -1;
	memcpy(uid, call->placeholder, NAOS_UUID_TEXT_BYTES);
	*ret = naos_kmip_text(uid);
	return 0;
}

/* Resident where the role may; exportable where it must be, or where both are allowed and Extractable says so. */
static int choose_class(struct naos_call *call, struct naos_edit *edit, enum naos_object_class *ret)
{
	bool wanted = boolean_of(edit, NAOS_KMIP_TAG_EXTRACTABLE, false);
	if (call->allowance.exportable && (wanted || !call->allowance.resident)) {
		*ret = NAOS_CLASS_EXPORTABLE;
		return 0;
	}
	if (wanted)
		return naos_call_refuse(call, NAOS_KMIP_REASON_PERMISSION_DENIED,
					"your role makes keys that stay in the HSM, not extractable ones");
	if (enumeration_of(edit, NAOS_KMIP_TAG_CRYPTOGRAPHIC_ALGORITHM) != NAOS_KMIP_ALGORITHM_AES ||
	    integer_of(edit, NAOS_KMIP_TAG_CRYPTOGRAPHIC_LENGTH) != 256)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "keys that stay in the HSM are AES keys of 256 bits");
	*ret = NAOS_CLASS_RESIDENT;
	return 0;
}

NAOS_OPERATION(create)
{
	const struct naos_kmip_create_request *request = &in->create;
	struct naos_creation creation = { .type = request->object_type, .format = NAOS_KMIP_KEY_FORMAT_RAW };
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_entry *entry;
	naos_autoedit edit = { .count = 0 };
	if (naos_call_allowed(call, NAOS_RIGHT_CREATE) != 0)
		return -1;
	if (request->object_type != NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD,
					"only symmetric keys are created here; others can be registered");
	int rc = naos_edit_begin(NULL, &edit, &err);
	if (rc != 0)
		return naos_call_fail(call, rc, &err);
	rc = naos_attributes_apply(call, &edit, &request->attributes);
	if (rc == 0)
		rc = check_key(call, &edit);
	if (rc == 0 && !naos_edit_find(&edit, NAOS_KMIP_TAG_CRYPTOGRAPHIC_USAGE_MASK, (struct naos_kmip_text){ 0 }, -1))
		rc = naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "a key needs a Cryptographic Usage Mask");
	if (rc == 0)
		rc = choose_class(call, &edit, &creation.object_class);
	if (rc != 0)
		return rc;
	creation.fresh_bytes = naos_key_bytes(enumeration_of(&edit, NAOS_KMIP_TAG_CRYPTOGRAPHIC_ALGORITHM),
					 integer_of(&edit, NAOS_KMIP_TAG_CRYPTOGRAPHIC_LENGTH));
	rc = naos_creation_make(call, &creation, &edit, &entry);
	out->create.object_type = request->object_type;
	return rc ? rc : answer_uid(call, &out->create.unique_identifier);
}

/* Algorithm and length stand in the key block, the attributes or both; then they must agree. */
static int adopt_block(struct naos_call *call, struct naos_edit *edit, const struct naos_kmip_key_block *block, bool key,
		       size_t value_bytes)
{
	struct naos_error err = NAOS_ERROR_INIT;
	uint32_t algorithm = enumeration_of(edit, NAOS_KMIP_TAG_CRYPTOGRAPHIC_ALGORITHM);
	int32_t bits = integer_of(edit, NAOS_KMIP_TAG_CRYPTOGRAPHIC_LENGTH);
	if ((algorithm && block->cryptographic_algorithm && algorithm != block->cryptographic_algorithm) ||
	    (bits && block->cryptographic_length.present && bits != block->cryptographic_length.value))
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "key block and attributes differ in algorithm or length");
	int rc = 0;
	if (!algorithm && block->cryptographic_algorithm) {
		struct naos_kmip_attribute attribute =
		    naos_kmip_attribute_enum(NAOS_KMIP_TAG_CRYPTOGRAPHIC_ALGORITHM, block->cryptographic_algorithm);
		rc = naos_edit_add(edit, &attribute, &err);
	}
	if (rc == 0 && !bits && (key || block->cryptographic_length.present)) {
		struct naos_kmip_attribute attribute = naos_kmip_attribute_integer(
			NAOS_KMIP_TAG_CRYPTOGRAPHIC_LENGTH,
			block->cryptographic_length.present ? block->cryptographic_length.value : (int32_t)(8 * value_bytes));
		rc = naos_edit_add(edit, &attribute, &err);
	}
	return rc ? naos_call_fail(call, rc, &err) : 0;
}

/* The value of a registered object; not for what is wrapped or elsewhere. */
static int value_of(struct naos_call *call, const struct naos_kmip_object *object, struct naos_creation *creation,
		    struct naos_kmip_bytes *ret)
{
	const struct naos_kmip_key_block *block = naos_kmip_object_block(object);
	if (object->opaque_object) {
		creation->subtype = object->opaque_object->type;
		creation->format = NAOS_KMIP_KEY_FORMAT_OPAQUE;
		*ret = object->opaque_object->value;
	} else if (block) {
		if (object->secret_data)
			creation->subtype = object->secret_data->type;
		creation->format = block->format == NAOS_KMIP_KEY_FORMAT_TRANSPARENT_SYMMETRIC_KEY ? NAOS_KMIP_KEY_FORMAT_RAW : block->format;
		if (block->wrapping)
			return naos_call_refuse(call, NAOS_KMIP_REASON_FEATURE_NOT_SUPPORTED, "wrapped objects can't be registered here");
		if (block->format != NAOS_KMIP_KEY_FORMAT_RAW && block->format != NAOS_KMIP_KEY_FORMAT_OPAQUE &&
		    block->format != NAOS_KMIP_KEY_FORMAT_TRANSPARENT_SYMMETRIC_KEY)
			return naos_call_refuse(call, NAOS_KMIP_REASON_KEY_FORMAT_TYPE_NOT_SUPPORTED, "this key format is not supported");
		*ret = naos_kmip_block_material(block);
	}
	if (!ret->data || ret->bytes == 0 || ret->bytes > NAOS_HSM_MAX_VALUE_BYTES)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "the object has no value, or one longer than %zu bytes",
					NAOS_HSM_MAX_VALUE_BYTES);
	return 0;
}

static int register_value(struct naos_call *call, const struct naos_kmip_register_request *request, struct naos_creation *creation,
			  struct naos_kmip_bytes value, struct naos_edit *edit)
{
	const struct naos_kmip_key_block *block = naos_kmip_object_block(&request->object);
	naos_autosecret struct naos_secret *secret = NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_entry *entry;
	int rc = naos_attributes_apply(call, edit, &request->attributes);
	if (rc == 0 && block && block->value)
		rc = naos_attributes_apply(call, edit, &block->value->attributes);
	if (rc == 0 && block)
		rc = adopt_block(call, edit, block, creation->type == NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY, value.bytes);
	if (rc == 0 && creation->type == NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY) {
		rc = check_key(call, edit);
		if (rc == 0 && naos_key_bytes(enumeration_of(edit, NAOS_KMIP_TAG_CRYPTOGRAPHIC_ALGORITHM),
				 integer_of(edit, NAOS_KMIP_TAG_CRYPTOGRAPHIC_LENGTH)) != value.bytes)
			rc = naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "the key is not as long as Cryptographic Length says");
	}
	if (rc != 0)
		return rc;
	rc = naos_kmip_bytes_keep(value, &secret, &err);
	if (rc != 0)
		return naos_call_fail(call, rc, &err);
	creation->value = secret;
	rc = naos_creation_make(call, creation, edit, &entry);
	creation->value = NULL;
	return rc;
}

NAOS_OPERATION(register)
{
	const struct naos_kmip_register_request *request = &in->register_object;
	struct naos_creation creation = { .object_class = NAOS_CLASS_EXPORTABLE, .type = request->object_type };
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_kmip_bytes value = { 0 };
	naos_autoedit edit = { .count = 0 };
	if (naos_call_allowed(call, NAOS_RIGHT_REGISTER) != 0)
		return -1;
	if (!call->allowance.exportable)
		return naos_call_refuse(call, NAOS_KMIP_REASON_PERMISSION_DENIED,
					"your role makes keys inside the HSM; what was outside is not taken");
	if (request->object_type != NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY && request->object_type != NAOS_KMIP_OBJECT_TYPE_SECRET_DATA &&
	    request->object_type != NAOS_KMIP_OBJECT_TYPE_OPAQUE_DATA)
		return naos_call_refuse(call, NAOS_KMIP_REASON_FEATURE_NOT_SUPPORTED, "objects of this type are not kept here");
	if (naos_kmip_object_type(&request->object) != request->object_type)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "the object is not of the type that the request names");
	if (value_of(call, &request->object, &creation, &value) != 0)
		return -1;
	int rc = naos_edit_begin(NULL, &edit, &err);
	if (rc != 0)
		return naos_call_fail(call, rc, &err);
	rc = register_value(call, request, &creation, value, &edit);
	return rc ? rc : answer_uid(call, &out->register_object.unique_identifier);
}
