/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The delay profile of Verus (SIGCOMM 2015, §4, §5.1): what delay each sending window brings, learned from acknowledgements,
 * as crates/verus/src/verus/profile.rs has it.
 *
 * What differs: the paper draws a cubic spline through the points, and this straight lines, which take neither floating point
 * nor a system of equations. Where each window has its point both are the same; in gaps they differ by what a spline bends.
 * And the points are so many at the most, however large the window: where one exceeds them, each holds twice as many windows.
 *
 * Windows in 2^-16 packets, delays in ns; those that are kept, in us.
 */
#ifndef VERUS_PROFILE_H
#define VERUS_PROFILE_H

#include "integer.h"

/* A power of two, for `masked`. */
#define POINTS 512
#define MOST_WIDTH 6
/* Packets: the last window that has a point. */
#define LARGEST_WINDOW ((POINTS << MOST_WIDTH) - 1)
#define PACKET_SHIFT 16
/* us, as in law.h. */
#define LONGEST_DELAY ((1ull << 26) - 1)
/* The weight of a point's history is seven eighths (as in the authors' prototype). */
#define POINT_SHIFT 3

struct profile {
	/* The averaged delay of packets that left with so many in flight; 0: none was seen. */
	u32 points[POINTS];
	/* The delay of each window by the curve, which never falls. While it is fitted: where the next point is. */
	u32 curve[POINTS];
	/* A point holds 2^width windows. */
	u32 width;
	/* As far the curve goes: to the last point; 0 where there is no curve. */
	u32 count;
};

/* Each point holds twice as many windows from now on. */
APART int profile_fold(struct profile *profile)
{
	u64 at;

	if (!profile)
		return 0;
	COUNTED(at, POINTS / 2) {
		u32 low = profile->points[masked(2 * at, POINTS - 1)];
		u32 high = profile->points[masked(2 * at + 1, POINTS - 1)];

		profile->points[masked(at, POINTS - 1)] = low && high ? (low + high) / 2 : low | high;
	}
	COUNTED(at, POINTS / 2)
		profile->points[masked(POINTS / 2 + at, POINTS - 1)] = 0;
	profile->width++;
	return 0;
}

/* Draws the curve through the points. */
APART int profile_fit(struct profile *profile)
{
	u64 at, next = POINTS, last = 0, before = 0, highest = 0;

	if (!profile)
		return 0;
	COUNTED(at, POINTS) {
		u64 from = masked(POINTS - 1 - at, POINTS - 1);

		if (profile->points[from]) {
			next = from;
			if (!last)
				last = from + 1;
		}
		profile->curve[from] = next;
	}
	profile->count = last;
	COUNTED(at, POINTS) {
		u64 here = masked(at, POINTS - 1);
		u64 to = profile->curve[here];
		u64 delay = profile->points[masked(to, POINTS - 1)];

		if (to == here) {
			before = here + 1;
		} else if (before && to < POINTS) {
			/* On the straight line between the two points around it. */
			u64 from = before - 1;
			u64 start = profile->points[masked(from, POINTS - 1)];
			u64 change = apart(start, delay) * (here - from) / larger(less(to, from), 1);

			delay = delay > start ? start + change : start - change;
		}
		if (to < POINTS)
			highest = larger(highest, delay);
		profile->curve[here] = highest;
	}
	return 0;
}

/* A packet that left with `window` packets in flight, itself included, took `rtt`. */
static inline void profile_add(struct profile *profile, u64 window, u64 rtt)
{
	u64 delay = smaller(larger(rtt / 1000, 1), LONGEST_DELAY);
	u32 *point;
	int fold, folded = 0;

	window = smaller(larger(window, 1), LARGEST_WINDOW);
	for (fold = 0; fold < MOST_WIDTH; fold++) {
		if (window >> (profile->width & 7) < POINTS)
			break;
		profile_fold(profile);
		folded = 1;
	}
	if (folded && profile->count)
		profile_fit(profile);
	point = &profile->points[masked(window >> (profile->width & 7), POINTS - 1)];
	*point = *point ? ((*point * 7ull) + delay + (1 << (POINT_SHIFT - 1))) >> POINT_SHIFT : delay;
}

/* The window in the middle of the first point, less what a whole point takes. */
static inline u64 profile_middle(const struct profile *profile)
{
	return ((1ull << (profile->width & 7)) - 1) << (PACKET_SHIFT - 1);
}

/*
 * What each point adds to the delay beyond the curve, ns. Where the window exceeds the bandwidth-delay product, the delay is
 * W/C, so that delay over window is the least slope to assume where the curve ends flat.
 */
static inline u64 profile_slope(const struct profile *profile)
{
	u64 last = less(profile->count, 1);
	u64 end = profile->curve[masked(last, POINTS - 1)];
	u64 half = smaller(last / 2 + 1, last);
	u64 rise = less(end, profile->curve[masked(half, POINTS - 1)]);
	u64 slope = larger(end * 1000 / larger(last, 1), rise * 1000 / larger(last - last / 2, 1));

	return larger(slope, 1000);
}

/* f^-1: the window whose delay that is, and at least one packet; 0 without a curve. */
APART u64 profile_window(const struct profile *profile, u64 delay)
{
	u64 at = 0, low, window;
	int bit;

	if (!profile || !profile->count)
		return 0;
	delay = smaller(delay, LONGEST_DELAY * 1000);
	/* How many entries are no higher. */
	for (bit = 9; bit >= 0; bit--) {
		u64 next = at + (1ull << bit);
		u64 entry = profile->curve[masked(next - 1, POINTS - 1)];

		if (next <= profile->count && entry <= delay / 1000)
			at = next;
	}
	if (!at)
		return 1ull << PACKET_SHIFT;
	low = profile->curve[masked(at - 1, POINTS - 1)] * 1000ull;
	if (at < profile->count)
		window = (less(delay, low) << PACKET_SHIFT) /
			 larger(less(profile->curve[masked(at, POINTS - 1)] * 1000ull, low), 1);
	else
		window = (less(delay, low) << PACKET_SHIFT) / profile_slope(profile);
	window = smaller(window + ((at - 1) << PACKET_SHIFT), (u64)LARGEST_WINDOW << PACKET_SHIFT);
	window = (window << (profile->width & 7)) + profile_middle(profile);
	return larger(smaller(window, (u64)LARGEST_WINDOW << PACKET_SHIFT), 1ull << PACKET_SHIFT);
}

/* f: the delay of a window; 0 without a curve. */
APART u64 profile_delay(const struct profile *profile, u64 window)
{
	u64 at, share, low, last;

	if (!profile || !profile->count)
		return 0;
	window = smaller(window, (u64)LARGEST_WINDOW << PACKET_SHIFT);
	window = less(window, profile_middle(profile)) >> (profile->width & 7);
	at = window >> PACKET_SHIFT;
	share = window & ((1ull << PACKET_SHIFT) - 1);
	last = profile->count - 1;
	if (at >= last)
		return profile->curve[masked(last, POINTS - 1)] * 1000ull +
		       (((window - (last << PACKET_SHIFT)) * profile_slope(profile)) >> PACKET_SHIFT);
	low = profile->curve[masked(at, POINTS - 1)];
	return low * 1000 + ((less(profile->curve[masked(at + 1, POINTS - 1)], low) * 1000 * share) >> PACKET_SHIFT);
}

#endif
