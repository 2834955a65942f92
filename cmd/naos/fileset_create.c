/* naos fileset create.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/io.h"
#include "base/log.h"
#include "fileset.h"
#include "fileset_place.h"
#include "seal/sealed_tree.h"
#include "work.h"

#define NAME_BYTES 38 /* so that "[fileset NAME]" is no longer than a heading may be */
#define TEXT_BYTES (4 * PATH_MAX)

/* What shall be made. */
struct plan {
	const char *name, *mek, *algorithm, *mode, *options;
	char path[PATH_MAX], mountpoint[PATH_MAX]; /* canonical; mountpoint empty: none */
	mode_t permissions;
	bool adopt;
	struct naos_uuid id;
	struct naos_uuid mek_of_files; /* that wrapped the keys of adopted ones; zero: there are none */
	struct naos_mek version; /* of the MEK, which wraps */
	bool key_made;
	char drop_in[PATH_MAX];
};

/* ---- options */

static int check_name(const char *name, struct naos_error *err)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	size_t length = strlen(name);
	if (length == 0 || length > NAME_BYTES || strspn(name, letters) != length || name[0] == '-' || name[0] == '.')
		return naos_error_set(err, NAOS_E_USAGE,
				      "a file set's name has 1 to %d letters, digits, '.', '_' or '-', and begins with a letter, digit or '_'",
				      NAME_BYTES);
	return 0;
}

static const char *option_or(const struct naos_invocation *invocation, const char *option, const char *otherwise)
{
	const char *value = naos_option_value(invocation, option);
	return value ? value : otherwise;
}

static int read_permissions(const struct naos_invocation *invocation, mode_t *ret, struct naos_error *err)
{
	const char *text = option_or(invocation, "permissions", "0755");
	char *end = NULL;
	unsigned long value = strtoul(text, &end, 8);
	if (text[0] < '0' || text[0] > '7' || *end || value > 07777)
		return naos_error_set(err, NAOS_E_USAGE, "--permissions takes an octal number such as 0750, not '%s'", text);
	*ret = (mode_t)value;
	return 0;
}

static int read_options(const struct naos_invocation *invocation, struct plan *ret, struct naos_error *err)
{
	enum naos_algorithm algorithm;
	const char *path = naos_option_value(invocation, "path"), *mountpoint = naos_option_value(invocation, "mountpoint");
	*ret = (struct plan){
		.name = invocation->operands[0],
		.mek = option_or(invocation, "mek", invocation->operands[0]),
		.algorithm = option_or(invocation, "algorithm", "aes-256-gcm"),
		.mode = option_or(invocation, "mode", "local"),
		.options = option_or(invocation, "options", ""),
		.adopt = naos_option_given(invocation, "adopt"),
	};
	int rc = check_name(ret->name, err);
	if (rc == 0 && !path)
		rc = naos_error_set(err, NAOS_E_USAGE, "name the directory that will hold the sealed files with --path DIRECTORY");
	if (rc == 0)
		rc = read_permissions(invocation, &ret->permissions, err);
	if (rc == 0 && !naos_algorithm_parse(ret->algorithm, &algorithm))
		rc = naos_error_set(err, NAOS_E_USAGE, "--algorithm is aes-256-gcm or aes-128-gcm, not '%s'", ret->algorithm);
	if (rc == 0 && strcmp(ret->mode, "local") != 0 && strcmp(ret->mode, "shared") != 0)
		rc = naos_error_set(err, NAOS_E_USAGE, "--mode is local or shared, not '%s'", ret->mode);
	if (rc == 0)
		rc = naos_place_canonical("--path", path, ret->path, err);
	if (rc == 0 && mountpoint)
		rc = naos_place_canonical("--mountpoint", mountpoint, ret->mountpoint, err);
	return rc;
}

/* ---- the directory */

/* What is in a tree that shall be adopted. */
struct adoption {
	struct plan *plan;
	struct naos_tally *tally;
	pthread_mutex_t lock;
	bool known; /* plan->id is that of the first file */
};

static struct naos_uuid newest_mek(const struct naos_sealed_info *info)
{
	const struct naos_fek_slot *newest = &info->attribute;
	for (unsigned i = 0; i < NAOS_FEK_SLOTS; i++)
		if (info->slots[i].used && (!newest->used || info->slots[i].generation > newest->generation))
			newest = &info->slots[i];
	return newest->blob.mek_id;
}

