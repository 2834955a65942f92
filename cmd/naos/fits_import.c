/* naos fits import-legacy.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/log.h"
#include "fits.h"
#include "fits/legacy.h"

static const struct naos_option import_options[] = {
	NAOS_OPTION_COLLECTION,
	{ "header-key", 0, "SOURCE", "header key of the old file: 32 hexadecimal digits from file:PATH, fd:NUMBER or systemd:NAME" },
	{ "data-key", 0, "SOURCE", "data key of the old file in the same way" },
	NAOS_OPTION_KEYS,
	NAOS_OPTION_SEGMENT,
	NAOS_OPTION_FORMAT,
	NAOS_OPTION_FORCE,
	NAOS_OPTION_FITS_JOBS,
	{ .name = NULL },
};

/* The plaintext is in memory only, between the old file and the frame. */
static int import(struct naos_fits_session *session, const struct naos_invocation *invocation, bool *ret_scaled,
		  struct naos_error *err)
{
	const char *source = invocation->operands[0];
	struct naos_uuid frame_id;
	naos_autoclose int fd = open(source, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s", source);
	naos_autoclose int plain = memfd_create("naos-legacy", MFD_CLOEXEC);
	if (plain < 0 || fchmod(plain, 0644) != 0) /* the frame gets its mode */
		return naos_error_set_errno(err, errno, "no memory for the opened file");
	int rc = naos_legacy_open(fd, source, session->given[0], session->given[1], plain, ret_scaled, err);
	return rc ? rc : naos_fits_seal_to_target(session, invocation, plain, &frame_id, err);
}

static int run_import(struct naos_invocation *invocation, struct naos_error *err)
{
	const char *source = invocation->operands[0], *target = invocation->operands[1];
	naos_cleanup(naos_fits_end) struct naos_fits_session session = { .jobs = 1 };
	bool scaled = false;
	if (!naos_option_given(invocation, "header-key") || !naos_option_given(invocation, "data-key"))
		return naos_error_set(err, NAOS_E_USAGE, "give the two keys of the old file: --header-key and --data-key");
	int rc = naos_fits_begin(&session, invocation, "frame.import", naos_option_given(invocation, "collection"), err);
	if (rc != 0)
		return rc;
	rc = import(&session, invocation, &scaled, err);
	naos_admin_end(invocation, "frame.import", source, rc, err);
	if (rc != 0)
		return rc;
	naos_log(NAOS_LOG_WARNING, "%s: " NAOS_LEGACY_WARNING, source);
	if (scaled)
		naos_log(NAOS_LOG_WARNING, "%s: " NAOS_LEGACY_SCALED, source);
	if (invocation->json)
		return naos_print_json(json_pack("{s:s, s:o, s:o, s:b, s:b}", "action", "frame.import", "source", naos_json_text(source), "target",
						 naos_json_text(target), "authenticated", 0, "scaled",
						 scaled), err);
	printf("sealed %s\n", target);
	return 0;
}

const struct naos_command naos_command_fits_import_legacy = {
	.path = "fits import-legacy", .operands = "SOURCE TARGET",
	.summary = "Seal a file of GpuFitsCrypt anew as a frame, under a collection's or the same keys",
	.example = "naos fits import-legacy --header-key file:h --data-key file:d --collection survey old.fits new.fits",
	.min_operands = 2, .max_operands = 2, .options = import_options, .run = run_import,
};
