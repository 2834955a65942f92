/* Inside of the key manager: one request on its way, and what operations need of it.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_KEYD_CALL_H
#define NAOS_KEYD_CALL_H

#include "keyd/keyd.h"
#include "keyd/names.h"
#include "keyd/rate.h"
#include "keyd/role.h"
#include "keyd/stream.h"
#include "keyd/table.h"

struct naos_keyd {
	struct naos_hsm *hsm;
	struct naos_audit_log *audit;
	struct naos_keyd_store *store;
	struct naos_table *table;
	struct naos_names *names;
	struct naos_rates *rates;
	struct naos_streams streams;
	pthread_rwlock_t roles_lock;
	struct naos_roles *roles; /* replaced by a reload */
	uint64_t approvals, approval_life_s, rotate_at;
	bool auto_rotate;
	atomic_bool unsettled; /* something is half done that the HSM was asked for in vain (tend.h) */
	struct {
		pthread_t thread;
		pthread_mutex_t lock;
		pthread_cond_t wake;
		bool running, ended;
	} tending;
	atomic_uint_fast64_t requests, items, refusals, encrypts, decrypts;
	struct naos_uuid run_id; /* of this run; a request's identifier is made of it and its number */
};

/* One message of a peer. */
struct naos_call {
	struct naos_keyd *keyd;
	const struct naos_keyd_peer *peer;
	const struct naos_roles *roles; /* the lock is held for reading */
	struct naos_allowance allowance;
	struct naos_kmip_arena *arena; /* of the message; answers may point into it */
	uint32_t version;
	int64_t now;
	char request_id[NAOS_UUID_TEXT_BYTES];
	char placeholder[NAOS_UUID_TEXT_BYTES]; /* ID placeholder; "" : none */

	/* what answers point into until they are encoded */
	struct naos_secret **secrets;
	struct naos_object **objects;
	size_t secret_count, object_count, secret_room, object_room;

	/* what was looked up last: items of one message are often about one key */
	bool remembers;             /* inside a run of Encrypt and Decrypt, which change no object */
	struct naos_entry *last_entry;
	struct naos_object *last_object;
	const struct naos_object *rights_of; /* whose rights these are; NULL: nobody's */
	uint32_t rights;

	/* of the item at work */
	enum naos_kmip_result_reason reason;
	char message[200];
	const char *audited;                      /* name of the error, for the log; NULL: the reason */
	char audit_object[NAOS_UUID_TEXT_BYTES];  /* "": none */
};

/* Refuses the item; returns -1.  The reason is put into the words of the peer's version. */
int naos_call_refuse(struct naos_call *call, enum naos_kmip_result_reason reason, const char *format, ...) naos_printf(3, 4);
/* The same for an error of a lower part: what is no business of the peer stays in the log. */
int naos_call_fail(struct naos_call *call, int code, const struct naos_error *err);

/* Memory of the arena, or a refusal (NULL). */
void *naos_call_take(struct naos_call *call, size_t count, size_t bytes) naos_must_check;
/* The call keeps these until its answer is encoded (and frees them on failure). */
int naos_call_own_secret(struct naos_call *call, struct naos_secret *secret) naos_must_check;
int naos_call_own_object(struct naos_call *call, struct naos_object *object) naos_must_check;

/* The object of an item: by identifier, or the placeholder where it is absent.  Refused as Item Not Found if it is not there or
 * not for this peer, as Permission Denied if it lacks the right. */
int naos_call_object(struct naos_call *call, struct naos_kmip_text identifier, enum naos_right right, struct naos_entry **ret_entry,
		     struct naos_object **ret) naos_must_check;
/* From here on, until it is told to forget, a call gives out the last object again where it is asked for once more. */
void naos_call_remember(struct naos_call *call, bool remember);
/* The peer's rights on an object that the call owns. */
uint32_t naos_call_rights(struct naos_call *call, const struct naos_object *object);
/* The right to do something that has no object yet. */
int naos_call_allowed(struct naos_call *call, enum naos_right right) naos_must_check;

/* The object being changed: entry->change is held until naos_call_end_change. */
int naos_call_begin_change(struct naos_call *call, struct naos_kmip_text identifier, enum naos_right right,
			   struct naos_entry **ret_entry, struct naos_object **ret, struct naos_edit *ret_edit) naos_must_check;
/* Sets Last Change Date, makes the change durable, publishes it. */
int naos_call_commit(struct naos_call *call, struct naos_entry *entry, struct naos_edit *edit) naos_must_check;
void naos_call_end_change(struct naos_entry *entry, struct naos_edit *edit);

