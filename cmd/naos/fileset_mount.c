/* naos fileset mount, umount.  SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

#include "base/log.h"
#include "fileset.h"
#include "fileset_place.h"
#include "fileset_process.h"

#define MANY 64 /* mounts of one file set that are unmounted together */
#define PATIENCE_MS 1000 /* before it is said what is waited for */

/* ---- unmounting */

/* By the system call, or for a user who mounted it himself by fusermount3. */
static int unmount(const char *point, bool detach, struct naos_error *err)
{
	char *const arguments[] = { "fusermount3", detach ? "-uz" : "-u", "-q", "--", (char *)point, NULL };
	char users[512];
	int status = 0;
	if (umount2(point, UMOUNT_NOFOLLOW | (detach ? MNT_DETACH : 0)) == 0)
		return 0;
	if (errno == EBUSY) {
		naos_process_users(point, users, sizeof(users));
		return naos_error_set(err, NAOS_E_BUSY, "%s is in use%s%s: end what uses it, or give --lazy", point, users[0] ? " by " : "", users);
	}
	if (errno != EPERM)
		return naos_error_set_errno(err, errno, "cannot unmount %s", point);
	int rc = naos_process_run(arguments, &status, err);
	if (rc == 0 && status != 0)
		rc = naos_error_set(err, NAOS_E_BUSY, "fusermount3 can't unmount %s: it is in use, or somebody else mounted it", point);
	return rc;
}

/* Until naos-fs has sealed what was changed, and is gone. */
static void wait_for_end(int daemon, const char *point)
{
	struct pollfd wait = { .fd = daemon, .events = POLLIN };
	bool drawn = false;
	for (unsigned seconds = 1; poll(&wait, 1, PATIENCE_MS) <= 0; seconds++) {
		if (isatty(STDERR_FILENO))
			(void)fprintf(stderr, "\r%s: naos-fs seals what was changed, %u s", point, seconds);
		else if (!drawn)
			naos_log(NAOS_LOG_INFO, "%s: naos-fs seals what was changed", point);
		drawn = true;
	}
	if (drawn && isatty(STDERR_FILENO))
		(void)fprintf(stderr, "\r\033[K");
}

/* What is to be unmounted: copies of what the kernel's list says, since that changes meanwhile. */
struct target {
	char name[NAME_MAX + 1], point[PATH_MAX];
	bool dead;
};

/* By the name of a file set, or a mountpoint, which may be one whose naos-fs is gone. */
static size_t find_targets(const struct naos_mounts *mounts, const char *operand, struct target *ret)
{
	char resolved[PATH_MAX];
	size_t count = 0;
	bool is_path = operand[0] == '/';
	if (is_path && realpath(operand, resolved))
		operand = resolved;
	for (size_t i = mounts->count; i-- > 0 && count < MANY;) {
		const struct naos_mount *mount = &mounts->items[i];
		if (!naos_mount_is_fileset(mount) || strcmp(is_path ? mount->point : mount->source, operand) != 0)
			continue;
		(void)snprintf(ret[count].name, sizeof(ret[count].name), "%s", mount->source);
		(void)snprintf(ret[count].point, sizeof(ret[count].point), "%s", mount->point);
		ret[count++].dead = naos_fileset_mount_is_dead(mount);
	}
	return count;
}

static int end_mount(const struct naos_invocation *invocation, const struct target *target, struct naos_error *err)
{
	struct naos_fileset_section set = { .mountpoint = "" };
	bool lazy = naos_option_given(invocation, "lazy");
	bool known = naos_fileset_section_find(invocation->config, target->name, &set, NULL) == 0;
	naos_autoclose int daemon =
		target->dead || lazy ? -1 : naos_process_find_daemon(target->name, target->point, known ? set.mountpoint : NULL);
	int rc = unmount(target->point, lazy || target->dead, err);
	if (rc != 0)
		return rc;
	if (daemon >= 0)
		wait_for_end(daemon, target->point);
	if (invocation->json)
		return naos_print_json(json_pack("{s:s, s:o, s:o, s:b}", "action", "umount", "name", naos_json_text(target->name), "point",
						 naos_json_text(target->point), "dead", target->dead), err);
	printf("the file set '%s' is unmounted from %s%s\n", target->name, target->point,
	       target->dead ? "; its naos-fs was gone already: files it had open are recovered when they are opened next" :
	       lazy	    ? "; its naos-fs ends when nothing uses it any more" : "");
	return 0;
}

static int run_umount(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_automounts struct naos_mounts mounts = { .items = NULL };
	naos_autofree struct target *targets = calloc(MANY, sizeof(*targets));
	bool stale = naos_option_given(invocation, "stale");
	int rc = targets ? naos_mounts_read(&mounts, err) : naos_error_set(err, NAOS_E_NOMEM, "no memory for the list of mounts");
	if (rc != 0)
		return rc;
	size_t count = find_targets(&mounts, invocation->operands[0], targets);
	for (size_t i = 0; rc == 0 && i < count; i++)
		if (!stale || targets[i].dead)
			rc = end_mount(invocation, &targets[i], err);
	if (count == 0 && !stale)
		rc = naos_error_set(err, NAOS_E_NOTFOUND, "no file set is mounted %s '%s'",
				    invocation->operands[0][0] == '/' ? "on" : "under the name", invocation->operands[0]);
	return rc;
}

