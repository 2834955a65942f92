/* The policy engine: (attributes of subject and object, time) -> access level, and the rules that decided.
 *
 * A policy is a text (docs/formats/policy.md), checked and compiled when it is loaded into one block of memory that never changes.
 * A decision reads that block and the request, and nothing else: it allocates nothing, has no loop that a request can lengthen
 * beyond limits.h, and may run in any number of threads at once.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_POLICY_POLICY_H
#define NAOS_POLICY_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/errors.h"
#include "policy/limits.h"

/* metadata-only and pixels-only are both above denied and below full; neither is above the other. */
enum naos_access_level {
	NAOS_ACCESS_DENIED,
	NAOS_ACCESS_METADATA_ONLY,
	NAOS_ACCESS_PIXELS_ONLY,
	NAOS_ACCESS_FULL,
};
#define NAOS_ACCESS_BEST NAOS_ACCESS_DENIED /* as what is wanted: the highest level there is */

/* "denied", "metadata-only", "pixels-only", "full".  Static. */
const char *naos_access_level_name(enum naos_access_level level);
bool naos_access_level_parse(const char *name, enum naos_access_level *ret);
/* The bit of a level in a set of levels; 0 for DENIED. */
static inline unsigned naos_access_bit(enum naos_access_level level)
{
	return 1u << level >> 1;
}
/* The highest level of a set; of metadata-only and pixels-only, which are side by side, metadata-only. */
enum naos_access_level naos_access_highest(unsigned levels);
/* "full", "metadata-only, pixels-only", …, "denied" for the empty set.  Static. */
const char *naos_access_set_name(unsigned levels);

/* --- loading ---------------------------------------------------------------------------------------------------------------- */

struct naos_policy;

/* NAOS_E_CONFIG or NAOS_E_LIMIT: the sentence names file, line, column, what is wrong and what to write instead.  *ret is freed by the
 * caller. */
int naos_policy_load(const char *path, struct naos_policy **ret, struct naos_error *err) naos_must_check;
/* The same from memory; `name` stands for the file in messages. */
int naos_policy_parse(const char *text, size_t bytes, const char *name, struct naos_policy **ret, struct naos_error *err) naos_must_check;
/* Takes NULL, returns NULL, keeps errno. */
struct naos_policy *naos_policy_free(struct naos_policy *policy);

size_t naos_policy_rule_count(const struct naos_policy *policy);
/* Bytes of memory that the policy takes. */
size_t naos_policy_bytes(const struct naos_policy *policy);

/* Rules count from 1, in the order of the file.  Strings are valid until the policy is freed; text is not NUL-terminated. */
struct naos_policy_rule_info {
	bool allow;
	enum naos_access_level level; /* that it allows, or whose part it denies; FULL: all */
	unsigned line, column;
	const char *text; /* as written */
	size_t bytes;
};
void naos_policy_rule(const struct naos_policy *policy, size_t number, struct naos_policy_rule_info *ret);

/* --- requests --------------------------------------------------------------------------------------------------------------- */

enum naos_policy_type {
	NAOS_POLICY_MISSING,
	NAOS_POLICY_TEXT,
	NAOS_POLICY_NUMBER,
	NAOS_POLICY_TIME,
	NAOS_POLICY_BOOLEAN,
	NAOS_POLICY_SET,
};

/* Slots: places of attributes in a request.  The first are these, FITS keywords that the policy asks for follow. */
enum naos_policy_slot {
#define X(name, namespace_, word, other, type, seen, choices, help) NAOS_POLICY_##name,
#include "policy/attributes.def"
#undef X
	NAOS_POLICY_FIXED_SLOTS
};
#define NAOS_POLICY_SLOTS (NAOS_POLICY_FIXED_SLOTS + NAOS_POLICY_MAX_KEYWORDS)

struct naos_policy_slot_info {
	const char *namespace_, *name, *other; /* "user", "role", "roles" */
	enum naos_policy_type type;
	bool seen, keyword, used; /* used: some rule asks for it */
};
/* False behind the last slot. */
bool naos_policy_slot(const struct naos_policy *policy, size_t slot, struct naos_policy_slot_info *ret);

struct naos_policy_text {
	const char *data;
	size_t bytes;
};

struct naos_policy_value {
	enum naos_policy_type type; /* MISSING, or another type than the slot's: the attribute is missing */
	union {
		struct naos_policy_text text;
		double number;
		int64_t time_us; /* since 1970, UTC */
		bool boolean;
		struct {
			const struct naos_policy_text *items;
			size_t count;
		} set;
	};
};

/* Everything is borrowed for the time of the call. */
struct naos_policy_request {
	int64_t now_us;
	enum naos_access_level want;            /* BEST, or the level asked for */
	const struct naos_policy_value *values; /* one for each slot; that of NOW is not read */
};

/* --- decisions -------------------------------------------------------------------------------------------------------------- */

#define NAOS_POLICY_RULE_WORDS (NAOS_POLICY_MAX_RULES / 64)

struct naos_policy_decision {
	enum naos_access_level level; /* the answer: what was wanted if it is granted, else DENIED */
	unsigned granted;             /* set of levels (naos_access_bit) */
	uint64_t applied[NAOS_POLICY_RULE_WORDS]; /* bit number - 1: an allow rule that is true, a deny rule that isn't false */
};

static inline bool naos_policy_applied(const struct naos_policy_decision *decision, size_t number)
{
	return decision->applied[(number - 1) / 64] >> (number - 1) % 64 & 1;
}

/* Can't fail: what is missing, malformed or beyond a limit never grants anything. */
void naos_policy_decide(const struct naos_policy *policy, const struct naos_policy_request *request, struct naos_policy_decision *ret);

/* --- time ------------------------------------------------------------------------------------------------------------------- */

/* "2027-01-01T00:00:00Z", "…T01:00:00.25+01:00": years 0001 to 9999, at most 6 digits of a second, a zone.  Returns what is
 * wrong, NULL if nothing is. */
const char *naos_policy_time_parse(const char *text, size_t bytes, int64_t *ret_us);
#define NAOS_POLICY_TIME_BYTES 40
/* In UTC; returns buffer. */
const char *naos_policy_time_format(int64_t time_us, char buffer[static NAOS_POLICY_TIME_BYTES]);

/* A clock that never goes back, for the process that decides: a host clock that is set back must not open again what has closed.
 * Zero it to start; threads may share one. */
struct naos_policy_clock {
	_Atomic int64_t latest_us;
};
/* The latest of: the host's clock, host_us if it isn't NULL in its place, and every time seen before.  *ret_behind_us (may be NULL): by
 * how much the host's clock is behind, 0 normally; the caller logs it. */
int64_t naos_policy_clock_now(struct naos_policy_clock *clock, const int64_t *host_us, int64_t *ret_behind_us);

static inline void naos_policy_free_pointer(struct naos_policy **policy)
{
	*policy = naos_policy_free(*policy);
}
#define naos_autopolicy naos_cleanup(naos_policy_free_pointer)

#endif
