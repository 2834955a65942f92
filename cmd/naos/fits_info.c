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
