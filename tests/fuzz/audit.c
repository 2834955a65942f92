/* What a log, a checkpoint or a proof from somebody else may hold.  The first byte says what the rest is read as: r record,
 * b bundle, c checkpoint, k key, p proof.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "audit/checkpoint.h"
#include "audit/proof.h"
#include "audit/record.h"
#include "audit/tile.h"
#include "fuzz.h"

static struct naos_verifier verifier;

static void need(bool condition)
{
	if (!condition)
		abort();
}

static void fuzz_record(const char *text, size_t bytes)
{
	struct naos_error err = NAOS_ERROR_INIT;
	json_t *record;
	uint64_t sequence;
	bool has_sequence = naos_record_sequence(text, bytes, &sequence);
	if (naos_record_parse(text, bytes, "it", &record, &err) != 0) {
		need(err.code != 0 && err.message[0] != 0);
		return;
	}
	/* both readers agree where both succeed */
	need(!has_sequence || (uint64_t)json_integer_value(json_object_get(record, "sequence")) == sequence || sequence > INT64_MAX);
	json_decref(record);
}

static void fuzz_bundle(const char *text, size_t bytes)
{
	struct naos_bundle bundle = { .data = (char *)(uintptr_t)text, .bytes = bytes };
	naos_bundle_split(&bundle);
	for (unsigned place = 0; place < bundle.count; place++) {
		size_t length;
		const char *line = naos_bundle_line(&bundle, place, &length);
		need(line >= text && line + length < text + bytes && line[length] == '\n' && !memchr(line, '\n', length));
		fuzz_record(line, length);
	}
}

static void fuzz_checkpoint(const char *text, size_t bytes)
{
	naos_autocheckpoint struct naos_checkpoint checkpoint = { .note = NULL }, opened = { .note = NULL };
	struct naos_error err = NAOS_ERROR_INIT;
	if (naos_checkpoint_parse(text, bytes, "it", &checkpoint, &err) != 0) {
		need(err.code != 0 && err.message[0] != 0);
		return;
	}
	need(checkpoint.origin[0] && checkpoint.size >> 63 == 0 && checkpoint.text_bytes < bytes);
	need(naos_checkpoint_open(text, bytes, "it", &verifier, &opened, &err) != 0); /* nobody has the key */
}

static void fuzz_key(const char *text, size_t bytes)
{
	char *copy = strndup(text, bytes), again[NAOS_NOTE_KEY_BYTES];
	struct naos_verifier found;
	if (!copy)
		abort();
	if (naos_verifier_parse(copy, "it", &found, NULL) == 0)
		need(strncmp(naos_verifier_format(&found, again), copy, strlen(again)) == 0);
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const uint8_t public_key[NAOS_ED25519_BYTES] = { 1 };
	struct naos_audit_proof proof;
	const char *text = (const char *)data + 1;
	if (bytes == 0)
		return 0;
	if (!verifier.name[0] && naos_verifier_make("naos/test", NAOS_NOTE_ED25519, public_key, &verifier, NULL) != 0)
		abort();
	switch (data[0]) {
	case 'r':
		fuzz_record(text, bytes - 1);
		break;
	case 'b':
		fuzz_bundle(text, bytes - 1);
		break;
	case 'c':
		fuzz_checkpoint(text, bytes - 1);
		break;
	case 'k':
		fuzz_key(text, bytes - 1);
		break;
	case 'p':
		need(naos_audit_proof_parse(text, bytes - 1, &verifier, &proof, NULL) != 0);
		break;
	default:
		break;
	}
	return 0;
}
