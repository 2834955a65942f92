/* Encrypt and Decrypt.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <openssl/rand.h>

#include "keyd/call.h"

#define MASK_ENCRYPT 0x4
#define MASK_DECRYPT 0x8
#define TAG_BYTES 16

static enum naos_hsm_mode mode_of(const struct naos_kmip_cryptographic_parameters *parameters)
{
	bool padded = parameters->padding_method == NAOS_KMIP_PADDING_PKCS5;
	if (parameters->padding_method != 0 && parameters->padding_method != NAOS_KMIP_PADDING_NONE && !padded)
		return 0;
	switch (parameters->block_cipher_mode) {
	case NAOS_KMIP_MODE_GCM: return padded ? 0 : NAOS_HSM_GCM;
	case NAOS_KMIP_MODE_CTR: return padded ? 0 : NAOS_HSM_CTR;
	case NAOS_KMIP_MODE_CBC: return padded ? NAOS_HSM_CBC_PKCS5 : NAOS_HSM_CBC;
	case NAOS_KMIP_MODE_ECB: return padded ? NAOS_HSM_ECB_PKCS5 : NAOS_HSM_ECB;
	default: return 0;
	}
}

/* The states and dates in which a key may be used (KMIP 3.22, 3.25 to 3.27). */
static int check_state(struct naos_call *call, const struct naos_object *object, bool encrypt)
{
	enum naos_kmip_state state = naos_object_state(object, call->now);
	if (encrypt && state != NAOS_KMIP_STATE_ACTIVE)
		return naos_call_refuse(call, NAOS_KMIP_REASON_WRONG_KEY_LIFECYCLE_STATE, "only an active key encrypts");
	if (encrypt && object->protect_stop != INT64_MIN && call->now >= object->protect_stop)
		return naos_call_refuse(call, NAOS_KMIP_REASON_WRONG_KEY_LIFECYCLE_STATE, "the Protect Stop Date of the key is past");
	if (!encrypt && object->process_start != INT64_MIN && call->now < object->process_start)
		return naos_call_refuse(call, NAOS_KMIP_REASON_WRONG_KEY_LIFECYCLE_STATE, "the Process Start Date of the key has not come");
	if (encrypt || state == NAOS_KMIP_STATE_ACTIVE || state == NAOS_KMIP_STATE_DEACTIVATED)
		return 0;
	if (state == NAOS_KMIP_STATE_COMPROMISED && naos_roles_decrypt_compromised(call->roles, call->peer->identity, object))
		return 0;
	return naos_call_refuse(call, NAOS_KMIP_REASON_WRONG_KEY_LIFECYCLE_STATE,
				state == NAOS_KMIP_STATE_COMPROMISED ? "the key is compromised, and your role may not decrypt with such keys" :
								       "the state of the key does not allow decryption");
}

static int check_key(struct naos_call *call, const struct naos_object *object, bool encrypt)
{
	if (object->type != NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY || object->algorithm != NAOS_KMIP_ALGORITHM_AES)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "only AES keys encrypt and decrypt here");
	if (!(object->usage_mask & (encrypt ? MASK_ENCRYPT : MASK_DECRYPT)))
		return naos_call_refuse(call, NAOS_KMIP_REASON_INCOMPATIBLE_CRYPTOGRAPHIC_USAGE_MASK,
					"the Cryptographic Usage Mask of the key does not allow this");
	return check_state(call, object, encrypt);
}

