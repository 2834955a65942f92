/* Get and Check.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "keyd/call.h"
#include "kmip/ttlv.h"

#define MASK_WRAP 0x10

/* What of an object's state and class forbids to hand out its value. */
static int check_release(struct naos_call *call, const struct naos_object *object, bool wrapped)
{
	const struct naos_kmip_attribute *extractable = naos_object_attribute(object, NAOS_KMIP_TAG_EXTRACTABLE, 0);
	const struct naos_kmip_attribute *sensitive = naos_object_attribute(object, NAOS_KMIP_TAG_SENSITIVE, 0);
	if (naos_object_state(object, call->now) >= NAOS_KMIP_STATE_DESTROYED)
		return naos_call_refuse(call, NAOS_KMIP_REASON_OBJECT_DESTROYED, "the object is destroyed");
	if (object->core.object_class == NAOS_CLASS_RESIDENT || (extractable && !extractable->value.boolean))
		return naos_call_refuse(call, NAOS_KMIP_REASON_NOT_EXTRACTABLE,
					"this key does not leave the HSM: let it encrypt and decrypt");
	if (sensitive && sensitive->value.boolean && !wrapped)
		return naos_call_refuse(call, NAOS_KMIP_REASON_SENSITIVE, "this object is given out wrapped only");
	return 0;
}

static int check_format(struct naos_call *call, const struct naos_object *object, const struct naos_kmip_get_request *request)
{
	bool key = object->type == NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY;
	if (request->key_compression_type)
		return naos_call_refuse(call, NAOS_KMIP_REASON_KEY_COMPRESSION_TYPE_NOT_SUPPORTED, "keys are not compressed here");
	if (request->key_format_type && request->key_format_type != object->core.format &&
	    !(key && request->key_format_type == NAOS_KMIP_KEY_FORMAT_TRANSPARENT_SYMMETRIC_KEY))
		return naos_call_refuse(call, NAOS_KMIP_REASON_KEY_FORMAT_TYPE_NOT_SUPPORTED, "the object has no such key format");
	return 0;
}

/* The wrapping key of the request, which must be one that may wrap. */
static int wrapping_key(struct naos_call *call, const struct naos_kmip_key_wrapping_specification *wrapping, struct naos_object **ret)
{
	const struct naos_kmip_key_information *information = wrapping->encryption_key;
	const struct naos_kmip_cryptographic_parameters *parameters;
	int rc;
	if (wrapping->wrapping_method != NAOS_KMIP_WRAPPING_METHOD_ENCRYPT || !information || wrapping->mac_signature_key)
		return naos_call_refuse(call, NAOS_KMIP_REASON_FEATURE_NOT_SUPPORTED, "keys are wrapped by encryption only");
	if (wrapping->attributes.count > 0)
		return naos_call_refuse(call, NAOS_KMIP_REASON_FEATURE_NOT_SUPPORTED, "attributes are not wrapped along");
	rc = naos_call_object(call, information->unique_identifier, NAOS_RIGHT_GET, NULL, ret);
	if (rc != 0)
		return rc;
	const struct naos_kmip_attribute *attribute = naos_object_attribute(*ret, NAOS_KMIP_TAG_CRYPTOGRAPHIC_PARAMETERS, 0);
	parameters = information->cryptographic_parameters ? information->cryptographic_parameters :
		     attribute				   ? attribute->value.cryptographic_parameters : NULL;
	if (parameters && parameters->block_cipher_mode && parameters->block_cipher_mode != NAOS_KMIP_MODE_NIST_KEY_WRAP)
		return naos_call_refuse(call, NAOS_KMIP_REASON_UNSUPPORTED_CRYPTOGRAPHIC_PARAMETERS,
					"keys are wrapped by NIST Key Wrap (RFC 3394)");
	if ((*ret)->core.object_class == NAOS_CLASS_RESIDENT || (*ret)->type != NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY ||
	    (*ret)->algorithm != NAOS_KMIP_ALGORITHM_AES || !((*ret)->usage_mask & MASK_WRAP))
		return naos_call_refuse(call, NAOS_KMIP_REASON_INCOMPATIBLE_CRYPTOGRAPHIC_USAGE_MASK,
					"the wrapping key is no exportable AES key with the usage Wrap Key");
	if (naos_object_state(*ret, call->now) != NAOS_KMIP_STATE_ACTIVE)
		return naos_call_refuse(call, NAOS_KMIP_REASON_WRONG_KEY_LIFECYCLE_STATE, "the wrapping key is not active");
	return 0;
}

