/* Configuration: inih reads, config_keys.def says what may stand there.  SPDX-License-Identifier: Apache-2.0 */
#include "base/config.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <string.h>

#include "base/io.h"

#define MAX_LINE 4096
#define MAX_HEADING 48 /* inih keeps 49 bytes of a section's name */

struct value {
	const struct naos_config_key *key;
	char *name; /* NULL in unnamed sections */
	char *text;
	char *origin;
};

/* A named section, in order of first mention.  Its name is borrowed from its first value. */
struct section {
	const char *section, *name;
};

struct naos_config {
	struct value *values;
	struct section *sections;
	size_t count, section_count;
};

/* State of reading one file: inih hands over lines through reader(), so the line of each value is known. */
struct input {
	struct naos_config *config;
	const char *name;
	const char *at, *end;
	unsigned line;
	int rc;
	struct naos_error *err;
};

static const struct naos_config_key keys[] = {
#define X(section_, named_, key_, type_, default_, help_) \
	{ .section = (section_), .named = (named_) != 0, .key = (key_), .type = (type_), .fallback = (default_), .help = (help_) },
#include "base/config_keys.def"
#undef X
};

const struct naos_config_key *naos_config_key_row(unsigned index)
{
	return index < NAOS_ARRAY_LENGTH(keys) ? &keys[index] : NULL;
}

/* number, then a unit of the table (the first one may be empty). */
static bool parse_with_unit(const char *text, const char *const *units, const uint64_t *factors, uint64_t *ret)
{
	char *end;
	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	uint64_t number = strtoull(text, &end, 10), value;
	if (errno != 0)
		return false;
	while (*end == ' ')
		end++;
	for (unsigned i = 0; units[i]; i++)
		if (strcmp(end, units[i]) == 0) {
			if (__builtin_mul_overflow(number, factors[i], &value))
				return false;
			*ret = value;
			return true;
		}
	return false;
}

bool naos_parse_size(const char *text, uint64_t *ret_bytes)
{
	static const char *const units[] = { "", "B", "KiB", "MiB", "GiB", "TiB", NULL };
	static const uint64_t factors[] = { 1, 1, 1024, 1048576, (uint64_t)1 << 30, (uint64_t)1 << 40 };
	return parse_with_unit(text, units, factors, ret_bytes);
}

bool naos_parse_duration(const char *text, uint64_t *ret_seconds)
{
	static const char *const units[] = { "s", "min", "h", "d", "w", NULL };
	static const uint64_t factors[] = { 1, 60, 3600, 86400, 604800 };
	return parse_with_unit(text, units, factors, ret_seconds);
}

static bool parse_bool(const char *text, bool *ret)
{
	*ret = strcmp(text, "yes") == 0;
	return *ret || strcmp(text, "no") == 0;
}

static bool parse_count(const char *text, uint64_t *ret)
{
	static const char *const units[] = { "", NULL };
	static const uint64_t factors[] = { 1 };
	return parse_with_unit(text, units, factors, ret);
}

static bool is_choice(const char *choices, const char *text)
{
	size_t length = strlen(text);
	for (const char *at = choices; length;) {
		const char *bar = strchr(at, '|');
		size_t width = bar ? (size_t)(bar - at) : strlen(at);
		if (width == length && memcmp(at, text, length) == 0)
			return true;
		if (!bar)
			return false;
		at = bar + 1;
	}
	return false;
}

/* What a value of this type must look like, or NULL if text is one. */
static const char *complaint(const char *type, const char *text)
{
	uint64_t number;
	bool flag;
	if (strcmp(type, "string") == 0)
		return NULL;
	if (strcmp(type, "path") == 0)
		return text[0] == '/' || text[0] == 0 ? NULL : "an absolute path";
	if (strcmp(type, "size") == 0)
		return naos_parse_size(text, &number) ? NULL : "a size such as 64KiB";
	if (strcmp(type, "duration") == 0)
		return naos_parse_duration(text, &number) ? NULL : "a duration such as 90d, 12h, 10min or 30s";
	if (strcmp(type, "count") == 0)
		return parse_count(text, &number) ? NULL : "a whole number";
	if (strcmp(type, "bool") == 0)
		return parse_bool(text, &flag) ? NULL : "yes or no";
	return is_choice(type, text) ? NULL : type;
}

