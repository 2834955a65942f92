/* Checks of the machine: kernel, locked memory, swap, core files, CPU, tracing, clock.  SPDX-License-Identifier: Apache-2.0 */
#include "doctor.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/io.h"
#include "base/progress.h"
#include "base/secret.h"

#define MAX_PROC_BYTES ((size_t)1 << 20)
#define MAX_DEPTH 8 /* of block devices upon block devices */
#define CAP_IPC_LOCK_BIT 14
#define PAGE_BYTES 4096

/* A small file of proc or sys as text without its final newline; NULL if it can't be read.  The caller frees it. */
static naos_printf(2, 3) char *read_text(const struct naos_examination *examination, const char *format, ...)
{
	naos_autofree char *rest = NULL, *path = NULL;
	uint8_t *text;
	size_t bytes;
	va_list args;
	va_start(args, format);
	int done = vasprintf(&rest, format, args);
	va_end(args);
	if (done < 0 || asprintf(&path, "%s%s", examination->root, rest) < 0 ||
	    naos_io_read_file(AT_FDCWD, path, MAX_PROC_BYTES, &text, &bytes, NULL) != 0)
		return NULL;
	while (bytes > 0 && text[bytes - 1] == '\n')
		text[--bytes] = 0;
	return (char *)text;
}

static void check_kernel(struct naos_examination *examination)
{
	static const char why[] = "secret memory is zero in a forked child only from Linux 4.14 on (MADV_WIPEONFORK)";
	struct utsname name;
	unsigned major = 0, minor = 0;
	if (uname(&name) != 0 || sscanf(name.release, "%3u.%3u", &major, &minor) != 2)
		naos_finding_add(examination, NAOS_FINDING_WARNING, "kernel", why, "look at 'uname -r'", "the kernel's version can't be read");
	else if (major < 4 || (major == 4 && minor < 14))
		naos_finding_add(examination, NAOS_FINDING_PROBLEM, "kernel", why, "run Linux 5.10 or later", "Linux %s", name.release);
	else
		naos_finding_add(examination, NAOS_FINDING_OK, "kernel", why, NULL, "Linux %s", name.release);
}

/* CAP_IPC_LOCK: no limit counts. */
static bool may_lock_anything(const struct naos_examination *examination)
{
	naos_autofree char *status = read_text(examination, "/proc/self/status");
	const char *line = status ? strstr(status, "\nCapEff:") : NULL;
	return line && (strtoull(line + strlen("\nCapEff:"), NULL, 16) >> CAP_IPC_LOCK_BIT & 1);
}

static void check_memlock(struct naos_examination *examination)
{
	static const char why[] = "keys are held in locked memory, so that they never reach swap";
	static const char remedy[] = "raise RLIMIT_MEMLOCK to 1 MiB or more (ulimit -l, limits.conf, LimitMEMLOCK=; in Slurm "
				     "PropagateResourceLimitsExcept=MEMLOCK)";
	struct rlimit limit;
	struct naos_error err = NAOS_ERROR_INIT;
	naos_autosecret struct naos_secret *secret = NULL;
	char size[16];
	if (naos_secret_create(PAGE_BYTES, &secret, &err) != 0)
		naos_finding_add(examination, NAOS_FINDING_PROBLEM, "memlock", why, remedy, "%s", err.message);
	else if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || may_lock_anything(examination))
		naos_finding_add(examination, NAOS_FINDING_OK, "memlock", why, NULL, "memory can be locked without a limit");
	else if (limit.rlim_cur < (1 << 20))
		naos_finding_add(examination, NAOS_FINDING_WARNING, "memlock", why, remedy, "only %s can be locked, enough for few keys at once",
				 naos_format_bytes(limit.rlim_cur, size));
	else
		naos_finding_add(examination, NAOS_FINDING_OK, "memlock", why, NULL, "%s can be locked", naos_format_bytes(limit.rlim_cur, size));
}

enum backing { ENCRYPTED, IN_MEMORY, PLAIN, UNKNOWN };

