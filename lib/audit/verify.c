/* Verification of a whole log, and the search for the first thing that is wrong.
 *
 * One pass hashes all records and compares each with its hash in the tiles.  If the tree of the records fits the checkpoint,
 * they are genuine and a difference is the tile's fault; if it does not, a difference names the record.
 * SPDX-License-Identifier: Apache-2.0 */
#include "audit/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "audit/record.h"

/* The first fault of one kind. */
struct fault {
	bool found, has_sequence;
	uint64_t sequence;
	char file[NAOS_TILE_PATH_BYTES];
	char text[224];
};

struct pass {
	int dir_fd;
	struct naos_hasher *hasher;
	uint64_t size;
	const struct naos_checkpoint *earlier; /* NULL without one */
	bool earlier_differs;
	struct naos_tree tree; /* by the records */
	struct naos_hash tiles[NAOS_TILE_LEVELS][NAOS_TILE_HASHES];
	struct fault record; /* one is missing, or another stands in its place */
	struct fault text;   /* one that does not fit its stored hash */
	struct fault tile;   /* a hash tile that is missing, cut, or does not fit the tiles below */
	uint64_t pending_bytes;
};

static void blame(struct fault *fault, bool has_sequence, uint64_t sequence, const char *file, const char *format, ...)
	naos_printf(5, 6);
static void blame(struct fault *fault, bool has_sequence, uint64_t sequence, const char *file, const char *format, ...)
{
	if (fault->found)
		return;
	fault->found = true;
	fault->has_sequence = has_sequence;
	fault->sequence = sequence;
	(void)snprintf(fault->file, sizeof(fault->file), "%s", file);
	va_list args;
	va_start(args, format);
	(void)vsnprintf(fault->text, sizeof(fault->text), format, args);
	va_end(args);
}

/* A tile of which `width` hashes belong to the log; false (and blamed) if it can't be read whole. */
static int load_tile(struct pass *pass, unsigned level, uint64_t number, bool *ret_whole, struct naos_error *err)
{
	char path[NAOS_TILE_PATH_BYTES];
	struct naos_error error = NAOS_ERROR_INIT;
	int rc = naos_tile_read(pass->dir_fd, level, number, naos_tile_width(level, number, pass->size), pass->tiles[level], &error);
	*ret_whole = rc == 0;
	if (rc == NAOS_E_INTEGRITY) {
		blame(&pass->tile, true, number << (8 * (level + 1)), naos_tile_path(level, number, path), "%s", error.message);
		return 0;
	}
	if (rc != 0 && err)
		*err = error;
	return rc;
}

/* Tiles above level 0 hold the roots of full tiles below. */
static int completed(void *context, unsigned height, uint64_t index, const struct naos_hash *hash, struct naos_error *err)
{
	struct pass *pass = context;
	char path[NAOS_TILE_PATH_BYTES];
	unsigned level = height / 8, place = (unsigned)(index % NAOS_TILE_HASHES);
	bool whole = true;
	if (level == 0 || height % 8 != 0)
		return 0;
	int rc = place == 0 ? load_tile(pass, level, index / NAOS_TILE_HASHES, &whole, err) : 0;
	if (!whole)
		memset(pass->tiles[level], 0, sizeof(pass->tiles[level])); /* blamed already */
	if (rc == 0 && !naos_hash_equal(&pass->tiles[level][place], hash))
		blame(&pass->tile, true, index << height, naos_tile_path(level, index / NAOS_TILE_HASHES, path),
		      "hash %u (of records %" PRIu64 " … %" PRIu64 ") does not fit them", place, index << height,
		      ((index + 1) << height) - 1);
	return rc;
}

