/* What a sealed file shows to someone who has no key: a backup operator, a storage administrator.  It finds what is cut off, torn,
 * of another file set or no sealed file at all; it can't find a change that keeps the structure, which only the keys tell.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_INSPECT_H
#define NAOS_SEAL_INSPECT_H

#include "seal/sealed_file.h"

/* What the file set demands; NULL or 0: not compared. */
struct naos_inspect_demand {
	const struct naos_uuid *fileset_id;
	enum naos_algorithm algorithm;
};

/* Header, state, wrapped keys and their copy in the attribute, physical size, tag sectors, map pages, zeros where zeros must be.
 * Reads no data.  *ret_clean false: it is not sealed.  The store is borrowed.  A file that is changed meanwhile is looked at again.
 * NAOS_E_FORMAT or NAOS_E_WRONG_KEY (another file set) or NAOS_E_INTEGRITY; the message names file and place. */
int naos_sealed_inspect(struct naos_store *store, const struct naos_inspect_demand *demand, bool *ret_clean, uint64_t *ret_size,
			struct naos_error *err) naos_must_check;

/* Whether a writer, in this process or another, has the file open: its lock is looked at, not taken. */
bool naos_sealed_has_writer(int fd);

/* It has no page 0, nor a record of a new file: empty, zeros, or the beginning of a page 0.  It was being made when the power went, or is
 * damaged; nothing of it can be read. */
bool naos_sealed_is_unborn(int fd);

/* Whether the copy in the attribute is that of a slot of page 0, and nothing of either is damaged or missing. */
bool naos_sealed_copies_agree(const struct naos_sealed_info *info);

#endif
