/* Reads the command line by the table: finds the command, hands its options to getopt_long, refuses calmly.
 * SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

#define MAX_WORD 64	 /* longest word for which a similar name is looked for */
#define FIRST_VALUE 1000 /* getopt's value of the first option of a command; above every letter */

enum { GLOBAL_HELP, GLOBAL_JSON, GLOBAL_CONFIG, GLOBAL_VERBOSE, GLOBAL_VERSION };

const struct naos_option naos_global_options[] = {
	[GLOBAL_HELP] = { "help", 'h', NULL, "show this help and exit" },
	[GLOBAL_JSON] = { "json", 0, NULL, "results and errors as JSON, one object a line" },
	[GLOBAL_CONFIG] = { "config", 0, "FILE", "configuration to use instead of /etc/naos/naos.conf" },
	[GLOBAL_VERBOSE] = { "verbose", 'v', NULL, "say more on standard error" },
	[GLOBAL_VERSION] = { "version", 0, NULL, "show the version and exit" },
	{ .name = NULL },
};
#define GLOBAL_COUNT (NAOS_ARRAY_LENGTH(naos_global_options) - 1)

static const struct naos_command *const commands[] = {
#define X(name) &naos_command_##name,
#include "commands.def"
#undef X
};

const struct naos_command *naos_command_row(unsigned index)
{
	return index < NAOS_ARRAY_LENGTH(commands) ? commands[index] : NULL;
}

static size_t smallest(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Edits (insert, delete, replace, exchange neighbours) between two words of at most MAX_WORD bytes. */
static size_t edit_distance(const char *a, const char *b)
{
	size_t rows[3][MAX_WORD + 1], a_length = strlen(a), b_length = strlen(b);
	size_t *before = rows[0], *last = rows[1], *now = rows[2];
	for (size_t j = 0; j <= b_length; j++)
		last[j] = before[j] = j;
	for (size_t i = 1; i <= a_length; i++) {
		now[0] = i;
		for (size_t j = 1; j <= b_length; j++) {
			now[j] = smallest(smallest(last[j], now[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				now[j] = smallest(now[j], before[j - 2] + 1);
		}
		size_t *oldest = before;
		before = last;
		last = now;
		now = oldest;
	}
	return last[b_length];
}

/* Keeps in *best the candidate that is nearest to word, if it is near enough to be meant. */
static void consider(const char *word, const char *candidate, const char **best, size_t *best_distance)
{
	if (strlen(word) > MAX_WORD || strlen(candidate) > MAX_WORD)
		return;
	size_t distance = edit_distance(word, candidate), length = strlen(candidate);
	if (distance <= (length < 4 ? 1 : length / 3) && distance < *best_distance) {
		*best = candidate;
		*best_distance = distance;
	}
}

/* The verb of "key rotate"; NULL for a command of one word. */
static const char *verb_of(const struct naos_command *command)
{
	const char *space = strchr(command->path, ' ');
	return space ? space + 1 : NULL;
}

static bool has_noun(const struct naos_command *command, const char *noun)
{
	const char *verb = verb_of(command);
	size_t length = strlen(noun);
	return verb && (size_t)(verb - 1 - command->path) == length && strncmp(command->path, noun, length) == 0;
}

static bool is_noun(const char *word)
{
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(commands); i++)
		if (has_noun(commands[i], word))
			return true;
	return false;
}

/* "'naos audit show' or 'naos config show'" for the verb "show"; "" if no noun has it. */
static void find_nouns(const char *verb, char *list, size_t bytes)
{
	size_t used = 0;
	list[0] = 0;
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(commands); i++)
		if (verb_of(commands[i]) && strcmp(verb_of(commands[i]), verb) == 0) {
			int put = snprintf(list + used, bytes - used, "%s'naos %s'", used ? " or " : "", commands[i]->path);
			used = smallest(used + (size_t)put, bytes - 1);
		}
}

static int unknown_command(const char *word, struct naos_error *err)
{
	const char *best = NULL;
	size_t distance = MAX_WORD;
	char nouns[256];
	find_nouns(word, nouns, sizeof(nouns));
	if (nouns[0])
		return naos_error_set(err, NAOS_E_USAGE, "unknown command '%s'; did you mean %s?", word, nouns);
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(commands); i++) {
		char noun[MAX_WORD];
		const char *before = best;
		(void)snprintf(noun, sizeof(noun), "%.*s", (int)strcspn(commands[i]->path, " "), commands[i]->path);
		consider(word, noun, &best, &distance);
		if (best != before)
			best = commands[i]->path; /* noun is a copy; the path lives on */
	}
	if (best)
		return naos_error_set(err, NAOS_E_USAGE, "unknown command '%s'; did you mean 'naos %.*s'?", word,
				      (int)strcspn(best, " "), best);
	return naos_error_set(err, NAOS_E_USAGE, "unknown command '%s'; 'naos help' lists the commands", word);
}

static int unknown_verb(const char *noun, const char *word, struct naos_error *err)
{
	const char *best = NULL;
	size_t distance = MAX_WORD, used = 0;
	char list[256] = "";
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(commands); i++) {
		if (!has_noun(commands[i], noun))
			continue;
		if (word)
			consider(word, verb_of(commands[i]), &best, &distance);
		int put = snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "", verb_of(commands[i]));
		used = smallest(used + (size_t)put, sizeof(list) - 1);
	}
	if (best)
		return naos_error_set(err, NAOS_E_USAGE, "unknown command '%s %s'; did you mean 'naos %s %s'?", noun, word, noun, best);
	if (word)
		return naos_error_set(err, NAOS_E_USAGE, "unknown command '%s %s'; '%s' is followed by one of: %s", noun, word, noun, list);
	return naos_error_set(err, NAOS_E_USAGE, "'naos %s' needs a verb: %s", noun, list);
}

