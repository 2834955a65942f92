/* Crashes on a file under test, and what must hold after them.  SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

void checker_init(struct checker *checker, uint64_t seed)
{
	*checker = (struct checker){ .rng = rng_seed(seed), .limit = 60, .depth = 2 };
	test_key_make(&checker->key, 5, 1);
	oracle_start(&checker->oracle, NULL, 0);
}

void checker_free(struct checker *checker)
{
	oracle_free(&checker->oracle);
	checker->key.fek = naos_secret_free(checker->key.fek);
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

static int open_disk(struct checker *checker, struct disk *disk, enum naos_sealed_mode mode, struct naos_sealed_file **ret,
		     struct naos_error *err)
{
	const struct naos_fek_source source = test_key_source(&checker->key);
	err->message[0] = 0;
	return naos_sealed_file_open(disk_store(disk), mode, &source, ret, err);
}

/* A writer gathers, and is sealed step by step from the beginning. */
static struct naos_sealed_file *prepared(struct checker *checker, struct naos_sealed_file *file, enum naos_sealed_mode mode)
{
	struct naos_error err;
	checker->sealing = (struct naos_sealing){ 0 };
	if (mode == NAOS_SEALED_LOCAL && naos_sealed_file_gather(file, checker->gather * NAOS_CHUNK_BYTES, &err) != 0)
		violation("gathering: %s", err.message);
	return file;
}

struct naos_sealed_file *checker_create(struct checker *checker, struct disk *disk, enum naos_sealed_mode mode)
{
	struct naos_sealed_new what = {
		.mode = mode, .algorithm = NAOS_AES_256_GCM, .fek = checker->key.fek, .blob = &checker->key.blob, .lazy = checker->lazy,
	};
	struct naos_sealed_file *file;
	struct naos_error err;
	memset(what.file_id.bytes, 0x11, sizeof(what.file_id.bytes));
	memset(what.fileset_id.bytes, 0x22, sizeof(what.fileset_id.bytes));
	checker->born = false;
	if (naos_sealed_file_create(disk_store(disk), &what, &file, &err) != 0)
		violation("cannot create: %s", err.message);
	return prepared(checker, file, mode);
}

struct naos_sealed_file *checker_open(struct checker *checker, struct disk *disk, enum naos_sealed_mode mode)
{
	struct naos_sealed_file *file;
	struct naos_error err;
	if (open_disk(checker, disk, mode, &file, &err) != 0)
		violation("cannot open: %s", err.message);
	return prepared(checker, file, mode);
}

void checker_leave(struct naos_sealed_file *file)
{
	struct naos_error err;
	if (naos_sealed_file_close(file, false, &err) != 0)
		violation("closing without sealing: %s", err.message);
}

/* --- looking ------------------------------------------------------------------------------------------------------------- */

/* All of a file in memory, by one read, or now and then by many small ones. */
static int read_all(struct checker *checker, struct naos_sealed_file *file, uint8_t **ret, uint64_t *ret_size, struct naos_error *err)
{
	uint64_t size = naos_sealed_file_size(file);
	uint8_t *data = must(malloc((size_t)size + 1));
	size_t got = 0;
	int rc = 0;
	if (rng_below(&checker->rng, 16)) {
		rc = naos_sealed_file_read(file, data, (size_t)size + 1, 0, &got, err);
	} else {
		for (uint64_t done = 0; rc == 0 && done < size; done += got) {
			size_t want = 1 + (size_t)rng_below(&checker->rng, 20000);
			rc = naos_sealed_file_read(file, data + done, want < size - done ? want : (size_t)(size - done), done, &got, err);
			if (rc == 0 && got == 0)
				violation("a read inside the file gives nothing");
		}
		got = (size_t)size;
	}
	if (rc == 0 && got != size)
		violation("%zu bytes of %llu were read", got, (unsigned long long)size);
	if (rc != 0) {
		free(data);
		return rc;
	}
	*ret = data;
	*ret_size = size;
	return 0;
}