static void adopt_one(struct adoption *adoption, const struct naos_tree_file *file)
{
	struct naos_error err = file->err;
	char id[NAOS_UUID_TEXT_BYTES], other[NAOS_UUID_TEXT_BYTES];
	if (err.code == 0) {
		(void)pthread_mutex_lock(&adoption->lock);
		if (!adoption->known) {
			adoption->plan->id = file->info.header.fileset_id;
			adoption->plan->mek_of_files = newest_mek(&file->info);
		}
		adoption->known = true;
		bool same = naos_uuid_equal(&adoption->plan->id, &file->info.header.fileset_id);
		(void)pthread_mutex_unlock(&adoption->lock);
		if (!same)
			(void)naos_error_set(&err, NAOS_E_EXISTS, "%s is of the file set %s, others here are of %s", file->shown,
					     naos_uuid_format(&file->info.header.fileset_id, id), naos_uuid_format(&adoption->plan->id, other));
		else if (strcmp(naos_algorithm_name(file->info.header.algorithm), adoption->plan->algorithm) != 0)
			(void)naos_error_set(&err, NAOS_E_USAGE, "%s is sealed with %s: give --algorithm %s", file->shown,
					     naos_algorithm_name(file->info.header.algorithm), naos_algorithm_name(file->info.header.algorithm));
	}
	if (err.code != 0)
		naos_tally_failure(adoption->tally, file->item->path, &err);
	else
		naos_tally_file(adoption->tally, 0);
}

static void adopt_files(void *context, struct naos_tree_file *files, size_t count)
{
	for (size_t i = 0; i < count; i++)
		adopt_one(context, &files[i]);
}

/* Every file must be sealed, and of one file set, whose id is taken. */
static int adopt_tree(struct naos_invocation *invocation, struct plan *plan, struct naos_error *err)
{
	char *operand = plan->path;
	const struct naos_work_plan work_plan = { .label = "looking at files", .operands = &operand, .operand_count = 1 };
	struct naos_work work;
	int rc = naos_work_start(&work, invocation, &work_plan, err);
	if (rc != 0)
		return rc;
	struct adoption adoption = { .plan = plan, .tally = &work.tally, .lock = PTHREAD_MUTEX_INITIALIZER };
	const struct naos_sealed_tree tree = {
		.context = &adoption, .jobs = work.jobs, .shard_index = 1, .shard_count = 1, .files = adopt_files,
	};
	naos_sealed_tree_visit(&tree, plan->path, &work.tally);
	rc = naos_work_end(&work, 0, err);
	return rc ? naos_error_prefix(err, rc, "%s can't be adopted", plan->path) : 0;
}

static int make_directories(const struct plan *plan, struct naos_error *err)
{
	int rc = naos_place_make("--path", plan->path, plan->permissions, err);
	return rc == 0 && plan->mountpoint[0] ? naos_place_make("--mountpoint", plan->mountpoint, 0755, err) : rc;
}

/* ---- the key */

/* Files that are adopted were sealed with a key: it must be this one. */
static int check_key_of_files(struct naos_provider *provider, const struct plan *plan, struct naos_error *err)
{
	naos_autofree struct naos_mek *meks = NULL;
	const char *name = "none that the key manager shows";
	size_t count = 0;
	char id[NAOS_UUID_TEXT_BYTES];
	if (naos_uuid_is_zero(&plan->mek_of_files) || naos_uuid_equal(&plan->mek_of_files, &plan->version.id))
		return 0;
	int rc = naos_mek_list(provider, &meks, &count, err);
	for (size_t i = 0; i < count; i++)
		if (naos_uuid_equal(&meks[i].id, &plan->mek_of_files))
			name = meks[i].name;
	return rc ? rc : naos_error_set(err, NAOS_E_WRONG_KEY,
					"the files in %s were sealed with the MEK %s (%s), not with '%s': name it with --mek",
					plan->path, naos_uuid_format(&plan->mek_of_files, id), name, plan->mek);
}

/* The version that wraps; made if there is no such key. */
static int get_key(struct naos_invocation *invocation, struct naos_provider *provider, struct plan *plan, struct naos_error *err)
{
	naos_autofree struct naos_mek *versions = NULL;
	size_t count = 0;
	int rc = naos_mek_find(provider, plan->mek, &versions, &count, err);
	if (rc == NAOS_E_NOKEY && naos_uuid_is_zero(&plan->mek_of_files)) {
		rc = naos_admin_create_key(invocation, provider, plan->mek, &plan->version, err);
		plan->key_made = rc == 0;
	}
	for (size_t i = 0; rc == 0 && i < count && !plan->version.version; i++)
		if (versions[i].state == NAOS_MEK_ACTIVE)
			plan->version = versions[i];
	if (rc == 0 && plan->version.version) {
		if (naos_uuid_is_zero(&plan->id))
			plan->id = plan->version.id;
		return check_key_of_files(provider, plan, err);
	}
	return rc ? rc : naos_error_set(err, NAOS_E_KEY_STATE,
					"the MEK '%s' has no active version: activate or rotate it, or choose another with --mek",
					plan->mek);
}

