/* Roles from the configuration.  SPDX-License-Identifier: Apache-2.0 */
#include "keyd/role.h"

#include <fnmatch.h>
#include <string.h>

#define ALL_RIGHTS ((1u << NAOS_RIGHT_COUNT) - 1)

struct words {
	char *text; /* cut into words */
	char **items;
	size_t count;
};

struct role {
	struct words identities, keys;
	uint32_t rights;
	bool resident, exportable, decrypt_compromised;
	uint64_t rate, burst, max_objects;
};

struct naos_roles {
	struct role *items;
	size_t count;
};

static const char *const right_names[NAOS_RIGHT_COUNT] = {
#define X(name, word) [NAOS_RIGHT_##name] = (word),
	NAOS_RIGHTS(X)
#undef X
};

const char *naos_right_name(enum naos_right right)
{
	return right_names[right];
}

static bool split(const char *text, struct words *ret)
{
	struct words words = { .text = strdup(text) };
	char *rest = words.text, *word;
	words.items = calloc(strlen(text) + 1, sizeof(*words.items));
	*ret = words;
	if (!words.text || !words.items)
		return false;
	while ((word = strsep(&rest, " \t,")))
		if (word[0])
			ret->items[ret->count++] = word;
	return true;
}

static int wrong(const struct naos_config *config, const char *name, const char *key, const char *what, struct naos_error *err)
{
	return naos_error_set(err, NAOS_E_CONFIG, "%s: [role %s] %s: %s", naos_config_origin(config, "role", name, key), name, key, what);
}

static int read_rights(const struct naos_config *config, const char *name, struct role *role, struct naos_error *err)
{
	struct words words;
	char what[128];
	int rc = split(naos_config_string(config, "role", name, "operations"), &words) ?
			 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for roles");
	for (size_t i = 0; rc == 0 && i < words.count; i++) {
		uint32_t right = strcmp(words.items[i], "all") == 0 ? ALL_RIGHTS & ~(1u << NAOS_RIGHT_APPROVE) : 0;
		for (unsigned r = 0; r < NAOS_RIGHT_COUNT; r++)
			if (strcmp(words.items[i], right_names[r]) == 0)
				right = 1u << r;
		(void)snprintf(what, sizeof(what), "there is no operation '%.40s'", words.items[i]);
		if (right == 0)
			rc = wrong(config, name, "operations", what, err);
		role->rights |= right;
	}
	free(words.items);
	free(words.text);
	return rc;
}

static int read_role(const struct naos_config *config, const char *name, struct role *role, struct naos_error *err)
{
	const char *object_class = naos_config_string(config, "role", name, "class");
	if (!split(naos_config_string(config, "role", name, "identities"), &role->identities) ||
	    !split(naos_config_string(config, "role", name, "keys"), &role->keys))
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for roles");
	if (role->identities.count == 0)
		return wrong(config, name, "identities", "a role needs at least one identity", err);
	for (size_t i = 0; i < role->identities.count; i++)
		if (strspn(role->identities.items[i], "*?") == strlen(role->identities.items[i]))
			return wrong(config, name, "identities", "a pattern that every certificate fits is refused", err);
	role->resident = strcmp(object_class, "exportable") != 0;
	role->exportable = strcmp(object_class, "resident") != 0;
	role->decrypt_compromised = naos_config_bool(config, "role", name, "decrypt-compromised");
	role->rate = naos_config_number(config, "role", name, "rate");
	role->burst = naos_config_number(config, "role", name, "burst");
	role->max_objects = naos_config_number(config, "role", name, "max-objects");
	return read_rights(config, name, role, err);
}

int naos_roles_read(const struct naos_config *config, struct naos_roles **ret, struct naos_error *err)
{
	struct naos_roles *roles = calloc(1, sizeof(*roles));
	const char *name;
	unsigned count = 0;
	int rc = 0;
	while (naos_config_section_name(config, "role", count))
		count++;
	if (roles)
		roles->items = calloc(count + 1, sizeof(*roles->items));
	if (!roles || !roles->items)
		rc = naos_error_set(err, NAOS_E_NOMEM, "no memory for roles");
	while (rc == 0 && (name = naos_config_section_name(config, "role", (unsigned)roles->count)))
		rc = read_role(config, name, &roles->items[roles->count++], err);
	if (rc != 0)
		(void)naos_roles_free(roles);
	else
		*ret = roles;
	return rc;
}

