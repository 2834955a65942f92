/* Ending a test.  SPDX-License-Identifier: Apache-2.0 */
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

char fail_where[200];

void fail_at(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	(void)vsnprintf(fail_where, sizeof(fail_where), format, list);
	va_end(list);
}

void violation(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	printf("VIOLATION %s: ", fail_where);
	vprintf(format, list);
	printf("\n");
	va_end(list);
	(void)fflush(stdout);
	_Exit(1);
}

void *must(void *pointer)
{
	if (!pointer) {
		printf("out of memory\n");
		_Exit(2);
	}
	return pointer;
}
