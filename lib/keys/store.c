/* Metadata of MEKs in SQLite: write-ahead log, synchronous=FULL, one transaction per call.
 * SPDX-License-Identifier: Apache-2.0 */
#include "keys/store.h"

#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

#include "base/io.h"

#define APPLICATION_ID 0x4e414f4b /* "NAOK", for file(1) */
#define SCHEMA_VERSION 1
#define BUSY_MS 10000
#define LOCK_WAIT_MS 60000
#define LOCK_POLL_MS 5

struct naos_key_store {
	pthread_mutex_t lock;
	sqlite3 *db;
	char *path;
	int64_t data_version; /* of the last naos_key_store_changed */
};

static const char schema[] =
	"CREATE TABLE mek ("
	" id BLOB NOT NULL CHECK (length(id) = 16),"
	" version INTEGER NOT NULL CHECK (version >= 1),"
	" name TEXT NOT NULL,"
	" state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 5)," /* enum naos_mek_state */
	" phase INTEGER NOT NULL CHECK (phase BETWEEN 0 AND 2)," /* enum naos_key_store_phase */
	" created INTEGER NOT NULL,"
	" changed INTEGER NOT NULL,"
	" uses INTEGER NOT NULL DEFAULT 0 CHECK (uses >= 0),"
	" proof BLOB," /* known answer, as docs/formats/wrapped-key.md */
	" PRIMARY KEY (id, version),"
	" UNIQUE (name, version)"
	") STRICT;";

#define COLUMNS "id, version, name, state, phase, created, changed, uses, proof"

static void finalize(sqlite3_stmt **statement)
{
	(void)sqlite3_finalize(*statement);
}
#define autostatement naos_cleanup(finalize) sqlite3_stmt

static int failed(struct naos_key_store *store, const char *doing, struct naos_error *err)
{
	int code, extended = sqlite3_extended_errcode(store->db);
	switch (extended & 0xff) {
	case SQLITE_FULL: code = NAOS_E_NOSPACE; break;
	case SQLITE_READONLY: code = NAOS_E_READONLY; break;
	case SQLITE_PERM:
	case SQLITE_AUTH: code = NAOS_E_PERMISSION; break;
	case SQLITE_BUSY:
	case SQLITE_LOCKED: code = NAOS_E_BUSY; break;
	case SQLITE_NOMEM: code = NAOS_E_NOMEM; break;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB: code = NAOS_E_INTEGRITY; break;
	default: code = NAOS_E_SYSTEM;
	}
	return naos_error_set(err, code, "key store %s: cannot %s: %s", store->path, doing, sqlite3_errmsg(store->db));
}

static int execute(struct naos_key_store *store, const char *sql, const char *doing, struct naos_error *err)
{
	return sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : failed(store, doing, err);
}

static int prepare(struct naos_key_store *store, const char *sql, sqlite3_stmt **ret, struct naos_error *err)
{
	return sqlite3_prepare_v2(store->db, sql, -1, ret, NULL) == SQLITE_OK ? 0 : failed(store, "read it", err);
}

static int number(struct naos_key_store *store, const char *sql, int64_t *ret, struct naos_error *err)
{
	autostatement *statement = NULL;
	int rc = prepare(store, sql, &statement, err);
	if (rc != 0)
		return rc;
	if (sqlite3_step(statement) != SQLITE_ROW)
		return failed(store, "read it", err);
	*ret = sqlite3_column_int64(statement, 0);
	return 0;
}

static int begin(struct naos_key_store *store, struct naos_error *err)
{
	(void)pthread_mutex_lock(&store->lock);
	int rc = execute(store, "BEGIN IMMEDIATE", "begin a change", err);
	if (rc != 0)
		(void)pthread_mutex_unlock(&store->lock);
	return rc;
}

