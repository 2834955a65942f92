/* Damage of a log: every bit of every file, what the verdict names, and every bit of a proof.  SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/audit.h"
#include "audit/proof.h"
#include "audit/tile.h"
#include "base/io.h"

static struct naos_error err;
static char dir[64];
static const struct naos_audit_check no_check = { .key_path = NULL };

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *place)
{
	return remove(path);
}

static int make_dir(void **state)
{
	snprintf(dir, sizeof(dir), "/dev/shm/naos-audit-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	return nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void make_log(unsigned records)
{
	static struct naos_audit_event events[NAOS_AUDIT_MAX_BATCH];
	struct naos_audit_log *log;
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(events); i++)
		events[i] = (struct naos_audit_event){ .actor = "alice", .action = "key.rotate", .object = "genomes", .decision = "allowed" };
	assert_ok(naos_audit_open(dir, "naos/test", true, &log, &err), &err);
	for (unsigned done = 0, part; done < records; done += part) {
		part = records - done < 500 ? records - done : 500;
		assert_ok(naos_audit_append_many(log, events, part, &err), &err);
	}
	naos_audit_close(log);
}

static const char *in_dir(const char *name)
{
	static char path[128];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static uint8_t *read_whole(const char *name, size_t *ret_bytes)
{
	uint8_t *data;
	assert_ok(naos_io_read_file(AT_FDCWD, in_dir(name), 1 << 20, &data, ret_bytes, &err), &err);
	return data;
}

static void write_byte(const char *name, size_t at, uint8_t value)
{
	int fd = open(in_dir(name), O_WRONLY);
	assert_int_equal(pwrite(fd, &value, 1, (off_t)at), 1);
	close(fd);
}

/* Flips bits of one file, each alone, and gives what verification found to `expect`. */
static void flip_all(const char *name, unsigned step, unsigned bit_step,
		     void (*expect)(const char *name, size_t at, const uint8_t *data, const struct naos_audit_report *report))
{
	size_t bytes;
	uint8_t *data = read_whole(name, &bytes);
	for (size_t at = 0; at < bytes; at += step)
		for (unsigned bit = (unsigned)at % bit_step; bit < 8; bit += bit_step) {
			struct naos_audit_report report;
			write_byte(name, at, data[at] ^ (uint8_t)(1u << bit));
			int rc = naos_audit_verify(dir, &no_check, &report, &err);
			if (rc != NAOS_E_INTEGRITY)
				fail_msg("%s: byte %zu bit %u: %d %s", name, at, bit, rc, err.message);
			assert_true(report.bad);
			expect(name, at, data, &report);
			write_byte(name, at, data[at]);
		}
	free(data);
}

/* The record that holds the byte is named, its newline included. */
static void expect_record(const char *name, size_t at, const uint8_t *data, const struct naos_audit_report *report)
{
	uint64_t sequence = strcmp(name, "records/001.jsonl") == 0 ? 256 : 0;
	for (size_t i = 0; i < at; i++)
		sequence += data[i] == '\n';
	assert_true(report->has_bad_sequence);
	assert_int_equal(report->bad_sequence, sequence);
	assert_string_equal(report->bad_file, name);
}

/* The tile is named, and the first record that the hash is of. */
static void expect_tile(const char *name, size_t at, const uint8_t *data, const struct naos_audit_report *report)
{
	uint64_t place = at / NAOS_HASH_BYTES, sequence = strcmp(name, "tile/0/001") == 0 ? 256 + place : name[5] == '1' ? 256 * place : place;
	assert_string_equal(report->bad_file, name);
	assert_true(report->has_bad_sequence);
	assert_int_equal(report->bad_sequence, sequence);
}

static void expect_checkpoint(const char *name, size_t at, const uint8_t *data, const struct naos_audit_report *report)
{
	assert_string_equal(report->bad_file, "checkpoint");
	assert_false(report->has_bad_sequence);
}

static void every_bit_of_a_small_log(void **state)
{
	struct naos_audit_report report;
	make_log(5);
	assert_ok(naos_audit_verify(dir, &no_check, &report, &err), &err);
	assert_int_equal(report.size, 5);
	assert_int_equal(report.pending_bytes, 0);
	flip_all("checkpoint", 1, 1, expect_checkpoint);
	flip_all("key.pub", 1, 1, expect_checkpoint);
	flip_all("records/000.jsonl", 1, 1, expect_record);
	flip_all("tile/0/000", 1, 1, expect_tile);
	assert_ok(naos_audit_verify(dir, &no_check, &report, &err), &err);
}

