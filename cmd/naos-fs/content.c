/* SPDX-License-Identifier: Apache-2.0 */
#include "content_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

#include "ahead.h"
#include "base/log.h"
#include "seal/inspect.h"
#include "times.h"
#include "transport.h"

#define GATHER_BYTES ((size_t)4 << 20)       /* of one file */
#define GATHER_SUM_BYTES ((size_t)256 << 20) /* of all */
#define BUSY_WAIT_MS 2000u  /* for another program that holds the file, such as a check */

static void ring_add(struct content_table *table, struct content *content)
{
	(void)pthread_mutex_lock(&table->lock);
	content->next = &table->first;
	content->previous = table->first.previous;
	content->previous->next = content;
	table->first.previous = content;
	(void)pthread_mutex_unlock(&table->lock);
}

static void ring_remove(struct content_table *table, struct content *content)
{
	(void)pthread_mutex_lock(&table->lock);
	content->previous->next = content->next;
	content->next->previous = content->previous;
	(void)pthread_mutex_unlock(&table->lock);
}

/* --- the sealed file behind ---------------------------------------------------------------------------------------------- */

static int open_below(struct naos_fs *fs, struct inode *inode, bool write, int *ret_fd, bool *ret_writable, struct naos_error *err)
{
	/* whatever the user asked for: a write to part of a chunk needs its rest, and the kernel has checked the rights */
	int fd = !fs->read_only && (write || !fs->shared) ? inode_open(fs, inode, O_RDWR) : -1;
	*ret_writable = fd >= 0;
	if (fd < 0 && (write || (errno != EACCES && errno != EROFS && errno != EPERM && errno != ETXTBSY && !fs->shared && !fs->read_only)))
		return naos_error_set_errno(err, fs->read_only ? EROFS : errno, "cannot open file %llu",
					    (unsigned long long)inode->number);
	if (fd < 0)
		fd = inode_open(fs, inode, O_RDONLY);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open file %llu", (unsigned long long)inode->number);
	*ret_fd = fd;
	return 0;
}

/* mode = local: changes that would need a flush of their own wait for others. */
static int gather(struct content *content, struct naos_error *err)
{
	int rc = naos_sealed_file_gather(content->file, GATHER_BYTES, err);
	if (rc == 0)
		return 0;
	(void)!naos_sealed_file_close(naos_steal(content->file), false, NULL);
	return rc;
}

static int open_sealed(struct naos_fs *fs, struct inode *inode, struct content *content, bool write, bool *ret_resized,
		       struct naos_error *err)
{
	struct naos_store *store;
	struct naos_sealed_info info;
	struct stat before;
	char name[48];
	int fd = -1, rc = open_below(fs, inode, write, &fd, &content->writable, err);
	if (rc != 0)
		return rc;
	(void)snprintf(name, sizeof(name), "file %llu", (unsigned long long)inode->number);
	rc = naos_store_posix(fd, name, &store, err);
	if (rc != 0) {
		(void)close(fd);
		return rc;
	}
	content->fd = fd;
	if (fs->shared || fs->no_access_times)
		times_hide_accesses(content, true);
	if (fs->shared && !content->writable) /* not replaced by another file (naos fileset rekey) as long as it is open */
		rc = store->ops->lock(store, NAOS_READER_LOCK_OFFSET, 1, NAOS_LOCK_SHARED, false, err);
	rc = rc == NAOS_E_BUSY ? rc : 0; /* where nothing can be locked nothing is rekeyed either */
	if (rc == 0 && !times_save(content, &before))
		rc = naos_error_set_errno(err, errno, "cannot read the status of %s", name);
	if (rc == 0)
		rc = naos_sealed_probe(store, &info, err);
	if (rc == NAOS_E_FORMAT && naos_sealed_is_unborn(fd))
		(void)naos_error_set(err, rc, "%s: its first page is missing ('naos fileset check %s' names it, and with --repair sets it aside)",
				     name, fs->set->name);
	if (rc != 0) {
		store->ops->close(store);
		return rc;
	}
	if (naos_filesets_knows(fs->sets, &info)) {
		ahead_count_hit(inode);
	} else {
		transport_may_wait(fs);
		ahead_unwrap(fs, inode, &info);
	}
	struct naos_fek_source source = naos_filesets_source(fs->sets, fs->set, &info);
	enum naos_sealed_mode mode = !content->writable ? NAOS_SEALED_READ : fs->shared ? NAOS_SEALED_SHARED : NAOS_SEALED_LOCAL;
	rc = naos_sealed_file_open(store, mode, &source, &content->file, err);
	if (rc == 0 && mode == NAOS_SEALED_LOCAL)
		rc = gather(content, err);
	if (rc == 0 && mode == NAOS_SEALED_SHARED) /* others are told that it is open for writing: no change of the user's */
		times_restore(content, &before);
	if (rc == 0 && naos_sealed_file_recovered(content->file)) {
		times_restore(content, &before);
		*ret_resized = naos_sealed_file_size(content->file) != inode_plain_size((uint64_t)before.st_size);
		naos_log(NAOS_LOG_WARNING, "event=recovered inode=%llu (it was open when this or another node stopped)",
			 (unsigned long long)inode->number);
	}
	return rc;
}

