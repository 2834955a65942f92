/* What the verbs of `naos fits` share: keys, sealing, levels.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CMD_FITS_H
#define NAOS_CMD_FITS_H

#include "admin.h"
#include "base/progress.h"
#include "fits/collection.h"
#include "fits/whole.h"

#define NAOS_OPTION_COLLECTION { "collection", 'c', "NAME", "the collection whose MEKs wrap the keys of the frame" }
#define NAOS_OPTION_HEADER_KEY \
	{ "header-key", 0, "SOURCE", \
	  "header key in hexadecimal digits, instead of the key manager's: file:PATH, fd:NUMBER, systemd:NAME" }
#define NAOS_OPTION_DATA_KEY { "data-key", 0, "SOURCE", "data key in the same way" }
#define NAOS_OPTION_FORMAT { "format", 0, "NUMBER", "version of the format: 2 (default) for any file, 1 for one image" }
#define NAOS_OPTION_FITS_JOBS { "jobs", 'j', "NUMBER", "threads (default: the CPUs that this process may use)" }
#define NAOS_OPTION_FORCE { "force", 0, NULL, "replace a target that exists" }
#define NAOS_OPTION_SEGMENT \
	{ "segment", 0, "SIZE", "bytes that are encrypted, read and checked together (default 4MiB; 64KiB to 16MiB)" }

struct naos_fits_session {
	struct naos_provider *provider;
	struct naos_secret *given[2];
	unsigned jobs;
};

/* Keys given by hand, and the key manager where it is needed: without one, frames are opened with what was given. */
int naos_fits_start(struct naos_fits_session *session, const struct naos_invocation *invocation, bool manager,
		    struct naos_error *err) naos_must_check;
void naos_fits_end(struct naos_fits_session *session);
bool naos_fits_has_manager(const struct naos_invocation *invocation);

/* SOURCE TARGET, --jobs, the first record, the keys.  A failure to get the keys is recorded too. */
int naos_fits_begin(struct naos_fits_session *session, const struct naos_invocation *invocation, const char *action, bool manager,
		    struct naos_error *err) naos_must_check;

/* Opens a frame with the keys of the session. */
int naos_fits_open_frame(struct naos_fits_session *session, const char *path, struct naos_frame **ret,
			 struct naos_error *err) naos_must_check;
/* Seals an open file to the target of the invocation, with a bar. */
int naos_fits_seal_to_target(struct naos_fits_session *session, const struct naos_invocation *invocation, int fd,
			     struct naos_uuid *ret_id, struct naos_error *err) naos_must_check;

/* The level and what became of the two keys, as JSON. */
json_t *naos_fits_level_json(const struct naos_frame *frame);
/* Warns of keys that are not right. */
void naos_fits_tell_level(const struct naos_frame *frame);

/* For the bar. */
void naos_fits_count(void *context, uint64_t bytes);
void naos_fits_progress_end(struct naos_progress **progress);

#endif
