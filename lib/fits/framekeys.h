/* Keys of a frame: from the header key and the data key follow those that encrypt, and their commitments (docs/formats/frame.md,
 * section 4).  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_FRAMEKEYS_H
#define NAOS_FITS_FRAMEKEYS_H

#include "fits/container.h"

#define NAOS_FRAME_KEY_BYTES 32u      /* of a key that is made for a frame; 16 or 32 are taken */
#define NAOS_FRAME_ASSOCIATED_BYTES 88u

/* Derives the commitment of a key of 16 or 32 bytes and, if ret is not NULL, the AES key of its part: of its segments (version 2) or of
 * its one message (version 1).  The caller frees *ret. */
int naos_frame_key_derive(const struct naos_frame_manifest *manifest, enum naos_frame_part part, const struct naos_secret *key,
			  uint8_t ret_commit[static NAOS_FRAME_COMMIT_BYTES], struct naos_secret **ret,
			  struct naos_error *err) naos_must_check;

/* What a segment's tag speaks for besides its bytes. */
void naos_frame_associated(const struct naos_frame_manifest *manifest, const struct naos_frame_row *row, uint64_t total,
			   uint8_t ret[static NAOS_FRAME_ASSOCIATED_BYTES]);

#endif
