/* From the name of a file set to its tree.  SPDX-License-Identifier: Apache-2.0 */
#include "fileset_tree.h"

#include <errno.h>
#include <mntent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"

#define MOUNT_TYPE "fuse.naos" /* and what begins like it */

static bool is_section(const struct naos_invocation *invocation, const char *name)
{
	const char *found;
	for (unsigned i = 0; (found = naos_config_section_name(invocation->config, "fileset", i)); i++)
		if (strcmp(found, name) == 0)
			return true;
	return false;
}

/* Whether a directory lies in a mounted file set: its device is that of such a mount. */
static bool is_plain_view(const struct stat *status)
{
	FILE *table = setmntent("/proc/self/mounts", "r");
	char text[4096];
	struct mntent entry;
	struct stat root;
	bool found = false;
	while (table && !found && getmntent_r(table, &entry, text, sizeof(text)))
		found = strncmp(entry.mnt_type, MOUNT_TYPE, strlen(MOUNT_TYPE)) == 0 && stat(entry.mnt_dir, &root) == 0 &&
			root.st_dev == status->st_dev;
	if (table)
		(void)endmntent(table);
	return found;
}

int naos_fileset_tree(const struct naos_invocation *invocation, const char *given, const char **ret_path, struct naos_error *err)
{
	const char *name = invocation->operands[0];
	const char *path = given ? given : naos_config_string(invocation->config, "fileset", name, "path");
	char shown[512];
	struct stat status;
	(void)naos_io_printable(path, shown, sizeof(shown));
	if (!is_section(invocation, name))
		return naos_error_set(err, NAOS_E_NOTFOUND,
				      "there is no file set '%s' in the configuration; 'naos fileset list' lists those there are", name);
	if (!path[0])
		return naos_error_set(err, NAOS_E_CONFIG, "the section [fileset %s] has no path: where do its files lie?", name);
	if (stat(path, &status) != 0)
		return naos_error_set_errno(err, errno, "cannot open the directory %s of file set '%s'", shown, name);
	if (!S_ISDIR(status.st_mode))
		return naos_error_set(err, NAOS_E_USAGE, "%s of file set '%s' is not a directory", shown, name);
	if (is_plain_view(&status))
		return naos_error_set(err, NAOS_E_USAGE,
				      "%s is the plain view of a mounted file set; this works on the directory with the sealed files", shown);
	*ret_path = path;
	return 0;
}

int naos_fileset_summary(struct naos_work *work, const char *done, const char *current_word, const char *action, json_t *extra,
			 struct naos_error *err)
{
	const char *name = work->invocation->operands[0];
	char text[256];
	if (!work->invocation->json) {
		json_decref(extra);
		printf("%s '%s': %s\n", done, name, naos_work_text(work, current_word, text, sizeof(text)));
		return 0;
	}
	json_t *summary = naos_work_summary(work);
	if (summary)
		(void)json_object_update_new(summary, json_pack("{s:s, s:o}", "action", action, "fileset", naos_json_text(name)));
	if (summary && extra)
		(void)json_object_update(summary, extra);
	json_decref(extra);
	return naos_print_json(summary, err);
}
