/* One file after the other: look, mend if asked to, look again.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/check_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>

#include "seal/rewrap_tree.h"

#define TOLD_RANGES 12 /* of unreadable chunks in a message */

/* What a look at a file found. */
struct finding {
	int rc;
	struct naos_error err;
	uint64_t bytes;
	bool opened; /* with its key */
	bool clean, writer;
};

static bool is_damage(int rc)
{
	return rc == NAOS_E_INTEGRITY || rc == NAOS_E_FORMAT || rc == NAOS_E_WRONG_KEY;
}

/* The same open file again, for an operation that takes its descriptor. */
static int twin_of(const struct naos_tree_file *file, struct naos_tree_file *ret, struct naos_error *err)
{
	*ret = *file;
	ret->fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 3);
	return ret->fd >= 0 ? 0 : naos_error_set_errno(err, errno, "cannot open %s twice", file->shown);
}

/* --- with keys ---------------------------------------------------------------------------------------------------------- */

/* Reads every chunk for itself and adds to the message how many can't be read, and which. */
static void name_chunks(struct naos_sealed_file *sealed, struct naos_error *err)
{
	uint64_t chunks = naos_layout_chunks(naos_sealed_file_size(sealed)), bad = 0, first = 0, run = 0, ranges = 0;
	char list[TOLD_RANGES * 48] = "";
	size_t used = 0;
	for (uint64_t chunk = 0; chunk <= chunks; chunk++) {
		uint8_t text[NAOS_CHUNK_BYTES];
		size_t got;
		bool failed = chunk < chunks &&
			      is_damage(naos_sealed_file_read(sealed, text, sizeof(text), chunk * NAOS_CHUNK_BYTES, &got, NULL));
		naos_wipe(text, sizeof(text));
		if (failed && run++ == 0)
			first = chunk;
		bad += failed;
		if (failed || run == 0)
			continue;
		if (ranges++ < TOLD_RANGES)
			used += (size_t)snprintf(list + used, sizeof(list) - used, run > 1 ? "%s%" PRIu64 "-%" PRIu64 : "%s%" PRIu64,
						 used ? ", " : "", first, first + run - 1);
		run = 0;
	}
	const struct naos_error before = *err;
	if (bad)
		(void)naos_error_set(err, before.code, "%s; %" PRIu64 " of %" PRIu64 " chunks can't be read: %s%s", before.message, bad,
				     chunks, list, ranges > TOLD_RANGES ? ", and more" : "");
}

/* A file that a writer has open is read, as its readers do; the others are checked to the last bit. */
static int read_through(struct naos_sealed_file *sealed, struct naos_error *err)
{
	naos_autofree uint8_t *buffer = malloc((size_t)NAOS_GROUP_CHUNKS * NAOS_CHUNK_BYTES);
	size_t got = 1, room = (size_t)NAOS_GROUP_CHUNKS * NAOS_CHUNK_BYTES;
	int rc = buffer ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory to read a file");
	for (uint64_t offset = 0; rc == 0 && got; offset += got)
		rc = naos_sealed_file_read(sealed, buffer, room, offset, &got, err);
	if (buffer)
		naos_wipe(buffer, room);
	return rc;
}

static void verify(const struct naos_check *check, const struct naos_tree_file *file, struct finding *ret)
{
	struct naos_fek_source source = naos_filesets_source(check->sets, check->set, &file->info);
	struct naos_tree_file twin;
	struct naos_sealed_file *sealed;
	struct finding found = { .writer = naos_sealed_has_writer(file->fd) };
	found.rc = twin_of(file, &twin, &found.err);
	if (found.rc == 0)
		found.rc = naos_tree_file_open(&twin, NAOS_SEALED_READ, &source, &sealed, &found.err);
	if (found.rc == 0) {
		found.opened = true;
		found.bytes = naos_sealed_file_size(sealed);
		found.clean = naos_sealed_file_clean(sealed);
		found.rc = found.writer ? read_through(sealed, &found.err) : naos_sealed_file_verify(sealed, &found.err);
		/* a writer that came meanwhile explains it */
		if (is_damage(found.rc) && !found.writer && naos_sealed_has_writer(file->fd)) {
			found.writer = true;
			found.rc = read_through(sealed, &found.err);
		}
		if (is_damage(found.rc) && !found.writer)
			name_chunks(sealed, &found.err);
		int closed = naos_sealed_file_close(sealed, false, found.rc == 0 ? &found.err : NULL);
		found.rc = found.rc ? found.rc : closed;
	}
	*ret = found;
}