/* One record: into both trees, and against its stored hash (NULL if the tile is damaged). */
static int take_record(struct pass *pass, uint64_t sequence, const char *file, const char *line, size_t bytes,
		       const struct naos_hash *stored, struct naos_error *err)
{
	struct naos_hash leaf = { { 0 } };
	uint64_t found;
	if (line)
		naos_hash_leaf(pass->hasher, line, bytes, &leaf);
	if (!line)
		blame(&pass->record, true, sequence, file, "it is missing");
	else if (!naos_record_sequence(line, bytes, &found))
		blame(&pass->record, true, sequence, file, "what stands in its place is no record");
	else if (found != sequence)
		blame(&pass->record, true, sequence, file, "record %" PRIu64 " stands in its place: dropped, added or moved", found);
	else if (stored && !naos_hash_equal(stored, &leaf))
		blame(&pass->text, true, sequence, file, "its text was changed");
	int rc = naos_tree_append(pass->hasher, &pass->tree, &leaf, completed, pass, err);
	if (rc == 0 && pass->earlier && pass->tree.size == pass->earlier->size) {
		struct naos_hash root;
		naos_tree_root(pass->hasher, &pass->tree, &root);
		pass->earlier_differs = !naos_hash_equal(&root, &pass->earlier->root);
	}
	return rc;
}

/* What follows the last record may be a commit under way or cut short: whole lines must be the next records in order. */
static void take_tail(struct pass *pass, const struct naos_bundle *bundle, unsigned width, uint64_t sequence, const char *file)
{
	size_t start = width > 0 ? bundle->ends[width - 1] : 0, bytes;
	uint64_t found;
	pass->pending_bytes += bundle->bytes - start;
	for (unsigned place = width; place < bundle->count; place++, sequence++) {
		const char *line = naos_bundle_line(bundle, place, &bytes);
		if (!naos_record_sequence(line, bytes, &found))
			blame(&pass->record, true, sequence, file, "behind the last record stands something that is no record");
		else if (found != sequence)
			blame(&pass->record, true, sequence, file, "behind the last record stands record %" PRIu64 " once more or out of order", found);
	}
}

static int take_bundle(struct pass *pass, uint64_t number, struct naos_error *err)
{
	naos_autobundle struct naos_bundle bundle = { .data = NULL };
	char path[NAOS_TILE_PATH_BYTES];
	unsigned width = naos_tile_width(0, number, pass->size);
	uint64_t first = number * NAOS_TILE_HASHES;
	bool whole = false;
	struct naos_error error = NAOS_ERROR_INIT;
	(void)naos_bundle_path(number, path);
	int rc = naos_bundle_read(pass->dir_fd, number, &bundle, &error);
	if (rc == NAOS_E_INTEGRITY)
		blame(&pass->record, true, first, path, "%s", error.message);
	else if (rc != 0)
		return naos_error_set(err, rc, "%s", error.message);
	rc = width > 0 ? load_tile(pass, 0, number, &whole, err) : 0;
	for (unsigned place = 0; rc == 0 && place < width; place++) {
		size_t bytes = 0;
		const char *line = place < bundle.count ? naos_bundle_line(&bundle, place, &bytes) : NULL;
		rc = take_record(pass, first + place, path, line, bytes, whole ? &pass->tiles[0][place] : NULL, err);
	}
	if (rc == 0 && width < NAOS_TILE_HASHES && bundle.data)
		take_tail(pass, &bundle, width < bundle.count ? width : bundle.count, first + width, path);
	else if (rc == 0 && bundle.count == width && bundle.bytes > bundle.ends[width - 1])
		blame(&pass->record, true, first + width, path, "more than 256 records stand in the file");
	return rc;
}

/* Bundles behind the last one: a commit cut short may have begun them. */
static int take_bundles_behind(struct pass *pass, struct naos_error *err)
{
	uint64_t number = pass->size / NAOS_TILE_HASHES, before;
	int rc;
	do {
		before = pass->pending_bytes;
		rc = take_bundle(pass, ++number, err);
	} while (rc == 0 && pass->pending_bytes > before);
	return rc;
}

