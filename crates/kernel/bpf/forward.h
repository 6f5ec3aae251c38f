/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The law of `forward`, as crates/core/src/forward.rs and its parts have it: the same integers, in the same order, so that
 * both give the same numbers to the last unit (crates/kernel/tests). The reasons are told there, and only there.
 *
 * For the kernel and for a test that runs natively: no floating point, no 128-bit types, no signed division, no pointer but
 * to its own state, every loop bounded. Times in ns, sizes in bytes (IP), rates in bit/s.
 *
 * What the core has and this has not: arrival times by the receiver's clock; the parts that can be left out for research;
 * the credit that spreads departures, since the kernel paces by itself.
 */
#ifndef VERUS_FORWARD_H
#define VERUS_FORWARD_H

#include "integer.h"

#define REFERENCE 10000000ull
#define LOSS_PRICE 150
#define DAMPING 5
#define DRAIN_PERCENT 15
#define HORIZON (80 * MS)
#define LONGEST_PERIOD (400 * MS)
#define FEWEST_PACKETS 8
#define INITIAL_PACKETS 10
#define SMALL_PACKETS 4
#define PROBE_PACKETS 2
#define QUEUED_SAMPLES 3
#define OVERFLOW 32
#define LEAST_SHARE 8
#define DRAINED_SHARE 2
#define TICK (1 * MS)

/* loss.rs */

#define STEP (250 * MS)
#define STEP_PACKETS 16

struct loss_share {
	u64 lost;
	u64 settled;
	u64 since;
	/* In 2^-30. */
	s32 share;
	u32 closed;
};

/* path.rs: the whole round trip is the way there, as the kernel hands over no arrival times. */

#define THERE_MEMORY (5000 * MS)
#define LONGEST_GAP (200 * MS)

/* More than any delay: no sample yet. */
#define NO_SAMPLE 0x7fffffffffffffffull

struct least {
	u64 older;
	u64 newer;
	u64 since;
};

struct path_delay {
	struct least there;
	struct least standing;
	u64 heard;
	u64 last;
};

/* rate.rs */

#define MARKS 16
#define MARKS_PER_PERIOD 12

struct mark {
	u64 at;
	u64 delivered;
};

struct deliveries {
	struct mark marks[MARKS];
	struct mark now;
	u64 newest;
	u64 last;
	u64 spacing;
	u64 silence;
	u64 pause;
	u64 sent;
	u32 begun;
	u32 reserved;
};

/* drain.rs */

#define INTERVAL (4000 * MS)
#define SOONEST (500 * MS)
#define ROUNDS 2
#define UNMOVED 32

enum drain_phase { DRAIN_LAW, DRAIN_FULL, DRAIN_PAUSE, DRAIN_LOOK };
enum drain_turn { TURN_NOTHING, TURN_BEGAN, TURN_UNMOVED };

struct drains {
	u64 met;
	u64 high_since;
	u64 ended;
	u64 wait;
	u64 before;
	u64 base;
	/* Of a full drain since when, of a pause and a look until when. */
	u64 at;
	u8 phase;
	u8 high;
	u8 first;
	u8 sure;
	u32 reserved;
};

/* forward.rs */

struct forward {
	/* What users and tests look at stands first. */
	u64 window;
	/* What departures are spread at; at least 1 bit/s. */
	u64 pace;
	/* r. */
	u64 rate;
	/* D. */
	u64 base;
	/* Q. */
	u64 queue;
	/* q(r). */
	u64 target;
	u64 packet;
	u64 queue_asked;
	u64 root;
	u64 root_of;
	u64 smoothed_rtt;
	/* Slow start's window; in use while `is_starting`. */
	u64 starting;
	u64 updated;
	u64 packet_time;
	u64 rate_before;
	u64 drained;
	u64 now;
	u32 queued_samples;
	u8 is_starting;
	u8 silent;
	u8 dry;
	u8 reserved;
	struct path_delay path;
	struct loss_share losses;
	struct drains drains;
	struct deliveries deliveries;
};

/* What an acknowledgement revealed. */
struct heard {
	u64 now;
	/* When the newest packet that it acknowledges had left, and how long that took. */
	u64 sent;
	u64 rtt;
	u64 acked;
	u64 lost;
	u64 smoothed_rtt;
	/* Before it. */
	u64 in_flight;
	/* That packet left when the source had run dry. */
	u64 app_limited;
};

/* --- loss.rs --- */

