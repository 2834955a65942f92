/* SPDX-License-Identifier: Apache-2.0 */
#include "fits/whole.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/io.h"
#include "seal/publish.h"

int naos_frame_seal_file(int source_fd, const char *source_name, const char *target, bool replace, const struct naos_frame_new *what,
			 struct naos_error *err)
{
	naos_autodraft struct naos_draft draft = { .fd = -1 };
	struct stat status;
	if (fstat(source_fd, &status) != 0)
		return naos_error_set_errno(err, errno, "cannot read the status of %s", source_name);
	int rc = naos_draft_create(AT_FDCWD, target, replace, &draft, err);
	if (rc == 0)
		rc = naos_frame_seal_fd(source_fd, source_name, draft.fd, target, what, err);
	if (rc == 0 && fchmod(draft.fd, status.st_mode & 0777) != 0)
		rc = naos_error_set_errno(err, errno, "cannot set the mode of %s", target);
	return rc ? rc : naos_draft_publish(&draft, err);
}

static int refuse_part(const struct naos_frame *frame, const char *target, struct naos_error *err)
{
	return naos_error_set(err, naos_frame_worst(frame), "%s could only be written %s", target,
			      naos_frame_level_name(naos_frame_level(frame)));
}

int naos_frame_write_draft(struct naos_frame *frame, struct naos_draft *draft, const char *target,
			   const struct naos_frame_writing *how, bool *ret_suppressed, struct naos_error *err)
{
	struct naos_error changed = NAOS_ERROR_INIT;
	int rc = naos_frame_copy(frame, draft->fd, target, how->jobs, how->progress, how->context, &changed);
	bool suppressed = rc == NAOS_E_INTEGRITY && naos_frame_level(frame) == NAOS_FRAME_FULL && !how->full_only;
	if (rc != 0 && !suppressed)
		return naos_error_set(err, rc, "%s", changed.message);
	if (suppressed) {
		rc = naos_frame_suppress_data(frame, err);
		if (rc == 0)
			rc = naos_frame_copy(frame, draft->fd, target, how->jobs, NULL, NULL, err);
		if (rc == 0 && err)
			*err = changed;
	}
	*ret_suppressed = suppressed;
	return rc;
}

int naos_frame_may_write(const struct naos_frame *frame, const char *target, const struct naos_frame_writing *how, struct naos_error *err)
{
	if (naos_frame_level(frame) == NAOS_FRAME_DENIED)
		return naos_frame_refuse(frame, err);
	return how->full_only && naos_frame_level(frame) != NAOS_FRAME_FULL ? refuse_part(frame, target, err) : 0;
}

int naos_frame_write_file(struct naos_frame *frame, const char *target, const struct naos_frame_writing *how, bool *ret_written,
			  struct naos_error *err)
{
	naos_autodraft struct naos_draft draft = { .fd = -1 };
	struct naos_error changed = NAOS_ERROR_INIT;
	bool suppressed;
	*ret_written = false;
	int rc = naos_frame_may_write(frame, target, how, err);
	if (rc == 0)
		rc = naos_draft_create(AT_FDCWD, target, how->replace, &draft, err);
	if (rc != 0)
		return rc;
	rc = naos_frame_write_draft(frame, &draft, target, how, &suppressed, &changed);
	if (rc != 0)
		return naos_error_set(err, rc, "%s", changed.message);
	rc = naos_draft_publish(&draft, err);
	if (rc != 0)
		return rc;
	*ret_written = true;
	return suppressed ? naos_error_set(err, NAOS_E_INTEGRITY, "%s", changed.message) : 0;
}

int naos_frame_cut_file(struct naos_frame *frame, const struct naos_cut_request *request, const char *target, struct naos_cut *ret,
			struct naos_error *err)
{
	naos_autodraft struct naos_draft draft = { .fd = -1 };
	if (access(target, F_OK) == 0)
		return naos_error_set(err, NAOS_E_EXISTS, "%s exists already", target);
	int rc = naos_draft_create(AT_FDCWD, target, false, &draft, err);
	if (rc == 0)
		rc = naos_frame_cut(frame, request, draft.fd, target, ret, err);
	return rc ? rc : naos_draft_publish(&draft, err);
}