static struct value *find_value(const struct naos_config *config, const struct naos_config_key *key, const char *name)
{
	for (size_t i = 0; i < config->count; i++) {
		struct value *value = &config->values[i];
		if (value->key == key && (!name || strcmp(value->name, name) == 0))
			return value;
	}
	return NULL;
}

static const struct naos_config_key *find_key(const char *section, const char *key)
{
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(keys); i++)
		if (strcmp(keys[i].section, section) == 0 && strcmp(keys[i].key, key) == 0)
			return &keys[i];
	return NULL;
}

static bool has_section(const char *section, bool named)
{
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(keys); i++)
		if (strcmp(keys[i].section, section) == 0 && keys[i].named == named)
			return true;
	return false;
}

static int remember_section(struct input *input, const struct value *value)
{
	struct naos_config *config = input->config;
	for (size_t i = config->section_count; i-- > 0;) /* the last one is the likeliest */
		if (strcmp(config->sections[i].name, value->name) == 0 && strcmp(config->sections[i].section, value->key->section) == 0)
			return 0;
	struct section *grown = reallocarray(config->sections, config->section_count + 1, sizeof(*grown));
	if (!grown)
		return naos_error_set(input->err, NAOS_E_NOMEM, "no memory for the configuration");
	config->sections = grown;
	grown[config->section_count++] = (struct section){ value->key->section, value->name };
	return 0;
}

static int store_value(struct input *input, const struct naos_config_key *key, const char *name, const char *text)
{
	struct naos_config *config = input->config;
	struct value *value = find_value(config, key, name);
	if (!value) {
		if (config->count == NAOS_CONFIG_MAX_VALUES)
			return naos_error_set(input->err, NAOS_E_LIMIT, "%s:%u: more than %d values", input->name, input->line,
					      NAOS_CONFIG_MAX_VALUES);
		struct value *grown = reallocarray(config->values, config->count + 1, sizeof(*grown));
		if (!grown)
			return naos_error_set(input->err, NAOS_E_NOMEM, "no memory for the configuration");
		config->values = grown;
		value = &grown[config->count];
		*value = (struct value){ .key = key, .name = name ? strdup(name) : NULL };
		if (name && !value->name)
			return naos_error_set(input->err, NAOS_E_NOMEM, "no memory for the configuration");
		config->count++;
		int rc = name ? remember_section(input, value) : 0;
		if (rc != 0)
			return rc;
	}
	free(value->text);
	free(value->origin);
	value->text = strdup(text);
	if (asprintf(&value->origin, "%s:%u", input->name, input->line) < 0)
		value->origin = NULL;
	if (!value->text || !value->origin)
		return naos_error_set(input->err, NAOS_E_NOMEM, "no memory for the configuration");
	return 0;
}

static int take_value(struct input *input, const char *heading, const char *key_name, const char *text)
{
	char section[64];
	const char *space = strchr(heading, ' '), *name = NULL;
	size_t width = space ? (size_t)(space - heading) : strlen(heading);
	if (space) {
		name = space + strspn(space, " ");
		if (*name == 0)
			name = NULL;
	}
	if (width >= sizeof(section))
		width = sizeof(section) - 1;
	memcpy(section, heading, width);
	section[width] = 0;
	if (!has_section(section, name != NULL)) {
		if (has_section(section, name == NULL))
			return naos_error_set(input->err, NAOS_E_CONFIG, "%s:%u: section [%s] %s", input->name, input->line, heading,
					      name ? "takes no name" : "needs a name, as in [fileset genomes]");
		return naos_error_set(input->err, NAOS_E_CONFIG, "%s:%u: unknown section [%s]", input->name, input->line, heading);
	}
	const struct naos_config_key *key = find_key(section, key_name);
	if (!key)
		return naos_error_set(input->err, NAOS_E_CONFIG, "%s:%u: unknown key '%s' in section [%s]", input->name, input->line,
				      key_name, section);
	const char *wanted = complaint(key->type, text);
	if (wanted)
		return naos_error_set(input->err, NAOS_E_CONFIG, "%s:%u: '%s = %s' is not valid, %s is expected", input->name,
				      input->line, key_name, text, wanted);
	return store_value(input, key, name, text);
}

