/* Whole-file work: from the options to the summary.  SPDX-License-Identifier: Apache-2.0 */
#include "work.h"

#include <inttypes.h>
#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>

#include "base/io.h"
#include "base/log.h"
#include "seal/walk.h"

/* --- signals ------------------------------------------------------------------------------------------------------------ */

static void interrupt(int signal_number)
{
	naos_tally_interrupt();
}

/* The first signal ends the work cleanly, a second one at once. */
static void catch_signals(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(signals); i++) {
		struct sigaction old, action = { .sa_handler = interrupt, .sa_flags = SA_RESETHAND };
		if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) /* nohup stays */
			(void)sigaction(signals[i], &action, NULL);
	}
}

/* --- the record --------------------------------------------------------------------------------------------------------- */

static void user_name(char *name, size_t bytes)
{
	char buffer[4096];
	struct passwd entry, *found = NULL;
	(void)snprintf(name, bytes, "uid:%u", (unsigned)getuid());
	if (getpwuid_r(getuid(), &entry, buffer, sizeof(buffer), &found) == 0 && found)
		(void)snprintf(name, bytes, "%s", found->pw_name);
}

/* The log's own lock is between processes. */
static pthread_mutex_t append_lock = PTHREAD_MUTEX_INITIALIZER;

static void unlock(pthread_mutex_t **lock)
{
	(void)pthread_mutex_unlock(*lock);
}

/* The log is open only while records are written: other commands wait for it. */
static int append(struct naos_work *work, struct naos_audit_event *events, size_t count, struct naos_error *err)
{
	struct naos_audit_log *log;
	char actor[128];
	naos_cleanup(unlock) pthread_mutex_t *held = &append_lock;
	(void)pthread_mutex_lock(held);
	int rc = naos_admin_open_log(work->invocation, &log, err);
	if (rc != 0)
		return naos_error_set(err, NAOS_E_AUDIT, "%s", err->message);
	if (!log)
		return 0;
	user_name(actor, sizeof(actor));
	for (size_t i = 0; i < count; i++) {
		events[i].actor = actor;
		events[i].action = work->action;
		events[i].request_id = work->request;
	}
	rc = naos_audit_append_many(log, events, count, err);
	(void)naos_audit_close(log);
	return rc;
}

static int record(struct naos_work *work, const char *object, const char *decision, const char *reason, struct naos_error *err)
{
	struct naos_audit_event event = { .object = object, .decision = decision, .reason = reason };
	return work->audited ? append(work, &event, 1, err) : 0;
}

int naos_work_record(struct naos_work *work, const char *path, const char *what, struct naos_error *err)
{
	return record(work, path, "allowed", what, err);
}

static void record_failures(struct naos_work *work)
{
	struct naos_audit_event events[NAOS_WORK_FAILURES];
	struct naos_error err;
	for (size_t i = 0; i < work->failed_count; i++)
		events[i] = (struct naos_audit_event){ .object = work->failed_paths[i], .decision = "failed",
						       .reason = naos_error_info(work->failed_codes[i])->name };
	int rc = work->failed_count && work->audited ? append(work, events, work->failed_count, &err) : 0;
	if (rc != 0 && work->audit_failure == 0) {
		work->audit_failure = rc;
		naos_log_error(&err);
	}
	for (size_t i = 0; i < work->failed_count; i++)
		free(work->failed_paths[i]);
	work->failed_count = 0;
}

/* --- what happens to files ---------------------------------------------------------------------------------------------- */

/* Every message names its file. */
static void name_file(const char *path, struct naos_error *err)
{
	char printable[512];
	const char *slash = strrchr(path, '/');
	(void)naos_io_printable(slash && slash[1] ? slash + 1 : path, printable, sizeof(printable));
	if (strstr(err->message, printable))
		return;
	(void)naos_io_printable(path, printable, sizeof(printable));
	(void)naos_error_prefix(err, err->code, "%s", printable);
}

/* One line a file; the remedy once per kind of failure. */
static void tell(struct naos_work *work, const struct naos_error *err)
{
	bool *told = &work->told[-err->code % NAOS_WORK_CODES];
	if (*told && !work->invocation->json)
		naos_log(NAOS_LOG_ERROR, "%s", err->message);
	else
		naos_log_error(err);
	*told = true;
}

