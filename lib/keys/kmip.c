/* The KMIP provider: the keys of the server; its address is in kmip_address.c, wrapping in kmip_wrap.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "keys/kmip.h"

#include <pthread.h>
#include <string.h>

#include "keys/kmip_address.h"
#include "keys/kmip_state.h"

static void kmip_close(void *state)
{
	struct kmip *k = state;
	(void)naos_kmip_client_close(k->client);
	naos_kmip_table_clear(&k->table);
	(void)pthread_mutex_destroy(&k->lock);
	free(k);
}

static int kmip_open(const char *uri, const char *store_path, void **ret_state, struct naos_error *err)
{
	struct naos_kmip_address address = { .copy = NULL };
	struct kmip *k = calloc(1, sizeof(*k));
	if (!k)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the key manager");
	(void)pthread_mutex_init(&k->lock, NULL);
	int rc = naos_kmip_address_parse(uri, &address, err);
	k->iv_in_data = address.iv_in_data;
	const struct naos_kmip_client_options options = {
		.hosts = address.hosts, .certificate = address.certificate, .key = address.key, .ca = address.ca,
		.version = address.version,
		.timeout_s = address.timeout_s,
	};
	if (rc == 0)
		rc = naos_kmip_client_open(&options, &k->client, err);
	naos_kmip_address_clear(&address);
	if (rc != 0)
		kmip_close(k);
	else
		*ret_state = k;
	return rc;
}

/* --- keys of the server --------------------------------------------------------------------------------------------------- */

int naos_kmip_reload(struct kmip *k, struct naos_error *err)
{
	struct naos_kmip_table table;
	int rc = naos_kmip_table_load(k->client, &table, err);
	if (rc != 0)
		return rc;
	(void)pthread_mutex_lock(&k->lock);
	struct naos_kmip_table old = k->table;
	k->table = table;
	k->loaded_s = naos_kmip_now_s();
	(void)pthread_mutex_unlock(&k->lock);
	naos_kmip_table_clear(&old);
	return 0;
}

static int kmip_list(void *state, struct naos_mek **ret, size_t *ret_count, struct naos_error *err)
{
	struct kmip *k = state;
	int rc = naos_kmip_reload(k, err);
	if (rc != 0)
		return rc;
	(void)pthread_mutex_lock(&k->lock);
	struct naos_mek *meks = calloc(k->table.count + 1, sizeof(*meks));
	for (size_t i = 0; meks && i < k->table.count; i++)
		meks[i] = k->table.rows[i].mek;
	*ret_count = k->table.count;
	(void)pthread_mutex_unlock(&k->lock);
	*ret = meks;
	return meks ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for the list of keys");
}

int naos_kmip_call_one(struct kmip *k, const struct naos_kmip_request_item *item, const char *what, bool repeatable,
		       struct naos_kmip_answer *ret, struct naos_error *err)
{
	int rc = naos_kmip_client_call(k->client, item, 1, repeatable, ret, err);
	return rc ? rc : naos_kmip_item_result(ret->response.batch.items, what, err);
}

int naos_kmip_take_id(struct naos_kmip_text id, char ret[static NAOS_KEY_ID_BYTES], struct naos_error *err)
{
	if (id.bytes == 0 || id.bytes >= NAOS_KEY_ID_BYTES || memchr(id.data, 0, id.bytes))
		return naos_error_set(err, NAOS_E_KEYMANAGER, "the key manager names its new key in %zu bytes", id.bytes);
	memcpy(ret, id.data, id.bytes);
	ret[id.bytes] = 0;
	return 0;
}

/* Create: a key that is not active yet. */
static int create_key(struct kmip *k, const struct naos_mek *mek, char ret_uid[static NAOS_KEY_ID_BYTES], struct naos_error *err)
{
	char text[NAOS_KMIP_KEY_NAME_BYTES];
	const struct naos_kmip_name name = { naos_kmip_text(naos_kmip_key_name(mek, text)),
			NAOS_KMIP_NAME_TYPE_UNINTERPRETED_TEXT_STRING };
	const struct naos_kmip_attribute attributes[] = {
		naos_kmip_attribute_enum(NAOS_KMIP_TAG_CRYPTOGRAPHIC_ALGORITHM, NAOS_KMIP_ALGORITHM_AES),
		naos_kmip_attribute_integer(NAOS_KMIP_TAG_CRYPTOGRAPHIC_LENGTH, 256),
		naos_kmip_attribute_integer(NAOS_KMIP_TAG_CRYPTOGRAPHIC_USAGE_MASK,
				NAOS_KMIP_USAGE_ENCRYPT | NAOS_KMIP_USAGE_DECRYPT),
		naos_kmip_attribute_structure(NAOS_KMIP_TAG_NAME, &name),
	};
	const struct naos_kmip_request_item create = {
		.operation = NAOS_KMIP_OPERATION_CREATE,
		.payload.create = { .object_type = NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY, .attributes = { attributes,
				NAOS_ARRAY_LENGTH(attributes) } },
	};
	naos_autoanswer struct naos_kmip_answer answer = { .arena = NULL };
	int rc = naos_kmip_call_one(k, &create, "to create a key", false, &answer, err);
	return rc ? rc : naos_kmip_take_id(answer.response.batch.items->payload.create.unique_identifier, ret_uid, err);
}

