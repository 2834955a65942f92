/* Counting what was done.  SPDX-License-Identifier: Apache-2.0 */
#include "seal/tally.h"

#include <string.h>

static atomic_bool interrupted;

static const struct {
	const char *name, *text;
} notices[NAOS_NOTICES] = {
	[NAOS_NOTICE_SOCKET] = { "socket", "left out: a socket belongs to its program and can't be copied" },
	[NAOS_NOTICE_ATTRIBUTES] = { "attributes", "extended attributes or access lists were not kept: the target's file "
						   "system does not take them" },
	[NAOS_NOTICE_SETID] = { "setid", "set-user-id or set-group-id was dropped, because the owner could not be kept" },
	[NAOS_NOTICE_DEVICE] = { "device", "left out: making a device needs privilege" },
	[NAOS_NOTICE_LEFTOVER] = { "leftover", "a temporary file, being written or left over; 'naos verify --clean' removes "
					       "what is left over" },
	[NAOS_NOTICE_REMOVED] = { "removed", "removed: a temporary file left over by a run that was interrupted" },
	[NAOS_NOTICE_UNCLEAN] = { "unclean", "not sealed: its last writer did not close it; the next one recovers it" },
	[NAOS_NOTICE_RECOVERED] = { "recovered", "its last writer had not closed it; it was recovered" },
	[NAOS_NOTICE_OPEN] = { "open", "not sealed: it is open for writing" },
	[NAOS_NOTICE_REBUILT] = { "rebuilt", "the copies of its wrapped key were rebuilt from a good one" },
	[NAOS_NOTICE_LOST] = { "lost", "set aside into .naos-lost: without its first page nothing of it can be read" },
	[NAOS_NOTICE_NO_FITS] = { "no-fits", "left out: not a FITS file" },
	[NAOS_NOTICE_PLAIN] = { "plain", "left out: a FITS file that is not sealed" },
	[NAOS_NOTICE_SEALED] = { "sealed", "left out: it is sealed already" },
	[NAOS_NOTICE_NO_LEGACY] = { "no-legacy", "left out: not a file of GpuFitsCrypt" },
	[NAOS_NOTICE_BY_HAND] = { "by-hand", "left out: no MEK wraps its keys, they are given by hand" },
	[NAOS_NOTICE_OUTSIDE] = { "outside", "left out: what was asked for lies outside its image" },
	[NAOS_NOTICE_LINK] = { "link", "left out: a symbolic link" },
};

const char *naos_notice_text(enum naos_notice notice)
{
	return notices[notice].text;
}

const char *naos_notice_name(enum naos_notice notice)
{
	return notices[notice].name;
}

void naos_tally_start(struct naos_tally *tally, const struct naos_tally_listener *listener, struct naos_progress *progress)
{
	*tally = (struct naos_tally){ .listener = *listener, .progress = progress };
	(void)pthread_mutex_init(&tally->lock, NULL);
}

void naos_tally_end(struct naos_tally *tally)
{
	(void)pthread_mutex_destroy(&tally->lock);
}

void naos_tally_file(struct naos_tally *tally, uint64_t bytes)
{
	(void)pthread_mutex_lock(&tally->lock);
	tally->files++;
	tally->bytes += bytes;
	(void)pthread_mutex_unlock(&tally->lock);
	if (tally->progress)
		naos_progress_add(tally->progress, 0, 1);
}

static void count(struct naos_tally *tally, uint64_t *counter)
{
	(void)pthread_mutex_lock(&tally->lock);
	(*counter)++;
	(void)pthread_mutex_unlock(&tally->lock);
}

void naos_tally_other(struct naos_tally *tally)
{
	count(tally, &tally->others);
}

void naos_tally_current(struct naos_tally *tally)
{
	count(tally, &tally->current);
	if (tally->progress)
		naos_progress_add(tally->progress, 0, 1);
}

void naos_tally_notice(struct naos_tally *tally, const char *path, enum naos_notice notice)
{
	(void)pthread_mutex_lock(&tally->lock);
	tally->notices[notice]++;
	if (tally->listener.noticed)
		tally->listener.noticed(tally->listener.context, path, notice);
	(void)pthread_mutex_unlock(&tally->lock);
}

/* Failures that the next file would meet too. */
static bool concerns_all(int code)
{
	static const int codes[] = {
		NAOS_E_NOSPACE, NAOS_E_READONLY,   NAOS_E_NOMEM, NAOS_E_MEMLOCK,  NAOS_E_SELFTEST,
		NAOS_E_AUDIT,	NAOS_E_KEYMANAGER, NAOS_E_PIN,	 NAOS_E_KEY_USES, NAOS_E_INTERRUPTED,
	};
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(codes); i++)
		if (codes[i] == code)
			return true;
	return false;
}

/* Integrity counts more than the key manager, that more than a denial, that more than the rest. */
static int gravity(int code)
{
	static const int by_exit_status[] = { 0, 1, 2, 3, 5, 4 };
	int status = code ? naos_error_exit_status(code) : 0;
	return by_exit_status[status];
}

void naos_tally_failure(struct naos_tally *tally, const char *path, const struct naos_error *err)
{
	(void)pthread_mutex_lock(&tally->lock);
	/* what the others fail with after the first has stopped them says nothing new */
	bool echo = atomic_load(&tally->stopped) && (err->code == NAOS_E_INTERRUPTED || err->code == tally->stop.code);
	if (!echo) {
		tally->failed++;
		if (gravity(err->code) > gravity(tally->worst))
			tally->worst = err->code;
		if (concerns_all(err->code) && !atomic_load(&tally->stopped)) {
			tally->stop = *err;
			atomic_store(&tally->stopped, true);
		}
		if (tally->listener.failed && err->code != NAOS_E_INTERRUPTED)
			tally->listener.failed(tally->listener.context, path, err);
	}
	(void)pthread_mutex_unlock(&tally->lock);
}

void naos_tally_progress(struct naos_tally *tally, uint64_t bytes)
{
	if (tally->progress)
		naos_progress_add(tally->progress, bytes, 0);
}

void naos_tally_interrupt(void)
{
	atomic_store(&interrupted, true);
}

bool naos_tally_interrupted(void)
{
	return atomic_load(&interrupted);
}

bool naos_tally_stopped(const struct naos_tally *tally)
{
	return atomic_load(&tally->stopped) || atomic_load(&interrupted);
}

int naos_tally_go_on(const struct naos_tally *tally, struct naos_error *err)
{
	return naos_tally_stopped(tally) ? naos_error_set(err, NAOS_E_INTERRUPTED, "interrupted") : 0;
}

int naos_tally_result(const struct naos_tally *tally, struct naos_error *err)
{
	if (tally->failed == 0 && !atomic_load(&interrupted))
		return 0;
	if (atomic_load(&interrupted) && gravity(tally->worst) <= gravity(NAOS_E_INTERRUPTED))
		return naos_error_set(err, NAOS_E_INTERRUPTED, "interrupted after %llu files", (unsigned long long)tally->files);
	int code = gravity(tally->worst) == gravity(NAOS_E_PARTIAL) && tally->stop.code == 0 ? NAOS_E_PARTIAL : tally->worst;
	if (tally->stop.code != 0)
		return naos_error_set(err, code, "stopped after %llu files, because the rest would fail too",
				      (unsigned long long)tally->files);
	return naos_error_set(err, code, "%llu of %llu files failed, named above", (unsigned long long)tally->failed,
			      (unsigned long long)(tally->failed + tally->files + tally->current + tally->others));
}