/* One row per operation (operations.c). */
struct naos_operation {
	enum naos_kmip_operation operation;
	const char *audit; /* "key.create" */
	int (*run)(struct naos_call *call, const union naos_kmip_request_payload *in,
		   union naos_kmip_response_payload *out);
	bool quiet; /* reads metadata only: recorded where it is refused */
};
const struct naos_operation *naos_operation_find(uint32_t operation);

#define NAOS_OPERATION(name) \
	int naos_operation_##name(struct naos_call *call, const union naos_kmip_request_payload *in, \
				  union naos_kmip_response_payload *out)
NAOS_OPERATION(create);
NAOS_OPERATION(register);
NAOS_OPERATION(rekey);
NAOS_OPERATION(locate);
NAOS_OPERATION(check);
NAOS_OPERATION(get);
NAOS_OPERATION(get_attributes);
NAOS_OPERATION(get_attribute_list);
NAOS_OPERATION(add_attribute);
NAOS_OPERATION(modify_attribute);
NAOS_OPERATION(delete_attribute);
NAOS_OPERATION(activate);
NAOS_OPERATION(revoke);
NAOS_OPERATION(destroy);
NAOS_OPERATION(query);
NAOS_OPERATION(discover_versions);
NAOS_OPERATION(rng_retrieve);

/* Encrypt and Decrypt of a run of items go to the HSM together: prepare each, one call, finish each. */
struct naos_crypt_slot {
	struct naos_hsm_crypt item;
	const struct naos_kmip_crypt_request *request;
	struct naos_entry *entry;
	const char *uid; /* owned by the call's object */
	bool encrypt, iv_made, append_tag;
	struct naos_stream *stream; /* data in several parts; owned */
	bool final;                 /* its last part */
	bool idle;                  /* nothing for the HSM to do yet */
};
int naos_crypt_prepare(struct naos_call *call, bool encrypt, const struct naos_kmip_crypt_request *in,
		       struct naos_crypt_slot *slot) naos_must_check;
int naos_crypt_finish(struct naos_call *call, struct naos_crypt_slot *slot, struct naos_kmip_crypt_response *out) naos_must_check;

/* Attributes that clients give at creation, checked and put into the edit (attributes.c). */
int naos_attributes_apply(struct naos_call *call, struct naos_edit *edit,
			  const struct naos_kmip_attributes *attributes) naos_must_check;
/* Whether the peer's version has an attribute, and the object's stands for it. */
bool naos_attribute_visible(const struct naos_call *call, const struct naos_kmip_attribute *attribute);

/* Creation, shared by Create, Register, ReKey (creation.c). */
struct naos_creation {
	enum naos_object_class object_class;
	enum naos_kmip_object_type type;
	uint32_t format, subtype;
	size_t fresh_bytes;              /* a new value of this length … */
	const struct naos_secret *value; /* … or this one */
	/* ReKey only */
	const char *owner;           /* of the old object */
	struct naos_entry *replaced; /* whose names the new one takes; its change is held */
	struct naos_object *relieved; /* what becomes of it, in the same transaction; a reference that is given up on success */
};
int naos_creation_make(struct naos_call *call, struct naos_creation *creation, struct naos_edit *edit,
		       struct naos_entry **ret_entry) naos_must_check;
/* Bytes of a key of an algorithm and length. */
size_t naos_key_bytes(uint32_t algorithm, int32_t bits);
/* Claims the names of the edit for its object; a name that another object of the owner has (but for `from`) is refused. */
int naos_call_claim_names(struct naos_call *call, const struct naos_edit *edit, const struct naos_uuid *from) naos_must_check;
/* Rotation of `entry`, its change held: the new object's identifier. */
int naos_rotate(struct naos_call *call, struct naos_entry *entry, const struct naos_object *old,
		const struct naos_kmip_rekey_request *request, char ret_uid[static NAOS_UUID_TEXT_BYTES]) naos_must_check;

/* Writes an event before it happens (what can't be undone). */
int naos_call_record(struct naos_call *call, const char *action, const char *uid, const char *decision,
		     const char *reason) naos_must_check;

/* Uses of a key (uses.c): counts one, makes the count durable ahead. */
int naos_uses_take(struct naos_call *call, struct naos_entry *entry, const struct naos_object *object, uint64_t bytes) naos_must_check;

/* Finishes what a crash left (keyd.c uses it too): the token's key of a destroyed object is ended. */
int naos_destroy_settle(struct naos_keyd *keyd, struct naos_entry *entry, struct naos_error *err) naos_must_check;

#endif
