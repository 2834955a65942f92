/* The file sets of a configuration with the keys behind them: one key manager, one key ring, and a pool of freshly wrapped
 * FEKs per file set, made in batches, so that a tree of small files costs few round trips.
 *
 * A file set is a [fileset NAME] section: mek (default: NAME), algorithm, id.  Without an id it is the id of the MEK, which is
 * the same on every machine that uses the same key manager.  A NAME without a section works too: all defaults.
 *
 * A daemon tends them from a thread of its own: while (!stop) { naos_filesets_await(sets, 5); naos_filesets_tend(sets); }
 * Thread-safe once opened.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_FILESET_H
#define NAOS_SEAL_FILESET_H

#include "base/config.h"
#include "keys/ring.h"
#include "seal/sealed_file.h"

#define NAOS_FILESET_NAME_BYTES 128
#define NAOS_FILESET_BATCH 128 /* FEKs wrapped or unwrapped in one call at most */
#define NAOS_FILESET_POOL 1024 /* FEKs kept ready for new files of a set at most */
#define NAOS_FILESET_REFRESH_S 60 /* how often a daemon asks for the active version of a MEK */

struct naos_fileset {
	char name[NAOS_FILESET_NAME_BYTES];
	char mek[NAOS_MEK_NAME_BYTES];
	struct naos_uuid id;
	enum naos_algorithm algorithm;
};

struct naos_filesets;

/* Selects the engine, connects to the key manager (uri NULL: the configuration's) and reads the sections.  `config` is
 * borrowed for the call.  `name` (may be NULL) is the file set that will be asked for: only its own trouble is an error; with an
 * id in the configuration it opens while the key manager is away, and keys are asked for when they are needed. */
int naos_filesets_open(const struct naos_config *config, const char *name, const char *uri, struct naos_filesets **ret,
		       struct naos_error *err) naos_must_check;
struct naos_filesets *naos_filesets_close(struct naos_filesets *sets);

/* By name; NULL: the only one of the configuration.  The result lives as long as sets. */
int naos_filesets_find(struct naos_filesets *sets, const char *name, const struct naos_fileset **ret,
		       struct naos_error *err) naos_must_check;
/* By the id that a sealed file carries; NULL if it is none of the configuration's. */
const struct naos_fileset *naos_filesets_by_id(struct naos_filesets *sets, const struct naos_uuid *id);
/* The same, and where the configuration has none, the set that a MEK of this id makes by itself.  NAOS_E_NOTFOUND. */
int naos_filesets_of_file(struct naos_filesets *sets, const struct naos_uuid *id, const struct naos_fileset **ret,
			  struct naos_error *err) naos_must_check;
struct naos_provider *naos_filesets_provider(struct naos_filesets *sets);
/* The version of the set's MEK that wraps now; asked for once and then kept, until naos_filesets_tend learns of another. */
int naos_filesets_active(struct naos_filesets *sets, const struct naos_fileset *set, struct naos_mek *ret,
			 struct naos_error *err) naos_must_check;

/* What a new file needs. */
struct naos_new_key {
	struct naos_uuid file_id;
	struct naos_secret *fek; /* the receiver frees it */
	struct naos_blob blob;
};
int naos_filesets_new_key(struct naos_filesets *sets, const struct naos_fileset *set, struct naos_new_key *ret,
			  struct naos_error *err) naos_must_check;

/* --- for daemons ------------------------------------------------------------------------------------------------------ */

/* New files will be made in this set: from now on naos_filesets_tend keeps wrapped FEKs ready, so that making a file does not
 * wait for the key manager, nor needs it while it is away for a short time. */
void naos_filesets_prepare(struct naos_filesets *sets, const struct naos_fileset *set);
/* What must be done every few seconds, by one thread.  It wipes keys of files that were closed long enough ago, makes FEKs for new
 * files where less than half are ready, and asks once in NAOS_FILESET_REFRESH_S for the active version: FEKs that a rotated or
 * revoked version wrapped are dropped, and keys of files that only a revoked or destroyed version opens are wiped.  It may wait for
 * the key manager, but keeps nobody else waiting meanwhile. */
void naos_filesets_tend(struct naos_filesets *sets);
/* Asks for the active versions at once (a daemon's SIGHUP). */
void naos_filesets_refresh(struct naos_filesets *sets);
/* Waits until FEKs run short, naos_filesets_wake is called, or so many seconds have passed. */
void naos_filesets_await(struct naos_filesets *sets, unsigned seconds);
void naos_filesets_wake(struct naos_filesets *sets);
/* How the key manager did when it was last asked by naos_filesets_tend: 0, or the code, with its sentence. */
int naos_filesets_condition(struct naos_filesets *sets, struct naos_error *err) naos_must_check;
/* Whether the FEK of a file is at hand, so that opening it needs no key manager. */
bool naos_filesets_knows(struct naos_filesets *sets, const struct naos_sealed_info *info);

/* How to open one file: `info` is what naos_sealed_probe said.  With `only`, files of other sets are refused; without, the
 * file's own set decides about the algorithm.  The source is valid as long as sets. */
struct naos_fek_source naos_filesets_source(struct naos_filesets *sets, const struct naos_fileset *only,
					    const struct naos_sealed_info *info);
/* Unwraps the newest copies of the FEKs of several files in one round trip, so that opening them costs none. */
void naos_filesets_prefetch(struct naos_filesets *sets, const struct naos_sealed_info *infos, size_t count);

static inline void naos_filesets_close_pointer(struct naos_filesets **sets)
{
	*sets = naos_filesets_close(*sets);
}
#define naos_autofilesets naos_cleanup(naos_filesets_close_pointer)

#endif
