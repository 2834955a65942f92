/* Published vectors on every back end that runs here: `wycheproof` (AES-GCM and GMAC) or `cavp` (NIST), as the argument
 * says; a second argument N runs each N-th only.  What our interface leaves out by design (nonces of other than 12 bytes,
 * AES-192, tags below 16 bytes to open) is counted, not passed over in silence.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine_helper.h"

#include <jansson.h>

#define MOST 1024
#define CAVP "/usr/lib/python3/dist-packages/cryptography_vectors/ciphers/AES/GCM/" /* Debian: python3-cryptography-vectors */

struct vector {
	const char *name;
	uint8_t key[64], nonce[512], associated[MOST], plain[MOST], sealed[MOST], tag[16];
	size_t key_bytes, nonce_bytes, associated_bytes, bytes, tag_bytes;
	bool valid;
};

static struct {
	unsigned sealed_and_opened, sealed_only, refused, other_nonce, other_key, short_tag;
} counts;

static unsigned every = 1, applicable; /* of those that fit the interface, each so-manieth is run */

static void report(const char *what)
{
	if (every > 1)
		printf("one vector of %u:\n", every);
	printf("%s, each on %zu back ends: %u sealed and opened, %u sealed (tag cut to the vector's length), %u refused as they must be\n",
	       what, row_count, counts.sealed_and_opened, counts.sealed_only, counts.refused);
	printf("%s, outside the interface: %u nonces of other than 12 bytes, %u keys of 192 bits, %u forgeries with a tag below 16 bytes\n",
	       what, counts.other_nonce, counts.other_key, counts.short_tag);
}

static void seal_and_open(const struct naos_gcm_key *key, struct vector *v)
{
	uint8_t out[MOST], tag[16];
	struct naos_gcm_stream *stream;
	struct naos_gcm_message m = { v->nonce, v->associated, v->associated_bytes, v->plain, out, v->bytes, tag, 0 };
	assert_ok(naos_gcm_seal(key, &m, &err), &err);
	if (memcmp(out, v->sealed, v->bytes) != 0 || memcmp(tag, v->tag, v->tag_bytes) != 0)
		fail_msg("%s seals differently", v->name);
	m.in = v->sealed;
	assert_ok(naos_gcm_open(key, &m, &err), &err);
	assert_memory_equal(out, v->plain, v->bytes);
	assert_ok(naos_gcm_stream_create(key, false, v->nonce, v->associated, v->associated_bytes, &stream, &err), &err);
	assert_ok(naos_gcm_stream_update(stream, v->sealed, out, v->bytes / 3, &err), &err);
	assert_ok(naos_gcm_stream_update(stream, v->sealed + v->bytes / 3, out + v->bytes / 3, v->bytes - v->bytes / 3, &err), &err);
	assert_ok(naos_gcm_stream_finish(stream, tag, &err), &err);
	assert_memory_equal(out, v->plain, v->bytes);
	naos_gcm_stream_free(stream);
}

static void refuse(const struct naos_gcm_key *key, struct vector *v)
{
	uint8_t out[MOST];
	struct naos_gcm_message m = { v->nonce, v->associated, v->associated_bytes, v->sealed, out, v->bytes, v->tag, 0 };
	memset(out, 0xa5, sizeof(out));
	if (naos_gcm_open(key, &m, &err) != NAOS_E_INTEGRITY)
		fail_msg("%s opens", v->name);
	assert_true(all_zero(out, v->bytes));
}

static void check(struct vector *v)
{
	enum naos_algorithm algorithm = v->key_bytes == 16 ? NAOS_AES_128_GCM : NAOS_AES_256_GCM;
	unsigned *count = v->nonce_bytes != 12		     ? &counts.other_nonce :
			  v->key_bytes == 24		     ? &counts.other_key :
			  !v->valid && v->tag_bytes < 16     ? &counts.short_tag :
			  !v->valid			     ? &counts.refused :
			  v->tag_bytes < 16		     ? &counts.sealed_only :
							       &counts.sealed_and_opened;
	const bool outside = count == &counts.other_nonce || count == &counts.other_key || count == &counts.short_tag;
	if (!outside && applicable++ % every != 0)
		return;
	(*count)++;
	if (outside)
		return;
	assert_int_equal(v->key_bytes, naos_algorithm_key_bytes(algorithm));
	for (size_t r = 0; r < row_count; r++) {
		struct naos_gcm_key *key = make_key(rows[r], algorithm, v->key);
		if (v->valid)
			seal_and_open(key, v);
		else
			refuse(key, v);
		naos_gcm_key_free(key);
	}
}

static size_t json_hex(const json_t *test, const char *field, uint8_t *buffer, size_t capacity)
{
	const char *text = json_string_value(json_object_get(test, field));
	assert_non_null(text);
	return from_hex(text, buffer, capacity);
}

