/* The command table of naos: one row per command drives the parser, --help, `naos help --json`, bash completion, the
 * test of the man pages and the refusals.  A command lives in cmd/naos/<noun>.c and is listed in commands.def.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CMD_COMMAND_H
#define NAOS_CMD_COMMAND_H

#include <stddef.h>
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
};

/* What the user asked for; valid during run(). */
struct naos_invocation {
	const struct naos_command *command;
	size_t operand_count;
	char **operands;
	const char *values[NAOS_MAX_OPTIONS]; /* by index in command->options; "" for a flag that was given */
	bool json;                            /* --json */
	bool verbose;                         /* --verbose */
	struct naos_config *config;           /* loaded (naos.conf or --config) */
};

/* Value of an option, "" for a given flag, NULL if it was not given.  Aborts on a name that the table lacks. */
const char *naos_option_value(const struct naos_invocation *invocation, const char *name);
bool naos_option_given(const struct naos_invocation *invocation, const char *name);

/* "3/16" → index 3 of 16 (1-based). NAOS_E_USAGE otherwise.  An absent option gives 1/1. */
int naos_option_shard(const struct naos_invocation *invocation, unsigned *ret_index, unsigned *ret_count, struct naos_error *err);

/* Prints a JSON value on one line to standard output and releases it. */
int naos_print_json(json_t *value, struct naos_error *err);

#endif
