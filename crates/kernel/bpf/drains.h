/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The drains of a flow, as in crates/verus/src/forward/drain.rs, which gives the reasons. Times in
 * ns.
 */
#ifndef VERUS_DRAINS_H
#define VERUS_DRAINS_H

#include "law.h"

#define INTERVAL (4000 * MS)
#define SOONEST (500 * MS)
#define ROUNDS 2
#define JITTER_PART 26
#define UNMOVED 32
#define LONGER 2

enum turn { TURN_NOTHING, TURN_BEGAN, TURN_UNMOVED, TURN_LONGER };

struct drains {
	u64 met;
	u64 high_since;
	u64 ended;
	u64 wait;
	u64 before;
	u64 base;
	u64 calm;
	/* When the drain began. */
	u64 since;
	/* enum law_phase. */
	u8 phase;
	u8 high;
	u8 first;
	u8 sure;
	u32 reserved;
};

/* An observation of the queue, its target and the path. */
struct seen {
	u64 queue;
	u64 target;
	u64 base;
	u64 smoothed_rtt;
	u64 steady;
	u64 range;
};

static inline void drains_new(struct drains *d, u64 now)
{
	d->met = now;
	d->high_since = 0;
	d->ended = now;
	d->wait = SOONEST;
	d->before = 0;
	d->base = 0;
	d->calm = 0;
	d->since = 0;
	d->phase = PHASE_LAW;
	d->high = 0;
	d->first = 0;
	d->sure = 0;
}

static inline int drains_fail(struct drains *d, u64 now, u64 queue, int constant)
{
	int unmoved, longer, first = d->first;

	d->ended = now;
	d->high = 0;
	d->sure = 0;
	d->wait = smaller(times(d->wait, 2), INTERVAL);
	if (d->phase == PHASE_SHORT_DRAIN) {
		d->phase = PHASE_DRAIN;
		d->since = now;
		return TURN_NOTHING;
	}
	unmoved = times(apart(queue, d->before), UNMOVED) <= d->before;
	longer = queue > times(d->calm, LONGER) && less(d->before, queue) <= d->calm && constant;
	d->phase = PHASE_LAW;
	d->first = 0;
	if (first)
		return TURN_NOTHING;
	return unmoved ? TURN_UNMOVED : longer ? TURN_LONGER : TURN_NOTHING;
}

static inline int drains_update(struct drains *d, u64 now, const struct seen *seen)
{
	u64 queue = seen->queue, target = seen->target;
	u64 near = target / 7 + smaller(seen->steady / JITTER_PART, target / 7);
	int over = d->phase != PHASE_LAW && less(now, d->since) >= times(seen->smoothed_rtt, ROUNDS);
	int high, due;

	if (queue <= near && (over || !d->first)) {
		if (d->phase != PHASE_LAW) {
			d->ended = now;
			d->sure = apart(seen->base, d->base) <= near;
		}
		d->phase = PHASE_LAW;
		d->met = now;
		d->wait = SOONEST;
		d->high = 0;
		d->first = 0;
		return TURN_NOTHING;
	}
	if (d->phase != PHASE_LAW)
		return over ? drains_fail(d, now, queue, seen->range <= near) : TURN_NOTHING;
	if (queue <= times(target, 3) / 2) {
		d->high = 0;
		d->calm = target;
	} else if (!d->high) {
		d->high = 1;
		d->high_since = now;
	}
	high = d->high && less(now, d->high_since) >= seen->smoothed_rtt && less(now, d->met) >= SOONEST &&
	       less(now, d->ended) >= d->wait;
	due = smaller(less(now, d->met), less(now, d->ended)) >= INTERVAL;
	if (!high && !due)
		return TURN_NOTHING;
	d->phase = d->sure && !high && more(queue, target) < seen->base / 2 ? PHASE_SHORT_DRAIN : PHASE_DRAIN;
	d->since = now;
	d->before = queue;
	d->base = seen->base;
	return TURN_BEGAN;
}

#endif
