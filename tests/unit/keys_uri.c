/* Addresses of tokens (RFC 7512) and the places of PINs.  SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keys/uri.h"

static struct naos_error err;

static void refused(const char *text, int code, const char *says)
{
	struct naos_token_uri uri = { 0 };
	assert_code(naos_token_uri_parse(text, &uri, &err), code);
	if (!strstr(err.message, says))
		fail_msg("'%s' lacks '%s'", err.message, says);
	assert_null(uri.token);
}

static void every_attribute_is_taken_and_decoded(void **state)
{
	struct naos_token_uri uri;
	assert_ok(naos_token_uri_parse("pkcs11:token=my%20t%6fken;manufacturer=A%3bB;serial=0%25;model=m%C3%A4;slot-id=17"
				       "?module-path=/a%20b.so&module-name=softhsm2&pin-source=file:/p%3F",
				       &uri, &err), &err);
	assert_string_equal(uri.token, "my token");
	assert_string_equal(uri.manufacturer, "A;B");
	assert_string_equal(uri.serial, "0%");
	assert_string_equal(uri.model, "m\xc3\xa4");
	assert_true(uri.has_slot_id);
	assert_int_equal(uri.slot_id, 17);
	assert_string_equal(uri.module_path, "/a b.so");
	assert_string_equal(uri.module_name, "softhsm2");
	assert_string_equal(uri.pin_source, "file:/p?");
	naos_token_uri_clear(&uri);
	assert_ok(naos_token_uri_parse("pkcs11:", &uri, &err), &err);
	assert_false(uri.has_slot_id);
	naos_token_uri_clear(&uri);
}

static void what_is_wrong_is_said(void **state)
{
	refused("kmip://host", NAOS_E_USAGE, "begins with 'pkcs11:'");
	refused("pkcs11:colour=blue", NAOS_E_USAGE, "token, manufacturer, serial, model and slot-id");
	refused("pkcs11:token=a?colour=blue", NAOS_E_USAGE, "pin-source, module-path and module-name");
	refused("pkcs11:token=a;token=b", NAOS_E_USAGE, "given twice");
	refused("pkcs11:slot-id=1;slot-id=1", NAOS_E_USAGE, "given twice");
	refused("pkcs11:token", NAOS_E_USAGE, "has no value");
	refused("pkcs11:token=", NAOS_E_USAGE, "has no value");
	refused("pkcs11:slot-id=0x11", NAOS_E_USAGE, "decimal");
	refused("pkcs11:slot-id=99999999999999999999999", NAOS_E_USAGE, "decimal");
	refused("pkcs11:token=%", NAOS_E_USAGE, "two hexadecimal digits");
	refused("pkcs11:token=%4", NAOS_E_USAGE, "two hexadecimal digits");
	refused("pkcs11:token=%4g", NAOS_E_USAGE, "two hexadecimal digits");
	refused("pkcs11:token=a%00b", NAOS_E_USAGE, "not 00");
	refused("pkcs11:token=a b", NAOS_E_USAGE, "%XX");
	refused("pkcs11:object=k", NAOS_E_USAGE, "keys are chosen by their name");
	refused("pkcs11:?module-path=lib.so", NAOS_E_USAGE, "absolute");
	refused("pkcs11:?module-name=../x", NAOS_E_USAGE, "module-path");
}

static void a_pin_in_the_address_is_refused_with_the_reason(void **state)
{
	refused("pkcs11:token=a?pin-value=geheim42", NAOS_E_USAGE, "process lists");
	assert_null(strstr(err.message, "geheim42"));
	refused("pkcs11:pin-value=geheim42", NAOS_E_USAGE, "");
	assert_null(strstr(err.message, "geheim42"));
}

static void the_longest_address_is_read_and_no_longer_one(void **state)
{
	char text[NAOS_URI_MAX_BYTES + 2];
	struct naos_token_uri uri;
	(void)snprintf(text, sizeof(text), "pkcs11:token=");
	memset(text + strlen(text), 'x', sizeof(text) - strlen("pkcs11:token="));
	text[NAOS_URI_MAX_BYTES] = 0;
	assert_ok(naos_token_uri_parse(text, &uri, &err), &err);
	naos_token_uri_clear(&uri);
	text[NAOS_URI_MAX_BYTES] = 'x';
	text[NAOS_URI_MAX_BYTES + 1] = 0;
	refused(text, NAOS_E_LIMIT, "longer than 4096");
}

static int pin_of(const char *source, struct naos_secret **ret)
{
	struct naos_token_uri uri = { .pin_source = (char *)source };
	return naos_token_uri_pin(&uri, ret, &err);
}

static void write_file(const char *path, const char *text, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	(void)close(fd);
}

static void the_pin_is_read_from_each_place(void **state)
{
	char dir[] = "/tmp/naos-uri-XXXXXX", path[64], source[80], longest[NAOS_PIN_MAX_BYTES + 2];
	struct naos_secret *pin = NULL;
	int ends[2];
	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/pin", dir);
	(void)snprintf(source, sizeof(source), "file:%s", path);
	write_file(path, "1234\n", 0600);
	assert_ok(pin_of(source, &pin), &err);
	assert_true(naos_secret_equal(pin, "1234", 4));
	pin = naos_secret_free(pin);
	write_file(path, "1234\n", 0604);
	assert_code(pin_of(source, &pin), NAOS_E_PIN);
	write_file(path, "", 0600);
	assert_code(pin_of(source, &pin), NAOS_E_PIN);
	memset(longest, 'p', sizeof(longest));
	longest[NAOS_PIN_MAX_BYTES] = 0;
	write_file(path, longest, 0600);
	assert_ok(pin_of(source, &pin), &err);
	assert_int_equal(naos_secret_bytes(pin), NAOS_PIN_MAX_BYTES);
	pin = naos_secret_free(pin);
	longest[NAOS_PIN_MAX_BYTES] = 'p';
	longest[NAOS_PIN_MAX_BYTES + 1] = 0;
	write_file(path, longest, 0600);
	assert_code(pin_of(source, &pin), NAOS_E_PIN);
	(void)snprintf(source, sizeof(source), "file:%s", dir);
	assert_code(pin_of(source, &pin), NAOS_E_PIN); /* a directory */

	assert_int_equal(pipe(ends), 0);
	assert_int_equal(write(ends[1], "5678", 4), 4);
	(void)close(ends[1]);
	(void)snprintf(source, sizeof(source), "fd:%d", ends[0]);
	assert_ok(pin_of(source, &pin), &err);
	assert_true(naos_secret_equal(pin, "5678", 4));
	pin = naos_secret_free(pin);
	(void)close(ends[0]);

	write_file(path, "abcd", 0600);
	assert_int_equal(setenv("CREDENTIALS_DIRECTORY", dir, 1), 0);
	assert_ok(pin_of("systemd:pin", &pin), &err);
	assert_true(naos_secret_equal(pin, "abcd", 4));
	pin = naos_secret_free(pin);
	assert_code(pin_of("systemd:../pin", &pin), NAOS_E_PIN);
	assert_code(pin_of("systemd:", &pin), NAOS_E_PIN);
	assert_int_equal(unsetenv("CREDENTIALS_DIRECTORY"), 0);
	assert_code(pin_of("systemd:pin", &pin), NAOS_E_PIN);
	assert_code(pin_of("fd:x", &pin), NAOS_E_PIN);
	assert_code(pin_of("|cat /etc/passwd", &pin), NAOS_E_PIN);
	assert_code(pin_of("env:PIN", &pin), NAOS_E_PIN);
	assert_null(pin);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

static void a_module_is_found_by_name_or_named_in_the_refusal(void **state)
{
	struct naos_token_uri uri = { .module_name = (char *)"no-such-module" };
	char *path = NULL;
	assert_code(naos_token_uri_module(&uri, &path, &err), NAOS_E_KEYMANAGER);
	assert_non_null(strstr(err.message, "libno-such-module.so"));
	uri = (struct naos_token_uri){ .module_path = (char *)"/a/b.so", .module_name = (char *)"x" };
	assert_ok(naos_token_uri_module(&uri, &path, &err), &err);
	assert_string_equal(path, "/a/b.so");
	free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_attribute_is_taken_and_decoded),
		cmocka_unit_test(what_is_wrong_is_said),
		cmocka_unit_test(a_pin_in_the_address_is_refused_with_the_reason),
		cmocka_unit_test(the_longest_address_is_read_and_no_longer_one),
		cmocka_unit_test(the_pin_is_read_from_each_place),
		cmocka_unit_test(a_module_is_found_by_name_or_named_in_the_refusal),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
