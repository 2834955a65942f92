/* naos fits: frames, sealed FITS files.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "admin.h"
#include "base/io.h"
#include "base/log.h"
#include "base/progress.h"
#include "fits/collection.h"
#include "fits/legacy.h"
#include "fits/whole.h"
#include "key_source.h"
#include "seal/walk.h"

#define OPTION_COLLECTION { "collection", 'c', "NAME", "the collection whose MEKs wrap the keys of the frame" }
#define OPTION_HEADER_KEY \
	{ "header-key", 0, "SOURCE", \
	  "header key in hexadecimal digits, instead of the key manager's: file:PATH, fd:NUMBER, systemd:NAME" }
#define OPTION_DATA_KEY { "data-key", 0, "SOURCE", "data key in the same way" }
#define OPTION_FORMAT { "format", 0, "NUMBER", "version of the format: 2 (default) for any file, 1 for one image" }
#define OPTION_JOBS { "jobs", 'j', "NUMBER", "threads (default: the CPUs that this process may use)" }
#define OPTION_FORCE { "force", 0, NULL, "replace a target that exists" }

/* --- what the commands share ------------------------------------------------------------------------------------------- */

struct session {
	struct naos_provider *provider;
	struct naos_secret *given[2];
	unsigned jobs;
};

static void session_end(struct session *session)
{
	session->provider = naos_provider_close(session->provider);
	for (unsigned i = 0; i < 2; i++)
		session->given[i] = naos_secret_free(session->given[i]);
}

static int read_given(const struct naos_invocation *invocation, const char *option, struct naos_secret **ret,
		      struct naos_error *err)
{
	const char *source = naos_option_value(invocation, option);
	naos_autosecret struct naos_secret *key = NULL;
	if (!source)
		return 0;
	int rc = naos_key_source_read(source, &key, err);
	if (rc == 0)
		rc = naos_key_source_decode(key, err);
	if (rc == 0 && naos_secret_bytes(key) != 16 && naos_secret_bytes(key) != 32)
		rc = naos_error_set(err, NAOS_E_USAGE, "a key has 32 or 64 hexadecimal digits");
	if (rc != 0)
		return naos_error_prefix(err, rc, "--%s", option);
	*ret = naos_steal(key);
	return 0;
}

static int read_jobs(const struct naos_invocation *invocation, unsigned *ret, struct naos_error *err)
{
	const char *text = naos_option_value(invocation, "jobs");
	char *end;
	unsigned long jobs = text ? strtoul(text, &end, 10) : naos_walk_default_jobs();
	if (text && (*end || jobs < 1 || jobs > NAOS_MAX_JOBS))
		return naos_error_set(err, NAOS_E_USAGE, "--jobs is 1 to %d", NAOS_MAX_JOBS);
	*ret = (unsigned)jobs;
	return 0;
}

/* Keys given by hand, and the key manager where it is needed: without one, frames are opened with what was given. */
static int session_start(struct session *session, const struct naos_invocation *invocation, bool manager, struct naos_error *err)
{
	int rc = naos_engine_select(naos_config_string(invocation->config, "engine", NULL, "backend"),
				    naos_config_bool(invocation->config, "engine", NULL, "fips"), err);
	if (rc == 0)
		rc = read_given(invocation, "header-key", &session->given[0], err);
	if (rc == 0)
		rc = read_given(invocation, "data-key", &session->given[1], err);
	if (rc == 0 && manager)
		rc = naos_admin_open_keys(invocation, &session->provider, err);
	return rc;
}

static bool has_manager(const struct naos_invocation *invocation)
{
	return naos_option_given(invocation, "keys") || naos_config_string(invocation->config, "keymanager", NULL, "uri")[0];
}

static int open_frame(struct session *session, const char *path, struct naos_frame **ret, struct naos_error *err)
{
	struct naos_frame_opener opener = { .provider = session->provider, .given = { session->given[0], session->given[1] } };
	const struct naos_frame_source source = naos_frame_opener_source(&opener);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s", path);
	return naos_frame_open_fd(fd, path, &source, ret, err);
}

