/* Answering errors: the errno of a code, and one line in the log for what a user can't see coming.  SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "fs.h"

#define LOG_SPAN_S 10
#define LOG_LINES 50u

int fs_errno(const struct naos_error *err)
{
	return err->errno_value ? err->errno_value : naos_error_to_errno(err->code);
}

/* A program that tries again and again must not fill the log; what was left out is counted. */
static bool may_log(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static time_t since;
	static unsigned lines, left_out;
	time_t now = time(NULL);
	(void)pthread_mutex_lock(&lock);
	if (now - since >= LOG_SPAN_S) {
		if (left_out)
			naos_log(NAOS_LOG_WARNING, "event=log-shortened lines=%u", left_out);
		since = now;
		lines = left_out = 0;
	}
	bool may = lines < LOG_LINES;
	if (may)
		lines++;
	else
		left_out++;
	(void)pthread_mutex_unlock(&lock);
	return may;
}

void fs_reply_error(fuse_req_t req, const struct naos_error *err)
{
	int value = fs_errno(err);
	if ((value == EIO || value == ENOKEY || value == EKEYREVOKED || value == EKEYEXPIRED || value == EACCES) && may_log())
		naos_log(NAOS_LOG_ERROR, "event=refused errno=%s uid=%u reason=\"%s\"", strerrorname_np(value),
			 (unsigned)fuse_req_ctx(req)->uid, err->message);
	(void)fuse_reply_err(req, value);
}
