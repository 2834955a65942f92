/* Signed notes, their keys, and checkpoints.  SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/base64.h"
#include "audit/checkpoint.h"
#include "base/io.h"

static struct naos_error err;

/* The example of c2sp.org/signed-note. */
static const char published_key[] = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k";
static const char published_note[] =
	"This is an example message.\n\n"
	"\xe2\x80\x94 example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n";

static int verify(const char *note, size_t bytes, const struct naos_verifier *verifier)
{
	size_t text_bytes;
	int rc = naos_note_parse(note, bytes, "it", &text_bytes, &err);
	return rc != 0 ? rc : naos_note_verify(note, bytes, text_bytes, verifier, "it", NULL, &err);
}

static void the_published_note_verifies(void **state)
{
	struct naos_verifier verifier;
	char again[NAOS_NOTE_KEY_BYTES];
	assert_ok(naos_verifier_parse(published_key, "it", &verifier, &err), &err);
	assert_string_equal(naos_verifier_format(&verifier, again), published_key);
	assert_ok(verify(published_note, strlen(published_note), &verifier), &err);
}

/* Every other value of every byte of note and key is refused. */
static void every_altered_byte_is_refused(void **state)
{
	struct naos_verifier verifier, other;
	char note[sizeof(published_note)], key[sizeof(published_key)];
	assert_ok(naos_verifier_parse(published_key, "it", &verifier, &err), &err);
	memcpy(note, published_note, sizeof(note));
	for (size_t i = 0; i < strlen(published_note); i++)
		for (int mask = 1; mask < 256; mask++) {
			note[i] = (char)(published_note[i] ^ mask);
			assert_int_not_equal(verify(note, strlen(published_note), &verifier), 0);
			note[i] = published_note[i];
		}
	memcpy(key, published_key, sizeof(key));
	for (size_t i = 0; i < strlen(published_key); i++)
		for (int mask = 1; mask < 256; mask++) {
			key[i] = (char)(published_key[i] ^ mask);
			assert_int_not_equal(naos_verifier_parse(key, "it", &other, &err), 0);
			key[i] = published_key[i];
		}
	for (size_t cut = 0; cut < strlen(published_note); cut++)
		assert_int_not_equal(verify(published_note, cut, &verifier), 0);
}

static void names_that_could_deceive_are_refused(void **state)
{
	assert_true(naos_note_name_ok("naos/host.example"));
	static const char *const wrong[] = { "", "a b", "a+b", "a\nb", "a\302\240b", "a\x7f" };
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(wrong); i++)
		assert_false(naos_note_name_ok(wrong[i]));
	char longest[NAOS_NOTE_NAME_BYTES + 1];
	memset(longest, 'a', sizeof(longest));
	longest[NAOS_NOTE_NAME_BYTES] = 0;
	assert_false(naos_note_name_ok(longest));
	longest[NAOS_NOTE_NAME_BYTES - 1] = 0;
	assert_true(naos_note_name_ok(longest));
}

static void base64_has_one_spelling(void **state)
{
	uint8_t data[8];
	size_t bytes;
	assert_true(naos_base64_decode("YQ==", 4, data, sizeof(data), &bytes));
	assert_int_equal(bytes, 1);
	static const char *const wrong[] = { "", "YR==", "YQ=", "YQ", "YQ=a", " YQ==", "YQ==\n", "Y\nQ=", "=Q==", "====", "YW-=", "YWE=YWE=" };
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(wrong); i++)
		assert_false(naos_base64_decode(wrong[i], strlen(wrong[i]), data, sizeof(data), &bytes));
	assert_true(naos_base64_decode("YWFhYWFhYWE=", 12, data, 8, &bytes));
	assert_false(naos_base64_decode("YWFhYWFhYWE=", 12, data, 7, &bytes));
}

