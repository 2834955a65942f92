/* naos help, naos version: all that is said here comes from the tables.  SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <openssl/crypto.h>

#include "command.h"

#define COLUMN 30 /* where the help of an option begins */

static void print_option(const struct naos_option *option)
{
	char left[80];
	char letter[8] = "    ";
	if (option->letter)
		(void)snprintf(letter, sizeof(letter), "-%c, ", option->letter);
	int used = snprintf(left, sizeof(left), "  %s--%s%s%s", letter, option->name, option->argument ? " " : "",
			    option->argument ? option->argument : "");
	if (used >= COLUMN)
		printf("%s\n%*s%s\n", left, COLUMN, "", option->help);
	else
		printf("%-*s%s\n", COLUMN, left, option->help);
}

static void print_options(const char *heading, const struct naos_option *options, bool with_version)
{
	printf("\n%s\n", heading);
	for (; options->name; options++)
		if (with_version || strcmp(options->name, "version") != 0)
			print_option(options);
}

static void print_command(const struct naos_command *command)
{
	printf("Usage: naos %s [OPTION]...%s%s\n\n%s.\n", command->path, command->operands[0] ? " " : "", command->operands,
	       command->summary);
	if (command->options && command->options[0].name)
		print_options("Options:", command->options, true);
	print_options("Options of every command:", naos_global_options, false);
	printf("\nExample:\n  %s\n\nThe manual: man naos-%.*s\n", command->example, (int)strcspn(command->path, " "), command->path);
}

static void print_overview(void)
{
	const struct naos_command *command;
	printf("Usage: naos [OPTION]... COMMAND [OPTION]... [OPERAND]...\n\n"
	       "Keeps data sealed for its whole life on a shared system.\n\nCommands:\n");
	for (unsigned i = 0; (command = naos_command_row(i)); i++)
		if (!strchr(command->path, ' '))
			printf("  %-20s%s\n", command->path, command->summary);
	printf("\nAdministration:\n");
	for (unsigned i = 0; (command = naos_command_row(i)); i++)
		if (strchr(command->path, ' '))
			printf("  %-20s%s\n", command->path, command->summary);
	print_options("Options of every command:", naos_global_options, true);
	printf("\n'naos help COMMAND' says more about one, with an example.\n"
	       "Exit status: 0 done, 1 failed, 2 usage, 3 denied by policy, 4 integrity failure, 5 key manager unavailable.\n");
}

static json_t *options_json(const struct naos_option *options)
{
	json_t *array = json_array();
	for (; options && options->name; options++) {
		char letter[2] = { options->letter, 0 };
		(void)json_array_append_new(array, json_pack("{s:s, s:s*, s:s*, s:s}", "name", options->name, "letter",
							    letter[0] ? letter : NULL, "argument", options->argument, "help",
							    options->help));
	}
	return array;
}

static json_t *command_json(const struct naos_command *command)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:o}", "path", command->path, "operands", command->operands, "summary",
			 command->summary, "example", command->example, "min_operands", (json_int_t)command->min_operands, "max_operands",
			 (json_int_t)command->max_operands, "options", options_json(command->options));
}

static json_t *table_json(const char *only)
{
	const struct naos_command *command;
	json_t *commands = json_array();
	for (unsigned i = 0; (command = naos_command_row(i)); i++)
		if (!only || strcmp(only, command->path) == 0)
			(void)json_array_append_new(commands, command_json(command));
	return json_pack("{s:s, s:o, s:o}", "version", NAOS_VERSION, "global_options", options_json(naos_global_options), "commands",
			 commands);
}

/* "seal --fileset= --force": a word a line tells a completion script what can follow. */
static void print_words(void)
{
	const struct naos_command *command;
	for (const struct naos_option *option = naos_global_options; option->name; option++)
		printf("--%s%s%s", option->name, option->argument ? "=" : "", option[1].name ? " " : "\n");
	for (unsigned i = 0; (command = naos_command_row(i)); i++) {
		printf("%s:", command->path);
		for (const struct naos_option *option = command->options; option && option->name; option++)
			printf(" --%s%s", option->name, option->argument ? "=" : "");
		printf("\n");
	}
}

static int run_help(struct naos_invocation *invocation, struct naos_error *err)
{
	const struct naos_command *command = NULL;
	size_t words = 0;
	if (naos_option_given(invocation, "words")) {
		print_words();
		return 0;
	}
	if (invocation->operand_count > 0) {
		int rc = naos_command_find(invocation->operands, invocation->operand_count, &command, &words, err);
		if (rc != 0)
			return rc;
		if (words < invocation->operand_count)
			return naos_error_set(err, NAOS_E_USAGE, "there is no command '%s %s'; 'naos help' lists the commands",
					      invocation->operands[0], invocation->operands[1]);
	}
	if (invocation->json)
		return naos_print_json(table_json(command ? command->path : NULL), err);
	if (command)
		print_command(command);
	else
		print_overview();
	return 0;
}

static const struct naos_option help_options[] = {
	{ "words", 0, NULL, "commands and options in plain lines, for completion scripts" },
	{ .name = NULL },
};

const struct naos_command naos_command_help = {
	.path = "help", .operands = "[COMMAND]", .summary = "Show how a command is used, or list them all",
	.example = "naos help config show", .min_operands = 0, .max_operands = 2, .options = help_options, .run = run_help,
	.without_config = true,
};

static int run_version(struct naos_invocation *invocation, struct naos_error *err)
{
	if (invocation->json)
		return naos_print_json(json_pack("{s:s, s:s, s:s}", "version", NAOS_VERSION, "openssl",
						 OpenSSL_version(OPENSSL_VERSION_STRING), "jansson", jansson_version_str()), err);
	printf("naos %s\n", NAOS_VERSION);
	return 0;
}

const struct naos_command naos_command_version = {
	.path = "version", .operands = "", .summary = "Show the version of Naos, with --json those of its libraries too",
	.example = "naos version --json", .options = NULL, .run = run_version, .without_config = true,
};
