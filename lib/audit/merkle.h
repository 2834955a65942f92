/* Merkle tree hashes, inclusion and consistency proofs as in RFC 6962 section 2.1 (SHA-256, leaf prefix 0, node prefix 1).
 * A tree is kept as its peaks: the roots of the perfect subtrees that its size is made of, one per set bit of the size.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_AUDIT_MERKLE_H
#define NAOS_AUDIT_MERKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/errors.h"

#define NAOS_HASH_BYTES 32
#define NAOS_TREE_MAX_HEIGHT 63 /* an audit log holds fewer than 2^63 records */
#define NAOS_PROOF_MAX_HASHES 64 /* in a proof about an audit log */

struct naos_hash {
	uint8_t bytes[NAOS_HASH_BYTES];
};

/* The peak of 2^height leaves is valid where bit `height` of size is set. */
struct naos_tree {
	uint64_t size;
	struct naos_hash peaks[NAOS_TREE_MAX_HEIGHT + 1];
};

struct naos_proof {
	size_t count;
	struct naos_hash hashes[NAOS_PROOF_MAX_HASHES];
};

/* A reusable SHA-256.  A failure of the library sticks and is asked for once, at the end; used by one thread at a time. */
struct naos_hasher;
int naos_hasher_create(struct naos_hasher **ret, struct naos_error *err) naos_must_check;
struct naos_hasher *naos_hasher_free(struct naos_hasher *hasher);
int naos_hasher_check(const struct naos_hasher *hasher, struct naos_error *err) naos_must_check;

void naos_hash_leaf(struct naos_hasher *hasher, const void *data, size_t bytes, struct naos_hash *ret);
void naos_hash_node(struct naos_hasher *hasher, const struct naos_hash *left, const struct naos_hash *right, struct naos_hash *ret);
/* Root of a perfect subtree of `count` (a power of two, at most 256) hashes. */
void naos_hash_fold(struct naos_hasher *hasher, const struct naos_hash *hashes, unsigned count, struct naos_hash *ret);
bool naos_hash_equal(const struct naos_hash *left, const struct naos_hash *right);

/* Told of each perfect subtree that an append completes: its height and its index among those of that height. */
typedef int (*naos_tree_completed)(void *context, unsigned height, uint64_t index, const struct naos_hash *hash, struct naos_error *err);
/* `completed` may be NULL; its first failure ends the append and leaves the tree as it was. */
int naos_tree_append(struct naos_hasher *hasher, struct naos_tree *tree, const struct naos_hash *leaf, naos_tree_completed completed,
		     void *context, struct naos_error *err) naos_must_check;
void naos_tree_root(struct naos_hasher *hasher, const struct naos_tree *tree, struct naos_hash *ret);

/* Gives the root of the perfect subtree of 2^height leaves that starts at leaf index << height. */
typedef int (*naos_tree_source)(void *context, unsigned height, uint64_t index, struct naos_hash *ret, struct naos_error *err);
int naos_tree_prove_inclusion(struct naos_hasher *hasher, naos_tree_source source, void *context, uint64_t index, uint64_t size,
			      struct naos_proof *ret, struct naos_error *err) naos_must_check;
/* From the tree of the first old_size leaves to that of size leaves; 0 < old_size <= size. */
int naos_tree_prove_consistency(struct naos_hasher *hasher, naos_tree_source source, void *context, uint64_t old_size, uint64_t size,
				struct naos_proof *ret, struct naos_error *err) naos_must_check;

/* True if the leaf is number `index` of the tree of that size and root. */
bool naos_tree_check_inclusion(struct naos_hasher *hasher, const struct naos_proof *proof, uint64_t index, uint64_t size,
			       const struct naos_hash *leaf, const struct naos_hash *root);
/* True if the tree of `size` and `root` begins with the tree of old_size and old_root. */
bool naos_tree_check_consistency(struct naos_hasher *hasher, const struct naos_proof *proof, uint64_t old_size, uint64_t size,
				 const struct naos_hash *old_root, const struct naos_hash *root);

static inline void naos_hasher_free_pointer(struct naos_hasher **hasher)
{
	*hasher = naos_hasher_free(*hasher);
}
#define naos_autohasher naos_cleanup(naos_hasher_free_pointer)

#endif