int naos_command_find(char **words, size_t count, const struct naos_command **ret, size_t *ret_words, struct naos_error *err)
{
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(commands); i++) {
		const char *verb = verb_of(commands[i]);
		if (verb ? count > 1 && has_noun(commands[i], words[0]) && strcmp(verb, words[1]) == 0 :
			   strcmp(commands[i]->path, words[0]) == 0) {
			*ret = commands[i];
			*ret_words = verb ? 2 : 1;
			return 0;
		}
	}
	if (is_noun(words[0]))
		return unknown_verb(words[0], count > 1 && words[1][0] != '-' ? words[1] : NULL, err);
	return unknown_command(words[0], err);
}

static size_t option_count(const struct naos_command *command)
{
	size_t count = 0;
	while (command && command->options && command->options[count].name)
		count++;
	if (count > NAOS_MAX_OPTIONS)
		abort(); /* the table of this command outgrew the limit */
	return count;
}

/* getopt's two views of the options of a command (NULL: the global ones alone). */
struct getopt_tables {
	struct option long_options[NAOS_MAX_OPTIONS + GLOBAL_COUNT + 1];
	char letters[2 * (NAOS_MAX_OPTIONS + GLOBAL_COUNT) + 3];
};

static void add_option(struct getopt_tables *tables, size_t *count, size_t *used, const struct naos_option *option, int value)
{
	tables->long_options[(*count)++] = (struct option){ option->name, option->argument ? required_argument : no_argument, NULL, value };
	if (option->letter) {
		tables->letters[(*used)++] = option->letter;
		if (option->argument)
			tables->letters[(*used)++] = ':';
	}
}

