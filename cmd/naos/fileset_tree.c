/* From the name of a file set to its tree.  SPDX-License-Identifier: Apache-2.0 */
#include "fileset_tree.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/io.h"
#include "fileset.h"

/* Whether a directory lies in a mounted file set: its device is that of such a mount. */
static int refuse_plain_view(const struct stat *status, const char *shown, struct naos_error *err)
{
	naos_automounts struct naos_mounts mounts = { .count = 0 };
	int rc = naos_mounts_read(&mounts, err);
	for (size_t i = 0; rc == 0 && i < mounts.count; i++)
		if (naos_mount_is_fileset(&mounts.items[i]) && mounts.items[i].major == major(status->st_dev) &&
		    mounts.items[i].minor == minor(status->st_dev))
			return naos_error_set(err, NAOS_E_USAGE,
					      "%s is the plain view of the file set '%s'; this works on the directory with the sealed files",
					      shown, mounts.items[i].source);
	return rc;
}

int naos_fileset_tree(const struct naos_invocation *invocation, const char *given, const char **ret_path, struct naos_error *err)
{
	const char *name = invocation->operands[0];
	struct naos_fileset_section section;
	char shown[512];
	struct stat status;
	int rc = naos_fileset_section_find(invocation->config, name, &section, err);
	if (rc != 0)
		return rc;
	const char *path = given ? given : section.path;
	(void)naos_io_printable(path, shown, sizeof(shown));
	if (!path[0])
		return naos_error_set(err, NAOS_E_CONFIG, "the section [fileset %s] has no path: where do its files lie?", name);
	if (stat(path, &status) != 0)
		return naos_error_set_errno(err, errno, "cannot open the directory %s of file set '%s'", shown, name);
	if (!S_ISDIR(status.st_mode))
		return naos_error_set(err, NAOS_E_USAGE, "%s of file set '%s' is not a directory", shown, name);
	rc = refuse_plain_view(&status, shown, err);
	if (rc != 0)
		return rc;
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