/* Parameters: of the request, else of the key, else GCM. */
static int choose_mode(struct naos_call *call, const struct naos_object *object, struct naos_crypt_slot *slot, bool *ret_random_iv)
{
	const struct naos_kmip_attribute *attribute = naos_object_attribute(object, NAOS_KMIP_TAG_CRYPTOGRAPHIC_PARAMETERS, 0);
	const struct naos_kmip_cryptographic_parameters *parameters = slot->request->cryptographic_parameters;
	static const struct naos_kmip_cryptographic_parameters usual = { .block_cipher_mode = NAOS_KMIP_MODE_GCM };
	if (!parameters || (parameters->block_cipher_mode == 0 && attribute))
		parameters = attribute ? attribute->value.cryptographic_parameters : &usual;
	if (parameters->cryptographic_algorithm && parameters->cryptographic_algorithm != object->algorithm)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "the parameters name another algorithm than the key has");
	slot->item.mode = mode_of(parameters);
	if (slot->item.mode == 0)
		return naos_call_refuse(call, NAOS_KMIP_REASON_UNSUPPORTED_CRYPTOGRAPHIC_PARAMETERS,
					"this block cipher mode or padding is not supported: GCM, CBC, ECB and CTR are");
	int32_t tag = parameters->tag_length.present ? parameters->tag_length.value : TAG_BYTES;
	if (slot->item.mode == NAOS_HSM_GCM && tag != 4 && tag != 8 && (tag < 12 || tag > TAG_BYTES))
		return naos_call_refuse(call, NAOS_KMIP_REASON_GENERAL_FAILURE, "a GCM tag has 4, 8 or 12 to 16 bytes");
	slot->item.tag_bytes = slot->item.mode == NAOS_HSM_GCM ? (size_t)tag : 0;
	*ret_random_iv = parameters->random_iv.present && parameters->random_iv.value;
	return 0;
}

/* An identity that may encrypt but not decrypt (or the other way round) must not get the other by the back door: with an IV of its
 * own, GCM and CTR encrypt a ciphertext back to its plaintext, and single blocks of ECB or CBC are the key stream of both. */
static int check_separation(struct naos_call *call, const struct naos_object *object, const struct naos_crypt_slot *slot)
{
	uint32_t rights = naos_call_rights(call, object);
	bool may_encrypt = naos_has_right(rights, NAOS_RIGHT_ENCRYPT), may_decrypt = naos_has_right(rights, NAOS_RIGHT_DECRYPT);
	if (slot->encrypt && !may_decrypt && (slot->item.mode != NAOS_HSM_GCM || slot->request->iv_counter_nonce.data))
		return naos_call_refuse(call, NAOS_KMIP_REASON_PERMISSION_DENIED,
					"your role encrypts but does not decrypt: only GCM with an IV that the server makes is allowed");
	if (!slot->encrypt && !may_encrypt && slot->item.mode == NAOS_HSM_CTR)
		return naos_call_refuse(call, NAOS_KMIP_REASON_PERMISSION_DENIED,
					"your role decrypts but does not encrypt: CTR is not allowed");
	return 0;
}

static bool needs_iv(enum naos_hsm_mode mode)
{
	return mode != NAOS_HSM_ECB && mode != NAOS_HSM_ECB_PKCS5;
}

static int take_iv(struct naos_call *call, struct naos_crypt_slot *slot, bool random_iv)
{
	struct naos_kmip_bytes iv = slot->request->iv_counter_nonce;
	if (!needs_iv(slot->item.mode))
		return 0;
	if (!iv.data) {
		if (!slot->encrypt)
			return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_MESSAGE, "the IV of the ciphertext is missing");
		slot->iv_made = true;
		return 0;
	}
	if (slot->encrypt && random_iv)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "an IV is given, and the parameters ask for a random one");
	if (iv.bytes == 0 || iv.bytes > sizeof(slot->item.iv) || (slot->item.mode != NAOS_HSM_GCM && iv.bytes != 16))
		return naos_call_refuse(call, NAOS_KMIP_REASON_CRYPTOGRAPHIC_FAILURE, "the IV has a length that this mode does not take");
	memcpy(slot->item.iv, iv.data, iv.bytes);
	slot->item.iv_bytes = iv.bytes;
	return 0;
}