struct naos_roles *naos_roles_free(struct naos_roles *roles)
{
	if (!roles)
		return NULL;
	for (size_t i = 0; i < roles->count; i++) {
		free(roles->items[i].identities.items);
		free(roles->items[i].identities.text);
		free(roles->items[i].keys.items);
		free(roles->items[i].keys.text);
	}
	free(roles->items);
	free(roles);
	return NULL;
}

static bool is_member(const struct role *role, const char *identity)
{
	for (size_t i = 0; i < role->identities.count; i++)
		if (fnmatch(role->identities.items[i], identity, FNM_NOESCAPE) == 0)
			return true;
	return false;
}

void naos_roles_allowance(const struct naos_roles *roles, const char *identity, struct naos_allowance *ret)
{
	struct naos_allowance sum = { .known = false };
	bool unlimited_rate = false, unlimited_objects = false;
	for (size_t i = 0; i < roles->count; i++) {
		const struct role *role = &roles->items[i];
		if (!is_member(role, identity))
			continue;
		sum.known = true;
		sum.rights |= role->rights;
		sum.resident |= role->resident;
		sum.exportable |= role->exportable;
		unlimited_rate |= role->rate == 0;
		unlimited_objects |= role->max_objects == 0;
		sum.rate = role->rate > sum.rate ? role->rate : sum.rate;
		sum.burst = role->burst > sum.burst ? role->burst : sum.burst;
		sum.max_objects = role->max_objects > sum.max_objects ? role->max_objects : sum.max_objects;
	}
	if (unlimited_rate)
		sum.rate = 0;
	if (unlimited_objects)
		sum.max_objects = 0;
	*ret = sum;
}

static bool text_fits(const char *pattern, struct naos_kmip_text text)
{
	char plain[256];
	if (text.bytes >= sizeof(plain))
		return false;
	memcpy(plain, text.data, text.bytes);
	plain[text.bytes] = 0;
	return fnmatch(pattern, plain, FNM_NOESCAPE) == 0;
}

/* "own", "group:PATTERN", or a pattern of names. */
static bool covers(const char *pattern, const char *identity, const struct naos_object *object)
{
	const struct naos_kmip_attribute *attribute;
	if (strcmp(pattern, "*") == 0)
		return true;
	if (strcmp(pattern, "own") == 0)
		return strcmp(object->core.owner, identity) == 0;
	bool group = strncmp(pattern, "group:", 6) == 0;
	uint32_t tag = group ? NAOS_KMIP_TAG_OBJECT_GROUP : NAOS_KMIP_TAG_NAME;
	for (size_t n = 0; (attribute = naos_object_attribute(object, tag, n)); n++)
		if (text_fits(group ? pattern + 6 : pattern, group ? attribute->value.text : attribute->value.name->value))
			return true;
	return false;
}

static bool has_object(const struct role *role, const char *identity, const struct naos_object *object)
{
	for (size_t i = 0; i < role->keys.count; i++)
		if (covers(role->keys.items[i], identity, object))
			return true;
	return false;
}

uint32_t naos_roles_rights(const struct naos_roles *roles, const char *identity, const struct naos_object *object)
{
	uint32_t rights = 0;
	for (size_t i = 0; i < roles->count; i++)
		if (is_member(&roles->items[i], identity) && has_object(&roles->items[i], identity, object))
			rights |= roles->items[i].rights;
	return rights;
}

bool naos_roles_decrypt_compromised(const struct naos_roles *roles, const char *identity, const struct naos_object *object)
{
	for (size_t i = 0; i < roles->count; i++)
		if (roles->items[i].decrypt_compromised && naos_has_right(roles->items[i].rights, NAOS_RIGHT_DECRYPT) &&
		    is_member(&roles->items[i], identity) && has_object(&roles->items[i], identity, object))
			return true;
	return false;
}
