/* The kernel's list of mounts (proc(5), /proc/PID/mountinfo).  SPDX-License-Identifier: Apache-2.0 */
#include "base/mounts.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"

#define MAX_BYTES ((size_t)16 << 20)
#define FIELDS 64 /* of a line: ten, and one for each kind of propagation */

/* Blank, tab, newline and backslash are written as \040 and so on. */
static void unescape(char *text)
{
	char *out = text;
	for (const char *in = text; *in; out++) {
		unsigned value = 0;
		bool octal = in[0] == '\\';
		for (unsigned i = 1; octal && i <= 3; i++) {
			octal = in[i] >= '0' && in[i] <= '7';
			value = octal ? value * 8 + (unsigned)(in[i] - '0') : value;
		}
		*out = octal ? (char)value : *in;
		in += octal ? 4 : 1;
	}
	*out = 0;
}

/* "36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw,errors=continue" */
static bool parse_line(char *line, struct naos_mount *ret)
{
	char *fields[FIELDS], *rest = NULL;
	unsigned count = 0, dash = 6;
	for (char *field = strtok_r(line, " ", &rest); field && count < FIELDS; field = strtok_r(NULL, " ", &rest))
		fields[count++] = field;
	while (dash < count && strcmp(fields[dash], "-") != 0)
		dash++;
	if (dash + 1 >= count || sscanf(fields[2], "%u:%u", &ret->major, &ret->minor) != 2)
		return false;
	/* an empty source leaves one field less */
	char *source = dash + 3 < count ? fields[dash + 2] : fields[dash + 1] + strlen(fields[dash + 1]);
	unescape(fields[4]);
	unescape(source);
	ret->point = fields[4];
	ret->options = fields[5];
	ret->type = fields[dash + 1];
	ret->source = source;
	return true;
}

int naos_mounts_parse(char *text, struct naos_mounts *ret, struct naos_error *err)
{
	struct naos_mounts mounts = { .text = text };
	size_t lines = 1;
	char *rest = NULL;
	for (const char *at = text; *at; at++)
		lines += *at == '\n';
	mounts.items = calloc(lines, sizeof(*mounts.items));
	if (!mounts.items) {
		naos_mounts_free(&mounts);
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for the list of mounts");
	}
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		mounts.count += parse_line(line, &mounts.items[mounts.count]);
	*ret = mounts;
	return 0;
}

int naos_mounts_read(struct naos_mounts *ret, struct naos_error *err)
{
	uint8_t *text = NULL;
	size_t bytes;
	int rc = naos_io_read_file(AT_FDCWD, "/proc/self/mountinfo", MAX_BYTES, &text, &bytes, err);
	return rc ? rc : naos_mounts_parse((char *)text, ret, err);
}

void naos_mounts_free(struct naos_mounts *mounts)
{
	free(mounts->items);
	free(mounts->text);
	*mounts = (struct naos_mounts){ .items = NULL };
}

bool naos_mount_is_fileset(const struct naos_mount *mount)
{
	return strcmp(mount->type, NAOS_MOUNT_TYPE) == 0;
}
