/* The Merkle tree against published vectors and, for every size up to 600, against the definitions of RFC 6962 taken
 * word by word over a table of all ranges.  SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

#include "audit/merkle.h"
#include "audit/tile.h"
#include "base/uuid.h"

#define MOST 600

static struct naos_error err;
static struct naos_hasher *hasher;
static struct naos_hash (*table)[MOST + 1]; /* table[start][n] is MTH(D[start:start+n]) */

/* Leaves, hashes of the perfect subtrees and roots by size: test data of the Certificate Transparency implementations
 * (github.com/transparency-dev/merkle, testonly/constants.go; the same in google/certificate-transparency). */
static const struct {
	const char *data;
	size_t bytes;
} leaves[] = { { "", 0 }, { "\x00", 1 }, { "\x10", 1 }, { "\x20\x21", 2 }, { "\x30\x31", 2 }, { "\x40\x41\x42\x43", 4 },
	       { "\x50\x51\x52\x53\x54\x55\x56\x57", 8 }, { "\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f", 16 } };
static const char *const roots[] = {
	"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
	"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125", "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
	"d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7", "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
	"76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef", "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
	"5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
};
static const char *const level_1[] = {
	"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125", "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
	"0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a", "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
};
static const char *const level_2[] = {
	"d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7", "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
};

static void assert_hash(const struct naos_hash *hash, const char *expected)
{
	char text[2 * NAOS_HASH_BYTES + 1];
	assert_string_equal(naos_hex_format(hash->bytes, NAOS_HASH_BYTES, text), expected);
}

static int check_completed(void *context, unsigned height, uint64_t index, const struct naos_hash *hash, struct naos_error *error)
{
	unsigned *calls = context;
	++*calls;
	if (height == 1)
		assert_hash(hash, level_1[index]);
	if (height == 2)
		assert_hash(hash, level_2[index]);
	if (height == 3)
		assert_hash(hash, roots[8]);
	return 0;
}

static void published_roots_and_nodes(void **state)
{
	struct naos_tree tree = { .size = 0 };
	struct naos_hash root, leaf;
	unsigned calls = 0;
	naos_tree_root(hasher, &tree, &root);
	assert_hash(&root, roots[0]);
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(leaves); i++) {
		naos_hash_leaf(hasher, leaves[i].data, leaves[i].bytes, &leaf);
		assert_ok(naos_tree_append(hasher, &tree, &leaf, check_completed, &calls, &err), &err);
		naos_tree_root(hasher, &tree, &root);
		assert_hash(&root, roots[i + 1]);
	}
	assert_int_equal(calls, 8 + 4 + 2 + 1);
}

/* ---- the definitions */

static size_t power_below(size_t n)
{
	size_t k = 1;
	while (2 * k < n)
		k *= 2;
	return k;
}

static void fill_table(void)
{
	table = calloc(MOST + 1, sizeof(*table));
	assert_non_null(table);
	for (size_t start = 0; start < MOST; start++) {
		char text[16];
		int bytes = snprintf(text, sizeof(text), "leaf %zu", start);
		naos_hash_leaf(hasher, text, (size_t)bytes, &table[start][1]);
	}
	for (size_t n = 2; n <= MOST; n++)
		for (size_t start = 0; start + n <= MOST; start++) {
			size_t k = power_below(n);
			naos_hash_node(hasher, &table[start][k], &table[start + k][n - k], &table[start][n]);
		}
}

static void path(size_t m, size_t start, size_t n, struct naos_proof *proof)
{
	size_t k = n > 1 ? power_below(n) : 0;
	if (n == 1)
		return;
	if (m < k) {
		path(m, start, k, proof);
		proof->hashes[proof->count++] = table[start + k][n - k];
	} else {
		path(m - k, start + k, n - k, proof);
		proof->hashes[proof->count++] = table[start][k];
	}
}

static void subproof(size_t m, size_t start, size_t n, bool whole, struct naos_proof *proof)
{
	if (m == n) {
		if (!whole)
			proof->hashes[proof->count++] = table[start][n];
		return;
	}
	size_t k = power_below(n);
	if (m <= k) {
		subproof(m, start, k, whole, proof);
		proof->hashes[proof->count++] = table[start + k][n - k];
	} else {
		subproof(m - k, start + k, n - k, false, proof);
		proof->hashes[proof->count++] = table[start][k];
	}
}