int naos_kmip_activate_key(struct kmip *k, const char *uid, struct naos_error *err)
{
	const struct naos_kmip_request_item item = {
		.operation = NAOS_KMIP_OPERATION_ACTIVATE, .payload.activate.unique_identifier = naos_kmip_text(uid),
	};
	naos_autoanswer struct naos_kmip_answer answer = { .arena = NULL };
	return naos_kmip_call_one(k, &item, "to activate the key", false, &answer, err);
}

int naos_kmip_destroy_key(struct kmip *k, const char *uid, struct naos_error *err)
{
	const struct naos_kmip_request_item item = {
		.operation = NAOS_KMIP_OPERATION_DESTROY, .payload.destroy.unique_identifier = naos_kmip_text(uid),
	};
	naos_autoanswer struct naos_kmip_answer answer = { .arena = NULL };
	return naos_kmip_call_one(k, &item, "to destroy the key", false, &answer, err);
}

/* Two who make the same version at the same time would give two keys one name in wrapped keys: each looks before it activates. */
static int check_alone(struct kmip *k, const struct naos_mek *mek, const char *uid, struct naos_error *err)
{
	bool other = false;
	int rc = naos_kmip_reload(k, err);
	if (rc != 0)
		return rc;
	(void)pthread_mutex_lock(&k->lock);
	for (size_t i = 0; i < k->table.count; i++) {
		const struct naos_kmip_row *row = &k->table.rows[i];
		other |= row->mek.version == mek->version && strcmp(row->mek.name, mek->name) == 0 && strcmp(row->uid, uid) != 0;
	}
	(void)pthread_mutex_unlock(&k->lock);
	return other ? naos_error_set(err, NAOS_E_EXISTS,
			"somebody else makes version %u of the key '%s' at this moment; try again", mek->version, mek->name) : 0;
}

/* Create, look, Activate.  A key that could not be activated is taken away again. */
static int make_version(struct kmip *k, const struct naos_mek *mek, struct naos_error *err)
{
	char uid[NAOS_KEY_ID_BYTES];
	int rc = create_key(k, mek, uid, err);
	if (rc != 0)
		return rc;
	rc = check_alone(k, mek, uid, err);
	if (rc == 0)
		rc = naos_kmip_activate_key(k, uid, err);
	if (rc != 0 && naos_kmip_destroy_key(k, uid, NULL) != 0)
		return naos_error_prefix(err, rc, "the new key %s was left behind inactive", uid);
	return rc;
}

static int make_and_show(struct kmip *k, const struct naos_mek *mek, struct naos_mek *ret, struct naos_error *err)
{
	int rc = make_version(k, mek, err);
	if (rc == 0)
		rc = naos_kmip_reload(k, err);
	if (rc != 0)
		return rc;
	(void)pthread_mutex_lock(&k->lock);
	const struct naos_kmip_row *row = naos_kmip_table_id(&k->table, &mek->id, mek->version);
	if (row)
		*ret = row->mek;
	(void)pthread_mutex_unlock(&k->lock);
	return row ? 0 : naos_error_set(err, NAOS_E_KEYMANAGER,
			"the key manager does not show the key '%s' that it just made", mek->name);
}

static int kmip_create(void *state, const char *name, struct naos_mek *ret, struct naos_error *err)
{
	struct kmip *k = state;
	struct naos_mek mek = { .version = 1 };
	int rc = naos_kmip_reload(k, err);
	if (rc != 0)
		return rc;
	(void)pthread_mutex_lock(&k->lock);
	const struct naos_kmip_row *newest = naos_kmip_table_version(&k->table, name, 0);
	if (newest)
		rc = newest->mek.state == NAOS_MEK_DESTROYED ?
			     naos_error_set(err, NAOS_E_EXISTS, "the name '%s' belonged to a key that was destroyed; choose another name", name) :
			     naos_error_set(err, NAOS_E_EXISTS, "there is a key '%s' already", name);
	(void)pthread_mutex_unlock(&k->lock);
	if (rc == 0)
		rc = naos_uuid_random(&mek.id, err);
	(void)snprintf(mek.name, sizeof(mek.name), "%s", name);
	return rc ? rc : make_and_show(k, &mek, ret, err);
}

