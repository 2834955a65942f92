/* Files that a holder of the key made to harm: authentic, but with numbers at the edge.  Every call must end soon, with an error or
 * without; nothing may overflow (run under sanitizers).  SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "fail.h"
#include "seal/page0.h"
#include "seal/tagsector.h"

struct target {
	struct checker checker;
	struct disk *disk;
	struct naos_file_keys *keys;
	const uint8_t *header;
};

static void make(struct target *target, uint64_t bytes)
{
	const struct op ops[] = { { .kind = OP_WRITE, .bytes = bytes, .fill = 7 }, { .kind = OP_SEAL } };
	struct naos_sealed_header header;
	checker_init(&target->checker, 1);
	target->checker.quiet = true;
	target->disk = disk_new();
	struct naos_sealed_file *file = checker_create(&target->checker, target->disk, NAOS_SEALED_LOCAL);
	for (unsigned i = 0; i < 2; i++)
		(void)checker_do(&target->checker, &file, target->disk, &ops[i], false);
	target->header = target->disk->now.pages[0];
	if (naos_header_decode(target->header, &header, NULL) != 0 ||
	    naos_file_keys_create(header.algorithm, &header.file_id, &header.fileset_id, target->checker.key.fek, &target->keys, NULL) != 0)
		violation("cannot derive the keys");
}

static void drop(struct target *target)
{
	(void)naos_file_keys_free(target->keys);
	disk_free(target->disk);
	checker_free(&target->checker);
}

static void put(struct target *target, uint64_t offset, const uint8_t *data, size_t bytes)
{
	struct naos_store *store = disk_store(target->disk);
	if (store->ops->write(store, data, bytes, offset, NULL) != 0)
		violation("write");
	store->ops->close(store);
}

/* Puts an authentic state in one slot and its predecessor (or nothing, if the state is clean) in the other. */
static void put_state(struct target *target, const struct naos_state *state)
{
	uint8_t slot[NAOS_SECTOR_BYTES];
	struct naos_state before = *state;
	before.seq--;
	if (naos_state_encode(target->keys, target->header, state, slot, NULL) != 0)
		violation("encode");
	put(target, naos_state_offset(state->seq), slot, sizeof(slot));
	if (naos_state_encode(target->keys, target->header, &before, slot, NULL) != 0)
		violation("encode");
	if (state->clean)
		memset(slot, 0, sizeof(slot));
	put(target, naos_state_offset(before.seq), slot, sizeof(slot));
}

static void put_sector(struct target *target, uint64_t sector, const struct naos_sector *in)
{
	uint8_t bytes[NAOS_SECTOR_BYTES];
	if (naos_sector_encode(target->keys, sector, in, bytes, NULL) != 0)
		violation("encode");
	put(target, naos_layout_sector_offset(sector), bytes, sizeof(bytes));
}

static struct naos_state state_of(uint64_t seq, uint32_t epoch, uint32_t sealed_epoch, uint64_t size, uint64_t durable_size)
{
	return (struct naos_state){ .seq = seq, .epoch = epoch, .sealed_epoch = sealed_epoch, .size = size, .durable_size = durable_size,
				    .key_generation = 1, .clean = epoch == sealed_epoch };
}

