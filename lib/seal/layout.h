/* Where things lie in a sealed file (docs/formats/sealed-file.md, section 2).  Pure arithmetic.
 *
 *   page 0 | 18 chunks | map page 0 | tag page, 48 chunks | tag page, 48 chunks | … (31,744 groups) | map page 1 | …
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_LAYOUT_H
#define NAOS_SEAL_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#define NAOS_CHUNK_BYTES 4096u /* plaintext of a chunk; also a page of the file */
#define NAOS_FIRST_GROUP_CHUNKS 18u
#define NAOS_GROUP_CHUNKS 48u
#define NAOS_SECTOR_BYTES 512u
#define NAOS_SECTOR_CHUNKS 6u
#define NAOS_TAG_PAGE_SECTORS 8u
#define NAOS_FIRST_GROUP_SECTORS 3u
#define NAOS_MAP_GROUPS 31744u /* groups that one map page speaks for */

/* Logical size limit: chunk numbers and physical offsets stay far from overflow (8 EiB files do not exist below). */
#define NAOS_MAX_FILE_BYTES ((uint64_t)1 << 60)

/* Offsets in page 0. */
#define NAOS_STATE_OFFSET 512u   /* two slots of NAOS_SECTOR_BYTES */
#define NAOS_FEK_OFFSET 1536u    /* four slots of NAOS_FEK_SLOT_BYTES */
#define NAOS_FEK_SLOTS 4u
#define NAOS_FEK_SLOT_BYTES 256u
#define NAOS_FIRST_SECTORS_OFFSET 2560u

static inline uint64_t naos_layout_chunks(uint64_t size)
{
	return size / NAOS_CHUNK_BYTES + (size % NAOS_CHUNK_BYTES != 0);
}

static inline uint64_t naos_layout_group(uint64_t chunk)
{
	return chunk < NAOS_FIRST_GROUP_CHUNKS ? 0 : 1 + (chunk - NAOS_FIRST_GROUP_CHUNKS) / NAOS_GROUP_CHUNKS;
}

/* First chunk of a group. */
static inline uint64_t naos_layout_first(uint64_t group)
{
	return group == 0 ? 0 : NAOS_FIRST_GROUP_CHUNKS + (group - 1) * NAOS_GROUP_CHUNKS;
}

/* Number of the map page that speaks for a group (≥ 1), and its page in the file. */
static inline uint64_t naos_layout_map_of(uint64_t group)
{
	return (group - 1) / NAOS_MAP_GROUPS;
}

static inline uint64_t naos_layout_map_page(uint64_t map)
{
	return 1 + NAOS_FIRST_GROUP_CHUNKS + map * ((uint64_t)NAOS_MAP_GROUPS * (1 + NAOS_GROUP_CHUNKS) + 1);
}

/* Page that holds the tag sectors of a group (page 0 for group 0). */
static inline uint64_t naos_layout_tag_page(uint64_t group)
{
	if (group == 0)
		return 0;
	return naos_layout_map_page(naos_layout_map_of(group)) + 1 + (group - 1) % NAOS_MAP_GROUPS * (1 + NAOS_GROUP_CHUNKS);
}

/* The first map page at or behind a page of the file. */
static inline uint64_t naos_layout_map_from(uint64_t page)
{
	uint64_t per_map = (uint64_t)NAOS_MAP_GROUPS * (1 + NAOS_GROUP_CHUNKS) + 1, first = naos_layout_map_page(0);
	return page <= first ? 0 : (page - first + per_map - 1) / per_map;
}

/* The group that a page of the file belongs to; the one behind it for a map page. */
static inline uint64_t naos_layout_group_of_page(uint64_t page)
{
	if (page < naos_layout_map_page(0))
		return 0;
	uint64_t per_map = (uint64_t)NAOS_MAP_GROUPS * (1 + NAOS_GROUP_CHUNKS) + 1, at = page - naos_layout_map_page(0);
	uint64_t in_map = at % per_map;
	return at / per_map * NAOS_MAP_GROUPS + 1 + (in_map ? (in_map - 1) / (1 + NAOS_GROUP_CHUNKS) : 0);
}

static inline uint64_t naos_layout_data_page(uint64_t chunk)
{
	uint64_t group = naos_layout_group(chunk);
	return naos_layout_tag_page(group) + 1 + chunk - naos_layout_first(group);
}

static inline uint64_t naos_layout_data_offset(uint64_t chunk)
{
	return naos_layout_data_page(chunk) * NAOS_CHUNK_BYTES;
}

/* The tag sector of a chunk: its number (8 · group + place) and its byte offset in the file. */
static inline uint64_t naos_layout_sector(uint64_t chunk)
{
	uint64_t group = naos_layout_group(chunk);
	return NAOS_TAG_PAGE_SECTORS * group + (chunk - naos_layout_first(group)) / NAOS_SECTOR_CHUNKS;
}

static inline uint64_t naos_layout_sector_offset(uint64_t sector)
{
	uint64_t group = sector / NAOS_TAG_PAGE_SECTORS, place = sector % NAOS_TAG_PAGE_SECTORS;
	uint64_t base = group == 0 ? NAOS_FIRST_SECTORS_OFFSET : naos_layout_tag_page(group) * NAOS_CHUNK_BYTES;
	return base + place * NAOS_SECTOR_BYTES;
}

/* First chunk of a sector. */
static inline uint64_t naos_layout_sector_chunk(uint64_t sector)
{
	return naos_layout_first(sector / NAOS_TAG_PAGE_SECTORS) + sector % NAOS_TAG_PAGE_SECTORS * NAOS_SECTOR_CHUNKS;
}

/* Groups [group, limit) or as many of them as no map page lies between: the group behind them, and their bytes in the file. */
static inline uint64_t naos_layout_run(uint64_t group, uint64_t limit, uint64_t *ret_from, uint64_t *ret_to)
{
	uint64_t end = 1 + (naos_layout_map_of(group) + 1) * NAOS_MAP_GROUPS;
	end = end < limit ? end : limit;
	*ret_from = naos_layout_tag_page(group) * NAOS_CHUNK_BYTES;
	*ret_to = (naos_layout_tag_page(end - 1) + 1 + NAOS_GROUP_CHUNKS) * NAOS_CHUNK_BYTES;
	return end;
}

/* P(L): size of the file that holds L bytes of plaintext, without metadata behind the last chunk. */
static inline uint64_t naos_layout_physical(uint64_t size)
{
	if (size == 0)
		return NAOS_CHUNK_BYTES;
	uint64_t last = naos_layout_chunks(size) - 1;
	return naos_layout_data_offset(last) + (size - last * NAOS_CHUNK_BYTES);
}

/* Inverse of P for clean files: the size that a physical size stands for; false if no size does.  Needs no key. */
bool naos_layout_logical(uint64_t physical, uint64_t *ret_size);

#endif
