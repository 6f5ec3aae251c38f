/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* How a law that runs as a program is told what happens: a line of a letter and up to ten numbers. */
#ifndef VERUS_EVENTS_H
#define VERUS_EVENTS_H

#include <stdio.h>
#include <string.h>

/* The next event: its letter, or 0 when there is none any more. Numbers that the line has not are zero. */
static char next_event(u64 a[10])
{
	char line[256];

	if (!fgets(line, sizeof(line), stdin))
		return 0;
	memset(a, 0, 10 * sizeof(*a));
	sscanf(line + 1, "%llu %llu %llu %llu %llu %llu %llu %llu %llu %llu", a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6, a + 7,
	       a + 8, a + 9);
	return line[0];
}

#endif
