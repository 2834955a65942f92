/* What the kernels' source is written in: CUDA, or (without nvcc) the emulation on a CPU that tests/gpu/emulate.h gives.
 *
 * The kernels are C that both compilers take.  Every table, every branch and every address in them depends on lengths and
 * positions only, never on keys or data, but for the rows of tables in shared memory; of these each lane has a copy in banks of its
 * own (README.md, "Timing").
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_ENGINE_CUDA_DEVICE_H
#define NAOS_ENGINE_CUDA_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

/* How GHASH is computed, and how many of the four AES tables lie in shared memory (the others are rotations): by chip.
 * Chips without binary tensor cores (before 8.0, and from 10.0 on, where they are emulated) multiply by tables. */
#define HASH_WGMMA 1    /* 9.0: wgmma, matrices in shared memory */
#define HASH_MMA 2      /* 8.x: mma.sync */
#define HASH_TABLE 3    /* one table of 8 bits, a copy for each of 8 lanes */
#define HASH_MULTIPLY 4 /* integer multiplications; no shared memory */

#ifdef __CUDACC__

#define DEVICE static __device__ __forceinline__
#define CONSTANT static __constant__
#if defined(__CUDA_ARCH__)
#if __CUDA_ARCH__ == 900
#ifndef __CUDA_ARCH_FEAT_SM90_ALL
#error "compile for sm_90a: wgmma is not in plain sm_90"
#endif
#define HASH HASH_WGMMA
#define TABLES 4
#elif __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 870
#define HASH HASH_MMA
#define TABLES 4
#elif __CUDA_ARCH__ > 800 && __CUDA_ARCH__ < 900
#define HASH HASH_MMA
#define TABLES 2
#elif __CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1200
#define HASH HASH_TABLE
#define TABLES 4
#elif __CUDA_ARCH__ >= 1200
#define HASH HASH_TABLE
#define TABLES 2
#else
#define HASH HASH_MULTIPLY
#define TABLES 1
#endif
#else /* the pass for the host sees declarations only */
#define HASH HASH_MULTIPLY
#define TABLES 1
#endif

#define WARPS 16 /* of a block of the main kernel */

extern __shared__ __align__(1024) uint8_t shared_memory[];

#define THREAD threadIdx.x
#define BLOCK blockIdx.x
#define BLOCKS gridDim.x
#define THREADS blockDim.x

/* bytes of a and b (0 to 7) picked by the nibbles of s */
DEVICE uint32_t permute(uint32_t a, uint32_t b, uint32_t s)
{
	return __byte_perm(a, b, s);
}
/* (high:low) >> n, n below 32 */
DEVICE uint32_t funnel_right(uint32_t high, uint32_t low, uint32_t n)
{
	return __funnelshift_r(low, high, n);
}
DEVICE uint32_t shuffle(uint32_t value, uint32_t lane)
{
	return __shfl_sync(0xffffffffu, value, (int)lane);
}
DEVICE uint32_t shuffle_xor(uint32_t value, uint32_t mask)
{
	return __shfl_xor_sync(0xffffffffu, value, (int)mask);
}
DEVICE void block_barrier(void)
{
	__syncthreads();
}
DEVICE void warp_barrier(void)
{
	__syncwarp();
}
DEVICE void memory_fence(void)
{
	__threadfence();
}
DEVICE void atomic_xor(uint32_t *at, uint32_t value)
{
	(void)atomicXor(at, value);
}
DEVICE uint32_t atomic_add(uint32_t *at, uint32_t value)
{
	return atomicAdd(at, value);
}
/* what other blocks wrote, past the first-level cache */
DEVICE uint32_t load_shared_by_all(const uint32_t *at)
{
	return *(const volatile uint32_t *)at;
}
DEVICE uint32_t xor3(uint32_t a, uint32_t b, uint32_t c)
{
	return a ^ b ^ c;
}
/* Blocks of data are read once and written once: they stay out of the first-level cache. */
DEVICE uint4 load_block(const uint8_t *at)
{
	uint4 v;
	asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
	return v;
}
DEVICE void store_block(uint8_t *at, uint4 v)
{
	asm volatile("st.global.cs.v4.u32 [%0],{%1,%2,%3,%4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
DEVICE uint32_t shared_address(uint32_t offset)
{
	return (uint32_t)__cvta_generic_to_shared(shared_memory) + offset;
}
/* Stores to shared memory are seen by the tensor cores' own path after this and a barrier. */
DEVICE void tensor_fence(void)
{
#if HASH == HASH_WGMMA
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* d[0..3] += popcount(A and B): 16 rows, 8 columns, 256 bits between them; a lane holds rows lane/4 and lane/4 + 8. */
DEVICE void multiply_warp(int *d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
#if HASH == HASH_MMA
	asm volatile("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
		     : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
		     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}

/* The same for four warps, 64 rows and 128 columns, B in shared memory; `add` false: d = instead of d +=.  Asynchronous: the A words
 * must not change before multiply_group_wait. */
#define R4(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
DEVICE void multiply_group(int *d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int add)
{
#if HASH == HASH_WGMMA
	asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p,%69,0;\n"
		     "wgmma.mma_async.sync.aligned.m64n128k256.s32.b1.b1.and.popc "
		     "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
		     "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,"
		     "%58,%59,%60,%61,%62,%63},{%64,%65,%66,%67},%68,p;\n}\n"
		     : R4(0), R4(4), R4(8), R4(12), R4(16), R4(20), R4(24), R4(28), R4(32), R4(36), R4(40), R4(44), R4(48), R4(52),
		       R4(56), R4(60)
		     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add)
		     : "memory");
#endif
}
DEVICE void multiply_group_fence(void)
{
#if HASH == HASH_WGMMA
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
DEVICE void multiply_group_commit(void)
{
#if HASH == HASH_WGMMA
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
DEVICE void multiply_group_wait(void)
{
#if HASH == HASH_WGMMA
	asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}
#undef R4

#define shared_check(offset) ((void)0) /* the emulation looks at the bank */

#else /* no nvcc */
#include "emulate.h" /* also says HASH, TABLES and WARPS */
#endif

DEVICE uint32_t swap_bytes(uint32_t x)
{
	return permute(x, 0, 0x0123);
}

/* A word at a shared address; table: 0 to 3, a constant, adds 0, 128, 65536 or both. */
DEVICE uint32_t shared_load_at(uint32_t address, const int table)
{
#ifdef __CUDACC__
	uint32_t v = 0;
	if (table == 0)
		asm volatile("ld.shared.u32 %0,[%1];" : "=r"(v) : "r"(address));
	else if (table == 1)
		asm volatile("ld.shared.u32 %0,[%1+128];" : "=r"(v) : "r"(address));
	else if (table == 2)
		asm volatile("ld.shared.u32 %0,[%1+65536];" : "=r"(v) : "r"(address));
	else
		asm volatile("ld.shared.u32 %0,[%1+65664];" : "=r"(v) : "r"(address));
	return v;
#else
	uint32_t offset = address - shared_address(0) + (table & 1) * 128u + (table >> 1) * 65536u;
	shared_check(offset);
	return *(const uint32_t *)(shared_memory + offset);
#endif
}

/* Words of 32 bits in shared memory, by their offset in bytes. */
DEVICE uint32_t shared_load(uint32_t offset)
{
	shared_check(offset);
	return *(const uint32_t *)(shared_memory + offset);
}
DEVICE void shared_store(uint32_t offset, uint32_t value)
{
	*(uint32_t *)(shared_memory + offset) = value;
}

#endif
