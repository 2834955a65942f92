/* What bounds a policy and a request: the time of a decision follows from these.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_POLICY_LIMITS_H
#define NAOS_POLICY_LIMITS_H

#define NAOS_POLICY_MAX_BYTES ((size_t)256 << 10) /* one policy file */
#define NAOS_POLICY_MAX_RULES 1024                /* of one policy */
#define NAOS_POLICY_MAX_RULE_CONDITIONS 64        /* of one rule, its subject and object counted */
#define NAOS_POLICY_MAX_CONDITIONS 8192           /* different conditions of one policy */
#define NAOS_POLICY_MAX_DEPTH 32                  /* parentheses and NOT in each other */
#define NAOS_POLICY_MAX_TEXTS 4096                /* different strings of one policy */
#define NAOS_POLICY_MAX_TEXT_BYTES 256            /* a string in a policy */
#define NAOS_POLICY_MAX_NUMBER 1e300              /* a number in a policy; its negative is the least */
#define NAOS_POLICY_MAX_NUMBER_BYTES 63           /* characters of one */
#define NAOS_POLICY_MAX_SETS 512                  /* different sets written in one policy */
#define NAOS_POLICY_MAX_ELEMENTS 256              /* of a set written in a policy */
#define NAOS_POLICY_MAX_KEYWORDS 64               /* different FITS keywords that one policy asks for */
#define NAOS_POLICY_MAX_PAIRS 64                  /* different conditions that compare two attributes that are strings */
#define NAOS_POLICY_MAX_OFFSET_DAYS 365250        /* added to or subtracted from a time: 1000 years */
#define NAOS_POLICY_MAX_MEMBERS 1024              /* roles or groups of one subject */
#define NAOS_POLICY_MAX_VALUE_BYTES 4096          /* a string in a request */
#define NAOS_POLICY_MAX_MOMENTS 256               /* moments to come that an explanation looks at */
#define NAOS_POLICY_MAX_CHANGES 8                 /* ways to access that an explanation names, nearest first */
#define NAOS_POLICY_MAX_TRIES 64                  /* rules that it examines for them, those with the fewest changes first */
#define NAOS_POLICY_MAX_LINE_BYTES ((size_t)1 << 20) /* one line of cases, subjects or objects */

#endif
