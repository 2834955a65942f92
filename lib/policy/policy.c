/* What a loaded policy says about itself.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>

#include "base/io.h"
#include "policy/program.h"

static const char *const level_names[] = { "denied", "metadata-only", "pixels-only", "full" };

const char *naos_access_level_name(enum naos_access_level level)
{
	return level_names[level];
}

bool naos_access_level_parse(const char *name, enum naos_access_level *ret)
{
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(level_names); i++)
		if (strcmp(level_names[i], name) == 0) {
			*ret = i;
			return true;
		}
	return false;
}

enum naos_access_level naos_access_highest(unsigned levels)
{
	static const enum naos_access_level order[] = { NAOS_ACCESS_FULL, NAOS_ACCESS_METADATA_ONLY, NAOS_ACCESS_PIXELS_ONLY };
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(order); i++)
		if (levels & naos_access_bit(order[i]))
			return order[i];
	return NAOS_ACCESS_DENIED;
}

const char *naos_access_set_name(unsigned levels)
{
	unsigned parts = naos_access_bit(NAOS_ACCESS_METADATA_ONLY) | naos_access_bit(NAOS_ACCESS_PIXELS_ONLY);
	return levels == parts ? "metadata-only, pixels-only" : level_names[naos_access_highest(levels)];
}

int naos_policy_load(const char *path, struct naos_policy **ret, struct naos_error *err)
{
	naos_autofree uint8_t *text = NULL;
	size_t bytes;
	int rc = naos_io_read_file(AT_FDCWD, path, NAOS_POLICY_MAX_BYTES, &text, &bytes, err);
	return rc ? rc : naos_policy_parse((const char *)text, bytes, path, ret, err);
}

struct naos_policy *naos_policy_free(struct naos_policy *policy)
{
	int saved = errno;
	free(policy);
	errno = saved;
	return NULL;
}

size_t naos_policy_rule_count(const struct naos_policy *policy)
{
	return policy->rule_count;
}

size_t naos_policy_bytes(const struct naos_policy *policy)
{
	return policy->bytes;
}

void naos_policy_rule(const struct naos_policy *policy, size_t number, struct naos_policy_rule_info *ret)
{
	const struct rule *rule = &policy->rules[number - 1];
	*ret = (struct naos_policy_rule_info){
		.allow = rule->allow, .level = rule->level, .line = rule->line, .column = rule->column,
		.text = policy->source + rule->text_offset, .bytes = rule->text_bytes,
	};
}

static const struct naos_policy_slot_info fixed[] = {
#define X(name_, space_, word_, other_, type_, seen_, choices_, help_) \
	[NAOS_POLICY_##name_] = { \
		.namespace_ = (space_), .name = (word_), .other = (other_), .type = NAOS_POLICY_##type_, .seen = (seen_) != 0, \
	},
#include "policy/attributes.def"
#undef X
};

bool naos_policy_slot(const struct naos_policy *policy, size_t slot, struct naos_policy_slot_info *ret)
{
	if (slot >= NAOS_POLICY_FIXED_SLOTS + policy->keyword_count)
		return false;
	if (slot < NAOS_POLICY_FIXED_SLOTS) {
		*ret = fixed[slot];
	} else {
		const struct keyword *keyword = &policy->keywords[slot - NAOS_POLICY_FIXED_SLOTS];
		*ret = (struct naos_policy_slot_info){
			.namespace_ = "data", .name = keyword->name, .other = "", .type = keyword->type, .keyword = true,
		};
	}
	ret->used = policy->used[slot];
	return true;
}

uint32_t policy_text_find(const struct naos_policy *policy, const char *data, size_t bytes)
{
	if (bytes > NAOS_POLICY_MAX_TEXT_BYTES)
		return 0; /* longer than any text of a policy */
	size_t at = policy_text_hash(data, bytes) & policy->text_mask;
	for (; policy->text_table[at]; at = (at + 1) & policy->text_mask) {
		const struct naos_policy_text *text = &policy->texts[policy->text_table[at] - 1];
		if (text->bytes == bytes && memcmp(text->data, data, bytes) == 0)
			return policy->text_table[at];
	}
	return 0;
}
