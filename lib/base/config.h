/* The one configuration: /etc/naos/naos.conf and drop-ins naos.conf.d/NAME.conf beside it, in the order of their names;
 * the environment variable NAOS_CONFIG names another file.  A later value wins.  A section, key or value that is not in
 * config_keys.def is an error with file and line.  Units are in the value (4KiB, 90d).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_BASE_CONFIG_H
#define NAOS_BASE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/errors.h"

#define NAOS_CONFIG_DEFAULT_PATH "/etc/naos/naos.conf"
#define NAOS_CONFIG_MAX_BYTES ((size_t)1 << 20)
#define NAOS_CONFIG_MAX_VALUES 10000

struct naos_config;

/* One row of config_keys.def. */
struct naos_config_key {
	const char *section;
	bool named;
	const char *key;
	const char *type;
	const char *fallback;
	const char *help;
};

/* path NULL: NAOS_CONFIG, else the default path, which may be absent (all defaults). */
int naos_config_load(const char *path, struct naos_config **ret, struct naos_error *err) naos_must_check;
/* The file that naos_config_load(path, …) reads: path, NAOS_CONFIG or the default. */
const char *naos_config_path(const char *path);
/* From memory, for tests and fuzzing; `name` stands for the file in messages. */
int naos_config_parse(const char *text, size_t bytes, const char *name, struct naos_config **ret, struct naos_error *err) naos_must_check;
struct naos_config *naos_config_free(struct naos_config *config);

/* The value or the key's default; name is NULL for unnamed sections.  Valid until the configuration is freed.
 * Asking for a key that is not in config_keys.def is a programming error (abort). */
const char *naos_config_string(const struct naos_config *config, const char *section, const char *name, const char *key);
/* Size in bytes, duration in seconds, or count. */
uint64_t naos_config_number(const struct naos_config *config, const char *section, const char *name, const char *key);
bool naos_config_bool(const struct naos_config *config, const char *section, const char *name, const char *key);
/* "file:line" where the value was set, or "default". */
const char *naos_config_origin(const struct naos_config *config, const char *section, const char *name, const char *key);
/* The index-th name of [section NAME], in order of first mention; NULL behind the last one. */
const char *naos_config_section_name(const struct naos_config *config, const char *section, unsigned index);

const struct naos_config_key *naos_config_key_row(unsigned index);

/* Units: "4KiB" → 4096, "90d" → 7776000.  False if malformed or out of range. */
bool naos_parse_size(const char *text, uint64_t *ret_bytes);
bool naos_parse_duration(const char *text, uint64_t *ret_seconds);

static inline void naos_config_free_pointer(struct naos_config **config)
{
	*config = naos_config_free(*config);
}
#define naos_autoconfig naos_cleanup(naos_config_free_pointer)

#endif
