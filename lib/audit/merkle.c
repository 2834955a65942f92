/* Merkle tree of RFC 6962.  SPDX-License-Identifier: Apache-2.0 */
#include "audit/merkle.h"

#include <string.h>
#include <openssl/evp.h>

struct naos_hasher {
	EVP_MD *digest;
	EVP_MD_CTX *context;
	bool failed;
};

int naos_hasher_create(struct naos_hasher **ret, struct naos_error *err)
{
	naos_autohasher struct naos_hasher *hasher = calloc(1, sizeof(*hasher));
	if (!hasher)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to hash");
	hasher->digest = EVP_MD_fetch(NULL, "SHA2-256", NULL);
	hasher->context = EVP_MD_CTX_new();
	if (!hasher->digest || !hasher->context || EVP_DigestInit_ex2(hasher->context, hasher->digest, NULL) != 1)
		return naos_error_set(err, NAOS_E_SYSTEM, "SHA-256 is not available in the cryptographic library");
	*ret = naos_steal(hasher);
	return 0;
}

struct naos_hasher *naos_hasher_free(struct naos_hasher *hasher)
{
	int saved = errno;
	if (hasher) {
		EVP_MD_CTX_free(hasher->context);
		EVP_MD_free(hasher->digest);
		free(hasher);
	}
	errno = saved;
	return NULL;
}

int naos_hasher_check(const struct naos_hasher *hasher, struct naos_error *err)
{
	return hasher->failed ? naos_error_set(err, NAOS_E_SYSTEM, "SHA-256 failed in the cryptographic library") : 0;
}

/* SHA-256 of prefix || first || second; the prefix is left out where prefix_bytes is 0. */
static void hash(struct naos_hasher *hasher, uint8_t prefix, size_t prefix_bytes, const void *first, size_t first_bytes,
		 const void *second, size_t second_bytes, struct naos_hash *ret)
{
	struct naos_hash result = { { 0 } };
	bool ok = EVP_DigestInit_ex2(hasher->context, NULL, NULL) == 1 && EVP_DigestUpdate(hasher->context, &prefix, prefix_bytes) == 1 &&
		  EVP_DigestUpdate(hasher->context, first, first_bytes) == 1 &&
		  EVP_DigestUpdate(hasher->context, second, second_bytes) == 1 &&
		  EVP_DigestFinal_ex(hasher->context, result.bytes, NULL) == 1;
	if (!ok)
		hasher->failed = true;
	*ret = result;
}

void naos_hash_leaf(struct naos_hasher *hasher, const void *data, size_t bytes, struct naos_hash *ret)
{
	hash(hasher, 0, 1, data, bytes, NULL, 0, ret);
}

void naos_hash_node(struct naos_hasher *hasher, const struct naos_hash *left, const struct naos_hash *right, struct naos_hash *ret)
{
	hash(hasher, 1, 1, left->bytes, NAOS_HASH_BYTES, right->bytes, NAOS_HASH_BYTES, ret);
}

void naos_hash_fold(struct naos_hasher *hasher, const struct naos_hash *hashes, unsigned count, struct naos_hash *ret)
{
	struct naos_hash row[128];
	if (count == 1) {
		*ret = hashes[0];
		return;
	}
	for (unsigned i = 0; i < count / 2; i++)
		naos_hash_node(hasher, &hashes[2 * i], &hashes[2 * i + 1], &row[i]);
	for (unsigned left = count / 4; left > 0; left /= 2)
		for (unsigned i = 0; i < left; i++)
			naos_hash_node(hasher, &row[2 * i], &row[2 * i + 1], &row[i]);
	*ret = row[0];
}

bool naos_hash_equal(const struct naos_hash *left, const struct naos_hash *right)
{
	return memcmp(left->bytes, right->bytes, NAOS_HASH_BYTES) == 0;
}

