/* A plug-in, loaded without the rest of Naos.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_GPU_TABLE_H
#define NAOS_TESTS_GPU_TABLE_H

#include <dlfcn.h>

#include "plugin.h"
#include "reference.h"

#define SKIP_EXIT 77

static const struct naos_cuda_table *table;
static struct naos_cuda *cuda;
static struct naos_cuda_info info;
static void *plugin;

#define check_cuda(call) \
	do { \
		struct naos_cuda_reason reason = { "" }; \
		int rc_ = (call); \
		if (rc_ != 0) { \
			fprintf(stderr, "%s:%d: %s: %d, %s\n", __FILE__, __LINE__, #call, rc_, reason.text); \
			exit(1); \
		} \
	} while (0)

/* Ends the program where there is no device. */
static inline void table_open(const char *path)
{
	struct naos_cuda_reason reason = { "" };
	plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!plugin) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	const struct naos_cuda_table *(*get)(uint32_t) = (const struct naos_cuda_table *(*)(uint32_t))dlsym(plugin, NAOS_CUDA_TABLE);
	check(get && get(NAOS_CUDA_ABI + 1) == NULL);
	table = get(NAOS_CUDA_ABI);
	check(table && table->table_bytes == sizeof(*table));
	int rc = table->open(0, &cuda, &reason);
	if (rc == NAOS_CUDA_UNSUPPORTED) {
		printf("skipped: no CUDA device (%s)\n", reason.text);
		exit(SKIP_EXIT);
	}
	if (rc != 0) {
		fprintf(stderr, "%s\n", reason.text);
		exit(1);
	}
	table->info(cuda, &info);
	printf("# %s, %u multiprocessors, kernels %s\n", info.name, info.multiprocessors, info.kernels);
}

#endif
