/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * How packets leave between acknowledgements, as crates/verus/src/forward/release.rs says; the reasons are there. TCP sends
 * as its pace says, and no timer can tell it that more is due. So the window covers all that may be due before the next
 * acknowledgement, and the pace, set before each burst, keeps what is in flight at what is due by then.
 *
 * Sizes are bytes of payload and rates bytes of payload a second, as TCP counts. Times in ns.
 */
#ifndef VERUS_RELEASE_H
#define VERUS_RELEASE_H

#include "integer.h"

#define SECOND (1000 * MS)
/* The pace falls from the law's to r while this part of the window, the last, fills. */
#define LAST_PART 8
/* Beyond the window it falls on, to this part of r. */
#define SLOWEST 2

struct release {
	/* When data were acknowledged last. */
	u64 answered;
	/* H, for which the path is assumed to go on delivering; 0: nothing is assumed, and TCP's window and pace suffice. */
	u64 horizon;
	u64 packet;
	/* What leaves at once at the least. */
	u64 burst;
	u64 window;
	/* r, and the law's pace. */
	u64 rate;
	u64 pace;
};

/* How much may be in flight before H is over. */
static inline u64 release_most(const struct release *r)
{
	return more(r->window, more(mul_div(r->rate, r->horizon, SECOND), r->burst));
}

/* How fast the next burst leaves. Half of it counts as in flight, so that the mean is the window. */
static inline u64 release_pace(const struct release *r, u64 now, u64 in_flight)
{
	u64 silence = smaller(less(now, r->answered), r->horizon);
	u64 unheard = silence ? smaller(less(mul_div(r->rate, silence, SECOND), r->packet), in_flight) : 0;
	u64 allowed = more(r->window, unheard);
	u64 part = larger(more(r->window / LAST_PART, r->burst), 1);

	in_flight = more(in_flight, r->burst / 2);
	if (allowed >= in_flight)
		return smaller(more(r->rate, mul_div(r->rate, allowed - in_flight, part)), r->pace);
	return larger(less(r->rate, mul_div(r->rate, in_flight - allowed, larger(r->burst, 1))), r->rate / SLOWEST);
}

#endif
