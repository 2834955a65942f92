/* One phase of work with many small files, and the files a second that it did:
 * bench_fs create|stat|readdir|read|rename|unlink DIRECTORY FILES BYTES.  SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PER_DIRECTORY 100u

struct work {
	const char *directory;
	unsigned files;
	size_t bytes;
	char *buffer;
	char path[4096];
};

static double now(void)
{
	struct timespec time;
	(void)clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static const char *directory_of(struct work *work, unsigned number)
{
	(void)snprintf(work->path, sizeof(work->path), "%s/d%04u", work->directory, number);
	return work->path;
}

static const char *file_of(struct work *work, unsigned number, const char *prefix)
{
	(void)snprintf(work->path, sizeof(work->path), "%s/d%04u/%s-%06u.dat", work->directory, number / PER_DIRECTORY, prefix, number);
	return work->path;
}

static void create(struct work *work, unsigned number)
{
	if (number % PER_DIRECTORY == 0 && mkdir(directory_of(work, number / PER_DIRECTORY), 0755) != 0)
		err(1, "mkdir %s", work->path);
	int fd = open(file_of(work, number, "file"), O_CREAT | O_EXCL | O_WRONLY, 0644);
	if (fd < 0 || write(fd, work->buffer, work->bytes) != (ssize_t)work->bytes || close(fd) != 0)
		err(1, "create %s", work->path);
}

static void check_status(struct work *work, unsigned number)
{
	struct stat status;
	if (stat(file_of(work, number, "file"), &status) != 0)
		err(1, "stat %s", work->path);
	if ((size_t)status.st_size != work->bytes)
		errx(1, "stat %s: %lld bytes", work->path, (long long)status.st_size);
}

/* Names and status of a whole directory, at its first file. */
static void list(struct work *work, unsigned number)
{
	struct stat status;
	const struct dirent *entry;
	unsigned seen = 0;
	if (number % PER_DIRECTORY != 0)
		return;
	DIR *stream = opendir(directory_of(work, number / PER_DIRECTORY));
	if (!stream)
		err(1, "opendir %s", work->path);
	while ((entry = readdir(stream)))
		if (entry->d_name[0] != '.') {
			if (fstatat(dirfd(stream), entry->d_name, &status, 0) != 0)
				err(1, "fstatat %s/%s", work->path, entry->d_name);
			seen++;
		}
	(void)closedir(stream);
	unsigned left = work->files - number;
	if (seen != (left < PER_DIRECTORY ? left : PER_DIRECTORY))
		errx(1, "readdir %s: %u files", work->path, seen);
}

static void read_whole(struct work *work, unsigned number)
{
	int fd = open(file_of(work, number, "file"), O_RDONLY);
	if (fd < 0 || read(fd, work->buffer, work->bytes) != (ssize_t)work->bytes || close(fd) != 0)
		err(1, "read %s", work->path);
}

static void move(struct work *work, unsigned number)
{
	char from[sizeof(work->path)];
	(void)snprintf(from, sizeof(from), "%s", file_of(work, number, "file"));
	if (rename(from, file_of(work, number, "moved")) != 0)
		err(1, "rename %s", from);
}

static void delete(struct work *work, unsigned number)
{
	if (unlink(file_of(work, number, "moved")) != 0)
		err(1, "unlink %s", work->path);
	if ((number + 1) % PER_DIRECTORY == 0 || number + 1 == work->files)
		if (rmdir(directory_of(work, number / PER_DIRECTORY)) != 0)
			err(1, "rmdir %s", work->path);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*step)(struct work *work, unsigned number);
	} phases[] = {
		{ "create", create },	{ "stat", check_status }, { "readdir", list },
		{ "read", read_whole }, { "rename", move },	  { "unlink", delete },
	};
	if (argc != 5)
		errx(2, "usage: bench_fs PHASE DIRECTORY FILES BYTES");
	struct work work = { .directory = argv[2], .files = (unsigned)strtoul(argv[3], NULL, 10), .bytes = strtoul(argv[4], NULL, 10) };
	work.buffer = malloc(work.bytes + 1);
	if (!work.buffer)
		err(1, "malloc");
	for (size_t i = 0; i < work.bytes; i++)
		work.buffer[i] = (char)(i * 2654435761u >> 13);
	for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++) {
		if (strcmp(argv[1], phases[i].name) != 0)
			continue;
		double begin = now();
		for (unsigned number = 0; number < work.files; number++)
			phases[i].step(&work, number);
		(void)printf("%.1f\n", work.files / (now() - begin));
		free(work.buffer);
		return 0;
	}
	errx(2, "no phase '%s'", argv[1]);
}
