/* cmocka in the order that it needs its headers, and a helper that prints the error object of a failed call.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_UNIT_H
#define NAOS_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/errors.h"

/* The call must succeed; otherwise its sentence is shown. */
#define assert_ok(call, err) \
	do { \
		(err)->message[0] = 0; \
		int rc_ = (call); \
		if (rc_ != 0) \
			fail_msg("%s: code %d: %s", #call, rc_, (err)->message); \
	} while (0)

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#define UNDER_ADDRESS_SANITIZER __has_feature(address_sanitizer)
#else
#define UNDER_ADDRESS_SANITIZER 0
#endif

/* The call must fail with this code. */
#define assert_code(call, expected) assert_int_equal((call), (expected))

#endif