/* The tag has a field from 1.4 on; before, it is the end of the data. */
static int take_data(struct naos_call *call, struct naos_crypt_slot *slot)
{
	struct naos_kmip_bytes data = slot->request->data, tag = slot->request->tag;
	bool gcm = slot->item.mode == NAOS_HSM_GCM;
	slot->append_tag = gcm && call->version < NAOS_KMIP_1_4;
	if (!data.data)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "there are no data");
	if (gcm && !slot->encrypt) {
		if (!tag.data && data.bytes >= slot->item.tag_bytes) { /* some clients of 1.4 append it too */
			data.bytes -= slot->item.tag_bytes;
			tag = naos_kmip_bytes(data.data + data.bytes, slot->item.tag_bytes);
		}
		if (!tag.data || (tag.bytes != 4 && tag.bytes != 8 && (tag.bytes < 12 || tag.bytes > TAG_BYTES)))
			return naos_call_refuse(call, NAOS_KMIP_REASON_CRYPTOGRAPHIC_FAILURE, "the GCM tag is missing or has a wrong length");
		memcpy(slot->item.tag, tag.data, tag.bytes);
		slot->item.tag_bytes = tag.bytes;
	}
	if (data.bytes > NAOS_HSM_MAX_DATA_BYTES || slot->request->additional_data.bytes > NAOS_HSM_MAX_ASSOCIATED_BYTES)
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD, "at most %zu bytes at once", NAOS_HSM_MAX_DATA_BYTES);
	slot->item.in = data.data;
	slot->item.in_bytes = data.bytes;
	slot->item.associated = gcm ? slot->request->additional_data.data : NULL;
	slot->item.associated_bytes = gcm ? slot->request->additional_data.bytes : 0;
	return 0;
}

static int make_output(struct naos_call *call, struct naos_crypt_slot *slot)
{
	struct naos_secret *secret = NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	size_t bytes = slot->item.in_bytes + NAOS_HSM_GROWTH_BYTES;
	if (slot->encrypt) { /* a ciphertext is no secret */
		slot->item.out = naos_call_take(call, 1, bytes);
		return slot->item.out ? 0 : -1;
	}
	int rc = naos_secret_create(bytes, &secret, &err);
	if (rc != 0)
		return naos_call_fail(call, rc, &err);
	slot->item.out = naos_secret_data(secret);
	return naos_call_own_secret(call, secret);
}

/* A new stream: what its first part says stays for the others. */
static int begin_stream(struct naos_call *call, struct naos_crypt_slot *slot)
{
	struct naos_stream *stream = calloc(1, sizeof(*stream));
	slot->stream = stream;
	if (!stream)
		return naos_call_refuse(call, NAOS_KMIP_REASON_GENERAL_FAILURE, "out of memory");
	if (RAND_bytes(stream->id, sizeof(stream->id)) != 1)
		return naos_call_refuse(call, NAOS_KMIP_REASON_GENERAL_FAILURE, "the random generator failed");
	(void)snprintf(stream->identity, sizeof(stream->identity), "%s", call->peer->identity);
	stream->object = slot->entry->id;
	stream->encrypt = slot->encrypt;
	stream->mode = slot->item.mode;
	stream->tag_bytes = slot->item.tag_bytes;
	stream->iv_bytes = slot->item.iv_bytes;
	memcpy(stream->iv, slot->item.iv, sizeof(stream->iv));
	if (slot->request->additional_data.bytes > 0 && slot->item.mode == NAOS_HSM_GCM) {
		stream->associated_bytes = slot->request->additional_data.bytes;
		stream->associated = malloc(stream->associated_bytes);
		if (!stream->associated)
			return naos_call_refuse(call, NAOS_KMIP_REASON_GENERAL_FAILURE, "out of memory");
		memcpy(stream->associated, slot->request->additional_data.data, stream->associated_bytes);
	}
	return 0;
}

