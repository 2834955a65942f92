/* The checks of the machine on made-up proc and sys trees.  SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/io.h"
#include "doctor.h"

static char root[] = "/tmp/naos-doctor-XXXXXX";
static struct naos_examination examination;
static struct naos_error err;

/* doctor.c is not linked: this one keeps what the checks add. */
void naos_finding_add(struct naos_examination *to, enum naos_finding_status status, const char *check, const char *why,
		      const char *remedy, const char *format, ...)
{
	assert_true(to->count < NAOS_MAX_FINDINGS);
	struct naos_finding *finding = &to->findings[to->count++];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(finding->what, sizeof(finding->what), format, args);
	va_end(args);
	finding->status = status;
	finding->check = check;
	assert_non_null(why);
	assert_true(status == NAOS_FINDING_OK || remedy);
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *ftw)
{
	return remove(path);
}

static int fresh_root(void **state)
{
	memcpy(root + sizeof(root) - 7, "XXXXXX", 6);
	return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
	return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Writes a file below root and makes the folders above it. */
static void put(const char *path, const char *text)
{
	char full[512];
	(void)snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
		*at = 0;
		(void)mkdir(full, 0700);
	}
	assert_ok(naos_io_replace_file(AT_FDCWD, full, text, strlen(text), 0600, &err), &err);
}

static const struct naos_finding *finding(const char *check, unsigned index)
{
	for (size_t i = 0; i < examination.count; i++)
		if (strcmp(examination.findings[i].check, check) == 0 && index-- == 0)
			return &examination.findings[i];
	fail_msg("no finding '%s'", check);
	return NULL;
}

static void examine(void)
{
	memset(&examination, 0, sizeof(examination));
	examination.root = root;
	examination.core_limit = (struct rlimit){ RLIM_INFINITY, RLIM_INFINITY };
	naos_examine_machine(&examination);
}

#define SWAPS "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"

static void no_swap_is_fine(void **state)
{
	put("/proc/swaps", SWAPS);
	examine();
	assert_int_equal(finding("swap", 0)->status, NAOS_FINDING_OK);
}

static void swap_is_fine_only_where_all_below_it_is_encrypted(void **state)
{
	put("/proc/swaps", SWAPS "/dev/dm-0 partition 1 0 -2\n/dev/dm-1 partition 1 0 -2\n/dev/sda2 partition 1 0 -2\n"
				 "/dev/zram0 partition 1 0 100\n/dev/dm-3 partition 1 0 -2\n/no/such/file file 1 0 -2\n");
	put("/sys/class/block/dm-0/dm/uuid", "CRYPT-PLAIN-swap\n");
	put("/sys/class/block/dm-1/dm/uuid", "LVM-abc\n");
	put("/sys/class/block/dm-1/slaves/dm-2/x", "");
	put("/sys/class/block/dm-2/dm/uuid", "CRYPT-LUKS2-abc\n");
	put("/sys/class/block/sda2/size", "1\n");
	put("/sys/class/block/dm-3/dm/uuid", "LVM-def\n");
	put("/sys/class/block/dm-3/slaves/dm-2/x", "");
	put("/sys/class/block/dm-3/slaves/sdb1/x", "");
	examine();
	static const enum naos_finding_status wanted[] = { NAOS_FINDING_OK, NAOS_FINDING_OK,	  NAOS_FINDING_PROBLEM,
							   NAOS_FINDING_OK, NAOS_FINDING_PROBLEM, NAOS_FINDING_WARNING };
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(wanted); i++)
		if (finding("swap", i)->status != wanted[i])
			fail_msg("%s: status %d", finding("swap", i)->what, finding("swap", i)->status);
}

static void a_loop_of_devices_ends(void **state)
{
	put("/proc/swaps", SWAPS "/dev/dm-0 partition 1 0 -2\n");
	put("/sys/class/block/dm-0/slaves/dm-0/x", "");
	examine();
	assert_int_not_equal(finding("swap", 0)->status, NAOS_FINDING_OK);
}

static void core_files_are_seen(void **state)
{
	put("/proc/sys/kernel/core_pattern", "core\n");
	examine();
	assert_int_equal(finding("core", 0)->status, NAOS_FINDING_WARNING);
	put("/proc/sys/kernel/core_pattern", "|/usr/lib/systemd/systemd-coredump %P\n");
	examine();
	assert_int_equal(finding("core", 0)->status, NAOS_FINDING_WARNING);
	assert_non_null(strstr(finding("core", 0)->what, "systemd-coredump"));
	put("/proc/sys/kernel/core_pattern", "\n");
	examine();
	assert_int_equal(finding("core", 0)->status, NAOS_FINDING_OK);
}

static void cpu_needs_both_instructions(void **state)
{
	put("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vaes aes avx2 xpclmulqdq\n\n");
	examine();
	assert_int_equal(finding("cpu", 0)->status, NAOS_FINDING_WARNING);
	put("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu aes pclmulqdq\n\n");
	examine();
	assert_int_equal(finding("cpu", 0)->status, NAOS_FINDING_OK);
	assert_string_equal(finding("cpu", 0)->what, "aes pclmulqdq");
	put("/proc/cpuinfo", "processor\t: 0\nFeatures\t: fp aes pmull\n");
	examine();
	assert_int_equal(finding("cpu", 0)->status, NAOS_FINDING_OK);
}

static void tracing_is_judged_by_yama(void **state)
{
	examine();
	assert_int_equal(finding("tracing", 0)->status, NAOS_FINDING_WARNING);
	put("/proc/sys/kernel/yama/ptrace_scope", "0\n");
	examine();
	assert_int_equal(finding("tracing", 0)->status, NAOS_FINDING_WARNING);
	put("/proc/sys/kernel/yama/ptrace_scope", "1\n");
	examine();
	assert_int_equal(finding("tracing", 0)->status, NAOS_FINDING_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(no_swap_is_fine, fresh_root, remove_root),
		cmocka_unit_test_setup_teardown(swap_is_fine_only_where_all_below_it_is_encrypted, fresh_root, remove_root),
		cmocka_unit_test_setup_teardown(a_loop_of_devices_ends, fresh_root, remove_root),
		cmocka_unit_test_setup_teardown(core_files_are_seen, fresh_root, remove_root),
		cmocka_unit_test_setup_teardown(cpu_needs_both_instructions, fresh_root, remove_root),
		cmocka_unit_test_setup_teardown(tracing_is_judged_by_yama, fresh_root, remove_root),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