/* True if the file has no name any more.  mode = local: names go here only. */
bool content_is_unlinked(const struct content *content)
{
	struct stat status;
	if (!content->shared)
		return content->inode->unlinked;
	return fstat(content->fd, &status) == 0 && status.st_nlink == 0;
}

static struct content **place_of(struct inode *inode, bool writable)
{
	return writable ? &inode->content : &inode->reader;
}

/* Frees a content that nobody uses; seal false where it is clean or of no value. */
int content_let_go(struct naos_fs *fs, struct content *content, bool seal, struct naos_error *err)
{
	struct stat before;
	bool quiet = seal && fs->shared && times_save(content, &before);
	*place_of(content->inode, content->writable) = NULL;
	ring_remove(fs->contents, content);
	fs->contents->gathered -= content->counted;
	if (quiet) /* what sealing writes is no change of the user's */
		content->fd = inode_open(fs, content->inode, O_RDONLY | O_NONBLOCK);
	int rc = naos_sealed_file_close(content->file, seal, err);
	if (quiet && content->fd >= 0) {
		times_restore(content, &before);
		(void)close(content->fd);
	}
	fs->contents->let_go++;
	inode_put(fs, content->inode, 1);
	(void)pthread_mutex_destroy(&content->change);
	free(content);
	return rc;
}

static int content_make(struct naos_fs *fs, struct inode *inode, bool write, struct content **ret, struct naos_error *err)
{
	naos_autofree struct content *content = calloc(1, sizeof(*content));
	struct stat status;
	bool resized = false;
	int rc = content ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory to open a file");
	if (content) {
		content->inode = inode;
		content->shared = fs->shared;
	}
	for (unsigned waited = 0; rc == 0; waited += 20) {
		rc = open_sealed(fs, inode, content, write, &resized, err);
		if (rc != NAOS_E_BUSY || waited >= BUSY_WAIT_MS)
			break;
		transport_may_wait(fs);
		(void)nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
		rc = 0;
	}
	if (rc != 0) {
		fs->contents->let_go++; /* it may have been recovered before that */
		return rc;
	}
	content->handles = 1;
	(void)pthread_mutex_init(&content->change, NULL);
	inode_hold(fs, inode);
	ring_add(fs->contents, content);
	*place_of(inode, content->writable) = content;
	/* a file that was replaced below (naos fileset rekey) has no name any more, and the writers' lock was free again */
	if (fstat(content->fd, &status) == 0 && status.st_nlink == 0 && !inode->unlinked) {
		(void)!content_let_go(fs, naos_steal(content), false, NULL);
		return naos_error_set(err, NAOS_E_CHANGED, "file %llu was replaced", (unsigned long long)inode->number);
	}
	if (resized) { /* it stays open, so that the next lookup shows its size and the next open has it */
		content->handles = 0;
		content->closed_at_ms = content_now_ms();
		fs->contents->idle++;
		content = NULL;
		return naos_error_set(err, NAOS_E_CHANGED, "file %llu got another size by recovery", (unsigned long long)inode->number);
	}
	*ret = naos_steal(content);
	return 0;
}

