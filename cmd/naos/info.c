/* naos info: what a sealed file tells, without its key, and with --state what only the key shows.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "seal/sealed_tree.h"
#include "work.h"

/* What --state adds. */
struct state {
	uint64_t bytes;
	bool clean;
};

struct information {
	struct naos_work work;
	struct naos_config *config;
	bool with_state;
	int rc; /* of printing */
	struct naos_error err;
};

/* Name of a file set by its id: only a configured id can be known without the key manager. */
static const char *set_name(struct information *information, const struct naos_uuid *id)
{
	const char *name;
	struct naos_uuid configured;
	const struct naos_fileset *set = information->work.sets ? naos_filesets_by_id(information->work.sets, id) : NULL;
	if (set)
		return set->name;
	for (unsigned i = 0; (name = naos_config_section_name(information->config, "fileset", i)); i++)
		if (naos_uuid_parse(naos_config_string(information->config, "fileset", name, "id"), &configured) &&
		    naos_uuid_equal(&configured, id))
			return name;
	return NULL;
}

static int read_state(struct information *information, struct naos_tree_file *file, struct state *ret, struct naos_error *err)
{
	const struct naos_fek_source source = naos_filesets_source(information->work.sets, information->work.set, &file->info);
	struct naos_sealed_file *sealed;
	int rc = naos_tree_file_open(file, NAOS_SEALED_READ, &source, &sealed, err);
	if (rc != 0)
		return rc;
	*ret = (struct state){ .bytes = naos_sealed_file_size(sealed), .clean = naos_sealed_file_clean(sealed) };
	return naos_sealed_file_close(sealed, false, err);
}

static json_t *slot_json(const struct naos_fek_slot *slot, int number)
{
	char id[NAOS_UUID_TEXT_BYTES];
	return json_pack("{s:i, s:s, s:I, s:I}", "slot", number, "mek", naos_uuid_format(&slot->blob.mek_id, id), "version",
			 (json_int_t)slot->blob.mek_version, "generation", (json_int_t)slot->generation);
}

static int print_json(struct information *information, const struct naos_tree_file *file, const struct state *state,
		      struct naos_error *err)
{
	const struct naos_sealed_info *info = &file->info;
	const char *name = set_name(information, &info->header.fileset_id);
	char id[NAOS_UUID_TEXT_BYTES], set[NAOS_UUID_TEXT_BYTES];
	uint64_t bytes;
	bool known = naos_layout_logical(info->physical_bytes, &bytes);
	json_t *slots = json_array();
	for (int i = 0; slots && i < (int)NAOS_FEK_SLOTS; i++)
		if (info->slots[i].used)
			(void)json_array_append_new(slots, slot_json(&info->slots[i], i));
	json_t *value = json_pack(
	    "{s:o, s:i, s:s, s:s, s:s, s:s*, s:I, s:o, s:b, s:b, s:s}", "path", naos_json_text(file->item->path), "format", 1,
	    "algorithm", naos_algorithm_name(info->header.algorithm), "file_id", naos_uuid_format(&info->header.file_id, id),
	    "fileset_id", naos_uuid_format(&info->header.fileset_id, set), "fileset", name, "physical_bytes",
	    (json_int_t)info->physical_bytes, "slots", slots, "slot_damaged", (int)info->slot_damaged, "first_page_lost",
	    (int)info->unborn, "attribute",
	    info->attribute_damaged ? "damaged" :
	    info->attribute.used    ? "present" :
				      "absent");
	if (value && known)
		(void)json_object_set_new(value, "bytes_if_closed", json_integer((json_int_t)bytes));
	if (value && state)
		(void)json_object_update_new(
		    value, json_pack("{s:I, s:b}", "bytes", (json_int_t)state->bytes, "clean", (int)state->clean));
	return naos_print_json(value, err);
}