static int from_table(void *context, unsigned height, uint64_t index, struct naos_hash *ret, struct naos_error *error)
{
	*ret = table[index << height][(size_t)1 << height];
	return 0;
}

static void assert_same(const struct naos_proof *proof, const struct naos_proof *expected)
{
	assert_int_equal(proof->count, expected->count);
	assert_memory_equal(proof->hashes, expected->hashes, proof->count * sizeof(proof->hashes[0]));
}

static void every_root_up_to_600(void **state)
{
	struct naos_tree tree = { .size = 0 };
	struct naos_hash root;
	for (size_t n = 1; n <= MOST; n++) {
		assert_ok(naos_tree_append(hasher, &tree, &table[n - 1][1], NULL, NULL, &err), &err);
		naos_tree_root(hasher, &tree, &root);
		assert_memory_equal(&root, &table[0][n], sizeof(root));
	}
}

static void every_inclusion_proof_up_to_600(void **state)
{
	struct naos_proof proof;
	assert_code(naos_tree_prove_inclusion(hasher, from_table, NULL, 0, 0, &proof, &err), NAOS_E_NOTFOUND);
	for (size_t n = 1; n <= MOST; n++) {
		for (size_t m = 0; m < n; m++) {
			struct naos_proof expected = { .count = 0 };
			path(m, 0, n, &expected);
			assert_ok(naos_tree_prove_inclusion(hasher, from_table, NULL, m, n, &proof, &err), &err);
			assert_same(&proof, &expected);
			assert_true(naos_tree_check_inclusion(hasher, &proof, m, n, &table[m][1], &table[0][n]));
		}
		assert_code(naos_tree_prove_inclusion(hasher, from_table, NULL, n, n, &proof, &err), NAOS_E_NOTFOUND);
	}
}

static void every_consistency_proof_up_to_600(void **state)
{
	struct naos_proof proof;
	for (size_t n = 1; n <= MOST; n++)
		for (size_t m = 1; m <= n; m++) {
			struct naos_proof expected = { .count = 0 };
			subproof(m, 0, n, true, &expected);
			assert_ok(naos_tree_prove_consistency(hasher, from_table, NULL, m, n, &proof, &err), &err);
			assert_same(&proof, &expected);
			assert_true(naos_tree_check_consistency(hasher, &proof, m, n, &table[0][m], &table[0][n]));
		}
	assert_code(naos_tree_prove_consistency(hasher, from_table, NULL, 0, 5, &proof, &err), NAOS_E_USAGE);
	assert_code(naos_tree_prove_consistency(hasher, from_table, NULL, 6, 5, &proof, &err), NAOS_E_USAGE);
}

static void an_altered_inclusion_proof_is_refused(void **state)
{
	for (size_t n = 1; n <= 70; n++)
		for (size_t m = 0; m < n; m++) {
			struct naos_proof proof;
			const struct naos_hash *leaf = &table[m][1], *root = &table[0][n];
			assert_ok(naos_tree_prove_inclusion(hasher, from_table, NULL, m, n, &proof, &err), &err);
			for (size_t i = 0; i < proof.count; i++) {
				proof.hashes[i].bytes[m % 32] ^= 1;
				assert_false(naos_tree_check_inclusion(hasher, &proof, m, n, leaf, root));
				proof.hashes[i].bytes[m % 32] ^= 1;
			}
			for (size_t other = 0; other <= n; other++)
				if (other != m)
					assert_false(naos_tree_check_inclusion(hasher, &proof, other, n, leaf, root));
			assert_false(naos_tree_check_inclusion(hasher, &proof, m, n, &table[(m + 1) % MOST][1], root));
			assert_false(naos_tree_check_inclusion(hasher, &proof, m, n, leaf, &table[0][n + 1]));
			proof.count++;
			assert_false(naos_tree_check_inclusion(hasher, &proof, m, n, leaf, root));
			if (proof.count >= 2) {
				proof.count -= 2;
				assert_false(naos_tree_check_inclusion(hasher, &proof, m, n, leaf, root));
			}
		}
}