int content_open(struct naos_fs *fs, struct inode *inode, bool write, struct content **ret, struct naos_error *err)
{
	int rc = 0;
	(void)pthread_mutex_lock(&inode->lock);
	struct content *content = inode->content && (write || !fs->shared || !inode->reader) ? inode->content : NULL;
	if (!content && !write)
		content = inode->reader;
	if (content && content->handles == 0 && !content->busy && naos_sealed_file_failed(content->file)) {
		fs->contents->idle--; /* a flush of it failed: who closed it and opens it again starts afresh */
		(void)!content_let_go(fs, naos_steal(content), false, NULL);
	}
	if (content) {
		if (content->handles++ == 0)
			fs->contents->idle--;
		content->accessed = false;
	} else {
		rc = content_make(fs, inode, write, &content, err);
	}
	(void)pthread_mutex_unlock(&inode->lock);
	if (rc == 0)
		*ret = content;
	return rc;
}

int content_adopt(struct naos_fs *fs, struct inode *inode, struct naos_sealed_file *file, int fd, struct content **ret,
		  struct naos_error *err)
{
	struct content *content = calloc(1, sizeof(*content));
	if (!content)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to open a file");
	*content = (struct content){ .inode = inode, .file = file, .fd = fd, .writable = true, .shared = fs->shared, .handles = 1 };
	(void)pthread_mutex_init(&content->change, NULL);
	int rc = fs->shared ? 0 : gather(content, err);
	if (fs->shared || fs->no_access_times)
		times_hide_accesses(content, true);
	if (rc != 0) {
		(void)pthread_mutex_destroy(&content->change);
		free(content);
		return rc;
	}
	inode_hold(fs, inode);
	(void)pthread_mutex_lock(&inode->lock);
	if (inode->content) { /* mode = shared: its name is known, and somebody was faster to open it */
		(void)!naos_sealed_file_close(file, false, NULL);
		(void)pthread_mutex_destroy(&content->change);
		free(content);
		content = inode->content;
		if (content->handles++ == 0)
			fs->contents->idle--;
		(void)pthread_mutex_unlock(&inode->lock);
		inode_put(fs, inode, 1);
		*ret = content;
		return 0;
	}
	inode->content = content;
	ring_add(fs->contents, content);
	(void)pthread_mutex_unlock(&inode->lock);
	*ret = content;
	return 0;
}

static void hurry(struct content_table *table)
{
	(void)pthread_mutex_lock(&table->lock);
	table->hurry = true;
	(void)pthread_cond_signal(&table->wake);
	(void)pthread_mutex_unlock(&table->lock);
}

void content_close(struct naos_fs *fs, struct content *content)
{
	struct inode *inode = content->inode;
	size_t idle = 0;
	inode_hold(fs, inode);
	(void)pthread_mutex_lock(&inode->lock);
	if (--content->handles == 0) {
		content->closed_at_ms = content_now_ms();
		idle = ++fs->contents->idle;
		if (!content->busy && content_is_unlinked(content)) {
			fs->contents->idle--;
			(void)!content_let_go(fs, content, false, NULL);
		}
	}
	(void)pthread_mutex_unlock(&inode->lock);
	inode_put(fs, inode, 1);
	if (idle > NAOS_FS_IDLE_MAX && idle % (NAOS_FS_IDLE_MAX / 4) == 0)
		hurry(fs->contents);
}

