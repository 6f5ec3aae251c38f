/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Departures between acknowledgements as a program: reads a state from each line, and prints the
 * limit of the data in flight and the pace. release.rs drives it.
 */
#include "../../bpf/release.h"
#include "events.h"

int main(void)
{
	u64 a[10];

	while (next_event(a)) {
		struct release release = { a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8] };

		release_decide(&release);
		printf("%llu %llu\n", release.limit, release.pace);
		fflush(stdout);
	}
	return 0;
}
