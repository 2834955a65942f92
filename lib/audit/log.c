/* Opening, closing and appending: callers queue, one of them commits for all who wait.  SPDX-License-Identifier: Apache-2.0 */
#include "audit/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "audit/record.h"
#include "base/io.h"

#define LOCK_WAIT_MS 10000
#define LOCK_POLL_MS 5
#define COMMIT_MAX_RECORDS 4096

/* One process writes; the lock goes with the descriptor. */
static int take_lock(struct naos_audit_log *log, struct naos_error *err)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	log->lock_fd = openat(log->dir_fd, NAOS_LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
	if (log->lock_fd < 0)
		return naos_error_set_errno(err, errno, "cannot open the lock file of the audit log %s", log->path);
	for (unsigned waited = 0; fcntl(log->lock_fd, F_OFD_SETLK, &lock) != 0; waited += LOCK_POLL_MS) {
		if (errno != EAGAIN && errno != EACCES && errno != EINTR)
			return naos_error_set_errno(err, errno, "cannot lock the audit log %s", log->path);
		if (waited >= LOCK_WAIT_MS)
			return naos_error_set(err, NAOS_E_BUSY, "another process has been writing the audit log %s for %d s", log->path,
					      LOCK_WAIT_MS / 1000);
		struct timespec pause = { .tv_nsec = LOCK_POLL_MS * 1000000L };
		(void)nanosleep(&pause, NULL);
	}
	return 0;
}

