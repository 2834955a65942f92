/* Checkpoints of a log.  SPDX-License-Identifier: Apache-2.0 */
#include "audit/checkpoint.h"

#include <inttypes.h>
#include <string.h>

#include "audit/base64.h"
#include "base/io.h"

int naos_checkpoint_make(const struct naos_signer *signer, uint64_t size, const struct naos_hash *root, struct naos_checkpoint *ret,
			 struct naos_error *err)
{
	struct naos_checkpoint checkpoint = { .size = size, .root = *root };
	char hash[NAOS_BASE64_BYTES(NAOS_HASH_BYTES)], line[NAOS_NOTE_LINE_BYTES], *note;
	char text[NAOS_NOTE_NAME_BYTES + 128];
	int bytes = snprintf(text, sizeof(text), "%s\n%" PRIu64 "\n%s\n", signer->verifier.name, size,
			     naos_base64_encode(root->bytes, NAOS_HASH_BYTES, hash));
	int rc = naos_note_sign(signer, text, (size_t)bytes, 0, line, err);
	if (rc != 0)
		return rc;
	int note_bytes = asprintf(&note, "%s\n%s", text, line);
	if (note_bytes < 0)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a checkpoint");
	memcpy(checkpoint.origin, signer->verifier.name, sizeof(checkpoint.origin));
	checkpoint.note = note;
	checkpoint.note_bytes = (size_t)note_bytes;
	checkpoint.text_bytes = (size_t)bytes;
	*ret = checkpoint;
	return 0;
}

/* Copies the next line of the text, without its newline; false if there is none, it is empty or too long. */
static bool next_line(const char **at, const char *end, char *line, size_t room)
{
	const char *stop = memchr(*at, '\n', (size_t)(end - *at));
	if (!stop || stop == *at || (size_t)(stop - *at) >= room)
		return false;
	memcpy(line, *at, (size_t)(stop - *at));
	line[stop - *at] = 0;
	*at = stop + 1;
	return true;
}

/* Decimal without sign or leading zero, below 2^63. */
static bool parse_size(const char *text, uint64_t *ret)
{
	uint64_t value = 0;
	size_t digits = strspn(text, "0123456789");
	if (digits == 0 || digits > 19 || text[digits] || (text[0] == '0' && digits > 1))
		return false;
	for (; *text; text++)
		value = value * 10 + (uint64_t)(*text - '0');
	*ret = value;
	return !(value >> NAOS_TREE_MAX_HEIGHT);
}

int naos_checkpoint_parse(const char *note, size_t bytes, const char *what, struct naos_checkpoint *ret, struct naos_error *err)
{
	naos_autocheckpoint struct naos_checkpoint checkpoint = { .note = NULL };
	char number[32], hash[NAOS_BASE64_BYTES(NAOS_HASH_BYTES)];
	size_t hash_bytes;
	int rc = naos_note_parse(note, bytes, what, &checkpoint.text_bytes, err);
	if (rc != 0)
		return rc;
	const char *at = note, *end = note + checkpoint.text_bytes;
	if (!next_line(&at, end, checkpoint.origin, sizeof(checkpoint.origin)) || !next_line(&at, end, number, sizeof(number)) ||
	    !next_line(&at, end, hash, sizeof(hash)) || !parse_size(number, &checkpoint.size) ||
	    !naos_base64_decode(hash, strlen(hash), checkpoint.root.bytes, NAOS_HASH_BYTES, &hash_bytes) || hash_bytes != NAOS_HASH_BYTES)
		return naos_error_set(err, NAOS_E_FORMAT, "%s is not a checkpoint (origin, size, root hash)", what);
	checkpoint.note = malloc(bytes + 1);
	if (!checkpoint.note)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a checkpoint");
	memcpy(checkpoint.note, note, bytes);
	checkpoint.note[bytes] = 0;
	checkpoint.note_bytes = bytes;
	*ret = checkpoint;
	checkpoint.note = NULL;
	return 0;
}

int naos_checkpoint_open(const char *note, size_t bytes, const char *what, const struct naos_verifier *verifier,
			 struct naos_checkpoint *ret, struct naos_error *err)
{
	naos_autocheckpoint struct naos_checkpoint checkpoint = { .note = NULL };
	int rc = naos_checkpoint_parse(note, bytes, what, &checkpoint, err);
	if (rc == 0)
		rc = naos_note_verify(note, bytes, checkpoint.text_bytes, verifier, what, NULL, err);
	if (rc != 0)
		return rc;
	if (verifier->type == NAOS_NOTE_ED25519 && strcmp(checkpoint.origin, verifier->name) != 0)
		return naos_error_set(err, NAOS_E_INTEGRITY, "%s is of the log %s, not of %s", what, checkpoint.origin, verifier->name);
	*ret = checkpoint;
	checkpoint.note = NULL;
	return 0;
}

int naos_checkpoint_read(int dir_fd, const char *path, const struct naos_verifier *verifier, struct naos_checkpoint *ret,
			 struct naos_error *err)
{
	naos_autofree uint8_t *data = NULL;
	size_t bytes;
	int rc = naos_io_read_file(dir_fd, path, NAOS_NOTE_MAX_BYTES, &data, &bytes, err);
	return rc != 0 ? rc : naos_checkpoint_open((const char *)data, bytes, path, verifier, ret, err);
}

int naos_verifier_read(int dir_fd, const char *path, struct naos_verifier *ret, struct naos_error *err)
{
	naos_autofree uint8_t *data = NULL;
	size_t bytes;
	int rc = naos_io_read_file(dir_fd, path, NAOS_NOTE_KEY_BYTES, &data, &bytes, err);
	if (rc != 0)
		return rc;
	if (strlen((const char *)data) != bytes)
		return naos_error_set(err, NAOS_E_FORMAT, "%s is not an Ed25519 verifier key (NAME+ID+BASE64)", path);
	return naos_verifier_parse((const char *)data, path, ret, err);
}
