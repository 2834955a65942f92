/* Runs the kernels' own source on a CPU: every CUDA thread is a fiber, which goes on until it reaches a barrier or a shuffle.
 * The tensor cores' products are made bit by bit from the documented layouts of their operands (PTX ISA, "Matrix fragments for
 * mma.m16n8k256" and "wgmma", shared memory matrices without swizzle).
 * HASH, TABLES and WARPS come from the compiler's command line.  One thread of the CPU.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_GPU_EMULATE_H
#define NAOS_TESTS_GPU_EMULATE_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define DEVICE static inline __attribute__((always_inline, unused))
#define CONSTANT static
typedef struct {
	uint32_t x, y;
} __attribute__((aligned(8))) uint2;
typedef struct {
	uint32_t x, y, z, w;
} __attribute__((aligned(16))) uint4;

#define EMULATED_THREADS 512
#define FIBER_BYTES ((size_t)128 << 10)

struct barrier {
	uint32_t here, generation;
};

static struct {
	uint32_t thread, block, blocks, threads;
	jmp_buf main, fibers[EMULATED_THREADS];
	ucontext_t first, back;
	bool started[EMULATED_THREADS], done[EMULATED_THREADS];
	struct barrier *waits[EMULATED_THREADS], of_block, of_warp[EMULATED_THREADS / 32], of_group[EMULATED_THREADS / 128];
	uint32_t generation[EMULATED_THREADS];
	void (*kernel)(const void *arguments);
	const void *arguments;
	uint8_t *stacks;
	uint32_t tables, tables_bytes; /* place of tables in shared memory that each lane must read in its own bank */
	uint32_t words[EMULATED_THREADS], a[EMULATED_THREADS][4], b[EMULATED_THREADS][2];
} emulated;
static uint8_t shared_memory[256 << 10] __attribute__((aligned(1024)));

#define THREAD emulated.thread
#define BLOCK emulated.block
#define BLOCKS emulated.blocks
#define THREADS emulated.threads

static inline void emulated_wait(struct barrier *barrier, uint32_t threads)
{
	const uint32_t me = emulated.thread;
	if (++barrier->here == threads) {
		barrier->here = 0;
		barrier->generation++;
		return;
	}
	emulated.waits[me] = barrier;
	emulated.generation[me] = barrier->generation;
	if (_setjmp(emulated.fibers[me]) == 0)
		_longjmp(emulated.main, 1);
}

static void emulated_fiber(void)
{
	emulated.kernel(emulated.arguments);
	emulated.done[emulated.thread] = true;
	_longjmp(emulated.main, 1);
}

/* Runs one thread until it waits or ends. */
static void emulated_resume(uint32_t thread)
{
	emulated.thread = thread;
	emulated.waits[thread] = NULL;
	if (_setjmp(emulated.main) != 0)
		return;
	if (emulated.started[thread])
		_longjmp(emulated.fibers[thread], 1);
	emulated.started[thread] = true;
	(void)getcontext(&emulated.first);
	emulated.first.uc_stack.ss_sp = emulated.stacks + FIBER_BYTES * thread;
	emulated.first.uc_stack.ss_size = FIBER_BYTES;
	emulated.first.uc_link = NULL;
	makecontext(&emulated.first, emulated_fiber, 0);
	(void)swapcontext(&emulated.back, &emulated.first);
}

static void emulated_block(uint32_t block)
{
	emulated.block = block;
	memset(emulated.started, 0, sizeof(emulated.started));
	memset(emulated.done, 0, sizeof(emulated.done));
	memset(&emulated.of_block, 0, sizeof(emulated.of_block));
	memset(emulated.of_warp, 0, sizeof(emulated.of_warp));
	memset(emulated.of_group, 0, sizeof(emulated.of_group));
	memset(shared_memory, 0x5a, sizeof(shared_memory)); /* what a kernel before may have left */
	for (bool left = true; left;) {
		bool ran = false;
		left = false;
		for (uint32_t t = 0; t < emulated.threads; t++) {
			if (emulated.done[t])
				continue;
			left = true;
			if (emulated.started[t] && emulated.waits[t] && emulated.waits[t]->generation == emulated.generation[t])
				continue;
			emulated_resume(t);
			ran = true;
		}
		if (left && !ran) {
			fprintf(stderr, "emulated kernel: threads wait for each other for ever\n");
			abort();
		}
	}
}

static inline void emulated_launch(uint32_t blocks, uint32_t threads, void (*kernel)(const void *), const void *arguments)
{
	emulated.stacks = malloc(FIBER_BYTES * threads);
	if (!emulated.stacks)
		abort();
	emulated.blocks = blocks;
	emulated.threads = threads;
	emulated.kernel = kernel;
	emulated.arguments = arguments;
	for (uint32_t block = 0; block < blocks; block++)
		emulated_block(block);
	free(emulated.stacks);
}

/* The promise that no lookup's time depends on data: lane n reads bank n. */
static inline void shared_check(uint32_t offset)
{
	if (offset - emulated.tables < emulated.tables_bytes && offset / 4 % 32 != emulated.thread % 32) {
		fprintf(stderr, "emulated kernel: lane %u reads a table in bank %u\n", emulated.thread % 32, offset / 4 % 32);
		abort();
	}
}