static void bytes_all_over_a_log_with_tiles_above(void **state)
{
	struct naos_audit_report report;
	make_log(300);
	flip_all("records/000.jsonl", 331, 4, expect_record);
	flip_all("records/001.jsonl", 61, 4, expect_record);
	flip_all("tile/0/000", 97, 8, expect_tile);
	flip_all("tile/0/001", 13, 8, expect_tile);
	flip_all("tile/1/000", 1, 2, expect_tile);
	assert_ok(naos_audit_verify(dir, &no_check, &report, &err), &err);
}

/* Whoever changes a record and its hash together is still found: the checkpoint does not fit.  With a full tile above, the
 * range of 256 is named. */
static void a_record_changed_with_its_hash(void **state)
{
	struct naos_audit_report report;
	struct naos_hasher *hasher;
	struct naos_hash leaf;
	make_log(300);
	assert_ok(naos_hasher_create(&hasher, &err), &err);
	for (unsigned bundle = 0; bundle < 2; bundle++) {
		const char *records = bundle ? "records/001.jsonl" : "records/000.jsonl", *tile = bundle ? "tile/0/001" : "tile/0/000";
		size_t bytes, hash_bytes;
		uint8_t *data = read_whole(records, &bytes), *hashes = read_whole(tile, &hash_bytes);
		size_t record_bytes = strcspn((const char *)data, "\n");
		uint8_t genuine = data[record_bytes - 5];
		write_byte(records, record_bytes - 5, 'X');
		data[record_bytes - 5] = 'X';
		naos_hash_leaf(hasher, data, record_bytes, &leaf);
		for (size_t i = 0; i < sizeof(leaf.bytes); i++)
			write_byte(tile, i, leaf.bytes[i]);
		assert_code(naos_audit_verify(dir, &no_check, &report, &err), NAOS_E_INTEGRITY);
		assert_int_equal(report.has_bad_sequence, bundle == 0);
		assert_string_equal(report.bad_file, bundle == 0 ? "tile/1/000" : "checkpoint");
		for (size_t i = 0; i < sizeof(leaf.bytes); i++)
			write_byte(tile, i, hashes[i]);
		write_byte(records, record_bytes - 5, genuine);
		free(data);
		free(hashes);
	}
	naos_hasher_free(hasher);
}

/* Every other value of every byte of a proof is refused. */
static void every_byte_of_a_proof(void **state)
{
	struct naos_verifier verifier;
	struct naos_audit_proof proof;
	struct naos_audit_report report;
	char earlier[128];
	json_t *value;
	make_log(5);
	snprintf(earlier, sizeof(earlier), "%s-earlier", dir);
	size_t bytes;
	uint8_t *data = read_whole("checkpoint", &bytes);
	assert_ok(naos_io_replace_file(AT_FDCWD, earlier, data, bytes, 0600, &err), &err);
	free(data);
	make_log(6);
	assert_ok(naos_audit_verify(dir, &no_check, &report, &err), &err);
	assert_int_equal(report.size, 11);
	assert_ok(naos_verifier_read(AT_FDCWD, in_dir("key.pub"), &verifier, &err), &err);
	for (size_t kind = 0; kind < 2; kind++) {
		if (kind == 0)
			assert_ok(naos_audit_prove(dir, NULL, 3, &value, &err), &err);
		else
			assert_ok(naos_audit_prove_since(dir, NULL, earlier, &value, &err), &err);
		char *text = json_dumps(value, JSON_COMPACT);
		json_decref(value);
		bytes = strlen(text);
		assert_ok(naos_audit_proof_parse(text, bytes, &verifier, &proof, &err), &err);
		assert_int_equal(proof.size, 11);
		assert_int_equal(kind == 0 ? proof.sequence : proof.earlier_size, kind == 0 ? 3 : 5);
		naos_audit_proof_clear(&proof);
		for (size_t at = 0; at < bytes; at++)
			for (unsigned bit = 0; bit < 8; bit++) {
				text[at] = (char)(text[at] ^ (1 << bit));
				int rc = naos_audit_proof_parse(text, bytes, &verifier, &proof, &err);
				if (rc != NAOS_E_INTEGRITY && rc != NAOS_E_FORMAT)
					fail_msg("kind %zu byte %zu bit %u: %d", kind, at, bit, rc);
				text[at] = (char)(text[at] ^ (1 << bit));
			}
		for (size_t cut = 0; cut < bytes; cut++)
			assert_int_not_equal(naos_audit_proof_parse(text, cut, &verifier, &proof, &err), 0);
		free(text);
	}
	assert_int_equal(unlink(earlier), 0);
}