static void count(void *context, uint64_t bytes)
{
	naos_progress_add(context, bytes, 0);
}

static void progress_end(struct naos_progress **progress)
{
	*progress = naos_progress_free(*progress);
}

static int refuse_same(const char *source, const char *target, struct naos_error *err)
{
	struct stat one, other;
	if (stat(source, &one) == 0 && stat(target, &other) == 0 && one.st_ino == other.st_ino && one.st_dev == other.st_dev)
		return naos_error_set(err, NAOS_E_USAGE, "%s and %s are the same file", source, target);
	return 0;
}

/* SOURCE TARGET, --jobs, the first record, the keys.  A failure to get the keys is recorded too. */
static int begin(struct session *session, const struct naos_invocation *invocation, const char *action, bool manager,
		 struct naos_error *err)
{
	const char *source = invocation->operands[0];
	int rc = refuse_same(source, invocation->operands[1], err);
	if (rc == 0)
		rc = read_jobs(invocation, &session->jobs, err);
	if (rc == 0)
		rc = naos_admin_begin(invocation, action, source, err);
	if (rc != 0)
		return rc;
	rc = session_start(session, invocation, manager, err);
	if (rc != 0)
		naos_admin_end(invocation, action, source, rc, err);
	return rc;
}

/* --- seal --------------------------------------------------------------------------------------------------------------- */

static const struct naos_option seal_options[] = {
	OPTION_COLLECTION,
	OPTION_HEADER_KEY,
	OPTION_DATA_KEY,
	NAOS_OPTION_KEYS,
	{ "segment", 0, "SIZE", "bytes that are encrypted, read and checked together (default 4MiB; 64KiB to 16MiB)" },
	OPTION_FORMAT,
	OPTION_FORCE,
	OPTION_JOBS,
	{ .name = NULL },
};

/* What --collection, or else the two keys given by hand, make of a new frame. */
static int describe_new(struct session *session, const struct naos_invocation *invocation, struct naos_frame_keys *keys,
			struct naos_frame_new *what, struct naos_error *err)
{
	const char *name = naos_option_value(invocation, "collection"), *segment = naos_option_value(invocation, "segment");
	const char *format = naos_option_value(invocation, "format");
	uint64_t bytes = NAOS_FRAME_SEGMENT_BYTES;
	struct naos_collection collection;
	bool understood = !segment || naos_parse_size(segment, &bytes);
	if (!understood || bytes < NAOS_FRAME_MIN_SEGMENT_BYTES || bytes > NAOS_FRAME_MAX_SEGMENT_BYTES)
		return naos_error_set(err, NAOS_E_USAGE, "--segment is a size from 64KiB to 16MiB");
	if (format && strcmp(format, "1") != 0 && strcmp(format, "2") != 0)
		return naos_error_set(err, NAOS_E_USAGE, "--format is 1 or 2");
	*what = (struct naos_frame_new){
		.algorithm = NAOS_AES_256_GCM, .keys = { session->given[0], session->given[1] }, .segment_bytes = (uint32_t)bytes,
		.jobs = session->jobs, .version = format ? (unsigned)(format[0] - '0') : 2,
	};
	if (!name)
		return naos_uuid_random(&what->frame_id, err);
	int rc = naos_collection_find(invocation->config, name, session->provider, &collection, err);
	return rc ? rc : naos_collection_new_frame(&collection, session->provider, keys, what, err);
}