/* Everything that a caller can do; results don't matter, coming back does. */
static void use(struct target *target, const char *what)
{
	static const enum naos_sealed_mode modes[] = { NAOS_SEALED_READ, NAOS_SEALED_LOCAL, NAOS_SEALED_SHARED };
	const struct naos_fek_source source = test_key_source(&target->checker.key);
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(modes); i++) {
		uint8_t buffer[20000];
		uint64_t start, end;
		size_t got;
		int results[12] = { 0 }, *result = results;
		struct naos_sealed_file *file;
		struct disk *disk = disk_copy(target->disk);
		fail_at("%s, mode %u", what, i);
		(void)alarm(60); /* a hang ends the test */
		*result = naos_sealed_file_open(disk_store(disk), modes[i], &source, &file, NULL);
		if (*result++ == 0) {
			uint64_t size = naos_sealed_file_size(file);
			*result++ = naos_sealed_file_read(file, buffer, sizeof(buffer), 0, &got, NULL);
			*result++ = naos_sealed_file_read(file, buffer, sizeof(buffer), size > 9000 ? size - 9000 : size, &got, NULL);
			*result++ = naos_sealed_file_next_data(file, 0, &start, &end, NULL);
			*result++ = naos_sealed_file_verify(file, NULL);
			*result++ = naos_sealed_file_write(file, buffer, 5000, 3, NULL);
			*result++ = naos_sealed_file_flush(file, NULL);
			*result++ = naos_sealed_file_punch(file, 4096, 8192, NULL);
			*result++ = naos_sealed_file_truncate(file, 3 * 4096 + 7, NULL);
			*result++ = naos_sealed_file_close(file, true, NULL);
		}
		disk_free(disk);
		(void)alarm(0);
		printf("%s, mode %u:", what, i);
		for (const int *at = results; at < result; at++)
			printf(" %d", *at);
		printf("\n");
	}
}

int main(void)
{
	struct target target;
	const uint64_t huge = NAOS_MAX_FILE_BYTES;
	(void)setvbuf(stdout, NULL, _IOLBF, 0);

	make(&target, 5 * NAOS_CHUNK_BYTES);
	struct naos_state state = state_of(9, 5, 4, huge, huge);
	put_state(&target, &state);
	use(&target, "unclean, durable size of 2^60, a file of 6 pages");
	target.disk->now.bytes = naos_layout_physical(huge);
	use(&target, "unclean, durable size of 2^60, a sparse file of 2^60 bytes");
	state = state_of(9, 5, 5, huge, huge);
	state.sparse = true;
	put_state(&target, &state);
	use(&target, "clean, 2^60 bytes, sparse");
	drop(&target);

	make(&target, 5 * NAOS_CHUNK_BYTES);
	state = state_of(9, 5, 4, huge, 0);
	put_state(&target, &state);
	use(&target, "unclean, size of 2^60, nothing durable");
	state = state_of(UINT64_MAX, 5, 4, 20480, 20480);
	put_state(&target, &state);
	use(&target, "the last sequence number");
	state = state_of(9, UINT32_MAX, UINT32_MAX, 20480, 20480);
	put_state(&target, &state);
	use(&target, "the last epoch");
	state.key_generation = UINT32_MAX;
	put_state(&target, &state);
	use(&target, "the last generation of keys");
	drop(&target);

	make(&target, 5 * NAOS_CHUNK_BYTES);
	struct naos_sector sector = { .absent = false };
	for (unsigned i = 0; i < NAOS_SECTOR_CHUNKS; i++)
		sector.entries[i][1] = (struct naos_entry){
			.nonce = { 1 }, .epoch = 1, .seq = UINT32_MAX, .length = i % 2 ? NAOS_CHUNK_BYTES : 1, .hole = true,
		};
	for (uint64_t i = 0; i < 3; i++)
		put_sector(&target, i, &sector);
	use(&target, "every version is the last one");
	state = state_of(9, 2, 0, 20480, 0);
	put_state(&target, &state);
	use(&target, "the same, unclean");
	drop(&target);

	make(&target, 5 * NAOS_CHUNK_BYTES);
	uint8_t bits[NAOS_MAP_BYTES], page[NAOS_CHUNK_BYTES];
	memset(bits, 0xff, sizeof(bits));
	for (uint64_t map = 0; map < 8; map++) { /* about 47 GiB of holes */
		if (naos_map_encode(target.keys, map, bits, page, NULL) != 0)
			violation("encode");
		put(&target, naos_layout_map_page(map) * NAOS_CHUNK_BYTES, page, sizeof(page));
	}
	state = state_of(9, 5, 4, huge, 0);
	state.shared = true;
	put_state(&target, &state);
	use(&target, "unclean, size of 2^60, eight full map pages");
	drop(&target);
	printf("every call came back\n");
	return 0;
}