/* RFC 3394 over the key bytes, or over their Key Value structure as the encoding option says. */
static int wrap(struct naos_call *call, const struct naos_object *key, const struct naos_kmip_key_wrapping_specification *wrapping,
		struct naos_secret *value, struct naos_kmip_bytes *ret)
{
	naos_autosecret struct naos_secret *encoded = NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_hsm_crypt item = { .key = naos_object_key(key),
				       .encrypt = true,
				       .mode = NAOS_HSM_KEY_WRAP,
				       .in = naos_secret_view(value),
				       .in_bytes = naos_secret_bytes(value) };
	if (wrapping->encoding_option != NAOS_KMIP_ENCODING_OPTION_NO_ENCODING) { /* the default is TTLV */
		int rc = naos_secret_create(naos_secret_bytes(value) + 32, &encoded, &err);
		if (rc != 0)
			return naos_call_fail(call, rc, &err);
		struct naos_cursor out = naos_cursor_writer(naos_secret_data(encoded), naos_secret_bytes(encoded));
		size_t mark = naos_kmip_open(&out, NAOS_KMIP_TAG_KEY_VALUE);
		naos_kmip_put_bytes(&out, NAOS_KMIP_TAG_KEY_MATERIAL, naos_kmip_bytes(naos_secret_view(value), naos_secret_bytes(value)));
		naos_kmip_close(&out, mark);
		item.in = naos_secret_view(encoded);
		item.in_bytes = out.position;
	}
	item.out = naos_call_take(call, 1, item.in_bytes + NAOS_HSM_GROWTH_BYTES);
	if (!item.out)
		return -1;
	int rc = naos_hsm_crypt(call->keyd->hsm, &item, 1, &err);
	if (rc != 0)
		return naos_call_fail(call, rc, &err);
	*ret = naos_kmip_bytes(item.out, item.out_bytes);
	return 0;
}

struct get_answer {
	struct naos_kmip_key_value value;
	struct naos_kmip_transparent_key transparent;
	struct naos_kmip_key_block block;
	struct naos_kmip_key key;
	struct naos_kmip_secret_data secret_data;
	struct naos_kmip_opaque_object opaque;
	struct naos_kmip_key_wrapping_data wrapping;
	struct naos_kmip_key_information information;
};

static int fill_answer(struct naos_call *call, const struct naos_object *object, const struct naos_kmip_get_request *request,
		       const struct naos_object *wrapping_object, struct naos_secret *value, struct naos_kmip_get_response *out)
{
	struct get_answer *a = naos_call_take(call, 1, sizeof(*a));
	struct naos_kmip_bytes bytes = naos_kmip_bytes(naos_secret_view(value), naos_secret_bytes(value));
	if (!a)
		return -1;
	a->block = (struct naos_kmip_key_block){ .format = object->core.format,
						 .value = &a->value,
						 .cryptographic_algorithm = object->algorithm };
	if (object->length_bits)
		a->block.cryptographic_length = naos_kmip_integer(object->length_bits);
	if (wrapping_object) {
		struct naos_kmip_bytes wrapped;
		if (wrap(call, wrapping_object, request->wrapping, value, &wrapped) != 0)
			return -1;
		if (request->wrapping->encoding_option == NAOS_KMIP_ENCODING_OPTION_NO_ENCODING) {
			a->value.material = wrapped; /* only the key bytes are wrapped: the structure around them stays */
		} else {
			a->block.wrapped = wrapped;
			a->block.value = NULL;
		}
		a->information = *request->wrapping->encryption_key;
		a->information.unique_identifier = naos_kmip_text(wrapping_object->uid);
		a->wrapping = (struct naos_kmip_key_wrapping_data){ .wrapping_method = NAOS_KMIP_WRAPPING_METHOD_ENCRYPT,
								    .encryption_key = &a->information };
		if (call->version >= NAOS_KMIP_1_1)
			a->wrapping.encoding_option = request->wrapping->encoding_option;
		a->block.wrapping = &a->wrapping;
	} else if (request->key_format_type == NAOS_KMIP_KEY_FORMAT_TRANSPARENT_SYMMETRIC_KEY) {
		a->block.format = request->key_format_type;
		a->transparent.key = bytes;
		a->value.transparent = &a->transparent;
	} else {
		a->value.material = bytes;
	}
	a->key.block = &a->block;
	a->secret_data = (struct naos_kmip_secret_data){ .type = object->core.subtype, .block = &a->block };
	a->opaque = (struct naos_kmip_opaque_object){ .type = object->core.subtype, .value = bytes };
	out->object_type = object->type;
	out->unique_identifier = naos_kmip_text(object->uid);
	if (object->type == NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY)
		out->object.symmetric_key = &a->key;
	else if (object->type == NAOS_KMIP_OBJECT_TYPE_SECRET_DATA)
		out->object.secret_data = &a->secret_data;
	else
		out->object.opaque_object = &a->opaque;
	return 0;
}

