/* Buckets of tokens.  SPDX-License-Identifier: Apache-2.0 */
#include "keyd/rate.h"

#include <pthread.h>
#include <string.h>

#include "keyd/limits.h"

#define CHAINS 1024

struct bucket {
	struct bucket *next;
	int64_t seen_ns;
	double tokens;
	char identity[NAOS_KEYD_MAX_IDENTITY_BYTES + 1];
};

struct naos_rates {
	pthread_mutex_t lock;
	size_t count;
	struct bucket *chains[CHAINS];
};

int naos_rates_create(struct naos_rates **ret, struct naos_error *err)
{
	struct naos_rates *rates = calloc(1, sizeof(*rates));
	if (!rates)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for rate limits");
	(void)pthread_mutex_init(&rates->lock, NULL);
	*ret = rates;
	return 0;
}

/* Those that have said nothing for a minute, or all. */
static void sweep(struct naos_rates *rates, int64_t before_ns)
{
	for (size_t i = 0; i < CHAINS; i++)
		for (struct bucket **at = &rates->chains[i]; *at;) {
			struct bucket *bucket = *at;
			if (bucket->seen_ns < before_ns) {
				*at = bucket->next;
				free(bucket);
				rates->count--;
			} else {
				at = &bucket->next;
			}
		}
}

struct naos_rates *naos_rates_free(struct naos_rates *rates)
{
	if (!rates)
		return NULL;
	sweep(rates, INT64_MAX);
	(void)pthread_mutex_destroy(&rates->lock);
	free(rates);
	return NULL;
}

static size_t chain_of(const char *identity)
{
	uint64_t hash = 14695981039346656037u; /* FNV-1a */
	for (; *identity; identity++)
		hash = (hash ^ (uint8_t)*identity) * 1099511628211u;
	return (size_t)(hash % CHAINS);
}

static struct bucket *find(struct naos_rates *rates, const char *identity, uint64_t burst, int64_t now_ns)
{
	struct bucket **chain = &rates->chains[chain_of(identity)];
	for (struct bucket *bucket = *chain; bucket; bucket = bucket->next)
		if (strcmp(bucket->identity, identity) == 0)
			return bucket;
	if (rates->count >= NAOS_KEYD_MAX_IDENTITIES)
		sweep(rates, now_ns - 60000000000LL);
	struct bucket *bucket = rates->count < NAOS_KEYD_MAX_IDENTITIES ? calloc(1, sizeof(*bucket)) : NULL;
	if (!bucket)
		return NULL;
	(void)snprintf(bucket->identity, sizeof(bucket->identity), "%s", identity);
	bucket->tokens = (double)burst;
	bucket->seen_ns = now_ns;
	bucket->next = *chain;
	*chain = bucket;
	rates->count++;
	return bucket;
}

bool naos_rates_take(struct naos_rates *rates, const char *identity, uint64_t rate, uint64_t burst, uint64_t count, int64_t now_ns)
{
	if (burst < rate)
		burst = rate;
	(void)pthread_mutex_lock(&rates->lock);
	struct bucket *bucket = find(rates, identity, burst, now_ns);
	bool allowed = false;
	if (bucket) {
		bucket->tokens += (double)rate * (double)(now_ns - bucket->seen_ns) / 1e9;
		if (bucket->tokens > (double)burst)
			bucket->tokens = (double)burst;
		bucket->seen_ns = now_ns;
		allowed = bucket->tokens >= (double)count;
		if (allowed)
			bucket->tokens -= (double)count;
	}
	(void)pthread_mutex_unlock(&rates->lock);
	return allowed;
}