/* The stream of a Correlation Value. */
static int resume_stream(struct naos_call *call, struct naos_crypt_slot *slot)
{
	struct naos_stream *stream =
		naos_streams_take(&call->keyd->streams, call->peer->identity, slot->request->correlation_value, call->now);
	slot->stream = stream;
	if (!stream || stream->encrypt != slot->encrypt || !naos_uuid_equal(&stream->object, &slot->entry->id))
		return naos_call_refuse(call, NAOS_KMIP_REASON_INVALID_FIELD,
					"the Correlation Value belongs to no operation that is under way");
	slot->item.tag_bytes = stream->tag_bytes;
	slot->item.iv_bytes = stream->iv_bytes;
	memcpy(slot->item.iv, stream->iv, sizeof(slot->item.iv));
	slot->iv_made = stream->iv_bytes == 0 && stream->encrypt && needs_iv(stream->mode);
	return 0;
}

static int add_part(struct naos_call *call, struct naos_crypt_slot *slot)
{
	struct naos_stream *stream = slot->stream;
	struct naos_error err = NAOS_ERROR_INIT;
	int rc = naos_stream_append(stream, slot->request->data, &err);
	if (rc != 0)
		return naos_call_fail(call, rc, &err);
	slot->final = slot->request->final_indicator.present && slot->request->final_indicator.value;
	slot->append_tag = stream->mode == NAOS_HSM_GCM && call->version < NAOS_KMIP_1_4;
	slot->item.in_bytes = naos_stream_ready(stream, slot->final, &slot->item.mode);
	slot->item.in = stream->data ? naos_secret_view(stream->data) : NULL;
	slot->item.associated = stream->associated;
	slot->item.associated_bytes = stream->associated_bytes;
	slot->idle = !slot->final && slot->item.in_bytes <= stream->given;
	return 0;
}

static int prepare_stream(struct naos_call *call, const struct naos_object *object, struct naos_crypt_slot *slot)
{
	bool random_iv = false;
	if (slot->request->correlation_value.data)
		return resume_stream(call, slot) ? -1 : add_part(call, slot);
	int rc = choose_mode(call, object, slot, &random_iv);
	if (rc == 0)
		rc = check_separation(call, object, slot);
	if (rc == 0 && slot->item.mode == NAOS_HSM_GCM && !slot->encrypt) /* nothing may be given out before the tag is seen */
		rc = naos_call_refuse(call, NAOS_KMIP_REASON_FEATURE_NOT_SUPPORTED, "GCM decrypts whole data only: send them at once");
	if (rc == 0)
		rc = take_iv(call, slot, random_iv);
	if (rc == 0)
		rc = begin_stream(call, slot);
	return rc ? rc : add_part(call, slot);
}

static int prepare_whole(struct naos_call *call, const struct naos_object *object, struct naos_crypt_slot *slot)
{
	bool random_iv = false;
	int rc = choose_mode(call, object, slot, &random_iv);
	if (rc == 0)
		rc = check_separation(call, object, slot);
	if (rc == 0)
		rc = take_iv(call, slot, random_iv);
	return rc ? rc : take_data(call, slot);
}

static bool in_parts(const struct naos_kmip_crypt_request *in)
{
	return in->correlation_value.data || (in->init_indicator.present && in->init_indicator.value &&
					      !(in->final_indicator.present && in->final_indicator.value));
}

int naos_crypt_prepare(struct naos_call *call, bool encrypt, const struct naos_kmip_crypt_request *in, struct naos_crypt_slot *slot)
{
	struct naos_object *object;
	slot->request = in; /* all else is zero */
	slot->encrypt = encrypt;
	int rc = naos_call_object(call, in->unique_identifier, encrypt ? NAOS_RIGHT_ENCRYPT : NAOS_RIGHT_DECRYPT, &slot->entry, &object);
	if (rc == 0)
		rc = check_key(call, object, encrypt);
	if (rc != 0)
		return rc;
	slot->item.key = naos_object_key(object);
	slot->item.encrypt = encrypt;
	slot->uid = object->uid;
	rc = in_parts(in) ? prepare_stream(call, object, slot) : prepare_whole(call, object, slot);
	if (rc == 0 && !slot->idle)
		rc = make_output(call, slot);
	if (rc == 0 && encrypt && !in->correlation_value.data)
		rc = naos_uses_take(call, slot->entry, object, in->data.bytes);
	if (rc != 0)
		slot->stream = naos_stream_free(slot->stream);
	return rc;
}

