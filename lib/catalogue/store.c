/* SPDX-License-Identifier: Apache-2.0 */
#include "catalogue/store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/file.h>

#include "base/io.h"

#define APPLICATION_ID 0x4e414f43 /* "NAOC", for file(1) */
#define SCHEMA_VERSION 1
#define BUSY_MS 10000 /* a reader waits for the end of a batch, a scan for a reader */

struct naos_catalogue_store {
	char *path;
	int lock_fd;
	sqlite3 *db;
	struct naos_uuid id;
};

static const char schema[] =
	"CREATE TABLE catalogue (id BLOB NOT NULL CHECK (length(id) = 16)) STRICT;"
	"CREATE TABLE collection (id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16), key BLOB NOT NULL) STRICT;"
	"CREATE TABLE frame ("
	" path BLOB NOT NULL PRIMARY KEY,"
	" collection BLOB NOT NULL CHECK (length(collection) = 16),"
	" frame BLOB NOT NULL CHECK (length(frame) = 16),"
	" bytes INTEGER NOT NULL, inode INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL,"
	" code INTEGER NOT NULL, reason TEXT NOT NULL,"
	" sealed BLOB, CHECK ((code = 0) = (sealed IS NOT NULL))" /* never half of it */
	") STRICT;";

static int failed(struct naos_catalogue_store *store, const char *doing, struct naos_error *err)
{
	int code;
	switch (sqlite3_extended_errcode(store->db) & 0xff) {
	case SQLITE_FULL: code = NAOS_E_NOSPACE; break;
	case SQLITE_READONLY: code = NAOS_E_READONLY; break;
	case SQLITE_NOMEM: code = NAOS_E_NOMEM; break;
	case SQLITE_BUSY:
	case SQLITE_LOCKED: code = NAOS_E_BUSY; break;
	case SQLITE_CORRUPT: code = NAOS_E_INTEGRITY; break;
	case SQLITE_NOTADB: code = NAOS_E_FORMAT; break;
	default: code = NAOS_E_SYSTEM;
	}
	return naos_error_set(err, code, "catalogue %s: cannot %s: %s", store->path, doing, sqlite3_errmsg(store->db));
}

