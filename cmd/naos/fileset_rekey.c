/* naos fileset rekey.  SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "fileset_tree.h"
#include "seal/check_tree.h"
#include "seal/rekey.h"

#define DEFAULT_PASSES 3
#define MAX_PASSES 1000
#define TIME_TEXT_BYTES 32
#define NS_PER_S 1000000000u

static const struct naos_option options[] = {
	NAOS_OPTION_KEYS,
	{ "since", 0, "TIME", "leave files alone that were rekeyed at this time (UTC) or later, as 2026-11-30T08:00:00Z" },
	{ "passes", 0, "NUMBER", "how often files that are in use are tried (default 3)" },
	NAOS_OPTION_JOBS,
	NAOS_OPTION_SHARD,
	{ .name = NULL },
};

static int read_passes(const struct naos_invocation *invocation, unsigned *ret, struct naos_error *err)
{
	const char *text = naos_option_value(invocation, "passes");
	unsigned passes = DEFAULT_PASSES;
	if (text && (strspn(text, "0123456789") != strlen(text) || strlen(text) > 4 || sscanf(text, "%4u", &passes) != 1 || passes < 1 ||
		     passes > MAX_PASSES))
		return naos_error_set(err, NAOS_E_USAGE, "--passes takes a number from 1 to %d, not '%s'", MAX_PASSES, text);
	*ret = passes;
	return 0;
}

static int read_since(const char *text, uint64_t *ret, struct naos_error *err)
{
	static const char *const forms[] = { "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d" };
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(forms); i++) {
		struct tm parts = { .tm_year = 0 };
		const char *end = strptime(text, forms[i], &parts);
		time_t seconds = end && !*end ? timegm(&parts) : -1;
		if (seconds > 0) {
			*ret = (uint64_t)seconds * NS_PER_S;
			return 0;
		}
	}
	return naos_error_set(err, NAOS_E_USAGE, "--since takes a time in UTC as 2026-11-30T08:00:00Z, or a date, not '%s'", text);
}

static const char *time_text(uint64_t unix_ns, char text[static TIME_TEXT_BYTES])
{
	time_t seconds = (time_t)(unix_ns / NS_PER_S);
	struct tm parts;
	(void)gmtime_r(&seconds, &parts);
	(void)strftime(text, TIME_TEXT_BYTES, "%Y-%m-%dT%H:%M:%SZ", &parts);
	return text;
}

/* From when on a rekeyed file is current: as told, or since the run that this one completes began, or from now on. */
static int choose_since(struct naos_work *work, const char *path, uint64_t *ret, struct naos_error *err)
{
	const char *told = naos_option_value(work->invocation, "since");
	uint64_t since = naos_rekey_now(), noted = 0;
	bool known = false, kept = true;
	char text[TIME_TEXT_BYTES];
	int rc = told ? read_since(told, &since, err) :
			naos_rekey_noted(path, work->shard_index, work->shard_count, &noted, &known, err);
	if (rc == 0 && known) {
		since = noted;
		naos_log(NAOS_LOG_INFO, "completing the run that began %s", time_text(since, text));
	} else if (rc == 0 && !told) {
		rc = naos_rekey_note(path, work->shard_index, work->shard_count, since, &kept, err);
	}
	if (rc == 0 && !kept)
		naos_log(NAOS_LOG_WARNING, "the file system of %s takes no extended attributes: if this run is interrupted, the next one "
					   "begins anew", path);
	*ret = since;
	return rc;
}

static int rekey_tree(struct naos_work *work, const char *path, unsigned passes, struct naos_error *err)
{
	struct naos_rekey rekey = { .sets = work->sets, .set = work->set, .tally = &work->tally };
	const struct naos_replace replace = {
		.context = &rekey,
		.root = path,
		.jobs = work->jobs,
		.shard_index = work->shard_index,
		.shard_count = work->shard_count,
		.passes = passes,
		.skip = NAOS_LOST_DIRECTORY,
		.tally = &work->tally,
		.look = naos_rekey_look,
		.fill = naos_rekey_fill,
	};
	char since[TIME_TEXT_BYTES];
	bool kept;
	int rc = choose_since(work, path, &rekey.since_unix_ns, err);
	if (rc == 0)
		rc = naos_replace_tree(&replace, err);
	/* all is done: the next run is a new one */
	if (rc == 0 && naos_tally_result(&work->tally, err) == 0)
		rc = naos_rekey_note(path, work->shard_index, work->shard_count, 0, &kept, err);
	if (rc != 0)
		return rc;
	return naos_fileset_summary(work, "rekeyed the files of", "were rekeyed before", "fileset-rekey",
				    json_pack("{s:s}", "since", time_text(rekey.since_unix_ns, since)), err);
}

static int run_rekey(struct naos_invocation *invocation, struct naos_error *err)
{
	const char *path;
	unsigned passes = DEFAULT_PASSES;
	struct naos_work work;
	int rc = naos_fileset_tree(invocation, NULL, &path, err);
	if (rc == 0)
		rc = read_passes(invocation, &passes, err);
	if (rc != 0)
		return rc;
	char *const paths[] = { (char *)path };
	const struct naos_work_plan plan = {
		.action = "fileset.rekey", .label = "rekeying", .keys = true, .one_set = true, .operands = paths, .operand_count = 1,
		.set = invocation->operands[0],
	};
	rc = naos_work_start(&work, invocation, &plan, err);
	if (rc != 0)
		return rc;
	rc = rekey_tree(&work, path, passes, err);
	return naos_work_end(&work, rc, err);
}

const struct naos_command naos_command_fileset_rekey = {
	.path = "fileset rekey",
	.operands = "NAME",
	.summary = "Encrypt the data of a file set anew, each file under a fresh key; it may be in use meanwhile",
	.example = "naos fileset rekey --shard 3/16 genomes",
	.min_operands = 1,
	.max_operands = 1,
	.options = options,
	.run = run_rekey,
};
