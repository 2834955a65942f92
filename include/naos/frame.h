/* Frames for programs: sealed FITS files whose headers and data have keys of their own (docs/formats/frame.md;
 * version 1, docs/formats/frame-1.md, is opened by the same functions: its data is verified as a whole when it is opened).
 *
 * Who has both keys reads the original file, byte for byte; who has one reads a valid FITS file with that part.  The result is
 * read like a file, at any place: only the segments that are needed are read and decrypted, and nothing is given out that was
 * not verified.
 *
 * Conventions are those of naos/seal.h: 0 or a negative code, `err` may be NULL, outputs on success only.  Any number of threads
 * may use one frame at once, except to close it.
 *
 *     struct naos_frame *frame;
 *     struct naos_error err;
 *     char card[80];
 *     size_t got;
 *     if (naos_frame_open("image.sealed.fits", NULL, &frame, &err) != 0 ||
 *         naos_frame_read_at(frame, card, sizeof(card), 0, &got, &err) != 0)
 *             errx(naos_error_exit_status(err.code), "%s", err.message);
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_FRAME_H
#define NAOS_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <naos/error.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

struct naos_frame;

enum naos_frame_part { NAOS_FRAME_HEADER = 1, NAOS_FRAME_DATA = 2 };

/* What became of one of the two keys. */
enum naos_frame_key_state {
	NAOS_FRAME_KEY_RIGHT = 0,
	NAOS_FRAME_KEY_MISSING = 1,  /* none was given, or the key manager does not give it to this user */
	NAOS_FRAME_KEY_WRONG = 2,    /* it is not the key of this frame */
	NAOS_FRAME_KEY_TAMPERED = 3, /* it is the right key, and what it guards was changed */
};

/* What the keys at hand open. */
enum naos_frame_level { NAOS_FRAME_FULL = 0, NAOS_FRAME_METADATA_ONLY = 1, NAOS_FRAME_PIXELS_ONLY = 2, NAOS_FRAME_DENIED = 3 };

/* Where keys come from.  Keys that are given (16 or 32 bytes; borrowed for the call; NULL: not given) come first; then the key
 * manager of the configuration, if it names one. */
struct naos_frame_access {
	const uint8_t *header_key;
	size_t header_key_bytes;
	const uint8_t *data_key;
	size_t data_key_bytes;
	const char *config_path; /* NULL: as the command naos does (NAOS_CONFIG, else /etc/naos/naos.conf) */
	bool no_key_manager;     /* the given keys only */
};

/* --- sealing -------------------------------------------------------------------------------------------------------------- */

/* Seals the FITS file `source` to `target`, which gets its name when it is complete and durable.  With a collection (a section of
 * the configuration) fresh keys are made and wrapped by its MEKs, and access gives only config_path; without one (NULL) both keys
 * must be given.  segment_bytes 0: 64 KiB, or more where a file would have over 65,536 segments.  jobs: threads, 0: as many as there
 * are CPUs for this process.
 * Errors: NAOS_E_FORMAT (no FITS file, with the reason), NAOS_E_EXISTS unless replace, NAOS_E_CHANGED, key manager. */
int naos_frame_seal(const char *source, const char *target, const struct naos_frame_access *access, const char *collection,
		    uint32_t segment_bytes, bool replace, unsigned jobs, struct naos_error *err);

/* --- opening -------------------------------------------------------------------------------------------------------------- */

/* Opens a frame with whatever keys there are, also without any: naos_frame_level says what came of it.  access NULL: the key
 * manager of the configuration.  The caller closes *ret.  Errors: those of open(2), NAOS_E_FORMAT (no frame), NAOS_E_INTEGRITY (its
 * structure was changed), NAOS_E_KEYMANAGER. */
int naos_frame_open(const char *path, const struct naos_frame_access *access, struct naos_frame **ret, struct naos_error *err);
/* Wipes its keys.  Takes NULL, returns NULL, keeps errno. */
struct naos_frame *naos_frame_close(struct naos_frame *frame);

enum naos_frame_level naos_frame_level(const struct naos_frame *frame);
/* "full", "metadata-only", "pixels-only", "denied".  Static. */
const char *naos_frame_level_name(enum naos_frame_level level);
enum naos_frame_key_state naos_frame_key_state(const struct naos_frame *frame, enum naos_frame_part part);
/* The sentence of a key that is not right; empty if it is.  Valid until the frame is closed. */
const char *naos_frame_key_reason(const struct naos_frame *frame, enum naos_frame_part part);

