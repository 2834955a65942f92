/* Which back end this process uses.  SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "engine/backend.h"

/* The one table: fastest first, so "auto" takes the first row that this machine can run.  A later back end adds its rows
 * here and nothing elsewhere. */
static const struct naos_engine_backend *const table[] = {
#ifdef NAOS_HAVE_IPSEC_MB
	&naos_engine_ipsec_mb[0], &naos_engine_ipsec_mb[1], &naos_engine_ipsec_mb[2], &naos_engine_ipsec_mb[3],
#endif
	&naos_engine_openssl[0], &naos_engine_openssl[1],
	&naos_engine_cuda, /* by name, or for work that the cost model gives it */
};

static struct {
	pthread_mutex_t lock;
	bool proven[NAOS_ARRAY_LENGTH(table)]; /* started, known answers right */
	_Atomic(const struct naos_engine_backend *) chosen;
	atomic_bool automatic; /* it was not asked for by name */
} engine = { .lock = PTHREAD_MUTEX_INITIALIZER };

const struct naos_engine_backend *naos_engine_row(unsigned index)
{
	return index < NAOS_ARRAY_LENGTH(table) ? table[index] : NULL;
}

static int prove(size_t index, struct naos_error *err)
{
	if (engine.proven[index])
		return 0;
	int rc = table[index]->start(table[index], err);
	if (rc == 0)
		rc = naos_engine_selftest(table[index], err);
	engine.proven[index] = rc == 0;
	return rc;
}

/* The first row that fits and runs here.  A failed known answer ends the search: a CPU or library that computes wrongly
 * is not worked around in silence. */
static int choose(const char *name, bool fips, const struct naos_engine_backend **ret, struct naos_error *err)
{
	bool any = strcmp(name, "auto") == 0, known = any;
	struct naos_error reason = NAOS_ERROR_INIT;
	int rc = NAOS_E_UNSUPPORTED;
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(table); i++) {
		if (!any && strcmp(name, table[i]->family) != 0 && strcmp(name, table[i]->name) != 0)
			continue;
		known = true;
		if (table[i]->fips != fips)
			continue;
		rc = prove(i, &reason);
		if (rc == 0)
			*ret = table[i];
		if (rc != NAOS_E_UNSUPPORTED)
			break;
	}
	if (rc == 0)
		return 0;
	if (!known)
		return naos_error_set(err, rc, "there is no AES-GCM back end \"%s\" in this build", name);
	if (!reason.code)
		return naos_error_set(err, rc, "%s %s: choose \"openssl\"", name, fips ? "has no FIPS module" : "needs fips = yes");
	return naos_error_set(err, rc, "%s", reason.message);
}

int naos_engine_cpu(const struct naos_engine_backend **ret, struct naos_error *err)
{
	int rc = NAOS_E_UNSUPPORTED;
	struct naos_error reason = NAOS_ERROR_INIT;
	for (size_t i = 0; rc == NAOS_E_UNSUPPORTED && i < NAOS_ARRAY_LENGTH(table); i++) {
		if (table[i]->fips || table[i] == &naos_engine_cuda)
			continue;
		rc = table[i]->start(table[i], &reason);
		if (rc == 0)
			*ret = table[i];
	}
	return rc == 0 ? 0 : naos_error_set(err, rc, "%s", reason.message);
}

int naos_engine_select(const char *backend, bool fips, struct naos_error *err)
{
	const struct naos_engine_backend *found = NULL;
	(void)pthread_mutex_lock(&engine.lock);
	int rc = choose(backend, fips, &found, err);
	if (rc == 0) {
		atomic_store(&engine.automatic, strcmp(backend, "auto") == 0 && !fips);
		atomic_store(&engine.chosen, found);
	}
	(void)pthread_mutex_unlock(&engine.lock);
	return rc;
}

int naos_engine_current(const struct naos_engine_backend **ret, struct naos_error *err)
{
	const struct naos_engine_backend *backend = atomic_load(&engine.chosen);
	if (!backend) {
		int rc = naos_engine_select("auto", false, err);
		if (rc != 0)
			return rc;
		backend = atomic_load(&engine.chosen);
	}
	*ret = backend;
	return 0;
}

bool naos_engine_automatic(void)
{
	return atomic_load(&engine.automatic);
}

const char *naos_engine_name(void)
{
	const struct naos_engine_backend *backend = atomic_load(&engine.chosen);
	return backend ? backend->name : "none";
}