/* --- what kernels call -------------------------------------------------------------------------------------------------------- */

DEVICE uint32_t permute(uint32_t a, uint32_t b, uint32_t s)
{
	uint64_t bytes = (uint64_t)b << 32 | a;
	return (uint32_t)(bytes >> 8 * (s & 7) & 255) | (uint32_t)(bytes >> 8 * (s >> 4 & 7) & 255) << 8 |
	       (uint32_t)(bytes >> 8 * (s >> 8 & 7) & 255) << 16 | (uint32_t)(bytes >> 8 * (s >> 12 & 7) & 255) << 24;
}
DEVICE uint32_t funnel_right(uint32_t high, uint32_t low, uint32_t n)
{
	return (uint32_t)(((uint64_t)high << 32 | low) >> (n & 31));
}
static inline struct barrier *emulated_warp(void)
{
	return &emulated.of_warp[emulated.thread / 32];
}
DEVICE void warp_barrier(void)
{
	emulated_wait(emulated_warp(), 32);
}
static inline uint32_t shuffle(uint32_t value, uint32_t lane)
{
	emulated.words[emulated.thread] = value;
	warp_barrier();
	uint32_t got = emulated.words[(emulated.thread & ~31u) + (lane & 31)];
	warp_barrier();
	return got;
}
DEVICE uint32_t shuffle_xor(uint32_t value, uint32_t mask)
{
	return shuffle(value, (emulated.thread & 31) ^ mask);
}
DEVICE void block_barrier(void)
{
	emulated_wait(&emulated.of_block, emulated.threads);
}
DEVICE void memory_fence(void)
{
}
DEVICE void atomic_xor(uint32_t *at, uint32_t value)
{
	*at ^= value;
}
DEVICE uint32_t atomic_add(uint32_t *at, uint32_t value)
{
	uint32_t before = *at;
	*at += value;
	return before;
}
DEVICE uint32_t load_shared_by_all(const uint32_t *at)
{
	return *at;
}
DEVICE uint32_t xor3(uint32_t a, uint32_t b, uint32_t c)
{
	return a ^ b ^ c;
}
DEVICE uint4 load_block(const uint8_t *at)
{
	if ((uintptr_t)at & 15)
		abort(); /* the chip would too */
	return *(const uint4 *)at;
}
DEVICE void store_block(uint8_t *at, uint4 v)
{
	if ((uintptr_t)at & 15)
		abort();
	*(uint4 *)at = v;
}
DEVICE uint32_t shared_address(uint32_t offset)
{
	return 1024 + offset; /* as on the chips that keep the first KiB for themselves */
}
DEVICE void tensor_fence(void)
{
}

/* mma.m16n8k256: A word (row, slice) of rows g and g + 8 in lane 4 g + slice; B word (column, slice) in lane 4 column + slice */
static inline void multiply_warp(int *d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
	const uint32_t lane = emulated.thread & 31, base = emulated.thread & ~31u, a[4] = { a0, a1, a2, a3 };
	memcpy(emulated.a[emulated.thread], a, sizeof(a));
	emulated.b[emulated.thread][0] = b0;
	emulated.b[emulated.thread][1] = b1;
	warp_barrier();
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
		for (uint32_t k = 0; k < 8; k++)
			d[i] += __builtin_popcount(emulated.a[base + row % 8 * 4 + k % 4][row / 8 + 2 * (k / 4)] &
						   emulated.b[base + column * 4 + k % 4][k / 4]);
	}
	warp_barrier();
}

/* wgmma.m64n128k256: A as above, 16 rows a warp; B: columns of 128 bits in groups of 8, `step` to the next group, `half` to the
 * second 128 bits */
static inline void multiply_group(int *d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int add)
{
	const uint32_t lane = emulated.thread & 31, base = emulated.thread & ~31u, a[4] = { a0, a1, a2, a3 };
	const uint32_t at = (uint32_t)(b & 0x3fff) << 4, half = (uint32_t)(b >> 16 & 0x3fff) << 4, step = (uint32_t)(b >> 32 & 0x3fff) << 4;
	struct barrier *group = &emulated.of_group[emulated.thread / 128];
	memcpy(emulated.a[emulated.thread], a, sizeof(a));
	emulated_wait(group, 128);
	for (uint32_t i = 0; i < 64; i++) {
		uint32_t row = lane / 4 + 8 * (i % 4 / 2), column = i / 4 * 8 + lane % 4 * 2 + i % 2;
		int sum = add ? d[i] : 0;
		for (uint32_t k = 0; k < 8; k++) {
			uint32_t word;
			memcpy(&word, shared_memory - 1024 + at + k / 4 * half + column / 8 * step + column % 8 * 16 + k % 4 * 4, 4);
			sum += __builtin_popcount(word & emulated.a[base + row % 8 * 4 + k % 4][row / 8 + 2 * (k / 4)]);
		}
		d[i] = sum;
	}
	emulated_wait(group, 128);
}
DEVICE void multiply_group_fence(void)
{
}
DEVICE void multiply_group_commit(void)
{
}
DEVICE void multiply_group_wait(void)
{
}

#endif