static void a_checkpoint_is_signed_and_read_back(void **state)
{
	struct naos_signer signer, witness, stranger;
	struct naos_checkpoint made, back;
	struct naos_hash root = { { 1, 2, 3 } };
	char line[NAOS_NOTE_LINE_BYTES], *both;
	uint64_t when = 0;
	assert_ok(naos_signer_create("naos/test", NAOS_NOTE_ED25519, &signer, &err), &err);
	assert_ok(naos_signer_create("naos/test", NAOS_NOTE_ED25519, &stranger, &err), &err);
	assert_ok(naos_signer_create("witness.example/w", NAOS_NOTE_COSIGNATURE, &witness, &err), &err);
	assert_ok(naos_checkpoint_make(&signer, 12345678901, &root, &made, &err), &err);
	assert_ok(naos_note_sign(&witness, made.note, made.text_bytes, 1764524319, line, &err), &err);
	assert_true(asprintf(&both, "%s%s", made.note, line) > 0);
	/* a cosigned checkpoint serves as one, and the cosignature holds */
	assert_ok(naos_checkpoint_open(both, strlen(both), "it", &signer.verifier, &back, &err), &err);
	assert_int_equal(back.size, 12345678901);
	assert_true(naos_hash_equal(&back.root, &root));
	assert_ok(naos_note_verify(back.note, back.note_bytes, back.text_bytes, &witness.verifier, "it", &when, &err), &err);
	assert_int_equal(when, 1764524319);
	assert_code(naos_note_verify(made.note, made.note_bytes, made.text_bytes, &witness.verifier, "it", &when, &err), NAOS_E_INTEGRITY);
	struct naos_checkpoint none;
	assert_code(naos_checkpoint_open(both, strlen(both), "it", &stranger.verifier, &none, &err), NAOS_E_INTEGRITY);
	/* the time that a witness states is signed too */
	char *blob = strrchr(both, ' ') + 1;
	blob[12] = blob[12] == 'A' ? 'B' : 'A';
	assert_code(naos_note_verify(both, strlen(both), back.text_bytes, &witness.verifier, "it", &when, &err), NAOS_E_INTEGRITY);
	naos_checkpoint_clear(&made);
	naos_checkpoint_clear(&back);
	free(both);
	naos_signer_clear(&signer);
	naos_signer_clear(&stranger);
	naos_signer_clear(&witness);
}

/* A log's key that signs for another name does not make its checkpoint. */
static void the_origin_must_be_the_name_of_the_key(void **state)
{
	static const char text[] = "naos/other\n1\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
	struct naos_signer signer;
	struct naos_checkpoint checkpoint;
	char line[NAOS_NOTE_LINE_BYTES], *note;
	assert_ok(naos_signer_create("naos/test", NAOS_NOTE_ED25519, &signer, &err), &err);
	assert_ok(naos_note_sign(&signer, text, strlen(text), 0, line, &err), &err);
	assert_true(asprintf(&note, "%s\n%s", text, line) > 0);
	assert_ok(verify(note, strlen(note), &signer.verifier), &err); /* the note itself is sound */
	assert_code(naos_checkpoint_open(note, strlen(note), "it", &signer.verifier, &checkpoint, &err), NAOS_E_INTEGRITY);
	free(note);
	naos_signer_clear(&signer);
}

static void what_is_no_checkpoint_is_refused(void **state)
{
#define SIGNATURE "\n\xe2\x80\x94 a AAAAAAAA\n"
#define ROOT "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
	static const char *const wrong[] = {
		"a\n1\n" ROOT, "a\n1\n" SIGNATURE, "a\n01\n" ROOT SIGNATURE, "a\n-1\n" ROOT SIGNATURE, "a\n\n" ROOT SIGNATURE,
		"\n1\n" ROOT SIGNATURE,
		"a\n9223372036854775808\n" ROOT SIGNATURE, "a\n99999999999999999999\n" ROOT SIGNATURE, "a\n1\nAAAA\n" SIGNATURE,
		"a\n1\n" ROOT "\n\xe2\x80\x94 a+b AAAAAAAA\n", "a\n1\n" ROOT "\n- a AAAAAAAA\n", "a\n1\n" ROOT "\n\xe2\x80\x94 a AAAA\n",
		"a\n1\t\n" ROOT SIGNATURE, "a\n1\n" ROOT SIGNATURE "\n",
	};
	struct naos_checkpoint checkpoint;
	static const char right[] = "a\n9223372036854775807\n" ROOT SIGNATURE;
	assert_ok(naos_checkpoint_parse(right, strlen(right), "it", &checkpoint, &err), &err);
	naos_checkpoint_clear(&checkpoint);
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(wrong); i++)
		if (naos_checkpoint_parse(wrong[i], strlen(wrong[i]), "it", &checkpoint, &err) != NAOS_E_FORMAT)
			fail_msg("number %zu was not refused", i);
}