static int execute(struct naos_catalogue_store *store, const char *text, const char *doing, struct naos_error *err)
{
	return sqlite3_exec(store->db, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : failed(store, doing, err);
}

static int prepare(struct naos_catalogue_store *store, const char *text, sqlite3_stmt **ret, struct naos_error *err)
{
	return sqlite3_prepare_v2(store->db, text, -1, ret, NULL) == SQLITE_OK ? 0 : failed(store, "read it", err);
}

static void finalize(sqlite3_stmt **statement)
{
	(void)sqlite3_finalize(*statement);
}
#define autostatement naos_cleanup(finalize)

static void bind_id(sqlite3_stmt *statement, int at, const struct naos_uuid *id)
{
	(void)sqlite3_bind_blob(statement, at, id->bytes, NAOS_UUID_BYTES, SQLITE_STATIC);
}

static void bind_path(sqlite3_stmt *statement, int at, const char *path)
{
	(void)sqlite3_bind_blob64(statement, at, path, strlen(path), SQLITE_STATIC);
}

static int finish(struct naos_catalogue_store *store, sqlite3_stmt *statement, struct naos_error *err)
{
	return sqlite3_step(statement) == SQLITE_DONE ? 0 : failed(store, "write to it", err);
}

/* --- opening -------------------------------------------------------------------------------------------------------------- */

static int number(struct naos_catalogue_store *store, const char *text, int64_t *ret, struct naos_error *err)
{
	autostatement sqlite3_stmt *statement = NULL;
	int rc = prepare(store, text, &statement, err);
	if (rc == 0 && sqlite3_step(statement) != SQLITE_ROW)
		rc = failed(store, "read it", err);
	else if (rc == 0)
		*ret = sqlite3_column_int64(statement, 0);
	return rc;
}

/* In one transaction, so that a kill leaves an empty file or a whole catalogue. */
static int make_schema(struct naos_catalogue_store *store, struct naos_error *err)
{
	autostatement sqlite3_stmt *statement = NULL;
	struct naos_uuid id;
	char text[128];
	(void)snprintf(text, sizeof(text), "PRAGMA application_id = %d; PRAGMA user_version = %d", APPLICATION_ID, SCHEMA_VERSION);
	int rc = naos_uuid_random(&id, err);
	if (rc == 0)
		rc = naos_catalogue_store_begin(store, err);
	if (rc == 0)
		rc = execute(store, schema, "make its tables", err);
	if (rc == 0)
		rc = prepare(store, "INSERT INTO catalogue (id) VALUES (?1)", &statement, err);
	if (rc == 0) {
		bind_id(statement, 1, &id);
		rc = finish(store, statement, err);
	}
	if (rc == 0)
		rc = execute(store, text, "make its tables", err);
	if (rc == 0)
		rc = naos_catalogue_store_commit(store, err);
	return rc;
}

static int check_schema(struct naos_catalogue_store *store, bool writing, struct naos_error *err)
{
	autostatement sqlite3_stmt *statement = NULL;
	int64_t version = 0, application = 0;
	int rc = number(store, "PRAGMA user_version", &version, err);
	if (rc == 0)
		rc = number(store, "PRAGMA application_id", &application, err);
	if (rc == 0 && version == 0 && application == 0) {
		if (!writing)
			return naos_error_set(err, NAOS_E_NOTFOUND, "the catalogue %s is empty: no scan has been completed", store->path);
		rc = make_schema(store, err);
	} else if (rc == 0 && application != APPLICATION_ID) {
		return naos_error_set(err, NAOS_E_FORMAT, "%s is a database of another program, no catalogue", store->path);
	} else if (rc == 0 && version != SCHEMA_VERSION) {
		return naos_error_set(err, NAOS_E_FORMAT, "catalogue %s has version %lld, this program knows version %d", store->path,
				      (long long)version, SCHEMA_VERSION);
	}
	if (rc == 0)
		rc = prepare(store, "SELECT id FROM catalogue", &statement, err);
	if (rc == 0 && (sqlite3_step(statement) != SQLITE_ROW || sqlite3_column_bytes(statement, 0) != NAOS_UUID_BYTES))
		return naos_error_set(err, NAOS_E_INTEGRITY, "catalogue %s has no identifier", store->path);
	if (rc == 0)
		memcpy(store->id.bytes, sqlite3_column_blob(statement, 0), NAOS_UUID_BYTES);
	return rc;
}

static int take_lock(struct naos_catalogue_store *store, struct naos_error *err)
{
	naos_autofree char *path = NULL;
	if (asprintf(&path, "%s.lock", store->path) < 0) {
		path = NULL;
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a file name");
	}
	store->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (store->lock_fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s", path);
	if (flock(store->lock_fd, LOCK_EX | LOCK_NB) != 0)
		return naos_error_set(err, NAOS_E_BUSY, "another scan writes to the catalogue %s", store->path);
	return 0;
}

static int open_database(struct naos_catalogue_store *store, bool writing, struct naos_error *err)
{
	int rc = writing ? take_lock(store, err) : 0;
	if (rc == 0 && writing)
		rc = naos_io_make_absent(store->path, 0600, err);
	else if (rc == 0 && access(store->path, F_OK) != 0)
		rc = naos_error_set_errno(err, errno, "cannot open the catalogue %s", store->path);
	if (rc != 0)
		return rc;
	/* also a reader may have to undo what a killed scan left */
	if (sqlite3_open_v2(store->path, &store->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL) != SQLITE_OK)
		return store->db ? failed(store, "open it", err) : naos_error_set(err, NAOS_E_NOMEM, "no memory for a database");
	(void)sqlite3_busy_timeout(store->db, BUSY_MS);
	rc = execute(store, "PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF; PRAGMA secure_delete = ON", "open it", err);
	return rc ? rc : check_schema(store, writing, err);
}

int naos_catalogue_store_open(const char *path, bool writing, struct naos_catalogue_store **ret, struct naos_error *err)
{
	naos_autocatalogue struct naos_catalogue_store *store = calloc(1, sizeof(*store));
	if (!store)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a catalogue");
	store->lock_fd = -1;
	store->path = strdup(path);
	int rc = store->path ? open_database(store, writing, err) : naos_error_set(err, NAOS_E_NOMEM, "no memory for a catalogue");
	if (rc == 0)
		*ret = naos_steal(store);
	return rc;
}

struct naos_catalogue_store *naos_catalogue_store_close(struct naos_catalogue_store *store)
{
	if (!store)
		return NULL;
	(void)sqlite3_close(store->db);
	naos_close_descriptor(&store->lock_fd);
	free(store->path);
	free(store);
	return NULL;
}

const struct naos_uuid *naos_catalogue_store_id(const struct naos_catalogue_store *store)
{
	return &store->id;
}

int naos_catalogue_store_begin(struct naos_catalogue_store *store, struct naos_error *err)
{
	return execute(store, "BEGIN IMMEDIATE", "begin a change", err);
}

int naos_catalogue_store_commit(struct naos_catalogue_store *store, struct naos_error *err)
{
	return execute(store, "COMMIT", "make a change durable", err);
}

void naos_catalogue_store_undo(struct naos_catalogue_store *store)
{
	(void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
}

/* --- keys ------------------------------------------------------------------------------------------------------------------ */

int naos_catalogue_store_key(struct naos_catalogue_store *store, const struct naos_uuid *collection_id, struct naos_blob *ret,
			     bool *ret_found, struct naos_error *err)
{
	autostatement sqlite3_stmt *statement = NULL;
	int rc = prepare(store, "SELECT key FROM collection WHERE id = ?1", &statement, err);
	if (rc != 0)
		return rc;
	bind_id(statement, 1, collection_id);
	int step = sqlite3_step(statement);
	*ret_found = step == SQLITE_ROW;
	if (step == SQLITE_DONE)
		return 0;
	if (step != SQLITE_ROW)
		return failed(store, "read it", err);
	struct naos_cursor in = naos_cursor_reader(sqlite3_column_blob(statement, 0), (size_t)sqlite3_column_bytes(statement, 0));
	return naos_blob_decode(&in, ret, err);
}

int naos_catalogue_store_put_key(struct naos_catalogue_store *store, const struct naos_uuid *collection_id, const struct naos_blob *blob,
				 struct naos_error *err)
{
	autostatement sqlite3_stmt *statement = NULL;
	uint8_t encoded[NAOS_BLOB_MAX_BYTES];
	struct naos_cursor out = naos_cursor_writer(encoded, sizeof(encoded));
	naos_blob_encode(blob, &out);
	int rc = prepare(store, "INSERT INTO collection (id, key) VALUES (?1, ?2)", &statement, err);
	if (rc != 0)
		return rc;
	bind_id(statement, 1, collection_id);
	(void)sqlite3_bind_blob(statement, 2, encoded, (int)out.position, SQLITE_STATIC);
	return finish(store, statement, err);
}

/* --- rows ------------------------------------------------------------------------------------------------------------------ */

int naos_catalogue_store_look(struct naos_catalogue_store *store, const struct naos_catalogue_row *row, bool *ret_current, bool *ret_known,
			      struct naos_error *err)
{
	autostatement sqlite3_stmt *statement = NULL;
	int rc = prepare(store, "SELECT code = 0 AND bytes = ?2 AND inode = ?3 AND mtime = ?4 AND ctime = ?5 FROM frame WHERE path = ?1",
			 &statement, err);
	if (rc != 0)
		return rc;
	bind_path(statement, 1, row->path);
	(void)sqlite3_bind_int64(statement, 2, (int64_t)row->bytes);
	(void)sqlite3_bind_int64(statement, 3, (int64_t)row->inode);
	(void)sqlite3_bind_int64(statement, 4, row->mtime_ns);
	(void)sqlite3_bind_int64(statement, 5, row->ctime_ns);
	int step = sqlite3_step(statement);
	if (step != SQLITE_ROW && step != SQLITE_DONE)
		return failed(store, "read it", err);
	*ret_known = step == SQLITE_ROW;
	*ret_current = step == SQLITE_ROW && sqlite3_column_int(statement, 0);
	return 0;
}

int naos_catalogue_store_put(struct naos_catalogue_store *store, const struct naos_catalogue_row *row, struct naos_error *err)
{
	autostatement sqlite3_stmt *statement = NULL;
	int rc = prepare(store,
			 "INSERT OR REPLACE INTO frame (path, collection, frame, bytes, inode, mtime, ctime, code, reason, sealed) "
			 "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
			 &statement, err);
	if (rc != 0)
		return rc;
	bind_path(statement, 1, row->path);
	bind_id(statement, 2, &row->collection_id);
	bind_id(statement, 3, &row->frame_id);
	(void)sqlite3_bind_int64(statement, 4, (int64_t)row->bytes);
	(void)sqlite3_bind_int64(statement, 5, (int64_t)row->inode);
	(void)sqlite3_bind_int64(statement, 6, row->mtime_ns);
	(void)sqlite3_bind_int64(statement, 7, row->ctime_ns);
	(void)sqlite3_bind_int64(statement, 8, row->code);
	(void)sqlite3_bind_text(statement, 9, row->reason ? row->reason : "", -1, SQLITE_STATIC);
	if (row->sealed)
		(void)sqlite3_bind_blob64(statement, 10, row->sealed, row->sealed_bytes, SQLITE_STATIC);
	return finish(store, statement, err);
}

int naos_catalogue_store_remove(struct naos_catalogue_store *store, const char *path, struct naos_error *err)
{
	autostatement sqlite3_stmt *statement = NULL;
	int rc = prepare(store, "DELETE FROM frame WHERE path = ?1", &statement, err);
	if (rc != 0)
		return rc;
	bind_path(statement, 1, path);
	return finish(store, statement, err);
}

static int give_row(sqlite3_stmt *statement, int (*each)(void *, const struct naos_catalogue_row *, struct naos_error *), void *context,
		    struct naos_error *err)
{
	size_t bytes = (size_t)sqlite3_column_bytes(statement, 0);
	naos_autofree char *path = strndup((const char *)sqlite3_column_blob(statement, 0), bytes);
	struct naos_catalogue_row row = {
		.path = path, .bytes = (uint64_t)sqlite3_column_int64(statement, 3), .inode = (uint64_t)sqlite3_column_int64(statement, 4),
		.mtime_ns = sqlite3_column_int64(statement, 5), .ctime_ns = sqlite3_column_int64(statement, 6),
		.code = sqlite3_column_int(statement, 7), .reason = (const char *)sqlite3_column_text(statement, 8),
		.sealed = sqlite3_column_blob(statement, 9), .sealed_bytes = (size_t)sqlite3_column_bytes(statement, 9),
	};
	if (!path)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a row");
	/* the schema sees to their length; a file that was tampered with may lack it */
	if (sqlite3_column_bytes(statement, 1) == NAOS_UUID_BYTES)
		memcpy(row.collection_id.bytes, sqlite3_column_blob(statement, 1), NAOS_UUID_BYTES);
	if (sqlite3_column_bytes(statement, 2) == NAOS_UUID_BYTES)
		memcpy(row.frame_id.bytes, sqlite3_column_blob(statement, 2), NAOS_UUID_BYTES);
	return each(context, &row, err);
}

int naos_catalogue_store_each(struct naos_catalogue_store *store, const char *below,
			      int (*each)(void *context, const struct naos_catalogue_row *row, struct naos_error *err), void *context,
			      struct naos_error *err)
{
	autostatement sqlite3_stmt *statement = NULL;
	naos_autofree char *from = NULL, *to = NULL;
	if (below && (asprintf(&from, "%s/", strcmp(below, "/") == 0 ? "" : below) < 0 ||
		      asprintf(&to, "%s0", strcmp(below, "/") == 0 ? "" : below) < 0)) /* '0' follows '/' */
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a path");
	int step, rc = prepare(store,
			       "SELECT path, collection, frame, bytes, inode, mtime, ctime, code, reason, sealed FROM frame "
			       "WHERE ?1 IS NULL OR path = ?1 OR (path >= ?2 AND path < ?3) ORDER BY path",
			       &statement, err);
	if (rc == 0 && below) {
		bind_path(statement, 1, below);
		bind_path(statement, 2, from);
		bind_path(statement, 3, to);
	}
	while (rc == 0 && (step = sqlite3_step(statement)) != SQLITE_DONE)
		rc = step == SQLITE_ROW ? give_row(statement, each, context, err) : failed(store, "read it", err);
	return rc;
}
