/* Progress bar.  SPDX-License-Identifier: Apache-2.0 */
#include "base/progress.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define BAR_CELLS 24
#define FIRST_DRAW_NS 1000000000
#define DRAW_EVERY_NS 100000000

struct naos_progress {
	pthread_mutex_t lock;
	const char *label;
	uint64_t total_bytes, done_bytes, done_files;
	int64_t start_ns, drawn_ns;
	bool enabled, drawn;
};

static int64_t now_ns(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

const char *naos_format_bytes(uint64_t bytes, char buffer[static 16])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)bytes;
	unsigned unit = 0;
	while (value >= 1024 && unit + 1 < NAOS_ARRAY_LENGTH(units)) {
		value /= 1024;
		unit++;
	}
	(void)snprintf(buffer, 16, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return buffer;
}

int naos_progress_create(const char *label, uint64_t total_bytes, bool enabled, struct naos_progress **ret,
			 struct naos_error *err)
{
	struct naos_progress *progress = calloc(1, sizeof(*progress));
	if (!progress)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a progress bar");
	(void)pthread_mutex_init(&progress->lock, NULL);
	progress->label = label;
	progress->total_bytes = total_bytes;
	progress->start_ns = now_ns();
	progress->enabled = enabled && isatty(STDERR_FILENO);
	*ret = progress;
	return 0;
}

static void draw(struct naos_progress *progress, int64_t now)
{
	char done[16], rate[16], bar[BAR_CELLS + 1], left[32] = "";
	double seconds = (double)(now - progress->start_ns) / 1e9;
	double rate_bytes = (double)progress->done_bytes / seconds;
	unsigned cells = 0;
	if (progress->total_bytes) {
		double share = (double)progress->done_bytes / (double)progress->total_bytes;
		share = share > 1 ? 1 : share;
		cells = (unsigned)(share * BAR_CELLS);
		if (share > 0)
			(void)snprintf(left, sizeof(left), "%3.0f %%, %.0f s left", share * 100, seconds / share - seconds);
	}
	memset(bar, '-', BAR_CELLS);
	memset(bar, '#', cells);
	bar[BAR_CELLS] = 0;
	(void)fprintf(stderr, "\r\033[K%s [%s] %s, %llu files, %s/s %s", progress->label, bar,
		      naos_format_bytes(progress->done_bytes, done), (unsigned long long)progress->done_files,
		      naos_format_bytes((uint64_t)rate_bytes, rate), left);
	(void)fflush(stderr);
	progress->drawn = true;
	progress->drawn_ns = now;
}

void naos_progress_add(struct naos_progress *progress, uint64_t bytes, uint64_t files)
{
	(void)pthread_mutex_lock(&progress->lock);
	progress->done_bytes += bytes;
	progress->done_files += files;
	if (progress->enabled) {
		int64_t now = now_ns();
		if (now - progress->start_ns >= FIRST_DRAW_NS && now - progress->drawn_ns >= DRAW_EVERY_NS)
			draw(progress, now);
	}
	(void)pthread_mutex_unlock(&progress->lock);
}

struct naos_progress *naos_progress_free(struct naos_progress *progress)
{
	if (!progress)
		return NULL;
	if (progress->drawn)
		(void)fputs("\r\033[K", stderr);
	(void)pthread_mutex_destroy(&progress->lock);
	free(progress);
	return NULL;
}
