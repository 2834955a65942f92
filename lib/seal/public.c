/* include/naos/seal.h: the public interface, a thin layer over this part.  SPDX-License-Identifier: Apache-2.0 */
#include <naos/seal.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/io.h"
#include "seal/transfer.h"
#include "seal/walk.h"

struct naos_context {
	struct naos_filesets *sets;
};

struct naos_handle {
	struct naos_sealed_file *file;
};

/* --- context ------------------------------------------------------------------------------------------------------------ */

int naos_context_open(const char *config_path, const char *fileset, struct naos_context **ret, struct naos_error *err)
{
	naos_autoconfig struct naos_config *config = NULL;
	naos_autofree struct naos_context *context = calloc(1, sizeof(*context));
	if (!context)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a context");
	int rc = naos_config_load(config_path, &config, err);
	if (rc == 0)
		rc = naos_filesets_open(config, fileset, NULL, &context->sets, err);
	if (rc == 0)
		*ret = naos_steal(context);
	return rc;
}

struct naos_context *naos_context_close(struct naos_context *context)
{
	if (context)
		context->sets = naos_filesets_close(context->sets);
	free(context);
	return NULL;
}

/* --- one file ----------------------------------------------------------------------------------------------------------- */

static int wrap_handle(struct naos_sealed_file *file, struct naos_handle **ret, struct naos_error *err)
{
	struct naos_handle *handle = calloc(1, sizeof(*handle));
	if (!handle) {
		(void)!naos_sealed_file_close(file, false, NULL);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a handle");
	}
	handle->file = file;
	*ret = handle;
	return 0;
}