static void make_tables(const struct naos_command *command, struct getopt_tables *tables)
{
	size_t count = 0, used = 0;
	if (!command)
		tables->letters[used++] = '+'; /* stop at the command's name */
	tables->letters[used++] = ':'; /* tell a missing argument from an unknown option */
	for (size_t i = 0; i < option_count(command); i++)
		add_option(tables, &count, &used, &command->options[i], FIRST_VALUE + (int)i);
	for (size_t i = 0; i < GLOBAL_COUNT; i++)
		if (!command || i != GLOBAL_VERSION)
			add_option(tables, &count, &used, &naos_global_options[i], FIRST_VALUE + NAOS_MAX_OPTIONS + (int)i);
	tables->long_options[count] = (struct option){ 0 };
	tables->letters[used] = 0;
}

/* The value that stands for a short option is its letter: the index is found here. */
static int value_of(const struct naos_command *command, int value)
{
	if (value >= FIRST_VALUE)
		return value;
	for (size_t i = 0; i < option_count(command); i++)
		if (command->options[i].letter == value)
			return FIRST_VALUE + (int)i;
	for (size_t i = 0; i < GLOBAL_COUNT; i++)
		if (naos_global_options[i].letter == value)
			return FIRST_VALUE + NAOS_MAX_OPTIONS + (int)i;
	return value;
}

