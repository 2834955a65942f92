/* Checks of the GPU: the driver, the plug-in, confidential computing.  SPDX-License-Identifier: Apache-2.0 */
#include "doctor.h"

#include <string.h>

#include "engine/configure.h"
#include "engine/gpu.h"
#include "engine/nvml.h"

static const char why[] = "frames can be opened into the memory of a GPU, where plaintext never is in the memory of the host";

static const char *configured(const struct naos_examination *examination, const char *key, const char *fallback)
{
	return examination->config ? naos_config_string(examination->config, "gpu", NULL, key) : fallback;
}

static void check_confidential(struct naos_examination *examination, int confidential)
{
	static const char why_it_matters[] = "outside of that mode the host's root and hypervisor can read the memory of the GPU";
	static const char remedy[] =
		"switch the GPU to confidential-computing mode (nvidia-smi conf-compute), or set [gpu] confidential = off";
	const char *wanted = configured(examination, "confidential", "prefer");
	const char *state = confidential == 1 ? "on" : confidential == 0 ? "off" : "not known: the driver does not tell";
	const bool fine = confidential == 1 || strcmp(wanted, "off") == 0;
	naos_finding_add(examination,
			 fine ? NAOS_FINDING_OK : strcmp(wanted, "require") == 0 ? NAOS_FINDING_PROBLEM : NAOS_FINDING_WARNING, "gpu",
			 why_it_matters, fine ? NULL : remedy, "confidential computing of the GPU is %s", state);
}

void naos_examine_gpu(struct naos_examination *examination)
{
	const char *use = configured(examination, "use", "auto");
	const enum naos_finding_status without = strcmp(use, "always") == 0 ? NAOS_FINDING_PROBLEM : NAOS_FINDING_OK;
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_nvml nvml;
	struct naos_gpu *gpu;
	if (strcmp(use, "never") == 0) {
		naos_finding_add(examination, NAOS_FINDING_OK, "gpu", why, NULL, "not used: [gpu] use = never");
		return;
	}
	naos_nvml_read(&nvml);
	if (!nvml.driver || nvml.gpus == 0) {
		naos_finding_add(examination, without, "gpu", why, without ? "install the driver, or set [gpu] use = auto" : NULL, "%s",
				 nvml.driver ? "the NVIDIA driver finds no GPU: the CPU does all the work" :
					       "no CUDA device: there is no NVIDIA driver; the CPU does all the work");
		return;
	}
	if (examination->config)
		naos_gpu_policy_read(examination->config);
	int rc = naos_gpu_get(&gpu, &err);
	if (rc == 0)
		naos_finding_add(examination, NAOS_FINDING_OK, "gpu", why, NULL,
				 "%s (compute capability %d.%d), driver %s, plug-in loaded (%s), known answers right", nvml.name, nvml.major,
				 nvml.minor, nvml.version, naos_gpu_info(gpu)->kernels);
	else if (rc != NAOS_E_DENIED) /* what is denied is the next finding */
		naos_finding_add(examination, rc == NAOS_E_SELFTEST ? NAOS_FINDING_PROBLEM : without ? without : NAOS_FINDING_WARNING, "gpu",
				 why, "install the plug-in of this version (docs/operations.md), or set [gpu] use = never",
				 "%s (compute capability %d.%d), driver %s, is not used: %s", nvml.name, nvml.major, nvml.minor, nvml.version,
				 err.message);
	check_confidential(examination, nvml.confidential);
}