static void failed(void *context, const char *path, const struct naos_error *failure)
{
	struct naos_work *work = context;
	struct naos_error err = *failure;
	name_file(path, &err);
	if (work->single && work->first.code == 0)
		work->first = err;
	else
		tell(work, &err);
	char *copy = strdup(path);
	if (!copy)
		return;
	work->failed_paths[work->failed_count] = copy;
	work->failed_codes[work->failed_count++] = err.code;
	if (work->failed_count == NAOS_WORK_FAILURES)
		record_failures(work);
}

static void noticed(void *context, const char *path, enum naos_notice notice)
{
	char printable[512];
	naos_log(NAOS_LOG_WARNING, "%s: %s", naos_io_printable(path, printable, sizeof(printable)), naos_notice_text(notice));
}

/* --- start -------------------------------------------------------------------------------------------------------------- */

static bool has_option(const struct naos_invocation *invocation, const char *name)
{
	for (const struct naos_option *option = invocation->command->options; option && option->name; option++)
		if (strcmp(option->name, name) == 0)
			return true;
	return false;
}

static int read_options(struct naos_work *work, struct naos_error *err)
{
	const struct naos_invocation *invocation = work->invocation;
	const char *jobs = has_option(invocation, "jobs") ? naos_option_value(invocation, "jobs") : NULL;
	work->jobs = naos_walk_default_jobs();
	if (jobs && (strspn(jobs, "0123456789") != strlen(jobs) || sscanf(jobs, "%4u", &work->jobs) != 1 || work->jobs < 1 ||
		     work->jobs > NAOS_MAX_JOBS || strlen(jobs) > 4))
		return naos_error_set(err, NAOS_E_USAGE, "--jobs takes a number from 1 to %d, not '%s'", NAOS_MAX_JOBS, jobs);
	work->shard_index = work->shard_count = 1;
	return has_option(invocation, "shard") ? naos_option_shard(invocation, &work->shard_index, &work->shard_count, err) : 0;
}

static int open_keys(struct naos_work *work, const struct naos_work_plan *plan, struct naos_error *err)
{
	if (!plan->keys)
		return 0;
	const char *name = plan->set ? plan->set : naos_option_value(work->invocation, "fileset");
	int rc = naos_filesets_open(work->invocation->config, name, naos_option_value(work->invocation, "keys"), &work->sets, err);
	return rc == 0 && (name || plan->one_set) ? naos_filesets_find(work->sets, name, &work->set, err) : rc;
}

/* "genomes: reads -> sealed", or the paths. */
static void describe(struct naos_work *work, const struct naos_work_plan *plan)
{
	size_t used = 0, room = sizeof(work->object);
	work->object[0] = 0;
	if (work->set || plan->set)
		used = (size_t)snprintf(work->object, room, "%s: ", work->set ? work->set->name : plan->set);
	for (size_t i = 0; i < plan->operand_count && used < room; i++)
		used += (size_t)snprintf(work->object + used, room - used, "%s%s",
					 i == 0	    ? "" :
					 plan->pair ? " -> " :
						      ", ",
					 plan->operands[i]);
	if (work->shard_count > 1 && used < room)
		(void)snprintf(work->object + used, room - used, " (share %u/%u)", work->shard_index, work->shard_count);
}

static int start_record(struct naos_work *work, const struct naos_work_plan *plan, struct naos_error *err)
{
	struct naos_uuid id;
	int rc = naos_uuid_random(&id, err);
	if (rc != 0)
		return rc;
	(void)naos_uuid_format(&id, work->request);
	describe(work, plan);
	work->audited = plan->action && naos_config_string(work->invocation->config, "audit", NULL, "log")[0] != 0;
	return record(work, work->object, "allowed", "started", err);
}