/* What a block device (a name in sys/class/block) stores in the end: encrypted if it, or all that lies below it, is dm-crypt. */
static enum backing device_backing(const struct naos_examination *examination, const char *device, int depth)
{
	naos_autofree char *uuid = read_text(examination, "/sys/class/block/%s/dm/uuid", device), *slaves = NULL;
	if (strncmp(device, "zram", 4) == 0)
		return IN_MEMORY;
	if (uuid && strncmp(uuid, "CRYPT-", 6) == 0)
		return ENCRYPTED;
	if (depth == MAX_DEPTH || asprintf(&slaves, "%s/sys/class/block/%s/slaves", examination->root, device) < 0)
		return UNKNOWN;
	DIR *dir = opendir(slaves);
	if (!dir)
		return PLAIN;
	enum backing worst = ENCRYPTED;
	bool any = false;
	for (struct dirent *entry; (entry = readdir(dir));) {
		if (entry->d_name[0] == '.')
			continue;
		any = true;
		if (device_backing(examination, entry->d_name, depth + 1) != ENCRYPTED)
			worst = PLAIN;
	}
	(void)closedir(dir);
	return any ? worst : PLAIN;
}

/* The block device under a swap file, or what a device node stands for: its name in sys/class/block. */
static enum backing swap_backing(const struct naos_examination *examination, const char *path, const char *type)
{
	naos_autofree char *link = NULL;
	char target[512];
	struct stat status;
	const char *slash = strrchr(path, '/');
	if (strcmp(type, "partition") == 0 && strncmp(path, "/dev/", 5) == 0 && slash == path + 4)
		return device_backing(examination, slash + 1, 0);
	if (stat(path, &status) != 0)
		return UNKNOWN;
	dev_t device = S_ISBLK(status.st_mode) ? status.st_rdev : status.st_dev;
	if (asprintf(&link, "%s/sys/dev/block/%u:%u", examination->root, major(device), minor(device)) < 0)
		return UNKNOWN;
	ssize_t bytes = readlink(link, target, sizeof(target) - 1);
	if (bytes <= 0)
		return UNKNOWN;
	target[bytes] = 0;
	slash = strrchr(target, '/');
	return device_backing(examination, slash ? slash + 1 : target, 0);
}

static void check_swap(struct naos_examination *examination)
{
	static const char why[] = "plaintext in the memory of applications can be swapped out; keys of Naos can't, they are locked";
	static const char remedy[] = "encrypt the swap space (crypttab with a random key), or 'swapoff' it";
	naos_autofree char *text = read_text(examination, "/proc/swaps");
	if (!text) {
		naos_finding_add(examination, NAOS_FINDING_WARNING, "swap", why, remedy, "/proc/swaps can't be read");
		return;
	}
	char *rest = text;
	(void)strsep(&rest, "\n"); /* the heading */
	if (!rest || !rest[0])
		naos_finding_add(examination, NAOS_FINDING_OK, "swap", why, NULL, "there is no swap space");
	for (char *line; (line = strsep(&rest, "\n"));) {
		char path[256], type[32];
		if (sscanf(line, "%255s %31s", path, type) != 2)
			continue;
		switch (swap_backing(examination, path, type)) {
		case ENCRYPTED:
			naos_finding_add(examination, NAOS_FINDING_OK, "swap", why, NULL, "swap space %s is encrypted", path);
			break;
		case IN_MEMORY:
			naos_finding_add(examination, NAOS_FINDING_OK, "swap", why, NULL, "swap space %s is compressed memory", path);
			break;
		case PLAIN:
			naos_finding_add(examination, NAOS_FINDING_PROBLEM, "swap", why, remedy, "swap space %s is not encrypted", path);
			break;
		case UNKNOWN:
			naos_finding_add(examination, NAOS_FINDING_WARNING, "swap", why, remedy, "whether swap space %s is encrypted can't be told",
					 path);
		}
	}
}

static void check_core(struct naos_examination *examination)
{
	static const char why[] = "the core file of a program that works on plaintext holds plaintext; naos itself writes none";
	naos_autofree char *pattern = read_text(examination, "/proc/sys/kernel/core_pattern");
	if (!pattern)
		naos_finding_add(examination, NAOS_FINDING_WARNING, "core", why, "see core(5)", "/proc/sys/kernel/core_pattern can't be read");
	else if (pattern[0] == '|')
		naos_finding_add(examination, NAOS_FINDING_WARNING, "core", why,
				 "configure the handler to store nothing (systemd-coredump: Storage=none), or keep its folder encrypted",
				 "core files go to the program %s", pattern + 1);
	else if (pattern[0] == 0 || examination->core_limit.rlim_cur == 0)
		naos_finding_add(examination, NAOS_FINDING_OK, "core", why, NULL, "no core files are written");
	else
		naos_finding_add(examination, NAOS_FINDING_WARNING, "core", why, "set 'ulimit -c 0' for jobs that work on sealed data",
				 "core files are written, as '%s'", pattern);
}

