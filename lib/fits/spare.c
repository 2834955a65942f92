/* SPDX-License-Identifier: Apache-2.0 */
#include "fits/spare.h"

#include <string.h>
#include <sys/xattr.h>

#define ATTRIBUTE "user.naos.keys"

bool frame_spare_read(int fd, uint8_t ret[static NAOS_FRAME_KEYS_BYTES])
{
	uint8_t value[NAOS_FRAME_KEYS_BYTES + 1];
	if (fgetxattr(fd, ATTRIBUTE, value, sizeof(value)) != (ssize_t)NAOS_FRAME_KEYS_BYTES)
		return false;
	memcpy(ret, value, NAOS_FRAME_KEYS_BYTES);
	return true;
}

bool frame_spare_write(int fd, const uint8_t slots[static NAOS_FRAME_KEYS_BYTES])
{
	return fsetxattr(fd, ATTRIBUTE, slots, NAOS_FRAME_KEYS_BYTES, 0) == 0;
}

void frame_spare_remove(int fd)
{
	(void)!fremovexattr(fd, ATTRIBUTE);
}
