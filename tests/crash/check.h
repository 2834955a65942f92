/* One file under test: its operations, the crashes that are tried on the way, and the judge.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_CRASH_CHECK_H
#define NAOS_TESTS_CRASH_CHECK_H

#include "../unit/memory_store.h"
#include "disk.h"
#include "oracle.h"
#include "seal/sealed_file.h"

struct checker {
	struct rng rng;
	struct test_key key;
	struct oracle oracle;
	unsigned limit;  /* crash states tried at a flush */
	unsigned depth;  /* power cuts in a row: during recovery, during the recovery from that, … */
	bool torn;       /* sectors of page 0 and tag pages are independent */
	bool killing;    /* after each write the process is killed too */
	bool quiet;
	bool born;       /* page 0 is durable: from here on no crash may make the file unreadable */
	size_t gather;   /* chunks that a LOCAL writer gathers */
	struct naos_sealing sealing;
	bool lazy;       /* page 0 is written with the first change */
	bool shared;     /* rule 15: who writes what must hold the lock for it */
	uint64_t states, sampled;
};

void checker_init(struct checker *checker, uint64_t seed);
void checker_free(struct checker *checker);

/* A new, empty file on a disk that calls back into the checker. */
struct naos_sealed_file *checker_create(struct checker *checker, struct disk *disk, enum naos_sealed_mode mode);
struct naos_sealed_file *checker_open(struct checker *checker, struct disk *disk, enum naos_sealed_mode mode);
/* Closes without sealing, as a reader does. */
void checker_leave(struct naos_sealed_file *file);
void checker_watch(struct checker *checker, struct disk *disk);

/* Does one operation, or violation().  With may_fail its error is returned (a planted death). */
int checker_do(struct checker *checker, struct naos_sealed_file **file, struct disk *disk, const struct op *op, bool may_fail);
/* The writer and a reader must see exactly what was written. */
void checker_compare(struct checker *checker, struct naos_sealed_file *file, struct disk *disk);

/* Reads as the oracle allows, or violation().  False if the file may be unreadable because it is not born, and is. */
bool checker_look(struct checker *checker, struct disk *disk, const char *what, struct view *ret, uint8_t **ret_data);
/* All (or `limit` of the) crash states of a disk: look, recover (cut in turn), look again. */
void checker_power_cuts(struct checker *checker, struct disk *disk, unsigned limit);
/* The process dies, the cache stays. */
void checker_kill(struct checker *checker, struct disk *disk);
/* One random crash state. */
struct disk *checker_random_image(struct checker *checker, struct disk *disk);

/* After a clean close: every page and sector that the disk ever held is put back in turn. */
struct attack_count {
	uint64_t tried, older_state, older_state_and_data, hole_in_older_sector;
};
void checker_attack(struct checker *checker, struct disk *disk, struct attack_count *count);

#endif