static void an_altered_consistency_proof_is_refused(void **state)
{
	for (size_t n = 1; n <= 70; n++)
		for (size_t m = 1; m <= n; m++) {
			struct naos_proof proof;
			const struct naos_hash *old = &table[0][m], *root = &table[0][n];
			assert_ok(naos_tree_prove_consistency(hasher, from_table, NULL, m, n, &proof, &err), &err);
			for (size_t i = 0; i < proof.count; i++) {
				proof.hashes[i].bytes[n % 32] ^= 0x80;
				assert_false(naos_tree_check_consistency(hasher, &proof, m, n, old, root));
				proof.hashes[i].bytes[n % 32] ^= 0x80;
			}
			assert_false(naos_tree_check_consistency(hasher, &proof, m, n, &table[1][m], root));
			assert_false(naos_tree_check_consistency(hasher, &proof, m, n, old, &table[1][n]));
			assert_false(naos_tree_check_consistency(hasher, &proof, 0, n, old, root));
			assert_false(naos_tree_check_consistency(hasher, &proof, n + 1, n, old, root));
			proof.count++;
			assert_false(naos_tree_check_consistency(hasher, &proof, m, n, old, root));
			if (proof.count >= 2) {
				proof.count -= 2;
				assert_false(naos_tree_check_consistency(hasher, &proof, m, n, old, root));
			}
		}
}

static void tiles_lie_where_the_specification_says(void **state)
{
	char text[NAOS_TILE_PATH_BYTES];
	assert_string_equal(naos_tile_path(0, 0, text), "tile/0/000");
	assert_string_equal(naos_tile_path(2, 999, text), "tile/2/999");
	assert_string_equal(naos_tile_path(1, 1000, text), "tile/1/x001/000");
	assert_string_equal(naos_tile_path(0, 1234067, text), "tile/0/x001/x234/067");
	assert_string_equal(naos_bundle_path(1234067, text), "records/x001/x234/067.jsonl");
	assert_int_equal(strlen(naos_bundle_path(UINT64_MAX >> 8, text)), strlen("records/x072/x057/x594/x037/x927/935.jsonl"));
	/* the example of tlog-tiles: a tree of 70,000 */
	assert_int_equal(naos_tile_width(0, 272, 70000), 256);
	assert_int_equal(naos_tile_width(0, 273, 70000), 112);
	assert_int_equal(naos_tile_width(0, 274, 70000), 0);
	assert_int_equal(naos_tile_width(1, 0, 70000), 256);
	assert_int_equal(naos_tile_width(1, 1, 70000), 17);
	assert_int_equal(naos_tile_width(2, 0, 70000), 1);
	assert_int_equal(naos_tile_width(1, 0, 256), 1);
}

static void peaks_come_back_from_tiles(void **state)
{
	for (size_t n = 1; n < 256; n++) {
		struct naos_tree tree = { .size = n };
		struct naos_hash hashes[256], root;
		for (size_t i = 0; i < n; i++)
			hashes[i] = table[i][1];
		naos_tile_peaks(hasher, 0, hashes, (unsigned)n, &tree);
		naos_tree_root(hasher, &tree, &root);
		assert_memory_equal(&root, &table[0][n], sizeof(root));
	}
}

static int start(void **state)
{
	if (naos_hasher_create(&hasher, &err) != 0)
		return -1;
	fill_table();
	return 0;
}

static int finish(void **state)
{
	int rc = naos_hasher_check(hasher, &err);
	hasher = naos_hasher_free(hasher);
	free(table);
	return rc;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_roots_and_nodes), cmocka_unit_test(every_root_up_to_600),
		cmocka_unit_test(every_inclusion_proof_up_to_600), cmocka_unit_test(every_consistency_proof_up_to_600),
		cmocka_unit_test(an_altered_inclusion_proof_is_refused), cmocka_unit_test(an_altered_consistency_proof_is_refused),
		cmocka_unit_test(tiles_lie_where_the_specification_says), cmocka_unit_test(peaks_come_back_from_tiles),
	};
	return cmocka_run_group_tests(tests, start, finish);
}
