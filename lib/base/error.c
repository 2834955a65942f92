/* The error table and the error object.  SPDX-License-Identifier: Apache-2.0 */
#include "base/errors.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"

static const struct naos_error_info table[] = {
#define X(name_, code_, category_, exit_, retry_, sentence_, remedy_) \
	{ .code = (code_), .name = "NAOS_E_" #name_, .category = (category_), .exit_status = (exit_), \
	  .retryable = (retry_) != 0, .sentence = (sentence_), .remedy = (remedy_) },
#include <naos/error.def>
#undef X
};

/* errno of a system call -> our code, and our code -> errno of a file system.  First match wins both ways. */
static const struct {
	int errno_value;
	int code;
} errno_map[] = {
	{ ENOSPC, NAOS_E_NOSPACE },    { EDQUOT, NAOS_E_NOSPACE },     { ENOENT, NAOS_E_NOTFOUND },
	{ EEXIST, NAOS_E_EXISTS },     { EACCES, NAOS_E_PERMISSION },  { EPERM, NAOS_E_PERMISSION },
	{ EROFS, NAOS_E_READONLY },    { ENOMEM, NAOS_E_NOMEM },       { EBUSY, NAOS_E_BUSY },
	{ EAGAIN, NAOS_E_BUSY },       { EINTR, NAOS_E_INTERRUPTED },  { EOPNOTSUPP, NAOS_E_UNSUPPORTED },
	{ ENOSYS, NAOS_E_UNSUPPORTED }, { EIO, NAOS_E_INTEGRITY },     { EIO, NAOS_E_FORMAT },
	{ EIO, NAOS_E_WRONG_KEY },     { ENOKEY, NAOS_E_KEYMANAGER },  { ENOKEY, NAOS_E_NOKEY },
	{ ENOKEY, NAOS_E_PIN },        { EKEYREVOKED, NAOS_E_KEY_STATE }, { EKEYREVOKED, NAOS_E_KEY_USES },
	{ ESTALE, NAOS_E_CHANGED },    { EACCES, NAOS_E_DENIED },     { EFBIG, NAOS_E_LIMIT },        { EINVAL, NAOS_E_USAGE },
	{ ENOMEM, NAOS_E_MEMLOCK },
};

const struct naos_error_info *naos_error_row(unsigned index)
{
	return index < NAOS_ARRAY_LENGTH(table) ? &table[index] : NULL;
}

const struct naos_error_info *naos_error_info(int code)
{
	const struct naos_error_info *fallback = &table[0];
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(table); i++) {
		if (table[i].code == code)
			return &table[i];
		if (table[i].code == NAOS_E_SYSTEM)
			fallback = &table[i];
	}
	return fallback;
}

int naos_error_exit_status(int code)
{
	return code == NAOS_OK ? 0 : naos_error_info(code)->exit_status;
}

int naos_error_to_errno(int code)
{
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(errno_map); i++)
		if (errno_map[i].code == code)
			return errno_map[i].errno_value;
	return EIO;
}

/* A message may name a file: names hold any bytes, terminals obey some of them. */
static void make_printable(struct naos_error *err)
{
	char text[NAOS_ERROR_MESSAGE_BYTES];
	for (const char *at = err->message; *at; at++)
		if ((unsigned char)*at < 0x20 || (unsigned char)*at >= 0x7f) {
			(void)snprintf(text, sizeof(text), "%s", err->message);
			(void)naos_io_printable_text(text, err->message, sizeof(err->message));
			return;
		}
}

int naos_error_set(struct naos_error *err, int code, const char *format, ...)
{
	if (!err)
		return code;
	va_list args;
	va_start(args, format);
	err->code = code;
	err->errno_value = 0;
	(void)vsnprintf(err->message, sizeof(err->message), format, args);
	va_end(args);
	make_printable(err);
	return code;
}

int naos_error_set_errno(struct naos_error *err, int errno_value, const char *format, ...)
{
	int code = NAOS_E_SYSTEM;
	for (unsigned i = 0; i < NAOS_ARRAY_LENGTH(errno_map); i++)
		if (errno_map[i].errno_value == errno_value && errno_value != EIO && errno_value != EINVAL) {
			code = errno_map[i].code;
			break;
		}
	if (!err)
		return code;
	char text[NAOS_ERROR_MESSAGE_BYTES - 128], reason[96];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	(void)naos_error_set(err, code, "%s: %s", text, strerror_r(errno_value, reason, sizeof(reason)));
	err->errno_value = errno_value;
	return code;
}

int naos_error_prefix(struct naos_error *err, int code, const char *format, ...)
{
	if (!err)
		return code;
	char prefix[NAOS_ERROR_MESSAGE_BYTES / 2], old[NAOS_ERROR_MESSAGE_BYTES];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(prefix, sizeof(prefix), format, args);
	va_end(args);
	(void)snprintf(old, sizeof(old), "%s", err->message);
	err->code = code;
	int room = (int)(sizeof(err->message) - strlen(prefix) - 3);
	(void)snprintf(err->message, sizeof(err->message), "%s: %.*s", prefix, room, old);
	make_printable(err);
	return code;
}