void content_drop_unlinked(struct naos_fs *fs, struct inode *inode)
{
	struct stat status;
	(void)pthread_mutex_lock(&inode->lock);
	inode->unlinked = fstatat(inode->fd, "", &status, AT_EMPTY_PATH) == 0 && status.st_nlink == 0;
	for (unsigned writable = 0; inode->unlinked && writable < 2; writable++) {
		struct content *content = *place_of(inode, writable);
		if (content && content->handles == 0 && !content->busy) {
			fs->contents->idle--;
			(void)!content_let_go(fs, content, false, NULL);
		}
	}
	(void)pthread_mutex_unlock(&inode->lock);
}

/* --- gathered bytes, sealing ------------------------------------------------------------------------------------------------ */

/* The table's sum follows what a content has gathered. */
static size_t count_gathered(struct naos_fs *fs, struct content *content)
{
	size_t now = naos_sealed_file_gathered(content->file), before = atomic_exchange(&content->counted, now);
	fs->contents->gathered += now - before;
	if (now == 0)
		content->gathered_at_ms = 0;
	return now;
}

/* Writes what a content has gathered; times stay those of the write.  With content->change held. */
int content_settle_held(struct naos_fs *fs, struct content *content, struct naos_error *err)
{
	struct stat status;
	if (naos_sealed_file_gathered(content->file) == 0)
		return 0;
	bool known = times_save(content, &status);
	int rc = naos_sealed_file_settle(content->file, err);
	(void)count_gathered(fs, content);
	if (known)
		times_restore(content, &status);
	return rc;
}

/* naos_sealed_file_seal_step.  With content->change held. */
int content_seal_step(struct naos_fs *fs, struct content *content, struct naos_sealing *sealing, bool *ret_sealed, struct naos_error *err)
{
	struct stat status;
	bool known = times_save(content, &status);
	int rc = naos_sealed_file_seal_step(content->file, sealing, ret_sealed, err);
	(void)count_gathered(fs, content);
	if (known)
		times_restore(content, &status);
	return rc;
}

void content_seal_now(struct naos_fs *fs, struct inode *inode)
{
	struct naos_error err = NAOS_ERROR_INIT;
	bool sealed = false;
	struct naos_sealing sealing = { 0 };
	(void)pthread_mutex_lock(&inode->lock);
	struct content *content = inode->content;
	if (content && fs->shared) { /* other nodes or handles may have it open, then it is sealed by the last of them */
		if (content->handles == 0 && !content->busy) {
			fs->contents->idle--;
			(void)!content_let_go(fs, content, true, NULL);
		}
	} else if (content) {
		(void)pthread_mutex_lock(&content->change);
		int rc = content_settle_held(fs, content, &err);
		while (rc == 0 && !sealed && !naos_sealed_file_clean(content->file)) {
			rc = content_seal_step(fs, content, &sealing, &sealed, &err);
			if (rc == 0 && !sealed && fsync(content->fd) != 0)
				rc = naos_error_set_errno(&err, errno, "cannot make file %llu durable", (unsigned long long)inode->number);
		}
		(void)pthread_mutex_unlock(&content->change);
		if (rc != 0)
			naos_log(NAOS_LOG_WARNING, "event=seal-failed inode=%llu reason=\"%s\"", (unsigned long long)inode->number,
				 err.message);
	}
	(void)pthread_mutex_unlock(&inode->lock);
}

int content_truncate(struct content *content, uint64_t size, struct naos_error *err)
{
	const struct timespec now[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_NOW } };
	bool same = naos_sealed_file_size(content->file) == size;
	int rc = naos_sealed_file_truncate(content->file, size, err);
	if (rc == 0 && same)
		(void)futimens(content->fd, now);
	return rc;
}

void content_begin_status(struct inode *inode)
{
	(void)pthread_mutex_lock(&inode->lock);
	if (inode->content)
		(void)pthread_mutex_lock(&inode->content->change);
}

void content_end_status(struct inode *inode)
{
	if (inode->content)
		(void)pthread_mutex_unlock(&inode->content->change);
	(void)pthread_mutex_unlock(&inode->lock);
}

int content_settle(struct naos_fs *fs, struct inode *inode, struct naos_error *err)
{
	return inode->content ? content_settle_held(fs, inode->content, err) : 0;
}

