/* Operations as words: how scripts are written down, and random ones.
 *   w5 w5-9      write chunk 5, chunks 5 to 9        w5+100,50  write 50 bytes from byte 100 of chunk 5
 *   p5 p5-9 p5+100,50  punch the same ranges         z5 z5-9 z5+100,50  zero them, also behind the end
 *   t5 t5+100  set the size to 5 chunks (and 100 bytes)
 *   f flush   s one step of sealing, then a flush by others
 *   c seal and close   l close unsealed   o open   x power cut, open   k the process is killed, open
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_CRASH_OPS_H
#define NAOS_TESTS_CRASH_OPS_H

#include "disk.h"
#include "oracle.h"

/* x and k leave *ret alone: the letter is the answer.  0 if the word is none. */
char op_parse(const char *word, uint8_t fill, struct op *ret);
/* A change or flush of a file of this size, near the borders of sectors and groups. */
struct op op_random(struct rng *rng, uint64_t size, uint64_t max_chunks);

#endif