/* GMAC: the message is associated data, and nothing is sealed. */
static void wycheproof_file(const char *path, bool gmac)
{
	json_error_t where;
	json_t *root = json_load_file(path, 0, &where), *group, *test;
	size_t g, t;
	if (!root)
		fail_msg("%s:%d: %s", path, where.line, where.text);
	memset(&counts, 0, sizeof(counts));
	json_array_foreach(json_object_get(root, "testGroups"), g, group) {
		json_array_foreach(json_object_get(group, "tests"), t, test) {
			char name[64];
			struct vector v = { .name = name };
			(void)snprintf(name, sizeof(name), "Wycheproof %s %d", gmac ? "GMAC" : "AES-GCM",
				       (int)json_integer_value(json_object_get(test, "tcId")));
			v.key_bytes = json_hex(test, "key", v.key, sizeof(v.key));
			v.nonce_bytes = json_hex(test, "iv", v.nonce, sizeof(v.nonce));
			v.associated_bytes = json_hex(test, gmac ? "msg" : "aad", v.associated, MOST);
			if (!gmac) {
				v.bytes = json_hex(test, "msg", v.plain, MOST);
				assert_int_equal(json_hex(test, "ct", v.sealed, MOST), v.bytes);
			}
			v.tag_bytes = json_hex(test, "tag", v.tag, 16);
			v.valid = strcmp(json_string_value(json_object_get(test, "result")), "valid") == 0;
			check(&v);
		}
	}
	json_decref(root);
	report(gmac ? "Wycheproof GMAC" : "Wycheproof AES-GCM");
	assert_true(counts.sealed_and_opened >= 30 && counts.refused >= 50);
}

static void wycheproof_aes_gcm(void **state)
{
	wycheproof_file(shared_path("data/aead/wycheproof_aes_gcm_v1.json"), false);
}

static void wycheproof_gmac(void **state)
{
	wycheproof_file(shared_path("data/aead/wycheproof_aes_gmac_v1.json"), true);
}

/* Groups of "[Name = value]", tests of "Name = hex" lines, or "FAIL" in the place of the plaintext, and an empty line. */
static void cavp_file(const char *name)
{
	char path[256], line[8192], value[8192], field[16], label[64];
	struct vector v = { .name = label };
	bool open_test = false;
	(void)snprintf(path, sizeof(path), CAVP "%s.rsp", name);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		value[0] = 0;
		if (sscanf(line, "Count = %8191s", value) == 1) {
			(void)snprintf(label, sizeof(label), "%s %.8s", name, value);
			open_test = true;
			v.valid = true;
			v.bytes = 0;
		} else if (sscanf(line, "%15s = %8191s", field, value) >= 1 && open_test) {
			if (strcmp(field, "Key") == 0)
				v.key_bytes = from_hex(value, v.key, sizeof(v.key));
			else if (strcmp(field, "IV") == 0)
				v.nonce_bytes = from_hex(value, v.nonce, sizeof(v.nonce));
			else if (strcmp(field, "AAD") == 0)
				v.associated_bytes = from_hex(value, v.associated, MOST);
			else if (strcmp(field, "PT") == 0)
				v.bytes = from_hex(value, v.plain, MOST);
			else if (strcmp(field, "CT") == 0)
				v.bytes = from_hex(value, v.sealed, MOST);
			else if (strcmp(field, "Tag") == 0)
				v.tag_bytes = from_hex(value, v.tag, 16);
			else if (strcmp(field, "FAIL") == 0)
				v.valid = false;
		} else if (open_test) {
			check(&v);
			open_test = false;
		}
	}
	if (open_test)
		check(&v);
	assert_int_equal(fclose(file), 0);
}

static void nist_cavp(void **state)
{
	static const char *const names[] = { "gcmEncryptExtIV128", "gcmEncryptExtIV256", "gcmDecrypt128", "gcmDecrypt256" };
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(names); i++) {
		memset(&counts, 0, sizeof(counts));
		cavp_file(names[i]);
		report(names[i]);
		const unsigned least = every > 1 ? 75 / every : 150; /* of each kind; they do not come evenly */
		unsigned all = counts.sealed_and_opened + counts.sealed_only + counts.refused + counts.other_nonce + counts.short_tag;
		assert_true(every > 1 || all == 7875);
		assert_true(counts.sealed_and_opened >= least && (i < 2 || counts.refused >= least) && all >= 7875 / every);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest wycheproof[] = { cmocka_unit_test(wycheproof_aes_gcm), cmocka_unit_test(wycheproof_gmac) };
	const struct CMUnitTest cavp[] = { cmocka_unit_test(nist_cavp) };
	bool nist = argc > 1 && strcmp(argv[1], "cavp") == 0;
	if (argc > 2 && strtoul(argv[2], NULL, 10) > 0)
		every = (unsigned)strtoul(argv[2], NULL, 10);
	const char *needed = nist ? CAVP "gcmDecrypt256.rsp" : shared_path("data/aead/wycheproof_aes_gmac_v1.json");
	if (access(needed, R_OK) != 0) {
		printf("skipped: %s is not here%s\n", needed,
		       nist ? " (Debian package python3-cryptography-vectors)" : "; NAOS_SHARED names its tree");
		return SKIP_EXIT;
	}
	return nist ? cmocka_run_group_tests_name("engine cavp", cavp, start_rows, NULL) :
		      cmocka_run_group_tests_name("engine wycheproof", wycheproof, start_rows, NULL);
}
