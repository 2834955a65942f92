/* Every quantity that a client of the key manager controls, and its limit (docs/limits.md).  The limits of messages are in
 * kmip/ttlv.h.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_LIMITS_H
#define NAOS_KEYD_LIMITS_H

/* The HSM worker */
#define NAOS_HSM_MAX_DATA_BYTES ((size_t)256 << 10) /* plaintext or ciphertext of one item */
#define NAOS_HSM_MAX_ASSOCIATED_BYTES ((size_t)64 << 10)
#define NAOS_HSM_MAX_VALUE_BYTES ((size_t)64 << 10) /* of a kept key, secret or opaque object */
#define NAOS_HSM_MAX_IV_BYTES 64 /* of GCM */
#define NAOS_HSM_MAX_RANDOM_BYTES 4096
#define NAOS_HSM_MAX_ITEMS 1000
#define NAOS_HSM_MAX_CHANNELS 16
#define NAOS_HSM_GROWTH_BYTES 64 /* by which an answer may be longer than its input */

/* Objects */
#define NAOS_KEYD_MAX_OBJECTS 1000000       /* of the whole key manager, destroyed ones too: all are held in memory */
#define NAOS_KEYD_MAX_ATTRIBUTES 256        /* of one object, instances counted */
#define NAOS_KEYD_MAX_ATTRIBUTE_BYTES 65536 /* all attributes of one object, encoded */
#define NAOS_KEYD_MAX_TEXT_BYTES 4096       /* one text of an attribute */
#define NAOS_KEYD_MAX_LOCATED 1000          /* identifiers in one answer to Locate; go on with Offset Items */
#define NAOS_KEYD_MAX_QUERY_FUNCTIONS 64    /* in one Query */
#define NAOS_KEYD_MAX_FILTERS 64            /* attributes to search for, in one Locate */
#define NAOS_KEYD_MAX_IDENTITY_BYTES 255
#define NAOS_KEYD_MAX_IDENTITIES 65536      /* whose rate is measured at a time */

/* Data in several parts, kept between them */
#define NAOS_KEYD_MAX_STREAMS 256
#define NAOS_KEYD_MAX_OWN_STREAMS 16 /* of one identity */
#define NAOS_KEYD_STREAM_LIFE_S 60   /* after the last part */

/* Messages that are answered together with those of other connections */
#define NAOS_KEYD_QUICK_ITEMS 128               /* items of one of them; a longer batch is answered by itself */
#define NAOS_KEYD_QUICK_BYTES ((size_t)64 << 10) /* length of one of them */
#define NAOS_KEYD_GROUP_ITEMS 1000              /* items of all messages of one group */

/* Messages of more than 4 KiB that are under way: received, or answers not yet taken */
#define NAOS_KEYD_MAX_IDENTITY_HELD_BYTES ((size_t)8 << 20) /* of one identity */
#define NAOS_KEYD_MAX_HELD_BYTES ((size_t)32 << 20)         /* of all: half of the secret memory */

/* Time */
#define NAOS_KEYD_CLOCK_SKEW_S 300 /* by which a request's time stamp may differ */
#define NAOS_KEYD_LEASE_S 3600     /* Lease Time of objects */

/* Uses of one key with random IVs (SP 800-38D 8.3) */
#define NAOS_KEYD_MAX_USES (((uint64_t)1 << 32) - 1)
#define NAOS_KEYD_USES_STEP 4096 /* counted ahead, so that a crash never counts too few */

#endif