static char *reader(char *line, int room, void *stream)
{
	struct input *input = stream;
	int used = 0;
	if (input->at == input->end)
		return NULL;
	input->line++;
	while (input->at < input->end && used + 1 < room) {
		char c = *input->at++;
		line[used++] = c;
		if (c == '\n')
			break;
	}
	line[used] = 0;
	return line;
}

static int handler(void *user, const char *section, const char *key, const char *text)
{
	struct input *input = user;
	if (input->rc == 0)
		input->rc = take_value(input, section, key, text);
	return input->rc == 0;
}

/* inih cuts long lines and section names silently: refuse them instead. */
static int check_lines(const char *text, size_t bytes, const char *name, struct naos_error *err)
{
	size_t start = 0, line = 1;
	for (size_t i = 0; i <= bytes; i++) {
		if (i < bytes && text[i] != '\n')
			continue;
		if (i - start > MAX_LINE - 8)
			return naos_error_set(err, NAOS_E_LIMIT, "%s:%zu: a line of more than %d bytes", name, line, MAX_LINE - 8);
		if (i > start && text[start] == '[' && i - start > MAX_HEADING)
			return naos_error_set(err, NAOS_E_LIMIT, "%s:%zu: a section heading of more than %d bytes", name, line,
					      MAX_HEADING);
		start = i + 1;
		line++;
	}
	return 0;
}

static int parse_into(struct naos_config *config, const char *text, size_t bytes, const char *name, struct naos_error *err)
{
	struct input input = { .config = config, .name = name, .at = text, .end = text + bytes, .err = err };
	const char *nul = memchr(text, 0, bytes);
	if (nul)
		return naos_error_set(err, NAOS_E_CONFIG, "%s: a zero byte at offset %zu", name, (size_t)(nul - text));
	int rc = check_lines(text, bytes, name, err);
	if (rc != 0)
		return rc;
	ini_use_stack = false;
	ini_max_line = ini_initial_alloc = MAX_LINE;
	ini_allow_multiline = false;
	ini_stop_on_first_error = true;
	int line = ini_parse_stream(reader, &input, handler, &input);
	if (input.rc != 0)
		return input.rc;
	if (line != 0)
		return naos_error_set(err, NAOS_E_CONFIG, "%s:%d: neither [section] nor 'key = value'", name, line);
	return 0;
}

int naos_config_parse(const char *text, size_t bytes, const char *name, struct naos_config **ret, struct naos_error *err)
{
	naos_autoconfig struct naos_config *config = calloc(1, sizeof(*config));
	if (!config)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the configuration");
	int rc = parse_into(config, text, bytes, name, err);
	if (rc == 0)
		*ret = naos_steal(config);
	return rc;
}

static int load_file(struct naos_config *config, const char *path, struct naos_error *err)
{
	naos_autofree uint8_t *text = NULL;
	size_t bytes;
	int rc = naos_io_read_file(AT_FDCWD, path, NAOS_CONFIG_MAX_BYTES, &text, &bytes, err);
	return rc ? rc : parse_into(config, (const char *)text, bytes, path, err);
}

static int only_conf(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);
	return entry->d_name[0] != '.' && length > 5 && strcmp(entry->d_name + length - 5, ".conf") == 0;
}

