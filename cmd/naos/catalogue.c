/* naos catalogue scan, show, query.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/log.h"
#include "catalogue/catalogue.h"
#include "catalogue/query.h"
#include "fits.h"
#include "policy_lines.h"

#define OPTION_CATALOGUE { "catalogue", 'C', "FILE", "the catalogue (default: [catalogue] path)" }

static const char *path_of(const struct naos_invocation *invocation)
{
	const char *given = naos_option_value(invocation, "catalogue");
	return given ? given : naos_config_string(invocation->config, "catalogue", NULL, "path");
}

/* --- scan ------------------------------------------------------------------------------------------------------------------ */

static int scan_summary(struct naos_fits *fits, uint64_t removed, struct naos_error *err)
{
	char text[256];
	if (!fits->work.invocation->json) {
		printf("read %s; %llu removed\n", naos_work_text(&fits->work, "were current", text, sizeof(text)), (unsigned long long)removed);
		return 0;
	}
	json_t *summary = naos_work_summary(&fits->work);
	if (summary)
		(void)json_object_update_new(summary, json_pack("{s:s, s:b, s:I}", "action", "catalogue.scan", "summary", 1, "removed",
								(json_int_t)removed));
	return naos_print_json(summary, err);
}

static int run_scan(struct naos_invocation *invocation, struct naos_error *err)
{
	const struct naos_work_plan plan = {
		.action = "catalogue.scan", .label = "reading headers", .operands = invocation->operands,
		.operand_count = invocation->operand_count,
	};
	struct naos_fits fits;
	struct naos_catalogue catalogue;
	uint64_t removed = 0;
	int rc = naos_fits_start(&fits, invocation, &plan, true, err);
	if (rc != 0)
		return rc;
	fits.work.single = false;
	rc = naos_catalogue_open(&catalogue, path_of(invocation), true, invocation->config, fits.provider, err);
	for (size_t i = 0; rc == 0 && i < invocation->operand_count && !naos_tally_stopped(&fits.work.tally); i++)
		rc = naos_catalogue_scan(&catalogue, invocation->operands[i], fits.work.jobs, &fits.work.tally, &removed, err);
	if (rc == 0)
		rc = scan_summary(&fits, removed, err);
	naos_catalogue_close(&catalogue);
	return naos_fits_end(&fits, rc, err);
}

static const struct naos_option scan_options[] = { OPTION_CATALOGUE, NAOS_OPTION_KEYS, NAOS_OPTION_JOBS, { .name = NULL } };

const struct naos_command naos_command_catalogue_scan = {
	.path = "catalogue scan", .operands = "PATH...", .summary = "Take up frames that are new or changed, and drop those that vanished",
	.example = "naos catalogue scan /archive/ttt", .min_operands = 1, .max_operands = 1000, .options = scan_options, .run = run_scan,
};

/* --- show and query -------------------------------------------------------------------------------------------------------- */

struct search {
	const struct naos_invocation *invocation;
	struct naos_catalogue catalogue;
	const char *frame;         /* show: a path or an id; NULL: what could not be read */
	struct naos_policy *query; /* query */
	int64_t now_us;
	uint64_t found, closed; /* closed: rows whose key is refused */
	struct naos_error refused;
	struct naos_error changed; /* a row was tampered with */
};

static int print_row(struct search *search, const struct naos_catalogue_row *row, json_t *attributes, struct naos_error *err)
{
	char frame_id[NAOS_UUID_TEXT_BYTES], collection[NAOS_UUID_TEXT_BYTES];
	const char *name;
	json_t *value;
	search->found++;
	if (search->invocation->json)
		return naos_print_json(json_pack("{s:o, s:s, s:s, s:I, s:O*, s:s*, s:s*}", "path", naos_json_text(row->path), "frame_id",
						 naos_uuid_format(&row->frame_id, frame_id), "collection_id",
						 naos_uuid_format(&row->collection_id, collection), "bytes", (json_int_t)row->bytes, "data",
						 attributes, "error", row->code ? naos_error_info(row->code)->name : NULL, "reason",
						 row->code ? row->reason : NULL), err);
	json_t *path = naos_json_text(row->path);
	printf("%s\n", json_string_value(path));
	json_decref(path);
	if (row->code)
		printf("  not read: %s\n", row->reason);
	if (search->query)
		return 0;
	printf("  frame id    %s\n  collection  %s\n", naos_uuid_format(&row->frame_id, frame_id),
	       naos_uuid_format(&row->collection_id, collection));
	json_object_foreach(attributes, name, value)
	{
		naos_autofree char *text = json_dumps(value, JSON_ENCODE_ANY);
		printf("  %-12s%s\n", name, text ? text : "");
	}
	return 0;
}

