/* Sealed files for programs: random access to one, and whole files and trees either way.
 *
 * A sealed file is encrypted with a key of its own, which only the key manager can unwrap (docs/formats/sealed-file.md).  A
 * context holds the connection to the key manager and the file sets of the configuration (naos.conf(5)).
 *
 * Conventions: functions return 0 or a negative code of enum naos_error_code; `err`, which may be NULL, receives the sentence
 * for a person, which names the file.  Outputs are written on success only.  Paths and names are NUL-terminated bytes in any
 * encoding. Integrity failures are NAOS_E_INTEGRITY, NAOS_E_FORMAT and NAOS_E_WRONG_KEY; the key manager's begin at
 * NAOS_E_KEYMANAGER.
 *
 * Threads: any number may use one context and one handle at once, except to close them.  A context does not survive fork():
 * open it in the child.
 *
 *     struct naos_context *context;
 *     struct naos_handle *file;
 *     struct naos_error err;
 *     char text[100];
 *     size_t got;
 *     if (naos_context_open(NULL, NULL, &context, &err) != 0 ||
 *         naos_handle_open(context, "sealed/reads", NAOS_HANDLE_READ, &file, &err) != 0 ||
 *         naos_handle_read(file, text, sizeof(text), 0, &got, &err) != 0)
 *             errx(naos_error_exit_status(err.code), "%s", err.message);
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_SEAL_H
#define NAOS_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <naos/error.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* --- context ------------------------------------------------------------------------------------------------------------ */

/* The key manager, unwrapped keys kept for reuse, and the file sets of a configuration. */
struct naos_context;

/* config_path: the file to read; NULL: as the command naos does (NAOS_CONFIG, else /etc/naos/naos.conf).
 * fileset: name of the file set that will be asked for, NULL if any; a name without a section means a master key of that name.
 * The caller closes *ret.  Errors: NAOS_E_CONFIG, NAOS_E_PIN, NAOS_E_KEYMANAGER, NAOS_E_NOKEY, NAOS_E_SELFTEST. */
int naos_context_open(const char *config_path, const char *fileset, struct naos_context **ret, struct naos_error *err);
/* After all handles of it are closed.  Wipes its keys.  Takes NULL, returns NULL. */
struct naos_context *naos_context_close(struct naos_context *context);

/* --- one file, random access ------------------------------------------------------------------------------------------- */

/* An open sealed file. */
struct naos_handle;

enum naos_handle_mode {
	NAOS_HANDLE_READ = 0,   /* never writes; may run beside a writer */
	NAOS_HANDLE_WRITE = 1,  /* reads and writes; the only writer: others get NAOS_E_BUSY */
	NAOS_HANDLE_SHARED = 2, /* reads and writes; other writers may join, on other nodes too */
};

/* Opens the sealed file at path.  Its last writer may have died: NAOS_HANDLE_WRITE and NAOS_HANDLE_SHARED then recover it first.
 * The caller closes *ret.  Errors: those of open(2), NAOS_E_BUSY, integrity, key manager. */
int naos_handle_open(struct naos_context *context, const char *path, enum naos_handle_mode mode, struct naos_handle **ret,
		     struct naos_error *err);

/* Makes a new sealed file of file set `fileset` (NULL: the only one of the configuration), empty, open as NAOS_HANDLE_WRITE, with
 * mode 0666 less the umask.  Errors: NAOS_E_EXISTS, those of open(2), key manager. */
int naos_handle_create(struct naos_context *context, const char *fileset, const char *path, struct naos_handle **ret,
		       struct naos_error *err);

/* Up to `bytes` bytes of plaintext from byte `offset` into buffer; *ret_bytes is less only at the end of the file (0 behind it).
 * What can't be verified is an error and never data: buffer then holds zeros. */
int naos_handle_read(struct naos_handle *handle, void *buffer, size_t bytes, uint64_t offset, size_t *ret_bytes,
		     struct naos_error *err);

/* Writes all `bytes` bytes of buffer at byte `offset`; behind the end it extends the file, a gap reads as zeros.  Readers see
 * it at once; it survives a power cut after naos_handle_flush.  Until then each 4096 bytes read as they were or as they are
 * written. Errors: NAOS_E_NOSPACE, NAOS_E_LIMIT (2^60 bytes), NAOS_E_USAGE (open for reading only). */
int naos_handle_write(struct naos_handle *handle, const void *buffer, size_t bytes, uint64_t offset, struct naos_error *err);

/* Sets the size in bytes: cuts, or extends by a hole. */
int naos_handle_truncate(struct naos_handle *handle, uint64_t bytes, struct naos_error *err);

/* Makes `bytes` bytes from byte `offset` read as zeros and gives whole blocks of them back to the file system. */
int naos_handle_punch(struct naos_handle *handle, uint64_t offset, uint64_t bytes, struct naos_error *err);

/* Returns when everything written so far survives a power cut.  After a failure nothing more is acknowledged: close the
 * handle. */
int naos_handle_flush(struct naos_handle *handle, struct naos_error *err);

/* Size of the plaintext in bytes. */
uint64_t naos_handle_size(struct naos_handle *handle);

/* Seals what was written, durably, and closes.  The handle is gone in any case; an error means that the last writes may be lost
 * (the file itself is as after a crash: whole). */
int naos_handle_close(struct naos_handle *handle, struct naos_error *err);

/* --- whole files and trees ---------------------------------------------------------------------------------------------- */

/* What `naos seal SOURCE TARGET` does with a file or tree, and its rules: see naos-seal(1).  fileset NULL: the only one of the
 * configuration.  replace: existing targets that are not current are replaced, else they are NAOS_E_EXISTS.  jobs: threads, 0:
 * as many as there are CPUs for this process.  In a tree the others go on after a failure; the message is that of the first. */
int naos_seal(struct naos_context *context, const char *fileset, const char *source, const char *target, bool replace,
	      unsigned jobs, struct naos_error *err);

/* The reverse, naos-open(1).  Nothing has its final name at target before it is complete and verified. */
int naos_open(struct naos_context *context, const char *source, const char *target, bool replace, unsigned jobs,
	      struct naos_error *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
