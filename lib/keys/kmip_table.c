/* The MEKs of a KMIP server.  SPDX-License-Identifier: Apache-2.0 */
#include "keys/kmip_table.h"

#include <string.h>

#define PREFIX "naos:"
#define AT_ONCE 100 /* keys asked for in one request */
#define EVERY_STORAGE \
	(NAOS_KMIP_STORAGE_STATUS_ONLINE_STORAGE | NAOS_KMIP_STORAGE_STATUS_ARCHIVAL_STORAGE | NAOS_KMIP_STORAGE_STATUS_DESTROYED_STORAGE)

const char *naos_kmip_key_name(const struct naos_mek *mek, char buffer[static NAOS_KMIP_KEY_NAME_BYTES])
{
	char id[NAOS_UUID_TEXT_BYTES];
	(void)snprintf(buffer, NAOS_KMIP_KEY_NAME_BYTES, PREFIX "%s:%u:%s", mek->name, mek->version,
			naos_uuid_format(&mek->id, id));
	return buffer;
}

/* Reads a Name of ours; false for those of others. */
static bool parse_key_name(struct naos_kmip_text text, struct naos_mek *ret)
{
	char copy[NAOS_KMIP_KEY_NAME_BYTES];
	if (text.bytes >= sizeof(copy) || text.bytes < strlen(PREFIX) || memcmp(text.data, PREFIX, strlen(PREFIX)) != 0)
		return false;
	memcpy(copy, text.data, text.bytes);
	copy[text.bytes] = 0;
	char *name = copy + strlen(PREFIX), *version = strchr(name, ':'), *id = version ? strchr(version + 1, ':') : NULL, *end;
	if (!id)
		return false;
	*version++ = 0;
	*id++ = 0;
	unsigned long number = strtoul(version, &end, 10);
	if (*end || number == 0 || number > UINT32_MAX || strlen(name) >= NAOS_MEK_NAME_BYTES || !naos_uuid_parse(id, &ret->id))
		return false;
	(void)snprintf(ret->name, sizeof(ret->name), "%s", name);
	ret->version = (uint32_t)number;
	return true;
}

static enum naos_mek_state state_of(uint32_t state)
{
	switch (state) {
	case NAOS_KMIP_STATE_PRE_ACTIVE:
		return NAOS_MEK_PRE_ACTIVE;
	case NAOS_KMIP_STATE_ACTIVE:
		return NAOS_MEK_ACTIVE;
	case NAOS_KMIP_STATE_DEACTIVATED:
		return NAOS_MEK_DEACTIVATED;
	case NAOS_KMIP_STATE_DESTROYED:
	case NAOS_KMIP_STATE_DESTROYED_COMPROMISED:
		return NAOS_MEK_DESTROYED;
	default:
		return NAOS_MEK_REVOKED;
	}
}

/* A row from the attributes of one key; false if it is no MEK of ours. */
static bool take_row(struct naos_kmip_text uid, const struct naos_kmip_attributes *attributes, struct naos_kmip_row *ret)
{
	const struct naos_kmip_attribute *state = naos_kmip_attributes_find(attributes, NAOS_KMIP_TAG_STATE, 0);
	const struct naos_kmip_attribute *created = naos_kmip_attributes_find(attributes, NAOS_KMIP_TAG_INITIAL_DATE, 0);
	const struct naos_kmip_attribute *changed = naos_kmip_attributes_find(attributes, NAOS_KMIP_TAG_LAST_CHANGE_DATE, 0);
	const struct naos_kmip_attribute *activated = naos_kmip_attributes_find(attributes, NAOS_KMIP_TAG_ACTIVATION_DATE, 0);
	const struct naos_kmip_attribute *name;
	struct naos_kmip_row row = { .uid = "" };
	bool ours = false;
	for (size_t i = 0; !ours && (name = naos_kmip_attributes_find(attributes, NAOS_KMIP_TAG_NAME, i)); i++)
		ours = name->value.name && parse_key_name(name->value.name->value, &row.mek);
	if (!ours || !state || uid.bytes == 0 || uid.bytes >= sizeof(row.uid))
		return false;
	memcpy(row.uid, uid.data, uid.bytes);
	row.mek.state = state_of(state->value.enumeration);
	row.mek.created_unix_s = created ? created->value.unix_s : 0;
	row.mek.changed_unix_s = changed ? changed->value.unix_s : row.mek.created_unix_s;
	if (row.mek.state == NAOS_MEK_DESTROYED && !activated)
		return false; /* was taken away before it was ever used: its version is free */
	*ret = row;
	return true;
}

