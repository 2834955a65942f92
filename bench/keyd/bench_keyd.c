/* Wraps a second of a key manager behind kmip://, over so many connections at once:
 *     bench_keyd URI KEY-NAME CONNECTIONS BATCH SECONDS
 * prints one JSON object: wraps, seconds, CPU seconds of this client, and the latencies of requests in microseconds.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "keys/provider.h"

#define MAX_CONNECTIONS 256
#define MAX_BATCH 256
#define MAX_SAMPLES 200000

struct worker {
	pthread_t thread;
	struct naos_provider *provider;
	const char *name;
	size_t batch;
	int64_t end_ns;
	uint64_t wraps;
	uint32_t *samples_us;
	size_t samples;
	int rc;
	struct naos_error error;
};

static int64_t now_ns(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	static _Thread_local struct naos_wrap_item items[MAX_BATCH];
	struct naos_secret *key;
	worker->rc = naos_secret_random(32, &key, &worker->error);
	for (size_t i = 0; worker->rc == 0 && i < worker->batch; i++)
		items[i] = (struct naos_wrap_item){ .context = { .kind = NAOS_WRAP_FILE }, .key = key };
	while (worker->rc == 0 && now_ns() < worker->end_ns) {
		int64_t start = now_ns();
		worker->rc = naos_keys_wrap(worker->provider, worker->name, items, worker->batch, &worker->error);
		if (worker->samples < MAX_SAMPLES)
			worker->samples_us[worker->samples++] = (uint32_t)((now_ns() - start) / 1000);
		worker->wraps += worker->batch;
	}
	return NULL;
}

static int by_value(const void *left, const void *right)
{
	uint32_t l = *(const uint32_t *)left, r = *(const uint32_t *)right;
	return (l > r) - (l < r);
}

static int report(struct worker *workers, size_t count, size_t batch, double seconds)
{
	uint64_t wraps = 0;
	size_t total = 0, used = 0;
	for (size_t i = 0; i < count; i++) {
		if (workers[i].rc != 0)
			return (void)fprintf(stderr, "bench_keyd: %s\n", workers[i].error.message), 1;
		total += workers[i].samples;
	}
	uint32_t *all = calloc(total + 1, sizeof(*all));
	for (size_t i = 0; all && i < count; i++) {
		wraps += workers[i].wraps;
		for (size_t j = 0; j < workers[i].samples; j++)
			all[used++] = workers[i].samples_us[j];
	}
	if (!all || used == 0)
		return 1;
	qsort(all, used, sizeof(*all), by_value);
	struct rusage usage;
	(void)getrusage(RUSAGE_SELF, &usage);
	double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
	printf("{\"connections\": %zu, \"batch\": %zu, \"wraps\": %llu, \"seconds\": %.3f, \"wraps_per_s\": %.0f, \"client_cpu_s\": %.3f, "
	       "\"p50_us\": %u, \"p99_us\": %u, \"max_us\": %u}\n",
	       count, batch, (unsigned long long)wraps, seconds, (double)wraps / seconds, cpu, all[used / 2],
			all[used * 99 / 100], all[used - 1]);
	free(all);
	return 0;
}

int main(int argc, char **argv)
{
	static struct worker workers[MAX_CONNECTIONS];
	struct naos_error err = NAOS_ERROR_INIT;
	size_t count = argc == 6 ? strtoul(argv[3], NULL, 10) : 0, batch = argc == 6 ? strtoul(argv[4], NULL, 10) : 0;
	if (count < 1 || count > MAX_CONNECTIONS || batch < 1 || batch > MAX_BATCH) {
		(void)fputs("usage: bench_keyd URI KEY-NAME CONNECTIONS BATCH SECONDS\n", stderr);
		return 2;
	}
	for (size_t i = 0; i < count; i++) { /* a provider each: so many connections, from the start */
		workers[i] = (struct worker){ .name = argv[2], .batch = batch, .samples_us = calloc(MAX_SAMPLES,
				sizeof(uint32_t)) };
		struct naos_mek *meks = NULL;
		size_t found;
		if (!workers[i].samples_us || naos_provider_open(argv[1], NULL, &workers[i].provider, &err) != 0 ||
		    naos_mek_list(workers[i].provider, &meks, &found, &err) != 0)
			return (void)fprintf(stderr, "bench_keyd: %s\n", err.message), 1;
		free(meks);
	}
	int64_t start = now_ns();
	for (size_t i = 0; i < count; i++) {
		workers[i].end_ns = start + (int64_t)strtoul(argv[5], NULL, 10) * 1000000000;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			return 1;
	}
	for (size_t i = 0; i < count; i++)
		(void)pthread_join(workers[i].thread, NULL);
	int rc = report(workers, count, batch, (double)(now_ns() - start) / 1e9);
	for (size_t i = 0; i < count; i++) {
		free(workers[i].samples_us);
		(void)naos_provider_close(workers[i].provider);
	}
	return rc;
}
