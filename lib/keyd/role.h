/* Roles: which identity may do what with which keys, from the sections [role NAME] of the configuration.  Unchanging once read.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_ROLE_H
#define NAOS_KEYD_ROLE_H

#include "base/config.h"
#include "keyd/object.h"

/* What a role may allow: X(NAME, word of the configuration). */
#define NAOS_RIGHTS(X) \
	X(CREATE, "create") X(REGISTER, "register") X(ROTATE, "rotate") X(LOCATE, "locate") X(CHECK, "check") X(GET, "get") \
	X(READ, "read") X(MODIFY, "modify") X(ACTIVATE, "activate") X(REVOKE, "revoke") X(DESTROY, "destroy") \
	X(APPROVE, "approve") X(ENCRYPT, "encrypt") X(DECRYPT, "decrypt") X(RANDOM, "random")

enum naos_right {
#define X(name, word) NAOS_RIGHT_##name,
	NAOS_RIGHTS(X)
#undef X
	NAOS_RIGHT_COUNT,
};

const char *naos_right_name(enum naos_right right);

struct naos_roles;

/* NAOS_E_CONFIG with file and line. */
int naos_roles_read(const struct naos_config *config, struct naos_roles **ret, struct naos_error *err) naos_must_check;
struct naos_roles *naos_roles_free(struct naos_roles *roles);

/* What an identity has through all its roles together. */
struct naos_allowance {
	bool known;                 /* at least one role names it */
	bool resident, exportable;  /* which classes it may make */
	uint64_t rate, burst;       /* requests a second; 0: no limit */
	uint64_t max_objects;       /* 0: no limit */
	uint32_t rights;            /* bits of enum naos_right, of any object */
};
void naos_roles_allowance(const struct naos_roles *roles, const char *identity, struct naos_allowance *ret);

/* The rights (bits) that an identity has over an object; 0: for this identity the object is not there. */
uint32_t naos_roles_rights(const struct naos_roles *roles, const char *identity, const struct naos_object *object);
/* Whether one of its roles that may decrypt this object may also do so when it is compromised. */
bool naos_roles_decrypt_compromised(const struct naos_roles *roles, const char *identity, const struct naos_object *object);

static inline bool naos_has_right(uint32_t rights, enum naos_right right)
{
	return (rights >> right & 1) != 0;
}

#endif