int naos_handle_open(struct naos_context *context, const char *path, enum naos_handle_mode mode, struct naos_handle **ret,
		     struct naos_error *err)
{
	static const enum naos_sealed_mode modes[] = { NAOS_SEALED_READ, NAOS_SEALED_LOCAL, NAOS_SEALED_SHARED };
	struct naos_sealed_info info;
	struct naos_sealed_file *file;
	struct naos_store *store;
	char shown[1024];
	if ((unsigned)mode >= NAOS_ARRAY_LENGTH(modes))
		return naos_error_set(err, NAOS_E_USAGE, "there is no mode %d of opening", (int)mode);
	(void)naos_io_printable(path, shown, sizeof(shown));
	naos_autoclose int fd = open(path, (mode == NAOS_HANDLE_READ ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot open %s", shown);
	int rc = naos_store_posix(fd, shown, &store, err);
	if (rc != 0)
		return rc;
	(void)naos_fd_steal(&fd);
	rc = naos_sealed_probe(store, &info, err);
	if (rc != 0) {
		store->ops->close(store);
		return rc;
	}
	const struct naos_fek_source source = naos_filesets_source(context->sets, NULL, &info);
	rc = naos_sealed_file_open(store, modes[mode], &source, &file, err);
	return rc ? rc : wrap_handle(file, ret, err);
}

static int create_file(struct naos_context *context, const struct naos_fileset *set, int *fd, const char *shown,
		       struct naos_sealed_file **ret, struct naos_error *err)
{
	struct naos_new_key key;
	struct naos_store *store;
	int rc = naos_filesets_new_key(context->sets, set, &key, err);
	if (rc != 0)
		return rc;
	const struct naos_sealed_new what = {
		.mode = NAOS_SEALED_LOCAL, .algorithm = set->algorithm, .file_id = key.file_id, .fileset_id = set->id,
		.fek = key.fek, .blob = &key.blob,
	};
	rc = naos_store_posix(*fd, shown, &store, err);
	if (rc == 0) {
		(void)naos_fd_steal(fd);
		rc = naos_sealed_file_create(store, &what, ret, err);
	}
	(void)naos_secret_free(key.fek);
	return rc;
}

int naos_handle_create(struct naos_context *context, const char *fileset, const char *path, struct naos_handle **ret,
		       struct naos_error *err)
{
	const struct naos_fileset *set;
	struct naos_sealed_file *file;
	char shown[1024];
	int rc = naos_filesets_find(context->sets, fileset, &set, err);
	if (rc != 0)
		return rc;
	(void)naos_io_printable(path, shown, sizeof(shown));
	naos_autoclose int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0666);
	if (fd < 0)
		return naos_error_set_errno(err, errno, "cannot make %s", shown);
	rc = create_file(context, set, &fd, shown, &file, err);
	if (rc == 0)
		rc = wrap_handle(file, ret, err);
	if (rc != 0)
		(void)unlink(path);
	return rc;
}

int naos_handle_read(struct naos_handle *handle, void *buffer, size_t bytes, uint64_t offset, size_t *ret_bytes,
		     struct naos_error *err)
{
	return naos_sealed_file_read(handle->file, buffer, bytes, offset, ret_bytes, err);
}

int naos_handle_write(struct naos_handle *handle, const void *buffer, size_t bytes, uint64_t offset, struct naos_error *err)
{
	return naos_sealed_file_write(handle->file, buffer, bytes, offset, err);
}

int naos_handle_truncate(struct naos_handle *handle, uint64_t bytes, struct naos_error *err)
{
	return naos_sealed_file_truncate(handle->file, bytes, err);
}

int naos_handle_punch(struct naos_handle *handle, uint64_t offset, uint64_t bytes, struct naos_error *err)
{
	return naos_sealed_file_punch(handle->file, offset, bytes, err);
}

int naos_handle_flush(struct naos_handle *handle, struct naos_error *err)
{
	return naos_sealed_file_flush(handle->file, err);
}

uint64_t naos_handle_size(struct naos_handle *handle)
{
	return naos_sealed_file_size(handle->file);
}

int naos_handle_close(struct naos_handle *handle, struct naos_error *err)
{
	int rc = naos_sealed_file_close(handle->file, true, err);
	free(handle);
	return rc;
}

/* --- whole files and trees ---------------------------------------------------------------------------------------------- */

/* Keeps the first failure: there is no terminal to tell the others to. */
static void failed(void *context, const char *path, const struct naos_error *failure)
{
	struct naos_error *first = context;
	if (first->code == 0)
		*first = *failure;
}

static int transfer(struct naos_context *context, const char *fileset, struct naos_transfer *plan, struct naos_error *err)
{
	struct naos_error first = NAOS_ERROR_INIT;
	const struct naos_tally_listener listener = { .failed = failed, .context = &first };
	struct naos_tally tally;
	if (strcmp(plan->source, "-") == 0 || strcmp(plan->target, "-") == 0)
		return naos_error_set(err, NAOS_E_USAGE, "a file named '-' is written ./-");
	int rc = plan->sealing ? naos_filesets_find(context->sets, fileset, &plan->set, err) : 0;
	if (rc != 0)
		return rc;
	plan->sets = context->sets;
	plan->shard_index = plan->shard_count = 1;
	plan->jobs = plan->jobs == 0 ? naos_walk_default_jobs() : plan->jobs < NAOS_MAX_JOBS ? plan->jobs : NAOS_MAX_JOBS;
	naos_tally_start(&tally, &listener, NULL);
	rc = naos_transfer_run(plan, &tally, err);
	if (rc == 0) {
		rc = naos_tally_result(&tally, err);
		if (rc != 0 && first.code != 0)
			rc = naos_error_set(err, rc == NAOS_E_PARTIAL ? first.code : rc, "%s", first.message);
	}
	naos_tally_end(&tally);
	return rc;
}

int naos_seal(struct naos_context *context, const char *fileset, const char *source, const char *target, bool replace,
	      unsigned jobs, struct naos_error *err)
{
	struct naos_transfer plan = { .sealing = true, .force = replace, .jobs = jobs, .source = source, .target = target };
	return transfer(context, fileset, &plan, err);
}

int naos_open(struct naos_context *context, const char *source, const char *target, bool replace, unsigned jobs,
	      struct naos_error *err)
{
	struct naos_transfer plan = { .force = replace, .jobs = jobs, .source = source, .target = target };
	return transfer(context, NULL, &plan, err);
}
