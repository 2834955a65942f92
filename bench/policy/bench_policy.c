/* Decisions a second of one thread: bench_policy POLICY REQUESTS [SECONDS].  REQUESTS are JSON lines.  Prints one JSON object.  What is
 * counted is CPU time of naos_policy_decide, which looks up the strings of each request anew.  SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "policy/request.h"

#define ROUNDS 5
#define MAX_REQUESTS 4096

static struct naos_policy_given requests[MAX_REQUESTS];

static double cpu_s(void)
{
	struct timespec time;
	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void must(int rc, const struct naos_error *err)
{
	if (rc == 0)
		return;
	fprintf(stderr, "%s\n", err->message);
	exit(1);
}

static size_t read_requests(const struct naos_policy *policy, const char *path)
{
	FILE *file = fopen(path, "re");
	struct naos_error err;
	char *line = NULL;
	size_t room = 0, count = 0;
	while (file && count < MAX_REQUESTS && getline(&line, &room, file) > 0) {
		json_t *object = json_loads(line, 0, NULL); /* kept: requests point into it */
		naos_policy_given_start(&requests[count], 0);
		must(naos_policy_given_add(&requests[count], policy, object, path, &err), &err);
		count++;
	}
	free(line);
	if (file)
		(void)fclose(file);
	return count;
}

int main(int argc, char **argv)
{
	naos_autopolicy struct naos_policy *policy = NULL;
	struct naos_policy_decision decision;
	struct naos_error err;
	unsigned long levels[4] = { 0 };
	double best = 0, seconds = argc > 3 ? atof(argv[3]) : 1;
	if (argc < 3)
		return 2;
	must(naos_policy_load(argv[1], &policy, &err), &err);
	size_t count = read_requests(policy, argv[2]);
	if (count == 0)
		return 1;
	for (size_t i = 0; i < count; i++) {
		naos_policy_decide(policy, &requests[i].request, &decision);
		levels[decision.level]++;
	}
	for (int round = 0; round < ROUNDS; round++) {
		unsigned long decisions = 0;
		double begin = cpu_s(), used;
		do {
			for (size_t i = 0; i < count; i++)
				naos_policy_decide(policy, &requests[i].request, &decision);
			decisions += count;
			used = cpu_s() - begin;
		} while (used < seconds);
		double rate = (double)decisions / used;
		best = rate > best ? rate : best;
	}
	printf("{\"rules\":%zu,\"bytes\":%zu,\"requests\":%zu,\"denied\":%lu,\"metadata_only\":%lu,\"pixels_only\":%lu,\"full\":%lu,"
	       "\"decisions_per_cpu_s\":%.0f,\"ns\":%.1f}\n", naos_policy_rule_count(policy), naos_policy_bytes(policy), count,
	       levels[0], levels[1], levels[2], levels[3], best, 1e9 / best);
	return 0;
}
