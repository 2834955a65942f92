/* Random operations on a few files of a directory, against a model in memory; crashes and remounts in between.
 *
 *     fs_exercise DIRECTORY --seed N [--operations N] [--seconds N] [--crashes N] [--other DIRECTORY]
 *
 * --other: the same directory of another mount; some files are open there, too, and none is mapped.
 * One operation in N of --crashes is a crash: it prints "ready", reads the process id of the file system's daemon, kills it while
 * operations run, prints "remount" and goes on when a line comes back.  Then each chunk must be as at the last fsync or newer.
 * On a difference it prints the operations of late that concern it, and ends with status 1.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "fs_model.h"

#define FILES 3u
#define HANDLES 3u /* of a file */
#define LOG_LINES 400u
#define LENGTH_MAX 70000u
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
struct file {
	char name[32], second[32]; /* second: a hard link, empty if there is none */
	struct model *model;
	int fds[HANDLES];
	int flags[HANDLES];
	uint8_t *map;     /* MODEL_BYTES, or NULL */
	bool map_dirty;   /* written through it since the last fsync */
	bool times_known;
	struct timespec modified, changed;
	mode_t mode;
	uint64_t number;
	unsigned note; /* value of user.note; 0: none */
};

static struct file files[FILES];
static uint64_t seed, random_state, operation, crashes;
static int directory, other = -1;
static uint8_t *scratch, *direct; /* MODEL_BYTES each, aligned */
static char journal[LOG_LINES][120];
static volatile bool crashing; /* errors are expected */
static bool crashed;           /* one came */
static sigjmp_buf fault;
static volatile bool guarded;

static uint32_t next(uint32_t below)
{
	return model_random(&random_state) % below;
}

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
	va_list arguments;
	char *line = journal[operation % LOG_LINES];
	int used = snprintf(line, sizeof(journal[0]), "%llu ", (unsigned long long)operation);
	va_start(arguments, format);
	(void)vsnprintf(line + used, sizeof(journal[0]) - (size_t)used, format, arguments);
	va_end(arguments);
}

/* Prints what went wrong with a file (NULL: none in particular) and the operations on it of late. */
__attribute__((format(printf, 2, 3), noreturn)) static void fail(const struct file *file, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	(void)fprintf(stderr, "operation %llu: ", (unsigned long long)operation);
	(void)vfprintf(stderr, format, arguments);
	va_end(arguments);
	(void)fprintf(stderr, " (errno %d)\nagain: --seed %llu --operations %llu --crashes %llu\noperations of late:\n", errno,
		      (unsigned long long)seed, (unsigned long long)operation + 1, (unsigned long long)crashes);
	char word[16];
	(void)snprintf(word, sizeof(word), " f%d ", file ? (int)(file - files) : -1);
	for (uint64_t i = operation >= LOG_LINES ? operation - LOG_LINES + 1 : 0; i <= operation; i++)
		if (!file || strstr(journal[i % LOG_LINES], word) || strstr(journal[i % LOG_LINES], "crash"))
			(void)fprintf(stderr, "  %s\n", journal[i % LOG_LINES]);
	exit(1);
}

/* A failed call: expected while the daemon is being killed. */
static bool down(const struct file *file, const char *what)
{
	if (!crashing || !strstr("ENOTCONN ECONNABORTED ECANCELED EIO ENODEV EINTR", strerrorname_np(errno)))
		fail(file, "%s failed", what);
	return crashed = true;
}

/* The daemon was killed in the middle of what is answered partly then. */
static bool cut_short(void)
{
	return crashed = crashing;
}

static void bus(int number)
{
	if (!guarded)
		_exit(3);
	siglongjmp(fault, 1);
}

/* --- what must hold ------------------------------------------------------------------------------------------------------- */