int naos_tree_append(struct naos_hasher *hasher, struct naos_tree *tree, const struct naos_hash *leaf, naos_tree_completed completed,
		     void *context, struct naos_error *err)
{
	struct naos_hash node = *leaf;
	unsigned height = 0;
	if (tree->size >> NAOS_TREE_MAX_HEIGHT)
		return naos_error_set(err, NAOS_E_LIMIT, "the log is full");
	for (;; height++) {
		int rc = completed ? completed(context, height, tree->size >> height, &node, err) : 0;
		if (rc != 0)
			return rc;
		if (!(tree->size >> height & 1))
			break;
		naos_hash_node(hasher, &tree->peaks[height], &node, &node);
	}
	tree->peaks[height] = node;
	tree->size++;
	return 0;
}

void naos_tree_root(struct naos_hasher *hasher, const struct naos_tree *tree, struct naos_hash *ret)
{
	struct naos_hash root;
	bool begun = false;
	if (tree->size == 0) {
		hash(hasher, 0, 0, NULL, 0, NULL, 0, ret);
		return;
	}
	for (unsigned height = 0; height <= NAOS_TREE_MAX_HEIGHT; height++) {
		if (!(tree->size >> height & 1))
			continue;
		if (begun)
			naos_hash_node(hasher, &tree->peaks[height], &root, &root);
		else
			root = tree->peaks[height];
		begun = true;
	}
	*ret = root;
}

/* The place where RFC 6962 splits n > 1 leaves: the largest power of two below n. */
static uint64_t split(uint64_t n)
{
	return (uint64_t)1 << (63 - __builtin_clzll(n - 1));
}

struct prover {
	struct naos_hasher *hasher;
	naos_tree_source source;
	void *context;
	struct naos_proof proof;
};

/* MTH(D[start:start+n]); start is a multiple of the power of two at or above n. */
static int range_hash(struct prover *prover, uint64_t start, uint64_t n, struct naos_hash *ret, struct naos_error *err)
{
	if ((n & (n - 1)) == 0) {
		unsigned height = (unsigned)__builtin_ctzll(n);
		return prover->source(prover->context, height, start >> height, ret, err);
	}
	struct naos_hash left, right;
	uint64_t k = split(n);
	int rc = range_hash(prover, start, k, &left, err);
	if (rc == 0)
		rc = range_hash(prover, start + k, n - k, &right, err);
	if (rc == 0)
		naos_hash_node(prover->hasher, &left, &right, ret);
	return rc;
}

static int add_range(struct prover *prover, uint64_t start, uint64_t n, struct naos_error *err)
{
	struct naos_hash node;
	int rc = range_hash(prover, start, n, &node, err);
	if (rc == 0)
		prover->proof.hashes[prover->proof.count++] = node;
	return rc;
}

/* PATH of section 2.1.1. */
static int path(struct prover *prover, uint64_t index, uint64_t start, uint64_t n, struct naos_error *err)
{
	if (n == 1)
		return 0;
	uint64_t k = split(n);
	bool is_left = index < k;
	int rc = is_left ? path(prover, index, start, k, err) : path(prover, index - k, start + k, n - k, err);
	if (rc != 0)
		return rc;
	return is_left ? add_range(prover, start + k, n - k, err) : add_range(prover, start, k, err);
}

/* SUBPROOF of section 2.1.2; whole: D[start:start+old] is a tree that the verifier has the root of. */
static int subproof(struct prover *prover, uint64_t old, uint64_t start, uint64_t n, bool whole, struct naos_error *err)
{
	if (old == n)
		return whole ? 0 : add_range(prover, start, n, err);
	uint64_t k = split(n);
	if (old <= k) {
		int rc = subproof(prover, old, start, k, whole, err);
		return rc != 0 ? rc : add_range(prover, start + k, n - k, err);
	}
	int rc = subproof(prover, old - k, start + k, n - k, false, err);
	return rc != 0 ? rc : add_range(prover, start, k, err);
}

