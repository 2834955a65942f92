/* The MEKs of a KMIP server, as this client may see them.  A version of a MEK is one symmetric key there with a Name
 * "naos:NAME:VERSION:UUID".  Used by the KMIP provider only.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYS_KMIP_TABLE_H
#define NAOS_KEYS_KMIP_TABLE_H

#include "keys/provider.h"
#include "kmip/client.h"

#define NAOS_KMIP_KEY_NAME_BYTES 160

struct naos_kmip_row {
	struct naos_mek mek;
	char uid[NAOS_KEY_ID_BYTES];
};

struct naos_kmip_table {
	struct naos_kmip_row *rows; /* by name and version */
	size_t count;
};

/* Locate, then the names and states of what was found: destroyed keys too, where the server still knows them (PyKMIP does not), so that
 * their versions are not given away again. */
int naos_kmip_table_load(struct naos_kmip_client *client, struct naos_kmip_table *ret, struct naos_error *err) naos_must_check;
void naos_kmip_table_clear(struct naos_kmip_table *table);
/* The newest active version of a name; NULL if there is none. */
const struct naos_kmip_row *naos_kmip_table_active(const struct naos_kmip_table *table, const char *name);
/* version 0: the newest. */
const struct naos_kmip_row *naos_kmip_table_version(const struct naos_kmip_table *table, const char *name, uint32_t version);
const struct naos_kmip_row *naos_kmip_table_id(const struct naos_kmip_table *table, const struct naos_uuid *id, uint32_t version);

const char *naos_kmip_key_name(const struct naos_mek *mek, char buffer[static NAOS_KMIP_KEY_NAME_BYTES]);

#endif