/* Whether the attribute could be there and is not, or copies of the key contradict each other. */
static bool lacks_copies(const struct naos_tree_file *file)
{
	bool absent = !file->info.attribute.used && !file->info.attribute_damaged;
	if (absent && fgetxattr(file->fd, "user.naos.key", NULL, 0) < 0 && errno != ENODATA)
		return file->info.slot_damaged; /* no attributes on this file system */
	return !naos_sealed_copies_agree(&file->info);
}

/* Looks at what the file tells without a key anew. */
static int probe_again(struct naos_tree_file *file, struct naos_error *err)
{
	struct naos_tree_file twin;
	struct naos_store *store;
	int rc = twin_of(file, &twin, err);
	if (rc == 0)
		rc = naos_store_posix(twin.fd, file->shown, &store, err);
	if (rc != 0)
		return rc;
	rc = naos_sealed_probe(store, &file->info, err);
	store->ops->close(store);
	return rc;
}

static void mend(const struct naos_check *check, struct naos_tree_file *file, bool rebuild, struct finding *found)
{
	const struct naos_rewrap rewrap = { .sets = check->sets, .set = check->set, .tally = check->tally, .repair = true };
	struct naos_tree_file twin;
	struct naos_error err;
	int rc = check->repairing(check->context, file->item->path, rebuild ? "rebuild" : "recover", &err);
	if (rc == 0)
		rc = twin_of(file, &twin, &err);
	if (rc == 0) {
		rc = naos_rewrap_mend(&rewrap, &twin, rebuild, &err);
		naos_close_descriptor(&twin.fd);
	}
	if (rc == 0)
		rc = probe_again(file, &err);
	if (rc == 0 && rebuild)
		naos_tally_notice(check->tally, file->item->path, NAOS_NOTICE_REBUILT);
	if (rc == 0)
		verify(check, file, found);
	else if (rc == NAOS_E_BUSY && found->rc == 0)
		found->writer = true; /* one came meanwhile */
	else if (found->rc == 0 || !is_damage(rc))
		*found = (struct finding){ .rc = rc, .err = err, .writer = found->writer };
}

/* --- without ------------------------------------------------------------------------------------------------------------ */

static void inspect(const struct naos_check *check, const struct naos_tree_file *file, struct finding *ret)
{
	struct finding found = { .writer = naos_sealed_has_writer(file->fd) };
	struct naos_tree_file twin;
	struct naos_store *store;
	found.rc = twin_of(file, &twin, &found.err);
	if (found.rc == 0)
		found.rc = naos_store_posix(twin.fd, file->shown, &store, &found.err);
	if (found.rc == 0) {
		found.rc = naos_sealed_inspect(store, &check->demand, &found.clean, &found.bytes, &found.err);
		store->ops->close(store);
	}
	*ret = found;
}

/* --- either way --------------------------------------------------------------------------------------------------------- */

/* Removed or replaced while it was looked at. */
static bool is_gone(const struct naos_tree_file *file)
{
	struct stat status;
	return fstat(file->fd, &status) == 0 && status.st_nlink == 0;
}