/* Fresh until its value was given out the first time. */
static int mark_used(struct naos_call *call, struct naos_entry *entry)
{
	const struct naos_kmip_attribute stale = naos_kmip_attribute_boolean(NAOS_KMIP_TAG_FRESH, false);
	struct naos_error err = NAOS_ERROR_INIT;
	(void)pthread_mutex_lock(&entry->change);
	naos_autoobject struct naos_object *object = naos_table_snapshot(call->keyd->table, entry);
	const struct naos_kmip_attribute *fresh = object ? naos_object_attribute(object, NAOS_KMIP_TAG_FRESH, 0) : NULL;
	struct naos_edit edit = { .count = 0 };
	int rc = 0;
	if (fresh && fresh->value.boolean) {
		rc = naos_edit_begin(object, &edit, &err);
		if (rc == 0)
			rc = naos_edit_set(&edit, &stale, &err);
		rc = rc ? naos_call_fail(call, rc, &err) : naos_call_commit(call, entry, &edit);
	}
	naos_call_end_change(entry, &edit);
	return rc;
}

NAOS_OPERATION(get)
{
	const struct naos_kmip_get_request *request = &in->get;
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_secret *value = NULL;
	struct naos_object *object, *wrapping = NULL;
	struct naos_entry *entry;
	int rc = naos_call_object(call, request->unique_identifier, NAOS_RIGHT_GET, &entry, &object);
	if (rc == 0)
		rc = check_release(call, object, request->wrapping != NULL);
	if (rc == 0)
		rc = check_format(call, object, request);
	if (rc == 0 && request->wrapping)
		rc = wrapping_key(call, request->wrapping, &wrapping);
	if (rc != 0)
		return rc;
	(void)snprintf(call->audit_object, sizeof(call->audit_object), "%s", object->uid);
	const struct naos_hsm_key key = naos_object_key(object);
	rc = naos_hsm_release(call->keyd->hsm, &key, &value, &err);
	if (rc != 0)
		return naos_call_fail(call, rc, &err);
	rc = naos_call_own_secret(call, value);
	if (rc == 0)
		rc = mark_used(call, entry);
	return rc ? rc : fill_answer(call, object, request, wrapping, value, &out->get);
}

NAOS_OPERATION(check)
{
	const struct naos_kmip_check *request = &in->check;
	struct naos_object *object;
	int rc = naos_call_object(call, request->unique_identifier, NAOS_RIGHT_CHECK, NULL, &object);
	if (rc != 0)
		return rc;
	out->check.unique_identifier = naos_kmip_text(object->uid);
	if (request->cryptographic_usage_mask.present && (request->cryptographic_usage_mask.value & ~object->usage_mask))
		out->check.cryptographic_usage_mask = naos_kmip_integer(object->usage_mask);
	if (request->lease_time.present && request->lease_time.seconds > NAOS_KEYD_LEASE_S)
		out->check.lease_time = naos_kmip_interval(NAOS_KEYD_LEASE_S);
	if (request->usage_limits_count.present && object->limits) {
		int64_t left = object->limits->count.present ? object->limits->count.value : object->limits->total.value;
		if (request->usage_limits_count.value > left)
			out->check.usage_limits_count = naos_kmip_long(left);
	}
	return 0;
}
