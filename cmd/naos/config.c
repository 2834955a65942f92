/* naos config check, naos config show.  SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/uuid.h"
#include "command.h"
#include "policy/policy.h"

/* What the table of keys can't say: values that must fit something else. */
static int check_values(const struct naos_config *config, struct naos_error *err)
{
	const char *name, *uri = naos_config_string(config, "keymanager", NULL, "uri");
	if (strstr(uri, "pin-value="))
		return naos_error_set(err, NAOS_E_CONFIG,
				      "%s: a PIN stands in the uri; put it into a file and name that with pin-source=file:/…",
				      naos_config_origin(config, "keymanager", NULL, "uri"));
	for (unsigned i = 0; (name = naos_config_section_name(config, "fileset", i)); i++) {
		struct naos_uuid id;
		const char *text = naos_config_string(config, "fileset", name, "id");
		if (text[0] && !naos_uuid_parse(text, &id))
			return naos_error_set(err, NAOS_E_CONFIG, "%s: '%s' is not a UUID",
					      naos_config_origin(config, "fileset", name, "id"), text);
	}
	return 0;
}

/* A policy that can't be loaded would deny everything to everybody. */
static int check_policies(const struct naos_config *config, const char *section, struct naos_error *err)
{
	const char *name;
	for (unsigned i = 0; (name = naos_config_section_name(config, section, i)); i++) {
		naos_autopolicy struct naos_policy *policy = NULL;
		const char *path = naos_config_string(config, section, name, "policy");
		int rc = path[0] ? naos_policy_load(path, &policy, err) : 0;
		if (rc != 0)
			return naos_error_prefix(err, rc, "%s", naos_config_origin(config, section, name, "policy"));
	}
	return 0;
}

static int run_check(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_autoconfig struct naos_config *config = NULL;
	const char *path = invocation->operand_count ? invocation->operands[0] : invocation->config_path;
	int rc = naos_config_load(path, &config, err);
	if (rc == 0)
		rc = check_values(config, err);
	if (rc == 0)
		rc = check_policies(config, "collection", err);
	if (rc == 0)
		rc = check_policies(config, "fileset", err);
	if (rc != 0)
		return rc;
	const char *shown = naos_config_path(path);
	if (invocation->json)
		return naos_print_json(json_pack("{s:o, s:b}", "config", naos_json_text(shown), "valid", 1), err);
	printf("%s: ok\n", shown);
	return 0;
}

const struct naos_command naos_command_config_check = {
	.path = "config check", .operands = "[FILE]", .summary = "Check the configuration and say what is wrong, with file and line",
	.example = "naos config check /etc/naos/naos.conf", .max_operands = 1, .run = run_check, .without_config = true,
};

/* The value without a PIN that somebody wrote into it. */
static const char *shown_value(const char *value, char *buffer, size_t bytes)
{
	const char *pin = strstr(value, "pin-value=");
	if (!pin)
		return value;
	const char *from = pin + strlen("pin-value="), *rest = from + strcspn(from, "&;?");
	(void)snprintf(buffer, bytes, "%.*s(hidden)%s", (int)(from - value), value, rest);
	return buffer;
}

/* One section, [section] or [section name], as text or into *values. */
static void show_section(const struct naos_config *config, const char *section, const char *name, json_t *values)
{
	const struct naos_config_key *row;
	char buffer[4096];
	if (!values)
		printf("[%s%s%s]\n", section, name ? " " : "", name ? name : "");
	for (unsigned i = 0; (row = naos_config_key_row(i)); i++) {
		if (strcmp(row->section, section) != 0)
			continue;
		const char *value = shown_value(naos_config_string(config, section, name, row->key), buffer, sizeof(buffer));
		const char *origin = naos_config_origin(config, section, name, row->key);
		if (values)
			(void)json_array_append_new(values, json_pack("{s:s, s:o*, s:s, s:o, s:o}", "section", section, "name",
								     name ? naos_json_text(name) : NULL, "key", row->key, "value",
								     naos_json_text(value), "origin", naos_json_text(origin)));
		else
			printf("%s = %s ; %s\n", row->key, value, origin);
	}
	if (!values)
		printf("\n");
}

static int run_show(struct naos_invocation *invocation, struct naos_error *err)
{
	const struct naos_config_key *row;
	const char *section = "", *name;
	json_t *values = invocation->json ? json_array() : NULL;
	for (unsigned i = 0; (row = naos_config_key_row(i)); i++) {
		if (strcmp(row->section, section) == 0)
			continue;
		section = row->section;
		if (!row->named)
			show_section(invocation->config, section, NULL, values);
		for (unsigned j = 0; row->named && (name = naos_config_section_name(invocation->config, section, j)); j++)
			show_section(invocation->config, section, name, values);
	}
	if (invocation->json)
		return naos_print_json(json_pack("{s:o, s:o}", "config",
						 naos_json_text(naos_config_path(invocation->config_path)), "values", values), err);
	return 0;
}

const struct naos_command naos_command_config_show = {
	.path = "config show", .operands = "", .summary = "Show each value in force and where it was set",
	.example = "naos config show", .run = run_show,
};
