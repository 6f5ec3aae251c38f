/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Verus as a program: an event a line, and what the law says of it. verus_law.rs, beside this, drives it. */
#include "../../bpf/verus.h"
#include "events.h"

/*
 * Whether the curve never falls, and each of its windows has its delay: the two look-ups are inverse, but for what a window and a
 * delay are rounded by, 2^-16 of a point and a us.
 */
static int is_sound(const struct profile *profile)
{
	u64 at, window, unit = 2ull << profile->width;

	for (at = 1; at < profile->count; at++)
		if (profile->curve[at] < profile->curve[at - 1])
			return 0;
	window = profile_window(profile, LONGEST_DELAY * 500);
	for (; window > ONE_PACKET; window = window * 7 / 8) {
		u64 delay = profile_delay(profile, window);
		u64 back = profile_window(profile, delay);

		if (profile_delay(profile, less(back, unit)) > delay + 1000 ||
		    profile_delay(profile, back + unit) + 1000 < delay)
			return 0;
	}
	return 1;
}

int main(void)
{
	static struct verus law;
	u64 a[10];
	char event;

	while ((event = next_event(a))) {
		switch (event) {
		case 's':
			memset(&law, 0, sizeof(law));
			verus_start(&law, a[0], a[1], a[2]);
			break;
		case 'a': {
			struct answer answer = { a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8] };

			verus_on_answer(&law, &answer);
			break;
		}
		case 't':
			verus_on_timeout(&law, a[0]);
			break;
		default:
			return 1;
		}
		printf("%llu %llu %llu %llu %llu %llu %d %llu %d\n", law.window, verus_allowed(&law), verus_pace(&law, 1448),
		       law.estimate, law.delay_min, law.delay_max, law.phase,
		       law.epoch_end, is_sound(&law.profile));
		fflush(stdout);
	}
	return 0;
}