static inline void losses_update(struct loss_share *l, u64 now, u64 packet, u64 acked, u64 lost)
{
	u64 step;
	s32 apart;

	if (l->closed) {
		l->lost = 0;
		l->settled = 0;
		l->closed = 0;
	}
	l->lost += lost;
	l->settled += acked + lost;
	if (less(now, l->since) < STEP || l->settled < STEP_PACKETS * packet)
		return;
	step = mul_div(l->lost, 1ull << 30, larger(l->settled, 1));
	apart = (s32)smaller(step, 1ull << 30) - l->share;
	/* An eighth, rounded towards zero; BPF has no signed division. */
	l->share += apart < 0 ? -(-apart >> 3) : apart >> 3;
	l->since = now;
	l->closed = 1;
}

/* In 2^-16. */
static inline u64 losses_share(const struct loss_share *l)
{
	return l->share > 0 ? (u64)l->share >> 14 : 0;
}

static inline int losses_exceed(const struct loss_share *l, u64 n, u64 packet)
{
	return l->lost > packet && l->lost * n > l->settled;
}

/* --- path.rs --- */

static inline void least_update(struct least *l, u64 now, u64 span, u64 value)
{
	if (less(now, l->since) >= span) {
		l->older = l->newer;
		l->newer = value;
		l->since = now;
	}
	l->newer = smaller(l->newer, value);
}

static inline u64 least_get(const struct least *l)
{
	return smaller(l->older, l->newer);
}

static inline void path_on_acked(struct path_delay *p, u64 now, u64 rtt, u64 smoothed_rtt)
{
	p->heard += smaller(less(now, p->last), LONGEST_GAP);
	p->last = now;
	least_update(&p->there, p->heard, THERE_MEMORY, rtt);
	least_update(&p->standing, now, smoothed_rtt / 4, rtt);
}

static inline u64 path_base(const struct path_delay *p)
{
	return p->there.newer == NO_SAMPLE ? 0 : least_get(&p->there);
}

static inline u64 path_queue(const struct path_delay *p)
{
	return less(least_get(&p->standing), least_get(&p->there));
}

static inline void path_lengthen(struct path_delay *p)
{
	u64 there = least_get(&p->standing);

	p->there.older = there;
	p->there.newer = there;
	p->there.since = p->heard;
}

/* --- rate.rs --- */

static inline void deliveries_on(struct deliveries *d, u64 at, u64 sent, u64 size)
{
	if (!d->begun) {
		d->begun = 1;
		d->last = at;
		return;
	}
	if (at > d->last) {
		u64 most = d->silence;
		u64 newest = masked(d->newest, MARKS - 1);

		if (less(d->now.at, d->marks[newest].at) >= d->spacing) {
			newest = masked(d->newest + 1, MARKS - 1);
			d->newest = newest;
			d->marks[newest] = d->now;
		}
		if (less(sent, d->sent) > d->pause)
			most = smaller(most, d->pause);
		d->now.at = more(d->now.at, smaller(less(at, d->last), most));
		d->last = at;
	}
	d->sent = sent;
	d->now.delivered += size;
}

/* 0 where nothing has been measured yet. */
static inline u64 deliveries_rate(const struct deliveries *d, u64 period, u64 shortest, u64 *rate)
{
	u64 newest = masked(d->newest, MARKS - 1);
	u64 from_at = d->marks[newest].at;
	u64 from_delivered = d->marks[newest].delivered;
	u64 span;
	u32 back;

	for (back = 1; back < MARKS; back++) {
		u64 index;

		if (less(d->now.at, from_at) >= period)
			break;
		index = masked(d->newest + MARKS - back, MARKS - 1);
		if (d->marks[index].at > from_at)
			break; /* the ring has gone round */
		from_at = d->marks[index].at;
		from_delivered = d->marks[index].delivered;
	}
	span = less(d->now.at, from_at);
	if (!span)
		return 0;
	*rate = rate_of(d->now.delivered - from_delivered, larger(span, shortest));
	return 1;
}

/* --- drain.rs --- */

static inline void drains_new(struct drains *d, u64 now)
{
	d->met = now;
	d->high_since = 0;
	d->high = 0;
	d->phase = DRAIN_LAW;
	d->at = 0;
	d->first = 0;
	d->sure = 0;
	d->ended = now;
	d->wait = SOONEST;
	d->before = 0;
	d->base = 0;
}

static inline void drains_pass(struct drains *d, u64 now, u64 smoothed_rtt)
{
	if (d->phase == DRAIN_PAUSE && now >= d->at) {
		d->phase = DRAIN_LOOK;
		d->at = more(now, smoothed_rtt);
	}
}

