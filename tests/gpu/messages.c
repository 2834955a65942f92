/* Messages of random length, place, key and associated data through a plug-in, beside OpenSSL: the same bytes, a wrong
 * tag leaves zeros, and nothing is written beside the output.
 *
 * Usage: messages PLUGIN MESSAGES LONGEST [SEED]
 * SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include <time.h>

#define BATCH 256u
#define MARGIN 64u /* bytes around an output that must stay */
#define MOST_ASSOCIATED 200u

struct message {
	uint64_t bytes, associated_bytes;
	uint64_t in, out, back; /* places in the device's memory */
	uint8_t *plain, *sealed, associated[MOST_ASSOCIATED];
	uint8_t nonce[12], j0[16], tag[16];
	uint32_t key;
	bool any_counter; /* j0 is not of a nonce */
};

static struct {
	uint64_t messages, bytes, in_place, misaligned, other_counters, forged;
} counts;

static uint32_t sweep; /* if not 0: the next message has so many blocks */

static uint64_t some_length(uint64_t *seed, uint64_t longest)
{
	static const uint64_t edges[] = { 0,   1,   15,  16,  17,   31,   32,   33,    255,   256,
					  257, 511, 512, 513, 4095, 4096, 4097, 16384, 65536, 131072 };
	uint64_t r = next_random(seed);
	if (sweep)
		return 16 * (uint64_t)sweep++;
	switch (r % 4) {
	case 0:
		r = edges[r / 4 % (sizeof(edges) / sizeof(*edges))] + next_random(seed) % 3;
		break;
	case 1:
		r = next_random(seed) % 600;
		break;
	default:
		r = next_random(seed) % ((uint64_t)1 << (1 + next_random(seed) % 24));
	}
	return r > longest ? r % (longest + 1) : r;
}

static void describe(const struct message *m, uint64_t in, uint64_t out, uint8_t *memory, struct naos_cuda_segment *ret)
{
	*ret = (struct naos_cuda_segment){ .in = memory + in, .out = memory + out, .bytes = m->bytes, .associated = m->associated,
					   .associated_bytes = m->associated_bytes, .key = m->key };
	memcpy(ret->j0, m->j0, 16);
	memcpy(ret->tag, m->tag, 16);
}

static void make(uint64_t *seed, struct message *m, const uint8_t *keys, uint32_t key_bytes, uint32_t key_count, uint64_t longest,
		 uint64_t *place)
{
	m->bytes = some_length(seed, longest);
	m->associated_bytes = next_random(seed) % 3 ? next_random(seed) % MOST_ASSOCIATED : 0;
	m->key = (uint32_t)(next_random(seed) % key_count);
	m->plain = malloc(m->bytes + 16);
	m->sealed = malloc(m->bytes + 16);
	check(m->plain && m->sealed);
	fill_random(seed, m->plain, m->bytes);
	fill_random(seed, m->associated, m->associated_bytes);
	fill_random(seed, m->nonce, 12);
	const uint8_t *key = keys + (size_t)m->key * key_bytes;
	m->any_counter = m->bytes < 20000 && next_random(seed) % 8 == 0;
	if (m->any_counter) {
		uint32_t near_wrap = (uint32_t)(0 - next_random(seed) % (m->bytes / 16 + 2));
		if (next_random(seed) % 2)
			near_wrap = (uint32_t)next_random(seed);
		memcpy(m->j0, m->nonce, 12);
		for (int i = 0; i < 4; i++)
			m->j0[12 + i] = (uint8_t)(near_wrap >> 8 * (3 - i));
		reference_seal_j0(key, key_bytes, m->j0, m->associated, m->associated_bytes, m->plain, m->sealed, m->bytes, m->tag);
		counts.other_counters++;
	} else {
		reference_j0(key, key_bytes, m->nonce, 12, m->j0);
		reference_seal(key, key_bytes, m->nonce, m->associated, m->associated_bytes, m->plain, m->sealed, m->bytes, m->tag);
	}
	bool aligned = next_random(seed) % 2, in_place = next_random(seed) % 2;
	uint64_t *const places[3] = { &m->in, &m->out, &m->back };
	for (unsigned i = 0; i < 3; i++) {
		if (in_place && i == 1) {
			m->out = m->in;
			continue;
		}
		*place = (*place + MARGIN + 15) / 16 * 16;
		*places[i] = *place + (aligned ? 0 : next_random(seed) % 16);
		*place = *places[i] + m->bytes + MARGIN;
	}
	counts.messages++;
	counts.bytes += m->bytes;
	counts.in_place += in_place;
	counts.misaligned += ((m->in | m->out | m->back) & 15) != 0;
}

static bool zeros(const uint8_t *at, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (at[i])
			return false;
	return true;
}