/* An id stands for one file set. */
static int check_id(const struct naos_config *config, const struct plan *plan, struct naos_error *err)
{
	struct naos_fileset_section other;
	struct naos_uuid id;
	for (unsigned i = 0; naos_fileset_section_at(config, i, &other); i++) {
		bool same = naos_uuid_parse(other.id, &id) ? naos_uuid_equal(&id, &plan->id) : strcmp(other.mek, plan->mek) == 0;
		if (same)
			return naos_error_set(err, NAOS_E_EXISTS, "the %s is that of the file set '%s' already (%s): a file set has a MEK of its own",
					      plan->adopt ? "id of these files" : "MEK", other.name, other.origin);
	}
	return 0;
}

/* ---- the configuration */

static void write_text(const struct plan *plan, char text[static TEXT_BYTES])
{
	char id[NAOS_UUID_TEXT_BYTES];
	size_t used = (size_t)snprintf(text, TEXT_BYTES,
				       "; Made by 'naos fileset create'.  The id is part of every sealed file: it is the same on all machines.\n"
				       "[fileset %s]\nid = %s\nmek = %s\nalgorithm = %s\npath = %s\nmode = %s\n", plan->name,
				       naos_uuid_format(&plan->id, id), plan->mek, plan->algorithm, plan->path, plan->mode);
	if (plan->mountpoint[0])
		used += (size_t)snprintf(text + used, TEXT_BYTES - used, "mountpoint = %s\n", plan->mountpoint);
	if (plan->options[0])
		(void)snprintf(text + used, TEXT_BYTES - used, "options = %s\n", plan->options);
}

/* What was written must be read as it was meant: a ';' behind a blank would begin a comment. */
static int check_text(const struct plan *plan, struct naos_error *err)
{
	naos_autoconfig struct naos_config *config = NULL;
	naos_autofree char *text = malloc(TEXT_BYTES);
	struct naos_fileset_section set;
	if (!text)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the configuration");
	write_text(plan, text);
	int rc = naos_config_parse(text, strlen(text), plan->drop_in, &config, err);
	if (rc == 0)
		rc = naos_fileset_section_find(config, plan->name, &set, err);
	if (rc == 0 && (strcmp(set.path, plan->path) != 0 || strcmp(set.mountpoint, plan->mountpoint) != 0 ||
			strcmp(set.options, plan->options) != 0 || strcmp(set.mek, plan->mek) != 0))
		rc = naos_error_set(err, NAOS_E_USAGE, "a path or option has characters that the configuration can't hold: choose plainer ones");
	return rc;
}

static int find_drop_in(const struct naos_invocation *invocation, struct plan *plan, struct naos_error *err)
{
	const char *config = naos_config_path(invocation->config_path);
	int bytes = snprintf(plan->drop_in, sizeof(plan->drop_in), "%s.d/fileset-%s.conf", config, plan->name);
	if (bytes < 0 || (size_t)bytes >= sizeof(plan->drop_in))
		return naos_error_set(err, NAOS_E_LIMIT, "the path of the configuration is too long");
	if (access(plan->drop_in, F_OK) == 0)
		return naos_error_set(err, NAOS_E_EXISTS, "%s is there already", plan->drop_in);
	return 0;
}

static int write_drop_in(const struct plan *plan, struct naos_error *err)
{
	naos_autofree char *text = malloc(TEXT_BYTES);
	char folder[PATH_MAX];
	if (!text)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the configuration");
	write_text(plan, text);
	(void)snprintf(folder, sizeof(folder), "%s", plan->drop_in);
	*strrchr(folder, '/') = 0;
	if (mkdir(folder, 0755) != 0 && errno != EEXIST)
		return naos_error_set_errno(err, errno, "cannot make %s", folder);
	return naos_io_replace_file(AT_FDCWD, plan->drop_in, text, strlen(text), 0644, err);
}

/* ---- all of it */

