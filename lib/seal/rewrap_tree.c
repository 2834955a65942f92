/* Rewrapping in batches: look, open, wrap all at once, write.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/rewrap_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "seal/metadata.h"

/* One file on its way. */
struct job {
	struct naos_tree_file *file;
	const struct naos_fileset *set;
	struct naos_sealed_file *sealed;
	int fd;             /* a second descriptor, for its times */
	struct stat status; /* before */
	bool lent_write;    /* the owner's write permission was added for the time of the work */
};

static void fail(const struct naos_rewrap *rewrap, const struct naos_tree_file *file, const struct naos_error *err)
{
	naos_tally_failure(rewrap->tally, file->item->path, err);
}

static const struct naos_fek_slot *newest_slot(const struct naos_sealed_info *info, unsigned *ret_used)
{
	const struct naos_fek_slot *newest = NULL;
	*ret_used = 0;
	for (unsigned i = 0; i < NAOS_FEK_SLOTS; i++)
		if (info->slots[i].used) {
			(*ret_used)++;
			newest = !newest || info->slots[i].generation > newest->generation ? &info->slots[i] : newest;
		}
	return newest;
}

/* One copy, under the active version, and the attribute is the same or absent. */
static bool is_current(const struct naos_sealed_info *info, const struct naos_mek *active)
{
	unsigned used;
	const struct naos_fek_slot *slot = newest_slot(info, &used);
	return used == 1 && !info->slot_damaged && !info->attribute_damaged && naos_uuid_equal(&slot->blob.mek_id, &active->id) &&
	       slot->blob.mek_version == active->version &&
	       (!info->attribute.used || memcmp(info->attribute.raw, slot->raw, sizeof(slot->raw)) == 0);
}

/* With repair: current by what can be seen, every copy opens and is authentic, and the file was closed. */
static bool is_sound(const struct naos_rewrap *rewrap, struct naos_tree_file *file)
{
	const struct naos_fek_source source = naos_filesets_source(rewrap->sets, rewrap->set, &file->info);
	naos_autoclose int fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 3);
	struct naos_sealed_file *sealed;
	struct naos_store *store;
	if (!file->info.attribute.used || fd < 0 || naos_store_posix(fd, file->shown, &store, NULL) != 0)
		return false;
	(void)naos_fd_steal(&fd);
	if (naos_sealed_file_open(store, NAOS_SEALED_READ, &source, &sealed, NULL) != 0)
		return false;
	bool clean = naos_sealed_file_clean(sealed);
	return naos_sealed_file_close(sealed, false, NULL) == 0 && clean;
}

/* The probe's descriptor reads only.  An owner's read-only file is made writable for a moment. */
static int open_for_writing(struct job *job, struct naos_error *err)
{
	struct naos_tree_file *file = job->file;
	const struct naos_walk_item *item = file->item;
	int flags = O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (item->dir->entered ? O_NOFOLLOW : 0);
	struct stat opened;
	if (fstat(file->fd, &job->status) != 0)
		return naos_error_set_errno(err, errno, "cannot read the metadata of %s", file->shown);
	int fd = openat(item->dir->fd, item->name, flags);
	if (fd < 0 && errno == EACCES && fchmod(file->fd, (job->status.st_mode & 07777) | S_IWUSR) == 0) {
		job->lent_write = true;
		fd = openat(item->dir->fd, item->name, flags);
	}
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s for writing", file->shown);
	job->fd = file->fd;
	file->fd = fd;
	if (fstat(fd, &opened) != 0 || opened.st_ino != job->status.st_ino || opened.st_dev != job->status.st_dev)
		return naos_error_set(err, NAOS_E_CHANGED, "%s was replaced meanwhile", file->shown);
	naos_metadata_note_times(fd, &job->status);
	return 0;
}

static int begin(const struct naos_rewrap *rewrap, struct job *job, struct naos_error *err)
{
	struct naos_tree_file *file = job->file;
	struct naos_fek_source source = naos_filesets_source(rewrap->sets, rewrap->set, &file->info);
	source.tolerate_damaged_slots = rewrap->repair;
	int rc = open_for_writing(job, err);
	if (rc == 0)
		rc = naos_tree_file_open(file, NAOS_SEALED_LOCAL, &source, &job->sealed, err);
	if (rc == 0 && naos_sealed_file_recovered(job->sealed))
		naos_tally_notice(rewrap->tally, file->item->path, NAOS_NOTICE_RECOVERED);
	return rc;
}

/* Times and mode are those of the content, which did not change. */
static void put_back(struct job *job)
{
	const struct timespec times[2] = { job->status.st_atim, job->status.st_mtim };
	if (job->fd < 0)
		return;
	(void)!futimens(job->fd, times);
	naos_metadata_put_times_back(job->fd); /* the same, and forgets the note */
	if (job->lent_write)
		(void)!fchmod(job->fd, job->status.st_mode & 07777);
	naos_close_descriptor(&job->fd);
}

