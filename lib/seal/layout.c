/* Inverse of the layout.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/layout.h"

bool naos_layout_logical(uint64_t physical, uint64_t *ret_size)
{
	if (physical < NAOS_CHUNK_BYTES)
		return false;
	uint64_t low = 0, high = physical; /* P is strictly increasing and P(L) > L */
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		if (naos_layout_physical(middle) < physical)
			low = middle + 1;
		else
			high = middle;
	}
	if (naos_layout_physical(low) != physical)
		return false;
	*ret_size = low;
	return true;
}