static int by_name_and_version(const void *left, const void *right)
{
	const struct naos_kmip_row *l = left, *r = right;
	int order = strcmp(l->mek.name, r->mek.name);
	return order ? order : l->mek.version < r->mek.version ? -1 : l->mek.version > r->mek.version;
}

/* Several active versions stand in a server that knows nothing of ours: one is superseded by any newer one that is not still
 * being made, also by one that was revoked since. */
static void settle(struct naos_kmip_table *table)
{
	qsort(table->rows, table->count, sizeof(*table->rows), by_name_and_version);
	for (size_t i = table->count; i-- > 0;) {
		struct naos_mek *mek = &table->rows[i].mek;
		for (size_t j = i + 1; mek->state == NAOS_MEK_ACTIVE && j < table->count && strcmp(table->rows[j].mek.name, mek->name) == 0; j++)
			if (table->rows[j].mek.state != NAOS_MEK_PRE_ACTIVE)
				mek->state = NAOS_MEK_DEACTIVATED;
	}
}

static int ask_attributes(struct naos_kmip_client *client, const struct naos_kmip_text *uids, size_t count,
		struct naos_kmip_table *table,
			  struct naos_error *err)
{
	static const struct naos_kmip_attribute_name names[] = {
		{ .tag = NAOS_KMIP_TAG_NAME }, { .tag = NAOS_KMIP_TAG_STATE }, { .tag = NAOS_KMIP_TAG_INITIAL_DATE },
		{ .tag = NAOS_KMIP_TAG_ACTIVATION_DATE },
	};
	struct naos_kmip_request_item items[AT_ONCE];
	naos_autoanswer struct naos_kmip_answer answer = { .arena = NULL };
	for (size_t i = 0; i < count; i++)
		items[i] = (struct naos_kmip_request_item){
			.operation = NAOS_KMIP_OPERATION_GET_ATTRIBUTES,
			.payload.get_attributes = { .unique_identifier = uids[i], .names = { names, NAOS_ARRAY_LENGTH(names) } },
		};
	int rc = naos_kmip_client_call(client, items, count, true, &answer, err);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		const struct naos_kmip_response_item *item = &answer.response.batch.items[i];
		if (item->status != NAOS_KMIP_STATUS_SUCCESS || !item->has_payload)
			continue; /* gone in the meantime, or not for us */
		table->count += take_row(uids[i], &item->payload.get_attributes.attributes, &table->rows[table->count]);
	}
	return rc;
}

/* Locate, then names and states of what was found.  *ret_found counts it; *ret_total is what the server has, as far as it says. */
static int load_some(struct naos_kmip_client *client, const struct naos_kmip_locate_request *what, struct naos_kmip_table *table,
		     size_t *ret_found, size_t *ret_total, struct naos_error *err)
{
	const struct naos_kmip_request_item locate = { .operation = NAOS_KMIP_OPERATION_LOCATE, .payload.locate = *what };
	naos_autoanswer struct naos_kmip_answer answer = { .arena = NULL };
	int rc = naos_kmip_client_call(client, &locate, 1, true, &answer, err);
	const struct naos_kmip_response_item *item = rc == 0 ? answer.response.batch.items : NULL;
	if (rc == 0)
		rc = naos_kmip_item_result(item, "Locate", err);
	if (rc != 0)
		return rc;
	const struct naos_kmip_locate_response *response = &item->payload.locate;
	size_t total = item->has_payload ? response->unique_identifiers.count : 0;
	struct naos_kmip_row *grown = reallocarray(table->rows, table->count + total + 1, sizeof(*grown));
	if (!grown)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the list of keys");
	table->rows = grown;
	for (size_t done = 0, step; rc == 0 && done < total; done += step) {
		step = total - done < AT_ONCE ? total - done : AT_ONCE;
		rc = ask_attributes(client, response->unique_identifiers.items + done, step, table, err);
	}
	*ret_found = total;
	*ret_total = item->has_payload && response->located_items.present && response->located_items.value > 0 ?
			     (size_t)response->located_items.value : total;
	return rc;
}