static void report(const struct naos_check *check, const struct naos_tree_file *file, const struct finding *found)
{
	if (found->rc != 0 && is_gone(file))
		return;
	if (found->rc != 0) {
		naos_tally_failure(check->tally, file->item->path, &found->err);
		return;
	}
	if (!found->clean)
		naos_tally_notice(check->tally, file->item->path, found->writer ? NAOS_NOTICE_OPEN : NAOS_NOTICE_UNCLEAN);
	naos_tally_file(check->tally, found->bytes);
	naos_tally_progress(check->tally, found->bytes);
}

static void check_sealed(const struct naos_check *check, struct naos_tree_file *file)
{
	struct finding found;
	if (!check->sets) {
		inspect(check, file, &found);
		report(check, file, &found);
		return;
	}
	verify(check, file, &found);
	bool rebuild = lacks_copies(file) || (is_damage(found.rc) && !found.opened);
	if (check->repair && (rebuild || (found.opened && !found.clean))) {
		if (!found.writer)
			mend(check, file, rebuild, &found);
		else if (found.rc != 0)
			(void)naos_error_set(&found.err, found.rc = NAOS_E_BUSY, "%s is open for writing: repair it when it is closed",
					     file->shown);
	}
	report(check, file, &found);
}

static int set_aside(const struct naos_check *check, struct naos_tree_file *file, struct naos_error *err)
{
	const struct naos_walk_item *item = file->item;
	int rc = check->repairing(check->context, item->path, "set-aside", err);
	return rc ? rc : naos_lost_put(check->root, item->dir->fd, item->name, item->below_root, file->fd, file->shown, err);
}

static bool is_in_the_making(const struct naos_check *check, const struct naos_tree_file *file)
{
	struct stat status;
	return naos_sealed_has_writer(file->fd) ||
	       (check->settle_s && fstat(file->fd, &status) == 0 && time(NULL) - status.st_ctim.tv_sec < check->settle_s);
}

/* It got its first page between the two looks at it. */
static bool was_just_made(struct naos_tree_file *file)
{
	struct naos_tree_file twin;
	struct naos_store *store;
	struct naos_error ignored;
	if (twin_of(file, &twin, &ignored) != 0)
		return false;
	if (naos_store_posix(twin.fd, file->shown, &store, &ignored) != 0) {
		(void)close(twin.fd);
		return false;
	}
	bool made = naos_sealed_probe(store, &file->info, &ignored) == 0;
	store->ops->close(store);
	return made;
}

/* No sealed file. */
static void check_stranger(const struct naos_check *check, struct naos_tree_file *file)
{
	struct naos_error err = file->err;
	int rc = err.code;
	if (file->fd >= 0 && is_damage(rc) && naos_sealed_is_unborn(file->fd)) {
		if (is_in_the_making(check, file)) {
			naos_tally_notice(check->tally, file->item->path, NAOS_NOTICE_OPEN);
			return;
		}
		rc = check->repair ? set_aside(check, file, &err) :
				     naos_error_set(&err, NAOS_E_INTEGRITY,
						    "%s: its first page is missing, from a crash while it was being made or by damage: nothing "
						    "of it can be read ('naos fileset check --repair' sets it aside)",
						    file->shown);
		if (rc == 0)
			naos_tally_notice(check->tally, file->item->path, NAOS_NOTICE_LOST);
	}
	if (rc != 0 && file->fd >= 0 && is_gone(file))
		return;
	if (rc != 0)
		naos_tally_failure(check->tally, file->item->path, &err);
}

void naos_check_files(void *context, struct naos_tree_file *files, size_t count)
{
	const struct naos_check *check = context;
	for (size_t i = 0; i < count && !naos_tally_stopped(check->tally); i++) {
		struct naos_tree_file *file = &files[i];
		bool sealed = file->err.code == 0 || (file->fd >= 0 && is_damage(file->err.code) && was_just_made(file));
		if (sealed)
			check_sealed(check, file);
		else
			check_stranger(check, file);
	}
}