int naos_work_start(struct naos_work *work, struct naos_invocation *invocation, const struct naos_work_plan *plan,
		    struct naos_error *err)
{
	const struct naos_tally_listener listener = { .failed = failed, .noticed = noticed, .context = work };
	struct stat status;
	*work = (struct naos_work){ .invocation = invocation, .action = plan->action };
	size_t sources = plan->pair ? 1 : plan->operand_count;
	work->single = sources == 1 && !(stat(plan->operands[0], &status) == 0 && S_ISDIR(status.st_mode));
	(void)clock_gettime(CLOCK_MONOTONIC, &work->began);
	/* keys and plaintext of this process are nobody's business: no core, no tracing by others */
	(void)prctl(PR_SET_DUMPABLE, 0);
	catch_signals();
	int rc = read_options(work, err);
	if (rc == 0)
		rc = open_keys(work, plan, err);
	if (rc == 0)
		rc = start_record(work, plan, err);
	uint64_t total = rc == 0 && work->single && stat(plan->operands[0], &status) == 0 && S_ISREG(status.st_mode) ?
			     (uint64_t)status.st_size :
			     0;
	if (rc == 0)
		rc = naos_progress_create(plan->label, total, !invocation->json, &work->progress, err);
	if (rc == 0)
		naos_tally_start(&work->tally, &listener, work->progress);
	else
		work->sets = naos_filesets_close(work->sets);
	return rc;
}

/* --- end ---------------------------------------------------------------------------------------------------------------- */

static double seconds_since(const struct timespec *began)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - began->tv_sec) + (double)(now.tv_nsec - began->tv_nsec) / 1e9;
}

json_t *naos_work_summary(const struct naos_work *work)
{
	const struct naos_tally *tally = &work->tally;
	json_t *notices = json_object();
	for (unsigned i = 0; notices && i < NAOS_NOTICES; i++)
		if (tally->notices[i])
			(void)json_object_set_new(notices, naos_notice_name(i), json_integer((json_int_t)tally->notices[i]));
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:f}", "files", (json_int_t)tally->files, "bytes",
			 (json_int_t)tally->bytes, "others", (json_int_t)tally->others, "current", (json_int_t)tally->current,
			 "failed", (json_int_t)tally->failed, "notices", notices, "seconds", seconds_since(&work->began));
}

const char *naos_work_text(const struct naos_work *work, const char *current_word, char *text, size_t bytes)
{
	const struct naos_tally *tally = &work->tally;
	char size[16];
	int used = snprintf(text, bytes, "%" PRIu64 " file%s", tally->files, tally->files == 1 ? "" : "s");
	if (tally->bytes)
		used += snprintf(text + used, bytes - (size_t)used, ", %s", naos_format_bytes(tally->bytes, size));
	used += snprintf(text + used, bytes - (size_t)used, ", %.1f s", seconds_since(&work->began));
	if (tally->current)
		used += snprintf(text + used, bytes - (size_t)used, "; %" PRIu64 " %s", tally->current, current_word);
	if (tally->failed)
		(void)snprintf(text + used, bytes - (size_t)used, "; %" PRIu64 " failed", tally->failed);
	return text;
}

int naos_work_end(struct naos_work *work, int rc, struct naos_error *err)
{
	struct naos_error audit;
	char object[1280];
	if (rc == 0 && work->single && work->first.code != 0 && work->tally.failed == 1 && !naos_tally_interrupted()) {
		*err = work->first;
		rc = err->code;
	} else if (work->first.code != 0) {
		naos_log_error(&work->first);
	}
	if (rc == 0)
		rc = naos_tally_result(&work->tally, err);
	(void)snprintf(object, sizeof(object), "%s: %" PRIu64 " done, %" PRIu64 " current, %" PRIu64 " failed", work->object,
		       work->tally.files, work->tally.current, work->tally.failed);
	record_failures(work);
	int recorded = record(work, object, rc ? "failed" : "allowed", rc ? naos_error_info(rc)->name : "ended", &audit);
	if (recorded == 0)
		recorded = work->audit_failure ? naos_error_set(&audit, work->audit_failure,
								"records of this run are missing in the audit log") :
						 0;
	if (recorded != 0 && rc == 0) {
		*err = audit;
		rc = recorded;
	} else if (recorded != 0) {
		naos_log_error(&audit);
	}
	work->progress = naos_progress_free(work->progress);
	naos_tally_end(&work->tally);
	work->sets = naos_filesets_close(work->sets);
	return rc;
}
