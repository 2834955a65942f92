/* Crash enumeration of the sealed-file library: scripts, random sessions, two writers, attacks on sealed files.
 * Usage: crash [--seed N] [--rounds N] [--limit N] [--only scripts|sessions|writers|attacks]
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "fail.h"
#include "ops.h"

static const struct script {
	const char *name, *words;
} scripts[] = {
	{ "first writes in page 0's group", "w0 w0 w1+0,100 w1 f w0 w0 c" },
	{ "overwritten three times", "w0-2 f w2 w2 w2 f c" },
	{ "durable and new in one sector", "w0-2 f w2-3 w3-4 w2 w4+0,3000 f c" },
	{ "small appends", "w0+0,10 f w0+10,10 w0+20,4000 w0+4020,200 f w1+124,500 w2 w2 c" },
	{ "three sessions", "w0-1 c o w0 w1-2 c o w2+0,700 c" },
	{ "left unsealed, recovered at the next open", "w0-1 f l o w0 w1-2 l o w2+0,700 c" },
	{ "the border of group 0", "w16-19 f w17-18 w18 f w0 w17 c o w18 c" },
	{ "the border of group 1", "w60-66 f w65-66 w66 w66 f c" },
	{ "extended within a group", "w0+0,2000 f t0+3000 t15+5 f w2 w2 w2 f c" },
	{ "extended over groups by the map", "w0+0,2000 f t120+7 f w30 w30 f w2 c o w19 f w70 c" },
	{ "a write behind the end", "w0+0,100 w70+50,10 f w20 w69 c o w118+5,5 f c" },
	{ "a write behind the end, at a border", "w6 w66-68 f c o t114 w114 c" },
	{ "a write behind a hole that ends short", "w0 t65+4095 w66+1689,846 f w67 f c" },
	{ "a hole filled and not flushed", "w0 t80 f c o w30 w40 w31 c" },
	{ "truncated and grown", "w0-3 f t2+500 w2 f t1 f t3+900 f t0 w0 c" },
	{ "truncated inside a group", "w0-4 f t3 f w3 c" },
	{ "truncated inside a chunk, grown unflushed", "w0-1 f t0+1000 w1 f c" },
	{ "truncated over groups", "w15-20 w64-67 f t18 f w18 c o t66 w65 f t19+9 c" },
	{ "a file with a map truncated", "w0 t120 f w30 f t70 f t120 w116 c" },
	{ "punched", "w0-2 f p1 w1 p2 f w2 w2 f p0 c" },
	{ "punched ranges with parts", "w0-20 f p1+100,9000 p16+1,12000 f w17 p0-20 f c o p3 w3 p3 c" },
	{ "a punched chunk in a later session", "w0-2 c o p1 f w1 c o p1 c" },
	{ "crash, session, crash", "w0-2 f w2 x w0 c o w2 x w1-3 k w2 f x w2 c" },
	{ "crashes around a truncation", "w0-20 f t10 x w9-12 t5+5 x w5 t30 x w29 c" },
	{ "crashes around a map", "w0 t100 x w50 x w50 t10 x t100 x w70 c" },
	{ "sealed step by step", "w0-20 s s s s w1 s s w2+0,100 s s s s f p3 s s s s c" },
	{ "changed and flushed between the steps of sealing", "w0-2 f w1 s w1 s s f s w0 w2 f s s f s s w0 c" },
	{ "sealed step by step with a map and holes", "w0 t120 w30 s s s s w40 s p30 s s t100 s s s x s s s s w99 s s l o c" },
	{ "zeroed", "w0-3 f z1+100,6000 z3 w3 f z3+4000,9000 z2-30 f z10 w10 z90 c" },
	{ "only emptied", "w0-20 c o t0 c o w0+0,1 c" },
};

static bool born_again(struct checker *checker, struct disk **disk, struct disk *next, bool killed)
{
	struct view view;
	uint8_t *data;
	disk_free(*disk);
	*disk = next;
	if (!checker_look(checker, next, "what survived", &view, &data))
		return false;
	if (killed)
		oracle_survive(&checker->oracle, data, view.size);
	else
		oracle_start(&checker->oracle, data, view.size);
	view_free(&view);
	free(data);
	return true;
}

/* After a power cut, or with the cache kept, the next session. */
static void crash(struct checker *checker, struct disk **disk, struct naos_sealed_file **file, bool killed)
{
	struct disk *next;
	(*disk)->hook = NULL;
	next = killed ? disk_copy(*disk) : checker_random_image(checker, *disk);
	if (*file)
		checker_leave(*file);
	if (!born_again(checker, disk, next, killed)) /* the file never existed: start again */ {
		disk_free(*disk);
		*disk = disk_new();
		oracle_start(&checker->oracle, NULL, 0);
		checker_watch(checker, *disk);
		*file = checker_create(checker, *disk, NAOS_SEALED_LOCAL);
		return;
	}
	checker_watch(checker, *disk);
	*file = checker_open(checker, *disk, NAOS_SEALED_LOCAL);
}

