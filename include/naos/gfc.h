/* The interface of the paper's library (GpuFitsCrypt), for programs that were written for it: the same names, the same result by value,
 * byte for byte.  New programs use naos/frame.h.
 *
 * What is opened are frames of version 1 and 2 (docs/formats); what is written are frames of version 1.  The library's own files were never
 * authenticated and are refused with a sentence that says how to migrate them; its CTR mode is not there.
 *
 * Keys are strings of 32 hexadecimal digits; NULL, "" and "NO_KEY" mean that there is none.  The key manager is not asked.  Paths are
 * plain names of files.  One context is used by one thread at a time.
 *
 * Codes (error/warning), for each pair of keys; an error that is not in this list is below -300 and the buffer is NULL then:
 *      0/0     both keys right                      the original file
 *      0/1     data key right, no right header key  pixels under a header of their structure
 *      0/2     header key right, no right data key  headers, zeros for data
 *   -999/3     neither key right                    no buffer (nothing could be authenticated)
 *   -998/0     no key at all                        the sealed file as it is
 *   -997/1,2,3 the header (1), the data (2) or both were changed, or have no right key; at least one was changed.
 *              The buffer holds the part that was not; with 3 there is none
 *   -999/0     the file can't be opened, is no frame, or is larger than the context allows
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_GFC_H
#define NAOS_GFC_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define GFC_ERROR_TAMPERED (-997) /* not in the paper's library, for which changed files look like wrong keys */
#define GFC_ERROR_NO_KEYS (-998)
#define GFC_ERROR_FAILED (-999)

typedef struct {
	unsigned char *data_buffer; /* a FITS file; NULL if there is none */
	size_t buffer_size;	    /* its bytes */
	int error_code;
	int warning_code;
	char error_message[256]; /* a sentence, also on success */
	double time_total_c_function_s; /* seconds; those of steps that are not there are 0 */
	double time_open_fits_file_s; /* opening and verifying */
	double time_read_primary_hdu_meta_s;
	double time_data_section_read_s;
	double time_data_decryption_gpu_s; /* decrypting */
	double time_data_decryption_gpu_kernel_s;
	double time_header_processing_s;
	double time_final_assembly_s;
} FitsOperationResult;

static_assert(offsetof(FitsOperationResult, buffer_size) == 8, "as in the paper's library");
static_assert(offsetof(FitsOperationResult, error_code) == 16, "as in the paper's library");
static_assert(offsetof(FitsOperationResult, warning_code) == 20, "as in the paper's library");
static_assert(offsetof(FitsOperationResult, error_message) == 24, "as in the paper's library");
static_assert(offsetof(FitsOperationResult, time_total_c_function_s) == 280, "as in the paper's library");
static_assert(offsetof(FitsOperationResult, time_data_decryption_gpu_kernel_s) == 320, "as in the paper's library");
static_assert(offsetof(FitsOperationResult, time_final_assembly_s) == 336, "as in the paper's library");
static_assert(sizeof(FitsOperationResult) == 344, "as in the paper's library");

typedef struct EncryptorContext EncryptorContext;
typedef struct DecryptorContext DecryptorContext;

/* --- opening -------------------------------------------------------------------------------------------------------------- */

/* A context owns the buffer of its last result.  max_output: bytes of the largest FITS file that is opened.  max_read is taken as it was
 * and does not matter: memory for reading is bounded by itself.  NULL: no memory. */
DecryptorContext *gfc_context_create(size_t max_output, size_t max_read);
/* Wipes the buffer.  Takes NULL. */
void gfc_context_destroy(DecryptorContext *context);
/* The buffer is the context's and valid until its next call, but that of -998, which the caller frees. */
FitsOperationResult gfc_decrypt_frame(DecryptorContext *context, const char *path, const char *header_key, const char *data_key);
/* Frees the buffer of -998; leaves that of a context alone.  Takes NULL; twice is once. */
void free_fits_operation_result(FitsOperationResult *result);

/* --- sealing -------------------------------------------------------------------------------------------------------------- */

/* Sizes are taken as they were and do not matter. */
EncryptorContext *gfc_encrypt_context_create(size_t max_input, size_t max_header);
void gfc_encrypt_context_destroy(EncryptorContext *context);
/* Seals a file of one image; `output` is replaced when the frame is complete.  Both keys must be given and differ.  -402: a NULL,
 * -502: no context, -1003 and -1004: a key is not 32 digits, -401: refused, with its reason in error_message. */
FitsOperationResult gfc_encrypt_file(EncryptorContext *context, const char *input, const char *output, const char *header_key,
				     const char *data_key);
FitsOperationResult gfc_encrypt_file_without_context(const char *input, const char *output, const char *header_key, const char *data_key);
/* Seals an image in memory.  header: cards of 80 bytes with END, filled up with blanks if need be, header_bytes in all; data: pixels as
 * numbers of the machine.  bitpix, naxis and axes must be those of the header.  context may be NULL.  -500: refused. */
FitsOperationResult gfc_encrypt_frame(EncryptorContext *context, const char *output, const char *header, size_t header_bytes,
				      const void *data, size_t data_bytes, int bitpix, int naxis, const long *axes,
				      const char *header_key, const char *data_key);

/* Kept so that programs link: this library never logs. */
void gfc_set_log_level(int level);
int gfc_get_log_level(void);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
