/* Loading and starting PKCS#11 modules.  SPDX-License-Identifier: Apache-2.0 */
#include "keys/module.h"

#include <dlfcn.h>
#include <string.h>

/* Modules stay loaded until the process ends: unloading one is where they crash. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct naos_module *registry;

const char *naos_rv_text(CK_RV rv, char buffer[static NAOS_RV_TEXT_BYTES])
{
	static const struct {
		CK_RV rv;
		const char *name;
	} names[] = {
#define X(name) { name, #name }
		X(CKR_HOST_MEMORY), X(CKR_SLOT_ID_INVALID), X(CKR_GENERAL_ERROR), X(CKR_FUNCTION_FAILED), X(CKR_ARGUMENTS_BAD),
		X(CKR_ATTRIBUTE_READ_ONLY), X(CKR_ATTRIBUTE_TYPE_INVALID), X(CKR_ATTRIBUTE_VALUE_INVALID), X(CKR_ACTION_PROHIBITED),
		X(CKR_DATA_INVALID), X(CKR_DEVICE_ERROR), X(CKR_DEVICE_MEMORY), X(CKR_DEVICE_REMOVED), X(CKR_ENCRYPTED_DATA_INVALID),
		X(CKR_ENCRYPTED_DATA_LEN_RANGE), X(CKR_FUNCTION_NOT_SUPPORTED), X(CKR_KEY_HANDLE_INVALID), X(CKR_KEY_FUNCTION_NOT_PERMITTED),
		X(CKR_MECHANISM_INVALID), X(CKR_MECHANISM_PARAM_INVALID), X(CKR_OBJECT_HANDLE_INVALID), X(CKR_OPERATION_ACTIVE),
		X(CKR_OPERATION_NOT_INITIALIZED), X(CKR_PIN_INCORRECT), X(CKR_PIN_INVALID), X(CKR_PIN_LEN_RANGE), X(CKR_PIN_EXPIRED),
		X(CKR_PIN_LOCKED), X(CKR_SESSION_CLOSED), X(CKR_SESSION_COUNT), X(CKR_SESSION_HANDLE_INVALID), X(CKR_SESSION_READ_ONLY),
		X(CKR_TEMPLATE_INCONSISTENT), X(CKR_TOKEN_NOT_PRESENT), X(CKR_TOKEN_NOT_RECOGNIZED), X(CKR_TOKEN_WRITE_PROTECTED),
		X(CKR_USER_ALREADY_LOGGED_IN), X(CKR_USER_NOT_LOGGED_IN), X(CKR_USER_PIN_NOT_INITIALIZED), X(CKR_BUFFER_TOO_SMALL),
		X(CKR_CRYPTOKI_NOT_INITIALIZED), X(CKR_CRYPTOKI_ALREADY_INITIALIZED),
#undef X
	};
	const char *name = "error";
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(names); i++)
		if (names[i].rv == rv)
			name = names[i].name;
	(void)snprintf(buffer, NAOS_RV_TEXT_BYTES, "%s (0x%lx)", name, rv);
	return buffer;
}

static int initialize(struct naos_module *module, struct naos_error *err)
{
	CK_C_INITIALIZE_ARGS args = { .flags = CKF_OS_LOCKING_OK };
	char text[NAOS_RV_TEXT_BYTES];
	CK_RV rv = module->functions->C_Initialize(&args);
	if (rv != CKR_OK && rv != CKR_CRYPTOKI_ALREADY_INITIALIZED)
		return naos_error_set(err, NAOS_E_KEYMANAGER, "the PKCS#11 module %s does not start: %s", module->path, naos_rv_text(rv, text));
	module->ours = rv == CKR_OK;
	module->pid = getpid();
	module->generation++;
	return 0;
}

static int load(const char *path, struct naos_module *module, struct naos_error *err)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!library)
		return naos_error_set(err, NAOS_E_KEYMANAGER, "cannot load the PKCS#11 module: %s", dlerror());
	CK_C_GetFunctionList get_list;
	*(void **)&get_list = dlsym(library, "C_GetFunctionList");
	(void)dlclose(library); /* NODELETE keeps it */
	if (!get_list || get_list(&module->functions) != CKR_OK || !module->functions)
		return naos_error_set(err, NAOS_E_KEYMANAGER, "%s is not a PKCS#11 module: it has no C_GetFunctionList", path);
	module->path = strdup(path);
	return module->path ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for a PKCS#11 module");
}

static int add_module(const char *path, struct naos_module **ret, struct naos_error *err)
{
	pthread_rwlockattr_t attributes;
	struct naos_module *module = calloc(1, sizeof(*module));
	if (!module)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a PKCS#11 module");
	int rc = load(path, module, err);
	if (rc != 0) {
		free(module);
		return rc;
	}
	/* under load a re-initialisation must get its turn */
	(void)pthread_rwlockattr_init(&attributes);
	(void)pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	(void)pthread_rwlock_init(&module->gate, &attributes);
	(void)pthread_rwlockattr_destroy(&attributes);
	module->next = registry;
	registry = module;
	*ret = module;
	return 0;
}

static int start(struct naos_module *module, struct naos_error *err)
{
	CK_INFO info;
	int rc = initialize(module, err);
	if (rc != 0)
		return rc;
	module->softhsm = module->functions->C_GetInfo(&info) == CKR_OK && memcmp(info.manufacturerID, "SoftHSM ", 8) == 0;
	return 0;
}

int naos_module_acquire(const char *path, struct naos_module **ret, struct naos_error *err)
{
	struct naos_module *module;
	int rc = 0;
	(void)pthread_mutex_lock(&registry_lock);
	for (module = registry; module && strcmp(module->path, path) != 0;)
		module = module->next;
	if (!module)
		rc = add_module(path, &module, err);
	if (rc == 0 && module->users > 0 && module->pid != getpid())
		rc = naos_error_set(err, NAOS_E_UNSUPPORTED,
				    "this process was forked while it used the PKCS#11 module %s; no module survives that: "
				    "open the key manager after the last fork", path);
	else if (rc == 0 && module->users == 0)
		rc = start(module, err);
	if (rc == 0) {
		module->users++;
		*ret = module;
	}
	(void)pthread_mutex_unlock(&registry_lock);
	return rc;
}

void naos_module_release(struct naos_module *module)
{
	(void)pthread_mutex_lock(&registry_lock);
	if (--module->users == 0 && module->ours) {
		(void)pthread_rwlock_wrlock(&module->gate);
		(void)module->functions->C_Finalize(NULL);
		(void)pthread_rwlock_unlock(&module->gate);
	}
	(void)pthread_mutex_unlock(&registry_lock);
}

int naos_module_restart(struct naos_module *module, struct naos_error *err)
{
	if (!module->ours)
		return 0;
	(void)module->functions->C_Finalize(NULL);
	return initialize(module, err);
}