static inline int drains_fail(struct drains *d, u64 now, u64 queue)
{
	int unmoved;

	d->ended = now;
	d->high = 0;
	d->sure = 0;
	d->wait = smaller(times(d->wait, 2), INTERVAL);
	if (d->phase == DRAIN_LOOK) {
		d->phase = DRAIN_FULL;
		d->at = now;
		return TURN_NOTHING;
	}
	unmoved = !d->first && times(apart(queue, d->before), UNMOVED) <= d->before;
	d->phase = DRAIN_LAW;
	d->first = 0;
	return unmoved ? TURN_UNMOVED : TURN_NOTHING;
}

static inline int drains_update(struct drains *d, u64 now, u64 queue, u64 target, u64 base, u64 smoothed_rtt)
{
	u64 near = more(target / 7, 1 * MS);
	int over = 0, high, due;

	drains_pass(d, now, smoothed_rtt);
	if (d->phase == DRAIN_FULL)
		over = less(now, d->at) >= times(smoothed_rtt, ROUNDS);
	else if (d->phase == DRAIN_LOOK)
		over = now >= d->at;
	if (queue <= near && (over || !d->first)) {
		if (d->phase != DRAIN_LAW) {
			d->ended = now;
			d->sure = apart(base, d->base) <= near;
		}
		d->phase = DRAIN_LAW;
		d->met = now;
		d->wait = SOONEST;
		d->high = 0;
		d->first = 0;
		return TURN_NOTHING;
	}
	if (d->phase != DRAIN_LAW)
		return over ? drains_fail(d, now, queue) : TURN_NOTHING;
	if (queue <= times(target, 3) / 2) {
		d->high = 0;
	} else if (!d->high) {
		d->high = 1;
		d->high_since = now;
	}
	high = d->high && less(now, d->high_since) >= smoothed_rtt && less(now, d->met) >= SOONEST &&
	       less(now, d->ended) >= d->wait;
	due = smaller(less(now, d->met), less(now, d->ended)) >= INTERVAL;
	if (!high && !due)
		return TURN_NOTHING;
	if (d->sure && !high && more(queue, target) < base / 2) {
		d->phase = DRAIN_PAUSE;
		d->at = more(more(now, queue), target);
	} else {
		d->phase = DRAIN_FULL;
		d->at = now;
	}
	d->before = queue;
	d->base = base;
	return TURN_BEGAN;
}

/* --- forward.rs --- */

/* The target q(r), the price of loss paid. */
static inline u64 target_of(struct forward *f)
{
	u64 nanos;

	if (apart(f->rate, f->root_of) > f->root_of / 64) {
		f->root = cube_root((REFERENCE << 39) / larger(f->rate, 1));
		f->root_of = f->rate;
	}
	nanos = ((f->queue_asked >> 8) * f->root) >> 5;
	return (nanos << 16) / ((1 << 16) + LOSS_PRICE * losses_share(&f->losses));
}

/* T: what r is measured over. */
static inline u64 period_of(const struct forward *f)
{
	u64 rounds = larger(times(more(f->base, f->target), 2), f->smoothed_rtt);

	rounds = smaller(rounds, larger(LONGEST_PERIOD, times(f->base, 2)));
	return larger(rounds, smaller(times(f->packet_time, FEWEST_PACKETS), 1000 * MS));
}

static inline int is_small(const struct forward *f)
{
	return f->window < f->packet * SMALL_PACKETS;
}

static inline u64 pace_of(const struct forward *f)
{
	u64 span;

	if (f->drains.phase == DRAIN_LOOK && !f->silent)
		return larger(f->rate, 1);
	if (is_small(f))
		span = more(f->base, f->queue);
	else
		span = larger(more(f->base, f->target) / 2, times(f->base, 3) / 4);
	return larger(rate_of(f->window, larger(span, 1000)), 1);
}

static inline u64 law_of(const struct forward *f)
{
	u64 span = more(more(f->base, f->target), f->target / DAMPING);

	span = less(span, f->queue / DAMPING);
	return bytes_in(f->rate, larger(span, f->base / 2));
}

static inline void set_window(struct forward *f)
{
	int draining = f->drains.phase != DRAIN_LAW;
	u64 window;

	if (f->silent)
		window = f->packet * PROBE_PACKETS;
	else if (f->is_starting)
		window = f->starting;
	else if (draining)
		window = bytes_in(f->rate, times(f->base, f->drains.phase == DRAIN_LOOK ? 100 : DRAIN_PERCENT) / 100);
	else
		window = law_of(f);
	f->window = larger(window, f->packet / (draining ? DRAINED_SHARE : LEAST_SHARE));
	f->pace = pace_of(f);
	f->packet_time = time_for(f->rate, f->packet);
}

