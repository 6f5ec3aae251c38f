/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The law as a program: reads an event from each line, and prints the law's answer. law.rs drives
 * it.
 */
#include "../../bpf/forward.h"
#include "events.h"

int main(void)
{
	static struct forward law;
	u64 a[10];
	char event;

	while ((event = next_event(a))) {
		switch (event) {
		case 'd': {
			struct state state = { a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7] };
			struct decision decision;

			law_decide(&state, &decision);
			printf("%llu %llu\n", decision.window, decision.pace);
			fflush(stdout);
			continue;
		}
		case 's':
			memset(&law, 0, sizeof(law));
			forward_start(&law, a[0], a[1], a[2]);
			break;
		case 'h': {
			struct heard heard = { a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9] };

			forward_on_heard(&law, &heard);
			break;
		}
		case 't':
			forward_on_timeout(&law, a[0]);
			break;
		case 'p':
			forward_on_packet_size(&law, a[0]);
			break;
		default:
			return 1;
		}
		printf("%llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %d\n", law.window, forward_allowed(&law), law.pace,
		       law.estimates.rate, law.estimates.base, law.estimates.queue, law.estimates.target,
		       estimates_horizon(&law.estimates), share_get(&law.estimates.lost),
		       share_get(&law.estimates.empty), share_get(&law.estimates.late),
		       room_get(&law.estimates.room), law.estimates.steady, forward_phase(&law));
		fflush(stdout);
	}
	return 0;
}