/* Picks the first fault and gives it its name; *ret stays as it is if there is none. */
static void judge(struct pass *pass, const struct naos_hash *root, struct fault *ret)
{
	struct naos_hash computed;
	char path[NAOS_TILE_PATH_BYTES];
	struct fault hash = { .found = false };
	naos_tree_root(pass->hasher, &pass->tree, &computed);
	bool genuine = naos_hash_equal(&computed, root);
	if (genuine && pass->text.found) /* then it is the stored hash that was changed */
		blame(&hash, true, pass->text.sequence, naos_tile_path(0, pass->text.sequence / NAOS_TILE_HASHES, path),
		      "hash %u was changed; the records are intact", (unsigned)(pass->text.sequence % NAOS_TILE_HASHES));
	else if (genuine && pass->tile.found)
		hash = pass->tile;
	if (pass->record.found && !(pass->text.found && !genuine && pass->text.sequence < pass->record.sequence))
		*ret = pass->record;
	else if (genuine)
		*ret = hash;
	else if (pass->text.found)
		*ret = pass->text;
	else if (pass->tile.found)
		*ret = pass->tile;
	else
		blame(ret, false, 0, NAOS_CHECKPOINT_FILE,
		      "records and hash tiles fit each other but not the checkpoint: they were replaced together");
	if (!ret->found && pass->earlier_differs)
		blame(ret, false, 0, NAOS_CHECKPOINT_FILE,
		      "one of the first %" PRIu64 " records was replaced after the earlier checkpoint, and the log signed anew",
		      pass->earlier->size);
	if (!ret->found && pass->earlier && pass->earlier->size > pass->size)
		blame(ret, true, pass->size, NAOS_CHECKPOINT_FILE,
		      "it is missing: the earlier checkpoint vouches for %" PRIu64 " records, the log has %" PRIu64, pass->earlier->size,
		      pass->size);
}

static int run_pass(struct pass *pass, const struct naos_checkpoint *checkpoint, struct naos_audit_report *report, struct naos_error *err)
{
	struct fault fault = { .found = false };
	int rc = 0;
	for (uint64_t number = 0; rc == 0 && number <= pass->size / NAOS_TILE_HASHES; number++)
		rc = take_bundle(pass, number, err);
	if (rc == 0)
		rc = take_bundles_behind(pass, err);
	if (rc == 0)
		judge(pass, &checkpoint->root, &fault);
	if (rc == 0)
		rc = naos_hasher_check(pass->hasher, err);
	if (rc != 0)
		return rc;
	report->pending_bytes = pass->pending_bytes;
	report->has_bad_sequence = fault.has_sequence;
	report->bad_sequence = fault.sequence;
	(void)snprintf(report->bad_file, sizeof(report->bad_file), "%s", fault.file);
	if (fault.has_sequence)
		return naos_error_set(err, NAOS_E_INTEGRITY, "first bad record: %" PRIu64 ", %s: %s", fault.sequence, fault.file, fault.text);
	return fault.found ? naos_error_set(err, NAOS_E_INTEGRITY, "%s: %s", fault.file, fault.text) : 0;
}

int naos_audit_directory_open(const char *dir, int *ret_fd, struct naos_error *err)
{
	struct stat status;
	naos_autoclose int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open it");
	if (fstatat(fd, NAOS_CHECKPOINT_FILE, &status, 0) != 0) {
		if (errno != ENOENT)
			return naos_error_set_errno(err, errno, "cannot look at its checkpoint");
		bool was_log = fstatat(fd, NAOS_PUBLIC_KEY_FILE, &status, 0) == 0 || fstatat(fd, "records", &status, 0) == 0;
		return was_log ? naos_error_set(err, NAOS_E_INTEGRITY, "its checkpoint is missing")
			       : naos_error_set(err, NAOS_E_NOTFOUND, "there is no log in it");
	}
	*ret_fd = naos_fd_steal(&fd);
	return 0;
}

int naos_audit_key_read(int dir_fd, const char *key_path, struct naos_verifier *ret, struct naos_error *err)
{
	return naos_verifier_read(key_path ? AT_FDCWD : dir_fd, key_path ? key_path : NAOS_PUBLIC_KEY_FILE, ret, err);
}

