/* From plain to sealed, file by file.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/migrate.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/io.h"
#include "seal/draft.h"
#include "seal/metadata.h"

#define MAGIC_BYTES 8

/* A store over the file, which stays open. */
static int store_over(int fd, const char *shown, struct naos_store **ret, struct naos_error *err)
{
	naos_autoclose int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (own < 0)
		return naos_error_set_errno(err, errno, "cannot open %s twice", shown);
	int rc = naos_store_posix(own, shown, ret, err);
	if (rc == 0)
		(void)naos_fd_steal(&own);
	return rc;
}

int naos_migrate_look(void *context, struct naos_replace_file *file, bool *ret_current, struct naos_error *err)
{
	const struct naos_migration *migration = context;
	uint8_t start[MAGIC_BYTES] = { 0 };
	struct naos_sealed_info info;
	struct naos_store *store;
	size_t got;
	char id[NAOS_UUID_TEXT_BYTES];
	*ret_current = false;
	int rc = naos_io_pread(file->fd, start, sizeof(start), 0, &got, file->shown, err);
	if (rc != 0 || memcmp(start, "NAOSSF1\n", sizeof(start)) != 0)
		return rc;
	/* sealed already: never sealed twice, whoever's it is and whatever state it is in */
	rc = store_over(file->fd, file->shown, &store, err);
	if (rc != 0)
		return rc;
	rc = naos_sealed_probe(store, &info, err);
	store->ops->close(store);
	if (rc == 0 && !naos_uuid_equal(&info.header.fileset_id, &migration->set->id))
		rc = naos_error_set(err, NAOS_E_WRONG_KEY, "%s belongs to another file set, %s", file->shown,
				    naos_uuid_format(&info.header.fileset_id, id));
	*ret_current = rc == 0;
	return rc;
}

static int read_back(const struct naos_migration *migration, const struct naos_replace_file *file, struct naos_copy_buffer *buffer,
		     int draft_fd, struct naos_error *err)
{
	struct naos_sealed_info info;
	struct naos_sealed_file *sealed;
	struct naos_store *store;
	int rc = store_over(draft_fd, file->shown, &store, err);
	if (rc != 0)
		return rc;
	rc = naos_sealed_probe(store, &info, err);
	if (rc != 0) {
		store->ops->close(store);
		return rc;
	}
	const struct naos_fek_source source = naos_filesets_source(migration->sets, migration->set, &info);
	rc = naos_sealed_file_open(store, NAOS_SEALED_READ, &source, &sealed, err);
	if (rc != 0)
		return rc;
	rc = naos_copy_compare(buffer, file->fd, file->shown, sealed, migration->tally, err);
	int closed = naos_sealed_file_close(sealed, false, rc == 0 ? err : NULL);
	return rc ? rc : closed;
}

int naos_migrate_fill(void *context, struct naos_replace_file *file, struct naos_copy_buffer *buffer, int draft_fd, uint64_t *ret_bytes,
		      struct naos_error *err)
{
	const struct naos_migration *migration = context;
	const struct stat *old = &file->old.status;
	struct naos_sealed_file *sealed;
	struct naos_metadata_loss loss;
	struct stat after;
	int rc = naos_sealed_draft(migration->sets, migration->set, draft_fd, file->shown, &sealed, err);
	if (rc != 0)
		return rc;
	(void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	rc = naos_copy_in(buffer, file->fd, file->shown, (uint64_t)old->st_size, sealed, migration->tally, err);
	int closed = naos_sealed_file_close(sealed, rc == 0, rc == 0 ? err : NULL);
	rc = rc ? rc : closed;
	if (rc == 0 && migration->compare)
		rc = read_back(migration, file, buffer, draft_fd, err);
	if (rc == 0)
		rc = naos_metadata_copy(file->fd, old, 0, draft_fd, file->shown, &loss, err);
	if (rc != 0)
		return rc;
	if (fstat(file->fd, &after) != 0 || after.st_size != old->st_size || after.st_mtim.tv_sec != old->st_mtim.tv_sec ||
	    after.st_mtim.tv_nsec != old->st_mtim.tv_nsec)
		return naos_error_set(err, NAOS_E_CHANGED, "%s changed while it was read", file->shown);
	if (loss.attributes)
		naos_tally_notice(migration->tally, file->path, NAOS_NOTICE_ATTRIBUTES);
	if (loss.setid)
		naos_tally_notice(migration->tally, file->path, NAOS_NOTICE_SETID);
	*ret_bytes = (uint64_t)old->st_size;
	return 0;
}