/* A word in the line "flags : …" (x86) or "Features : …" (Arm) of /proc/cpuinfo. */
static bool has_flag(const char *flags, const char *flag)
{
	size_t length = strlen(flag);
	for (const char *at = flags; (at = strstr(at, flag)); at += length)
		if ((at == flags || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0))
			return true;
	return false;
}

static void check_cpu(struct naos_examination *examination)
{
	static const char why[] = "without these instructions AES-GCM is up to a hundred times slower";
	static const char remedy[] = "in a virtual machine pass the host's CPU model on; otherwise seal on another machine";
	static const char *const wanted[] = { "aes", "pclmulqdq", "pmull", "vaes", "vpclmulqdq", "avx2", "avx512f" };
	naos_autofree char *text = read_text(examination, "/proc/cpuinfo");
	char found[128] = "";
	const char *line = text ? strstr(text, "\nflags") : NULL;
	if (text && !line)
		line = strstr(text, "\nFeatures");
	if (!line) {
		naos_finding_add(examination, NAOS_FINDING_WARNING, "cpu", why, remedy, "the features of the CPU can't be read");
		return;
	}
	naos_autofree char *flags = strndup(line + 1, strcspn(line + 1, "\n"));
	for (unsigned i = 0; flags && i < NAOS_ARRAY_LENGTH(wanted); i++)
		if (has_flag(flags, wanted[i])) {
			size_t used = strlen(found);
			(void)snprintf(found + used, sizeof(found) - used, "%s%s", used ? " " : "", wanted[i]);
		}
	if (flags && has_flag(flags, "aes") && (has_flag(flags, "pclmulqdq") || has_flag(flags, "pmull")))
		naos_finding_add(examination, NAOS_FINDING_OK, "cpu", why, NULL, "%s", found);
	else
		naos_finding_add(examination, NAOS_FINDING_WARNING, "cpu", why, remedy, "no instructions for AES and GHASH%s%s",
				 found[0] ? ", only " : "", found);
}

static void check_tracing(struct naos_examination *examination)
{
	static const char why[] = "where it is 0 or absent, any process of a user can read the memory of all processes of that user";
	static const char remedy[] = "sysctl kernel.yama.ptrace_scope=1 (or 2)";
	naos_autofree char *scope = read_text(examination, "/proc/sys/kernel/yama/ptrace_scope");
	if (!scope)
		naos_finding_add(examination, NAOS_FINDING_WARNING, "tracing", why, "run a kernel with the Yama module",
				 "the kernel has no kernel.yama.ptrace_scope");
	else if (strcmp(scope, "0") == 0)
		naos_finding_add(examination, NAOS_FINDING_WARNING, "tracing", why, remedy, "kernel.yama.ptrace_scope is 0");
	else
		naos_finding_add(examination, NAOS_FINDING_OK, "tracing", why, NULL, "kernel.yama.ptrace_scope is %s", scope);
}

static void check_clock(struct naos_examination *examination)
{
	static const char why[] = "release dates, tickets, certificates and the audit log rely on the time";
	static const char remedy[] = "run chrony, ntpsec or systemd-timesyncd";
	struct timex clock = { 0 };
	int state = adjtimex(&clock);
	if (time(NULL) < 1704067200) /* 2024 */
		naos_finding_add(examination, NAOS_FINDING_PROBLEM, "clock", why, remedy, "the clock is years behind");
	else if (state < 0)
		naos_finding_add(examination, NAOS_FINDING_WARNING, "clock", why, remedy, "whether the clock is synchronised can't be told");
	else if (state == TIME_ERROR || (clock.status & STA_UNSYNC))
		naos_finding_add(examination, NAOS_FINDING_WARNING, "clock", why, remedy, "the clock is not synchronised");
	else
		naos_finding_add(examination, NAOS_FINDING_OK, "clock", why, NULL, "synchronised, at most %ld ms off", clock.maxerror / 1000);
}

void naos_examine_machine(struct naos_examination *examination)
{
	check_kernel(examination);
	check_memlock(examination);
	check_swap(examination);
	check_core(examination);
	check_cpu(examination);
	check_tracing(examination);
	check_clock(examination);
}