static bool look(const struct file *file, struct statx *ret)
{
	if (statx(file->fds[0], "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, ret) != 0)
		return !down(file, "stat");
	return true;
}

static struct timespec time_of(const struct statx_timestamp *stamp)
{
	return (struct timespec){ stamp->tv_sec, stamp->tv_nsec };
}

static int compare(struct timespec a, struct timespec b)
{
	return a.tv_sec != b.tv_sec ? (a.tv_sec < b.tv_sec ? -1 : 1) : a.tv_nsec < b.tv_nsec ? -1 : a.tv_nsec > b.tv_nsec;
}

/* Attributes are as they were left: nothing but an operation changes them. */
static void check_status(struct file *file)
{
	struct statx now;
	if (!look(file, &now))
		return;
	if (now.stx_size != file->model->size)
		fail(file, "size is %llu, not %llu", (unsigned long long)now.stx_size, (unsigned long long)file->model->size);
	if ((now.stx_mode & 07777) != file->mode)
		fail(file, "mode is %o, not %o", now.stx_mode & 07777, (unsigned)file->mode);
	if (now.stx_ino != file->number || now.stx_nlink != 1u + (file->second[0] != 0))
		fail(file, "inode %llu (was %llu), %u links", (unsigned long long)now.stx_ino, (unsigned long long)file->number, now.stx_nlink);
	if (now.stx_blocks * 512 > 3 * MODEL_BYTES)
		fail(file, "it takes %llu blocks", (unsigned long long)now.stx_blocks);
	if (file->times_known && !file->map_dirty && compare(time_of(&now.stx_mtime), file->modified) != 0)
		fail(file, "time of modification became %lld.%09u without a change, was %lld.%09ld", (long long)now.stx_mtime.tv_sec,
		     now.stx_mtime.tv_nsec, (long long)file->modified.tv_sec, file->modified.tv_nsec);
	if (file->times_known && compare(time_of(&now.stx_ctime), file->changed) < 0)
		fail(file, "time of change went back");
}

static void learn_status(struct file *file, bool changed)
{
	struct statx now;
	if (!look(file, &now))
		return;
	struct timespec before = file->modified;
	file->modified = time_of(&now.stx_mtime);
	file->changed = time_of(&now.stx_ctime);
	if (changed && file->times_known && compare(before, file->modified) > 0 && before.tv_sec > 1500000000)
		fail(file, "time of modification went back by a change");
	file->times_known = true;
}

static void same(const struct file *file, const uint8_t *got, uint64_t at, size_t count, const char *how)
{
	const uint8_t *want = file->model->bytes + at;
	if (memcmp(got, want, count) == 0)
		return;
	size_t first = 0, wrong = 0;
	while (got[first] == want[first])
		first++;
	for (size_t i = first; i < count; i++)
		wrong += got[i] != want[i];
	fail(file, "%s of %zu bytes at %llu: %zu bytes differ from byte %llu on (chunk %llu): %02x, not %02x", how, count,
	     (unsigned long long)at, wrong, (unsigned long long)at + first, (unsigned long long)(at + first) / MODEL_CHUNK, got[first],
	     want[first]);
}

static bool read_all(const struct file *file, int fd, uint64_t *ret_size)
{
	ssize_t got = pread(fd, scratch, MODEL_BYTES, 0);
	if (got < 0)
		return !down(file, "read of all");
	*ret_size = (uint64_t)got;
	return true;
}

static void check_all(const struct file *file)
{
	uint64_t size = 0;
	if (read_all(file, file->fds[0], &size) && size != file->model->size && !cut_short())
		fail(file, "%llu bytes can be read, not %llu", (unsigned long long)size, (unsigned long long)file->model->size);
	same(file, scratch, 0, (size_t)size, "read"); /* nothing if it could not be read */
}

/* --- operations ------------------------------------------------------------------------------------------------------------ */

static const int open_flags[] = { O_RDWR, O_RDWR | O_APPEND, O_RDWR | O_DIRECT, O_RDWR | O_DSYNC, O_RDONLY, O_RDWR };

static int some(const struct file *file, bool write)
{
	for (;;) {
		int i = (int)next(HANDLES);
		if (!write || (file->flags[i] & O_ACCMODE) != O_RDONLY)
			return i;
	}
}

static void range(uint64_t *ret_at, size_t *ret_count, bool aligned)
{
	uint64_t at = next(4) ? next(MODEL_BYTES) : next(30000);
	size_t count = next(3) ? 1 + next(next(2) ? 600 : LENGTH_MAX) : MODEL_CHUNK * (1 + next(16));
	if (aligned || next(4) == 0) {
		at = at / MODEL_CHUNK * MODEL_CHUNK;
		count = (count + MODEL_CHUNK - 1) / MODEL_CHUNK * MODEL_CHUNK;
	}
	if (at + count > MODEL_BYTES)
		count = (size_t)(MODEL_BYTES - at);
	*ret_at = at;
	*ret_count = count;
}

static void acknowledged(struct file *file)
{
	model_durable(file->model);
	if (file->map_dirty) /* written back now, which changes times on FUSE file systems */
		file->times_known = false;
	file->map_dirty = false;
}

static void do_write(struct file *file)
{
	int i = some(file, true), flags = file->flags[i];
	uint64_t at;
	size_t count;
	range(&at, &count, (flags & O_DIRECT) != 0);
	if (flags & O_APPEND) {
		at = file->model->size;
		count = at + count > MODEL_BYTES ? (size_t)(MODEL_BYTES - at) : count;
	}
	model_fill(direct, count, next(UINT32_MAX));
	note("f%d write %zu at %llu flags %x", (int)(file - files), count, (unsigned long long)at, (unsigned)flags);
	model_write(file->model, at, direct, count);
	ssize_t done = pwrite(file->fds[i], direct, count, (off_t)at);
	if (done < 0)
		(void)down(file, "write");
	else if ((size_t)done != count && !cut_short())
		fail(file, "%zd bytes were written", done);
	else if ((flags & O_DSYNC) == O_DSYNC && !file->map_dirty && !crashed)
		acknowledged(file);
	learn_status(file, true);
}

static void do_read(struct file *file)
{
	int i = some(file, false);
	uint64_t at;
	size_t count;
	range(&at, &count, (file->flags[i] & O_DIRECT) != 0);
	note("f%d read %zu at %llu flags %x", (int)(file - files), count, (unsigned long long)at, (unsigned)file->flags[i]);
	size_t want = at >= file->model->size ? 0 : file->model->size - at < count ? (size_t)(file->model->size - at) : count;
	ssize_t got = pread(file->fds[i], direct, count, (off_t)at);
	if (got < 0)
		(void)down(file, "read");
	else if ((size_t)got != want && !cut_short())
		fail(file, "%zd bytes were read, not %zu", got, want);
	else
		same(file, direct, at, (size_t)got, "read");
}

static void do_map(struct file *file)
{
	if (!file->map) {
		void *map = mmap(NULL, MODEL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file->fds[0], 0);
		if (map == MAP_FAILED) {
			(void)down(file, "mmap");
			return;
		}
		file->map = map;
	}
	uint64_t at;
	size_t count;
	range(&at, &count, false);
	if (at >= file->model->size)
		return;
	count = file->model->size - at < count ? (size_t)(file->model->size - at) : count;
	unsigned what = next(5);
	note("f%d map-%s %zu at %llu", (int)(file - files), what < 2 ? "read" : what < 4 ? "write" : "write-msync", count,
	     (unsigned long long)at);
	model_fill(direct, count, next(UINT32_MAX));
	if (what >= 2) { /* the kernel may write back a page while it is being filled, also if that ends in SIGBUS */
		model_write(file->model, at, direct, count);
		file->map_dirty = file->model->mapped = true;
		file->times_known = false;
	}
	if (sigsetjmp(fault, 1) != 0) {
		guarded = false;
		errno = EIO;
		(void)down(file, "access to a mapping");
		return;
	}
	guarded = true;
	if (what < 2)
		memcpy(direct, file->map + at, count);
	else
		memcpy(file->map + at, direct, count);
	guarded = false;
	if (what < 2) {
		same(file, direct, at, count, "mapping");
		return;
	}
	if (what == 4 && msync(file->map, MODEL_BYTES, MS_SYNC) != 0)
		(void)down(file, "msync");
	else if (what == 4)
		acknowledged(file);
}

static void do_unmap(struct file *file)
{
	if (file->map)
		(void)munmap(file->map, MODEL_BYTES);
	file->map = NULL;
}

static void do_allocate(struct file *file)
{
	static const struct {
		const char *name;
		int mode;
	} kinds[] = { { "punch", FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE }, { "zero", FALLOC_FL_ZERO_RANGE },
		      { "zero-keep", FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE }, { "allocate", 0 }, { "allocate-keep", FALLOC_FL_KEEP_SIZE } };
	unsigned kind = next(COUNT(kinds));
	int i = some(file, true);
	uint64_t at;
	size_t count;
	range(&at, &count, false);
	uint64_t end = at + count;
	note("f%d %s %zu at %llu", (int)(file - files), kinds[kind].name, count, (unsigned long long)at);
	if (kind < 3)
		model_zero(file->model, at, count, (kinds[kind].mode & FALLOC_FL_KEEP_SIZE) != 0);
	else if (kind == 3 && end > file->model->size)
		model_truncate(file->model, end);
	if (fallocate(file->fds[i], kinds[kind].mode, (off_t)at, (off_t)count) != 0)
		(void)down(file, kinds[kind].name);
	learn_status(file, true);
}

static void do_truncate(struct file *file)
{
	uint64_t size = next(8) ? next(MODEL_BYTES) : next(3) ? file->model->size / 2 : 0;
	if (next(6) == 0)
		size = size / MODEL_CHUNK * MODEL_CHUNK;
	note("f%d truncate %llu from %llu", (int)(file - files), (unsigned long long)size, (unsigned long long)file->model->size);
	model_truncate(file->model, size);
	int rc = next(2) ? ftruncate(file->fds[some(file, true)], (off_t)size) : 0;
	struct stat status;
	if (rc == 0 && fstatat(directory, file->name, &status, 0) == 0 && (uint64_t)status.st_size != size) {
		char path[64];
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", directory, file->name);
		rc = truncate(path, (off_t)size);
	}
	if (rc != 0)
		(void)down(file, "truncate");
	learn_status(file, true);
}

static void do_copy(struct file *file)
{
	struct file *from = &files[next(FILES)];
	uint64_t at, to = next(MODEL_BYTES);
	size_t count;
	range(&at, &count, false);
	if (at >= from->model->size)
		return;
	count = from->model->size - at < count ? (size_t)(from->model->size - at) : count;
	count = to + count > MODEL_BYTES ? (size_t)(MODEL_BYTES - to) : count;
	int in = some(from, false), out = some(file, true);
	if ((file->flags[out] | from->flags[in]) & (O_DIRECT | O_APPEND) || (from == file && at < to + count && to < at + count))
		return;
	note("f%d copy f%d %zu from %llu to %llu", (int)(file - files), (int)(from - files), count, (unsigned long long)at,
	     (unsigned long long)to);
	memcpy(direct, from->model->bytes + at, count);
	model_write(file->model, to, direct, count);
	struct statx known; /* the kernel copies what it knows of, and does not ask whether another node made it longer */
	(void)(other >= 0 && statx(from->fds[in], "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_SIZE, &known));
	for (size_t done = 0; done < count;) {
		off_t source = (off_t)(at + done), target = (off_t)(to + done);
		ssize_t got = copy_file_range(from->fds[in], &source, file->fds[out], &target, count - done, 0);
		if (got < 0 && down(file, "copy_file_range"))
			break;
		if (got == 0 && cut_short())
			break;
		if (got == 0)
			fail(file, "copy_file_range ended after %zu of %zu bytes", done, count);
		done += (size_t)got;
	}
	file->times_known = false;
	learn_status(file, true);
}

static void do_sync(struct file *file)
{
	bool data = next(2);
	int fd = file->fds[some(file, false)];
	note("f%d %s", (int)(file - files), data ? "fdatasync" : "fsync");
	if ((data ? fdatasync(fd) : fsync(fd)) != 0)
		(void)down(file, "fsync");
	else
		acknowledged(file);
	if (!file->times_known)
		learn_status(file, false);
}

/* Ranges that are said to be holes must read as zeros, and the answers must fit together. */
static void do_seek(struct file *file)
{
	uint64_t size = file->model->size, at = next(MODEL_BYTES);
	int fd = file->fds[some(file, false)];
	note("f%d seek from %llu", (int)(file - files), (unsigned long long)at);
	if (file->map_dirty) /* FUSE file systems are not told of it before it is written back */
		return;
	off_t data = lseek(fd, (off_t)at, SEEK_DATA);
	if (data < 0 && errno != ENXIO && down(file, "SEEK_DATA"))
		return;
	if (at >= size && data >= 0)
		fail(file, "SEEK_DATA behind the end found %lld", (long long)data);
	uint64_t until = data < 0 ? size : (uint64_t)data;
	for (uint64_t i = at; i < until; i++)
		if (file->model->bytes[i])
			fail(file, "SEEK_DATA from %llu says that byte %llu is in a hole", (unsigned long long)at, (unsigned long long)i);
	if (at >= size)
		return;
	off_t hole = lseek(fd, (off_t)at, SEEK_HOLE);
	if (hole < 0 && down(file, "SEEK_HOLE"))
		return;
	if ((uint64_t)hole < at || (uint64_t)hole > size)
		fail(file, "SEEK_HOLE from %llu found %lld", (unsigned long long)at, (long long)hole);
}

static void open_handle(struct file *file, unsigned i)
{
	file->flags[i] = i == 0 ? O_RDWR : open_flags[next(COUNT(open_flags))];
	int where = i > 0 && other >= 0 && next(2) ? other : directory;
	file->fds[i] = openat(where, file->second[0] && next(2) ? file->second : file->name, file->flags[i]);
	if (file->fds[i] < 0)
		(void)down(file, "open");
}

static void open_file(struct file *file)
{
	for (unsigned i = 0; i < HANDLES; i++)
		if (file->fds[i] < 0)
			open_handle(file, i);
}

static void do_reopen(struct file *file)
{
	bool all = next(3) == 0;
	note("f%d reopen %s", (int)(file - files), all ? "all" : "one");
	if (all)
		do_unmap(file);
	for (unsigned i = 0; i < HANDLES; i++)
		if (all || i == 1 + operation % (HANDLES - 1)) {
			if (file->fds[i] >= 0 && close(file->fds[i]) != 0)
				(void)down(file, "close");
			file->fds[i] = -1;
		}
	if (all && next(4) == 0 && !crashing) /* time for what was closed to be sealed */
		(void)nanosleep(&(struct timespec){ .tv_nsec = (long)next(700) * 1000000 }, NULL);
	open_file(file);
	if (all && !crashed)
		check_all(file);
}

static void do_names(struct file *file)
{
	char name[32];
	static unsigned count;
	(void)snprintf(name, sizeof(name), "n-%u", ++count);
	unsigned what = next(3);
	note("f%d %s", (int)(file - files), what == 0 ? "rename" : file->second[0] ? "unlink" : "link");
	if (what == 0) {
		if (renameat(directory, file->name, directory, name) == 0 || (crashing && faccessat(directory, name, F_OK, 0) == 0))
			(void)snprintf(file->name, sizeof(file->name), "%s", name);
		else
			(void)down(file, "rename");
	} else if (file->second[0]) {
		bool first = what == 1; /* of the two names */
		if (unlinkat(directory, first ? file->name : file->second, 0) != 0) {
			(void)down(file, "unlink");
			return;
		}
		if (first)
			(void)snprintf(file->name, sizeof(file->name), "%s", file->second);
		file->second[0] = 0;
	} else {
		if (linkat(directory, file->name, directory, name, 0) != 0)
			(void)down(file, "link");
		else
			(void)snprintf(file->second, sizeof(file->second), "%s", name);
	}
}

static void do_attributes(struct file *file)
{
	int fd = file->fds[some(file, true)];
	unsigned what = next(3);
	note("f%d %s", (int)(file - files), what == 0 ? "utimens" : what == 1 ? "chmod" : "xattr");
	if (what == 0) {
		struct timespec times[2] = { { .tv_sec = next(1000000000), .tv_nsec = next(1000000000) } };
		times[1] = times[0];
		if (futimens(fd, times) != 0)
			(void)down(file, "utimens");
		learn_status(file, false);
		/* what was written through a mapping may be written back by the kernel at any time, which is a change */
		if (!crashed && !file->map_dirty && compare(file->modified, times[1]) != 0)
			fail(file, "utimens did not set the time");
	} else if (what == 1) {
		mode_t mode = 0600 | next(0200);
		if (fchmod(fd, mode) == 0)
			file->mode = mode;
		else
			(void)down(file, "chmod");
	} else {
		unsigned got = 0;
		ssize_t bytes = fgetxattr(fd, "user.note", &got, sizeof(got));
		if (bytes < 0 && errno != ENODATA && down(file, "getxattr"))
			return;
		if (got != file->note)
			fail(file, "attribute is %u, not %u", got, file->note);
		got = next(UINT32_MAX);
		if (fsetxattr(fd, "user.note", &got, sizeof(got), 0) == 0)
			file->note = got;
		else
			(void)down(file, "setxattr");
	}
}

/* --- crash ----------------------------------------------------------------------------------------------------------------- */

static void *killer(void *context)
{
	const long *job = context;
	(void)nanosleep(&(struct timespec){ .tv_nsec = job[1] }, NULL);
	(void)kill((pid_t)job[0], SIGKILL);
	return NULL;
}

static void exercise(struct file *file);

static void close_all(struct file *file)
{
	do_unmap(file);
	for (unsigned i = 0; i < HANDLES; i++) {
		if (file->fds[i] >= 0)
			(void)close(file->fds[i]);
		file->fds[i] = -1;
	}
}

/* After a crash: names are what they were (they are below), contents as at the last fsync or newer. */
static void recover(struct file *file)
{
	struct stat status;
	uint64_t size;
	file->second[0] = fstatat(directory, file->second, &status, 0) == 0 ? file->second[0] : 0;
	open_file(file);
	if (fstat(file->fds[0], &status) != 0 || !read_all(file, file->fds[0], &size))
		fail(file, "it can't be read after a crash");
	if ((uint64_t)status.st_size != size || status.st_ino != file->number)
		fail(file, "after a crash: size %lld, %llu bytes can be read, inode %llu (was %llu)", (long long)status.st_size,
		     (unsigned long long)size, (unsigned long long)status.st_ino, (unsigned long long)file->number);
	uint64_t low = file->model->size_min, high = file->model->size_max;
	int chunk = model_adopt(file->model, scratch, size);
	if (chunk == (int)MODEL_CHUNKS)
		fail(file, "after a crash its size is %llu; it was %llu to %llu since the last fsync", (unsigned long long)size,
		     (unsigned long long)low, (unsigned long long)high);
	if (chunk >= 0)
		fail(file, "after a crash chunk %d holds what it never held since the last fsync", chunk);
	file->mode = status.st_mode & 07777; /* a change of it may have been under way */
	if (fgetxattr(file->fds[0], "user.note", &file->note, sizeof(file->note)) < 0)
		file->note = 0;
	if (status.st_nlink == 2 && !file->second[0])
		fail(file, "after a crash a name is left that was never acknowledged"); /* never: link and unlink are tried once */
	file->map_dirty = false;
	learn_status(file, false);
}

static void do_crash(void)
{
	char line[32];
	pthread_t thread;
	(void)printf("ready\n");
	(void)fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		fail(NULL, "no process id");
	long job[2] = { strtol(line, NULL, 10), (long)next(next(2) ? 2000000 : 300000000) };
	crashing = true;
	crashed = false;
	if (pthread_create(&thread, NULL, killer, job) != 0)
		fail(NULL, "no thread");
	while (!crashed) {
		operation++;
		exercise(&files[next(FILES)]);
	}
	(void)pthread_join(thread, NULL);
	note("crash");
	for (unsigned i = 0; i < FILES; i++)
		close_all(&files[i]);
	(void)close(directory);
	(void)printf("remount\n");
	(void)fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		fail(NULL, "no remount");
	crashing = crashed = false;
}

static void exercise(struct file *file)
{
	static void (*const kinds[])(struct file *file) = { do_write,	 do_write, do_write, do_read, do_read,	do_map,	  do_map,	do_unmap,
							    do_allocate, do_sync,  do_seek,  do_copy, do_names, do_reopen, do_attributes, do_truncate };
	unsigned kind = next(COUNT(kinds));
	if (kinds[kind] == do_names && crashing) /* what is under way there can't be told from what was done */
		kind = 0;
	if (kinds[kind] == do_map && other >= 0) /* what is mapped need not show what another node writes */
		kind = 0;
	note("f%d nothing", (int)(file - files));
	if (!crashing)
		check_status(file);
	kinds[kind](file);
}

static void make(struct file *file, unsigned number)
{
	struct stat status;
	file->model = calloc(1, sizeof(*file->model));
	(void)snprintf(file->name, sizeof(file->name), "f-%u", number);
	int fd = openat(directory, file->name, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (!file->model || fd < 0 || fsync(fd) != 0 || fstat(fd, &status) != 0)
		fail(file, "cannot make it");
	(void)close(fd);
	file->mode = 0600;
	file->number = status.st_ino;
	memset(file->fds, 0xff, sizeof(file->fds)); /* -1 each */
	open_file(file);
}

int main(int argc, char **argv)
{
	uint64_t operations = UINT64_MAX, seconds = UINT64_MAX, crash_count = 0;
	const struct {
		const char *name;
		uint64_t *value;
	} words[] = { { "--seed", &seed }, { "--operations", &operations }, { "--seconds", &seconds }, { "--crashes", &crashes } };
	for (int i = 2; i + 1 < argc; i += 2) {
		size_t word = 0;
		for (; word < COUNT(words) && strcmp(argv[i], words[word].name) != 0; word++)
			;
		if (word < COUNT(words))
			*words[word].value = strtoull(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--other") != 0 || (other = open(argv[i + 1], O_RDONLY | O_DIRECTORY)) < 0)
			return 2;
	}
	if (argc < 2 || (directory = open(argv[1], O_RDONLY | O_DIRECTORY)) < 0 || !(scratch = aligned_alloc(4096, MODEL_BYTES)) ||
	    !(direct = aligned_alloc(4096, MODEL_BYTES)))
		return 2;
	random_state = seed;
	(void)signal(SIGBUS, bus);
	(void)umask(0);
	time_t end = time(NULL) + (time_t)(seconds > 1000000 ? 1000000 : seconds);
	for (unsigned i = 0; i < FILES; i++)
		make(&files[i], i);
	for (; operation < operations && time(NULL) < end; operation++) {
		if (crashes && next((uint32_t)crashes) == 0) {
			do_crash();
			crash_count++;
			if ((directory = open(argv[1], O_RDONLY | O_DIRECTORY)) < 0)
				fail(NULL, "no directory after a crash");
			for (unsigned i = 0; i < FILES; i++)
				recover(&files[i]);
		}
		if (next(4000) == 0) { /* time for what was gathered to be written */
			note("sleep");
			(void)nanosleep(&(struct timespec){ .tv_sec = next(2), .tv_nsec = 300000000 }, NULL);
		} else {
			exercise(&files[next(FILES)]);
		}
		if (next(100) == 0)
			check_all(&files[next(FILES)]);
	}
	for (unsigned i = 0; i < FILES; i++) {
		check_all(&files[i]);
		close_all(&files[i]);
		model_free(files[i].model);
	}
	(void)printf("done operations=%llu crashes=%llu\n", (unsigned long long)operation, (unsigned long long)crash_count);
	return 0;
}
