/* The key manager: opening, recovery, reload.  SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "keyd/tend.h"

static int add_object(void *context, const struct naos_object_core *core, const uint8_t *attributes, size_t bytes, uint64_t uses,
		      struct naos_error *err)
{
	struct naos_keyd *keyd = context;
	struct naos_object *object;
	struct naos_entry *entry;
	int rc = naos_object_read(core, attributes, bytes, &object, err);
	if (rc != 0)
		return rc;
	rc = naos_table_add(keyd->table, object, &entry, err);
	if (rc != 0) {
		(void)naos_object_free(object);
		return rc;
	}
	entry->uses = entry->uses_durable = uses; /* what was counted ahead counts as used */
	if (core->phase != NAOS_OBJECT_SETTLED || object->stored_state >= NAOS_KMIP_STATE_DESTROYED)
		return 0;
	rc = naos_names_claim(keyd->names, core->owner, object->attributes.items, object->attributes.count, &core->id, NULL, err);
	return rc == NAOS_E_EXISTS ? 0 : rc; /* a database of before names were claimed: the older object has it */
}

static int add_approval(void *context, const struct naos_uuid *id, const char *identity, int64_t unix_s, struct naos_error *err)
{
	struct naos_keyd *keyd = context;
	struct naos_entry *entry = naos_table_find(keyd->table, id);
	struct naos_approval *approval = entry ? calloc(1, sizeof(*approval)) : NULL;
	if (!entry)
		return 0;
	if (!approval)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for approvals");
	(void)snprintf(approval->identity, sizeof(approval->identity), "%s", identity);
	approval->unix_s = unix_s;
	approval->next = entry->approvals;
	entry->approvals = approval;
	return 0;
}

static int read_settings(struct naos_keyd *keyd, const struct naos_config *config, struct naos_error *err)
{
	keyd->approvals = naos_config_number(config, "keyd", NULL, "destroy-approvals");
	keyd->approval_life_s = naos_config_number(config, "keyd", NULL, "approval-lifetime");
	keyd->rotate_at = naos_config_number(config, "keyd", NULL, "rotate-at");
	keyd->auto_rotate = naos_config_bool(config, "keyd", NULL, "auto-rotate");
	if (keyd->rotate_at == 0 || keyd->rotate_at > NAOS_KEYD_MAX_USES)
		return naos_error_set(err, NAOS_E_CONFIG, "%s: [keyd] rotate-at: 1 to %llu uses",
				      naos_config_origin(config, "keyd", NULL, "rotate-at"), (unsigned long long)NAOS_KEYD_MAX_USES);
	return 0;
}

int naos_keyd_open(const struct naos_config *config, struct naos_hsm *hsm, struct naos_audit_log *audit, struct naos_keyd **ret,
		   struct naos_error *err)
{
	struct naos_keyd *keyd = calloc(1, sizeof(*keyd));
	pthread_rwlockattr_t attributes;
	size_t left = 0;
	if (!keyd)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the key manager");
	keyd->hsm = hsm;
	keyd->audit = audit;
	(void)pthread_rwlockattr_init(&attributes); /* a reload must not wait for ever */
	(void)pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	(void)pthread_rwlock_init(&keyd->roles_lock, &attributes);
	(void)pthread_rwlockattr_destroy(&attributes);
	(void)pthread_mutex_init(&keyd->streams.lock, NULL);
	(void)pthread_mutex_init(&keyd->tending.lock, NULL);
	(void)pthread_cond_init(&keyd->tending.wake, NULL);
	const struct naos_keyd_store_reader reader = { .context = keyd, .object = add_object, .approval = add_approval };
	int rc = read_settings(keyd, config, err);
	if (rc == 0)
		rc = naos_uuid_random(&keyd->run_id, err);
	if (rc == 0)
		rc = naos_roles_read(config, &keyd->roles, err);
	if (rc == 0)
		rc = naos_rates_create(&keyd->rates, err);
	if (rc == 0)
		rc = naos_table_create(&keyd->table, err);
	if (rc == 0)
		rc = naos_names_create(&keyd->names, err);
	if (rc == 0)
		rc = naos_keyd_store_open(naos_config_string(config, "keyd", NULL, "database"), &keyd->store, err);
	if (rc == 0)
		rc = naos_keyd_store_read(keyd->store, &reader, err);
	if (rc == 0)
		rc = naos_tend_once(keyd, &left, err);
	atomic_store(&keyd->unsettled, left > 0);
	if (rc == 0)
		rc = naos_tend_start(keyd, err);
	if (rc != 0)
		keyd = naos_keyd_close(keyd);
	else
		*ret = keyd;
	return rc;
}

struct naos_keyd *naos_keyd_close(struct naos_keyd *keyd)
{
	if (!keyd)
		return NULL;
	naos_tend_stop(keyd);
	(void)pthread_cond_destroy(&keyd->tending.wake);
	(void)pthread_mutex_destroy(&keyd->tending.lock);
	(void)naos_keyd_store_close(keyd->store);
	(void)naos_table_free(keyd->table);
	(void)naos_names_free(keyd->names);
	(void)naos_rates_free(keyd->rates);
	naos_streams_clear(&keyd->streams);
	(void)pthread_mutex_destroy(&keyd->streams.lock);
	(void)naos_roles_free(keyd->roles);
	(void)pthread_rwlock_destroy(&keyd->roles_lock);
	free(keyd);
	return NULL;
}

int naos_keyd_reload(struct naos_keyd *keyd, const struct naos_config *config, struct naos_error *err)
{
	struct naos_roles *roles = NULL;
	struct naos_keyd settings = { .hsm = NULL };
	int rc = read_settings(&settings, config, err);
	if (rc == 0)
		rc = naos_roles_read(config, &roles, err);
	if (rc != 0)
		return rc;
	(void)pthread_rwlock_wrlock(&keyd->roles_lock); /* no request is under way */
	struct naos_roles *former = keyd->roles;
	keyd->roles = roles;
	keyd->approvals = settings.approvals;
	keyd->approval_life_s = settings.approval_life_s;
	keyd->rotate_at = settings.rotate_at;
	keyd->auto_rotate = settings.auto_rotate;
	(void)pthread_rwlock_unlock(&keyd->roles_lock);
	(void)naos_roles_free(former);
	return 0;
}

void naos_keyd_status(struct naos_keyd *keyd, struct naos_keyd_status *ret)
{
	*ret = (struct naos_keyd_status){ .requests = atomic_load(&keyd->requests), .items = atomic_load(&keyd->items),
					  .refusals = atomic_load(&keyd->refusals), .objects = naos_table_count(keyd->table),
					  .encrypts = atomic_load(&keyd->encrypts), .decrypts = atomic_load(&keyd->decrypts),
					  .database_well = naos_keyd_store_is_well(keyd->store),
					  .audit_well = naos_audit_is_well(keyd->audit) };
	naos_hsm_status(keyd->hsm, &ret->hsm);
}
