# SPDX-License-Identifier: Apache-2.0
"""Where things lie in a sealed file: docs/formats/sealed-file.md, section 2."""
CHUNK = 4096
GROUP_CHUNKS = 48
GROUP0_CHUNKS = 18
MAP_GROUPS = 31744


def group_of(chunk):
    return 0 if chunk < GROUP0_CHUNKS else 1 + (chunk - GROUP0_CHUNKS) // GROUP_CHUNKS


def first_chunk(group):
    return 0 if group == 0 else GROUP0_CHUNKS + (group - 1) * GROUP_CHUNKS


def map_page(number):
    return 19 + number * (MAP_GROUPS * 49 + 1)


def tag_page(group):
    return 0 if group == 0 else map_page((group - 1) // MAP_GROUPS) + 1 + (group - 1) % MAP_GROUPS * 49


def chunk_page(chunk):
    group = group_of(chunk)
    return tag_page(group) + 1 + chunk - first_chunk(group)


def sector_offset(group, place):
    return (2560 if group == 0 else 4096 * tag_page(group)) + 512 * place


def physical_size(size):
    last = (size - 1) // CHUNK
    return 4096 * chunk_page(last) + size - last * CHUNK if size else 4096