static int finish(struct job *job, const struct naos_blob *blob, struct naos_error *err)
{
	const struct naos_uuid *only = NULL;
	for (unsigned i = 0; i < NAOS_FEK_SLOTS; i++)
		if (job->file->info.slots[i].used && naos_uuid_equal(&job->file->info.slots[i].blob.mek_id, &blob->mek_id))
			only = &blob->mek_id;
	int rc = naos_sealed_file_rewrap(job->sealed, blob, only, err);
	int closed = naos_sealed_file_close(naos_steal(job->sealed), rc == 0, rc == 0 ? err : NULL);
	return rc ? rc : closed;
}

/* Wraps the keys of jobs that share a file set, in one round trip, and writes them. */
static void rewrap_set(const struct naos_rewrap *rewrap, struct job *jobs, size_t count)
{
	struct naos_wrap_item items[NAOS_WALK_BATCH];
	struct naos_error err;
	for (size_t i = 0; i < count; i++) {
		const struct naos_sealed_header *header = naos_sealed_file_header(jobs[i].sealed);
		items[i] = (struct naos_wrap_item){
			.context = { .kind = NAOS_WRAP_FILE, .group_id = header->fileset_id, .object_id = header->file_id },
			.key = naos_sealed_file_fek(jobs[i].sealed),
		};
	}
	int rc = naos_keys_wrap(naos_filesets_provider(rewrap->sets), jobs[0].set->mek, items, count, &err);
	for (size_t i = 0; i < count; i++) {
		struct naos_error own = items[i].result ? items[i].error : err;
		int result = items[i].result ? items[i].result : rc;
		if (rc == 0 || (items[i].result == 0 && items[i].blob.ciphertext_bytes))
			result = finish(&jobs[i], &items[i].blob, &own);
		else
			(void)naos_error_prefix(&own, result, "%s", jobs[i].file->shown);
		put_back(&jobs[i]);
		if (result != 0)
			fail(rewrap, jobs[i].file, &own);
		else
			naos_tally_file(rewrap->tally, 0);
	}
}

/* Whether the file needs work; what can't be worked on is reported. */
static bool select_file(const struct naos_rewrap *rewrap, struct naos_tree_file *file, struct job *job)
{
	struct naos_error err = file->err;
	struct naos_mek active;
	char id[NAOS_UUID_TEXT_BYTES];
	const struct naos_fileset *set = rewrap->set;
	int rc = err.code;
	if (file->fd >= 0)
		naos_metadata_put_times_back(file->fd); /* of a run that was killed */
	if (rc == 0 && !set && (rc = naos_filesets_of_file(rewrap->sets, &file->info.header.fileset_id, &set, &err)) != 0)
		(void)naos_error_prefix(&err, rc, "%s", file->shown);
	if (rc == 0 && !naos_uuid_equal(&set->id, &file->info.header.fileset_id))
		rc = naos_error_set(&err, NAOS_E_WRONG_KEY, "%s belongs to another file set, %s", file->shown,
				    naos_uuid_format(&file->info.header.fileset_id, id));
	if (rc == 0)
		rc = naos_filesets_active(rewrap->sets, set, &active, &err);
	if (rc == 0 && is_current(&file->info, &active) && (!rewrap->repair || is_sound(rewrap, file))) {
		naos_tally_current(rewrap->tally);
		return false;
	}
	*job = (struct job){ .file = file, .set = set, .fd = -1 };
	if (rc == 0)
		rc = begin(rewrap, job, &err);
	if (rc != 0) {
		put_back(job);
		fail(rewrap, file, &err);
	}
	return rc == 0;
}

void naos_rewrap_files(void *context, struct naos_tree_file *files, size_t count)
{
	const struct naos_rewrap *rewrap = context;
	struct job jobs[NAOS_WALK_BATCH];
	size_t used = 0;
	for (size_t i = 0; i < count; i++) {
		if (naos_tally_stopped(rewrap->tally))
			break;
		used += select_file(rewrap, &files[i], &jobs[used]);
	}
	for (size_t first = 0, next; first < used; first = next) {
		for (next = first + 1; next < used && jobs[next].set == jobs[first].set; next++)
			;
		rewrap_set(rewrap, jobs + first, next - first);
	}
}

int naos_rewrap_mend(const struct naos_rewrap *rewrap, struct naos_tree_file *file, bool rebuild, struct naos_error *err)
{
	struct job job = { .file = file, .set = rewrap->set, .fd = -1 };
	int rc = begin(rewrap, &job, err);
	if (rc == 0 && rebuild) {
		const struct naos_sealed_header *header = naos_sealed_file_header(job.sealed);
		struct naos_wrap_item item = {
			.context = { .kind = NAOS_WRAP_FILE, .group_id = header->fileset_id, .object_id = header->file_id },
			.key = naos_sealed_file_fek(job.sealed),
		};
		rc = naos_keys_wrap(naos_filesets_provider(rewrap->sets), rewrap->set->mek, &item, 1, err);
		if (rc == 0)
			rc = finish(&job, &item.blob, err);
	}
	if (job.sealed) {
		int closed = naos_sealed_file_close(naos_steal(job.sealed), rc == 0, rc == 0 ? err : NULL);
		rc = rc ? rc : closed;
	}
	put_back(&job);
	return rc;
}
