/* Rates of a GPU in a file of the user, from one process to the next.  SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/cost.h"

#define FIRST_LINE "naos-gpu-costs 1\n"

static const struct {
	const char *name;
	size_t offset;
} values[] = {
#define VALUE(name, member) { name, offsetof(struct naos_cost_rates, member) }
	VALUE("open-128", kernel_bytes_s[0][0]), VALUE("open-256", kernel_bytes_s[0][1]),
	VALUE("seal-128", kernel_bytes_s[1][0]), VALUE("seal-256", kernel_bytes_s[1][1]),
	VALUE("up", up_bytes_s), VALUE("down", down_bytes_s), VALUE("both", both_bytes_s),
	VALUE("stage", stage_bytes_s), VALUE("fixed", fixed_s), VALUE("start", start_s),
};

bool naos_cost_file(char *ret, size_t bytes)
{
	const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
	int n = -1;
	if (cache && cache[0] == '/')
		n = snprintf(ret, bytes, "%s/naos/gpu-costs", cache);
	else if (home && home[0] == '/')
		n = snprintf(ret, bytes, "%s/.cache/naos/gpu-costs", home);
	return n > 0 && (size_t)n < bytes;
}

bool naos_cost_load(const char *path, const char *machine, struct naos_cost_rates *rates)
{
	struct naos_cost_rates read = *rates;
	char line[200], name[32];
	unsigned found = 0;
	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	bool ok = fgets(line, sizeof(line), file) && strcmp(line, FIRST_LINE) == 0 && fgets(line, sizeof(line), file) &&
		  strncmp(line, machine, strlen(machine)) == 0 && strcmp(line + strlen(machine), "\n") == 0;
	for (unsigned i = 0; ok && i < NAOS_ARRAY_LENGTH(values); i++) {
		double value;
		ok = fgets(line, sizeof(line), file) && sscanf(line, "%31s %lf", name, &value) == 2 && strcmp(name, values[i].name) == 0 &&
		     isfinite(value) && value >= 0 && (value > 0 || values[i].offset == offsetof(struct naos_cost_rates, start_s));
		if (ok) {
			memcpy((char *)&read + values[i].offset, &value, sizeof(value));
			found++;
		}
	}
	(void)fclose(file);
	if (!ok || found != NAOS_ARRAY_LENGTH(values))
		return false;
	read.gpu = true;
	*rates = read;
	return true;
}

/* ~/.cache/naos, and ~/.cache where the user has none; not the home directory itself. */
static void make_folders(const char *path)
{
	char folder[512];
	(void)snprintf(folder, sizeof(folder), "%s", path);
	char *last = strrchr(folder, '/');
	if (!last)
		return;
	*last = 0;
	char *before = strrchr(folder, '/');
	if (before && before != folder) {
		*before = 0;
		(void)mkdir(folder, 0700);
		*before = '/';
	}
	(void)mkdir(folder, 0700);
}

/* As far as it goes: without the file the next process measures again. */
void naos_cost_save(const char *path, const char *machine, const struct naos_cost_rates *rates)
{
	char part[600];
	make_folders(path);
	if (snprintf(part, sizeof(part), "%s.%d", path, (int)getpid()) >= (int)sizeof(part))
		return;
	FILE *file = fopen(part, "wxe");
	if (!file)
		return;
	(void)fprintf(file, "%s%s\n", FIRST_LINE, machine);
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(values); i++) {
		double value;
		memcpy(&value, (const char *)rates + values[i].offset, sizeof(value));
		(void)fprintf(file, "%s %.9g\n", values[i].name, value);
	}
	bool failed = ferror(file) != 0;
	if (fclose(file) != 0 || failed || rename(part, path) != 0)
		(void)unlink(part);
}
