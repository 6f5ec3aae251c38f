/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Departures between acknowledgements as a program: a state a line, and how fast the next burst leaves. release.rs, beside
 * this, drives it. */
#include "../../bpf/release.h"
#include "events.h"

int main(void)
{
	u64 a[10];

	while (next_event(a)) {
		struct release release = { a[0], a[1], a[2], a[3], a[4], a[5], a[6] };

		printf("%llu %llu\n", release_pace(&release, a[7], a[8]), release_most(&release));
		fflush(stdout);
	}
	return 0;
}
