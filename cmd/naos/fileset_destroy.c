/* naos fileset destroy: the crypto-erase.  SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "confirm.h"
#include "fileset.h"
#include "seal/sealed_tree.h"
#include "work.h"

/* What is ended, and how far that went. */
struct destruction {
	struct naos_invocation *invocation;
	struct naos_fileset_section set;
	struct naos_provider *provider;
	struct naos_mek *versions; /* of the MEK, newest first; none if there is no such key any more */
	size_t count;
	struct naos_uuid mek_id;
	atomic_uint_least64_t unreadable, readable; /* files that only this MEK opens; others */
	unsigned destroyed, waiting; /* versions */
	uint64_t deleted;
	bool unconfigured;
};

/* ---- what will be lost */

static void count_one(struct destruction *destruction, const struct naos_tree_file *file)
{
	bool other = false;
	for (unsigned i = 0; i < NAOS_FEK_SLOTS; i++)
		other |= file->info.slots[i].used && !naos_uuid_equal(&file->info.slots[i].blob.mek_id, &destruction->mek_id);
	atomic_fetch_add(other || file->err.code ? &destruction->readable : &destruction->unreadable, 1);
}

static void count_files(void *context, struct naos_tree_file *files, size_t count)
{
	for (size_t i = 0; i < count; i++)
		count_one(context, &files[i]);
}

static int count_tree(struct destruction *destruction, struct naos_error *err)
{
	char *operand = (char *)destruction->set.path;
	const struct naos_work_plan plan = { .label = "counting files", .operands = &operand, .operand_count = 1 };
	struct naos_work work;
	if (!operand[0] || access(operand, F_OK) != 0)
		return 0;
	int rc = naos_work_start(&work, destruction->invocation, &plan, err);
	if (rc != 0)
		return rc;
	const struct naos_sealed_tree tree = {
		.context = destruction, .jobs = work.jobs, .shard_index = 1, .shard_count = 1, .once = true, .files = count_files,
	};
	naos_sealed_tree_visit(&tree, operand, &work.tally);
	return naos_work_end(&work, 0, err);
}

static int confirm(const struct destruction *destruction, struct naos_error *err)
{
	const struct naos_invocation *invocation = destruction->invocation;
	char question[1024], path[512];
	if (naos_option_given(invocation, "yes"))
		return 0;
	(void)naos_io_printable(destruction->set.path, path, sizeof(path));
	(void)snprintf(question, sizeof(question),
		       "The file set '%s' ends: all versions of its MEK '%s' are destroyed. %" PRIu64 " file%s in %s, and every backup of them,\n"
		       "can't be opened by anybody any more.%s\nType the name of the file set: ", destruction->set.name, destruction->set.mek,
		       (uint64_t)destruction->unreadable, destruction->unreadable == 1 ? "" : "s", path[0] ? path : "(no directory configured)",
		       naos_option_given(invocation, "delete") ? " The sealed files are deleted." : " The sealed files stay where they are.");
	return naos_confirm(question, destruction->set.name, err);
}

/* naos-fs holds a lock on the directory: also where its mount can't be seen from here, in a container or, if the file system below passes
 * locks on, on another node. */