static void say_next(const struct plan *plan)
{
	const char *where = plan->mountpoint[0] ? "" : " MOUNTPOINT";
	printf("next: naos fileset mount %s%s\n", plan->name, where);
	printf("      give it to those who shall use it: chown and chmod what is mounted\n");
	printf("      at boot: systemctl enable --now naos-fs@%s, or in /etc/fstab:\n", plan->name);
	printf("      %s %s naos defaults,_netdev,nofail 0 0\n", plan->name, plan->mountpoint[0] ? plan->mountpoint : "MOUNTPOINT");
	if (strcmp(plan->mode, "shared") == 0)
		printf("      on every other node: copy %s there\n", plan->drop_in);
}

static int print_done(const struct naos_invocation *invocation, const struct plan *plan, struct naos_error *err)
{
	char id[NAOS_UUID_TEXT_BYTES];
	(void)naos_uuid_format(&plan->id, id);
	if (invocation->json)
		return naos_print_json(json_pack("{s:s, s:s, s:s, s:s, s:I, s:b, s:o, s:o, s:o}", "action", "create", "name", plan->name, "id", id,
						 "mek", plan->mek, "version", (json_int_t)plan->version.version, "key_made", plan->key_made,
						 "path", naos_json_text(plan->path), "mountpoint", naos_json_text(plan->mountpoint),
						 "configuration", naos_json_text(plan->drop_in)), err);
	printf("the file set '%s' is made: sealed files in %s, key %s/%u%s\n", plan->name, plan->path, plan->mek, plan->version.version,
	       plan->key_made ? " (new)" : "");
	printf("configuration: %s\n", plan->drop_in);
	say_next(plan);
	return 0;
}

/* Directory, key, configuration, in this order: what is left by a failure is used by the next try. */
static int make_set(struct naos_invocation *invocation, struct plan *plan, struct naos_error *err)
{
	naos_autoprovider struct naos_provider *provider = NULL;
	int rc = naos_admin_open_keys(invocation, &provider, err);
	if (rc == 0)
		rc = make_directories(plan, err);
	if (rc == 0)
		rc = plan->adopt ? adopt_tree(invocation, plan, err) : naos_place_check_empty(plan->path, err);
	if (rc == 0)
		rc = get_key(invocation, provider, plan, err);
	if (rc == 0)
		rc = check_id(invocation->config, plan, err);
	return rc ? rc : write_drop_in(plan, err);
}

static int run_create(struct naos_invocation *invocation, struct naos_error *err)
{
	struct plan plan;
	struct naos_fileset_section old;
	int rc = read_options(invocation, &plan, err);
	if (rc == 0 && naos_fileset_section_find(invocation->config, plan.name, &old, NULL) == 0)
		rc = naos_error_set(err, NAOS_E_EXISTS, "there is a file set '%s' already (%s)", plan.name, old.origin);
	if (rc == 0)
		rc = find_drop_in(invocation, &plan, err);
	if (rc == 0)
		rc = check_text(&plan, err);
	if (rc == 0)
		rc = naos_place_check_apart(invocation->config, plan.path, plan.mountpoint, err);
	if (rc == 0)
		rc = naos_admin_begin(invocation, "fileset.create", plan.name, err);
	if (rc != 0)
		return rc;
	rc = make_set(invocation, &plan, err);
	naos_admin_end(invocation, "fileset.create", plan.name, rc, err);
	if (rc == 0)
		naos_place_warn(plan.path);
	return rc ? rc : print_done(invocation, &plan, err);
}

static const struct naos_option options[] = {
	{ "path", 0, "DIRECTORY", "where the sealed files will lie: an empty directory, or one that is made" },
	{ "mountpoint", 0, "DIRECTORY", "where naos-fs will show them" },
	{ "mek", 0, "NAME", "its master key (default: the name of the file set); made if there is none" },
	{ "algorithm", 0, "NAME", "aes-256-gcm (default) or aes-128-gcm; it can't be changed later" },
	{ "mode", 0, "MODE", "local (default): this node alone changes it; shared: many nodes do" },
	{ "options", 'o', "LIST", "mount options, with commas" },
	{ "permissions", 0, "MODE", "of the directory if it is made (default: 0755)" },
	{ "adopt", 0, NULL, "take a tree that is sealed already" },
	NAOS_OPTION_KEYS,
	{ .name = NULL },
};

const struct naos_command naos_command_fileset_create = {
	.path = "fileset create", .operands = "NAME",
	.summary = "Make a file set: its key, its directory, its section of the configuration",
	.example = "naos fileset create genomes --path /gpfs/genomes.sealed --mountpoint /genomes",
	.min_operands = 1, .max_operands = 1, .options = options, .run = run_create,
};
