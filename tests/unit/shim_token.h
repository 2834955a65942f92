/* Puts the shim (p11_shim.h) between a private token and what is tested.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_SHIM_TOKEN_H
#define NAOS_TESTS_SHIM_TOKEN_H

#include <dlfcn.h>

#include "p11_shim.h"
#include "softhsm.h"

static inline struct shim *shim_token(struct soft_token *token)
{
	const char *path = getenv("NAOS_P11_SHIM");
	assert_non_null(path);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	assert_non_null(library);
	(void)snprintf(token->module, sizeof(token->module), "%s", path);
	(void)snprintf(token->uri, sizeof(token->uri), "pkcs11:token=unit?module-path=%s&pin-source=file:%s", path, token->pin_file);
	return dlsym(library, "naos_shim");
}

#endif