static struct disk *run_script(struct checker *checker, const struct script *script, bool history)
{
	struct disk *disk = disk_new();
	if (history)
		disk_keep_history(disk);
	checker_watch(checker, disk);
	struct naos_sealed_file *file = checker_create(checker, disk, NAOS_SEALED_LOCAL);
	char words[200], *rest = words, *word;
	uint8_t fill = 1;
	(void)snprintf(words, sizeof(words), "%s", script->words);
	while ((word = strsep(&rest, " ")) != NULL) {
		struct op op;
		char letter = op_parse(word, fill += 17, &op);
		fail_at("script \"%s\"%s, at %s", script->name, checker->torn ? " (torn)" : "", word);
		if (letter == 'x' || letter == 'k') {
			crash(checker, &disk, &file, letter == 'k');
			continue;
		}
		if (!letter)
			violation("no such operation");
		(void)checker_do(checker, &file, disk, &op, false);
		if (checker->quiet)
			continue;
		if (file)
			checker_compare(checker, file, disk);
		disk->hook = NULL;
		checker_power_cuts(checker, disk, checker->limit);
		checker_watch(checker, disk);
	}
	disk->hook = NULL;
	if (file)
		violation("a script that does not close its file");
	return disk;
}

static uint64_t run_scripts(uint64_t seed, unsigned limit)
{
	uint64_t states = 0, sampled = 0;
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(scripts); i++)
		for (int variant = 0; variant < 4; variant++) {
			static const size_t gather[] = { 1, 2, 5, 64 };
			struct checker checker;
			bool torn = variant == 1 || variant == 3;
			checker_init(&checker, seed + i);
			checker.limit = limit;
			checker.torn = torn;
			checker.gather = variant < 2 ? 0 : gather[(seed + i + (unsigned)variant) % 4];
			checker.lazy = variant == 2 || (variant == 1 && i % 2);
			checker.killing = !torn || limit >= 16; /* the quick run's share */
			checker.depth = limit < 8 ? 1 : 2;
			disk_free(run_script(&checker, &scripts[i], false));
			states += checker.states;
			sampled += checker.sampled;
			checker_free(&checker);
		}
	printf("scripts: %zu, each whole and torn, with changes gathered and without; %" PRIu64 " crash states; at %" PRIu64
	       " points a sample of %u\n", NAOS_ARRAY_LENGTH(scripts), states, sampled, limit);
	return states;
}

/* --- random sessions --------------------------------------------------------------------------------------------------------- */