bool checker_look(struct checker *checker, struct disk *disk, const char *what, struct view *ret, uint8_t **ret_data)
{
	struct naos_sealed_file *file;
	struct naos_error err;
	uint8_t *data = NULL;
	uint64_t size, chunk;
	int rc = open_disk(checker, disk, NAOS_SEALED_READ, &file, &err);
	/* it got its name, and nothing else */
	if (rc != 0 && !checker->born && disk->now.bytes == 0 && disk->attribute.bytes == 0 && naos_error_exit_status(rc) == 4)
		return false;
	if (rc == 0) {
		rc = read_all(checker, file, &data, &size, &err);
		checker_leave(file);
	}
	if (rc != 0)
		violation("%s: %s", what, err.message);
	*ret = view_of(data, size);
	const char *wrong = oracle_judge(&checker->oracle, ret, &chunk);
	if (wrong)
		violation("%s: %s (size %llu, may be %llu to %llu; chunk %llu)", what, wrong, (unsigned long long)size,
			  (unsigned long long)checker->oracle.low, (unsigned long long)checker->oracle.high, (unsigned long long)chunk);
	if (ret_data)
		*ret_data = data;
	else
		free(data);
	return true;
}

void checker_compare(struct checker *checker, struct naos_sealed_file *file, struct disk *disk)
{
	struct naos_error err;
	struct view view, now = view_of(checker->oracle.now, checker->oracle.size);
	uint8_t *data;
	uint64_t size;
	if (read_all(checker, file, &data, &size, &err) != 0)
		violation("the writer reads its own file: %s", err.message);
	view = view_of(data, size);
	if (!view_equal(&view, &now))
		violation("the writer does not read what it wrote (size %llu, written %llu)", (unsigned long long)size,
			  (unsigned long long)checker->oracle.size);
	view_free(&view);
	free(data);
	if (!checker_look(checker, disk, "a reader beside the writer", &view, NULL))
		violation("a reader beside the writer: the file can't be read");
	if (naos_sealed_file_gathered(file) == 0 && !view_equal(&view, &now))
		violation("a reader beside the writer does not read what was written (size %llu, written %llu)", (unsigned long long)view.size,
			  (unsigned long long)checker->oracle.size);
	view_free(&view);
	view_free(&now);
}

/* --- crashes --------------------------------------------------------------------------------------------------------------- */

/* Recovery of a crashed disk, cut at each of its own flushes. */
struct recovery {
	struct checker *checker;
	const struct view *expected;
	unsigned depth, limit;
	unsigned skip; /* flushes that are not cut (what they leave was tried already) */
};

static void power_cuts(struct checker *checker, struct disk *disk, unsigned limit, unsigned depth, const struct view *expected);

static void recovery_hook(void *context, struct disk *disk, enum disk_event event, const struct naos_store *store, uint64_t offset,
			  uint64_t bytes)
{
	struct recovery *recovery = context;
	if (event != DISK_FLUSH)
		return;
	if (recovery->skip) {
		recovery->skip--;
		return;
	}
	disk->hook = NULL;
	power_cuts(recovery->checker, disk, recovery->limit, recovery->depth, recovery->expected);
	disk->hook = recovery_hook;
}

static void verify(struct checker *checker, struct disk *disk, const char *what)
{
	struct naos_sealed_file *file = checker_open(checker, disk, NAOS_SEALED_READ);
	struct naos_error err;
	if (!naos_sealed_file_clean(file))
		violation("%s: the file is not clean", what);
	if (naos_sealed_file_verify(file, &err) != 0)
		violation("%s: naos verify says: %s", what, err.message);
	checker_leave(file);
}

/* Recovers, and checks that it gives the same view, a clean file that verifies, and nothing to do for a second recovery. */
static void recover(struct checker *checker, struct disk *disk, const struct view *expected, unsigned depth, unsigned skip)
{
	struct recovery recovery = { checker, expected, depth, checker->torn ? 6 : 4, skip };
	struct view view;
	if (depth) {
		disk->hook = recovery_hook;
		disk->context = &recovery;
	}
	struct naos_sealed_file *file = checker_open(checker, disk, NAOS_SEALED_LOCAL);
	disk->hook = NULL;
	checker_leave(file);
	if (!checker_look(checker, disk, "after recovery", &view, NULL) || !view_equal(&view, expected))
		violation("recovery changed what the file reads as (size %llu, was %llu)", (unsigned long long)view.size,
			  (unsigned long long)expected->size);
	view_free(&view);
	verify(checker, disk, "after recovery");
	unsigned changes = disk->changes;
	file = checker_open(checker, disk, NAOS_SEALED_LOCAL);
	if (naos_sealed_file_recovered(file) || disk->changes != changes)
		violation("a recovered file is recovered again");
	checker_leave(file);
}

