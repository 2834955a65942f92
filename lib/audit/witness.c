/* A witness: cosigns a log's checkpoints, never two that do not fit each other.  What it signed last is its whole state.
 * SPDX-License-Identifier: Apache-2.0 */
#include "audit/proof.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/io.h"

static bool exists(const char *path)
{
	struct stat status;
	return stat(path, &status) == 0;
}

/* KEY.pub beside KEY. */
static char *public_path(const char *key_path)
{
	char *path;
	return asprintf(&path, "%s.pub", key_path) < 0 ? NULL : path;
}

int naos_audit_witness_create(const char *key_path, const char *name, struct naos_error *err)
{
	struct naos_signer signer = { .seed = NULL };
	char text[NAOS_NOTE_KEY_BYTES + 1];
	naos_autofree char *path = public_path(key_path);
	if (!path)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a file name");
	if (exists(path))
		return naos_error_set(err, NAOS_E_EXISTS, "%s exists already", path);
	int rc = naos_signer_create(name, NAOS_NOTE_COSIGNATURE, &signer, err);
	if (rc == 0)
		rc = naos_signer_store(&signer, AT_FDCWD, key_path, err);
	if (rc == 0) {
		(void)naos_verifier_format(&signer.verifier, text);
		size_t bytes = strlen(text);
		text[bytes] = '\n';
		rc = naos_io_replace_file(AT_FDCWD, path, text, bytes + 1, 0644, err);
	}
	naos_signer_clear(&signer);
	return rc;
}

static int load_witness(const char *key_path, struct naos_signer *ret, struct naos_error *err)
{
	struct naos_verifier verifier;
	naos_autofree char *path = public_path(key_path);
	if (!path)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a file name");
	int rc = naos_verifier_read(AT_FDCWD, path, &verifier, err);
	if (rc == 0 && verifier.type != NAOS_NOTE_COSIGNATURE)
		rc = naos_error_set(err, NAOS_E_WRONG_KEY, "%s is the key of a log, not of a witness", path);
	if (rc == 0)
		rc = naos_signer_load(AT_FDCWD, key_path, verifier.name, NAOS_NOTE_COSIGNATURE, ret, err);
	if (rc == 0 && memcmp(&verifier, &ret->verifier, sizeof(verifier)) != 0) {
		naos_signer_clear(ret);
		rc = naos_error_set(err, NAOS_E_WRONG_KEY, "%s does not belong to %s", key_path, path);
	}
	return rc;
}

/* What is offered: a checkpoint, or a proof that it continues an earlier one. */
struct offer {
	struct naos_checkpoint checkpoint, earlier; /* earlier.note is NULL without a proof */
};

static void offer_clear(struct offer *offer)
{
	naos_checkpoint_clear(&offer->checkpoint);
	naos_checkpoint_clear(&offer->earlier);
}

static int read_proof(const char *text, size_t bytes, const struct naos_verifier *log, struct offer *offer, struct naos_error *err)
{
	struct naos_audit_proof proof;
	int rc = naos_audit_proof_parse(text, bytes, log, &proof, err);
	if (rc != 0)
		return rc;
	rc = naos_checkpoint_parse(proof.checkpoint, strlen(proof.checkpoint), "checkpoint", &offer->checkpoint, err);
	if (rc == 0 && proof.earlier)
		rc = naos_checkpoint_parse(proof.earlier, strlen(proof.earlier), "earlier", &offer->earlier, err);
	naos_audit_proof_clear(&proof);
	return rc;
}

static int read_offer(const char *path, const struct naos_verifier *log, struct offer *offer, struct naos_error *err)
{
	naos_autofree uint8_t *data = NULL;
	size_t bytes;
	int rc = naos_io_read_file(AT_FDCWD, path, NAOS_PROOF_MAX_BYTES, &data, &bytes, err);
	if (rc != 0)
		return rc;
	if (data[0] != '{')
		return naos_checkpoint_open((const char *)data, bytes, path, log, &offer->checkpoint, err);
	rc = read_proof((const char *)data, bytes, log, offer, err);
	return rc == 0 ? 0 : naos_error_prefix(err, rc, "proof %s", path);
}

static bool same_tree(const struct naos_checkpoint *left, const struct naos_checkpoint *right)
{
	return left->size == right->size && naos_hash_equal(&left->root, &right->root);
}

/* The rule of a witness: the new checkpoint is proven to continue the last one it signed. */
static int check_offer(const struct offer *offer, const struct naos_checkpoint *last, struct naos_error *err)
{
	const struct naos_checkpoint *checkpoint = &offer->checkpoint;
	if (same_tree(checkpoint, last))
		return 0;
	if (checkpoint->size <= last->size)
		return naos_error_set(err, NAOS_E_INTEGRITY,
				      "the log %s was cut or rewritten: %" PRIu64 " records are offered, %" PRIu64 " were cosigned before",
				      checkpoint->origin, checkpoint->size, last->size);
	if (!offer->earlier.note)
		return naos_error_set(err, NAOS_E_USAGE,
				      "a larger checkpoint needs a proof: 'naos audit prove --since' with the last one cosigned here");
	if (!same_tree(&offer->earlier, last))
		return naos_error_set(err, offer->earlier.size == last->size ? NAOS_E_INTEGRITY : NAOS_E_USAGE,
				      "the proof begins at another checkpoint (%" PRIu64 " records) than the last one cosigned here (%" PRIu64 ")",
				      offer->earlier.size, last->size);
	return 0;
}

static int sign(const struct naos_signer *signer, const struct naos_checkpoint *checkpoint, char **ret_note, struct naos_error *err)
{
	char line[NAOS_NOTE_LINE_BYTES];
	int rc = naos_note_sign(signer, checkpoint->note, checkpoint->text_bytes, (uint64_t)time(NULL), line, err);
	if (rc != 0)
		return rc;
	if (asprintf(ret_note, "%s%s", checkpoint->note, line) < 0)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a checkpoint");
	return 0;
}

int naos_audit_cosign(const struct naos_audit_witness *witness, const char *offer_path, char **ret_note, struct naos_error *err)
{
	struct offer offer naos_cleanup(offer_clear) = { .checkpoint = { .note = NULL } };
	naos_autocheckpoint struct naos_checkpoint last = { .note = NULL };
	naos_autofree char *note = NULL;
	struct naos_signer signer = { .seed = NULL };
	struct naos_verifier log;
	int rc = naos_verifier_read(AT_FDCWD, witness->log_key_path, &log, err);
	if (rc == 0)
		rc = read_offer(offer_path, &log, &offer, err);
	if (rc == 0 && exists(witness->state_path)) {
		rc = naos_checkpoint_read(AT_FDCWD, witness->state_path, &log, &last, err);
		if (rc == 0)
			rc = check_offer(&offer, &last, err);
	}
	if (rc == 0)
		rc = load_witness(witness->key_path, &signer, err);
	if (rc == 0)
		rc = sign(&signer, &offer.checkpoint, &note, err);
	naos_signer_clear(&signer);
	/* what was signed is remembered before it is given out */
	if (rc == 0)
		rc = naos_io_replace_file(AT_FDCWD, witness->state_path, note, strlen(note), 0644, err);
	if (rc == 0)
		*ret_note = naos_steal(note);
	return rc;
}
