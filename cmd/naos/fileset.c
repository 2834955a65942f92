/* naos fileset list, show.  SPDX-License-Identifier: Apache-2.0 */
#include "fileset.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "admin.h"
#include "base/log.h"
#include "base/progress.h"
#include "keys/expiry.h"

/* ---- the configuration */

bool naos_fileset_section_at(const struct naos_config *config, unsigned index, struct naos_fileset_section *ret)
{
	const char *name = naos_config_section_name(config, "fileset", index);
	const struct naos_config_key *row;
	if (!name)
		return false;
	*ret = (struct naos_fileset_section){
		.name = name,
		.mek = naos_config_string(config, "fileset", name, "mek"),
		.algorithm = naos_config_string(config, "fileset", name, "algorithm"),
		.id = naos_config_string(config, "fileset", name, "id"),
		.path = naos_config_string(config, "fileset", name, "path"),
		.mountpoint = naos_config_string(config, "fileset", name, "mountpoint"),
		.mode = naos_config_string(config, "fileset", name, "mode"),
		.options = naos_config_string(config, "fileset", name, "options"),
		.seal_delay_s = naos_config_number(config, "fileset", name, "seal-delay"),
	};
	if (!ret->mek[0])
		ret->mek = name;
	for (unsigned i = 0; (row = naos_config_key_row(i)); i++)
		if (strcmp(row->section, "fileset") == 0 && (!ret->origin || strcmp(ret->origin, "default") == 0))
			ret->origin = naos_config_origin(config, "fileset", name, row->key);
	return true;
}

int naos_fileset_section_find(const struct naos_config *config, const char *name, struct naos_fileset_section *ret, struct naos_error *err)
{
	char names[256] = "";
	struct naos_fileset_section section;
	for (unsigned i = 0; naos_fileset_section_at(config, i, &section); i++) {
		size_t used = strlen(names);
		if (strcmp(section.name, name) == 0) {
			*ret = section;
			return 0;
		}
		(void)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "", section.name);
	}
	return naos_error_set(err, NAOS_E_NOTFOUND, "the configuration has no file set '%s'%s%s", name, names[0] ? "; there is " : "", names);
}

/* ---- mounts */

const struct naos_mount *naos_fileset_mount_next(const struct naos_mounts *mounts, const char *name, const struct naos_mount *after)
{
	size_t first = after ? (size_t)(after - mounts->items) + 1 : 0;
	for (size_t i = first; i < mounts->count; i++)
		if (naos_mount_is_fileset(&mounts->items[i]) && strcmp(mounts->items[i].source, name) == 0)
			return &mounts->items[i];
	return NULL;
}

