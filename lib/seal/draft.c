/* New sealed files.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/draft.h"

#include <errno.h>
#include <fcntl.h>

int naos_sealed_draft(struct naos_filesets *sets, const struct naos_fileset *set, int draft_fd, const char *shown,
		      struct naos_sealed_file **ret, struct naos_error *err)
{
	naos_autoclose int fd = fcntl(draft_fd, F_DUPFD_CLOEXEC, 3);
	struct naos_new_key key;
	struct naos_store *store;
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s twice", shown);
	int rc = naos_filesets_new_key(sets, set, &key, err);
	if (rc != 0)
		return rc;
	const struct naos_sealed_new what = {
		.mode = NAOS_SEALED_LOCAL, .algorithm = set->algorithm, .file_id = key.file_id, .fileset_id = set->id,
		.fek = key.fek, .blob = &key.blob, .unpublished = true,
	};
	rc = naos_store_posix(fd, shown, &store, err);
	if (rc == 0) {
		(void)naos_fd_steal(&fd);
		rc = naos_sealed_file_create(store, &what, ret, err);
	}
	(void)naos_secret_free(key.fek);
	return rc;
}