static int open_row(struct search *search, const struct naos_catalogue_row *row, json_t **ret, struct naos_error *err)
{
	const struct naos_gcm_key *key;
	int rc = naos_catalogue_key_get(&search->catalogue, &row->collection_id, false, &key, &search->refused);
	if (rc == NAOS_E_DENIED || rc == NAOS_E_NOKEY || rc == NAOS_E_KEY_STATE) {
		search->closed++;
		return rc;
	}
	if (rc != 0)
		return naos_error_set(err, rc, "%s", search->refused.message);
	rc = naos_catalogue_attributes_open(&search->catalogue, key, row, ret, err);
	if (rc == NAOS_E_INTEGRITY) {
		search->changed = *err;
		naos_log(NAOS_LOG_WARNING, "%s", err->message);
	}
	return rc;
}

static bool is_asked_for(const struct search *search, const struct naos_catalogue_row *row)
{
	char id[NAOS_UUID_TEXT_BYTES];
	if (search->query)
		return row->code == 0;
	if (!search->frame)
		return row->code != 0;
	return strcmp(search->frame, row->path) == 0 || strcasecmp(search->frame, naos_uuid_format(&row->frame_id, id)) == 0;
}

static int take_row(void *context, const struct naos_catalogue_row *row, struct naos_error *err)
{
	struct search *search = context;
	json_t *attributes = NULL;
	uint64_t closed = search->closed;
	if (!is_asked_for(search, row))
		return 0;
	int rc = row->code ? 0 : open_row(search, row, &attributes, err);
	if (rc == NAOS_E_INTEGRITY || search->closed > closed)
		return 0; /* the others go on; the end tells */
	if (rc == 0 && (!search->query || naos_catalogue_query_finds(search->query, attributes, search->now_us)))
		rc = print_row(search, row, attributes, err);
	json_decref(attributes);
	return rc;
}

static int finish_search(const struct search *search, struct naos_error *err)
{
	if (search->changed.code != 0)
		return naos_error_set(err, search->changed.code, "%s", search->changed.message);
	if (search->closed)
		return naos_error_set(err, search->refused.code, "%llu frames are not shown: %s", (unsigned long long)search->closed,
				      search->refused.message);
	if (search->frame && search->found == 0)
		return naos_error_set(err, NAOS_E_NOTFOUND, "the catalogue has no frame %s", search->frame);
	return 0;
}

static int run_search(struct search *search, const char *action, struct naos_error *err)
{
	struct naos_invocation *invocation = (struct naos_invocation *)(uintptr_t)search->invocation;
	naos_autofree char *path = search->frame ? realpath(search->frame, NULL) : NULL;
	const struct naos_work_plan plan = { .action = action, .label = "searching", .operands = invocation->operands,
					     .operand_count = search->frame ? 1 : 0 };
	struct naos_fits fits;
	int rc = naos_fits_start(&fits, invocation, &plan, true, err);
	if (rc != 0)
		return rc;
	if (path)
		search->frame = path;
	rc = naos_catalogue_open(&search->catalogue, path_of(invocation), false, invocation->config, fits.provider, err);
	if (rc == 0)
		rc = naos_catalogue_store_each(search->catalogue.store, NULL, take_row, search, err);
	if (rc == 0)
		rc = finish_search(search, err);
	naos_catalogue_close(&search->catalogue);
	return naos_fits_end(&fits, rc, err);
}

static int run_show(struct naos_invocation *invocation, struct naos_error *err)
{
	struct search search = { .invocation = invocation, .frame = invocation->operand_count ? invocation->operands[0] : NULL };
	return run_search(&search, "catalogue.show", err);
}

static int run_query(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_autopolicy struct naos_policy *query = NULL;
	struct search search = { .invocation = invocation };
	int rc = policy_option_now(invocation, &search.now_us, err);
	if (rc == 0)
		rc = naos_catalogue_query_parse(invocation->operands[0], &query, err);
	search.query = query;
	return rc ? rc : run_search(&search, "catalogue.query", err);
}

static const struct naos_option show_options[] = { OPTION_CATALOGUE, NAOS_OPTION_KEYS, { .name = NULL } };

const struct naos_command naos_command_catalogue_show = {
	.path = "catalogue show", .operands = "[FRAME]", .summary = "Show what is known of a frame, or which frames could not be read and why",
	.example = "naos catalogue show /archive/ttt/image.fits", .max_operands = 1, .options = show_options, .run = run_show,
};

static const struct naos_option query_options[] = {
	OPTION_CATALOGUE, NAOS_OPTION_KEYS, { "now", 'n', "TIME", "search as if it were this time (default: the clock)" }, { .name = NULL },
};

const struct naos_command naos_command_catalogue_query = {
	.path = "catalogue query", .operands = "EXPRESSION", .summary = "Find frames by a condition of the policy language on their headers",
	.example = "naos catalogue query 'data.EXPTIME > 60 AND data.release_date < now()'", .min_operands = 1, .max_operands = 1,
	.options = query_options, .run = run_query,
};