/* A log whose holder signed a record under a sequence that is not its place: sound hashes, refused all the same. */
static void a_proven_record_must_carry_its_own_sequence(void **state)
{
	static const char format[] = "{\"format\":1,\"time\":\"2025-11-30T17:38:39.123456Z\",\"sequence\":%d,\"action\":\"a\"}";
	struct naos_signer signer;
	struct naos_hasher *hasher;
	struct naos_audit_proof proof;
	assert_ok(naos_signer_create("naos/test", NAOS_NOTE_ED25519, &signer, &err), &err);
	assert_ok(naos_hasher_create(&hasher, &err), &err);
	for (int sequence = 0; sequence < 2; sequence++) {
		struct naos_checkpoint checkpoint;
		struct naos_hash root;
		char line[128];
		int bytes = snprintf(line, sizeof(line), format, sequence);
		naos_hash_leaf(hasher, line, (size_t)bytes, &root); /* of a log of this one record */
		assert_ok(naos_checkpoint_make(&signer, 1, &root, &checkpoint, &err), &err);
		json_t *value = json_pack("{s:s, s:s, s:i, s:s, s:[], s:s}", "format", NAOS_PROOF_FORMAT, "kind", "record", "sequence", 0, "record",
					  line, "hashes", "checkpoint", checkpoint.note);
		char *text = json_dumps(value, JSON_COMPACT);
		int rc = naos_audit_proof_parse(text, strlen(text), &signer.verifier, &proof, &err);
		assert_int_equal(rc, sequence == 0 ? 0 : NAOS_E_INTEGRITY);
		if (rc == 0)
			naos_audit_proof_clear(&proof);
		free(text);
		json_decref(value);
		naos_checkpoint_clear(&checkpoint);
	}
	naos_hasher_free(hasher);
	naos_signer_clear(&signer);
}

static void proofs_of_a_larger_log(void **state)
{
	struct naos_verifier verifier;
	struct naos_audit_proof proof;
	json_t *value;
	static const uint64_t sequences[] = { 0, 1, 255, 256, 511, 512, 1300, 1535, 1536, 1537 };
	make_log(1538);
	assert_ok(naos_verifier_read(AT_FDCWD, in_dir("key.pub"), &verifier, &err), &err);
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(sequences); i++) {
		assert_ok(naos_audit_prove(dir, NULL, sequences[i], &value, &err), &err);
		char *text = json_dumps(value, JSON_COMPACT);
		assert_ok(naos_audit_proof_parse(text, strlen(text), &verifier, &proof, &err), &err);
		assert_int_equal(proof.sequence, sequences[i]);
		naos_audit_proof_clear(&proof);
		json_decref(value);
		free(text);
	}
	assert_code(naos_audit_prove(dir, NULL, 1538, &value, &err), NAOS_E_NOTFOUND);
	size_t bytes;
	uint8_t *data = read_whole("tile/0/005", &bytes);
	write_byte("tile/0/005", 40, data[40] ^ 1); /* the hash of 1281, which the proof of 1280 is made of */
	assert_code(naos_audit_prove(dir, NULL, 1280, &value, &err), NAOS_E_INTEGRITY);
	free(data);
}

int main(void)
{
#define t(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)
	const struct CMUnitTest tests[] = {
		t(every_bit_of_a_small_log), t(bytes_all_over_a_log_with_tiles_above), t(a_record_changed_with_its_hash),
		t(every_byte_of_a_proof), t(a_proven_record_must_carry_its_own_sequence), t(proofs_of_a_larger_log),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