static int check_unused(const struct naos_fileset_section *set, struct naos_error *err)
{
	naos_autoclose int fd = open(set->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
		return 0;
	return naos_error_set(err, NAOS_E_BUSY,
			      "a naos-fs works on %s, in another namespace or on another node: unmount the file set there first", set->path);
}

static int check_unmounted(const struct naos_fileset_section *set, struct naos_error *err)
{
	naos_automounts struct naos_mounts mounts = { .items = NULL };
	int rc = naos_mounts_read(&mounts, err);
	const struct naos_mount *mount = rc ? NULL : naos_fileset_mount_next(&mounts, set->name, NULL);
	if (mount)
		rc = naos_error_set(err, NAOS_E_BUSY,
				    "the file set '%s' is mounted on %s: unmount it on all nodes first ('naos fileset umount %s')", set->name,
				    mount->point, set->name);
	return rc ? rc : check_unused(set, err);
}

/* A MEK that two file sets share would take the other's files too. */
static int check_shared_key(const struct naos_config *config, const struct naos_fileset_section *set, struct naos_error *err)
{
	struct naos_fileset_section other;
	for (unsigned i = 0; naos_fileset_section_at(config, i, &other); i++)
		if (strcmp(other.name, set->name) != 0 && strcmp(other.mek, set->mek) == 0)
			return naos_error_set(err, NAOS_E_BUSY, "the file set '%s' has the same MEK '%s': its files would be lost too", other.name,
					      set->mek);
	return 0;
}

static int find_key(struct destruction *destruction, struct naos_error *err)
{
	int rc = naos_admin_open_keys(destruction->invocation, &destruction->provider, err);
	if (rc == 0)
		rc = naos_mek_find(destruction->provider, destruction->set.mek, &destruction->versions, &destruction->count, err);
	if (rc == 0)
		destruction->mek_id = destruction->versions[0].id;
	else if (rc == NAOS_E_NOKEY && !naos_uuid_parse(destruction->set.id, &destruction->mek_id))
		destruction->mek_id = (struct naos_uuid){ .bytes = { 0 } };
	return rc == NAOS_E_NOKEY ? 0 : rc;
}

/* ---- the end of the key */

/* A key manager that asks for several people answers each but the last with a refusal that says how many there are. */
static int destroy_version(struct destruction *destruction, const struct naos_mek *mek, struct naos_error *err)
{
	char object[NAOS_MEK_NAME_BYTES + 12];
	(void)snprintf(object, sizeof(object), "%s/%u", mek->name, mek->version);
	int rc = naos_admin_begin(destruction->invocation, "key.destroy", object, err);
	if (rc != 0)
		return rc;
	if (mek->state == NAOS_MEK_ACTIVE) /* no new file may be made with a key that ends; what there is stays readable until it does */
		rc = naos_mek_deactivate(destruction->provider, mek->name, mek->version, err);
	if (rc == 0)
		rc = naos_mek_destroy(destruction->provider, mek->name, mek->version, err);
	naos_admin_end(destruction->invocation, "key.destroy", object, rc, err);
	if (rc == NAOS_E_DENIED) {
		destruction->waiting++;
		naos_log(NAOS_LOG_WARNING, "%s: %s", object, err->message);
		return 0;
	}
	destruction->destroyed += rc == 0;
	return rc;
}

static int destroy_key(struct destruction *destruction, struct naos_error *err)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < destruction->count; i++)
		if (destruction->versions[i].state != NAOS_MEK_DESTROYED)
			rc = destroy_version(destruction, &destruction->versions[i], err);
	if (rc == 0 && destruction->waiting)
		rc = naos_error_set(err, NAOS_E_DENIED,
				    "%u version%s of the MEK '%s' not destroyed yet, and nothing was deleted: the lines above say why; where others "
				    "must agree, they run the same command or 'naos key approve', then run 'naos fileset destroy %s' again",
				    destruction->waiting, destruction->waiting == 1 ? " is" : "s are", destruction->set.mek,
				    destruction->set.name);
	return rc;
}

/* ---- the end of the files and of the section */

static int enter(void *context, struct naos_walk_dir *dir)
{
	return 0;
}

static void delete_items(void *context, unsigned worker, struct naos_walk_item *items, size_t count)
{
	struct naos_work *work = context;
	for (size_t i = 0; i < count; i++) {
		struct naos_error err = NAOS_ERROR_INIT;
		if (unlinkat(items[i].dir->fd, items[i].name, 0) == 0)
			naos_tally_file(&work->tally, 0);
		else
			naos_tally_failure(&work->tally, items[i].path,
					   (naos_error_set_errno(&err, errno, "cannot delete %s", items[i].path), &err));
	}
}

static void delete_directory(void *context, struct naos_walk_dir *dir)
{
	struct naos_work *work = context;
	struct naos_error err = NAOS_ERROR_INIT;
	const char *slash = strrchr(dir->path, '/');
	if (!dir->parent || naos_tally_stopped(&work->tally))
		return;
	if (unlinkat(dir->parent->fd, slash ? slash + 1 : dir->path, AT_REMOVEDIR) != 0) {
		(void)naos_error_set_errno(&err, errno, "cannot delete %s", dir->path);
		naos_tally_failure(&work->tally, dir->path, &err);
	}
}

static void settle(void *context, unsigned worker)
{
}

static int delete_tree(struct destruction *destruction, struct naos_error *err)
{
	char *operand = (char *)destruction->set.path;
	const struct naos_work_plan plan = { .label = "deleting files", .operands = &operand, .operand_count = 1 };
	struct naos_work work;
	if (!operand[0] || access(operand, F_OK) != 0)
		return 0;
	int rc = naos_work_start(&work, destruction->invocation, &plan, err);
	if (rc != 0)
		return rc;
	const struct naos_walk_visitor visitor = {
		.context = &work, .jobs = work.jobs, .enter = enter, .leave = delete_directory, .work = delete_items, .settle = settle,
	};
	naos_walk(operand, &visitor, &work.tally);
	destruction->deleted = work.tally.files;
	if (work.tally.failed == 0 && rmdir(operand) != 0 && errno != EBUSY) /* EBUSY: a file system of its own */
		rc = naos_error_set_errno(err, errno, "cannot delete %s", operand);
	return naos_work_end(&work, rc, err);
}