/* Takes D, Q, r and q from what was measured. */
static inline void estimate(struct forward *f)
{
	u64 period, rate = 0;

	f->base = path_base(&f->path);
	f->queue = path_queue(&f->path);
	period = period_of(f);
	if (deliveries_rate(&f->deliveries, period, more(f->base, f->target), &rate)) {
		int drained = f->drained > 0 &&
			      less(f->now, f->drained) <= more(period, times(f->smoothed_rtt, 2));

		if (rate > f->rate || !(f->dry || drained) || f->queue > f->target)
			f->rate = rate;
	}
	f->target = target_of(f);
	f->deliveries.spacing = period_of(f) / MARKS_PER_PERIOD;
	f->deliveries.silence = HORIZON;
	f->deliveries.pause = more(f->base, f->target) / 2;
}

/* Ends slow start, begins and ends drains. */
static inline void change_phase(struct forward *f)
{
	if (!f->is_starting) {
		int turn = drains_update(&f->drains, f->now, f->queue, f->target, f->base, f->smoothed_rtt);

		if (turn == TURN_BEGAN) {
			f->rate_before = f->rate;
		} else if (turn == TURN_UNMOVED) {
			path_lengthen(&f->path);
			f->base = path_base(&f->path);
			f->queue = path_queue(&f->path);
			f->rate = larger(f->rate, f->rate_before);
			f->target = target_of(f);
		}
	} else {
		f->queued_samples = f->queue > f->target / 2 ? f->queued_samples + 1 : 0;
		if (f->queued_samples >= QUEUED_SAMPLES || losses_exceed(&f->losses, OVERFLOW, f->packet)) {
			f->is_starting = 0;
			drains_new(&f->drains, f->now);
			f->drains.phase = DRAIN_FULL;
			f->drains.at = f->now;
			f->drains.first = 1;
			f->rate_before = f->rate;
		}
	}
	if (f->drains.phase != DRAIN_LAW)
		f->drained = f->now;
}

/* A flow begins, of packets of `packet` bytes; `queue_asked` is the target at 10 Mbit/s. `f` is zero but for these. */
static inline void forward_start(struct forward *f, u64 now, u64 packet, u64 queue_asked)
{
	f->packet = larger(packet, 1);
	f->queue_asked = queue_asked;
	f->root = cube_root(REFERENCE << 39);
	f->now = now;
	f->path.there.older = f->path.there.newer = NO_SAMPLE;
	f->path.standing.older = f->path.standing.newer = NO_SAMPLE;
	f->deliveries.silence = ~0ull;
	f->deliveries.pause = ~0ull;
	drains_new(&f->drains, now);
	f->is_starting = 1;
	f->starting = f->packet * INITIAL_PACKETS;
	set_window(f);
}

static inline void forward_on_heard(struct forward *f, const struct heard *e)
{
	int answered;

	f->now = larger(f->now, e->now);
	if (e->acked) {
		path_on_acked(&f->path, e->now, e->rtt, e->smoothed_rtt);
		deliveries_on(&f->deliveries, e->now, e->sent, e->acked);
	}
	losses_update(&f->losses, e->now, f->packet, e->acked, e->lost);
	f->smoothed_rtt = e->smoothed_rtt;
	if (f->is_starting && times(e->in_flight, 2) >= f->starting)
		f->starting += e->acked;
	if (!e->acked)
		return;
	f->dry = e->app_limited != 0;
	answered = f->silent;
	f->silent = 0;
	if (answered || less(f->now, f->updated) >= smaller(TICK, f->smoothed_rtt / 2)) {
		f->updated = f->now;
		estimate(f);
		change_phase(f);
		set_window(f);
	}
}

/* Silence outlasted the retransmission timeout. */
static inline void forward_on_timeout(struct forward *f, u64 now)
{
	f->now = larger(f->now, now);
	f->silent = 1;
	if (f->is_starting)
		f->starting = f->packet * INITIAL_PACKETS;
	set_window(f);
}

static inline void forward_on_packet_size(struct forward *f, u64 packet)
{
	f->packet = larger(packet, 1);
	set_window(f);
}

/* How much may be in flight: the window to the nearest packet; of a small one, which pacing enforces, a packet more. */
static inline u64 forward_allowed(const struct forward *f)
{
	return more(f->window, is_small(f) ? f->packet : f->packet / 2);
}

#endif
