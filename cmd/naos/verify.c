/* naos verify.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>

#include "base/io.h"
#include "seal/manifest.h"
#include "seal/sealed_tree.h"
#include "work.h"

#define MAX_LINK_BYTES 65536

struct verification {
	struct naos_work *work;
	struct naos_manifest *manifest; /* may be NULL */
};

static void free_manifest(struct naos_manifest **manifest)
{
	*manifest = naos_manifest_free(*manifest);
}

/* Content and every byte that reading does not reach. */
static int verify_content(struct verification *verification, struct naos_tree_file *file, uint64_t *ret_bytes,
			  struct naos_error *err)
{
	struct naos_work *work = verification->work;
	const struct naos_fek_source source = naos_filesets_source(work->sets, work->set, &file->info);
	struct naos_sealed_file *sealed;
	int rc = naos_tree_file_open(file, NAOS_SEALED_READ, &source, &sealed, err);
	if (rc != 0)
		return rc;
	if (!naos_sealed_file_clean(sealed))
		naos_tally_notice(&work->tally, file->item->path, NAOS_NOTICE_UNCLEAN);
	rc = naos_sealed_file_verify(sealed, err);
	*ret_bytes = naos_sealed_file_size(sealed);
	int closed = naos_sealed_file_close(sealed, false, rc == 0 ? err : NULL);
	return rc ? rc : closed;
}

static int verify_file(struct verification *verification, struct naos_tree_file *file, uint64_t *ret_bytes,
		       struct naos_error *err)
{
	struct naos_manifest_entry found = { .kind = NAOS_MANIFEST_FILE };
	int rc = file->err.code, listed = 0;
	if (rc != 0) {
		*err = file->err;
		return rc;
	}
	if (verification->manifest) {
		listed = naos_manifest_digest(file->fd, file->shown, &found, err);
		if (listed == 0)
			listed = naos_manifest_check(verification->manifest, file->item->below_root, &found, file->shown, err);
	}
	if (listed != 0)
		return listed;
	return verify_content(verification, file, ret_bytes, err);
}

static void verify_files(void *context, struct naos_tree_file *files, size_t count)
{
	struct verification *verification = context;
	struct naos_tally *tally = &verification->work->tally;
	for (size_t i = 0; i < count && !naos_tally_stopped(tally); i++) {
		struct naos_error err;
		uint64_t bytes = 0;
		if (verify_file(verification, &files[i], &bytes, &err) != 0) {
			naos_tally_failure(tally, files[i].item->path, &err);
		} else {
			naos_tally_file(tally, bytes);
			naos_tally_progress(tally, bytes);
		}
	}
}

static void verify_link(void *context, const struct naos_walk_item *item, const char *shown)
{
	struct verification *verification = context;
	struct naos_manifest_entry found;
	struct naos_error err;
	naos_autofree char *text = malloc(MAX_LINK_BYTES);
	ssize_t bytes = text ? readlinkat(item->dir->fd, item->name, text, MAX_LINK_BYTES - 1) : -1;
	int rc;
	if (bytes < 0) {
		rc = naos_error_set_errno(&err, errno, "cannot read the symbolic link %s", shown);
	} else {
		text[bytes] = 0;
		rc = naos_manifest_link_digest(text, &found, &err);
		if (rc == 0)
			rc = naos_manifest_check(verification->manifest, item->below_root, &found, shown, &err);
	}
	if (rc != 0)
		naos_tally_failure(&verification->work->tally, item->path, &err);
	else
		naos_tally_other(&verification->work->tally);
}

/* What the manifest names and the tree lacks. */
static void report_missing(struct verification *verification)
{
	struct naos_work *work = verification->work;
	const char *path;
	for (size_t index = 0; (path = naos_manifest_unseen(verification->manifest, &index));) {
		char printable[512];
		struct naos_error err;
		if (!naos_walk_in_shard(path, work->shard_index, work->shard_count))
			continue;
		(void)naos_error_set(&err, NAOS_E_INTEGRITY, "%s is in the manifest and missing",
				     naos_io_printable(path, printable, sizeof(printable)));
		naos_tally_failure(&work->tally, path, &err);
	}
}

static int print_summary(struct naos_work *work, bool manifest, struct naos_error *err)
{
	char text[256];
	if (!work->invocation->json) {
		printf("verified %s%s\n", naos_work_text(work, "", text, sizeof(text)), manifest ? ", compared with the manifest" : "");
		return 0;
	}
	json_t *summary = naos_work_summary(work);
	if (summary)
		(void)json_object_update_new(summary, json_pack("{s:s, s:b}", "action", "verify", "manifest", (int)manifest));
	return naos_print_json(summary, err);
}

static int verify_all(struct verification *verification, struct naos_invocation *invocation, struct naos_error *err)
{
	struct naos_work *work = verification->work;
	const char *path = naos_option_value(invocation, "manifest");
	const struct naos_sealed_tree tree = {
		.context = verification,
		.jobs = work->jobs,
		.shard_index = work->shard_index,
		.shard_count = work->shard_count,
		.sets = work->sets,
		.clean = naos_option_given(invocation, "clean"),
		.files = verify_files,
		.link = path ? verify_link : NULL,
	};
	naos_cleanup(free_manifest) struct naos_manifest *manifest = NULL;
	int rc = path ? naos_manifest_load(path, work->sets, &manifest, err) : 0;
	if (rc != 0)
		return rc;
	verification->manifest = manifest;
	for (size_t i = 0; i < invocation->operand_count && !naos_tally_stopped(&work->tally); i++)
		naos_sealed_tree_visit(&tree, invocation->operands[i], &work->tally);
	if (manifest && !naos_tally_stopped(&work->tally))
		report_missing(verification);
	return print_summary(work, manifest != NULL, err);
}

static const struct naos_option verify_options[] = {
	{ "fileset", 'f', "NAME", "refuse files of another file set than this one" },
	NAOS_OPTION_KEYS,
	{ "manifest", 'm', "FILE", "compare the tree with this manifest, written by 'naos seal --manifest'" },
	{ "clean", 0, NULL, "remove temporary files that interrupted runs left" },
	NAOS_OPTION_JOBS,
	NAOS_OPTION_SHARD,
	{ .name = NULL },
};

static int run_verify(struct naos_invocation *invocation, struct naos_error *err)
{
	const struct naos_work_plan plan = {
		.action = "file.verify", .label = "verifying", .keys = true, .operands = invocation->operands,
		.operand_count = invocation->operand_count,
	};
	struct naos_work work;
	struct verification verification = { .work = &work };
	if (naos_option_given(invocation, "manifest") && invocation->operand_count != 1)
		return naos_error_set(err, NAOS_E_USAGE, "a manifest is that of one tree: name one PATH");
	int rc = naos_work_start(&work, invocation, &plan, err);
	if (rc != 0)
		return rc;
	rc = verify_all(&verification, invocation, err);
	return naos_work_end(&work, rc, err);
}

const struct naos_command naos_command_verify = {
	.path = "verify",
	.operands = "PATH...",
	.summary = "Read sealed files whole and say which were changed or damaged",
	.example = "naos verify --manifest reads.manifest sealed/reads",
	.min_operands = 1,
	.max_operands = 1000,
	.options = verify_options,
	.run = run_verify,
};
