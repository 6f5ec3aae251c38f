/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The drains of a flow, as in crates/forward/src/drain.rs, which gives the reasons. Times in
 * ns.
 */
#ifndef VERUS_DRAINS_H
#define VERUS_DRAINS_H

#include "law.h"

#define INTERVAL (4000 * MS)
#define SOONEST (500 * MS)
#define ROUNDS 2
#define SHOWN_PART 4
#define JITTER_PART 26
#define UNMOVED 32
#define LONGER 2

struct drains {
	u64 met;
	u64 high_since;
	u64 ended;
	u64 wait;
	u64 before;
	u64 base;
	/* When the drain began. */
	u64 since;
	/* The feedback time when the path was last empty, or a drain last ended. */
	u64 quiet_since;
	/* enum law_phase. */
	u8 phase;
	u8 high;
	u8 first;
	u8 sure;
	u8 stands;
	u8 reserved[3];
};

/* An observation of the queue, its target and the path. */
struct seen {
	u64 queue;
	u64 target;
	u64 base;
	u64 smoothed_rtt;
	u64 steady;
	u64 range;
	/* q of one to two round trips ago, before the queue was long. */
	u64 calm_target;
	u64 feedback_time;
	int link_is_steady;
};

static inline void drains_new(struct drains *d, u64 now, u64 feedback_time)
{
	d->met = now;
	d->high_since = 0;
	d->ended = now;
	d->wait = SOONEST;
	d->before = 0;
	d->base = 0;
	d->since = 0;
	d->quiet_since = feedback_time;
	d->phase = PHASE_LAW;
	d->high = 0;
	d->first = 0;
	d->sure = 0;
	d->stands = 0;
}

/* When a path became longer, by the drain that shows it. */
enum lengthened {
	NOT_LENGTHENED,
	LENGTHENED_BEFORE,
	LENGTHENED_DURING,
};

/* Whether the drain removed only what the flow may have had in the queue. */
static inline int drains_removed_own(const struct drains *d, u64 queue, u64 calm_target)
{
	return queue > times(calm_target, LONGER) && less(d->before, queue) <= times(calm_target, 3) / 2;
}

static inline int drains_fail(struct drains *d, u64 now, u64 queue, u64 calm_target, int constant)
{
	int unmoved, grown, remains, first = d->first;

	d->ended = now;
	d->high = 0;
	d->sure = 0;
	d->stands = 0;
	if (queue <= d->before)
		d->wait = smaller(times(d->wait, 2), INTERVAL);
	if (d->phase == PHASE_SHORT_DRAIN) {
		d->phase = PHASE_DRAIN;
		d->since = now;
		return NOT_LENGTHENED;
	}
	unmoved = times(apart(queue, d->before), UNMOVED) <= d->before;
	grown = constant && queue > d->before;
	remains = constant && drains_removed_own(d, queue, calm_target);
	d->phase = PHASE_LAW;
	d->first = 0;
	if (first || !(unmoved || grown || remains))
		return NOT_LENGTHENED;
	return grown ? LENGTHENED_DURING : LENGTHENED_BEFORE;
}

/* Begins or ends a drain. Returns an enum lengthened. */
static inline int drains_update(struct drains *d, u64 now, const struct seen *seen)
{
	u64 queue = seen->queue, target = seen->target;
	u64 near = target / 7 + smaller(seen->steady / JITTER_PART, target / 7);
	u64 drained = d->phase == PHASE_LAW ? 0 : less(now, d->since), round = seen->smoothed_rtt;
	int shown = !d->first && drained >= round + round / SHOWN_PART && seen->range <= near &&
		    drains_removed_own(d, queue, seen->calm_target);
	int over = d->phase != PHASE_LAW && (shown || drained >= times(round, ROUNDS));
	int high, due;

	if (queue <= near && (over || !d->first)) {
		if (d->phase != PHASE_LAW) {
			d->ended = now;
			d->sure = apart(seen->base, d->base) <= near;
		}
		d->phase = PHASE_LAW;
		d->met = now;
		d->quiet_since = seen->feedback_time;
		d->wait = SOONEST;
		d->high = 0;
		d->first = 0;
		d->stands = 0;
		return NOT_LENGTHENED;
	}
	if (d->phase != PHASE_LAW) {
		if (!over)
			return NOT_LENGTHENED;
		d->quiet_since = seen->feedback_time;
		return drains_fail(d, now, queue, seen->calm_target, seen->range <= times(queue, 2) / 3);
	}
	d->stands = seen->link_is_steady && seen->calm_target > 0 && queue > more(seen->calm_target, near) &&
		    (seen->range <= near || d->stands);
	if (queue <= times(target, 3) / 2 && !d->stands) {
		d->high = 0;
	} else if (!d->high) {
		d->high = 1;
		d->high_since = now;
	}
	high = d->high && less(now, d->high_since) >= seen->smoothed_rtt && less(now, d->met) >= SOONEST &&
	       less(now, d->ended) >= d->wait;
	due = less(seen->feedback_time, d->quiet_since) >= INTERVAL;
	if (!high && !due)
		return NOT_LENGTHENED;
	d->phase = d->sure && !high && more(queue, target) < seen->base / 2 ? PHASE_SHORT_DRAIN : PHASE_DRAIN;
	d->since = now;
	d->before = queue;
	d->base = seen->base;
	return NOT_LENGTHENED;
}

#endif
