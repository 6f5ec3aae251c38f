/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Departures while nothing is acknowledged, as in crates/forward/src/release.rs: for the horizon H
 * the path is assumed to deliver at rate r. Sizes in bytes (IP).
 *
 * The core wakes when a packet is due. TCP has one timer, for its pace: it starts as a burst leaves
 * and expires after the burst's time at the pace. So the burst that fills the window gets the pace
 * at which the timer expires when the next burst is due.
 */
#ifndef VERUS_RELEASE_H
#define VERUS_RELEASE_H

#include "integer.h"

/*
 * A receiver acknowledges every second packet at once, and a single one after up to 40 ms (delayed
 * ACK, RFC 1122). The round trip of the latter is no measure of the path, so packets leave in
 * pairs.
 */
#define PAIR 2

struct release {
	u64 now;
	/* When data were last acknowledged, and how much at once. */
	u64 acknowledged_at;
	u64 acknowledged;
	u64 in_flight;
	u64 packet;
	/* r and H. */
	u64 rate;
	u64 horizon;
	/* The limit of the data in flight without assumed deliveries, and the law's pace. */
	u64 limit;
	u64 pace;
};

/* What TCP sends at once at this rate: as much as takes a millisecond, a pair at least. */
static inline u64 release_burst(const struct release *r, u64 rate)
{
	return larger(bytes_in(rate, MS), PAIR * r->packet);
}

/* Adds assumed deliveries to the limit, and sets the pace of the burst that leaves next. */
static inline void release_decide(struct release *r)
{
	u64 delivered = bytes_in(r->rate, smaller(less(r->now, r->acknowledged_at), r->horizon));
	/* Of what one acknowledgement covers, all but the last packet have arrived before it comes. */
	u64 unreported = less(larger(r->acknowledged, PAIR * r->packet), r->packet);
	u64 limit = more(r->limit, smaller(less(delivered, unreported), r->in_flight));
	u64 left = limit % r->packet;
	u64 room = less(limit - left, r->in_flight);

	r->limit = limit;
	/*
	 * Where acknowledgements come so soon that little of the window is in flight, no burst fills it,
	 * and a wait would lower r.
	 */
	if (room && room <= smaller(release_burst(r, r->pace), limit / 4)) {
		/* What r delivers until the next burst is due. */
		u64 due = more(less(unreported, delivered), release_burst(r, r->rate) - left);

		r->pace = smaller(r->pace, mul_div(r->rate, room, due));
	}
}

#endif
