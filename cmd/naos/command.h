/* The command table of naos: one row per command drives the parser, --help, `naos help --json`, bash completion, the
 * test of the man pages and the refusals.  A command lives in cmd/naos/<noun>.c as
 * `const struct naos_command naos_command_<noun>_<verb>` and is one line of commands.def.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CMD_COMMAND_H
#define NAOS_CMD_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <jansson.h>

#include "base/config.h"
#include "base/errors.h"

#define NAOS_MAX_OPTIONS 24

/* An option of a command; --help, --json, --config and --verbose exist for all and are not listed. */
struct naos_option {
	const char *name;     /* long name without the dashes */
	char letter;          /* short form or 0 */
	const char *argument; /* name of its argument for the help ("FILE"), NULL for a flag */
	const char *help;     /* one line */
};

struct naos_invocation;

struct naos_command {
	const char *path;     /* "seal", "key rotate" */
	const char *operands; /* "SOURCE TARGET", "" if none */
	const char *summary;  /* one line, without a full stop */
	const char *example;  /* a whole command line */
	size_t min_operands, max_operands;
	const struct naos_option *options; /* ends with name NULL; may be NULL */
	int (*run)(struct naos_invocation *invocation, struct naos_error *err); /* 0 or a code */
	bool without_config; /* run() gets config NULL: the command must work although the configuration is broken */
};

/* What the user asked for; valid during run(). */
struct naos_invocation {
	const struct naos_command *command;
	size_t operand_count;
	char **operands;
	const char *values[NAOS_MAX_OPTIONS]; /* by index in command->options; "" for a flag that was given */
	bool json;                            /* --json */
	bool verbose;                         /* --verbose */
	const char *config_path;              /* --config, or NULL */
	struct rlimit core_limit;             /* RLIMIT_CORE before main() lowered it */
	struct naos_config *config;           /* loaded (naos.conf or --config); NULL if without_config */
};

/* Value of an option, "" for a given flag, NULL if it was not given.  Aborts on a name that the table lacks. */
const char *naos_option_value(const struct naos_invocation *invocation, const char *name);
bool naos_option_given(const struct naos_invocation *invocation, const char *name);

/* "3/16" → index 3 of 16 (1-based). NAOS_E_USAGE otherwise.  An absent option gives 1/1. */
int naos_option_shard(const struct naos_invocation *invocation, unsigned *ret_index, unsigned *ret_count, struct naos_error *err);

/* Prints a JSON value on one line to standard output and releases it.  NULL (no memory for the value) is NAOS_E_NOMEM.
 * Results go to standard output through stdio; main() flushes and reports a failed write, so printf needs no check.
 * Errors and warnings go to standard error, as JSON lines too under --json: standard output never mixes with them. */
int naos_print_json(json_t *value, struct naos_error *err);
/* A JSON string of any bytes: what is not UTF-8 is written as \xHH, as for a person (naos_io_printable). */
json_t *naos_json_text(const char *text);

#define X(name) extern const struct naos_command naos_command_##name;
#include "commands.def"
#undef X

/* The rows of commands.def, in its order; NULL behind the last one. */
const struct naos_command *naos_command_row(unsigned index);
/* The command that words[0…] name, and how many of them its name takes; NAOS_E_USAGE suggests the nearest one. */
int naos_command_find(char **words, size_t count, const struct naos_command **ret, size_t *ret_words,
		      struct naos_error *err) naos_must_check;
/* The options that every command has; ends with name NULL. */
extern const struct naos_option naos_global_options[];

/* Fills *ret from the arguments.  --help and --version become the commands `help` and `version`.  All strings are borrowed from argv;
 * words of argv are reordered.  NAOS_E_USAGE with one sentence that suggests the nearest name. */
int naos_parse(int argc, char **argv, struct naos_invocation *ret, struct naos_error *err) naos_must_check;

#endif