/* What a frame tells without a key.  Identifiers are UUIDs as text; empty where there is none. */
struct naos_frame_facts {
	uint32_t version;       /* of its format */
	uint32_t segment_bytes; /* what is encrypted and verified together */
	uint64_t units;         /* HDUs of the original file; bytes behind the last one are one more */
	uint64_t bytes;         /* of the original file */
	char algorithm[16];     /* "aes-256-gcm" */
	char frame_id[37];
	char collection_id[37];
	char header_mek[37]; /* the master key that wraps its header key */
	char data_mek[37];
};
void naos_frame_facts(const struct naos_frame *frame, struct naos_frame_facts *ret);

/* --- the FITS file that a level gives ---------------------------------------------------------------------------------- */

/* Its bytes; at level DENIED there are none. */
uint64_t naos_frame_result_bytes(const struct naos_frame *frame);
/* Reads from it at any place.  *ret_bytes is less than `bytes` only at its end.  NAOS_E_INTEGRITY: a segment was changed; the
 * buffer holds zeros then. */
int naos_frame_read_at(struct naos_frame *frame, void *buffer, size_t bytes, uint64_t offset, size_t *ret_bytes, struct naos_error *err);
/* The same by `jobs` threads (0: as many as there are CPUs for this process), for large parts.  On failure all of the
 * buffer holds zeros. */
int naos_frame_read_parallel(struct naos_frame *frame, void *buffer, size_t bytes, uint64_t offset, unsigned jobs, size_t *ret_bytes,
			     struct naos_error *err);
/* A unit (HDU) of it: where its header and its data lie in the result, in bytes. */
struct naos_frame_place {
	uint64_t header_offset, header_bytes, data_offset, data_bytes;
};
size_t naos_frame_units(const struct naos_frame *frame);
void naos_frame_unit(const struct naos_frame *frame, size_t index, struct naos_frame_place *ret);

/* A unit by its number ("1") or name ("SCI", "SCI,2": EXTNAME, EXTVER; in any case).  NAOS_E_USAGE: there is none. */
int naos_frame_unit_find(struct naos_frame *frame, const char *text, size_t *ret, struct naos_error *err);

/* What was read of the frame since it was opened: segments of its two parts, and bytes of the file with their rows. */
struct naos_frame_statistics {
	uint64_t header_segments, data_segments, bytes_read;
};
void naos_frame_statistics(const struct naos_frame *frame, struct naos_frame_statistics *ret);

/* Writes all of it to a file, which gets its name when it is complete, verified and durable.  If data was changed the headers are
 * written, with zeros for data, and the result is NAOS_E_INTEGRITY.  Level DENIED: NAOS_E_DENIED, NAOS_E_WRONG_KEY or
 * NAOS_E_INTEGRITY. */
int naos_frame_write(struct naos_frame *frame, const char *target, bool replace, unsigned jobs, struct naos_error *err);
/* --- parts ------------------------------------------------------------------------------------------------------------------ */

/* Each writes a new file that gets its name when it is complete, and reads only the segments that it needs.  Pixels are written
 * byte for byte, those of a tile-compressed image uncompressed; axes and world coordinates in the header fit the part.
 * Errors: NAOS_E_USAGE (no image, or not inside it), NAOS_E_EXISTS, NAOS_E_DENIED or NAOS_E_WRONG_KEY (no data key), NAOS_E_INTEGRITY. */

/* A section of the image in a unit (from 0), as CFITSIO has it: "[101:356,1:256]" from 1 with both ends, "[356:101,*]" backwards and a
 * whole axis, "[-*,1:256:2]" a whole axis backwards and every second pixel. */
int naos_frame_cutout(struct naos_frame *frame, size_t unit, const char *section, const char *target, struct naos_error *err);
/* A box around a place in the sky, in degrees (right ascension and declination in the image's own system): width along the axis of right
 * ascension, height along the other.  *ret_clipped (may be NULL): part of the box lies outside the image and is left out.  All of it
 * outside: NAOS_E_NOTFOUND. */
int naos_frame_cutout_sky(struct naos_frame *frame, size_t unit, double ra_deg, double dec_deg, double width_deg, double height_deg,
			  const char *target, bool *ret_clipped, struct naos_error *err);
/* A whole unit as it is, with an empty primary unit in front of an extension. */
int naos_frame_write_unit(struct naos_frame *frame, size_t unit, const char *target, struct naos_error *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
