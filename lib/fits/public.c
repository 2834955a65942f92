/* include/naos/frame.h: what the public interface adds to this part: paths, keys of programs, files that get their names when they are
 * complete.  SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "fits/collection.h"
#include "fits/cutout.h"
#include "seal/publish.h"
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

static int seal_file(int source_fd, const char *source, const char *target, const struct naos_frame_new *what, bool replace,
		     struct naos_error *err)
{
	naos_autodraft struct naos_draft draft = { .fd = -1 };
	struct stat status;
	if (fstat(source_fd, &status) != 0)
		return naos_error_set_errno(err, errno, "cannot read the status of %s", source);
	int rc = naos_draft_create(AT_FDCWD, target, replace, &draft, err);
	if (rc == 0)
		rc = naos_frame_seal_fd(source_fd, source, draft.fd, target, what, err);
	if (rc == 0 && fchmod(draft.fd, status.st_mode & 0777) != 0)
		rc = naos_error_set_errno(err, errno, "cannot set the mode of %s", target);
	return rc ? rc : naos_draft_publish(&draft, err);
}

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
	if (rc == 0 && collection)
		rc = naos_collection_new_keys(&found, access.provider, &fresh, err);
	else if (rc == 0)
		rc = naos_uuid_random(&what.frame_id, err);
	if (rc != 0)
		return rc;
	for (unsigned i = 0; i < 2; i++) {
		what.keys[i] = collection ? fresh.keys[i] : access.given[i];
		what.blobs[i] = collection ? &fresh.blobs[i] : NULL;
	}
	if (collection) {
		what.algorithm = found.algorithm;
		what.frame_id = fresh.frame_id;
		what.collection_id = found.id;
	}
	return seal_file(fd, shown, target, &what, replace, err);
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

/* --- whole files and parts ------------------------------------------------------------------------------------------------------ */

int naos_frame_write(struct naos_frame *frame, const char *target, bool replace, unsigned jobs, struct naos_error *err)
{
	naos_autodraft struct naos_draft draft = { .fd = -1 };
	struct naos_error changed = NAOS_ERROR_INIT;
	if (naos_frame_level(frame) == NAOS_FRAME_DENIED)
		return naos_frame_refuse(frame, err);
	int rc = naos_draft_create(AT_FDCWD, target, replace, &draft, err);
	if (rc == 0)
		rc = naos_frame_copy(frame, draft.fd, target, jobs_of(jobs), NULL, NULL, &changed);
	if (rc == NAOS_E_INTEGRITY && naos_frame_level(frame) == NAOS_FRAME_FULL) { /* the headers are worth having */
		rc = naos_frame_suppress_data(frame, err);
		if (rc == 0)
			rc = naos_frame_copy(frame, draft.fd, target, jobs_of(jobs), NULL, NULL, err);
		if (rc == 0)
			rc = naos_draft_publish(&draft, err);
		return rc ? rc : naos_error_set(err, NAOS_E_INTEGRITY, "%s", changed.message);
	}
	if (rc != 0)
		return changed.code ? naos_error_set(err, rc, "%s", changed.message) : rc;
	return naos_draft_publish(&draft, err);
}

int naos_frame_cutout(struct naos_frame *frame, size_t unit, const char *section, const char *target, struct naos_error *err)
{
	struct naos_section parsed;
	int rc = naos_section_parse(section, &parsed, err);
	if (rc == 0 && access(target, F_OK) == 0)
		rc = naos_error_set(err, NAOS_E_EXISTS, "%s exists already", target);
	if (rc != 0)
		return rc;
	rc = naos_frame_cut(frame, unit, &parsed, target, err);
	if (rc != 0)
		(void)unlink(target);
	return rc;
}
