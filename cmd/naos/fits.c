/* What the verbs of `naos fits` share: keys, sealing, levels.  SPDX-License-Identifier: Apache-2.0 */
#include "fits.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "key_source.h"
#include "seal/walk.h"

void naos_fits_end(struct naos_fits_session *session)
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
int naos_fits_start(struct naos_fits_session *session, const struct naos_invocation *invocation, bool manager, struct naos_error *err)
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

bool naos_fits_has_manager(const struct naos_invocation *invocation)
{
	return naos_option_given(invocation, "keys") || naos_config_string(invocation->config, "keymanager", NULL, "uri")[0];
}

int naos_fits_open_frame(struct naos_fits_session *session, const char *path, struct naos_frame **ret, struct naos_error *err)
{
	struct naos_frame_opener opener = { .provider = session->provider, .given = { session->given[0], session->given[1] } };
	const struct naos_frame_source source = naos_frame_opener_source(&opener);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s", path);
	return naos_frame_open_fd(fd, path, &source, ret, err);
}

void naos_fits_count(void *context, uint64_t bytes)
{
	naos_progress_add(context, bytes, 0);
}

void naos_fits_progress_end(struct naos_progress **progress)
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
int naos_fits_begin(struct naos_fits_session *session, const struct naos_invocation *invocation, const char *action, bool manager,
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
	rc = naos_fits_start(session, invocation, manager, err);
	if (rc != 0)
		naos_admin_end(invocation, action, source, rc, err);
	return rc;
}

/* --- sealing ----------------------------------------------------------------------------------------------------------- */

/* What --collection, or else the two keys given by hand, make of a new frame. */
static int describe_new(struct naos_fits_session *session, const struct naos_invocation *invocation, struct naos_frame_keys *keys,
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
int naos_fits_seal_to_target(struct naos_fits_session *session, const struct naos_invocation *invocation, int fd, struct naos_uuid *ret_id,
			  struct naos_error *err)
{
	naos_cleanup(naos_fits_progress_end) struct naos_progress *progress = NULL;
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
	what.progress = naos_fits_count;
	what.context = progress;
	*ret_id = what.frame_id;
	return naos_frame_seal_file(fd, source, target, naos_option_given(invocation, "force"), &what, err);
}

/* --- levels ----------------------------------------------------------------------------------------------------------- */

static const char *const state_names[] = { "right", "missing", "wrong", "tampered" };

json_t *naos_fits_level_json(const struct naos_frame *frame)
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

void naos_fits_tell_level(const struct naos_frame *frame)
{
	for (enum naos_frame_part part = NAOS_FRAME_HEADER; part <= NAOS_FRAME_DATA; part++)
		if (naos_frame_key_reason(frame, part)[0])
			naos_log(NAOS_LOG_WARNING, "%s", naos_frame_key_reason(frame, part));
}
