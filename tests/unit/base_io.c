/* Files: atomic replacement, temporaries, printable names, identifiers, the error object.
 * SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/uuid.h"

static struct naos_error err;

static void replace_is_whole_and_leaves_no_temporary(void **state)
{
	char dir[] = "/tmp/naos-io-XXXXXX", path[64];
	uint8_t *data;
	size_t bytes;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/f", dir);
	assert_ok(naos_io_replace_file(AT_FDCWD, path, "old", 3, 0600, &err), &err);
	assert_ok(naos_io_replace_file(AT_FDCWD, path, "newer", 5, 0600, &err), &err);
	assert_ok(naos_io_read_file(AT_FDCWD, path, 5, &data, &bytes, &err), &err);
	assert_int_equal(bytes, 5);
	assert_string_equal((char *)data, "newer");
	free(data);
	assert_code(naos_io_read_file(AT_FDCWD, path, 4, &data, &bytes, &err), NAOS_E_LIMIT);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0); /* empty: no temporary left */
}

static void temporaries_are_known_by_name(void **state)
{
	char dir[] = "/tmp/naos-io-XXXXXX", path[400], *name;
	int fd;
	assert_non_null(mkdtemp(dir));
	memset(path, 'n', sizeof(path));
	memcpy(path, dir, strlen(dir));
	path[strlen(dir)] = '/';
	path[strlen(dir) + 1 + 255] = 0; /* the longest name */
	assert_ok(naos_io_temporary(AT_FDCWD, path, 0600, &fd, &name, &err), &err);
	assert_true(naos_io_is_temporary(strrchr(name, '/') + 1));
	assert_ok(naos_io_publish(AT_FDCWD, name, path, false, &err), &err);
	free(name);
	close(fd);
	assert_ok(naos_io_temporary(AT_FDCWD, path, 0600, &fd, &name, &err), &err);
	assert_code(naos_io_publish(AT_FDCWD, name, path, false, &err), NAOS_E_EXISTS);
	unlink(name);
	unlink(path);
	free(name);
	close(fd);
	rmdir(dir);
	assert_false(naos_io_is_temporary("genome.fa"));
	assert_false(naos_io_is_temporary(".x.naos-ABCDEFGH"));
	assert_false(naos_io_is_temporary(".naos-abc"));
}

static void names_are_made_printable(void **state)
{
	char buffer[64];
	assert_string_equal(naos_io_printable("a\nb\\\x1b[1m\xff\xc3\xa9", buffer, sizeof(buffer)), "a\\x0ab\\x5c\\x1b[1m\\xff\xc3\xa9");
	assert_string_equal(naos_io_printable("\xc2\x9b" "1m", buffer, sizeof(buffer)), "\\xc2\\x9b1m");
	assert_true(strlen(naos_io_printable("0123456789", buffer, 8)) < 8);
}

static void identifiers(void **state)
{
	struct naos_uuid uuid, back;
	char text[NAOS_UUID_TEXT_BYTES];
	assert_ok(naos_uuid_random(&uuid, &err), &err);
	assert_true(naos_uuid_parse(naos_uuid_format(&uuid, text), &back));
	assert_true(naos_uuid_equal(&uuid, &back));
	assert_int_equal(text[14], '4');
	assert_false(naos_uuid_parse("00000000-0000-0000-0000-00000000000", &back));
	assert_false(naos_uuid_parse("00000000-0000-0000-0000-00000000000g", &back));
	assert_false(naos_uuid_parse("000000000000-0000-0000-0000-00000000", &back));
	assert_false(naos_uuid_parse("00000000-0000-0000-0000-0000000000000", &back));
}

static void errors_carry_code_exit_status_and_reason(void **state)
{
	assert_code(naos_error_set_errno(&err, ENOSPC, "cannot write %s", "x"), NAOS_E_NOSPACE);
	assert_string_equal(err.message, "cannot write x: No space left on device");
	assert_code(naos_error_prefix(&err, err.code, "file %d", 3), NAOS_E_NOSPACE);
	assert_string_equal(err.message, "file 3: cannot write x: No space left on device");
	assert_int_equal(naos_error_exit_status(NAOS_E_INTEGRITY), 4);
	assert_int_equal(naos_error_exit_status(NAOS_E_KEYMANAGER), 5);
	assert_int_equal(naos_error_exit_status(NAOS_OK), 0);
	assert_int_equal(naos_error_to_errno(NAOS_E_NOKEY), ENOKEY);
	assert_int_equal(naos_error_to_errno(NAOS_E_INTEGRITY), EIO);
	assert_int_equal(naos_error_set(NULL, NAOS_E_DENIED, "no object is fine"), NAOS_E_DENIED);
	for (unsigned i = 0; naos_error_row(i); i++)
		assert_ptr_equal(naos_error_info(naos_error_row(i)->code), naos_error_row(i)); /* codes are unique */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(replace_is_whole_and_leaves_no_temporary), cmocka_unit_test(temporaries_are_known_by_name),
		cmocka_unit_test(names_are_made_printable), cmocka_unit_test(identifiers),
		cmocka_unit_test(errors_carry_code_exit_status_and_reason),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
