/* Attributes of a frame from its authenticated headers.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_CATALOGUE_HEADER_H
#define NAOS_CATALOGUE_HEADER_H

#include <jansson.h>

#include "fits/frame.h"

#define NAOS_CATALOGUE_MAX_KEYWORDS 4096u              /* different keywords of one frame */
#define NAOS_CATALOGUE_MAX_ATTRIBUTE_BYTES ((size_t)1 << 20) /* all attributes of one frame, as JSON */
#define NAOS_CATALOGUE_MAX_UNITS 1000u                 /* units among which the first image is looked for */

/* Keywords that say what policies ask for. */
struct naos_catalogue_keywords {
	const char *release, *proposal;
};

/* Adds what the cards of one header say to an object, over what it holds already.  A keyword that stands in one
 * header with different values is null: it counts as missing. */
int naos_catalogue_header_add(json_t *attributes, const uint8_t *header, uint64_t bytes, struct naos_error *err) naos_must_check;
/* Times get their zone, and release_date and proposal_id their names. */
int naos_catalogue_header_finish(json_t *attributes, const struct naos_catalogue_keywords *keywords,
				 struct naos_error *err) naos_must_check;
/* Both for the primary header and that of the first image, which goes before. */
int naos_catalogue_header_read(struct naos_frame *frame, const struct naos_catalogue_keywords *keywords, json_t **ret,
			       struct naos_error *err) naos_must_check;

#endif
