/* The database in SQLite: write-ahead log, synchronous=FULL, group commit.  SPDX-License-Identifier: Apache-2.0 */
#include "keyd/store.h"

#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/file.h>

#include "base/io.h"

#define APPLICATION_ID 0x4e414f44 /* "NAOD", for file(1) */
#define SCHEMA_VERSION 1

/* Changes of one caller, waiting. */
struct request {
	struct request *next;
	const struct naos_change *changes;
	size_t count;
	bool done;
	int rc;
	struct naos_error error;
	pthread_cond_t wake;
};

enum statement { PUT_OBJECT, PUT_USES, DELETE_OBJECT, PUT_APPROVAL, DELETE_APPROVALS, STATEMENTS };

struct naos_keyd_store {
	char *path;
	int lock_fd;
	sqlite3 *db; /* the leader's */
	sqlite3_stmt *statements[STATEMENTS];
	pthread_mutex_t lock;
	struct request *head, **tail;
	bool leading, ill; /* ill: the last transaction failed */
};

static const char schema[] =
	"CREATE TABLE object ("
	" id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),"
	" owner TEXT NOT NULL,"
	" name TEXT,"         /* the first one, for people; all are among the attributes */
	" object_group TEXT," /* the same */
	" type INTEGER NOT NULL,"
	" class INTEGER NOT NULL CHECK (class BETWEEN 1 AND 2)," /* enum naos_object_class */
	" phase INTEGER NOT NULL CHECK (phase BETWEEN 0 AND 2)," /* enum naos_object_phase */
	" state INTEGER NOT NULL,"                               /* of KMIP, as last written */
	" format INTEGER NOT NULL,"
	" subtype INTEGER NOT NULL,"
	" uses INTEGER NOT NULL DEFAULT 0,"
	" kept BLOB,"
	" attributes BLOB NOT NULL"
	") STRICT;"
	"CREATE INDEX object_name ON object (name);"
	"CREATE TABLE approval ("
	" id BLOB NOT NULL CHECK (length(id) = 16),"
	" identity TEXT NOT NULL,"
	" time INTEGER NOT NULL,"
	" PRIMARY KEY (id, identity)"
	") STRICT;";

static const char *const sql[STATEMENTS] = {
	[PUT_OBJECT] =
	    "INSERT INTO object (id, owner, name, object_group, type, class, phase, state, format, subtype, kept, attributes) "
	    "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT (id) DO UPDATE SET owner = ?2, name = ?3, "
	    "object_group = ?4, type = ?5, class = ?6, phase = ?7, state = ?8, format = ?9, subtype = ?10, kept = ?11, attributes = "
	    "?12",
	[PUT_USES] = "UPDATE object SET uses = max(uses, ?2) WHERE id = ?1",
	[DELETE_OBJECT] = "DELETE FROM object WHERE id = ?1",
	[PUT_APPROVAL] = "INSERT INTO approval (id, identity, time) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET time = ?3",
	[DELETE_APPROVALS] = "DELETE FROM approval WHERE id = ?1",
};

static int failed(struct naos_keyd_store *store, const char *doing, struct naos_error *err)
{
	int code, extended = sqlite3_extended_errcode(store->db);
	switch (extended & 0xff) {
	case SQLITE_FULL: code = NAOS_E_NOSPACE; break;
	case SQLITE_READONLY: code = NAOS_E_READONLY; break;
	case SQLITE_NOMEM: code = NAOS_E_NOMEM; break;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB: code = NAOS_E_INTEGRITY; break;
	default: code = NAOS_E_SYSTEM;
	}
	return naos_error_set(err, code, "key database %s: cannot %s: %s", store->path, doing, sqlite3_errmsg(store->db));
}