/* One batch: sealed, opened, and opened after something was changed in every third. */
static void batch(uint64_t *seed, uint32_t count, uint32_t key_bytes, uint32_t key_count, uint64_t longest, struct naos_cuda_lane *lane)
{
	static struct message messages[BATCH];
	static struct naos_cuda_segment segments[BATCH];
	static uint8_t keys[32 * BATCH];
	uint64_t place = 0;
	void *memory;
	fill_random(seed, keys, (size_t)key_bytes * key_count);
	for (uint32_t i = 0; i < count; i++)
		make(seed, &messages[i], keys, key_bytes, key_count, longest, &place);
	place += MARGIN;
	uint8_t *before = malloc(place), *after = malloc(place);
	check(before && after);
	check_cuda(table->memory(cuda, place, &memory, &reason));
	fill_random(seed, before, place);
	for (uint32_t i = 0; i < count; i++)
		memcpy(before + messages[i].in, messages[i].plain, messages[i].bytes);
	check_cuda(table->keys(lane, key_bytes, keys, key_count, &reason));
	check_cuda(table->copy(lane, memory, before, place, &reason));

	/* seal */
	for (uint32_t i = 0; i < count; i++) {
		describe(&messages[i], messages[i].in, messages[i].out, memory, &segments[i]);
		memset(segments[i].tag, 0xee, 16);
	}
	check_cuda(table->run(lane, 1, segments, count, &reason));
	check_cuda(table->copy(lane, after, memory, place, &reason));
	check_cuda(table->wait(lane, &reason));
	for (uint32_t i = 0; i < count; i++) {
		const struct message *m = &messages[i];
		if (memcmp(segments[i].tag, m->tag, 16) != 0 || memcmp(after + m->out, m->sealed, m->bytes) != 0) {
			fprintf(stderr, "message %u of %llu bytes, %llu associated, in %llu out %llu (mod 16), key %u of %u: %s differs\n", i,
				(unsigned long long)m->bytes, (unsigned long long)m->associated_bytes, (unsigned long long)m->in % 16,
				(unsigned long long)m->out % 16, m->key, key_count, memcmp(segments[i].tag, m->tag, 16) ? "tag" : "text");
			exit(1);
		}
		memcpy(before + m->out, m->sealed, m->bytes); /* the rest must be as it was */
	}
	check(memcmp(before, after, place) == 0);

	/* open; every third with a bit changed in tag, text, associated data, or as if one byte shorter */
	for (uint32_t i = 0; i < count; i++) {
		struct message *m = &messages[i];
		describe(m, m->out, m->back, memory, &segments[i]);
		if (i % 3 != 0)
			continue;
		uint64_t bit = next_random(seed);
		switch (next_random(seed) % 3) {
		case 0:
			segments[i].tag[bit / 8 % 16] ^= (uint8_t)(1 << bit % 8);
			break;
		case 1:
			if (m->bytes) {
				uint8_t *at = before + m->out + bit / 8 % m->bytes;
				*at ^= (uint8_t)(1 << bit % 8);
				check_cuda(table->copy(lane, (uint8_t *)memory + (at - before), at, 1, &reason));
				break;
			}
			segments[i].tag[0] ^= 1;
			break;
		default:
			if (m->associated_bytes)
				m->associated[bit / 8 % m->associated_bytes] ^= (uint8_t)(1 << bit % 8);
			else
				segments[i].tag[15] ^= 0x80;
		}
		counts.forged++;
	}
	check_cuda(table->run(lane, 0, segments, count, &reason));
	check_cuda(table->copy(lane, after, memory, place, &reason));
	check_cuda(table->wait(lane, &reason));
	for (uint32_t i = 0; i < count; i++) {
		const struct message *m = &messages[i];
		check(segments[i].result == (i % 3 == 0));
		if (i % 3 == 0) {
			check(zeros(after + m->back, m->bytes));
			memset(before + m->back, 0, m->bytes);
		} else {
			check(memcmp(after + m->back, m->plain, m->bytes) == 0);
			memcpy(before + m->back, m->plain, m->bytes);
		}
	}
	check(memcmp(before, after, place) == 0);
	for (uint32_t i = 0; i < count; i++) {
		free(messages[i].plain);
		free(messages[i].sealed);
	}
	table->memory_free(cuda, memory, place);
	free(before);
	free(after);
}

int main(int argc, char **argv)
{
	struct naos_cuda_lane *lane;
	struct timespec from, to;
	check(argc >= 4 && clock_gettime(CLOCK_MONOTONIC, &from) == 0);
	uint64_t left = strtoull(argv[2], NULL, 10), longest = strtoull(argv[3], NULL, 10);
	uint64_t seed = argc > 4 ? strtoull(argv[4], NULL, 10) : 1;
	table_open(argv[1]);
	check_cuda(table->lane(cuda, &lane, &reason));
	/* where the groups of 256 counters begin in a round depends on the number of blocks: every case once */
	sweep = 300;
	batch(&seed, BATCH, 16, 1, longest, lane);
	sweep = 0;
	for (unsigned turn = 0; left; turn++) {
		uint32_t count = left < BATCH ? (uint32_t)left : BATCH;
		if (turn % 3 == 0 && count > 40)
			count = 40;
		batch(&seed, count, turn & 1 ? 32 : 16, turn / 2 % 2 ? 1 + (uint32_t)(next_random(&seed) % count) : 1, longest, lane);
		left -= count;
	}
	table->lane_free(lane);
	table->close(cuda);
	check(clock_gettime(CLOCK_MONOTONIC, &to) == 0);
	printf("%llu random messages in %lld s, %llu bytes: %llu in place, %llu misaligned, %llu with a first counter of their own, "
	       "%llu forged: all as they must be\n",
	       (unsigned long long)counts.messages, (long long)(to.tv_sec - from.tv_sec), (unsigned long long)counts.bytes,
	       (unsigned long long)counts.in_place, (unsigned long long)counts.misaligned,
	       (unsigned long long)counts.other_counters, (unsigned long long)counts.forged);
	return 0;
}