/* The newest or a certain version, freshly asked for. */
static int find_version(struct kmip *k, const char *name, uint32_t version, struct naos_kmip_row *ret, struct naos_error *err)
{
	int rc = naos_kmip_reload(k, err);
	if (rc != 0)
		return rc;
	(void)pthread_mutex_lock(&k->lock);
	const struct naos_kmip_row *row = naos_kmip_table_version(&k->table, name, version);
	if (row)
		*ret = *row;
	(void)pthread_mutex_unlock(&k->lock);
	if (row)
		return 0;
	return version ? naos_error_set(err, NAOS_E_NOKEY, "the key manager shows no version %u of a key '%s'", version, name) :
			 naos_error_set(err, NAOS_E_NOKEY, "the key manager shows no key '%s'", name);
}

static int kmip_rotate(void *state, const char *name, struct naos_mek *ret, struct naos_error *err)
{
	struct kmip *k = state;
	struct naos_kmip_row row;
	int rc = find_version(k, name, 0, &row, err);
	if (rc != 0)
		return rc;
	if (row.mek.state == NAOS_MEK_DESTROYED)
		return naos_error_set(err, NAOS_E_KEY_STATE,
				      "the newest version %u of the key '%s' was destroyed; create a key of another name", row.mek.version, name);
	row.mek.version++;
	return make_and_show(k, &row.mek, ret, err);
}

static int revoke_row(struct kmip *k, const struct naos_kmip_row *row, enum naos_kmip_revocation_reason_code code,
		struct naos_error *err)
{
	const struct naos_kmip_revocation_reason reason = { .code = code };
	const struct naos_kmip_request_item item = {
		.operation = NAOS_KMIP_OPERATION_REVOKE,
		.payload.revoke = { .unique_identifier = naos_kmip_text(row->uid), .reason = &reason,
				    .compromise_occurrence = { .present = code == NAOS_KMIP_REVOCATION_KEY_COMPROMISE,
						.unix_s = row->mek.created_unix_s } },
	};
	naos_autoanswer struct naos_kmip_answer answer = { .arena = NULL };
	return naos_kmip_call_one(k, &item, "to revoke the key", false, &answer, err);
}

static int kmip_set_state(void *state, const char *name, uint32_t version, enum naos_mek_state to, struct naos_error *err)
{
	struct kmip *k = state;
	struct naos_kmip_row row;
	int rc = find_version(k, name, version, &row, err);
	if (rc != 0)
		return rc;
	if (to == NAOS_MEK_REVOKED && row.mek.state != NAOS_MEK_DESTROYED)
		return revoke_row(k, &row, NAOS_KMIP_REVOCATION_KEY_COMPROMISE, err);
	if (to == NAOS_MEK_DEACTIVATED && row.mek.state == NAOS_MEK_ACTIVE)
		return revoke_row(k, &row, NAOS_KMIP_REVOCATION_CESSATION_OF_OPERATION, err);
	if (to != NAOS_MEK_ACTIVE || row.mek.state != NAOS_MEK_PRE_ACTIVE)
		return naos_error_set(err, NAOS_E_KEY_STATE,
				"version %u of '%s' is %s: in a KMIP server that can't become %s", row.mek.version, name,
				      naos_mek_state_name(row.mek.state), naos_mek_state_name(to));
	return naos_kmip_activate_key(k, row.uid, err);
}

static int kmip_destroy(void *state, const char *name, uint32_t version, struct naos_error *err)
{
	struct kmip *k = state;
	struct naos_kmip_row row;
	int rc = find_version(k, name, version, &row, err);
	if (rc == 0 && row.mek.state == NAOS_MEK_ACTIVE)
		rc = naos_error_set(err, NAOS_E_KEY_STATE, "version %u of '%s' is active: rotate or revoke it first",
				row.mek.version, name);
	if (rc != 0)
		return rc;
	/* superseded ones are active for a server that knows nothing of ours; it may refuse this for one that is not */
	(void)!revoke_row(k, &row, NAOS_KMIP_REVOCATION_SUPERSEDED, NULL);
	return naos_kmip_destroy_key(k, row.uid, err);
}

const struct naos_provider_ops naos_kmip_provider = {
	.scheme = "kmip",
	.open = kmip_open,
	.close = kmip_close,
	.create = kmip_create,
	.rotate = kmip_rotate,
	.set_state = kmip_set_state,
	.destroy = kmip_destroy,
	.import = naos_kmip_import,
	.list = kmip_list,
	.wrap = naos_kmip_wrap,
	.unwrap = naos_kmip_unwrap,
};