static void random_sessions(struct checker *checker, unsigned sessions, unsigned steps)
{
	struct disk *disk = disk_new();
	checker_watch(checker, disk);
	struct naos_sealed_file *file = checker_create(checker, disk, NAOS_SEALED_LOCAL);
	uint64_t max_chunks = rng_below(&checker->rng, 2) ? 24 : 120;
	for (unsigned session = 0; session < sessions; session++) {
		if (!file)
			file = checker_open(checker, disk, NAOS_SEALED_LOCAL);
		unsigned stop = (unsigned)rng_below(&checker->rng, 2 * steps);
		for (unsigned step = 0; step < steps && step <= stop; step++) {
			struct op op = op_random(&checker->rng, checker->oracle.size, max_chunks);
			(void)checker_do(checker, &file, disk, &op, false);
			checker_compare(checker, file, disk);
		}
		if (stop < steps) {
			crash(checker, &disk, &file, rng_below(&checker->rng, 10) < 3);
			continue;
		}
		const struct op end = { .kind = rng_below(&checker->rng, 4) ? OP_SEAL : OP_LEAVE };
		(void)checker_do(checker, &file, disk, &end, false);
	}
	disk->hook = NULL;
	if (file)
		checker_leave(file);
	disk_free(disk);
}

static uint64_t run_sessions(uint64_t seed, unsigned rounds)
{
	uint64_t states = 0;
	for (unsigned i = 0; i < rounds; i++) {
		struct checker checker;
		checker_init(&checker, seed * 1000003 + i);
		fail_at("random sessions, seed %" PRIu64 ", round %u", seed, i);
		checker.limit = 12;
		checker.torn = i % 2;
		checker.killing = i % 4 == 0;
		checker.gather = i % 3 ? (size_t)1 << rng_below(&checker.rng, 7) : 0;
		checker.lazy = i % 2;
		random_sessions(&checker, 4, 10);
		states += checker.states;
		checker_free(&checker);
	}
	printf("random sessions: %u rounds, %" PRIu64 " crash states\n", rounds, states);
	return states;
}

/* --- two writers ------------------------------------------------------------------------------------------------------------- */

struct pair {
	struct checker *checker;
	struct naos_sealed_file *files[2]; /* NULL: dead or closed */
	struct disk *disk;
	unsigned turn;
	unsigned left; /* changes that writer 1 may still make; 0: no limit */
	void (*checker_hook)(void *context, struct disk *disk, enum disk_event event, const struct naos_store *store, uint64_t offset,
			     uint64_t bytes);
};

static void pair_hook(void *context, struct disk *disk, enum disk_event event, const struct naos_store *store, uint64_t offset,
		      uint64_t bytes)
{
	struct pair *pair = context;
	struct view view;
	pair->checker_hook(pair->checker, disk, event, store, offset, bytes);
	disk->hook = NULL;
	if (event != DISK_FLUSH) {
		if (checker_look(pair->checker, disk, "a reader beside two writers", &view, NULL))
			view_free(&view);
		if (rng_below(&pair->checker->rng, 3) == 0) { /* the other node flushes */
			struct naos_store *other = disk_store(disk);
			checker_power_cuts(pair->checker, disk, pair->checker->limit / 2);
			if (other->ops->flush(other, NULL) != 0)
				violation("flush");
			other->ops->close(other);
		}
		if (pair->turn == 1 && pair->left && --pair->left == 0)
			disk_store_doom(naos_sealed_file_store(pair->files[1]));
	}
	disk->hook = pair_hook;
	disk->context = pair;
}

static void writer_died(struct pair *pair)
{
	struct checker *checker = pair->checker;
	struct view view;
	uint8_t *data;
	checker_leave(pair->files[1]);
	pair->files[1] = NULL;
	if (!checker_look(checker, pair->disk, "after a writer died", &view, &data))
		violation("a writer died: the file can't be read");
	oracle_survive(&checker->oracle, data, view.size);
	view_free(&view);
	free(data);
}

