/* naos fits info.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <inttypes.h>

#include "base/io.h"
#include "fits.h"
#include "fits/legacy.h"

static int no_keys(void *context, const struct naos_frame_manifest *manifest, enum naos_frame_part part,
		   const struct naos_blob *blob,
		   struct naos_secret **ret, struct naos_error *ret_why)
{
	*ret = NULL;
	return 0;
}

static void print_info(struct naos_fits *fits, const struct naos_frame *frame, const char *path)
{
	const struct naos_frame_manifest *manifest = naos_frame_manifest(frame);
	char frame_id[NAOS_UUID_TEXT_BYTES], collection[NAOS_UUID_TEXT_BYTES], mek[NAOS_UUID_TEXT_BYTES], size[16];
	struct naos_blob blob;
	(void)naos_uuid_format(&manifest->frame_id, frame_id);
	(void)naos_uuid_format(&manifest->collection_id, collection);
	if (fits->work.invocation->json) {
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
		naos_fits_print(fits, value);
		return;
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
}

static void print_legacy(struct naos_fits *fits, const char *path, enum naos_legacy_mode mode)
{
	const char *name = mode == NAOS_LEGACY_GCM ? "gcm" : "ctr";
	if (fits->work.invocation->json)
		naos_fits_print(fits, json_pack("{s:o, s:s, s:s, s:b}", "path", naos_json_text(path), "format", "legacy", "mode", name,
						"authenticated", 0));
	else
		printf("%s\n  legacy: a file of GpuFitsCrypt, mode %s\n  %s;\n  'naos fits import-legacy' seals it anew\n", path, name,
		       NAOS_LEGACY_WARNING);
}

static int show(struct naos_fits *fits, struct naos_frame_file *file, struct naos_error *err)
{
	const struct naos_frame_source source = { .key = no_keys };
	naos_autoframe struct naos_frame *frame = NULL;
	enum naos_legacy_mode mode;
	int fd = file->fd;
	if (naos_legacy_probe(fd, &mode)) {
		print_legacy(fits, file->shown, mode);
		return 0;
	}
	file->fd = -1;
	int rc = naos_frame_open_fd(fd, file->shown, &source, &frame, err);
	if (rc == 0)
		print_info(fits, frame, file->shown);
	return rc;
}

/* By one thread, in order. */
static void show_files(void *context, struct naos_frame_walk *walk, unsigned worker, struct naos_frame_file *files, size_t count)
{
	struct naos_fits *fits = context;
	struct naos_tally *tally = &fits->work.tally;
	for (size_t i = 0; i < count && !naos_tally_stopped(tally); i++) {
		bool single = naos_frame_tree_single(walk), named = naos_fits_named(files[i].item->name);
		struct naos_error err;
		if (!single && files[i].kind == NAOS_FITS_PLAIN)
			naos_tally_notice(tally, files[i].item->path, NAOS_NOTICE_PLAIN);
		else if (!single && files[i].kind == NAOS_FITS_OTHER && !named)
			naos_tally_notice(tally, files[i].item->path, NAOS_NOTICE_NO_FITS);
		else if (show(fits, &files[i], &err) != 0)
			naos_tally_failure(tally, files[i].item->path, &err);
		else
			naos_tally_file(tally, 0);
	}
}

static int run(struct naos_invocation *invocation, struct naos_error *err)
{
	const struct naos_work_plan plan = {
		.label = "reading", .operands = invocation->operands, .operand_count = invocation->operand_count,
	};
	struct naos_fits fits;
	int rc = naos_fits_start(&fits, invocation, &plan, false, err);
	if (rc != 0)
		return rc;
	const struct naos_frame_tree tree = {
		.context = &fits, .jobs = 1, .shard_index = fits.work.shard_index, .shard_count = fits.work.shard_count, .files = show_files,
	};
	for (size_t i = 0; rc == 0 && i < invocation->operand_count && !naos_tally_stopped(&fits.work.tally); i++)
		rc = naos_frame_tree_visit(&tree, invocation->operands[i], &fits.work.tally, err);
	if (rc == 0)
		rc = naos_fits_summary(&fits, "read", err);
	return naos_fits_end(&fits, rc, err);
}

static const struct naos_option options[] = { NAOS_OPTION_SHARD, { .name = NULL } };

const struct naos_command naos_command_fits_info = {
	.path = "fits info",
	.operands = "PATH...",
	.summary = "Tell what frames say of themselves; needs no key",
	.example = "naos fits info image.sealed.fits",
	.min_operands = 1,
	.max_operands = 1000,
	.options = options,
	.run = run,
};