int naos_tree_prove_inclusion(struct naos_hasher *hasher, naos_tree_source source, void *context, uint64_t index, uint64_t size,
			      struct naos_proof *ret, struct naos_error *err)
{
	struct prover prover = { .hasher = hasher, .source = source, .context = context };
	if (index >= size || size >> NAOS_TREE_MAX_HEIGHT)
		return naos_error_set(err, NAOS_E_NOTFOUND, "there is no record %llu in a log of %llu", (unsigned long long)index,
				      (unsigned long long)size);
	int rc = path(&prover, index, 0, size, err);
	if (rc == 0)
		*ret = prover.proof;
	return rc;
}

int naos_tree_prove_consistency(struct naos_hasher *hasher, naos_tree_source source, void *context, uint64_t old_size, uint64_t size,
				struct naos_proof *ret, struct naos_error *err)
{
	struct prover prover = { .hasher = hasher, .source = source, .context = context };
	if (old_size == 0 || old_size > size || size >> NAOS_TREE_MAX_HEIGHT)
		return naos_error_set(err, NAOS_E_USAGE, "no proof leads from a log of %llu to one of %llu records",
				      (unsigned long long)old_size, (unsigned long long)size);
	int rc = subproof(&prover, old_size, 0, size, true, err);
	if (rc == 0)
		*ret = prover.proof;
	return rc;
}

/* Walks a path from a node at (index, last) up to the root: RFC 9162 section 2.1.3.2, which verifies RFC 6962 proofs.
 * `root` follows all nodes; `old` (may be NULL) only those on the left, which make up the older tree. */
static bool climb(struct naos_hasher *hasher, const struct naos_proof *proof, size_t from, uint64_t index, uint64_t last,
		  struct naos_hash *root, struct naos_hash *old)
{
	for (size_t i = from; i < proof->count; i++) {
		if (last == 0)
			return false; /* longer than the tree is high */
		if ((index & 1) || index == last) {
			naos_hash_node(hasher, &proof->hashes[i], root, root);
			if (old)
				naos_hash_node(hasher, &proof->hashes[i], old, old);
			while (!(index & 1) && index != 0) {
				index >>= 1;
				last >>= 1;
			}
		} else {
			naos_hash_node(hasher, root, &proof->hashes[i], root);
		}
		index >>= 1;
		last >>= 1;
	}
	return last == 0;
}

bool naos_tree_check_inclusion(struct naos_hasher *hasher, const struct naos_proof *proof, uint64_t index, uint64_t size,
			       const struct naos_hash *leaf, const struct naos_hash *root)
{
	struct naos_hash node = *leaf;
	if (index >= size || size >> NAOS_TREE_MAX_HEIGHT || proof->count > NAOS_PROOF_MAX_HASHES)
		return false;
	return climb(hasher, proof, 0, index, size - 1, &node, NULL) && naos_hash_equal(&node, root);
}

bool naos_tree_check_consistency(struct naos_hasher *hasher, const struct naos_proof *proof, uint64_t old_size, uint64_t size,
				 const struct naos_hash *old_root, const struct naos_hash *root)
{
	if (old_size == 0 || old_size > size || size >> NAOS_TREE_MAX_HEIGHT || proof->count > NAOS_PROOF_MAX_HASHES)
		return false;
	if (old_size == size)
		return proof->count == 0 && naos_hash_equal(old_root, root);
	/* a power of two: the older tree is one node, and the proof leaves out what the verifier has */
	bool perfect = (old_size & (old_size - 1)) == 0;
	if (!perfect && proof->count == 0)
		return false;
	struct naos_hash old = perfect ? *old_root : proof->hashes[0], node = old;
	uint64_t index = old_size - 1, last = size - 1;
	while (index & 1) {
		index >>= 1;
		last >>= 1;
	}
	return climb(hasher, proof, perfect ? 0 : 1, index, last, &node, &old) && naos_hash_equal(&old, old_root) &&
	       naos_hash_equal(&node, root);
}
