/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#include "base/log.h"

void options_add(struct options *options, const char *text)
{
	size_t used = strlen(options->given);
	(void)snprintf(options->given + used, sizeof(options->given) - used, "%s%s", used ? "," : "", text);
}

/* Options of mount(8) and fstab(5) that are not for the file system. */
static bool is_for_mount(const char *word)
{
	static const char *const words[] = { "defaults", "auto", "noauto", "user", "nouser", "users", "group", "owner", "_netdev", "nofail",
					     "rw", "async", "relatime", "x-" };
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(words); i++)
		if (strcmp(word, words[i]) == 0 || (words[i][1] == '-' && strncmp(word, words[i], 2) == 0))
			return true;
	return false;
}

static bool is_for_kernel(const char *word)
{
	static const char *const words[] = { "ro", "suid", "nosuid", "dev", "nodev", "exec", "noexec", "atime", "noatime", "sync", "dirsync",
					     "auto_unmount" };
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(words); i++)
		if (strcmp(word, words[i]) == 0)
			return true;
	return strncmp(word, "context=", 8) == 0 || strncmp(word, "rootcontext=", 12) == 0;
}

static int apply(struct options *options, const char *word, struct naos_fs *fs, struct naos_error *err)
{
	uint64_t number;
	if (is_for_mount(word) || !*word)
		return 0;
	if (strcmp(word, "allow_other") == 0 || strcmp(word, "private") == 0) {
		options->allow_other_set = true;
		options->allow_other = word[0] == 'a';
	} else if (strcmp(word, "mode=local") == 0 || strcmp(word, "mode=shared") == 0) {
		fs->shared = word[5] == 's';
	} else if (strncmp(word, "threads=", 8) == 0) {
		char *end;
		unsigned long threads = strtoul(word + 8, &end, 10);
		if (*end || threads < 1 || threads > 63)
			return naos_error_set(err, NAOS_E_USAGE, "mount option '%s': it is 1 to 63", word);
		fs->threads = (unsigned)threads;
	} else if (strncmp(word, "transport=", 10) == 0) {
		static const char *const words[] = { [FS_TRANSPORT_AUTO] = "auto", [FS_TRANSPORT_DEV] = "dev", [FS_TRANSPORT_URING] = "uring" };
		unsigned i = 0;
		while (i < NAOS_ARRAY_LENGTH(words) && strcmp(word + 10, words[i]) != 0)
			i++;
		if (i == NAOS_ARRAY_LENGTH(words))
			return naos_error_set(err, NAOS_E_USAGE, "mount option '%s': it is auto, dev or uring", word);
		fs->wanted_transport = (enum fs_transport)i;
	} else if (strncmp(word, "seal-delay=", 11) == 0) {
		if (!naos_parse_duration(word + 11, &number) || number > 86400)
			return naos_error_set(err, NAOS_E_USAGE, "mount option '%s': it is a duration of at most a day, such as 5s", word);
		fs->seal_delay_s = (unsigned)number;
	} else if (is_for_kernel(word)) {
		size_t used = strlen(options->kernel);
		if (strcmp(word, "ro") == 0)
			fs->read_only = true;
		if (strcmp(word, "noatime") == 0)
			fs->no_access_times = true;
		(void)snprintf(options->kernel + used, sizeof(options->kernel) - used, "%s%s", used ? "," : "", word);
	} else {
		return naos_error_set(err, NAOS_E_USAGE, "unknown mount option '%s'; see naos-fs(8)", word);
	}
	return 0;
}

static int apply_all(struct options *options, const char *text, struct naos_fs *fs, struct naos_error *err)
{
	char copy[NAOS_FS_OPTION_BYTES], *rest = copy, *word;
	if (strlen(text) >= sizeof(copy) - 1)
		return naos_error_set(err, NAOS_E_USAGE, "the mount options are longer than %zu bytes", sizeof(copy));
	(void)snprintf(copy, sizeof(copy), "%s", text);
	int rc = 0;
	while (rc == 0 && (word = strsep(&rest, ",")))
		rc = apply(options, word, fs, err);
	return rc;
}

int options_read(struct options *options, const struct naos_config *config, struct naos_fs *fs, struct naos_error *err)
{
	const char *name = options->fileset;
	options->path = naos_config_string(config, "fileset", name, "path");
	if (!options->mountpoint)
		options->mountpoint = naos_config_string(config, "fileset", name, "mountpoint");
	if (!*options->path)
		return naos_error_set(err, NAOS_E_CONFIG, "[fileset %s] has no path: 'naos fileset create' makes a file set", name);
	if (!*options->mountpoint)
		return naos_error_set(err, NAOS_E_USAGE, "[fileset %s] has no mountpoint: give one after its name", name);
	fs->shared = strcmp(naos_config_string(config, "fileset", name, "mode"), "shared") == 0;
	fs->seal_delay_s = (unsigned)naos_config_number(config, "fileset", name, "seal-delay");
	int rc = apply_all(options, naos_config_string(config, "fileset", name, "options"), fs, err);
	if (rc == 0)
		rc = apply_all(options, options->given, fs, err);
	if (rc == 0 && fs->shared && fs->wanted_transport == FS_TRANSPORT_URING)
		rc = naos_error_set(err, NAOS_E_USAGE, "mount option 'transport=uring': it is for mode = local only");
	/* mode = local: what the kernel remembers stays true, for only it changes the files */
	fs->entry_timeout_s = fs->attr_timeout_s = fs->shared ? 0 : 1;
	return rc;
}

bool options_background(int *ret_report, int *ret_status)
{
	int ends[2], status = 1;
	if (pipe2(ends, O_CLOEXEC) != 0)
		return true; /* it stays in the foreground then, and says nothing wrong */
	pid_t child = fork();
	if (child < 0)
		return true;
	if (child == 0) {
		(void)close(ends[0]);
		(void)setsid();
		*ret_report = ends[1];
		return true;
	}
	(void)close(ends[1]);
	uint8_t byte;
	if (read(ends[0], &byte, 1) == 1)
		status = byte;
	(void)close(ends[0]);
	*ret_status = status;
	return false;
}

void options_report(int report, int status)
{
	static bool told;
	uint8_t byte = (uint8_t)status;
	if (told)
		return;
	told = true;
	if (status == 0) { /* from now on nobody reads what is printed here */
		naos_autoclose int null = open("/dev/null", O_RDWR | O_CLOEXEC);
		naos_log_syslog();
		for (int fd = 0; null >= 0 && fd < 3; fd++)
			(void)dup2(null, fd);
		(void)!chdir("/");
	}
	(void)!write(report, &byte, 1);
	(void)close(report);
}