/* The drop-in that create wrote is removed; a section that somebody wrote is his. */
static void unconfigure(struct destruction *destruction)
{
	const char *config = naos_config_path(destruction->invocation->config_path), *origin = destruction->set.origin;
	naos_autofree char *drop_in = NULL;
	if (asprintf(&drop_in, "%s.d/fileset-%s.conf", config, destruction->set.name) < 0)
		return;
	size_t length = strlen(drop_in);
	bool ours = strncmp(origin, drop_in, length) == 0 && origin[length] == ':';
	destruction->unconfigured = ours && unlink(drop_in) == 0;
	if (!destruction->unconfigured)
		naos_log(NAOS_LOG_WARNING, "remove the section [fileset %s] from the configuration (%s)", destruction->set.name, origin);
}

/* ---- all of it */

static int print_done(const struct destruction *destruction, struct naos_error *err)
{
	const char *path = destruction->set.path;
	bool deleted = naos_option_given(destruction->invocation, "delete");
	if (destruction->invocation->json)
		return naos_print_json(json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:b, s:I, s:b}", "action", "destroy", "name",
						 destruction->set.name, "mek", destruction->set.mek, "versions", (json_int_t)destruction->destroyed,
						 "unreadable", (json_int_t)destruction->unreadable, "others",
						 (json_int_t)destruction->readable, "path", naos_json_text(path), "deleted", deleted,
						 "deleted_files", (json_int_t)destruction->deleted, "unconfigured",
						 destruction->unconfigured), err);
	printf("the file set '%s' is destroyed: %u version%s of the MEK '%s', %" PRIu64 " file%s can't be opened any more\n",
	       destruction->set.name, destruction->destroyed, destruction->destroyed == 1 ? "" : "s", destruction->set.mek,
	       (uint64_t)destruction->unreadable, destruction->unreadable == 1 ? "" : "s");
	if (destruction->readable)
		printf("%" PRIu64 " other file%s in %s had another key or none\n", (uint64_t)destruction->readable,
		       destruction->readable == 1 ? "" : "s", path);
	if (deleted)
		printf("%" PRIu64 " files were deleted in %s\n", destruction->deleted, path);
	else if (path[0])
		printf("what is in %s is of no use any more; delete it when you like\n", path);
	return 0;
}

static int destroy(struct destruction *destruction, struct naos_error *err)
{
	int rc = destroy_key(destruction, err);
	if (rc == 0 && naos_option_given(destruction->invocation, "delete"))
		rc = delete_tree(destruction, err);
	if (rc == 0)
		unconfigure(destruction);
	return rc;
}

static int run_destroy(struct naos_invocation *invocation, struct naos_error *err)
{
	struct destruction destruction = { .invocation = invocation };
	const char *name = invocation->operands[0];
	int rc = naos_fileset_section_find(invocation->config, name, &destruction.set, err);
	if (rc == 0)
		rc = check_unmounted(&destruction.set, err);
	if (rc == 0)
		rc = check_shared_key(invocation->config, &destruction.set, err);
	if (rc == 0)
		rc = find_key(&destruction, err);
	if (rc == 0)
		rc = count_tree(&destruction, err);
	if (rc == 0)
		rc = confirm(&destruction, err);
	if (rc == 0)
		rc = naos_admin_begin(invocation, "fileset.destroy", name, err);
	if (rc == 0) {
		rc = destroy(&destruction, err);
		naos_admin_end(invocation, "fileset.destroy", name, rc, err);
	}
	if (rc == 0)
		rc = print_done(&destruction, err);
	free(destruction.versions);
	(void)naos_provider_close(destruction.provider);
	return rc;
}

static const struct naos_option options[] = {
	NAOS_OPTION_KEYS,
	{ "delete", 0, NULL, "also delete the sealed files and their directory" },
	{ "yes", 'y', NULL, "do not ask" },
	{ .name = NULL },
};

const struct naos_command naos_command_fileset_destroy = {
	.path = "fileset destroy", .operands = "NAME",
	.summary = "End a file set for ever: destroy its master key, so that nobody opens its files",
	.example = "naos fileset destroy genomes", .min_operands = 1, .max_operands = 1, .options = options, .run = run_destroy,
};