/* Only what is new is answered; the rest waits for the next part. */
static int finish_stream(struct naos_call *call, struct naos_crypt_slot *slot, struct naos_kmip_crypt_response *out)
{
	struct naos_stream *stream = slot->stream;
	struct naos_error err = NAOS_ERROR_INIT;
	uint8_t *id;
	slot->stream = NULL;
	if (!slot->idle) {
		size_t given = stream->given <= slot->item.out_bytes ? stream->given : slot->item.out_bytes;
		out->data = slot->item.out_bytes > given ? naos_kmip_bytes(slot->item.out + given, slot->item.out_bytes - given) :
							   (struct naos_kmip_bytes){ NULL, 0 };
		stream->given = slot->item.out_bytes;
		stream->iv_bytes = slot->item.iv_bytes;
		memcpy(stream->iv, slot->item.iv, sizeof(stream->iv));
	}
	if (slot->final) {
		(void)naos_stream_free(stream);
		return 0;
	}
	out->tag = (struct naos_kmip_bytes){ NULL, 0 };
	id = naos_call_take(call, 1, sizeof(stream->id));
	if (!id) {
		(void)naos_stream_free(stream);
		return -1;
	}
	memcpy(id, stream->id, sizeof(stream->id));
	out->correlation_value = naos_kmip_bytes(id, sizeof(stream->id));
	int rc = naos_streams_put(&call->keyd->streams, stream, call->now, &err);
	return rc ? naos_call_fail(call, rc, &err) : 0;
}

int naos_crypt_finish(struct naos_call *call, struct naos_crypt_slot *slot, struct naos_kmip_crypt_response *out)
{
	struct naos_hsm_crypt *item = &slot->item;
	if (!slot->idle && item->result != 0) {
		slot->stream = naos_stream_free(slot->stream);
		if (item->result == NAOS_E_USAGE || item->result == NAOS_E_INTEGRITY)
			return naos_call_refuse(call, NAOS_KMIP_REASON_CRYPTOGRAPHIC_FAILURE, "%.190s", item->error.message);
		return naos_call_fail(call, item->result, &item->error);
	}
	(void)atomic_fetch_add_explicit(slot->encrypt ? &call->keyd->encrypts : &call->keyd->decrypts, 1, memory_order_relaxed);
	out->unique_identifier = naos_kmip_text(slot->uid);
	if (!slot->idle && slot->encrypt && slot->append_tag && (!slot->stream || slot->final)) {
		memcpy(item->out + item->out_bytes, item->tag, item->tag_bytes);
		item->out_bytes += item->tag_bytes;
	}
	if (!slot->idle)
		out->data = naos_kmip_bytes(item->out, item->out_bytes);
	if (slot->encrypt && item->mode == NAOS_HSM_GCM && !slot->append_tag)
		out->tag = naos_kmip_bytes(item->tag, item->tag_bytes);
	/* the IV that was really used: made here, or by an HSM that takes none from outside */
	struct naos_kmip_bytes given = slot->request->iv_counter_nonce;
	if (!slot->idle && slot->encrypt && item->iv_bytes > 0 &&
	    (slot->iv_made || (given.data && (given.bytes != item->iv_bytes || memcmp(given.data, item->iv, item->iv_bytes) != 0))))
		out->iv_counter_nonce = naos_kmip_bytes(item->iv, item->iv_bytes);
	return slot->stream ? finish_stream(call, slot, out) : 0;
}
