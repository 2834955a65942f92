/* Reading and checking a proof file.  SPDX-License-Identifier: Apache-2.0 */
#include "audit/proof.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "audit/base64.h"
#include "audit/record.h"
#include "base/io.h"

static bool hashes_from_json(const json_t *array, struct naos_proof *ret)
{
	const json_t *text;
	size_t index, bytes;
	if (!json_is_array(array) || json_array_size(array) > NAOS_PROOF_MAX_HASHES)
		return false;
	json_array_foreach((json_t *)(uintptr_t)array, index, text)
		if (!json_is_string(text) || !naos_base64_decode(json_string_value(text), json_string_length(text), ret->hashes[index].bytes,
								 NAOS_HASH_BYTES, &bytes) || bytes != NAOS_HASH_BYTES)
			return false;
	ret->count = json_array_size(array);
	return true;
}

/* The note in member `name`, signed by the log. */
static int note_from_json(const json_t *root, const char *name, const struct naos_verifier *verifier, struct naos_checkpoint *ret,
			  struct naos_error *err)
{
	const json_t *note = json_object_get(root, name);
	if (!json_is_string(note))
		return naos_error_set(err, NAOS_E_FORMAT, "it has no member '%s'", name);
	return naos_checkpoint_open(json_string_value(note), json_string_length(note), name, verifier, ret, err);
}

static int check_record(const json_t *root, const struct naos_proof *proof, const struct naos_checkpoint *checkpoint,
			struct naos_hasher *hasher, struct naos_audit_proof *ret, struct naos_error *err)
{
	const json_t *record = json_object_get(root, "record"), *sequence = json_object_get(root, "sequence");
	struct naos_hash leaf;
	uint64_t found;
	if (!json_is_string(record) || !json_is_integer(sequence) || json_integer_value(sequence) < 0)
		return naos_error_set(err, NAOS_E_FORMAT, "it has no record with its sequence");
	const char *line = json_string_value(record);
	ret->sequence = (uint64_t)json_integer_value(sequence);
	naos_hash_leaf(hasher, line, json_string_length(record), &leaf);
	if (!naos_record_sequence(line, json_string_length(record), &found) || found != ret->sequence)
		return naos_error_set(err, NAOS_E_INTEGRITY, "its record is not number %" PRIu64, ret->sequence);
	if (!naos_tree_check_inclusion(hasher, proof, ret->sequence, checkpoint->size, &leaf, &checkpoint->root))
		return naos_error_set(err, NAOS_E_INTEGRITY, "record %" PRIu64 " is not proven: record, hashes and checkpoint don't fit",
				      ret->sequence);
	ret->record = strdup(line);
	return ret->record ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for a proof");
}

static int check_continuation(const json_t *root, const struct naos_proof *proof, const struct naos_checkpoint *checkpoint,
			      const struct naos_verifier *verifier, struct naos_hasher *hasher, struct naos_audit_proof *ret,
			      struct naos_error *err)
{
	naos_autocheckpoint struct naos_checkpoint earlier = { .note = NULL };
	int rc = note_from_json(root, "earlier", verifier, &earlier, err);
	if (rc != 0)
		return rc;
	bool ok = earlier.size == 0 ? proof->count == 0
				    : naos_tree_check_consistency(hasher, proof, earlier.size, checkpoint->size, &earlier.root, &checkpoint->root);
	if (!ok)
		return naos_error_set(err, NAOS_E_INTEGRITY, "that the log continues is not proven: hashes and checkpoints don't fit");
	ret->earlier_size = earlier.size;
	ret->earlier = naos_steal(earlier.note);
	return 0;
}

static int check(const json_t *root, const struct naos_verifier *verifier, struct naos_audit_proof *ret, struct naos_error *err)
{
	naos_autocheckpoint struct naos_checkpoint checkpoint = { .note = NULL };
	naos_autohasher struct naos_hasher *hasher = NULL;
	struct naos_proof proof;
	const char *format = json_string_value(json_object_get(root, "format")), *kind = json_string_value(json_object_get(root, "kind"));
	if (!format || strcmp(format, NAOS_PROOF_FORMAT) != 0 || !kind || !hashes_from_json(json_object_get(root, "hashes"), &proof))
		return naos_error_set(err, NAOS_E_FORMAT, "it is not a proof of the form %s", NAOS_PROOF_FORMAT);
	int rc = note_from_json(root, "checkpoint", verifier, &checkpoint, err);
	if (rc == 0)
		rc = naos_hasher_create(&hasher, err);
	if (rc != 0)
		return rc;
	if (strcmp(kind, "record") == 0)
		rc = check_record(root, &proof, &checkpoint, hasher, ret, err);
	else if (strcmp(kind, "continuation") == 0)
		rc = check_continuation(root, &proof, &checkpoint, verifier, hasher, ret, err);
	else
		rc = naos_error_set(err, NAOS_E_FORMAT, "it is a proof of another kind");
	if (rc == 0)
		rc = naos_hasher_check(hasher, err);
	if (rc != 0)
		return rc;
	memcpy(ret->origin, checkpoint.origin, sizeof(ret->origin));
	ret->size = checkpoint.size;
	ret->checkpoint = naos_steal(checkpoint.note);
	return 0;
}

int naos_audit_proof_parse(const char *text, size_t bytes, const struct naos_verifier *verifier, struct naos_audit_proof *ret,
			   struct naos_error *err)
{
	struct naos_audit_proof proof = { .size = 0 };
	json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
	int rc = json_is_object(root) ? check(root, verifier, &proof, err) : naos_error_set(err, NAOS_E_FORMAT, "it is not a JSON object");
	json_decref(root);
	if (rc == 0)
		*ret = proof;
	else
		naos_audit_proof_clear(&proof);
	return rc;
}

int naos_audit_proof_open(const char *proof_path, const char *key_path, struct naos_audit_proof *ret, struct naos_error *err)
{
	naos_autofree uint8_t *data = NULL;
	struct naos_verifier verifier;
	size_t bytes;
	int rc = naos_verifier_read(AT_FDCWD, key_path, &verifier, err);
	if (rc == 0)
		rc = naos_io_read_file(AT_FDCWD, proof_path, NAOS_PROOF_MAX_BYTES, &data, &bytes, err);
	if (rc != 0)
		return rc;
	rc = naos_audit_proof_parse((const char *)data, bytes, &verifier, ret, err);
	return rc == 0 ? 0 : naos_error_prefix(err, rc, "proof %s", proof_path);
}

void naos_audit_proof_clear(struct naos_audit_proof *proof)
{
	free(proof->checkpoint);
	free(proof->record);
	free(proof->earlier);
	proof->checkpoint = proof->record = proof->earlier = NULL;
}
