/* What the verbs of `naos fits` share.  SPDX-License-Identifier: Apache-2.0 */
#include "fits.h"

#include <string.h>

#include "base/log.h"
#include "engine/configure.h"
#include "key_source.h"

/* --- start and end --------------------------------------------------------------------------------------------------------- */

static bool has_option(const struct naos_invocation *invocation, const char *name)
{
	for (const struct naos_option *option = invocation->command->options; option && option->name; option++)
		if (strcmp(option->name, name) == 0)
			return true;
	return false;
}

static int read_given(const struct naos_invocation *invocation, const char *option, struct naos_secret **ret,
		      struct naos_error *err)
{
	const char *source = has_option(invocation, option) ? naos_option_value(invocation, option) : NULL;
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

static int open_keys(struct naos_fits *fits, const struct naos_invocation *invocation, bool manager, struct naos_error *err)
{
	int rc = naos_engine_configure(invocation->config, err);
	if (rc == 0)
		rc = read_given(invocation, "header-key", &fits->given[0], err);
	if (rc == 0)
		rc = read_given(invocation, "data-key", &fits->given[1], err);
	if (rc == 0 && manager)
		rc = naos_admin_open_keys(invocation, &fits->provider, err);
	return rc;
}

int naos_fits_start(struct naos_fits *fits, struct naos_invocation *invocation, const struct naos_work_plan *plan, bool manager,
		    struct naos_error *err)
{
	*fits = (struct naos_fits){ .provider = NULL };
	int rc = naos_work_start(&fits->work, invocation, plan, err);
	if (rc != 0)
		return rc;
	rc = open_keys(fits, invocation, manager, err);
	return rc ? naos_fits_end(fits, rc, err) : 0;
}

int naos_fits_end(struct naos_fits *fits, int rc, struct naos_error *err)
{
	if (rc == 0 && fits->print_failure != 0)
		rc = naos_error_set(err, fits->print_failure, "%s", fits->print_error.message);
	rc = naos_work_end(&fits->work, rc, err);
	fits->provider = naos_provider_close(fits->provider);
	for (unsigned i = 0; i < 2; i++)
		fits->given[i] = naos_secret_free(fits->given[i]);
	return rc;
}

bool naos_fits_has_manager(const struct naos_invocation *invocation)
{
	return naos_option_given(invocation, "keys") || naos_config_string(invocation->config, "keymanager", NULL, "uri")[0];
}

/* --- levels ------------------------------------------------------------------------------------------------------------------ */

void naos_fits_add_level(json_t *value, const struct naos_frame_opened *opened)
{
	static const char *const state_names[] = { "right", "missing", "wrong", "tampered" };
	if (!value)
		return;
	(void)json_object_set_new(value, "level", json_string(naos_frame_level_name(opened->level)));
	for (unsigned i = 0; i < 2; i++) {
		const char *reason = opened->reasons[i].message;
		json_t *key = json_pack("{s:s}", "state", state_names[opened->states[i]]);
		if (key && reason[0])
			(void)json_object_set_new(key, "reason", naos_json_text(reason));
		(void)json_object_set_new(value, i == 0 ? "header_key" : "data_key", key);
	}
}

void naos_fits_tell_level(const char *path, const struct naos_frame_opened *opened)
{
	for (unsigned i = 0; i < 2; i++) {
		const char *reason = opened->reasons[i].message;
		if (reason[0] && strstr(reason, path))
			naos_log(NAOS_LOG_WARNING, "%s", reason);
		else if (reason[0])
			naos_log(NAOS_LOG_WARNING, "%s: %s", path, reason);
	}
}

/* --- files and trees ---------------------------------------------------------------------------------------------------------- */

void naos_fits_print(struct naos_fits *fits, json_t *value)
{
	struct naos_error err;
	int rc = naos_print_json(value, &err);
	if (rc == 0 || fits->print_failure != 0)
		return;
	fits->print_failure = rc;
	fits->print_error = err;
}

int naos_fits_describe_new(const struct naos_fits *fits, struct naos_collection *ret, struct naos_frame_transfer *transfer,
			   struct naos_error *err)
{
	const struct naos_invocation *invocation = fits->work.invocation;
	const char *name = naos_option_value(invocation, "collection"), *segment = naos_option_value(invocation, "segment");
	const char *format = naos_option_value(invocation, "format");
	uint64_t bytes = 0; /* by the size of the file */
	if (segment && (!naos_parse_size(segment, &bytes) || bytes < NAOS_FRAME_MIN_SEGMENT_BYTES || bytes > NAOS_FRAME_MAX_SEGMENT_BYTES))
		return naos_error_set(err, NAOS_E_USAGE, "--segment is a size from 64KiB to 16MiB");
	if (format && strcmp(format, "1") != 0 && strcmp(format, "2") != 0)
		return naos_error_set(err, NAOS_E_USAGE, "--format is 1 or 2");
	transfer->version = format ? (unsigned)(format[0] - '0') : 2;
	transfer->segment_bytes = (uint32_t)bytes;
	if (!name)
		return 0;
	transfer->collection = ret;
	return naos_collection_find(invocation->config, name, fits->provider, ret, err);
}

int naos_fits_transfer(struct naos_fits *fits, struct naos_frame_transfer *transfer, const char *done, struct naos_error *err)
{
	const struct naos_invocation *invocation = fits->work.invocation;
	transfer->replace = naos_option_given(invocation, "force");
	transfer->jobs = fits->work.jobs;
	transfer->shard_index = fits->work.shard_index;
	transfer->shard_count = fits->work.shard_count;
	transfer->source = invocation->operands[0];
	transfer->target = invocation->operands[1];
	transfer->provider = fits->provider;
	transfer->given[0] = fits->given[0];
	transfer->given[1] = fits->given[1];
	transfer->context = fits;
	int rc = naos_frame_transfer_run(transfer, &fits->work.tally, err);
	return rc ? rc : naos_fits_summary(fits, done, err);
}

static uint64_t left_out(const struct naos_tally *tally)
{
	uint64_t count = 0;
	for (unsigned i = NAOS_NOTICE_NO_FITS; i <= NAOS_NOTICE_LINK; i++)
		count += tally->notices[i];
	return count;
}

int naos_fits_summary(struct naos_fits *fits, const char *done, struct naos_error *err)
{
	struct naos_work *work = &fits->work;
	const struct naos_invocation *invocation = work->invocation;
	uint64_t skipped = left_out(&work->tally);
	char text[256], more[64] = "";
	if (work->single)
		return 0;
	if (skipped)
		(void)snprintf(more, sizeof(more), "; %llu left out", (unsigned long long)skipped);
	if (!invocation->json) {
		printf("%s %s%s\n", done, naos_work_text(work, "were current", text, sizeof(text)), more);
		return 0;
	}
	json_t *summary = naos_work_summary(work);
	if (summary)
		(void)json_object_update_new(summary, json_pack("{s:s, s:b, s:I}", "action", work->action ? work->action : "frame.info", "summary",
								1, "left_out", (json_int_t)skipped));
	return naos_print_json(summary, err);
}