/* Commits if rc is 0, else takes everything back; returns the code of the whole. */
static int end(struct naos_key_store *store, int rc, struct naos_error *err)
{
	if (rc == 0)
		rc = execute(store, "COMMIT", "make a change durable", err);
	if (rc != 0)
		(void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
	(void)pthread_mutex_unlock(&store->lock);
	return rc;
}

static int make_schema(struct naos_key_store *store, struct naos_error *err)
{
	int64_t version = 0, application = 0;
	char sql[128];
	int rc = begin(store, err);
	if (rc != 0)
		return rc;
	rc = number(store, "PRAGMA user_version", &version, err);
	if (rc == 0)
		rc = number(store, "PRAGMA application_id", &application, err);
	if (rc == 0 && version == 0 && application == 0) {
		(void)snprintf(sql, sizeof(sql), "PRAGMA application_id = %d; PRAGMA user_version = %d", APPLICATION_ID,
				SCHEMA_VERSION);
		rc = execute(store, schema, "make its table", err);
		if (rc == 0)
			rc = execute(store, sql, "make its table", err);
	} else if (rc == 0 && application != APPLICATION_ID) {
		rc = naos_error_set(err, NAOS_E_FORMAT, "%s is a database of another program, not a key store", store->path);
	} else if (rc == 0 && version != SCHEMA_VERSION) {
		rc = naos_error_set(err, NAOS_E_FORMAT, "key store %s has version %lld, this program knows version %d",
				store->path,
				    (long long)version, SCHEMA_VERSION);
	}
	return end(store, rc, err);
}

static int open_database(struct naos_key_store *store, struct naos_error *err)
{
	/* made here for its mode; the files that SQLite puts beside it get the same one */
	int rc = naos_io_make_absent(store->path, 0600, err);
	if (rc != 0)
		return naos_error_prefix(err, rc, "key store (keymanager.store)");
	const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
	if (sqlite3_open_v2(store->path, &store->db, flags, NULL) != SQLITE_OK)
		return store->db ? failed(store, "open it", err) : naos_error_set(err, NAOS_E_NOMEM, "no memory for a database");
	(void)sqlite3_busy_timeout(store->db, BUSY_MS);
	rc = execute(store, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF", "open it", err);
	return rc ? rc : make_schema(store, err);
}

int naos_key_store_open(const char *path, struct naos_key_store **ret, struct naos_error *err)
{
	naos_autokeystore struct naos_key_store *store = calloc(1, sizeof(*store));
	if (!store)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the key store");
	(void)pthread_mutex_init(&store->lock, NULL);
	store->path = strdup(path);
	int rc = store->path ? open_database(store, err) : naos_error_set(err, NAOS_E_NOMEM, "no memory for the key store");
	if (rc == 0)
		*ret = naos_steal(store);
	return rc;
}

struct naos_key_store *naos_key_store_close(struct naos_key_store *store)
{
	if (!store)
		return NULL;
	(void)sqlite3_close(store->db);
	(void)pthread_mutex_destroy(&store->lock);
	free(store->path);
	free(store);
	return NULL;
}

const char *naos_key_store_path(const struct naos_key_store *store)
{
	return store->path;
}

static void read_row(sqlite3_stmt *statement, struct naos_key_store_row *ret)
{
	struct naos_mek *mek = &ret->mek;
	*ret = (struct naos_key_store_row){ .phase = (enum naos_key_store_phase)sqlite3_column_int(statement, 4) };
	if (sqlite3_column_bytes(statement, 0) == NAOS_UUID_BYTES)
		memcpy(mek->id.bytes, sqlite3_column_blob(statement, 0), NAOS_UUID_BYTES);
	mek->version = (uint32_t)sqlite3_column_int64(statement, 1);
	(void)snprintf(mek->name, sizeof(mek->name), "%s", (const char *)sqlite3_column_text(statement, 2));
	mek->state = (enum naos_mek_state)sqlite3_column_int(statement, 3);
	mek->created_unix_s = sqlite3_column_int64(statement, 5);
	mek->changed_unix_s = sqlite3_column_int64(statement, 6);
	mek->uses = (uint64_t)sqlite3_column_int64(statement, 7);
	struct naos_cursor proof = naos_cursor_reader(sqlite3_column_blob(statement, 8),
			(size_t)sqlite3_column_bytes(statement, 8));
	if (naos_cursor_left(&proof) > 0 && naos_blob_decode(&proof, &ret->proof, NULL) != 0)
		ret->proof.iv_bytes = 0;
}

static int read_rows(struct naos_key_store *store, struct naos_key_store_row **rows, size_t *count, struct naos_error *err)
{
	autostatement *statement = NULL;
	int step, rc = prepare(store, "SELECT " COLUMNS " FROM mek ORDER BY name, version", &statement, err);
	if (rc != 0)
		return rc;
	while ((step = sqlite3_step(statement)) == SQLITE_ROW) {
		if ((*count & (*count - 1)) == 0) { /* doubles */
			struct naos_key_store_row *grown = reallocarray(*rows, *count ? 2 * *count : 1, sizeof(**rows));
			if (!grown)
				return naos_error_set(err, NAOS_E_NOMEM, "no memory for the list of keys");
			*rows = grown;
		}
		read_row(statement, &(*rows)[(*count)++]);
	}
	return step == SQLITE_DONE ? 0 : failed(store, "read it", err);
}

int naos_key_store_list(struct naos_key_store *store, struct naos_key_store_row **ret, size_t *ret_count, struct naos_error *err)
{
	naos_autofree struct naos_key_store_row *rows = NULL;
	size_t count = 0;
	(void)pthread_mutex_lock(&store->lock);
	int rc = read_rows(store, &rows, &count, err);
	(void)pthread_mutex_unlock(&store->lock);
	if (rc != 0)
		return rc;
	*ret_count = count;
	*ret = naos_steal(rows);
	return 0;
}

bool naos_key_store_changed(struct naos_key_store *store)
{
	int64_t version = 0;
	(void)pthread_mutex_lock(&store->lock);
	/* a store that can't be read counts as changed: the reload that follows says why */
	bool changed = number(store, "PRAGMA data_version", &version, NULL) != 0 || version != store->data_version;
	store->data_version = version;
	(void)pthread_mutex_unlock(&store->lock);
	return changed;
}

/* The row of a version, or of the newest settled one if version is 0. */
static int find_row(struct naos_key_store *store, const char *name, uint32_t version, struct naos_key_store_row *ret,
		struct naos_error *err)
{
	autostatement *statement = NULL;
	int rc = prepare(store, "SELECT " COLUMNS " FROM mek WHERE name = ?1 AND phase <> 1 AND (?2 = 0 OR version = ?2) "
				"ORDER BY version DESC LIMIT 1", &statement, err);
	if (rc != 0)
		return rc;
	(void)sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(statement, 2, version);
	int step = sqlite3_step(statement);
	if (step == SQLITE_ROW) {
		read_row(statement, ret);
		return 0;
	}
	if (step != SQLITE_DONE)
		return failed(store, "read it", err);
	return version ? naos_error_set(err, NAOS_E_NOKEY, "the key '%s' has no version %u", name, version) :
			 naos_error_set(err, NAOS_E_NOKEY, "there is no key named '%s'", name);
}

/* One statement with id, version and up to two numbers as parameters 1 to 4. */
static int change_row(struct naos_key_store *store, const char *sql, const struct naos_mek *mek, int64_t third, int64_t fourth,
		      struct naos_error *err)
{
	autostatement *statement = NULL;
	int rc = prepare(store, sql, &statement, err);
	if (rc != 0)
		return rc;
	(void)sqlite3_bind_blob(statement, 1, mek->id.bytes, NAOS_UUID_BYTES, SQLITE_STATIC);
	(void)sqlite3_bind_int64(statement, 2, mek->version);
	if (sqlite3_bind_parameter_count(statement) >= 3)
		(void)sqlite3_bind_int64(statement, 3, third);
	if (sqlite3_bind_parameter_count(statement) >= 4)
		(void)sqlite3_bind_int64(statement, 4, fourth);
	return sqlite3_step(statement) == SQLITE_DONE ? 0 : failed(store, "write to it", err);
}

/* Id and number of the version to be made. */
static int next_version(struct naos_key_store *store, const char *name, bool rotating, struct naos_mek *mek,
		struct naos_error *err)
{
	struct naos_key_store_row newest;
	struct naos_error reason;
	int rc = find_row(store, name, 0, &newest, &reason);
	if (!rotating) {
		mek->version = 1;
		if (rc == NAOS_E_NOKEY)
			return naos_uuid_random(&mek->id, err);
		return rc ? naos_error_set(err, rc, "%s", reason.message) :
		       newest.mek.state == NAOS_MEK_DESTROYED ?
			    naos_error_set(err, NAOS_E_EXISTS,
					"the name '%s' belonged to a key that was destroyed; choose another name", name) :
			    naos_error_set(err, NAOS_E_EXISTS,
					"there is a key named '%s' already; 'naos key rotate' makes a new version of it", name);
	}
	if (rc != 0)
		return naos_error_set(err, rc, "%s", reason.message);
	if (newest.mek.state == NAOS_MEK_DESTROYED)
		return naos_error_set(err, NAOS_E_KEY_STATE,
				"the newest version %u of the key '%s' was destroyed; create a key of another name",
				      newest.mek.version, name);
	if (newest.mek.version == UINT32_MAX)
		return naos_error_set(err, NAOS_E_LIMIT, "the key '%s' has no version numbers left", name);
	mek->id = newest.mek.id;
	mek->version = newest.mek.version + 1;
	return 0;
}

static int insert_row(struct naos_key_store *store, const struct naos_mek *mek, struct naos_error *err)
{
	autostatement *statement = NULL;
	int rc = prepare(store,
			"INSERT INTO mek (id, version, name, state, phase, created, changed) VALUES (?1, ?2, ?3, ?4, 1, ?5, ?5)",
			 &statement, err);
	if (rc != 0)
		return rc;
	(void)sqlite3_bind_blob(statement, 1, mek->id.bytes, NAOS_UUID_BYTES, SQLITE_STATIC);
	(void)sqlite3_bind_int64(statement, 2, mek->version);
	(void)sqlite3_bind_text(statement, 3, mek->name, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int(statement, 4, (int)mek->state);
	(void)sqlite3_bind_int64(statement, 5, mek->created_unix_s);
	return sqlite3_step(statement) == SQLITE_DONE ? 0 : failed(store, "write to it", err);
}

int naos_key_store_begin_create(struct naos_key_store *store, const char *name, bool rotating, struct naos_mek *ret,
		struct naos_error *err)
{
	struct naos_mek mek = { .state = NAOS_MEK_PRE_ACTIVE, .created_unix_s = time(NULL) };
	mek.changed_unix_s = mek.created_unix_s;
	(void)snprintf(mek.name, sizeof(mek.name), "%s", name);
	int rc = begin(store, err);
	if (rc != 0)
		return rc;
	rc = next_version(store, name, rotating, &mek, err);
	if (rc == 0)
		rc = insert_row(store, &mek, err);
	rc = end(store, rc, err);
	if (rc == 0)
		*ret = mek;
	return rc;
}

static int activate_row(struct naos_key_store *store, const struct naos_mek *mek, const struct naos_blob *proof,
		uint64_t uses, int64_t now,
			struct naos_error *err)
{
	uint8_t encoded[NAOS_BLOB_MAX_BYTES];
	struct naos_cursor out = naos_cursor_writer(encoded, sizeof(encoded));
	autostatement *statement = NULL;
	naos_blob_encode(proof, &out);
	if (!naos_cursor_ok(&out))
		return naos_error_set(err, NAOS_E_FORMAT, "the known answer of key '%s' can't be written", mek->name);
	int rc = prepare(store,
			"UPDATE mek SET state = 2, phase = 0, changed = ?3, uses = ?4, proof = ?5 WHERE id = ?1 AND version = ?2",
			 &statement, err);
	if (rc != 0)
		return rc;
	(void)sqlite3_bind_blob(statement, 1, mek->id.bytes, NAOS_UUID_BYTES, SQLITE_STATIC);
	(void)sqlite3_bind_int64(statement, 2, mek->version);
	(void)sqlite3_bind_int64(statement, 3, now);
	(void)sqlite3_bind_int64(statement, 4, (int64_t)uses);
	(void)sqlite3_bind_blob(statement, 5, encoded, (int)out.position, SQLITE_STATIC);
	return sqlite3_step(statement) == SQLITE_DONE ? 0 : failed(store, "write to it", err);
}

int naos_key_store_finish_create(struct naos_key_store *store, struct naos_mek *mek, const struct naos_blob *proof, uint64_t uses,
			     struct naos_error *err)
{
	int64_t now = time(NULL);
	int rc = begin(store, err);
	if (rc != 0)
		return rc;
	rc = change_row(store, "UPDATE mek SET state = ?3, changed = ?4 WHERE id = ?1 AND version < ?2 AND state = 2", mek,
			NAOS_MEK_DEACTIVATED, now, err);
	if (rc == 0)
		rc = activate_row(store, mek, proof, uses, now, err);
	rc = end(store, rc, err);
	if (rc == 0) {
		mek->state = NAOS_MEK_ACTIVE;
		mek->changed_unix_s = now;
		mek->uses = uses;
	}
	return rc;
}

int naos_key_store_abandon_create(struct naos_key_store *store, const struct naos_mek *mek, struct naos_error *err)
{
	int rc = begin(store, err);
	if (rc != 0)
		return rc;
	rc = change_row(store, "DELETE FROM mek WHERE id = ?1 AND version = ?2 AND phase = 1", mek, 0, 0, err);
	return end(store, rc, err);
}

/* Which changes a person may ask for.  Rotation does 2 to 3 by itself. */
static bool may_become(enum naos_mek_state from, enum naos_mek_state to)
{
	switch (to) {
	case NAOS_MEK_ACTIVE: return from == NAOS_MEK_PRE_ACTIVE || from == NAOS_MEK_REVOKED;
	case NAOS_MEK_DEACTIVATED: return from == NAOS_MEK_ACTIVE;
	case NAOS_MEK_REVOKED: return from != NAOS_MEK_DESTROYED;
	case NAOS_MEK_DESTROYED: return from == NAOS_MEK_DEACTIVATED || from == NAOS_MEK_REVOKED;
	default: return false;
	}
}

static int refuse_state(const struct naos_mek *mek, enum naos_mek_state to, struct naos_error *err)
{
	const char *advice = mek->state == NAOS_MEK_DESTROYED ? "that can't be undone" :
			     to == NAOS_MEK_DESTROYED	      ? "revoke it, or rotate the key, before it is destroyed" :
								"only a version that was revoked or never used can be activated; rotate the key";
	return naos_error_set(err, NAOS_E_KEY_STATE, "version %u of the key '%s' is %s: %s", mek->version, mek->name,
			      naos_mek_state_name(mek->state), advice);
}

int naos_key_store_set_state(struct naos_key_store *store, const char *name, uint32_t version, enum naos_mek_state to,
		struct naos_mek *ret,
			 struct naos_error *err)
{
	struct naos_key_store_row row;
	int64_t now = time(NULL);
	int rc = begin(store, err);
	if (rc != 0)
		return rc;
	rc = find_row(store, name, version, &row, err);
	/* asking again for what is so, and for a destruction that did not end, is fine */
	bool same = rc == 0 && row.mek.state == to && (to != NAOS_MEK_DESTROYED || row.phase == NAOS_KEY_STORE_DESTROYING);
	if (rc == 0 && !same && !may_become(row.mek.state, to))
		rc = refuse_state(&row.mek, to, err);
	if (rc == 0 && !same)
		rc = change_row(store, to == NAOS_MEK_DESTROYED ?
				       "UPDATE mek SET state = ?3, changed = ?4, phase = 2 WHERE id = ?1 AND version = ?2" :
				       "UPDATE mek SET state = ?3, changed = ?4 WHERE id = ?1 AND version = ?2",
				&row.mek, to, now, err);
	rc = end(store, rc, err);
	if (rc == 0) {
		if (!same)
			row.mek.changed_unix_s = now;
		row.mek.state = to;
		*ret = row.mek;
	}
	return rc;
}

int naos_key_store_settle(struct naos_key_store *store, const struct naos_mek *mek, struct naos_error *err)
{
	int rc = begin(store, err);
	if (rc != 0)
		return rc;
	rc = change_row(store, "UPDATE mek SET phase = 0 WHERE id = ?1 AND version = ?2 AND phase = 2", mek, 0, 0, err);
	return end(store, rc, err);
}

int naos_key_store_reserve_uses(struct naos_key_store *store, const struct naos_mek *mek, uint64_t wanted, uint64_t *ret_granted,
			    struct naos_error *err)
{
	struct naos_key_store_row row;
	uint64_t granted = 0;
	int rc = begin(store, err);
	if (rc != 0)
		return rc;
	rc = find_row(store, mek->name, mek->version, &row, err);
	if (rc == 0 && row.mek.state != NAOS_MEK_ACTIVE)
		rc = naos_error_set(err, NAOS_E_KEY_STATE, "version %u of the key '%s' is %s", mek->version, mek->name,
				    naos_mek_state_name(row.mek.state));
	if (rc == 0 && row.mek.uses >= NAOS_MEK_MAX_USES)
		rc = naos_error_set(err, NAOS_E_KEY_USES,
				"version %u of the key '%s' has wrapped %llu keys, the most that is safe", mek->version,
				    mek->name, (unsigned long long)row.mek.uses);
	if (rc == 0) {
		uint64_t left = NAOS_MEK_MAX_USES - row.mek.uses;
		granted = wanted < left ? wanted : left;
		rc = change_row(store, "UPDATE mek SET uses = uses + ?3 WHERE id = ?1 AND version = ?2", mek,
				(int64_t)granted, 0, err);
	}
	rc = end(store, rc, err);
	if (rc == 0)
		*ret_granted = granted;
	return rc;
}

int naos_key_store_return_uses(struct naos_key_store *store, const struct naos_mek *mek, uint64_t unused, struct naos_error *err)
{
	int rc = begin(store, err);
	if (rc != 0)
		return rc;
	rc = change_row(store, "UPDATE mek SET uses = uses - ?3 WHERE id = ?1 AND version = ?2", mek, (int64_t)unused, 0, err);
	return end(store, rc, err);
}

int naos_key_store_lock(struct naos_key_store *store, bool exclusive, bool wait, int *ret_fd, struct naos_error *err)
{
	naos_autofree char *path = NULL;
	if (asprintf(&path, "%s.lock", store->path) < 0) {
		path = NULL;
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a file name");
	}
	naos_autoclose int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s", path);
	for (int waited = 0; flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0; waited += LOCK_POLL_MS) {
		const struct timespec pause = { 0, LOCK_POLL_MS * 1000000L };
		if (errno != EWOULDBLOCK && errno != EINTR)
			return naos_error_set_errno(err, errno, "cannot lock %s", path);
		if (!wait || waited >= LOCK_WAIT_MS)
			return naos_error_set(err, NAOS_E_BUSY, "another process is changing keys (it holds %s)", path);
		(void)nanosleep(&pause, NULL);
	}
	*ret_fd = naos_fd_steal(&fd);
	return 0;
}
