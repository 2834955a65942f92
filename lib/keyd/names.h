/* Names of living objects: at any moment one object of an owner has a name.  A name is claimed before the object that bears it is
 * written, so that of two who ask at the same moment one is refused.
 *
 * Thread-safe.  Lists of attributes are borrowed for the call; of them only Name counts.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_NAMES_H
#define NAOS_KEYD_NAMES_H

#include "keyd/object.h"

struct naos_names;

int naos_names_create(struct naos_names **ret, struct naos_error *err) naos_must_check;
struct naos_names *naos_names_free(struct naos_names *names);

/* Gives `id` every name of the list, or none: NAOS_E_EXISTS if another object of the owner has one.  Names of `from` (may be NULL), the
 * object that `id` is to replace, are no hindrance; they stay with it until naos_names_move. */
int naos_names_claim(struct naos_names *names, const char *owner, const struct naos_kmip_attribute *items, size_t count,
		     const struct naos_uuid *id, const struct naos_uuid *from, struct naos_error *err) naos_must_check;
/* The names of the list that `from` has become those of `id`. */
void naos_names_move(struct naos_names *names, const char *owner, const struct naos_kmip_attribute *items, size_t count,
		     const struct naos_uuid *id, const struct naos_uuid *from);
/* Gives up the names of the list `items` that `id` has, but for those that are in the list `but` too. */
void naos_names_release(struct naos_names *names, const char *owner, const struct naos_kmip_attribute *items, size_t count,
			const struct naos_kmip_attribute *but, size_t but_count, const struct naos_uuid *id);

#endif