/* One crash state; expected is what it must read as (NULL: whatever the oracle allows). */
static void power_cut(struct checker *checker, struct disk *image, unsigned depth, const struct view *expected)
{
	struct view view;
	checker->states++;
	if (!checker_look(checker, image, "after a power cut", &view, NULL))
		return;
	if (expected && !view_equal(&view, expected))
		violation("a power cut during recovery changed what the file reads as (size %llu, was %llu)", (unsigned long long)view.size,
			  (unsigned long long)expected->size);
	recover(checker, image, &view, depth ? depth - 1 : 0, 0);
	view_free(&view);
}

/* Number of different choices, at most limit + 1. */
static unsigned count_choices(const struct units *units, unsigned limit)
{
	uint64_t count = 1;
	for (size_t i = 0; i < units->count && count <= limit; i++)
		count *= units->list[i].count + 1;
	return count > limit ? limit + 1 : (unsigned)count;
}

static void try_choice(struct checker *checker, struct disk *disk, const struct units *units, const size_t *choice, unsigned depth,
		       const struct view *expected)
{
	struct disk *image = disk_image(disk, units, choice);
	power_cut(checker, image, depth, expected);
	disk_free(image);
}

/* All that was written up to a record, nothing after it. */
static void choose_prefix(const struct units *units, size_t records, size_t *choice)
{
	for (size_t i = 0; i < units->count; i++) {
		choice[i] = 0;
		while (choice[i] < units->list[i].count && units->list[i].records[choice[i]] < records)
			choice[i]++;
	}
}

static void choose_random(struct checker *checker, const struct units *units, size_t *choice)
{
	/* now and then nearly everything or nearly nothing is durable: the cases that uniform choice never meets */
	unsigned bias = (unsigned)rng_below(&checker->rng, 4);
	for (size_t i = 0; i < units->count; i++) {
		choice[i] = (size_t)rng_below(&checker->rng, units->list[i].count + 1);
		if (bias < 2 && rng_below(&checker->rng, 6))
			choice[i] = bias ? units->list[i].count : 0;
	}
}

static void power_cuts(struct checker *checker, struct disk *disk, unsigned limit, unsigned depth, const struct view *expected)
{
	struct units units;
	disk_units(disk, checker->torn, &units);
	size_t *choice = must(calloc(units.count + 1, sizeof(*choice)));
	unsigned count = count_choices(&units, limit);
	if (count <= limit) { /* all of them, as an odometer */
		for (bool more = true; more;) {
			try_choice(checker, disk, &units, choice, depth, expected);
			more = false;
			for (size_t i = 0; i < units.count && !more; i++) {
				more = choice[i] < units.list[i].count;
				choice[i] = more ? choice[i] + 1 : 0;
			}
		}
	} else {
		size_t prefixes = limit / 2 < disk->log_count + 1 ? limit / 2 : disk->log_count + 1;
		checker->sampled++;
		for (size_t i = 0; i < prefixes; i++) {
			choose_prefix(&units, prefixes > 1 ? i * disk->log_count / (prefixes - 1) : disk->log_count, choice);
			try_choice(checker, disk, &units, choice, depth, expected);
		}
		for (size_t i = prefixes; i < limit; i++) {
			choose_random(checker, &units, choice);
			try_choice(checker, disk, &units, choice, depth, expected);
		}
	}
	free(choice);
	units_free(&units);
}

void checker_power_cuts(struct checker *checker, struct disk *disk, unsigned limit)
{
	power_cuts(checker, disk, limit, checker->depth, NULL);
}

struct disk *checker_random_image(struct checker *checker, struct disk *disk)
{
	struct units units;
	disk_units(disk, checker->torn, &units);
	size_t *choice = must(calloc(units.count + 1, sizeof(*choice)));
	choose_random(checker, &units, choice);
	struct disk *image = disk_image(disk, &units, choice);
	free(choice);
	units_free(&units);
	return image;
}

void checker_kill(struct checker *checker, struct disk *disk)
{
	struct view view;
	struct disk *copy = disk_copy(disk);
	checker->states++;
	if (checker_look(checker, copy, "after the process was killed", &view, NULL)) {
		recover(checker, copy, &view, 1, 1);
		view_free(&view);
	}
	disk_free(copy);
}

/* --- operations -------------------------------------------------------------------------------------------------------------- */

static bool holds(const struct disk *disk, const struct naos_store *store, uint64_t from, uint64_t to, bool exclusive)
{
	for (size_t i = 0; i < disk->lock_count; i++) {
		const struct disk_lock *lock = &disk->locks[i];
		if (lock->owner == store && lock->from <= from && lock->to >= to && (lock->exclusive || !exclusive))
			return true;
	}
	return false;
}

