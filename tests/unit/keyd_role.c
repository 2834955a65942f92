/* Roles and rates.  SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "keyd/rate.h"
#include "keyd/role.h"

static struct naos_error err;

static int read_roles(const char *text, struct naos_roles **ret)
{
	naos_autoconfig struct naos_config *config = NULL;
	assert_ok(naos_config_parse(text, strlen(text), "test.conf", &config, &err), &err);
	return naos_roles_read(config, ret, &err);
}

static struct naos_object *make_object(const char *owner, const char *name, const char *group)
{
	const struct naos_kmip_name value = { naos_kmip_text(name), NAOS_KMIP_NAME_TYPE_UNINTERPRETED_TEXT_STRING };
	const struct naos_kmip_attribute attributes[] = { naos_kmip_attribute_structure(NAOS_KMIP_TAG_NAME, &value),
							  naos_kmip_attribute_text(NAOS_KMIP_TAG_OBJECT_GROUP,
									naos_kmip_text(group)) };
	naos_autoedit edit = { .count = 0 };
	struct naos_object *object = NULL;
	assert_ok(naos_edit_begin(NULL, &edit, &err), &err);
	(void)snprintf(edit.core.owner, sizeof(edit.core.owner), "%s", owner);
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(attributes); i++)
		assert_ok(naos_edit_add(&edit, &attributes[i], &err), &err);
	assert_ok(naos_object_make(&edit, &object, &err), &err);
	return object;
}

static const char text[] = "[role user]\nidentities = spiffe://site/user/*, alice\noperations = all\n"
			   "[role sealer]\nidentities = alice curator\noperations = encrypt read\nkeys = images-? group:shared\n";

static void rights_are_those_of_all_roles_that_cover_the_object(void **state)
{
	(void)state;
	struct naos_roles *roles;
	assert_ok(read_roles(text, &roles), &err);
	naos_autoobject struct naos_object *own = make_object("alice", "x", "y"), *image = make_object("bob", "images-1", "y"),
					   *shared = make_object("bob", "x", "shared"), *other = make_object("bob", "images-12", "y");
	assert_true(naos_has_right(naos_roles_rights(roles, "alice", own), NAOS_RIGHT_DESTROY));
	assert_false(naos_has_right(naos_roles_rights(roles, "alice", own), NAOS_RIGHT_APPROVE)); /* all is all but approve */
	assert_int_equal(naos_roles_rights(roles, "alice", image), 1u << NAOS_RIGHT_ENCRYPT | 1u << NAOS_RIGHT_READ);
	assert_int_equal(naos_roles_rights(roles, "curator", shared), 1u << NAOS_RIGHT_ENCRYPT | 1u << NAOS_RIGHT_READ);
	assert_int_equal(naos_roles_rights(roles, "curator", other), 0);
	assert_int_equal(naos_roles_rights(roles, "spiffe://site/user/eve", own), 0);
	assert_int_equal(naos_roles_rights(roles, "mallory", image), 0);
	struct naos_allowance allowance;
	naos_roles_allowance(roles, "mallory", &allowance);
	assert_false(allowance.known);
	naos_roles_allowance(roles, "curator", &allowance);
	assert_true(allowance.known && allowance.resident && !allowance.exportable);
	(void)naos_roles_free(roles);
}

static void wrong_roles_are_refused_with_file_and_line(void **state)
{
	static const char *const wrong[] = {
		"[role a]\noperations = all\n", "[role a]\nidentities = *\noperations = all\n",
		"[role a]\nidentities = ??*\noperations = all\n", "[role a]\nidentities = x\noperations = encript\n",
	};
	(void)state;
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(wrong); i++) {
		struct naos_roles *roles;
		assert_code(read_roles(wrong[i], &roles), NAOS_E_CONFIG);
		assert_non_null(strstr(err.message, "[role a]"));
	}
}

static void a_rate_is_refilled_by_time_and_is_of_one_identity(void **state)
{
	struct naos_rates *rates;
	(void)state;
	assert_ok(naos_rates_create(&rates, &err), &err);
	for (int i = 0; i < 4; i++)
		assert_true(naos_rates_take(rates, "a", 2, 4, 1, 1000));
	assert_false(naos_rates_take(rates, "a", 2, 4, 1, 1000));
	assert_true(naos_rates_take(rates, "b", 2, 4, 4, 1000));
	assert_false(naos_rates_take(rates, "a", 2, 4, 1, 400000000));
	assert_true(naos_rates_take(rates, "a", 2, 4, 1, 600000000));
	assert_true(naos_rates_take(rates, "a", 2, 4, 4, 60000000000));
	assert_false(naos_rates_take(rates, "a", 2, 4, 1, 60000000000)); /* no more than the burst was saved */
	(void)naos_rates_free(rates);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rights_are_those_of_all_roles_that_cover_the_object),
		cmocka_unit_test(wrong_roles_are_refused_with_file_and_line),
		cmocka_unit_test(a_rate_is_refilled_by_time_and_is_of_one_identity),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
