/* Files of a log directory.  SPDX-License-Identifier: Apache-2.0 */
#include "audit/tile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"

/* 1234067 → x001/x234/067 */
static const char *numbered(const char *folder, uint64_t number, const char *suffix, char path[static NAOS_TILE_PATH_BYTES])
{
	unsigned groups[8], count = 0;
	do {
		groups[count++] = (unsigned)(number % 1000);
		number /= 1000;
	} while (number > 0);
	int used = snprintf(path, NAOS_TILE_PATH_BYTES, "%s", folder);
	while (count-- > 0)
		used += snprintf(path + used, (size_t)(NAOS_TILE_PATH_BYTES - used), count > 0 ? "/x%03u" : "/%03u", groups[count]);
	(void)snprintf(path + used, (size_t)(NAOS_TILE_PATH_BYTES - used), "%s", suffix);
	return path;
}

const char *naos_tile_path(unsigned level, uint64_t number, char path[static NAOS_TILE_PATH_BYTES])
{
	char folder[16];
	(void)snprintf(folder, sizeof(folder), "tile/%u", level % 64);
	return numbered(folder, number, "", path);
}

const char *naos_bundle_path(uint64_t number, char path[static NAOS_TILE_PATH_BYTES])
{
	return numbered("records", number, ".jsonl", path);
}

unsigned naos_tile_width(unsigned level, uint64_t number, uint64_t size)
{
	uint64_t hashes = size >> (8 * level), first = number * NAOS_TILE_HASHES;
	if (first >= hashes)
		return 0;
	return hashes - first < NAOS_TILE_HASHES ? (unsigned)(hashes - first) : NAOS_TILE_HASHES;
}

int naos_tile_read(int dir_fd, unsigned level, uint64_t number, unsigned width, struct naos_hash *ret_hashes, struct naos_error *err)
{
	char path[NAOS_TILE_PATH_BYTES];
	size_t bytes = 0;
	naos_autoclose int fd = openat(dir_fd, naos_tile_path(level, number, path), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
	if (fd < 0 && errno == ENOENT)
		return naos_error_set(err, NAOS_E_INTEGRITY, "%s is missing", path);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s", path);
	int rc = naos_io_pread(fd, ret_hashes, width * sizeof(*ret_hashes), 0, &bytes, path, err);
	if (rc == 0 && bytes < width * sizeof(*ret_hashes))
		rc = naos_error_set(err, NAOS_E_INTEGRITY, "%s is cut short: %zu of %zu bytes", path, bytes, width * sizeof(*ret_hashes));
	return rc;
}

/* The folders above path; the name of a new one is made durable. */
static int make_folders(int dir_fd, const char *path, struct naos_error *err)
{
	char folder[NAOS_TILE_PATH_BYTES];
	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		(void)snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
		if (mkdirat(dir_fd, folder, 0750) != 0) {
			if (errno == EEXIST)
				continue;
			return naos_error_set_errno(err, errno, "cannot make the folder %s", folder);
		}
		int rc = naos_io_sync_parent(dir_fd, folder, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int naos_tile_open(int dir_fd, const char *path, bool fresh, int *ret_fd, struct naos_error *err)
{
	int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | (fresh ? O_CREAT | O_TRUNC : 0);
	int rc = fresh ? make_folders(dir_fd, path, err) : 0;
	if (rc != 0)
		return rc;
	naos_autoclose int fd = openat(dir_fd, path, flags, 0640);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s for writing", path);
	rc = fresh ? naos_io_sync_parent(dir_fd, path, err) : 0;
	if (rc == 0)
		*ret_fd = naos_fd_steal(&fd);
	return rc;
}

int naos_tile_write(int dir_fd, unsigned level, uint64_t number, unsigned first, unsigned count, const struct naos_hash *hashes,
		    bool durable, struct naos_error *err)
{
	char path[NAOS_TILE_PATH_BYTES];
	naos_autoclose int fd = -1;
	int rc = naos_tile_open(dir_fd, naos_tile_path(level, number, path), first == 0, &fd, err);
	if (rc == 0)
		rc = naos_io_pwrite(fd, hashes, count * sizeof(*hashes), first * sizeof(*hashes), path, err);
	if (rc == 0 && durable && fdatasync(fd) != 0)
		rc = naos_error_set_errno(err, errno, "cannot make %s durable", path);
	return rc;
}

void naos_bundle_split(struct naos_bundle *bundle)
{
	size_t at = 0;
	for (bundle->count = 0; bundle->count < NAOS_TILE_HASHES; bundle->count++) {
		const char *stop = memchr(bundle->data + at, '\n', bundle->bytes - at);
		if (!stop)
			return;
		at = (size_t)(stop - bundle->data) + 1;
		bundle->ends[bundle->count] = at;
	}
}

int naos_bundle_read(int dir_fd, uint64_t number, struct naos_bundle *ret, struct naos_error *err)
{
	char path[NAOS_TILE_PATH_BYTES];
	naos_autobundle struct naos_bundle bundle = { .data = NULL };
	struct stat status;
	naos_autoclose int fd = openat(dir_fd, naos_bundle_path(number, path), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
	if (fd < 0 && errno != ENOENT)
		return naos_error_set_errno(err, errno, "cannot open %s", path);
	if (fd >= 0 && fstat(fd, &status) != 0)
		return naos_error_set_errno(err, errno, "cannot open %s", path);
	size_t room = fd >= 0 && status.st_size > 0 ? (size_t)status.st_size : 0;
	if (room > NAOS_BUNDLE_MAX_BYTES)
		return naos_error_set(err, NAOS_E_INTEGRITY, "%s is larger than 256 records can be", path);
	bundle.data = malloc(room + 1);
	if (!bundle.data)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to read %s", path);
	int rc = fd >= 0 ? naos_io_pread(fd, bundle.data, room, 0, &bundle.bytes, path, err) : 0;
	if (rc != 0)
		return rc;
	naos_bundle_split(&bundle);
	*ret = bundle;
	bundle.data = NULL;
	return 0;
}

const char *naos_bundle_line(const struct naos_bundle *bundle, unsigned place, size_t *ret_bytes)
{
	size_t start = place > 0 ? bundle->ends[place - 1] : 0;
	*ret_bytes = bundle->ends[place] - 1 - start;
	return bundle->data + start;
}

void naos_tile_peaks(struct naos_hasher *hasher, unsigned level, const struct naos_hash *hashes, unsigned width, struct naos_tree *tree)
{
	for (unsigned bit = 8; bit-- > 0;)
		if (width >> bit & 1) {
			naos_hash_fold(hasher, hashes, 1u << bit, &tree->peaks[8 * level + bit]);
			hashes += 1u << bit;
		}
}