/* The earlier checkpoint, with the signatures that are asked for; left alone without one. */
static int read_earlier(const struct naos_audit_check *check, const struct naos_verifier *verifier, struct naos_checkpoint *earlier,
			struct naos_audit_report *report, struct naos_error *err)
{
	struct naos_verifier witness;
	if (!check->checkpoint_path)
		return check->witness_path ? naos_error_set(err, NAOS_E_USAGE, "a witness signs a checkpoint: name one") : 0;
	int rc = naos_checkpoint_read(AT_FDCWD, check->checkpoint_path, verifier, earlier, err);
	if (rc != 0 || !check->witness_path)
		return rc;
	rc = naos_verifier_read(AT_FDCWD, check->witness_path, &witness, err);
	return rc != 0 ? rc
		       : naos_note_verify(earlier->note, earlier->note_bytes, earlier->text_bytes, &witness, check->checkpoint_path,
					  &report->witness_unix_s, err);
}

static int verify(const char *dir, const struct naos_audit_check *check, struct naos_audit_report *report, struct naos_error *err)
{
	naos_autocheckpoint struct naos_checkpoint checkpoint = { .note = NULL }, earlier = { .note = NULL };
	naos_autohasher struct naos_hasher *hasher = NULL;
	naos_autoclose int dir_fd = -1;
	struct naos_verifier verifier;
	(void)snprintf(report->bad_file, sizeof(report->bad_file), "%s", NAOS_CHECKPOINT_FILE);
	int rc = naos_audit_directory_open(dir, &dir_fd, err);
	if (rc == 0)
		rc = naos_audit_key_read(dir_fd, check->key_path, &verifier, err);
	if (rc == 0)
		rc = read_earlier(check, &verifier, &earlier, report, err);
	if (rc == 0)
		rc = naos_checkpoint_read(dir_fd, NAOS_CHECKPOINT_FILE, &verifier, &checkpoint, err);
	if (rc == 0)
		rc = naos_hasher_create(&hasher, err);
	if (rc != 0)
		return rc;
	memcpy(report->origin, checkpoint.origin, sizeof(report->origin));
	memcpy(report->root, checkpoint.root.bytes, sizeof(report->root));
	report->size = checkpoint.size;
	report->earlier_size = earlier.size;
	naos_autofree struct pass *pass = calloc(1, sizeof(*pass));
	if (!pass)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to verify the log");
	*pass = (struct pass){ .dir_fd = dir_fd, .hasher = hasher, .size = checkpoint.size, .earlier = earlier.note ? &earlier : NULL };
	return run_pass(pass, &checkpoint, report, err);
}

int naos_audit_verify(const char *dir, const struct naos_audit_check *check, struct naos_audit_report *ret, struct naos_error *err)
{
	struct naos_audit_report report = { .size = 0 };
	int rc = verify(dir, check, &report, err);
	if (rc == NAOS_E_FORMAT)
		rc = NAOS_E_INTEGRITY; /* a file of the log that no longer parses was damaged */
	report.bad = rc != 0;
	if (rc == 0)
		report.bad_file[0] = 0;
	if (rc == 0 || rc == NAOS_E_INTEGRITY)
		*ret = report;
	return rc == 0 ? 0 : naos_error_prefix(err, rc, "audit log %s", dir);
}

int naos_audit_each(const char *dir, uint64_t size, naos_audit_visit visit, void *context, struct naos_error *err)
{
	naos_autoclose int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = dir_fd < 0 ? naos_error_set_errno(err, errno, "cannot open the audit log %s", dir) : 0;
	bool more = true;
	for (uint64_t number = 0; rc == 0 && more && number * NAOS_TILE_HASHES < size; number++) {
		naos_autobundle struct naos_bundle bundle = { .data = NULL };
		unsigned width = naos_tile_width(0, number, size);
		rc = naos_bundle_read(dir_fd, number, &bundle, err);
		more = bundle.bytes > 0 || size != NAOS_AUDIT_ALL;
		for (unsigned place = 0; rc == 0 && place < width && place < bundle.count; place++) {
			size_t bytes;
			const char *line = naos_bundle_line(&bundle, place, &bytes);
			rc = visit(context, number * NAOS_TILE_HASHES + place, line, bytes, err);
		}
	}
	return rc;
}
