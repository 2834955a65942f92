/* Attributes and cleanup helpers used everywhere.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_BASE_COMPILER_H
#define NAOS_BASE_COMPILER_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define naos_must_check __attribute__((warn_unused_result))
#define naos_printf(format_arg, first_arg) __attribute__((format(printf, format_arg, first_arg)))
#define naos_unused __attribute__((unused))
#define naos_cleanup(function) __attribute__((cleanup(function), unused)) /* some exist for their cleanup only */
#define NAOS_ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Destructors take NULL and keep errno. */
static inline void naos_free_pointer(void *pointer_to_pointer)
{
	int saved = errno;
	free(*(void **)pointer_to_pointer);
	errno = saved;
}

static inline void naos_close_descriptor(int *fd)
{
	int saved = errno;
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
	errno = saved;
}

static inline void naos_close_stream(FILE **stream)
{
	int saved = errno;
	if (*stream)
		(void)fclose(*stream);
	*stream = NULL;
	errno = saved;
}

#define naos_autofree naos_cleanup(naos_free_pointer)
#define naos_autoclose naos_cleanup(naos_close_descriptor)
#define naos_autofclose naos_cleanup(naos_close_stream)

/* Gives up ownership of a descriptor or pointer that a cleanup attribute guards. */
static inline int naos_fd_steal(int *fd)
{
	int value = *fd;
	*fd = -1;
	return value;
}

#define naos_steal(pointer) \
	(__extension__({ \
		__typeof__(pointer) stolen_ = (pointer); \
		(pointer) = NULL; \
		stolen_; \
	}))

#endif