static void two_writers(struct checker *checker, bool die)
{
	struct disk *disk = disk_new();
	struct pair pair = { .checker = checker, .disk = disk };
	uint64_t max_chunks = rng_below(&checker->rng, 2) ? 9 : 70;
	checker_watch(checker, disk);
	pair.checker_hook = disk->hook;
	pair.files[0] = checker_create(checker, disk, NAOS_SEALED_SHARED);
	const struct op first = { .kind = OP_WRITE, .bytes = 3 * NAOS_CHUNK_BYTES, .fill = 9 }, flush = { .kind = OP_FLUSH };
	(void)checker_do(checker, &pair.files[0], disk, &first, false);
	(void)checker_do(checker, &pair.files[0], disk, &flush, false);
	pair.files[1] = checker_open(checker, disk, NAOS_SEALED_SHARED);
	pair.left = die ? 1 + (unsigned)rng_below(&checker->rng, 14) : 0;
	disk->hook = pair_hook;
	disk->context = &pair;
	for (unsigned step = 0; step < 14; step++) {
		pair.turn = pair.files[1] ? (unsigned)rng_below(&checker->rng, 2) : 0;
		const struct op op = op_random(&checker->rng, checker->oracle.size, max_chunks);
		if (getenv("CRASH_TRACE"))
			fprintf(stderr, "writer %u: op %d at %" PRIu64 " bytes %" PRIu64 " (size %" PRIu64 ")\n", pair.turn, (int)op.kind, op.offset,
				op.bytes, checker->oracle.size);
		bool failed = checker_do(checker, &pair.files[pair.turn], disk, &op, pair.turn == 1 && die) != 0;
		if (failed || (die && pair.turn == 1 && pair.left == 0)) /* it may have died after its last write */
			writer_died(&pair);
		disk->hook = NULL;
		checker_compare(checker, pair.files[pair.files[1] ? rng_below(&checker->rng, 2) : 0], disk);
		disk->hook = pair_hook;
		disk->context = &pair;
	}
	pair.left = 0;
	const struct op seal = { .kind = OP_SEAL };
	for (int i = 1; i >= 0; i--) {
		pair.turn = (unsigned)i;
		if (pair.files[i])
			(void)checker_do(checker, &pair.files[i], disk, &seal, false);
	}
	disk->hook = NULL;
	struct naos_sealed_file *file = checker_open(checker, disk, NAOS_SEALED_READ);
	if (!naos_sealed_file_clean(file))
		violation("the last writer did not seal the file");
	checker_leave(file);
	checker_power_cuts(checker, disk, 20);
	disk_free(disk);
}

/* Two writers by script: the digit says who; with ! the writer dies at its n-th change of that operation. */
static const char *const pair_scripts[] = {
	"0w0-20 0w40 0f 1!t10 0w10-15 0w16-17 0w18 0f 0w19-41 0f", /* appends over what a truncation left, through the end of a group */
	"0w0-20 0w40 0f 1!t25+9 0w25-30 1f 0w40 0f",
	"0w0 0f 1!t120 0w1-3 0w30 0f",
	"0w0 0t70 0w30 1t10 1t70 0f 1w31 1f 0w32 0f", /* a group that 0 filled is cut off by 1, and a hole again */
	"0w0 0t70 1w30 0t40+7 1t90 0w35 0f 1f",
};