unsigned long content_moment(const struct naos_fs *fs)
{
	return fs->contents->let_go;
}

bool content_show(struct naos_fs *fs, struct inode *inode, unsigned long moment, struct stat *status)
{
	(void)pthread_mutex_lock(&inode->lock);
	struct content *content = inode->content ? inode->content : inode->reader;
	bool open = content != NULL;
	if (open) {
		/* once more: what was read may be of the moment between something of ours that was written and its times put back */
		(void)pthread_mutex_lock(&content->change);
		(void)fstat(content->fd, status);
	} else if (moment != content_moment(fs)) {
		(void)fstatat(inode->fd, "", status, AT_EMPTY_PATH);
	}
	times_show(inode, status);
	if (open) {
		if (content == inode->reader)
			(void)!naos_sealed_file_refresh(content->file, NULL); /* reading will tell what is wrong */
		status->st_size = (off_t)naos_sealed_file_size(content->file);
		times_add_gathered(content, status);
		(void)pthread_mutex_unlock(&content->change);
	}
	(void)pthread_mutex_unlock(&inode->lock);
	return open;
}

int content_flush(struct naos_fs *fs, struct content *content, struct naos_error *err)
{
	struct stat status;
	(void)pthread_mutex_lock(&content->change);
	bool known = times_save(content, &status);
	int rc = naos_sealed_file_flush(content->file, err);
	(void)count_gathered(fs, content);
	if (known)
		times_restore(content, &status);
	(void)pthread_mutex_unlock(&content->change);
	return rc;
}

void content_begin_change(struct content *content)
{
	(void)pthread_mutex_lock(&content->change);
}

void content_end_change(struct naos_fs *fs, struct content *content)
{
	if (!fs->shared && count_gathered(fs, content) > 0) {
		struct timespec now;
		struct stat status;
		(void)clock_gettime(CLOCK_REALTIME_COARSE, &now);
		/* the kernel's own times may be finer than the clock: time doesn't go back */
		if (times_save(content, &status) && times_earlier(&now, &status.st_ctim))
			now = status.st_ctim;
		content->written = now;
		if (!content->gathered_at_ms)
			content->gathered_at_ms = content_now_ms();
		if (fs->contents->gathered > GATHER_SUM_BYTES)
			(void)!content_settle_held(fs, content, NULL); /* a failure is kept for the next fsync */
	}
	(void)pthread_mutex_unlock(&content->change);
}

/* --- the table ---------------------------------------------------------------------------------------------------------- */

int content_table_create(struct naos_fs *fs, struct naos_error *err)
{
	struct content_table *table = calloc(1, sizeof(*table));
	if (!table)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the table of open files");
	(void)pthread_mutex_init(&table->lock, NULL);
	(void)pthread_cond_init(&table->wake, NULL);
	table->first.next = table->first.previous = &table->first;
	fs->contents = table;
	return 0;
}

unsigned content_table_free(struct naos_fs *fs)
{
	struct content_table *table = fs->contents;
	unsigned left = 0;
	if (!table)
		return 0;
	if (table->started) {
		(void)pthread_mutex_lock(&table->lock);
		table->stop = true;
		(void)pthread_cond_signal(&table->wake);
		(void)pthread_mutex_unlock(&table->lock);
		(void)pthread_join(table->thread, NULL);
	}
	for (struct content *at = table->first.next; at != &table->first; at = at->next) { /* nobody asks any more */
		table->idle += at->handles > 0;
		at->handles = 0;
	}
	for (unsigned attempt = 0; attempt < NAOS_FS_SEAL_ATTEMPTS && table->first.next != &table->first; attempt++)
		content_seal_due(fs, 0, 0);
	while (table->first.next != &table->first) {
		left++;
		(void)!content_let_go(fs, table->first.next, false, NULL);
	}
	(void)pthread_cond_destroy(&table->wake);
	(void)pthread_mutex_destroy(&table->lock);
	free(table);
	fs->contents = NULL;
	return left;
}