static bool exists(int dir_fd, const char *name)
{
	struct stat status;
	return fstatat(dir_fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

/* The private key: in the log's directory unless the caller names a file. */
static int load_signer(struct naos_audit_log *log, const char *key_path, const char *name, struct naos_error *err)
{
	return naos_signer_load(key_path ? AT_FDCWD : log->dir_fd, key_path ? key_path : NAOS_PRIVATE_KEY_FILE, name, NAOS_NOTE_ED25519,
				&log->signer, err);
}

/* "naos/HOSTNAME"; what a name may not hold becomes a hyphen. */
static const char *default_origin(char buffer[static NAOS_NOTE_NAME_BYTES])
{
	char host[128] = "localhost";
	(void)gethostname(host, sizeof(host) - 1);
	(void)snprintf(buffer, NAOS_NOTE_NAME_BYTES, "naos/%s", host[0] ? host : "localhost");
	for (char *at = buffer; *at; at++)
		if ((unsigned char)*at <= 0x20 || (unsigned char)*at >= 0x7f || *at == '+')
			*at = '-';
	return buffer;
}

/* Key, public key and the checkpoint of the empty log, in that order: a crash in between is taken up again. */
static int initialize(struct naos_audit_log *log, const struct naos_audit_options *options, struct naos_error *err)
{
	char origin[NAOS_NOTE_NAME_BYTES], text[NAOS_NOTE_KEY_BYTES + 1];
	naos_autocheckpoint struct naos_checkpoint checkpoint = { .note = NULL };
	const char *name = options->origin ? options->origin : default_origin(origin), *key = options->key_path;
	struct naos_hash root;
	int rc = 0;
	if (exists(log->dir_fd, "records"))
		return naos_error_set(err, NAOS_E_INTEGRITY, "it has records but no checkpoint");
	if (key ? exists(AT_FDCWD, key) : exists(log->dir_fd, NAOS_PRIVATE_KEY_FILE)) {
		rc = load_signer(log, key, name, err);
	} else {
		rc = naos_signer_create(name, NAOS_NOTE_ED25519, &log->signer, err);
		if (rc == 0)
			rc = naos_signer_store(&log->signer, key ? AT_FDCWD : log->dir_fd, key ? key : NAOS_PRIVATE_KEY_FILE, err);
	}
	if (rc != 0)
		return rc;
	(void)naos_verifier_format(&log->signer.verifier, text);
	text[strlen(text) + 1] = 0;
	text[strlen(text)] = '\n';
	rc = naos_io_replace_file(log->dir_fd, NAOS_PUBLIC_KEY_FILE, text, strlen(text), 0644, err);
	if (rc != 0)
		return rc;
	naos_tree_root(log->hasher, &log->tree, &root);
	rc = naos_checkpoint_make(&log->signer, 0, &root, &checkpoint, err);
	return rc != 0 ? rc : naos_io_replace_file(log->dir_fd, NAOS_CHECKPOINT_FILE, checkpoint.note, checkpoint.note_bytes, 0640, err);
}

/* An existing log: its name is that of its public key, and the private key must be the one that belongs to it. */
static int load(struct naos_audit_log *log, const struct naos_audit_options *options, struct naos_error *err)
{
	struct naos_verifier verifier;
	int rc = naos_verifier_read(log->dir_fd, NAOS_PUBLIC_KEY_FILE, &verifier, err);
	if (rc == 0 && options->origin && strcmp(options->origin, verifier.name) != 0)
		rc = naos_error_set(err, NAOS_E_CONFIG, "it is named %s, not %s", verifier.name, options->origin);
	if (rc == 0)
		rc = load_signer(log, options->key_path, verifier.name, err);
	if (rc == 0 && memcmp(&verifier, &log->signer.verifier, sizeof(verifier)) != 0)
		rc = naos_error_set(err, NAOS_E_WRONG_KEY, "its private key does not belong to its public key %s", NAOS_PUBLIC_KEY_FILE);
	if (rc == 0)
		rc = naos_audit_recover(log, true, err);
	if (rc == 0 && log->note[0])
		rc = naos_audit_commit(log, NULL, err);
	return rc;
}

static int open_directory(struct naos_audit_log *log, bool create, struct naos_error *err)
{
	if (create && mkdir(log->path, 0750) == 0) {
		int rc = naos_io_sync_parent(AT_FDCWD, log->path, err);
		if (rc != 0)
			return rc;
	} else if (create && errno != EEXIST) {
		return naos_error_set_errno(err, errno, "cannot make it");
	}
	log->dir_fd = open(log->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return log->dir_fd < 0 ? naos_error_set_errno(err, errno, "cannot open it") : 0;
}

static int start(struct naos_audit_log *log, const struct naos_audit_options *options, struct naos_error *err)
{
	int rc = open_directory(log, options->create, err);
	bool is_log = rc == 0 && exists(log->dir_fd, NAOS_CHECKPOINT_FILE);
	if (rc == 0 && !is_log && !options->create) /* leave no lock file in a directory that isn't ours */
		rc = naos_error_set(err, NAOS_E_NOTFOUND, "there is no log in it");
	if (rc == 0)
		rc = take_lock(log, err);
	if (rc == 0)
		rc = naos_hasher_create(&log->hasher, err);
	if (rc != 0)
		return rc;
	/* asked again under the lock: another process may have made the log */
	return exists(log->dir_fd, NAOS_CHECKPOINT_FILE) ? load(log, options, err) : initialize(log, options, err);
}

int naos_audit_open_with(const char *dir, const struct naos_audit_options *options, struct naos_audit_log **ret, struct naos_error *err)
{
	struct naos_audit_log *log = calloc(1, sizeof(*log));
	if (!log)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the audit log");
	log->dir_fd = log->lock_fd = log->bundle_fd = log->tile_fd = -1;
	log->last = &log->first;
	(void)pthread_mutex_init(&log->mutex, NULL);
	(void)pthread_cond_init(&log->changed, NULL);
	log->path = strdup(dir);
	int rc = log->path ? start(log, options, err) : naos_error_set(err, NAOS_E_NOMEM, "no memory for the audit log");
	if (rc != 0) {
		(void)naos_audit_close(log);
		return naos_error_prefix(err, rc, "audit log %s", dir);
	}
	*ret = log;
	return 0;
}

int naos_audit_open(const char *dir, const char *origin, bool create, struct naos_audit_log **ret, struct naos_error *err)
{
	const struct naos_audit_options options = { .origin = origin, .create = create };
	return naos_audit_open_with(dir, &options, ret, err);
}

struct naos_audit_log *naos_audit_close(struct naos_audit_log *log)
{
	int saved = errno;
	if (!log)
		return NULL;
	naos_signer_clear(&log->signer);
	log->hasher = naos_hasher_free(log->hasher);
	naos_close_descriptor(&log->bundle_fd);
	naos_close_descriptor(&log->tile_fd);
	free(log->lines);
	naos_close_descriptor(&log->lock_fd);
	naos_close_descriptor(&log->dir_fd);
	(void)pthread_cond_destroy(&log->changed);
	(void)pthread_mutex_destroy(&log->mutex);
	free(log->path);
	free(log);
	errno = saved;
	return NULL;
}

/* Takes waiting requests off the queue, in order, as many as one commit should hold. */
static struct naos_audit_request *take_requests(struct naos_audit_log *log)
{
	struct naos_audit_request *first = log->first, *last = first;
	size_t records = first->count;
	while (last->next && records + last->next->count <= COMMIT_MAX_RECORDS) {
		last = last->next;
		records += last->count;
	}
	log->first = last->next;
	if (!log->first)
		log->last = &log->first;
	last->next = NULL;
	return first;
}

/* Commits for all who wait.  Called and left with the mutex held. */
static void lead(struct naos_audit_log *log)
{
	struct naos_error error = NAOS_ERROR_INIT;
	log->leading = true;
	struct naos_audit_request *requests = take_requests(log);
	(void)pthread_mutex_unlock(&log->mutex);
	int rc = naos_audit_commit(log, requests, &error);
	if (rc != 0) {
		(void)naos_error_prefix(&error, NAOS_E_AUDIT, "audit log %s", log->path);
		rc = NAOS_E_AUDIT;
	}
	(void)pthread_mutex_lock(&log->mutex);
	for (struct naos_audit_request *request = requests, *next; request; request = next) {
		next = request->next; /* a request is gone once it is done */
		request->rc = rc;
		request->error = error;
		request->done = true;
	}
	log->leading = false;
	(void)pthread_cond_broadcast(&log->changed);
}

static int submit(struct naos_audit_log *log, struct naos_audit_request *request, struct naos_error *err)
{
	(void)pthread_mutex_lock(&log->mutex);
	*log->last = request;
	log->last = &request->next;
	while (!request->done)
		if (log->leading)
			(void)pthread_cond_wait(&log->changed, &log->mutex);
		else
			lead(log);
	(void)pthread_mutex_unlock(&log->mutex);
	if (request->rc != 0 && err)
		*err = request->error;
	return request->rc;
}

int naos_audit_append_many(struct naos_audit_log *log, const struct naos_audit_event *events, size_t count, struct naos_error *err)
{
	struct naos_audit_request request = { .count = count };
	int rc = 0;
	if (count == 0)
		return 0;
	if (count > NAOS_AUDIT_MAX_BATCH)
		return naos_error_set(err, NAOS_E_LIMIT, "%zu audit records at once, at most %d are allowed", count, NAOS_AUDIT_MAX_BATCH);
	request.bodies = calloc(count, sizeof(*request.bodies));
	if (!request.bodies)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for audit records");
	for (size_t i = 0; rc == 0 && i < count; i++)
		rc = naos_record_body(&events[i], &request.bodies[i].text, &request.bodies[i].bytes, err);
	if (rc == 0)
		rc = submit(log, &request, err);
	for (size_t i = 0; i < count; i++)
		free(request.bodies[i].text);
	free(request.bodies);
	return rc;
}

int naos_audit_append(struct naos_audit_log *log, const struct naos_audit_event *event, struct naos_error *err)
{
	return naos_audit_append_many(log, event, 1, err);
}

bool naos_audit_is_well(struct naos_audit_log *log)
{
	if (!log)
		return true;
	(void)pthread_mutex_lock(&log->mutex);
	bool well = log->leading || !log->stale; /* a leader has `stale` to itself */
	(void)pthread_mutex_unlock(&log->mutex);
	return well;
}
