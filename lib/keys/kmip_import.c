/* Register of a key that was made elsewhere, at a KMIP server.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "keys/kmip_state.h"

/* A name of a MEK stays that MEK's: who looks for it must not find a key that was outside. */
static int check_no_mek(struct kmip *k, const char *name, struct naos_error *err)
{
	int rc = naos_kmip_reload(k, err);
	if (rc != 0)
		return rc;
	(void)pthread_mutex_lock(&k->lock);
	bool found = naos_kmip_table_version(&k->table, name, 0) != NULL;
	(void)pthread_mutex_unlock(&k->lock);
	return found ? naos_error_set(err, NAOS_E_EXISTS,
			"'%s' is a master key: those are made in the HSM and were never outside ('naos key rotate' makes a new version)", name) : 0;
}

static int register_key(struct kmip *k, const char *name, const struct naos_secret *key, char ret_id[static NAOS_KEY_ID_BYTES],
			struct naos_error *err)
{
	const struct naos_kmip_name kmip_name = { naos_kmip_text(name), NAOS_KMIP_NAME_TYPE_UNINTERPRETED_TEXT_STRING };
	const struct naos_kmip_attribute attributes[] = {
		naos_kmip_attribute_integer(NAOS_KMIP_TAG_CRYPTOGRAPHIC_USAGE_MASK, NAOS_KMIP_USAGE_ENCRYPT | NAOS_KMIP_USAGE_DECRYPT),
		naos_kmip_attribute_structure(NAOS_KMIP_TAG_NAME, &kmip_name),
	};
	const struct naos_kmip_key_value value = { .material = naos_kmip_bytes(naos_secret_view(key), naos_secret_bytes(key)) };
	const struct naos_kmip_key_block block = {
		.format = NAOS_KMIP_KEY_FORMAT_RAW, .value = &value, .cryptographic_algorithm = NAOS_KMIP_ALGORITHM_AES,
		.cryptographic_length = { .present = true, .value = (int32_t)(8 * naos_secret_bytes(key)) },
	};
	const struct naos_kmip_key symmetric = { .block = &block };
	const struct naos_kmip_request_item item = {
		.operation = NAOS_KMIP_OPERATION_REGISTER,
		.payload.register_object = { .object_type = NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY,
					     .attributes = { attributes, NAOS_ARRAY_LENGTH(attributes) },
					     .object = { .symmetric_key = &symmetric } },
	};
	naos_autoanswer struct naos_kmip_answer answer = { .arena = NULL };
	int rc = naos_kmip_call_one(k, &item, "to take a key", false, &answer, err);
	return rc ? rc : naos_kmip_take_id(answer.response.batch.items->payload.register_object.unique_identifier, ret_id, err);
}

int naos_kmip_import(void *state, const char *name, const struct naos_secret *key, char ret_id[static NAOS_KEY_ID_BYTES],
		     struct naos_error *err)
{
	struct kmip *k = state;
	char id[NAOS_KEY_ID_BYTES];
	int rc = check_no_mek(k, name, err);
	if (rc == 0)
		rc = register_key(k, name, key, id, err);
	if (rc != 0)
		return rc;
	rc = naos_kmip_activate_key(k, id, err);
	if (rc != 0 && naos_kmip_destroy_key(k, id, NULL) != 0)
		return naos_error_prefix(err, rc, "the new key %s was left behind inactive", id);
	if (rc == 0)
		(void)snprintf(ret_id, NAOS_KEY_ID_BYTES, "%s", id);
	return rc;
}