bool naos_fileset_mount_is_dead(const struct naos_mount *mount)
{
	struct statvfs status;
	return statvfs(mount->point, &status) != 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

/* ---- what list and show look at */

struct look {
	struct naos_mounts mounts;
	struct naos_mek *meks;
	size_t mek_count;
	struct naos_error keys_away; /* code 0: the key manager answered */
};

static void end_look(struct look *look)
{
	naos_mounts_free(&look->mounts);
	free(look->meks);
}

/* A key manager that is away is shown, and is no failure. */
static int begin_look(const struct naos_invocation *invocation, struct look *look, struct naos_error *err)
{
	naos_autoprovider struct naos_provider *provider = NULL;
	if (naos_admin_open_keys(invocation, &provider, &look->keys_away) == 0)
		(void)!naos_mek_list(provider, &look->meks, &look->mek_count, &look->keys_away);
	if (look->keys_away.code != 0)
		naos_log(NAOS_LOG_WARNING, "the state of keys is not known: %s", look->keys_away.message);
	return naos_mounts_read(&look->mounts, err);
}

/* The version that wraps, else the newest; NULL if there is none. */
static const struct naos_mek *version_of(const struct look *look, const char *mek)
{
	const struct naos_mek *found = NULL;
	for (size_t i = 0; i < look->mek_count; i++) {
		const struct naos_mek *one = &look->meks[i];
		bool better = !found || (one->state == NAOS_MEK_ACTIVE) > (found->state == NAOS_MEK_ACTIVE) ||
			      ((one->state == NAOS_MEK_ACTIVE) == (found->state == NAOS_MEK_ACTIVE) && one->version > found->version);
		if (strcmp(one->name, mek) == 0 && better)
			found = one;
	}
	return found;
}

static const char *key_text(const struct look *look, const char *mek, char *text, size_t bytes)
{
	const struct naos_mek *version = version_of(look, mek);
	if (look->keys_away.code != 0)
		(void)snprintf(text, bytes, "%s (key manager unavailable)", mek);
	else if (!version)
		(void)snprintf(text, bytes, "%s (no such key)", mek);
	else
		(void)snprintf(text, bytes, "%s/%u %s", mek, version->version, naos_mek_state_name(version->state));
	return text;
}

static json_t *key_json(const struct look *look, const char *mek)
{
	const struct naos_mek *version = version_of(look, mek);
	char id[NAOS_UUID_TEXT_BYTES];
	if (look->keys_away.code != 0)
		return json_pack("{s:s, s:s, s:o}", "name", mek, "state", "unknown", "reason", naos_json_text(look->keys_away.message));
	if (!version)
		return json_pack("{s:s, s:s}", "name", mek, "state", "absent");
	return json_pack("{s:s, s:s, s:s, s:I}", "name", mek, "state", naos_mek_state_name(version->state), "id",
			 naos_uuid_format(&version->id, id), "version", (json_int_t)version->version);
}

static json_t *mounts_json(const struct look *look, const char *name)
{
	json_t *list = json_array();
	for (const struct naos_mount *at = NULL; (at = naos_fileset_mount_next(&look->mounts, name, at));)
		(void)json_array_append_new(list, json_pack("{s:o, s:b, s:s}", "point", naos_json_text(at->point), "dead",
							    naos_fileset_mount_is_dead(at), "options", at->options));
	return list;
}

static json_t *space_json(const char *path)
{
	struct statvfs status;
	if (!path[0] || statvfs(path, &status) != 0)
		return json_null();
	json_int_t unit = (json_int_t)status.f_frsize;
	return json_pack("{s:I, s:I, s:I}", "size", unit * (json_int_t)status.f_blocks, "free", unit * (json_int_t)status.f_bfree,
			 "available", unit * (json_int_t)status.f_bavail);
}

static int print_json(const struct look *look, const struct naos_fileset_section *set, struct naos_error *err)
{
	return naos_print_json(json_pack("{s:o, s:o, s:o, s:o, s:o, s:s, s:s, s:o, s:I, s:o, s:o, s:o}", "name", naos_json_text(set->name),
					 "id", set->id[0] ? json_string(set->id) : json_null(), "path", naos_json_text(set->path), "mountpoint",
					 naos_json_text(set->mountpoint), "key", key_json(look, set->mek), "mode", set->mode, "algorithm",
					 set->algorithm, "options", naos_json_text(set->options), "seal_delay_s", (json_int_t)set->seal_delay_s,
					 "origin", naos_json_text(set->origin), "mounts", mounts_json(look, set->name), "space",
					 space_json(set->path)), err);
}

/* ---- list */

static const char *mounted_text(const struct look *look, const char *name, char *text, size_t bytes)
{
	size_t used = 0;
	(void)snprintf(text, bytes, "-");
	for (const struct naos_mount *at = NULL; used < bytes && (at = naos_fileset_mount_next(&look->mounts, name, at));)
		used += (size_t)snprintf(text + used, bytes - used, "%s%s%s", used ? ", " : "", at->point,
					 naos_fileset_mount_is_dead(at) ? " (dead)" : "");
	return text;
}

static void print_row(const char *const cells[5], const int widths[5])
{
	printf("%-*s  %-*s  %-*s  %-*s  %s\n", widths[0], cells[0], widths[1], cells[1], widths[2], cells[2], widths[3], cells[3], cells[4]);
}

/* Twice over the same rows: once for the widths. */
static void print_table(const struct naos_config *config, const struct look *look)
{
	int widths[5] = { 0 };
	for (int printing = 0; printing < 2; printing++) {
		struct naos_fileset_section set;
		const char *cells[5] = { "NAME", "MOUNTED", "MODE", "KEY", "PATH" };
		char mounted[512], key[256];
		for (unsigned row = 0;; row++) {
			if (printing)
				print_row(cells, widths);
			for (unsigned i = 0; i < 5; i++)
				widths[i] = (int)strlen(cells[i]) > widths[i] ? (int)strlen(cells[i]) : widths[i];
			if (!naos_fileset_section_at(config, row, &set))
				break;
			cells[0] = set.name;
			cells[1] = mounted_text(look, set.name, mounted, sizeof(mounted));
			cells[2] = set.mode;
			cells[3] = key_text(look, set.mek, key, sizeof(key));
			cells[4] = set.path[0] ? set.path : "-";
		}
	}
}

static int run_list(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_cleanup(end_look) struct look look = { .meks = NULL };
	struct naos_fileset_section set;
	if (!naos_config_section_name(invocation->config, "fileset", 0))
		return 0;
	int rc = begin_look(invocation, &look, err);
	if (rc == 0 && !invocation->json)
		print_table(invocation->config, &look);
	for (unsigned i = 0; rc == 0 && invocation->json && naos_fileset_section_at(invocation->config, i, &set); i++)
		rc = print_json(&look, &set, err);
	return rc;
}

static const struct naos_option options[] = { NAOS_OPTION_KEYS, { .name = NULL } };

const struct naos_command naos_command_fileset_list = {
	.path = "fileset list", .operands = "", .summary = "List the file sets of the configuration: where, under which key, mounted or not",
	.example = "naos fileset list", .options = options, .run = run_list,
};

/* ---- show */

static void print_space(const char *path)
{
	struct statvfs status;
	char size[16], available[16];
	if (!path[0])
		printf("path        -\n");
	else if (statvfs(path, &status) != 0)
		printf("path        %s (%s)\n", path, strerrordesc_np(errno));
	else
		printf("path        %s (%s of %s available)\n", path,
		       naos_format_bytes((uint64_t)status.f_bavail * status.f_frsize, available),
		       naos_format_bytes((uint64_t)status.f_blocks * status.f_frsize, size));
}

static void print_text(const struct look *look, const struct naos_fileset_section *set)
{
	char text[512];
	unsigned older = 0;
	for (size_t i = 0; i < look->mek_count; i++)
		older += strcmp(look->meks[i].name, set->mek) == 0;
	printf("name        %s\nid          %s\n", set->name, set->id[0] ? set->id : "that of its MEK");
	print_space(set->path);
	printf("mountpoint  %s\n", set->mountpoint[0] ? set->mountpoint : "-");
	printf("mounted     %s\n", mounted_text(look, set->name, text, sizeof(text)));
	printf("mode        %s\noptions     %s\nseal-delay  %" PRIu64 "s\nalgorithm   %s\n", set->mode, set->options[0] ? set->options : "-",
	       set->seal_delay_s, set->algorithm);
	printf("key         %s", key_text(look, set->mek, text, sizeof(text)));
	if (older > 1)
		printf(" (%u versions: 'naos key show %s')", older, set->mek);
	printf("\nconfigured  %s\n", set->origin);
}

static void warn(const struct naos_invocation *invocation, const struct look *look, const struct naos_fileset_section *set)
{
	const char *uri = naos_option_value(invocation, "keys");
	struct naos_expiry expiry;
	char text[NAOS_EXPIRY_TEXT_BYTES];
	if (!uri)
		uri = naos_config_string(invocation->config, "keymanager", NULL, "uri");
	if (naos_kmip_certificate_expiry(uri, &expiry, NULL) == 0 && naos_expiry_is_near(&expiry, time(NULL), text))
		naos_log(NAOS_LOG_WARNING, "%s", text);
	for (const struct naos_mount *at = NULL; (at = naos_fileset_mount_next(&look->mounts, set->name, at));)
		if (naos_fileset_mount_is_dead(at))
			naos_log(NAOS_LOG_WARNING, "the naos-fs behind %s is gone: 'naos fileset umount %s', then mount it again", at->point,
				 set->name);
}

static int run_show(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_cleanup(end_look) struct look look = { .meks = NULL };
	struct naos_fileset_section set;
	int rc = naos_fileset_section_find(invocation->config, invocation->operands[0], &set, err);
	if (rc == 0)
		rc = begin_look(invocation, &look, err);
	if (rc != 0)
		return rc;
	warn(invocation, &look, &set);
	if (invocation->json)
		return print_json(&look, &set, err);
	print_text(&look, &set);
	return 0;
}

const struct naos_command naos_command_fileset_show = {
	.path = "fileset show", .operands = "NAME", .summary = "Show one file set: configuration, key, mounts, space",
	.example = "naos fileset show genomes", .min_operands = 1, .max_operands = 1, .options = options, .run = run_show,
};
