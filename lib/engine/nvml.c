/* libnvidia-ml.so.1, opened where it is.  SPDX-License-Identifier: Apache-2.0 */
#include "engine/nvml.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

struct state { /* nvmlConfComputeSystemState_t */
	unsigned environment, feature, devtools;
};

static void read_gpu(void *library, struct naos_nvml *ret)
{
	int (*handle)(unsigned, void **) = NULL, (*name)(void *, char *, unsigned) = NULL, (*capability)(void *, int *, int *) = NULL;
	void *device = NULL;
	*(void **)&handle = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	*(void **)&name = dlsym(library, "nvmlDeviceGetName");
	*(void **)&capability = dlsym(library, "nvmlDeviceGetCudaComputeCapability");
	if (!handle || handle(0, &device) != 0)
		return;
	if (!name || name(device, ret->name, sizeof(ret->name)) != 0)
		ret->name[0] = 0;
	if (capability)
		(void)capability(device, &ret->major, &ret->minor);
}

void naos_nvml_read(struct naos_nvml *ret)
{
	struct naos_nvml found = { .confidential = -1 };
	struct state state = { 0 };
	int (*begin)(void) = NULL, (*end)(void) = NULL, (*count)(unsigned *) = NULL, (*version)(char *, unsigned) = NULL;
	int (*confidential)(struct state *) = NULL;
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	*ret = found;
	if (!library)
		return;
	*(void **)&begin = dlsym(library, "nvmlInit_v2");
	*(void **)&end = dlsym(library, "nvmlShutdown");
	*(void **)&count = dlsym(library, "nvmlDeviceGetCount_v2");
	*(void **)&version = dlsym(library, "nvmlSystemGetDriverVersion");
	*(void **)&confidential = dlsym(library, "nvmlSystemGetConfComputeState");
	if (begin && end && begin() == 0) {
		found.driver = true;
		if (version && version(found.version, sizeof(found.version)) != 0)
			found.version[0] = 0;
		if (count && count(&found.gpus) == 0 && found.gpus)
			read_gpu(library, &found);
		if (confidential && confidential(&state) == 0)
			found.confidential = state.feature != 0;
		(void)end();
	}
	(void)dlclose(library);
	*ret = found;
}
