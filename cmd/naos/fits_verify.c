/* naos fits verify.  SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "fits.h"

struct verification {
	struct naos_fits fits;
	pthread_mutex_t lock; /* one line at a time */
};

static const struct naos_option options[] = {
	NAOS_OPTION_HEADER_KEY, NAOS_OPTION_DATA_KEY, NAOS_OPTION_KEYS, NAOS_OPTION_JOBS, NAOS_OPTION_SHARD, { .name = NULL },
};

static void print(struct verification *verification, const char *path, const char *left_out)
{
	struct naos_fits *fits = &verification->fits;
	(void)pthread_mutex_lock(&verification->lock);
	if (fits->work.invocation->json)
		naos_fits_print(fits, json_pack("{s:s, s:o, s:s*}", "action", "frame.verify", "path", naos_json_text(path), "left_out",
						left_out));
	else if (!left_out && fits->work.single)
		printf("%s: every segment is as it was sealed\n", path);
	(void)pthread_mutex_unlock(&verification->lock);
}

static int verify_one(struct verification *verification, struct naos_frame_walk *walk, struct naos_frame_file *file,
		      const struct naos_frame_fetched *fetched, uint64_t *ret_bytes, struct naos_error *err)
{
	struct naos_fits *fits = &verification->fits;
	struct naos_frame_opener opener = { .provider = fits->provider, .given = { fits->given[0], fits->given[1] }, .fetched = fetched };
	const struct naos_frame_source source = naos_frame_opener_source(&opener);
	naos_autoframe struct naos_frame *frame = NULL;
	int fd = file->fd;
	file->fd = -1;
	int rc = naos_frame_open_fd(fd, file->shown, &source, &frame, err);
	if (rc != 0)
		return rc;
	(void)naos_frame_tree_begin(walk);
	rc = naos_frame_verify(frame, err);
	naos_frame_tree_end(walk);
	if (rc == 0 && naos_frame_level(frame) != NAOS_FRAME_FULL)
		rc = naos_error_set(err, naos_frame_worst(frame), "%s: not all of it could be checked: it is open %s", file->shown,
				    naos_frame_level_name(naos_frame_level(frame)));
	*ret_bytes = naos_frame_result_bytes(frame);
	return rc;
}

/* In a tree of frames what should be one and is none is a failure: a frame may have been replaced. */
static bool is_left_out(const struct naos_frame_walk *walk, const struct naos_frame_file *file)
{
	return !naos_frame_tree_single(walk) && file->kind == NAOS_FITS_OTHER && !naos_fits_named(file->item->name);
}

static void verify_files(void *context, struct naos_frame_walk *walk, unsigned worker, struct naos_frame_file *files, size_t count)
{
	struct verification *verification = context;
	struct naos_fits *fits = &verification->fits;
	struct naos_tally *tally = &fits->work.tally;
	const struct naos_frame_opener opener = { .provider = fits->provider, .given = { fits->given[0], fits->given[1] } };
	naos_autofree struct naos_frame_fetched *fetched = count > 1 ? calloc(count, sizeof(*fetched)) : NULL;
	int fds[NAOS_WALK_BATCH] = { -1 };
	for (size_t i = 0; i < count; i++)
		fds[i] = files[i].kind == NAOS_FITS_FRAME ? files[i].fd : -1;
	if (fetched)
		naos_frame_fetch(&opener, fds, fetched, count);
	for (size_t i = 0; i < count && !naos_tally_stopped(tally); i++) {
		struct naos_error err;
		uint64_t bytes = 0;
		if (is_left_out(walk, &files[i])) {
			naos_tally_notice(tally, files[i].item->path, NAOS_NOTICE_NO_FITS);
			print(verification, files[i].shown, naos_notice_name(NAOS_NOTICE_NO_FITS));
		} else if (verify_one(verification, walk, &files[i], fetched ? &fetched[i] : NULL, &bytes, &err) != 0) {
			naos_tally_failure(tally, files[i].item->path, &err);
		} else {
			naos_tally_file(tally, bytes);
			naos_tally_progress(tally, bytes);
			print(verification, files[i].shown, NULL);
		}
	}
	if (fetched)
		naos_frame_fetched_free(fetched, count);
}

static int run(struct naos_invocation *invocation, struct naos_error *err)
{
	const struct naos_work_plan plan = {
		.action = "frame.verify", .label = "verifying", .operands = invocation->operands, .operand_count = invocation->operand_count,
	};
	struct verification verification;
	struct naos_fits *fits = &verification.fits;
	int rc = naos_fits_start(fits, invocation, &plan, naos_fits_has_manager(invocation), err);
	if (rc != 0)
		return rc;
	(void)pthread_mutex_init(&verification.lock, NULL);
	const struct naos_frame_tree tree = {
		.context = &verification, .jobs = fits->work.jobs, .shard_index = fits->work.shard_index,
		.shard_count = fits->work.shard_count, .files = verify_files,
	};
	for (size_t i = 0; rc == 0 && i < invocation->operand_count && !naos_tally_stopped(&fits->work.tally); i++)
		rc = naos_frame_tree_visit(&tree, invocation->operands[i], &fits->work.tally, err);
	(void)pthread_mutex_destroy(&verification.lock);
	if (rc == 0)
		rc = naos_fits_summary(fits, "verified", err);
	return naos_fits_end(fits, rc, err);
}

const struct naos_command naos_command_fits_verify = {
	.path = "fits verify",
	.operands = "PATH...",
	.summary = "Check every bit of frames",
	.example = "naos fits verify sealed/images",
	.min_operands = 1,
	.max_operands = 1000,
	.options = options,
	.run = run,
};
