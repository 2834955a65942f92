/* The spare copy of a frame's wrapped keys, in an extended attribute while those in the frame are replaced (docs/formats/frame.md,
 * section 7).  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FITS_SPARE_H
#define NAOS_FITS_SPARE_H

#include "fits/container.h"

/* False: there is none. */
bool frame_spare_read(int fd, uint8_t ret[static NAOS_FRAME_KEYS_BYTES]);
/* False, with errno: the file system takes none. */
bool frame_spare_write(int fd, const uint8_t slots[static NAOS_FRAME_KEYS_BYTES]);
void frame_spare_remove(int fd);

#endif