static int refuse_option(const struct naos_command *command, const struct getopt_tables *tables, int problem, const char *word,
			 struct naos_error *err)
{
	char name[MAX_WORD + 1];
	const char *help = command ? command->path : "", *space = command ? " " : ""; /* "naos seal --help" or "naos --help" */
	(void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
	if (problem == ':')
		return naos_error_set(err, NAOS_E_USAGE, "option '%s' needs an argument; see 'naos%s%s --help'", word, space, help);
	if (optopt >= FIRST_VALUE)
		return naos_error_set(err, NAOS_E_USAGE, "option '%s' takes no argument; see 'naos%s%s --help'", name, space, help);
	if (optopt)
		return naos_error_set(err, NAOS_E_USAGE, "unknown option '-%c'; see 'naos%s%s --help'", optopt, space, help);
	const char *best = NULL, *written = name + strspn(name, "-");
	size_t distance = MAX_WORD, matches = 0;
	for (const struct option *option = tables->long_options; option->name; option++) {
		consider(written, option->name, &best, &distance);
		matches += strncmp(option->name, written, strlen(written)) == 0;
	}
	if (matches > 1)
		return naos_error_set(err, NAOS_E_USAGE, "option '%s' is not written out: %zu options begin so; see 'naos%s%s --help'",
				      name, matches, space, help);
	if (best)
		return naos_error_set(err, NAOS_E_USAGE, "unknown option '%s'; did you mean '--%s'?", name, best);
	return naos_error_set(err, NAOS_E_USAGE, "unknown option '%s'; see 'naos%s%s --help'", name, space, help);
}

/* Takes options from argv[1…]; operands end up behind them, from optind on.  *ret_global gets a bit per global option. */
static int take_options(int argc, char **argv, const struct naos_command *command, struct naos_invocation *ret, unsigned *ret_global,
			struct naos_error *err)
{
	struct getopt_tables tables;
	make_tables(command, &tables);
	optind = 0; /* GNU: start anew */
	opterr = 0;
	for (;;) {
		int value = getopt_long(argc, argv, tables.letters, tables.long_options, NULL);
		if (value < 0)
			return 0;
		if (value == '?' || value == ':')
			return refuse_option(command, &tables, value, argv[optind - 1], err);
		value = value_of(command, value) - FIRST_VALUE;
		if (value < NAOS_MAX_OPTIONS) {
			ret->values[value] = optarg ? optarg : "";
			continue;
		}
		*ret_global |= 1u << (value - NAOS_MAX_OPTIONS);
		if (value == NAOS_MAX_OPTIONS + GLOBAL_CONFIG)
			ret->config_path = optarg;
	}
}

static int check_operands(const struct naos_invocation *invocation, struct naos_error *err)
{
	const struct naos_command *command = invocation->command;
	if (invocation->operand_count < command->min_operands)
		return naos_error_set(err, NAOS_E_USAGE, "'naos %s' needs %s; see 'naos %s --help'", command->path, command->operands,
				      command->path);
	if (invocation->operand_count > command->max_operands)
		return naos_error_set(err, NAOS_E_USAGE, "'naos %s' does not take '%s'; see 'naos %s --help'", command->path,
				      invocation->operands[command->max_operands], command->path);
	return 0;
}

/* --help and --version stand for the commands `help` and `version`. */
static void instead(struct naos_invocation *invocation, const struct naos_command *command, const char *operand)
{
	static char path[MAX_WORD], *operands[2]; /* naos_parse runs once */
	memset(invocation->values, 0, sizeof(invocation->values));
	invocation->command = command;
	invocation->operands = operands;
	invocation->operand_count = 0;
	(void)snprintf(path, sizeof(path), "%s", operand ? operand : "");
	for (char *rest = path, *word; (word = strsep(&rest, " ")) && word[0];)
		operands[invocation->operand_count++] = word;
}

/* The command named at argv[first…], its options and operands. */
static int take_command(int argc, char **argv, int first, struct naos_invocation *ret, unsigned *ret_global, struct naos_error *err)
{
	size_t name_words = 0;
	int rc = naos_command_find(argv + first, (size_t)(argc - first), &ret->command, &name_words, err);
	if (rc != 0)
		return rc;
	int base = first + (int)name_words - 1;
	rc = take_options(argc - base, argv + base, ret->command, ret, ret_global, err);
	if (rc != 0)
		return rc;
	ret->operands = argv + base + optind;
	ret->operand_count = (size_t)(argc - base - optind);
	return *ret_global & 1u << GLOBAL_HELP ? 0 : check_operands(ret, err);
}

int naos_parse(int argc, char **argv, struct naos_invocation *ret, struct naos_error *err)
{
	struct naos_invocation result = { 0 };
	unsigned global = 0;
	int rc = take_options(argc, argv, NULL, &result, &global, err);
	if (rc == 0 && optind < argc)
		rc = take_command(argc, argv, optind, &result, &global, err);
	else if (rc == 0 && !(global & (1u << GLOBAL_HELP | 1u << GLOBAL_VERSION)))
		rc = naos_error_set(err, NAOS_E_USAGE, "no command was given; 'naos help' lists the commands");
	if (rc != 0)
		return rc;
	if (global & 1u << GLOBAL_HELP)
		instead(&result, &naos_command_help, result.command ? result.command->path : NULL);
	else if (global & 1u << GLOBAL_VERSION)
		instead(&result, &naos_command_version, NULL);
	result.json = global & 1u << GLOBAL_JSON;
	result.verbose = global & 1u << GLOBAL_VERBOSE;
	*ret = result;
	return 0;
}

static size_t option_index(const struct naos_invocation *invocation, const char *name)
{
	size_t count = option_count(invocation->command);
	for (size_t i = 0; i < count; i++)
		if (strcmp(invocation->command->options[i].name, name) == 0)
			return i;
	abort(); /* the code asks for an option that the table of its command lacks */
}

const char *naos_option_value(const struct naos_invocation *invocation, const char *name)
{
	return invocation->values[option_index(invocation, name)];
}

bool naos_option_given(const struct naos_invocation *invocation, const char *name)
{
	return naos_option_value(invocation, name) != NULL;
}

int naos_option_shard(const struct naos_invocation *invocation, unsigned *ret_index, unsigned *ret_count, struct naos_error *err)
{
	const char *text = naos_option_value(invocation, "shard");
	unsigned index = 1, count = 1;
	int used = 0;
	if (text && (strspn(text, "0123456789/") != strlen(text) || sscanf(text, "%7u/%7u%n", &index, &count, &used) != 2 ||
		     text[used] != 0 || index < 1 || index > count))
		return naos_error_set(err, NAOS_E_USAGE, "'--shard %s' is not a share such as 3/16", text);
	*ret_index = index;
	*ret_count = count;
	return 0;
}