static int load_drop_ins(struct naos_config *config, const char *path, struct naos_error *err)
{
	naos_autofree char *dir = NULL;
	struct dirent **entries = NULL;
	int rc = 0;
	if (asprintf(&dir, "%s.d", path) < 0)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the configuration");
	int count = scandir(dir, &entries, only_conf, alphasort);
	if (count < 0 && errno != ENOENT && errno != ENOTDIR)
		return naos_error_set_errno(err, errno, "cannot read the drop-ins in %s", dir);
	for (int i = 0; i < count; i++) {
		naos_autofree char *file = NULL;
		if (rc == 0 && asprintf(&file, "%s/%s", dir, entries[i]->d_name) < 0)
			rc = naos_error_set(err, NAOS_E_NOMEM, "no memory for the configuration");
		if (rc == 0)
			rc = load_file(config, file, err);
		free(entries[i]);
	}
	free(entries);
	return rc;
}

const char *naos_config_path(const char *path)
{
	const char *chosen = path ? path : secure_getenv("NAOS_CONFIG");
	return chosen ? chosen : NAOS_CONFIG_DEFAULT_PATH;
}

int naos_config_load(const char *path, struct naos_config **ret, struct naos_error *err)
{
	naos_autoconfig struct naos_config *config = calloc(1, sizeof(*config));
	if (!config)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the configuration");
	const char *chosen = naos_config_path(path);
	bool optional = !path && !secure_getenv("NAOS_CONFIG");
	/* only a file that is not there may be left out: one that can't be read must not turn into all defaults */
	int rc = optional && access(chosen, F_OK) != 0 && errno == ENOENT ? 0 : load_file(config, chosen, err);
	if (rc == 0)
		rc = load_drop_ins(config, chosen, err);
	if (rc == 0)
		*ret = naos_steal(config);
	return rc;
}

struct naos_config *naos_config_free(struct naos_config *config)
{
	if (!config)
		return NULL;
	for (size_t i = 0; i < config->count; i++) {
		free(config->values[i].name);
		free(config->values[i].text);
		free(config->values[i].origin);
	}
	free(config->values);
	free(config->sections);
	free(config);
	return NULL;
}

static const struct naos_config_key *need_key(const char *section, const char *key)
{
	const struct naos_config_key *row = find_key(section, key);
	if (!row)
		abort(); /* config_keys.def and the code disagree */
	return row;
}

const char *naos_config_string(const struct naos_config *config, const char *section, const char *name, const char *key)
{
	const struct naos_config_key *row = need_key(section, key);
	const struct value *value = find_value(config, row, name);
	return value ? value->text : row->fallback;
}

uint64_t naos_config_number(const struct naos_config *config, const char *section, const char *name, const char *key)
{
	const char *text = naos_config_string(config, section, name, key), *type = need_key(section, key)->type;
	uint64_t number = 0;
	bool ok = strcmp(type, "size") == 0	? naos_parse_size(text, &number) :
		  strcmp(type, "duration") == 0 ? naos_parse_duration(text, &number) :
						  parse_count(text, &number);
	if (!ok)
		abort(); /* values were checked when read; so a default in the table is wrong */
	return number;
}

bool naos_config_bool(const struct naos_config *config, const char *section, const char *name, const char *key)
{
	bool flag;
	(void)parse_bool(naos_config_string(config, section, name, key), &flag);
	return flag;
}

const char *naos_config_origin(const struct naos_config *config, const char *section, const char *name, const char *key)
{
	const struct value *value = find_value(config, need_key(section, key), name);
	return value ? value->origin : "default";
}

const char *naos_config_section_name(const struct naos_config *config, const char *section, unsigned index)
{
	for (size_t i = 0; i < config->section_count; i++)
		if (strcmp(config->sections[i].section, section) == 0 && index-- == 0)
			return config->sections[i].name;
	return NULL;
}
