/* The kernel's list of mounts, in all the forms that proc(5) allows.  SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <stdlib.h>

#include "base/mounts.h"

static struct naos_error err;

static void lines_are_taken_apart(void **state)
{
	naos_automounts struct naos_mounts mounts = { .items = NULL };
	char *text = strdup("21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n"
			    "36 21 0:32 / /mnt/with\\040blank\\134and\\011tab rw,nosuid - fuse.naos genomes rw,user_id=0\n"
			    "37 21 0:33 / /mnt/two ro shared:7 master:1 propagate_from:2 - fuse.naos a\\040b ro\n"
			    "38 21 0:34 / /mnt/nameless rw - tmpfs  rw\n"
			    "nonsense\n"
			    "39 21 0:35 /\n"
			    "40 21 0:36 / /mnt/last\\04 rw - fuse.naosx z rw");
	assert_ok(naos_mounts_parse(text, &mounts, &err), &err);
	assert_int_equal(mounts.count, 5);
	assert_string_equal(mounts.items[0].point, "/");
	assert_string_equal(mounts.items[1].point, "/mnt/with blank\\and\ttab");
	assert_string_equal(mounts.items[1].source, "genomes");
	assert_string_equal(mounts.items[1].options, "rw,nosuid");
	assert_int_equal(mounts.items[1].minor, 32);
	assert_true(naos_mount_is_fileset(&mounts.items[1]));
	assert_string_equal(mounts.items[2].source, "a b");
	assert_string_equal(mounts.items[2].type, "fuse.naos");
	assert_string_equal(mounts.items[3].type, "tmpfs");
	assert_string_equal(mounts.items[3].source, "");
	assert_string_equal(mounts.items[4].point, "/mnt/last\\04"); /* not three digits: as it is */
	assert_false(naos_mount_is_fileset(&mounts.items[4]));
}

static void the_list_of_this_machine_has_a_root(void **state)
{
	naos_automounts struct naos_mounts mounts = { .items = NULL };
	bool found = false;
	assert_ok(naos_mounts_read(&mounts, &err), &err);
	for (size_t i = 0; i < mounts.count; i++)
		found |= strcmp(mounts.items[i].point, "/") == 0;
	assert_true(found);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_are_taken_apart),
		cmocka_unit_test(the_list_of_this_machine_has_a_root),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