static void run_pair_script(struct checker *checker, const char *script, unsigned death)
{
	struct disk *disk = disk_new();
	struct pair pair = { .checker = checker, .disk = disk };
	char words[200], *rest = words, *word;
	struct op op;
	uint8_t fill = 1;
	(void)snprintf(words, sizeof(words), "%s", script);
	checker_watch(checker, disk);
	pair.checker_hook = disk->hook;
	pair.files[0] = checker_create(checker, disk, NAOS_SEALED_SHARED);
	while ((word = strsep(&rest, " ")) != NULL) {
		bool dies = word[1] == '!';
		unsigned who = word[0] == '1';
		fail_at("two writers, \"%s\", at %s, change %u", script, word, death);
		if (!op_parse(word + (dies ? 2 : 1), fill += 17, &op))
			violation("no such operation");
		if (!pair.files[1])
			pair.files[1] = checker_open(checker, disk, NAOS_SEALED_SHARED);
		pair.turn = who;
		pair.left = dies ? death : 0;
		disk->hook = pair_hook;
		disk->context = &pair;
		bool failed = checker_do(checker, &pair.files[who], disk, &op, dies) != 0;
		if (failed || (dies && pair.left == 0))
			writer_died(&pair);
		disk->hook = NULL;
		checker_compare(checker, pair.files[0], disk);
	}
	for (int i = 1; i >= 0; i--)
		if (pair.files[i])
			checker_leave(pair.files[i]);
	disk_free(disk);
}

static uint64_t run_pair_scripts(uint64_t seed)
{
	uint64_t states = 0;
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(pair_scripts); i++)
		for (unsigned death = 1; death < (strchr(pair_scripts[i], '!') ? 8 : 2); death++) {
			struct checker checker;
			checker_init(&checker, seed + i);
			checker.limit = 4;
			checker.depth = 1;
			checker.shared = true;
			run_pair_script(&checker, pair_scripts[i], death);
			states += checker.states;
			checker_free(&checker);
		}
	return states;
}

static uint64_t run_writers(uint64_t seed, unsigned rounds)
{
	uint64_t states = run_pair_scripts(seed);
	for (unsigned i = 0; i < rounds; i++) {
		struct checker checker;
		checker_init(&checker, seed * 7368787 + i);
		fail_at("two writers, seed %" PRIu64 ", round %u%s", seed, i, i % 2 ? " (one dies)" : "");
		checker.limit = 8;
		checker.depth = 1;
		checker.torn = i % 3 == 2;
		checker.shared = true;
		two_writers(&checker, i % 2);
		states += checker.states;
		checker_free(&checker);
	}
	printf("two writers: %zu scripts, %u random rounds, %" PRIu64 " crash states\n", NAOS_ARRAY_LENGTH(pair_scripts), rounds, states);
	return states;
}

/* --- attacks ------------------------------------------------------------------------------------------------------------------ */

static void run_attacks(uint64_t seed)
{
	struct attack_count count = { 0 };
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(scripts); i++) {
		struct checker checker;
		if (strpbrk(scripts[i].words, "xk"))
			continue;
		checker_init(&checker, seed + i);
		checker.quiet = true;
		struct disk *disk = run_script(&checker, &scripts[i], true);
		fail_at("attacks on \"%s\"", scripts[i].name);
		checker_attack(&checker, disk, &count);
		disk_free(disk);
		checker_free(&checker);
	}
	printf("attacks after a clean close: %" PRIu64 "; not detected (documented limits): older page 0 or state slots %" PRIu64
	       ", the same with older data %" PRIu64 ", hole in an older sector %" PRIu64 "\n",
	       count.tried, count.older_state, count.older_state_and_data, count.hole_in_older_sector);
}

int main(int argc, char **argv)
{
	uint64_t seed = 1;
	unsigned rounds = 30, limit = 16;
	const char *only = "";
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--seed") == 0)
			seed = strtoull(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--rounds") == 0)
			rounds = (unsigned)strtoul(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--limit") == 0)
			limit = (unsigned)strtoul(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--only") == 0)
			only = argv[i + 1];
	}
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	if (!*only || strcmp(only, "scripts") == 0)
		(void)run_scripts(seed, limit);
	if (!*only || strcmp(only, "sessions") == 0)
		(void)run_sessions(seed, rounds);
	if (!*only || strcmp(only, "writers") == 0)
		(void)run_writers(seed, 5 * rounds);
	if (!*only || strcmp(only, "attacks") == 0)
		run_attacks(seed);
	printf("all invariants hold\n");
	return 0;
}
