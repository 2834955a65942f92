/* The library under the words of ops.h, for comparison with the model (compare.py): reads a command a line, answers with what the
 * library did to its file, and ends each answer with a line ".".
 *   gather CHUNKS | create | WORD (ops.h, without x and k) | look UNIT… | crash UNIT…
 * A UNIT is page:first:call: after the power cut this page or sector holds what was written up to that store call; all others hold
 * what the last flush left; page "length" is the length.  look reads the image, crash goes on with it.
 * Answers: "call N write OFFSET BYTES", "call N resize BYTES", "call N zero OFFSET BYTES", "call N flush", "view SIZE ADLER32…",
 * "damage TEXT".
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "fail.h"
#include "ops.h"

static void tell(void *context, struct disk *disk, enum disk_event event, const struct naos_store *store, uint64_t offset, uint64_t bytes)
{
	switch (event) {
	case DISK_WRITE: printf("call %u write %" PRIu64 " %" PRIu64 "\n", disk->calls, offset, bytes); break;
	case DISK_RESIZE: printf("call %u resize %" PRIu64 "\n", disk->calls, offset); break;
	case DISK_DEALLOCATE: printf("call %u zero %" PRIu64 " %" PRIu64 "\n", disk->calls, offset, bytes); break;
	case DISK_FLUSH: printf("call %u flush\n", disk->calls); break;
	}
}

static uint32_t adler32(const uint8_t *data, size_t bytes)
{
	uint32_t a = 1, b = 0;
	for (size_t i = 0; i < bytes; i++) {
		a = (a + data[i]) % 65521;
		b = (b + a) % 65521;
	}
	return b << 16 | a;
}

/* Each chunk, zero-extended. */
static void show(struct naos_sealed_file *file)
{
	uint64_t size = naos_sealed_file_size(file), chunks = naos_layout_chunks(size);
	uint8_t *data = must(calloc((size_t)chunks + 1, NAOS_CHUNK_BYTES));
	struct naos_error err;
	size_t got;
	if (naos_sealed_file_read(file, data, (size_t)size, 0, &got, &err) != 0) {
		printf("damage %s\n", err.message);
	} else {
		printf("view %" PRIu64, size);
		for (uint64_t i = 0; i < chunks; i++)
			printf(" %" PRIu32, adler32(data + i * NAOS_CHUNK_BYTES, NAOS_CHUNK_BYTES));
		printf("\n");
	}
	free(data);
}

static void look(struct checker *checker, struct disk *disk)
{
	const struct naos_fek_source source = test_key_source(&checker->key);
	struct naos_sealed_file *file;
	struct naos_error err;
	if (naos_sealed_file_open(disk_store(disk), NAOS_SEALED_READ, &source, &file, &err) != 0) {
		printf("damage %s\n", err.message);
		return;
	}
	show(file);
	checker_leave(file);
}

/* words: "UNIT UNIT …" */
static struct disk *image(const struct disk *disk, char *words)
{
	struct units units;
	char *word;
	disk_units(disk, true, &units);
	size_t *choice = must(calloc(units.count + 1, sizeof(*choice)));
	while ((word = strsep(&words, " ")) != NULL) {
		if (!*word)
			continue;
		uint64_t page = DISK_LENGTH;
		unsigned first = 0, call = 0;
		if (sscanf(word, "length:%u", &call) != 1 && sscanf(word, "%" SCNu64 ":%u:%u", &page, &first, &call) != 3)
			violation("no unit: %s", word);
		for (size_t i = 0; i < units.count; i++) {
			const struct unit *unit = &units.list[i];
			if (unit->page == page && unit->first == first)
				while (choice[i] < unit->count && disk->log[unit->records[choice[i]]].call <= call)
					choice[i]++;
		}
	}
	struct disk *made = disk_image(disk, &units, choice);
	free(choice);
	units_free(&units);
	return made;
}

int main(void)
{
	struct checker checker;
	struct disk *disk = disk_new();
	struct naos_sealed_file *file = NULL;
	char line[65536];
	uint8_t fill = 0;
	checker_init(&checker, 1);
	disk->hook = tell;
	while (fgets(line, sizeof(line), stdin)) {
		struct op op;
		line[strcspn(line, "\n")] = 0;
		fail_at("%s", line);
		if (sscanf(line, "gather %zu", &checker.gather) == 1) {
			/* for every writer from now on */
		} else if (strcmp(line, "create") == 0) {
			file = checker_create(&checker, disk, NAOS_SEALED_LOCAL);
		} else if (strncmp(line, "look", 4) == 0) {
			struct disk *made = image(disk, line + 4);
			look(&checker, made);
			disk_free(made);
		} else if (strncmp(line, "crash", 5) == 0) {
			struct disk *made = image(disk, line + 5);
			disk->hook = NULL;
			if (file)
				checker_leave(file);
			file = NULL;
			disk_free(disk);
			disk = made;
			disk->hook = tell;
		} else if (op_parse(line, fill += 13, &op)) {
			(void)checker_do(&checker, &file, disk, &op, false);
			if (file)
				show(file);
		} else {
			violation("no such command");
		}
		printf(".\n");
		(void)fflush(stdout);
	}
	if (file)
		checker_leave(file);
	disk_free(disk);
	checker_free(&checker);
	return 0;
}