/* Seals an open file to the target, with a bar. */
static int seal_to_target(struct session *session, const struct naos_invocation *invocation, int fd, struct naos_uuid *ret_id,
			  struct naos_error *err)
{
	naos_cleanup(progress_end) struct naos_progress *progress = NULL;
	naos_cleanup(naos_frame_keys_free) struct naos_frame_keys keys = { .keys = { NULL, NULL } };
	const char *source = invocation->operands[0], *target = invocation->operands[1];
	struct naos_frame_new what;
	struct stat status;
	if (fstat(fd, &status) != 0)
		return naos_error_set_errno(err, errno, "cannot read the size of %s", source);
	int rc = describe_new(session, invocation, &keys, &what, err);
	if (rc == 0)
		rc = naos_progress_create("sealing", (uint64_t)status.st_size, !invocation->json, &progress, err);
	if (rc != 0)
		return rc;
	what.progress = count;
	what.context = progress;
	*ret_id = what.frame_id;
	return naos_frame_seal_file(fd, source, target, naos_option_given(invocation, "force"), &what, err);
}

static int seal(struct session *session, const struct naos_invocation *invocation, struct naos_uuid *ret_id, struct naos_error *err)
{
	naos_autoclose int fd = open(invocation->operands[0], O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s", invocation->operands[0]);
	return seal_to_target(session, invocation, fd, ret_id, err);
}

static int run_seal(struct naos_invocation *invocation, struct naos_error *err)
{
	const char *source = invocation->operands[0], *target = invocation->operands[1];
	bool collection = naos_option_given(invocation, "collection");
	unsigned given = naos_option_given(invocation, "header-key") + (unsigned)naos_option_given(invocation, "data-key");
	naos_cleanup(session_end) struct session session = { .jobs = 1 };
	struct naos_uuid frame_id;
	char id[NAOS_UUID_TEXT_BYTES];
	if (given != (collection ? 0 : 2))
		return naos_error_set(err, NAOS_E_USAGE, "give either --collection, or both --header-key and --data-key");
	int rc = begin(&session, invocation, "frame.seal", collection, err);
	if (rc != 0)
		return rc;
	rc = seal(&session, invocation, &frame_id, err);
	naos_admin_end(invocation, "frame.seal", source, rc, err);
	if (rc != 0)
		return rc;
	(void)naos_uuid_format(&frame_id, id);
	if (invocation->json)
		return naos_print_json(json_pack("{s:s, s:o, s:o, s:s}", "action", "frame.seal", "source", naos_json_text(source), "target",
						 naos_json_text(target), "frame_id", id), err);
	printf("sealed %s as frame %s\n", target, id);
	return 0;
}

const struct naos_command naos_command_fits_seal = {
	.path = "fits seal", .operands = "SOURCE TARGET", .summary = "Seal a FITS file: header and data get keys of their own",
	.example = "naos fits seal --collection survey image.fits image.sealed.fits", .min_operands = 2, .max_operands = 2,
	.options = seal_options,
	.run = run_seal,
};

/* --- open --------------------------------------------------------------------------------------------------------------- */

static const struct naos_option open_options[] = {
	OPTION_HEADER_KEY,
	OPTION_DATA_KEY,
	NAOS_OPTION_KEYS,
	{ "require-full", 0, NULL, "refuse to write a file that lacks header or data" },
	OPTION_FORCE,
	OPTION_JOBS,
	{ .name = NULL },
};

static const char *const state_names[] = { "right", "missing", "wrong", "tampered" };

static json_t *level_json(const struct naos_frame *frame)
{
	json_t *value = json_pack("{s:s}", "level", naos_frame_level_name(naos_frame_level(frame)));
	for (enum naos_frame_part part = NAOS_FRAME_HEADER; value && part <= NAOS_FRAME_DATA; part++) {
		const char *reason = naos_frame_key_reason(frame, part);
		json_t *key = json_pack("{s:s}", "state", state_names[naos_frame_key_state(frame, part)]);
		if (key && reason[0])
			(void)json_object_set_new(key, "reason", naos_json_text(reason));
		(void)json_object_set_new(value, part == NAOS_FRAME_HEADER ? "header_key" : "data_key", key);
	}
	return value;
}

static void tell_level(const struct naos_frame *frame)
{
	for (enum naos_frame_part part = NAOS_FRAME_HEADER; part <= NAOS_FRAME_DATA; part++)
		if (naos_frame_key_reason(frame, part)[0])
			naos_log(NAOS_LOG_WARNING, "%s", naos_frame_key_reason(frame, part));
}

static int print_opened(const struct naos_frame *frame, const struct naos_invocation *invocation, struct naos_error *err)
{
	const char *source = invocation->operands[0], *target = invocation->operands[1];
	if (!invocation->json) {
		tell_level(frame);
		printf("opened %s, %s\n", target, naos_frame_level_name(naos_frame_level(frame)));
		return 0;
	}
	json_t *value = level_json(frame);
	if (value)
		(void)json_object_update_new(value, json_pack("{s:s, s:o, s:o, s:I}", "action", "frame.open", "source", naos_json_text(source),
							      "target", naos_json_text(target), "bytes",
							      (json_int_t)naos_frame_result_bytes(frame)));
	return naos_print_json(value, err);
}

static int open_to_target(struct session *session, const struct naos_invocation *invocation, struct naos_error *err)
{
	naos_cleanup(progress_end) struct naos_progress *progress = NULL;
	const char *source = invocation->operands[0], *target = invocation->operands[1];
	naos_autoframe struct naos_frame *frame = NULL;
	bool written;
	int rc = open_frame(session, source, &frame, err);
	if (rc == 0)
		rc = naos_progress_create("opening", naos_frame_result_bytes(frame), !invocation->json, &progress, err);
	if (rc != 0)
		return rc;
	const struct naos_frame_writing how = {
		.replace = naos_option_given(invocation, "force"), .full_only = naos_option_given(invocation, "require-full"),
		.jobs = session->jobs, .progress = count, .context = progress,
	};
	rc = naos_frame_write_file(frame, target, &how, &written, err);
	if (!written)
		return rc;
	progress = naos_progress_free(progress);
	if (rc != 0)
		naos_log(NAOS_LOG_WARNING, "%s", err->message);
	rc = print_opened(frame, invocation, err);
	if (rc != 0 || naos_frame_worst(frame) != NAOS_E_INTEGRITY)
		return rc;
	return naos_error_set(err, NAOS_E_INTEGRITY, "%s was changed: %s holds only what was not", source, target);
}

static int run_open(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_cleanup(session_end) struct session session = { .jobs = 1 };
	int rc = begin(&session, invocation, "frame.open", has_manager(invocation), err);
	if (rc != 0)
		return rc;
	rc = open_to_target(&session, invocation, err);
	naos_admin_end(invocation, "frame.open", invocation->operands[0], rc, err);
	return rc;
}

const struct naos_command naos_command_fits_open = {
	.path = "fits open", .operands = "FRAME TARGET", .summary = "Open a frame: in full, or the part that there is a key for",
	.example = "naos fits open image.sealed.fits image.fits", .min_operands = 2, .max_operands = 2,
	.options = open_options, .run = run_open,
};

/* --- info, verify --------------------------------------------------------------------------------------------------------- */

static int no_keys(void *context, const struct naos_frame_manifest *manifest, enum naos_frame_part part,
		   const struct naos_blob *blob,
		   struct naos_secret **ret, struct naos_error *ret_why)
{
	*ret = NULL;
	return 0;
}

static int print_info(const struct naos_frame *frame, const struct naos_invocation *invocation, const char *path,
		      struct naos_error *err)
{
	const struct naos_frame_manifest *manifest = naos_frame_manifest(frame);
	char frame_id[NAOS_UUID_TEXT_BYTES], collection[NAOS_UUID_TEXT_BYTES], mek[NAOS_UUID_TEXT_BYTES], size[16];
	struct naos_blob blob;
	(void)naos_uuid_format(&manifest->frame_id, frame_id);
	(void)naos_uuid_format(&manifest->collection_id, collection);
	if (invocation->json) {
		json_t *value = json_pack("{s:o, s:i, s:s, s:s, s:s, s:I, s:I, s:I}", "path", naos_json_text(path), "format",
			(int)manifest->version, "algorithm",
					  naos_algorithm_name(manifest->algorithm), "frame_id", frame_id, "collection_id",
						  collection, "bytes",
					  (json_int_t)manifest->file_bytes, "units", (json_int_t)manifest->hdu_count,
						  "segment_bytes",
					  (json_int_t)manifest->segment_bytes);
		for (enum naos_frame_part part = NAOS_FRAME_HEADER; value && part <= NAOS_FRAME_DATA; part++)
			if (naos_frame_blob(frame, part, &blob))
				(void)json_object_set_new(value, part == NAOS_FRAME_HEADER ? "header_mek" : "data_mek",
							  json_pack("{s:s, s:I}", "id", naos_uuid_format(&blob.mek_id, mek),
								  "version",
								    (json_int_t)blob.mek_version));
		return naos_print_json(value, err);
	}
	printf("%s\n  frame, format %u, %s\n  frame id    %s\n  collection  %s\n", path, manifest->version,
		naos_algorithm_name(manifest->algorithm), frame_id, collection);
	printf("  file        %" PRIu64 " bytes (%s) in %u units\n", manifest->file_bytes,
		naos_format_bytes(manifest->file_bytes, size),
	       manifest->hdu_count);
	if (manifest->version > 1)
		printf("  segments    of %s\n", naos_format_bytes(manifest->segment_bytes, size));
	for (enum naos_frame_part part = NAOS_FRAME_HEADER; part <= NAOS_FRAME_DATA; part++) {
		const char *name = part == NAOS_FRAME_HEADER ? "header key" : "data key  ";
		if (naos_frame_blob(frame, part, &blob))
			printf("  %s  MEK %s version %u\n", name, naos_uuid_format(&blob.mek_id, mek), blob.mek_version);
		else
			printf("  %s  not in the frame: it is given by hand\n", name);
	}
	for (uint32_t i = 0; i < manifest->hdu_count; i++)
		printf("  unit %-6u header %" PRIu64 " bytes, data %" PRIu64 " bytes\n", i, manifest->hdus[i].header_bytes,
			manifest->hdus[i].data_bytes);
	return 0;
}

static int print_legacy(const struct naos_invocation *invocation, const char *path, enum naos_legacy_mode mode, struct naos_error *err)
{
	const char *name = mode == NAOS_LEGACY_GCM ? "gcm" : "ctr";
	if (invocation->json)
		return naos_print_json(json_pack("{s:o, s:s, s:s, s:b}", "path", naos_json_text(path), "format", "legacy", "mode", name,
						 "authenticated", 0), err);
	printf("%s\n  legacy: a file of GpuFitsCrypt, mode %s\n  %s;\n  'naos fits import-legacy' seals it anew\n", path, name,
	       NAOS_LEGACY_WARNING);
	return 0;
}

static int run_info(struct naos_invocation *invocation, struct naos_error *err)
{
	const struct naos_frame_source source = { .key = no_keys };
	for (size_t i = 0; i < invocation->operand_count; i++) {
		const char *path = invocation->operands[i];
		naos_autoframe struct naos_frame *frame = NULL;
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		enum naos_legacy_mode mode;
		if (fd >= 0 && naos_legacy_probe(fd, &mode)) {
			(void)close(fd);
			int printed = print_legacy(invocation, path, mode, err);
			if (printed != 0)
				return printed;
			continue;
		}
		int rc = fd < 0 ? naos_error_set_errno(err, errno, "cannot open %s", path) : naos_frame_open_fd(fd, path,
			&source, &frame, err);
		if (rc == 0)
			rc = print_info(frame, invocation, path, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

const struct naos_command naos_command_fits_info = {
	.path = "fits info", .operands = "FRAME...", .summary = "Tell what frames say of themselves; needs no key",
	.example = "naos fits info image.sealed.fits", .min_operands = 1, .max_operands = 1000, .options = NULL, .run = run_info,
};

static const struct naos_option verify_options[] = { OPTION_HEADER_KEY, OPTION_DATA_KEY, NAOS_OPTION_KEYS, { .name = NULL } };

static int verify_one(struct session *session, const struct naos_invocation *invocation, const char *path, struct naos_error *err)
{
	naos_autoframe struct naos_frame *frame = NULL;
	int rc = open_frame(session, path, &frame, err);
	if (rc == 0)
		rc = naos_frame_verify(frame, err);
	if (rc == 0 && naos_frame_level(frame) != NAOS_FRAME_FULL)
		rc = naos_error_set(err, naos_frame_worst(frame), "%s: not all of it could be checked: it is open %s", path,
				    naos_frame_level_name(naos_frame_level(frame)));
	if (rc != 0)
		return rc;
	if (invocation->json)
		return naos_print_json(json_pack("{s:s, s:o}", "action", "frame.verify", "path", naos_json_text(path)), err);
	printf("%s: every segment is as it was sealed\n", path);
	return 0;
}

static int run_verify(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_cleanup(session_end) struct session session = { .jobs = 1 };
	int rc = naos_admin_begin(invocation, "frame.verify", invocation->operands[0], err);
	if (rc == 0)
		rc = session_start(&session, invocation, has_manager(invocation), err);
	for (size_t i = 0; rc == 0 && i < invocation->operand_count; i++)
		rc = verify_one(&session, invocation, invocation->operands[i], err);
	naos_admin_end(invocation, "frame.verify", invocation->operands[0], rc, err);
	return rc;
}

const struct naos_command naos_command_fits_verify = {
	.path = "fits verify", .operands = "FRAME...", .summary = "Check every bit of frames",
	.example = "naos fits verify image.sealed.fits", .min_operands = 1, .max_operands = 1000, .options = verify_options,
	.run = run_verify,
};

/* --- cutout --------------------------------------------------------------------------------------------------------------- */

static const struct naos_option cutout_options[] = {
	{ "section", 's', "SECTION", "pixels, from 1, as [101:356,1:256]; * is a whole axis" },
	{ "unit", 'u', "NUMBER", "the unit (HDU) that holds the image, from 0 (default: 0)" },
	OPTION_HEADER_KEY,
	OPTION_DATA_KEY,
	NAOS_OPTION_KEYS,
	{ .name = NULL },
};

static int cut(struct session *session, const struct naos_invocation *invocation, const struct naos_section *section, size_t unit,
	       struct naos_frame **ret, struct naos_error *err)
{
	int rc = session_start(session, invocation, has_manager(invocation), err);
	if (rc == 0)
		rc = open_frame(session, invocation->operands[0], ret, err);
	return rc ? rc : naos_frame_cut_file(*ret, unit, section, invocation->operands[1], err);
}

static int run_cutout(struct naos_invocation *invocation, struct naos_error *err)
{
	const char *source = invocation->operands[0], *target = invocation->operands[1];
	const char *text = naos_option_value(invocation, "section"), *number = naos_option_value(invocation, "unit");
	naos_cleanup(session_end) struct session session = { .jobs = 1 };
	naos_autoframe struct naos_frame *frame = NULL;
	struct naos_section section;
	char *end = NULL;
	unsigned long unit = number ? strtoul(number, &end, 10) : 0;
	if (!text)
		return naos_error_set(err, NAOS_E_USAGE, "give the part that is wanted: --section '[101:356,1:256]'");
	if (number && (*end || !*number))
		return naos_error_set(err, NAOS_E_USAGE, "--unit is a number");
	int rc = naos_section_parse(text, &section, err);
	if (rc == 0)
		rc = naos_admin_begin(invocation, "frame.cutout", source, err);
	if (rc != 0)
		return rc;
	rc = cut(&session, invocation, &section, unit, &frame, err);
	naos_admin_end(invocation, "frame.cutout", source, rc, err);
	if (rc != 0)
		return rc;
	if (!invocation->json) {
		tell_level(frame);
		printf("wrote %s\n", target);
		return 0;
	}
	json_t *value = level_json(frame);
	if (value)
		(void)json_object_update_new(value, json_pack("{s:s, s:o}", "action", "frame.cutout", "target", naos_json_text(target)));
	return naos_print_json(value, err);
}

const struct naos_command naos_command_fits_cutout = {
	.path = "fits cutout", .operands = "FRAME TARGET", .summary =
		"Write a part of an image, reading only the segments that hold it",
	.example = "naos fits cutout --section '[101:356,1:256]' image.sealed.fits part.fits", .min_operands = 2,
	.max_operands = 2,
	.options = cutout_options, .run = run_cutout,
};

/* --- import-legacy --------------------------------------------------------------------------------------------------------- */

static const struct naos_option import_options[] = {
	OPTION_COLLECTION,
	{ "header-key", 0, "SOURCE", "header key of the old file: 32 hexadecimal digits from file:PATH, fd:NUMBER or systemd:NAME" },
	{ "data-key", 0, "SOURCE", "data key of the old file in the same way" },
	NAOS_OPTION_KEYS,
	{ "segment", 0, "SIZE", "bytes that are encrypted, read and checked together (default 4MiB; 64KiB to 16MiB)" },
	OPTION_FORMAT,
	OPTION_FORCE,
	OPTION_JOBS,
	{ .name = NULL },
};

/* The plaintext is in memory only, between the old file and the frame. */
static int import(struct session *session, const struct naos_invocation *invocation, bool *ret_scaled, struct naos_error *err)
{
	const char *source = invocation->operands[0];
	struct naos_uuid frame_id;
	naos_autoclose int fd = open(source, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s", source);
	naos_autoclose int plain = memfd_create("naos-legacy", MFD_CLOEXEC);
	if (plain < 0 || fchmod(plain, 0644) != 0) /* the frame gets its mode */
		return naos_error_set_errno(err, errno, "no memory for the opened file");
	int rc = naos_legacy_open(fd, source, session->given[0], session->given[1], plain, ret_scaled, err);
	return rc ? rc : seal_to_target(session, invocation, plain, &frame_id, err);
}

static int run_import(struct naos_invocation *invocation, struct naos_error *err)
{
	const char *source = invocation->operands[0], *target = invocation->operands[1];
	naos_cleanup(session_end) struct session session = { .jobs = 1 };
	bool scaled = false;
	if (!naos_option_given(invocation, "header-key") || !naos_option_given(invocation, "data-key"))
		return naos_error_set(err, NAOS_E_USAGE, "give the two keys of the old file: --header-key and --data-key");
	int rc = begin(&session, invocation, "frame.import", naos_option_given(invocation, "collection"), err);
	if (rc != 0)
		return rc;
	rc = import(&session, invocation, &scaled, err);
	naos_admin_end(invocation, "frame.import", source, rc, err);
	if (rc != 0)
		return rc;
	naos_log(NAOS_LOG_WARNING, "%s: " NAOS_LEGACY_WARNING, source);
	if (scaled)
		naos_log(NAOS_LOG_WARNING, "%s: " NAOS_LEGACY_SCALED, source);
	if (invocation->json)
		return naos_print_json(json_pack("{s:s, s:o, s:o, s:b, s:b}", "action", "frame.import", "source", naos_json_text(source), "target",
						 naos_json_text(target), "authenticated", 0, "scaled", scaled), err);
	printf("sealed %s\n", target);
	return 0;
}

const struct naos_command naos_command_fits_import_legacy = {
	.path = "fits import-legacy", .operands = "SOURCE TARGET",
	.summary = "Seal a file of GpuFitsCrypt anew as a frame, under a collection's or the same keys",
	.example = "naos fits import-legacy --header-key file:h --data-key file:d --collection survey old.fits new.fits",
	.min_operands = 2, .max_operands = 2, .options = import_options, .run = run_import,
};
