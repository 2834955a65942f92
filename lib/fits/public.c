/* include/naos/frame.h: what the public interface adds to this part: paths, keys of programs, files that get their names when they are
 * complete.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>

#include "base/io.h"
#include "engine/configure.h"
#include "fits/collection.h"
#include "fits/frame_inside.h"
#include "fits/whole.h"
#include "seal/walk.h"

/* --- keys ----------------------------------------------------------------------------------------------------------------- */

struct access {
	struct naos_config *config;
	struct naos_provider *provider;
	struct naos_secret *given[2];
};

static void access_end(struct access *access)
{
	access->config = naos_config_free(access->config);
	access->provider = naos_provider_close(access->provider);
	for (unsigned i = 0; i < 2; i++)
		access->given[i] = naos_secret_free(access->given[i]);
}

static int take_given(const uint8_t *key, size_t bytes, struct naos_secret **ret, struct naos_error *err)
{
	naos_autosecret struct naos_secret *secret = NULL;
	if (!key)
		return 0;
	if (bytes != 16 && bytes != 32)
		return naos_error_set(err, NAOS_E_USAGE, "a key of a frame has 16 or 32 bytes, not %zu", bytes);
	int rc = naos_secret_create(bytes, &secret, err);
	if (rc != 0)
		return rc;
	memcpy(naos_secret_data(secret), key, bytes); /* lint-ok: the program's own copy becomes a secret here */
	*ret = naos_steal(secret);
	return 0;
}

static int access_begin(struct access *access, const struct naos_frame_access *wanted, bool manager, struct naos_error *err)
{
	static const struct naos_frame_access none = { .header_key = NULL };
	wanted = wanted ? wanted : &none;
	int rc = take_given(wanted->header_key, wanted->header_key_bytes, &access->given[0], err);
	if (rc == 0)
		rc = take_given(wanted->data_key, wanted->data_key_bytes, &access->given[1], err);
	if (rc != 0 || wanted->no_key_manager)
		return rc;
	rc = naos_config_load(wanted->config_path, &access->config, err);
	if (rc == 0)
		naos_gpu_policy_read(access->config);
	const char *uri = rc == 0 ? naos_config_string(access->config, "keymanager", NULL, "uri") : "";
	bool both = access->given[0] && access->given[1];
	if (rc == 0 && ((*uri && !both) || manager))
		rc = naos_provider_open(uri, naos_config_string(access->config, "keymanager", NULL, "store"), &access->provider, err);
	return rc;
}

static unsigned jobs_of(unsigned jobs)
{
	return jobs ? jobs : naos_walk_default_jobs();
}

/* --- seal ------------------------------------------------------------------------------------------------------------------- */

int naos_frame_seal(const char *source, const char *target, const struct naos_frame_access *wanted, const char *collection,
		    uint32_t segment_bytes, bool replace, unsigned jobs, struct naos_error *err)
{
	naos_cleanup(access_end) struct access access = { .config = NULL };
	naos_cleanup(naos_frame_keys_free) struct naos_frame_keys fresh = { .keys = { NULL, NULL } };
	struct naos_frame_new what = { .algorithm = NAOS_AES_256_GCM, .segment_bytes = segment_bytes, .jobs = jobs_of(jobs) };
	struct naos_collection found;
	char shown[1024];
	(void)naos_io_printable(source, shown, sizeof(shown));
	naos_autoclose int fd = open(source, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s", shown);
	int rc = access_begin(&access, wanted, collection != NULL, err);
	if (rc == 0 && collection && (access.given[0] || access.given[1] || !access.config))
		rc = naos_error_set(err, NAOS_E_USAGE, "a frame of a collection gets its keys from the key manager: give none");
	if (rc == 0 && !collection && (!access.given[0] || !access.given[1]))
		rc = naos_error_set(err, NAOS_E_USAGE, "give a collection, or both the header key and the data key");
	if (rc == 0 && collection)
		rc = naos_collection_find(access.config, collection, access.provider, &found, err);
	what.keys[0] = access.given[0];
	what.keys[1] = access.given[1];
	if (rc == 0 && collection)
		rc = naos_collection_new_frame(&found, access.provider, &fresh, &what, err);
	else if (rc == 0)
		rc = naos_uuid_random(&what.frame_id, err);
	return rc ? rc : naos_frame_seal_file(fd, shown, target, replace, &what, err);
}

/* --- open ------------------------------------------------------------------------------------------------------------------- */

int naos_frame_open(const char *path, const struct naos_frame_access *wanted, struct naos_frame **ret, struct naos_error *err)
{
	naos_cleanup(access_end) struct access access = { .config = NULL };
	char shown[1024];
	(void)naos_io_printable(path, shown, sizeof(shown));
	int rc = access_begin(&access, wanted, false, err);
	if (rc != 0)
		return rc;
	struct naos_frame_opener opener = { .provider = access.provider, .given = { access.given[0], access.given[1] } };
	const struct naos_frame_source source = naos_frame_opener_source(&opener);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s", shown);
	return naos_frame_open_fd(fd, shown, &source, ret, err);
}

static void put_uuid(const struct naos_uuid *id, char ret[static NAOS_UUID_TEXT_BYTES])
{
	static const struct naos_uuid none;
	if (memcmp(id, &none, sizeof(none)) != 0)
		(void)naos_uuid_format(id, ret);
}

void naos_frame_facts(const struct naos_frame *frame, struct naos_frame_facts *ret)
{
	_Static_assert(sizeof(ret->frame_id) == NAOS_UUID_TEXT_BYTES, "identifiers fit");
	const struct naos_frame_manifest *manifest = naos_frame_manifest(frame);
	struct naos_frame_facts facts = {
		.version = manifest->version, .segment_bytes = manifest->segment_bytes, .units = manifest->hdu_count, .bytes = manifest->file_bytes,
	};
	(void)snprintf(facts.algorithm, sizeof(facts.algorithm), "%s", naos_algorithm_name(manifest->algorithm));
	put_uuid(&manifest->frame_id, facts.frame_id);
	put_uuid(&manifest->collection_id, facts.collection_id);
	if (frame->has_blob[0])
		put_uuid(&frame->blobs[0].mek_id, facts.header_mek);
	if (frame->has_blob[1])
		put_uuid(&frame->blobs[1].mek_id, facts.data_mek);
	*ret = facts;
}

int naos_frame_read_parallel(struct naos_frame *frame, void *buffer, size_t bytes, uint64_t offset, unsigned jobs, size_t *ret_bytes,
			     struct naos_error *err)
{
	return frame_read_parallel(frame, buffer, bytes, offset, jobs_of(jobs), ret_bytes, err);
}

/* --- whole files ------------------------------------------------------------------------------------------------------ */

int naos_frame_write(struct naos_frame *frame, const char *target, bool replace, unsigned jobs, struct naos_error *err)
{
	const struct naos_frame_writing how = { .replace = replace, .jobs = jobs_of(jobs) };
	bool written;
	return naos_frame_write_file(frame, target, &how, &written, err);
}
