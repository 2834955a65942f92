/* Times with a zone, and a clock that never goes back.  SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "policy/policy.h"

#define SHAPE_MONTH 5
#define SHAPE_DAY 8

/* Days since 1970 in the Gregorian calendar (proleptic): eras of 400 years, years from March. */
static int64_t days_of(int year, int month, int day)
{
	int shifted = month <= 2 ? year - 1 : year;
	int era = (shifted >= 0 ? shifted : shifted - 399) / 400;
	int of_era = shifted - era * 400, of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
	return (int64_t)era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static bool two_digits(const char *text, int *ret)
{
	if (text[0] < '0' || text[0] > '9' || text[1] < '0' || text[1] > '9')
		return false;
	*ret = (text[0] - '0') * 10 + text[1] - '0';
	return true;
}

static int days_in_month(int year, int month)
{
	static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
	return days[month - 1] + (month == 2 && leap);
}

/* ".25" at text: microseconds; *ret_used is 0 if there is none. */
static const char *fraction(const char *text, size_t bytes, int64_t *ret_us, size_t *ret_used)
{
	int64_t us = 0, unit = 100000;
	size_t used = 0;
	if (bytes > 0 && text[0] == '.') {
		for (used = 1; used < bytes && text[used] >= '0' && text[used] <= '9'; used++, unit /= 10)
			us += unit * (text[used] - '0');
		if (used == 1)
			return "has a point without digits behind it; leave the point away";
		if (used > 7)
			return "has more than 6 digits behind the second; leave the rest away";
	}
	*ret_us = us;
	*ret_used = used;
	return NULL;
}

static const char *zone(const char *text, size_t bytes, int64_t *ret_us)
{
	int hours, minutes;
	if (bytes == 0)
		return "has no zone; add Z for UTC, or its offset such as +01:00";
	*ret_us = 0;
	if (bytes == 1 && text[0] == 'Z')
		return NULL;
	if (bytes != 6 || (text[0] != '+' && text[0] != '-') || text[3] != ':' || !two_digits(text + 1, &hours) ||
	    !two_digits(text + 4, &minutes) || hours > 23 || minutes > 59)
		return "ends with what is no zone; write Z for UTC, or an offset such as +01:00";
	*ret_us = (text[0] == '-' ? -1 : 1) * (int64_t)(hours * 60 + minutes) * 60000000;
	return NULL;
}

const char *naos_policy_time_parse(const char *text, size_t bytes, int64_t *ret_us)
{
	static const char not_a_time[] = "is not written as 2027-01-01T00:00:00Z";
	int century, year, month, day, hour, minute, second;
	int64_t sub_us, zone_us;
	size_t used;
	if (bytes < 10 || !two_digits(text, &century) || !two_digits(text + 2, &year) || text[4] != '-' ||
	    !two_digits(text + SHAPE_MONTH, &month) ||
	    text[7] != '-' || !two_digits(text + SHAPE_DAY, &day))
		return not_a_time;
	year += century * 100;
	if (year < 1 || month < 1 || month > 12 || day < 1 || day > days_in_month(year, month))
		return "names a day that the calendar doesn't have";
	if (bytes == 10)
		return "is a day without time of day and zone; write the moment, such as 2027-01-01T00:00:00Z";
	if (bytes < 19 || text[10] != 'T' || !two_digits(text + 11, &hour) || text[13] != ':' || !two_digits(text + 14, &minute) ||
	    text[16] != ':' || !two_digits(text + 17, &second))
		return not_a_time;
	if (hour > 23 || minute > 59 || second > 59)
		return "names a time of day that doesn't exist (leap seconds are not counted: write the next second)";
	const char *wrong = fraction(text + 19, bytes - 19, &sub_us, &used);
	if (!wrong)
		wrong = zone(text + 19 + used, bytes - 19 - used, &zone_us);
	if (wrong)
		return wrong;
	*ret_us = (((days_of(year, month, day) * 24 + hour) * 60 + minute) * 60 + second) * 1000000 + sub_us - zone_us;
	return NULL;
}

const char *naos_policy_time_format(int64_t time_us, char buffer[static NAOS_POLICY_TIME_BYTES])
{
	int64_t sub_us = time_us % 1000000, seconds = time_us / 1000000;
	if (sub_us < 0) {
		sub_us += 1000000;
		seconds--;
	}
	time_t unix_s = (time_t)seconds;
	struct tm utc;
	if (!gmtime_r(&unix_s, &utc)) {
		(void)snprintf(buffer, NAOS_POLICY_TIME_BYTES, "%lldus", (long long)time_us);
		return buffer;
	}
	int used = snprintf(buffer, NAOS_POLICY_TIME_BYTES, "%04d-%02d-%02dT%02d:%02d:%02d", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
			    utc.tm_hour, utc.tm_min, utc.tm_sec);
	if (used < 0 || used > NAOS_POLICY_TIME_BYTES - 10)
		used = 0;
	if (sub_us != 0)
		(void)snprintf(buffer + used, NAOS_POLICY_TIME_BYTES - (size_t)used, ".%06dZ", (int)sub_us);
	else
		(void)snprintf(buffer + used, NAOS_POLICY_TIME_BYTES - (size_t)used, "Z");
	return buffer;
}

int64_t naos_policy_clock_now(struct naos_policy_clock *clock, const int64_t *host_us, int64_t *ret_behind_us)
{
	struct timespec host;
	(void)clock_gettime(CLOCK_REALTIME, &host);
	int64_t now = host_us ? *host_us : (int64_t)host.tv_sec * 1000000 + host.tv_nsec / 1000;
	int64_t latest = atomic_load(&clock->latest_us);
	while (now > latest && !atomic_compare_exchange_weak(&clock->latest_us, &latest, now))
		;
	if (ret_behind_us)
		*ret_behind_us = now < latest ? latest - now : 0;
	return now < latest ? latest : now;
}
