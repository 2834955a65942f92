/* Configuration: unknown things are errors with file and line; units; drop-ins.  SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config.h"
#include "base/io.h"

static struct naos_error err;

static int parse(const char *text, struct naos_config **ret)
{
	return naos_config_parse(text, strlen(text), "t.conf", ret, &err);
}

static void refused(const char *text, const char *message)
{
	struct naos_config *config = NULL;
	assert_int_not_equal(parse(text, &config), 0);
	assert_null(config);
	if (!strstr(err.message, message))
		fail_msg("'%s' lacks '%s'", err.message, message);
}

static void values_defaults_and_origins(void **state)
{
	naos_autoconfig struct naos_config *config = NULL;
	assert_ok(parse("# a comment\n[keyring]\nmax-keys = 12\n\n[fileset genomes]\nalgorithm = aes-128-gcm\n"
			"[fileset b]\nmek=x ; note\n", &config), &err);
	assert_int_equal(naos_config_number(config, "keyring", NULL, "max-keys"), 12);
	assert_int_equal(naos_config_number(config, "keyring", NULL, "max-age"), 600);
	assert_string_equal(naos_config_string(config, "fileset", "genomes", "algorithm"), "aes-128-gcm");
	assert_string_equal(naos_config_string(config, "fileset", "b", "algorithm"), "aes-256-gcm");
	assert_string_equal(naos_config_string(config, "fileset", "b", "mek"), "x");
	assert_string_equal(naos_config_origin(config, "keyring", NULL, "max-keys"), "t.conf:3");
	assert_string_equal(naos_config_origin(config, "keyring", NULL, "max-age"), "default");
	assert_string_equal(naos_config_section_name(config, "fileset", 0), "genomes");
	assert_string_equal(naos_config_section_name(config, "fileset", 1), "b");
	assert_null(naos_config_section_name(config, "fileset", 2));
	assert_false(naos_config_bool(config, "engine", NULL, "fips"));
}

static void every_default_of_the_table_is_valid(void **state)
{
	naos_autoconfig struct naos_config *config = NULL;
	assert_ok(parse("", &config), &err);
	const struct naos_config_key *row;
	for (unsigned i = 0; (row = naos_config_key_row(i)); i++)
		if (strcmp(row->type, "size") == 0 || strcmp(row->type, "duration") == 0 || strcmp(row->type, "count") == 0)
			(void)naos_config_number(config, row->section, row->named ? "x" : NULL, row->key);
}

static void errors_name_file_and_line(void **state)
{
	refused("\n[keyring]\nmax-kees = 1\n", "t.conf:3: unknown key 'max-kees'");
	refused("[keyrings]\nmax-keys = 1\n", "t.conf:2: unknown section [keyrings]");
	refused("[fileset]\nmek = a\n", "needs a name");
	refused("[keyring x]\nmax-keys = 1\n", "takes no name");
	refused("[keyring]\nmax-keys = many\n", "a whole number is expected");
	refused("[keyring]\nmax-age = 10\n", "a duration such as");
	refused("[engine]\nbackend = abacus\n", "auto|ipsec-mb|openssl");
	refused("[audit]\nlog = relative/path\n", "an absolute path");
	refused("[keyring]\nnonsense\n", "t.conf:2: neither");
	refused("[keyring\nmax-keys = 1\n", "t.conf:1:");
}

static void long_lines_are_read_whole_or_refused(void **state)
{
	char text[5000] = "[keymanager]\nuri = pkcs11:", refusal[6000];
	naos_autoconfig struct naos_config *config = NULL;
	size_t start = strlen(text);
	memset(text + start, 'a', 3000);
	strncpy(text + start + 3000, "\n", 2);
	assert_ok(parse(text, &config), &err);
	assert_int_equal(strlen(naos_config_string(config, "keymanager", NULL, "uri")), 3007);
	memset(refusal, 'a', 5000);
	refusal[5000] = 0;
	refused(refusal, "a line of more than");
	refused("[fileset aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]\nmek=x\n", "a section heading");
	assert_code(naos_config_parse("a\0b", 3, "t.conf", &config, &err), NAOS_E_CONFIG);
}

static void units(void **state)
{
	uint64_t n;
	assert_true(naos_parse_size("4KiB", &n) && n == 4096);
	assert_true(naos_parse_size("3 GiB", &n) && n == (uint64_t)3 << 30);
	assert_false(naos_parse_size("99999999999TiB", &n));
	assert_false(naos_parse_size("-1", &n));
	assert_false(naos_parse_size("4kb", &n));
	assert_true(naos_parse_duration("90d", &n) && n == 7776000);
	assert_false(naos_parse_duration("90", &n));
}

static void drop_ins_come_later_in_order(void **state)
{
	char dir[] = "/tmp/naos-config-XXXXXX", path[64], drop[80];
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/naos.conf", dir);
	snprintf(drop, sizeof(drop), "%s.d", path);
	assert_int_equal(mkdir(drop, 0700), 0);
	assert_ok(naos_io_replace_file(AT_FDCWD, path, "[keyring]\nmax-keys=1\n", 21, 0600, &err), &err);
	snprintf(drop, sizeof(drop), "%s.d/20-b.conf", path);
	assert_ok(naos_io_replace_file(AT_FDCWD, drop, "[keyring]\nmax-keys=3\n", 21, 0600, &err), &err);
	snprintf(drop, sizeof(drop), "%s.d/10-a.conf", path);
	assert_ok(naos_io_replace_file(AT_FDCWD, drop, "[keyring]\nmax-keys=2\n", 21, 0600, &err), &err);
	naos_autoconfig struct naos_config *config = NULL;
	assert_ok(naos_config_load(path, &config, &err), &err);
	assert_int_equal(naos_config_number(config, "keyring", NULL, "max-keys"), 3);
	unlink(drop);
	snprintf(drop, sizeof(drop), "%s.d/20-b.conf", path);
	unlink(drop);
	snprintf(drop, sizeof(drop), "%s.d", path);
	rmdir(drop);
	unlink(path);
	assert_code(naos_config_load(path, &config, &err), NAOS_E_NOTFOUND);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_defaults_and_origins), cmocka_unit_test(every_default_of_the_table_is_valid),
		cmocka_unit_test(errors_name_file_and_line), cmocka_unit_test(long_lines_are_read_whole_or_refused),
		cmocka_unit_test(units), cmocka_unit_test(drop_ins_come_later_in_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
