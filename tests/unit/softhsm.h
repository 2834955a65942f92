/* A private SoftHSM token for unit tests, in a directory of its own; PIN in a 0600 file.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_TESTS_SOFTHSM_H
#define NAOS_TESTS_SOFTHSM_H

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOFT_PIN "k3EpThisPiN-0123456789abcdef"

struct soft_token {
	char dir[64];	      /* removed by soft_token_remove */
	char uri[512];	      /* pin-source is a file */
	char store[128];
	char module[128];
	char objects[256];    /* directory of the token's objects */
	char parent[128];     /* tokendir */
	char pin_file[128];
};

static inline void soft_write_bytes(const char *path, const char *data, size_t bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, bytes), bytes);
	assert_int_equal(close(fd), 0);
}

static inline void soft_write(const char *path, const char *text)
{
	soft_write_bytes(path, text, strlen(text));
}

static inline bool soft_is_installed(void)
{
	return access("/usr/lib/softhsm/libsofthsm2.so", R_OK) == 0 && access("/usr/bin/softhsm2-util", X_OK) == 0;
}

static inline void soft_spawn(char *const arguments[])
{
	posix_spawn_file_actions_t actions;
	pid_t child;
	int status;
	assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
	assert_int_equal(posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0), 0);
	assert_int_equal(posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ), 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	(void)posix_spawn_file_actions_destroy(&actions);
}

/* Sets SOFTHSM2_CONF.  Call before anything loads SoftHSM. */
static inline void soft_token_make(struct soft_token *token)
{
	char text[1024];
	(void)snprintf(token->dir, sizeof(token->dir), "/tmp/naos-unit-XXXXXX");
	assert_non_null(mkdtemp(token->dir));
	(void)snprintf(token->parent, sizeof(token->parent), "%s/tokens", token->dir);
	(void)snprintf(token->store, sizeof(token->store), "%s/keys.db", token->dir);
	(void)snprintf(token->pin_file, sizeof(token->pin_file), "%s/pin", token->dir);
	(void)snprintf(token->module, sizeof(token->module), "/usr/lib/softhsm/libsofthsm2.so");
	assert_int_equal(mkdir(token->parent, 0700), 0);
	(void)snprintf(text, sizeof(text),
		       "directories.tokendir = %s\nobjectstore.backend = file\nlog.level = ERROR\nslots.removable = false\n", token->parent);
	char path[128];
	(void)snprintf(path, sizeof(path), "%s/softhsm2.conf", token->dir);
	soft_write(path, text);
	soft_write(token->pin_file, SOFT_PIN "\n");
	assert_int_equal(setenv("SOFTHSM2_CONF", path, 1), 0);
	soft_spawn((char *[]){ "softhsm2-util", "--init-token", "--free", "--label", "unit", "--so-pin", "12345678", "--pin", SOFT_PIN, NULL });
	(void)snprintf(token->uri, sizeof(token->uri), "pkcs11:token=unit?module-path=%s&pin-source=file:%s", token->module, token->pin_file);
	DIR *directory = opendir(token->parent);
	const struct dirent *entry;
	while ((entry = readdir(directory)))
		if (entry->d_name[0] != '.')
			(void)snprintf(token->objects, sizeof(token->objects), "%s/%.64s", token->parent, entry->d_name);
	(void)closedir(directory);
}

static inline void soft_token_remove(struct soft_token *token)
{
	soft_spawn((char *[]){ "rm", "-rf", token->dir, NULL });
}

#endif
