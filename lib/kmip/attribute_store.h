/* Attributes of an object as bytes, for a server's database: a TemplateAttribute of KMIP 1.4 that may also hold attributes of
 * other versions.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KMIP_ATTRIBUTE_STORE_H
#define NAOS_KMIP_ATTRIBUTE_STORE_H

#include "base/cursor.h"
#include "kmip/arena.h"
#include "kmip/attribute.h"

/* NAOS_E_LIMIT (does not fit), NAOS_E_USAGE. */
int naos_kmip_attributes_write(const struct naos_kmip_attributes *attributes, struct naos_cursor *out,
			       struct naos_error *err) naos_must_check;
/* What is read points into data and the arena.  NAOS_E_FORMAT. */
int naos_kmip_attributes_read(const void *data, size_t bytes, struct naos_kmip_arena *arena, struct naos_kmip_attributes *ret,
			      struct naos_error *err) naos_must_check;

#endif