static int execute(struct naos_keyd_store *store, const char *text, const char *doing, struct naos_error *err)
{
	return sqlite3_exec(store->db, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : failed(store, doing, err);
}

static void bind_text(sqlite3_stmt *statement, int at, const struct naos_kmip_text *text)
{
	if (text && text->data)
		(void)sqlite3_bind_text(statement, at, text->data, (int)text->bytes, SQLITE_STATIC);
	else
		(void)sqlite3_bind_null(statement, at);
}

static void bind_object(sqlite3_stmt *statement, const struct naos_object *object)
{
	const struct naos_kmip_attribute *name = naos_object_attribute(object, NAOS_KMIP_TAG_NAME, 0);
	const struct naos_kmip_attribute *group = naos_object_attribute(object, NAOS_KMIP_TAG_OBJECT_GROUP, 0);
	(void)sqlite3_bind_blob(statement, 1, object->core.id.bytes, NAOS_UUID_BYTES, SQLITE_STATIC);
	(void)sqlite3_bind_text(statement, 2, object->core.owner, -1, SQLITE_STATIC);
	bind_text(statement, 3, name ? &name->value.name->value : NULL);
	bind_text(statement, 4, group ? &group->value.text : NULL);
	(void)sqlite3_bind_int64(statement, 5, object->type);
	(void)sqlite3_bind_int64(statement, 6, object->core.object_class);
	(void)sqlite3_bind_int64(statement, 7, object->core.phase);
	(void)sqlite3_bind_int64(statement, 8, object->stored_state);
	(void)sqlite3_bind_int64(statement, 9, object->core.format);
	(void)sqlite3_bind_int64(statement, 10, object->core.subtype);
	if (object->core.kept)
		(void)sqlite3_bind_blob(statement, 11, object->core.kept, (int)object->core.kept_bytes, SQLITE_STATIC);
	else
		(void)sqlite3_bind_null(statement, 11);
	(void)sqlite3_bind_blob(statement, 12, object->encoded, (int)object->encoded_bytes, SQLITE_STATIC);
}

static int apply(struct naos_keyd_store *store, const struct naos_change *change, struct naos_error *err)
{
	static const enum statement which[] = { [NAOS_CHANGE_OBJECT] = PUT_OBJECT, [NAOS_CHANGE_USES] = PUT_USES,
						[NAOS_CHANGE_DELETE] = DELETE_OBJECT, [NAOS_CHANGE_APPROVE] = PUT_APPROVAL,
						[NAOS_CHANGE_UNAPPROVE] = DELETE_APPROVALS };
	sqlite3_stmt *statement = store->statements[which[change->kind]];
	if (change->kind == NAOS_CHANGE_OBJECT) {
		bind_object(statement, change->object);
	} else {
		(void)sqlite3_bind_blob(statement, 1, change->id.bytes, NAOS_UUID_BYTES, SQLITE_STATIC);
		if (change->kind == NAOS_CHANGE_USES)
			(void)sqlite3_bind_int64(statement, 2, (int64_t)change->uses);
		if (change->kind == NAOS_CHANGE_APPROVE) {
			(void)sqlite3_bind_text(statement, 2, change->identity, -1, SQLITE_STATIC);
			(void)sqlite3_bind_int64(statement, 3, change->unix_s);
		}
	}
	int rc = sqlite3_step(statement) == SQLITE_DONE ? 0 : failed(store, "write a change", err);
	(void)sqlite3_reset(statement);
	(void)sqlite3_clear_bindings(statement);
	return rc;
}

/* One transaction for all requests of the list. */
static int commit(struct naos_keyd_store *store, const struct request *list, struct naos_error *err)
{
	int rc = execute(store, "BEGIN IMMEDIATE", "begin a change", err);
	if (rc != 0)
		return rc;
	for (const struct request *r = list; rc == 0 && r; r = r->next)
		for (size_t i = 0; rc == 0 && i < r->count; i++)
			rc = apply(store, &r->changes[i], err);
	if (rc == 0)
		rc = execute(store, "COMMIT", "make a change durable", err);
	if (rc != 0)
		(void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
	return rc;
}

/* The lock is held and given up while the transaction runs. */
static void lead(struct naos_keyd_store *store)
{
	struct request *list = store->head, *next;
	struct naos_error error = NAOS_ERROR_INIT;
	store->head = NULL;
	store->tail = &store->head;
	store->leading = true;
	(void)pthread_mutex_unlock(&store->lock);
	int rc = commit(store, list, &error);
	(void)pthread_mutex_lock(&store->lock);
	store->leading = false;
	store->ill = rc != 0;
	for (struct request *r = list; r; r = next) {
		next = r->next;
		r->rc = rc;
		r->error = error;
		r->done = true;
		(void)pthread_cond_signal(&r->wake);
	}
	if (store->head)
		(void)pthread_cond_signal(&store->head->wake);
}

int naos_keyd_store_commit(struct naos_keyd_store *store, const struct naos_change *changes, size_t count, struct naos_error *err)
{
	struct request request = { .changes = changes, .count = count };
	(void)pthread_cond_init(&request.wake, NULL);
	(void)pthread_mutex_lock(&store->lock);
	*store->tail = &request;
	store->tail = &request.next;
	while (!request.done) {
		if (store->leading)
			(void)pthread_cond_wait(&request.wake, &store->lock);
		else
			lead(store);
	}
	(void)pthread_mutex_unlock(&store->lock);
	(void)pthread_cond_destroy(&request.wake);
	return request.rc ? naos_error_set(err, request.rc, "%s", request.error.message) : 0;
}

bool naos_keyd_store_is_well(struct naos_keyd_store *store)
{
	(void)pthread_mutex_lock(&store->lock);
	bool well = !store->ill;
	(void)pthread_mutex_unlock(&store->lock);
	return well;
}

static int number(struct naos_keyd_store *store, const char *text, int64_t *ret, struct naos_error *err)
{
	sqlite3_stmt *statement = NULL;
	int rc = 0;
	if (sqlite3_prepare_v2(store->db, text, -1, &statement, NULL) != SQLITE_OK || sqlite3_step(statement) != SQLITE_ROW)
		rc = failed(store, "read it", err);
	else
		*ret = sqlite3_column_int64(statement, 0);
	(void)sqlite3_finalize(statement);
	return rc;
}

static int make_schema(struct naos_keyd_store *store, struct naos_error *err)
{
	int64_t version = 0, application = 0;
	char text[128];
	int rc = number(store, "PRAGMA user_version", &version, err);
	if (rc == 0)
		rc = number(store, "PRAGMA application_id", &application, err);
	if (rc != 0)
		return rc;
	if (version == 0 && application == 0) {
		(void)snprintf(text, sizeof(text), "PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT", APPLICATION_ID,
			       SCHEMA_VERSION);
		rc = execute(store, "BEGIN IMMEDIATE", "make its tables", err);
		if (rc == 0)
			rc = execute(store, schema, "make its tables", err);
		return rc ? rc : execute(store, text, "make its tables", err);
	}
	if (application != APPLICATION_ID)
		return naos_error_set(err, NAOS_E_FORMAT, "%s is a database of another program, not of the key manager", store->path);
	if (version != SCHEMA_VERSION)
		return naos_error_set(err, NAOS_E_FORMAT, "key database %s has version %lld, this program knows version %d", store->path,
				      (long long)version, SCHEMA_VERSION);
	return 0;
}

static int take_lock(struct naos_keyd_store *store, struct naos_error *err)
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
		return naos_error_set(err, NAOS_E_BUSY, "another key manager runs on the database %s", store->path);
	return 0;
}

static int open_database(struct naos_keyd_store *store, struct naos_error *err)
{
	int rc = take_lock(store, err);
	if (rc != 0)
		return rc;
	rc = naos_io_make_absent(store->path, 0600, err);
	if (rc != 0)
		return naos_error_prefix(err, rc, "key database (keyd.database)");
	const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
	if (sqlite3_open_v2(store->path, &store->db, flags, NULL) != SQLITE_OK)
		return store->db ? failed(store, "open it", err) : naos_error_set(err, NAOS_E_NOMEM, "no memory for a database");
	(void)sqlite3_busy_timeout(store->db, 10000); /* a backup may read */
	rc = execute(store,
		     "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF; PRAGMA secure_delete = ON",
		     "open it", err);
	if (rc == 0)
		rc = make_schema(store, err);
	for (size_t i = 0; rc == 0 && i < STATEMENTS; i++)
		if (sqlite3_prepare_v3(store->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &store->statements[i], NULL) != SQLITE_OK)
			rc = failed(store, "open it", err);
	return rc;
}

int naos_keyd_store_open(const char *path, struct naos_keyd_store **ret, struct naos_error *err)
{
	struct naos_keyd_store *store = calloc(1, sizeof(*store));
	if (!store)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the key database");
	(void)pthread_mutex_init(&store->lock, NULL);
	store->tail = &store->head;
	store->lock_fd = -1;
	store->path = strdup(path);
	int rc = store->path ? open_database(store, err) : naos_error_set(err, NAOS_E_NOMEM, "no memory for the key database");
	if (rc != 0)
		store = naos_keyd_store_close(store);
	else
		*ret = store;
	return rc;
}

struct naos_keyd_store *naos_keyd_store_close(struct naos_keyd_store *store)
{
	if (!store)
		return NULL;
	for (size_t i = 0; i < STATEMENTS; i++)
		(void)sqlite3_finalize(store->statements[i]);
	(void)sqlite3_close(store->db);
	naos_close_descriptor(&store->lock_fd);
	(void)pthread_mutex_destroy(&store->lock);
	free(store->path);
	free(store);
	return NULL;
}

static bool read_id(sqlite3_stmt *statement, struct naos_uuid *ret)
{
	if (sqlite3_column_bytes(statement, 0) != NAOS_UUID_BYTES)
		return false;
	memcpy(ret->bytes, sqlite3_column_blob(statement, 0), NAOS_UUID_BYTES);
	return true;
}

static int read_object(struct naos_keyd_store *store, sqlite3_stmt *statement, const struct naos_keyd_store_reader *reader,
		       struct naos_error *err)
{
	struct naos_object_core core = { .object_class = (enum naos_object_class)sqlite3_column_int(statement, 2),
					 .phase = (enum naos_object_phase)sqlite3_column_int(statement, 3),
					 .format = (uint32_t)sqlite3_column_int64(statement, 4),
					 .subtype = (uint32_t)sqlite3_column_int64(statement, 5),
					 .kept = (uint8_t *)sqlite3_column_blob(statement, 7),
					 .kept_bytes = (size_t)sqlite3_column_bytes(statement, 7) };
	(void)snprintf(core.owner, sizeof(core.owner), "%s", (const char *)sqlite3_column_text(statement, 1));
	if (!read_id(statement, &core.id))
		return naos_error_set(err, NAOS_E_INTEGRITY, "key database %s: a row has no identifier", store->path);
	return reader->object(reader->context, &core, sqlite3_column_blob(statement, 8), (size_t)sqlite3_column_bytes(statement, 8),
			      (uint64_t)sqlite3_column_int64(statement, 6), err);
}

static int read_rows(struct naos_keyd_store *store, bool objects, const struct naos_keyd_store_reader *reader, struct naos_error *err)
{
	const char *text = objects
			       ? "SELECT id, owner, class, phase, format, subtype, uses, kept, attributes FROM object ORDER BY rowid"
			       : "SELECT id, identity, time FROM approval";
	sqlite3_stmt *statement = NULL;
	struct naos_uuid id;
	int step, rc = sqlite3_prepare_v2(store->db, text, -1, &statement, NULL) == SQLITE_OK ? 0 : failed(store, "read it", err);
	while (rc == 0 && (step = sqlite3_step(statement)) != SQLITE_DONE) {
		if (step != SQLITE_ROW)
			rc = failed(store, "read it", err);
		else if (objects)
			rc = read_object(store, statement, reader, err);
		else if (read_id(statement, &id))
			rc = reader->approval(reader->context, &id, (const char *)sqlite3_column_text(statement, 1),
					      sqlite3_column_int64(statement, 2), err);
	}
	(void)sqlite3_finalize(statement);
	return rc;
}

int naos_keyd_store_read(struct naos_keyd_store *store, const struct naos_keyd_store_reader *reader, struct naos_error *err)
{
	int rc = read_rows(store, true, reader, err);
	return rc ? rc : read_rows(store, false, reader, err);
}
