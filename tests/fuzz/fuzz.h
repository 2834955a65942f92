/* The entry that libFuzzer and run_seeds.c call.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_FUZZ_H
#define NAOS_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#endif
