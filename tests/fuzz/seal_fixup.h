/* Makes parts of a sealed file authentic, whatever they say, with a fixed FEK: a fuzzer that gets past every MAC is a malicious
 * holder of the key.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_SEAL_FIXUP_H
#define NAOS_TESTS_SEAL_FIXUP_H

#include "seal/filekeys.h"
#include "seal/layout.h"

#define FIXUP_FEK_BYTE 0x0b /* that of the golden file unclean-overwritten */
#define FIXUP_SECTOR 1      /* number that the record target gives its sector */
#define FIXUP_MAP 0

struct naos_secret *fixup_fek(void);
struct naos_file_keys *fixup_keys(enum naos_algorithm algorithm, const struct naos_uuid *file_id, const struct naos_uuid *fileset_id);

/* Each of these keeps all fields as they are. */
void fixup_states(struct naos_file_keys *keys, uint8_t *page); /* both slots of a page 0; an all-zero one stays empty */
void fixup_fek_slot(struct naos_file_keys *keys, const struct naos_uuid *file_id, uint8_t *slot);
void fixup_sector(struct naos_file_keys *keys, uint64_t sector, uint8_t *raw);
void fixup_map(struct naos_file_keys *keys, uint64_t map, uint8_t *page);

/* A whole file: commitment, states, FEK slots, the newest version of each chunk (its page is taken as text), sectors, maps. */
void fixup_file(uint8_t *data, size_t bytes);

#endif