/* Rule 15. */
static void check_locks(const struct disk *disk, enum disk_event event, const struct naos_store *store, uint64_t offset, uint64_t bytes)
{
	const uint64_t state_end = NAOS_STATE_OFFSET + 2 * NAOS_SECTOR_BYTES;
	bool whole = holds(disk, store, NAOS_STATE_OFFSET, state_end, true) ||
		     holds(disk, store, NAOS_WRITER_LOCK_OFFSET, NAOS_WRITER_LOCK_OFFSET + 1, true);
	if (whole || event == DISK_FLUSH || (event == DISK_WRITE && offset == 0 && bytes == NAOS_CHUNK_BYTES))
		return;
	bool metadata = disk_page_kind(offset / NAOS_CHUNK_BYTES) != PAGE_DATA;
	bool batch = holds(disk, store, NAOS_STATE_OFFSET, state_end, false);
	if (event != DISK_WRITE || !batch || (metadata && !holds(disk, store, offset, offset + bytes, true)))
		violation("a change of [%llu, %llu) (event %d) without the lock that rule 15 asks for", (unsigned long long)offset,
			  (unsigned long long)(offset + bytes), (int)event);
}

static void hook(void *context, struct disk *disk, enum disk_event event, const struct naos_store *store, uint64_t offset, uint64_t bytes)
{
	struct checker *checker = context;
	if (checker->shared)
		check_locks(disk, event, store, offset, bytes);
	if (checker->quiet)
		return;
	disk->hook = NULL;
	if (event == DISK_FLUSH) {
		checker_power_cuts(checker, disk, checker->limit);
		checker->born = true;
	} else if (checker->killing) {
		checker_kill(checker, disk);
	}
	disk->hook = hook;
}

void checker_watch(struct checker *checker, struct disk *disk)
{
	disk->hook = hook;
	disk->context = checker;
}

/* One step of sealing, and the flush by others that it asks for. */
static int seal_step(struct checker *checker, struct naos_sealed_file *file, struct disk *disk, struct naos_error *err)
{
	bool done;
	int rc = naos_sealed_file_seal_step(file, &checker->sealing, &done, err);
	if (rc != 0)
		return rc;
	if (done) {
		verify(checker, disk, "after the last step of sealing");
		oracle_sync(&checker->oracle);
		return 0;
	}
	struct naos_store *other = disk_store(disk);
	rc = other->ops->flush(other, err);
	other->ops->close(other);
	return rc;
}

int checker_do(struct checker *checker, struct naos_sealed_file **file, struct disk *disk, const struct op *op, bool may_fail)
{
	struct naos_error err = { .message = "" };
	int rc = 0;
	oracle_allow(&checker->oracle, op);
	switch (op->kind) {
	case OP_WRITE: {
		uint8_t *data = must(malloc((size_t)op->bytes + 1));
		for (uint64_t i = 0; i < op->bytes; i++)
			data[i] = op_byte(op->fill, op->offset + i);
		rc = naos_sealed_file_write(*file, data, (size_t)op->bytes, op->offset, &err);
		free(data);
		break;
	}
	case OP_TRUNCATE:
		rc = naos_sealed_file_truncate(*file, op->offset, &err);
		break;
	case OP_PUNCH:
		rc = naos_sealed_file_punch(*file, op->offset, op->bytes, &err);
		break;
	case OP_ZERO:
		rc = naos_sealed_file_zero(*file, op->offset, op->bytes, false, &err);
		break;
	case OP_STEP:
		rc = checker->shared ? 0 : seal_step(checker, *file, disk, &err);
		break;
	case OP_FLUSH:
		rc = naos_sealed_file_flush(*file, &err);
		break;
	case OP_SEAL:
	case OP_LEAVE:
		rc = naos_sealed_file_close(*file, op->kind == OP_SEAL, &err);
		*file = NULL;
		break;
	case OP_OPEN:
		*file = checker_open(checker, disk, NAOS_SEALED_LOCAL);
		break;
	}
	if (rc != 0 && !may_fail)
		violation("operation %d at %llu, %llu bytes: %s", (int)op->kind, (unsigned long long)op->offset, (unsigned long long)op->bytes,
			  err.message);
	if (rc == 0 && (op->kind == OP_FLUSH || op->kind == OP_SEAL))
		oracle_sync(&checker->oracle);
	return rc;
}