static void print_text(struct information *information, const struct naos_tree_file *file, const struct state *state)
{
	const struct naos_sealed_info *info = &file->info;
	const char *name = set_name(information, &info->header.fileset_id);
	char id[NAOS_UUID_TEXT_BYTES], size[16];
	uint64_t bytes;
	printf("%s\n  sealed file, format 1, %s\n", file->shown, naos_algorithm_name(info->header.algorithm));
	if (state)
		printf("  size        %" PRIu64 " bytes (%s), %s\n", state->bytes, naos_format_bytes(state->bytes, size),
		       state->clean ? "closed" : "not closed by its last writer");
	else if (naos_layout_logical(info->physical_bytes, &bytes))
		printf("  size        %" PRIu64 " bytes (%s) if its last writer closed it; --state asks its key\n", bytes,
		       naos_format_bytes(bytes, size));
	else
		printf("  size        not told by %" PRIu64 " bytes on disk: it was not closed, or is damaged\n", info->physical_bytes);
	if (info->unborn)
		printf("  first page  lost in a crash before anything was made durable: the file is empty\n");
	printf("  file id     %s\n", naos_uuid_format(&info->header.file_id, id));
	printf("  file set    %s%s%s%s\n", naos_uuid_format(&info->header.fileset_id, id), name ? " (" : "", name ? name : "",
	       name ? ")" : "");
	for (unsigned i = 0; i < NAOS_FEK_SLOTS; i++)
		if (info->slots[i].used)
			printf("  key slot %u  MEK %s version %u, generation %u\n", i, naos_uuid_format(&info->slots[i].blob.mek_id, id),
			       info->slots[i].blob.mek_version, info->slots[i].generation);
	if (info->slot_damaged)
		printf("  key slot    one is damaged; 'naos rewrap --repair' rebuilds it\n");
	printf("  attribute   %s\n", info->attribute_damaged ? "user.naos.key is damaged; 'naos rewrap --repair' rebuilds it" :
				     info->attribute.used     ? "user.naos.key holds a copy of the wrapped key" :
								"no user.naos.key");
}

static void show(void *context, struct naos_tree_file *files, size_t count)
{
	struct information *information = context;
	struct naos_tally *tally = &information->work.tally;
	for (size_t i = 0; i < count && information->rc == 0; i++) {
		struct naos_tree_file *file = &files[i];
		struct naos_error err = file->err;
		struct state state;
		int rc = err.code;
		if (rc == 0 && information->with_state)
			rc = read_state(information, file, &state, &err);
		if (rc != 0) {
			naos_tally_failure(tally, file->item->path, &err);
			continue;
		}
		const struct state *known = information->with_state ? &state : NULL;
		if (information->work.invocation->json)
			information->rc = print_json(information, file, known, &information->err);
		else
			print_text(information, file, known);
		naos_tally_file(tally, 0);
	}
}

static const struct naos_option options[] = {
	{ "state", 's', NULL, "ask the key manager for the key and tell size and state for certain" },
	{ "fileset", 'f', "NAME", "with --state: refuse files of another file set than this one" },
	NAOS_OPTION_KEYS,
	{ .name = NULL },
};

static int run_info(struct naos_invocation *invocation, struct naos_error *err)
{
	struct information information = { .config = invocation->config, .with_state = naos_option_given(invocation, "state") };
	const struct naos_work_plan plan = {
		.action = information.with_state ? "file.info" : NULL, .label = "reading", .keys = information.with_state,
		.operands = invocation->operands, .operand_count = invocation->operand_count,
	};
	struct naos_work *work = &information.work;
	if (!information.with_state && (naos_option_given(invocation, "fileset") || naos_option_given(invocation, "keys")))
		return naos_error_set(err, NAOS_E_USAGE, "--fileset and --keys belong to --state: without it no key is asked for");
	int rc = naos_work_start(work, invocation, &plan, err);
	if (rc != 0)
		return rc;
	const struct naos_sealed_tree tree = {
		.context = &information,
		.jobs = 1,
		.shard_index = 1,
		.shard_count = 1,
		.sets = work->sets,
		.files = show, /* one job: in order */
	};
	for (size_t i = 0; i < invocation->operand_count && !naos_tally_stopped(&work->tally); i++)
		naos_sealed_tree_visit(&tree, invocation->operands[i], &work->tally);
	if (information.rc != 0)
		rc = naos_error_set(err, information.rc, "%s", information.err.message);
	return naos_work_end(work, rc, err);
}

const struct naos_command naos_command_info = {
	.path = "info", .operands = "PATH...", .summary = "Tell what sealed files say of themselves; needs no key",
	.example = "naos info sealed/reads/sample.fq", .min_operands = 1, .max_operands = 1000, .options = options, .run = run_info,
};