static const struct naos_option umount_options[] = {
	{ "lazy", 'l', NULL, "take it out of the tree now; its naos-fs ends when nothing uses it any more" },
	{ "stale", 0, NULL, "only if its naos-fs is gone, else do nothing" },
	{ .name = NULL },
};

const struct naos_command naos_command_fileset_umount = {
	.path = "fileset umount", .operands = "NAME|MOUNTPOINT",
	.summary = "Unmount a file set, and wait until all that was changed is sealed", .example = "naos fileset umount genomes",
	.min_operands = 1, .max_operands = 1, .options = umount_options, .run = run_umount,
};

/* ---- mounting */

/* Refuses what is mounted there already, and takes away a mount whose naos-fs is gone. */
static int clear_point(const char *name, const char *point, struct naos_error *err)
{
	naos_automounts struct naos_mounts mounts = { .items = NULL };
	int rc = naos_mounts_read(&mounts, err);
	for (size_t i = mounts.count; rc == 0 && i-- > 0;) {
		const struct naos_mount *mount = &mounts.items[i];
		if (!naos_mount_is_fileset(mount) || strcmp(mount->point, point) != 0)
			continue;
		if (!naos_fileset_mount_is_dead(mount))
			return naos_error_set(err, NAOS_E_EXISTS, "the file set '%s' is mounted on %s already", mount->source, point);
		naos_log(NAOS_LOG_WARNING, "the naos-fs that had %s mounted is gone; files it had open are recovered when they are opened next",
			 point);
		rc = unmount(mount->point, true, err);
	}
	return rc ? naos_error_prefix(err, rc, "file set '%s'", name) : 0;
}

/* What naos-fs said about its failure stands above; this gives the same exit status. */
static int code_of(int status)
{
	switch (status) {
	case 2: return NAOS_E_USAGE;
	case 3: return NAOS_E_DENIED;
	case 4: return NAOS_E_INTEGRITY;
	case 5: return NAOS_E_KEYMANAGER;
	default: return NAOS_E_SYSTEM;
	}
}

static int start_daemon(const struct naos_invocation *invocation, const char *name, const char *point, struct naos_error *err)
{
	const char *given = naos_option_value(invocation, "options");
	char *arguments[9] = { "naos-fs" };
	unsigned count = 1;
	int status;
	if (invocation->config_path) {
		arguments[count++] = "--config";
		arguments[count++] = (char *)invocation->config_path;
	}
	if (given) {
		arguments[count++] = "-o";
		arguments[count++] = (char *)given;
	}
	arguments[count++] = (char *)name;
	arguments[count] = (char *)point;
	int rc = naos_process_run(arguments, &status, err);
	if (rc == 0 && status != 0)
		rc = naos_error_set(err, code_of(status), "the file set '%s' could not be mounted on %s: naos-fs says why above", name, point);
	return rc;
}

static int run_mount(struct naos_invocation *invocation, struct naos_error *err)
{
	const char *name = invocation->operands[0], *point;
	struct naos_fileset_section set;
	char resolved[PATH_MAX];
	int rc = naos_fileset_section_find(invocation->config, name, &set, err);
	if (rc != 0)
		return rc;
	point = invocation->operand_count > 1 ? invocation->operands[1] : set.mountpoint;
	if (!point[0])
		return naos_error_set(err, NAOS_E_USAGE, "[fileset %s] has no mountpoint: give one after its name", name);
	/* a mountpoint whose naos-fs is gone can't be resolved, and is in the list as it is */
	if (realpath(point, resolved))
		point = resolved;
	rc = clear_point(name, point, err);
	if (rc == 0)
		rc = start_daemon(invocation, name, point, err);
	if (rc != 0)
		return rc;
	if (invocation->json)
		return naos_print_json(json_pack("{s:s, s:o, s:o}", "action", "mount", "name", naos_json_text(name), "point",
						 naos_json_text(point)), err);
	printf("the file set '%s' is mounted on %s\n", name, point);
	return 0;
}

static const struct naos_option mount_options[] = {
	{ "options", 'o', "LIST", "mount options, with commas, after those of the configuration" },
	{ .name = NULL },
};

const struct naos_command naos_command_fileset_mount = {
	.path = "fileset mount", .operands = "NAME [MOUNTPOINT]", .summary = "Mount a file set: show its sealed files in plain",
	.example = "naos fileset mount genomes", .min_operands = 1, .max_operands = 2, .options = mount_options, .run = run_mount,
};