/* All pages of an answer: a server gives some at a time, and says from 1.3 on how many there are. */
static int load_pages(struct naos_kmip_client *client, struct naos_kmip_locate_request what, struct naos_kmip_table *table,
		      struct naos_error *err)
{
	size_t seen = 0, found, total;
	int rc;
	do {
		if (seen > 0)
			what.offset_items = (struct naos_kmip_integer){ .present = true, .value = (int32_t)seen };
		rc = load_some(client, &what, table, &found, &total, err);
		seen += rc == 0 ? found : 0;
	} while (rc == 0 && found > 0 && seen < total && seen < INT32_MAX);
	return rc;
}

/* Before 1.4 there is no bit for destroyed objects: they are asked for by their state.  A server that does not answer that has none. */
static int load_destroyed(struct naos_kmip_client *client, struct naos_kmip_table *table, struct naos_error *err)
{
	static const enum naos_kmip_state states[] = { NAOS_KMIP_STATE_DESTROYED, NAOS_KMIP_STATE_DESTROYED_COMPROMISED };
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(states); i++) {
		const struct naos_kmip_attribute filter[] = {
			naos_kmip_attribute_enum(NAOS_KMIP_TAG_OBJECT_TYPE, NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY),
			naos_kmip_attribute_enum(NAOS_KMIP_TAG_STATE, states[i]),
		};
		size_t before = table->count, kept = table->count;
		int rc = load_pages(client, (struct naos_kmip_locate_request){ .attributes = { filter, NAOS_ARRAY_LENGTH(filter) } },
				    table, err);
		if (rc == NAOS_E_KEYMANAGER || rc == NAOS_E_NOMEM)
			return rc;
		for (size_t j = before; j < table->count; j++) /* one that ignores the filter shows what is known already */
			if (table->rows[j].mek.state == NAOS_MEK_DESTROYED)
				table->rows[kept++] = table->rows[j];
		table->count = kept;
	}
	return 0;
}

static int load(struct naos_kmip_client *client, struct naos_kmip_table *table, struct naos_error *err)
{
	const struct naos_kmip_attribute filter = naos_kmip_attribute_enum(NAOS_KMIP_TAG_OBJECT_TYPE,
			NAOS_KMIP_OBJECT_TYPE_SYMMETRIC_KEY);
	struct naos_kmip_locate_request what = { .attributes = { &filter, 1 } };
	uint32_t version;
	int rc = naos_kmip_client_version(client, &version, err);
	if (rc == 0 && version >= NAOS_KMIP_1_4)
		what.storage_status_mask = (struct naos_kmip_integer){ .present = true, .value = EVERY_STORAGE };
	if (rc == 0)
		rc = load_pages(client, what, table, err);
	return rc || version >= NAOS_KMIP_1_4 ? rc : load_destroyed(client, table, err);
}

int naos_kmip_table_load(struct naos_kmip_client *client, struct naos_kmip_table *ret, struct naos_error *err)
{
	struct naos_kmip_table table = { .count = 0 };
	int rc = load(client, &table, err);
	if (rc != 0) {
		naos_kmip_table_clear(&table);
		return rc;
	}
	if (table.count > 0)
		settle(&table);
	*ret = table;
	return 0;
}

void naos_kmip_table_clear(struct naos_kmip_table *table)
{
	free(table->rows);
	*table = (struct naos_kmip_table){ .count = 0 };
}

const struct naos_kmip_row *naos_kmip_table_active(const struct naos_kmip_table *table, const char *name)
{
	for (size_t i = table->count; i-- > 0;)
		if (table->rows[i].mek.state == NAOS_MEK_ACTIVE && strcmp(table->rows[i].mek.name, name) == 0)
			return &table->rows[i];
	return NULL;
}

const struct naos_kmip_row *naos_kmip_table_version(const struct naos_kmip_table *table, const char *name, uint32_t version)
{
	for (size_t i = table->count; i-- > 0;)
		if (strcmp(table->rows[i].mek.name, name) == 0 && (version == 0 || table->rows[i].mek.version == version))
			return &table->rows[i];
	return NULL;
}

const struct naos_kmip_row *naos_kmip_table_id(const struct naos_kmip_table *table, const struct naos_uuid *id, uint32_t version)
{
	for (size_t i = 0; i < table->count; i++)
		if (table->rows[i].mek.version == version && naos_uuid_equal(&table->rows[i].mek.id, id))
			return &table->rows[i];
	return NULL;
}
