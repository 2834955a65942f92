/* What an operation on many files did, counted by all its threads, and whom to tell.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_TALLY_H
#define NAOS_SEAL_TALLY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/errors.h"
#include "base/progress.h"

/* What was lost on the way without being a failure. */
enum naos_notice {
	NAOS_NOTICE_SOCKET,     /* a socket was left out: it can't be made by a copy */
	NAOS_NOTICE_ATTRIBUTES, /* the target's file system keeps no extended attributes (or not these) */
	NAOS_NOTICE_SETID,      /* set-user-id or set-group-id was dropped, because owner or group could not be kept */
	NAOS_NOTICE_DEVICE,     /* a device was left out: making one needs privilege */
	NAOS_NOTICE_LEFTOVER,   /* a temporary file, perhaps of an interrupted run */
	NAOS_NOTICE_REMOVED,    /* the same, removed */
	NAOS_NOTICE_UNCLEAN,    /* its last writer did not close it */
	NAOS_NOTICE_RECOVERED,  /* the same, recovered */
	NAOS_NOTICE_OPEN,       /* a writer has it open just now, so it is not sealed */
	NAOS_NOTICE_REBUILT,    /* copies of the wrapped key were rebuilt from a good one */
	NAOS_NOTICE_LOST,       /* a file without a first page was set aside */
	NAOS_NOTICE_NO_FITS,    /* left out: no FITS file */
	NAOS_NOTICE_PLAIN,      /* left out: a FITS file that is not sealed */
	NAOS_NOTICE_SEALED,     /* left out: sealed already */
	NAOS_NOTICE_NO_LEGACY,  /* left out: no file of GpuFitsCrypt */
	NAOS_NOTICE_BY_HAND,    /* left out: its keys are given by hand, no MEK wraps them */
	NAOS_NOTICE_OUTSIDE,    /* left out: what was asked for lies outside the image */
	NAOS_NOTICE_LINK,       /* left out: a symbolic link */
	NAOS_NOTICES,
};
/* A sentence for a person, and a word for programs ("socket"). */
const char *naos_notice_text(enum naos_notice notice);
const char *naos_notice_name(enum naos_notice notice);

/* `path` is raw.  Called with the tally locked: one call at a time. */
struct naos_tally_listener {
	void (*failed)(void *context, const char *path, const struct naos_error *err);
	void (*noticed)(void *context, const char *path, enum naos_notice notice);
	void *context;
};

struct naos_tally {
	pthread_mutex_t lock;
	struct naos_tally_listener listener;
	struct naos_progress *progress; /* borrowed; may be NULL */
	uint64_t files, bytes;          /* done: regular files and their plaintext */
	uint64_t others;                /* done: links, directories, special files */
	uint64_t current;               /* found done already */
	uint64_t failed;
	uint64_t notices[NAOS_NOTICES];
	int worst;             /* code of the failure that decides the exit status */
	struct naos_error stop; /* set if the rest was not tried */
	atomic_bool stopped;
};

void naos_tally_start(struct naos_tally *tally, const struct naos_tally_listener *listener, struct naos_progress *progress);
void naos_tally_end(struct naos_tally *tally);

void naos_tally_file(struct naos_tally *tally, uint64_t bytes);
void naos_tally_other(struct naos_tally *tally);
void naos_tally_current(struct naos_tally *tally);
void naos_tally_notice(struct naos_tally *tally, const char *path, enum naos_notice notice);
/* A file failed; the others go on, unless the reason would stop them too (no space, no key manager): then everything stops. */
void naos_tally_failure(struct naos_tally *tally, const char *path, const struct naos_error *err);
/* Bytes on their way, for the progress bar. */
void naos_tally_progress(struct naos_tally *tally, uint64_t bytes);

/* True if the rest shall not be tried: a failure that concerns all files, or naos_tally_interrupt. */
bool naos_tally_stopped(const struct naos_tally *tally);
/* Makes every operation of this process stop soon and clean up.  May be called from a signal handler. */
void naos_tally_interrupt(void);
bool naos_tally_interrupted(void);
/* NAOS_E_INTERRUPTED if the operation shall stop, for the loops that copy. */
int naos_tally_go_on(const struct naos_tally *tally, struct naos_error *err) naos_must_check;

/* The result of the whole: 0, or the code of the worst failure with a sentence that counts them. */
int naos_tally_result(const struct naos_tally *tally, struct naos_error *err) naos_must_check;

#endif