static void limits_of_a_note(void **state)
{
	static char note[NAOS_NOTE_MAX_BYTES + 2];
	size_t text_bytes, at = (size_t)snprintf(note, sizeof(note), "text\n\n");
	for (unsigned i = 0; i < NAOS_NOTE_MAX_SIGNATURES; i++)
		at += (size_t)snprintf(note + at, sizeof(note) - at, "\xe2\x80\x94 a%u AAAAAAAA\n", i);
	assert_ok(naos_note_parse(note, at, "it", &text_bytes, &err), &err);
	at += (size_t)snprintf(note + at, sizeof(note) - at, "\xe2\x80\x94 b AAAAAAAA\n");
	assert_code(naos_note_parse(note, at, "it", &text_bytes, &err), NAOS_E_LIMIT);
	assert_code(naos_note_parse(note, sizeof(note), "it", &text_bytes, &err), NAOS_E_LIMIT);
}

static void a_private_key_is_stored_as_pem_for_its_owner_only(void **state)
{
	char path[] = "/tmp/naos-key-XXXXXX", wrong[256];
	struct naos_signer signer, back;
	struct stat status;
	uint8_t *data;
	size_t bytes;
	assert_int_equal(close(mkstemp(path)), 0);
	assert_ok(naos_signer_create("naos/test", NAOS_NOTE_ED25519, &signer, &err), &err);
	assert_code(naos_signer_store(&signer, AT_FDCWD, path, &err), NAOS_E_EXISTS);
	assert_int_equal(unlink(path), 0);
	assert_ok(naos_signer_store(&signer, AT_FDCWD, path, &err), &err);
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0600);
	assert_ok(naos_signer_load(AT_FDCWD, path, "naos/test", NAOS_NOTE_ED25519, &back, &err), &err);
	assert_memory_equal(&back.verifier, &signer.verifier, sizeof(back.verifier));
	naos_signer_clear(&back);
	assert_ok(naos_io_read_file(AT_FDCWD, path, 200, &data, &bytes, &err), &err);
	for (size_t i = 0; i < bytes; i++) { /* whatever is read from an altered file, it is not taken for this key */
		memcpy(wrong, data, bytes);
		wrong[i] ^= 1;
		int fd = open(path, O_WRONLY | O_TRUNC);
		assert_int_equal(write(fd, wrong, bytes), bytes);
		close(fd);
		if (naos_signer_load(AT_FDCWD, path, "naos/test", NAOS_NOTE_ED25519, &back, &err) == 0) {
			assert_memory_not_equal(&back.verifier, &signer.verifier, sizeof(back.verifier));
			naos_signer_clear(&back);
		}
	}
	free(data);
	assert_int_equal(chmod(path, 0604), 0);
	assert_code(naos_signer_load(AT_FDCWD, path, "naos/test", NAOS_NOTE_ED25519, &back, &err), NAOS_E_PERMISSION);
	assert_int_equal(unlink(path), 0);
	naos_signer_clear(&signer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_published_note_verifies), cmocka_unit_test(every_altered_byte_is_refused),
		cmocka_unit_test(names_that_could_deceive_are_refused), cmocka_unit_test(base64_has_one_spelling),
		cmocka_unit_test(a_checkpoint_is_signed_and_read_back),
		cmocka_unit_test(the_origin_must_be_the_name_of_the_key), cmocka_unit_test(what_is_no_checkpoint_is_refused),
		cmocka_unit_test(limits_of_a_note), cmocka_unit_test(a_private_key_is_stored_as_pem_for_its_owner_only),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
