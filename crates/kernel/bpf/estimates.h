/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Measurements of the law's inputs, as in crates/forward/src/estimates.rs and the files of
 * estimates/, which give the reasons. Times in ns. The whole round trip counts as the forward
 * path's delay, since the kernel provides no arrival times.
 */
#ifndef VERUS_ESTIMATES_H
#define VERUS_ESTIMATES_H

#include "law.h"

/* --- share.rs --- */

#define STEP (250 * MS)

struct share {
	u64 since;
	/* In 2^-30. */
	u32 share;
	u32 part;
	u32 whole;
	u32 closed;
};

static inline u32 cut(u64 value)
{
	return value >> 32 ? ~0u : (u32)value;
}

static inline void share_forget_step(struct share *s)
{
	if (!s->closed)
		return;
	s->part = 0;
	s->whole = 0;
	s->closed = 0;
}

static inline void share_update(struct share *s, u64 now, u64 part, u64 whole, u64 fewest, u32 steps)
{
	u64 step;

	s->part = cut((u64)s->part + cut(part));
	s->whole = cut((u64)s->whole + cut(whole));
	if (less(now, s->since) < STEP || s->whole < fewest)
		return;
	whole = larger(s->whole, 1);
	step = (smaller(s->part, whole) << 30) / whole;
	s->share = cut(s->share + step / steps - s->share / steps);
	s->since = now;
	s->closed = 1;
}

/* In 2^-16. */
static inline u64 share_get(const struct share *s)
{
	return s->share >> 14;
}

static inline int share_exceeds(const struct share *s, u64 n, u64 packet)
{
	return s->part > packet && s->part * n > s->whole;
}

/* --- high.rs --- */

#define HIGH_MEMORY (8000 * MS)
#define HIGH_SHARE 64
#define HIGH_STEP (1 * MS)

struct high {
	u64 delay;
	u64 began;
	u64 sampled;
};

static inline void high_update(struct high *h, u64 now, u64 round_trip, u64 delay)
{
	u64 since = less(now, h->sampled), memory, rise, lasted, change;

	if (since < HIGH_STEP)
		return;
	if (!h->sampled)
		h->began = now;
	h->sampled = now;
	memory = larger(smaller(less(now, h->began), HIGH_MEMORY), HIGH_STEP * HIGH_SHARE);
	rise = memory / HIGH_SHARE;
	lasted = smaller(smaller(since, larger(round_trip, HIGH_STEP)), memory);
	change = times(h->delay, lasted);
	if (delay <= h->delay)
		h->delay -= change / memory;
	else if (lasted < rise)
		h->delay = smaller(delay, larger(h->delay, delay / HIGH_SHARE) + change / rise);
	else
		h->delay = delay;
}

/* --- path.rs --- */

#define THERE_MEMORY (5000 * MS)
#define LONGEST_UNHEARD (200 * MS)
#define BRIEF (20 * MS)
#define BARE_MEMORY (30000 * MS)

/* The least delay before the first sample: more than any delay. */
#define LONGEST_BURST MS
#define NO_SAMPLE 0x7fffffffffffffffull

struct least {
	u64 older;
	u64 newer;
	u64 since;
};

/* A maximum over one to two spans. The core takes the minimum of negated values instead. */
struct most {
	u64 older;
	u64 newer;
	u64 since;
};

struct path_delay {
	struct least there;
	struct least standing;
	struct least brief;
	struct least bare;
	struct most highest;
	/* The same of one or two of TCP's bursts. */
	struct most burst;
	struct high high;
	u64 heard;
	u64 last;
	u64 newest;
	/* The queueing delay of the packet acknowledged last, in us. */
	u32 delay;
	u32 reserved;
};

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

static inline void most_update(struct most *m, u64 now, u64 span, u64 value)
{
	if (less(now, m->since) >= span) {
		m->older = m->newer;
		m->newer = value;
		m->since = now;
	}
	m->newer = larger(m->newer, value);
}

static inline u64 most_get(const struct most *m)
{
	return larger(m->older, m->newer);
}

static inline u64 path_above(const struct path_delay *p, u64 there)
{
	return less(there, least_get(&p->there));
}

static inline void path_on_acked(struct path_delay *p, u64 now, u64 rtt, u64 smoothed_rtt)
{
	p->heard = more(p->heard, smaller(less(now, p->last), LONGEST_UNHEARD));
	p->last = now;
	least_update(&p->there, p->heard, THERE_MEMORY, rtt);
	least_update(&p->standing, now, smoothed_rtt / 4, rtt);
	least_update(&p->brief, now, BRIEF, rtt);
	p->newest = rtt;
	most_update(&p->highest, now, smoothed_rtt / 4, rtt);
	most_update(&p->burst, now, smaller(smoothed_rtt / 4, LONGEST_BURST), rtt);
	least_update(&p->bare, p->heard, BARE_MEMORY, rtt);
	high_update(&p->high, now, smoothed_rtt, less(rtt, least_get(&p->bare)));
	p->delay = cut(path_above(p, rtt) / 1000);
}

static inline u64 path_base(const struct path_delay *p)
{
	return p->there.newer == NO_SAMPLE ? 0 : least_get(&p->there);
}

static inline u64 path_queue(const struct path_delay *p)
{
	return path_above(p, least_get(&p->standing));
}

static inline u64 path_range(const struct path_delay *p)
{
	return less(most_get(&p->highest), least_get(&p->standing));
}

static inline void path_lengthen(struct path_delay *p)
{
	u64 there = least_get(&p->standing);

	p->there.older = there;
	p->there.newer = there;
	p->there.since = p->heard;
}

/* --- rate.rs --- */

#define MARKS 16
#define MARKS_PER_PERIOD 12
#define SILENCE (80 * MS)
#define LONGEST_SILENCE (1000 * MS)
#define GAP_MEMORY 3000000000ull
#define LONGEST_GAP 30000000ull

struct mark {
	/* In 64 ns. */
	u32 at;
	u32 delivered;
};

struct deliveries {
	struct mark marks[MARKS];
	u64 counted;
	u64 delivered;
	u64 last;
	u64 spacing;
	u64 silence;
	/* When the packet delivered last had left. */
	u64 sent;
	/* G, the mean gap between arrivals. */
	u64 gap;
	u32 newest;
	u32 begun;
};

static inline void deliveries_on(struct deliveries *d, u64 at, u64 sent, u64 size)
{
	if (!d->begun) {
		d->begun = 1;
		d->last = at;
		return;
	}
	if (at > d->last) {
		u32 now = d->counted >> 6;
		u64 newest = masked(d->newest, MARKS - 1);
		u64 gap = less(at, d->last);

		if ((u64)(u32)(now - d->marks[newest].at) << 6 >= d->spacing) {
			newest = masked(d->newest + 1, MARKS - 1);
			d->newest = newest;
			d->marks[newest].at = now;
			d->marks[newest].delivered = d->delivered;
		}
		d->counted = more(d->counted, smaller(gap, d->silence));
		gap = smaller(gap, LONGEST_GAP);
		d->gap = d->gap + gap * gap / GAP_MEMORY - d->gap * gap / GAP_MEMORY;
		d->last = at;
	}
	d->sent = sent;
	d->delivered += size;
}

/* Returns 0, and sets no rate, before there is a measurement. */
static inline int deliveries_rate(const struct deliveries *d, u64 period, u64 shortest, u64 *rate)
{
	u32 at = d->counted >> 6, delivered = d->delivered;
	u64 newest = masked(d->newest, MARKS - 1);
	u64 span = (u64)(u32)(at - d->marks[newest].at) << 6;
	u64 bytes = (u32)(delivered - d->marks[newest].delivered);
	u32 back;

	for (back = 1; back < MARKS && span < period; back++) {
		u64 index = masked(d->newest + MARKS - back, MARKS - 1);
		u64 longer = (u64)(u32)(at - d->marks[index].at) << 6;

		if (longer < span)
			break; /* the ring has wrapped */
		span = longer;
		bytes = (u32)(delivered - d->marks[index].delivered);
	}
	if (!span)
		return 0;
	*rate = rate_of(bytes, larger(span, shortest));
	return 1;
}

/* --- trial.rs --- */

#define FREQUENT_LOSS 48
#define TRIAL_MEMORY (2000 * MS)
#define FEWER(loss) ((loss) * 3 / 4)
#define CHANCE_PACKETS 4
#define KEPT(rate) ((rate) / 4 * 3)
#define PATIENCE (3000 * MS)
#define PAUSE (4000 * MS)
#define MOST_DOUBLINGS 5

struct trial {
	/* p before the trial, in 2^-16; 0 outside of one. */
	u64 loss_before;
	/* r before the trial, kbit/s. */
	u64 rate_kbps;
	u64 calm_at;
	u64 next_at;
	/* Bytes lost or marked, with those allowed for chance, and bytes lost or delivered, since a round trip after
	 * the beginning. */
	u64 lost;
	u64 settled;
	u32 open;
	u32 failed;
};

static inline int trial_lowers(const struct trial *t, u64 now, u64 rate, u64 lost)
{
	int due = t->loss_before ? rate / 1000 >= KEPT(t->rate_kbps) : less(now, t->calm_at) > TRIAL_MEMORY;

	return lost * FREQUENT_LOSS > ONE && due && now >= t->next_at;
}

/* Returns whether a trial begins. */
static inline int trial_on_lowered(struct trial *t, u64 now, u64 rate, u64 lost, u64 packet)
{
	t->next_at = now + TRIAL_MEMORY;
	if (t->loss_before)
		return 0;
	t->loss_before = larger(smaller(lost, ONE), 1);
	t->rate_kbps = rate / 1000;
	t->lost = packet * CHANCE_PACKETS;
	t->settled = 0;
	t->open = 1;
	return 1;
}

static inline void trial_count(struct trial *t, u64 now, u64 smoothed_rtt, u64 lost, u64 settled)
{
	if (t->open && now + TRIAL_MEMORY > t->next_at + smoothed_rtt) {
		t->lost = smaller(t->lost + lost, ~0u);
		t->settled = smaller(t->settled + settled, ~0u);
	}
}

static inline void trial_end(struct trial *t)
{
	t->loss_before = 0;
	t->open = 0;
}

static inline int trial_fail(struct trial *t, u64 now)
{
	trial_end(t);
	t->next_at = now + (PAUSE << (t->failed & 7));
	t->failed = smaller(t->failed + 1, MOST_DOUBLINGS);
	return 1;
}

/* Whether the losses are random, which ends the trial. Then sets r before it, unless that was long ago. */
static inline int trial_judge(struct trial *t, u64 now, u64 lost, u64 *before)
{
	u64 fewer = FEWER(t->loss_before);

	if (lost * FREQUENT_LOSS <= ONE || lost < fewer)
		t->calm_at = now;
	if (!t->loss_before)
		return 0;
	if (t->open) {
		if (now < t->next_at)
			return 0;
		t->open = 0;
		if (t->lost * ONE >= t->settled * fewer) {
			*before = t->rate_kbps * 1000;
			return trial_fail(t, now);
		}
		t->calm_at = now;
		t->failed = 0;
	} else if (less(now, t->calm_at) > PATIENCE) {
		return trial_fail(t, now);
	}
	return 0;
}

/* --- room.rs --- */

#define GROWTH (16000 * MS)
#define SHORTEST_BUFFER 4
#define OTHERS_QUEUE 4
#define SLOWEST_TRIED (20 * MS)
#define TRIED_GROWTH (8000 * MS)
#define TRIED_LOSS 128

struct room {
	/* c, in 2^-32. */
	u64 share;
	u64 cut_at;
	u64 partial_at;
	/* c before it was last halved; 0 if that cannot be undone. */
	u64 share_before;
	struct trial trial;
};

/* The queue, the path and the flow at a loss. */
struct loss {
	u64 delay;
	/* The delay that the lost packet met. */
	u64 at_loss;
	u64 full;
	u64 packet_time;
	u64 target;
	u64 steady;
	u64 rate;
	u64 smoothed_rtt;
	/* p, in 2^-16. */
	u64 lost;
	u64 packet;
	int rate_varies;
};

/* c, in 2^-16. */
static inline u64 room_get(const struct room *r)
{
	return r->share >> 16;
}

static inline int room_is_bounded(const struct room *r)
{
	return room_get(r) < UNBOUNDED;
}

static inline void room_cut_to(struct room *r, u64 now, u64 share)
{
	r->share_before = r->share;
	r->share = smaller(share, UNBOUNDED) << 16;
	r->cut_at = now;
}

static inline void room_end_where_unbounded(struct room *r)
{
	if (!room_is_bounded(r))
		trial_end(&r->trial);
}

/* Returns whether a trial begins, which holds r. */
static inline int room_on_loss(struct room *r, u64 now, const struct loss *loss)
{
	int formed = loss->full >= times(loss->packet_time, SHORTEST_BUFFER);
	int full = formed && times(more(loss->at_loss, loss->packet_time), 8) >= times(loss->full, 7);
	u64 steady = larger(loss->steady / 1000, 1);
	u64 half = loss->target / 1000 * ONE / steady / 2;
	int others = formed && (loss->rate_varies || loss->full > times(loss->target, OTHERS_QUEUE));
	int begins = 0;

	if (!full)
		r->partial_at = now;
	if (times(less(loss->delay, loss->packet_time), 8) >= times(loss->target, 9))
		return 0;
	if (full) {
		if (less(now, r->partial_at) > times(loss->smoothed_rtt, 2)) {
			room_cut_to(r, now, half);
			trial_end(&r->trial);
		}
	} else if (!others && loss->packet_time < SLOWEST_TRIED && trial_lowers(&r->trial, now, loss->rate, loss->lost)) {
		begins = trial_on_lowered(&r->trial, now, loss->rate, loss->lost, loss->packet);
		room_cut_to(r, now, begins ? half / 2 : half);
	}
	return begins;
}

/* The packets whose loss halved c arrived after all. */
static inline void room_undo(struct room *r)
{
	r->share = larger(r->share, r->share_before);
	room_end_where_unbounded(r);
	r->share_before = 0;
}

/* Judges a trial, and returns r before it if the losses are random, or 0. */
static inline u64 room_judge(struct room *r, u64 now, u64 lost)
{
	u64 before = 0;

	if (trial_judge(&r->trial, now, lost, &before))
		r->share = UNBOUNDED << 16;
	return before;
}

/* Keeps c · s · r in a trial, where s · r changes, µs kbit/s. */
static inline void room_on_rate(struct room *r, u64 before, u64 now)
{
	u64 ratio;

	if (!r->trial.loss_before)
		return;
	ratio = ((smaller(before, 1ull << 43) << 20) + now / 2) / larger(now, 1);
	r->share = smaller(r->share, 1ull << 39) * smaller(ratio, 1 << 24) >> 20;
}

static inline void room_grow(struct room *r, u64 elapsed, u64 steady, u64 longest, u64 lost)
{
	if (!room_is_bounded(r))
		return;
	elapsed = smaller(elapsed, GROWTH);
	if (!r->trial.loss_before)
		r->share += elapsed * ONE / (GROWTH >> 16);
	else if (lost * TRIED_LOSS <= ONE)
		r->share += room_get(r) * elapsed / (TRIED_GROWTH >> 16);
	r->share = smaller(r->share, UNBOUNDED << 16);
	if (room_get(r) * (steady / 1000) / ONE > longest / 1000)
		r->share = UNBOUNDED << 16;
	room_end_where_unbounded(r);
}

/* --- estimates.rs --- */

#define LONGEST_PERIOD (400 * MS)
#define FEWEST_PACKETS 8
#define STEP_PACKETS 16
#define LOST_STEPS 8
#define CHANNEL_STEPS 64
#define NEW_EMPTY (ONE / 20)
#define NEW_ROUNDS 64
#define EMPTY_PART 13
#define EMPTY (2 * MS)
#define REFILL_PART 4
#define VARYING_LEAST 16
#define VARYING_MOST 2
#define REFILL_LOSS 32
#define DRAINED (500 * MS)
#define LONGEST_LOOK (200 * MS)
#define UNMEASURED (80 * MS)

struct estimates {
	/* r, D, Q and q. */
	u64 rate;
	u64 base;
	u64 queue;
	u64 target;
	/* The r, shares and c from which q was last computed. */
	u64 target_rate;
	u64 target_shares;
	u64 target_room;
	/* s at the rate r. */
	u64 steady;
	u64 budget;
	u64 smoothed_rtt;
	u64 looked;
	u64 drained;
	/* When a drain last showed that the path had become longer before it. */
	u64 lengthened;
	u64 dry;
	struct share lost;
	struct share late;
	struct share empty;
	struct room room;
	struct path_delay path;
	struct deliveries deliveries;
};

/* The contents of an acknowledgement. */
struct heard {
	u64 now;
	/*
	 * When the newest packet that it acknowledges had left, and the round trip of that packet.
	 */
	u64 sent;
	u64 rtt;
	/* Bytes newly acknowledged, and newly declared lost. */
	u64 acked;
	u64 lost;
	/* Packets with a congestion mark. */
	u64 marked;
	u64 smoothed_rtt;
	/* Bytes in flight before the acknowledgement. */
	u64 in_flight;
	/* Whether the newest packet left when the source had run dry. */
	u64 app_limited;
	/* When the newest of the packets declared lost had left. */
	u64 lost_sent;
};

/* Sets r and s. */
/* s · r, in µs kbit/s. */
static inline u64 estimates_steady_data(const struct estimates *e)
{
	return e->steady / 1000 * (e->rate / 1000);
}

static inline void estimates_set_rate(struct estimates *e, u64 rate)
{
	u64 before = estimates_steady_data(e);

	e->rate = rate;
	e->steady = law_steady(e->budget / 1000, rate) * 1000;
	room_on_rate(&e->room, before, estimates_steady_data(e));
}

/* The time by which a window may leave sooner than at rate r. */
static inline u64 estimates_lead(const struct estimates *e)
{
	return room_is_bounded(&e->room) ? e->target : e->budget;
}

static inline void estimates_new(struct estimates *e, u64 budget)
{
	e->budget = budget;
	e->path.there.older = e->path.there.newer = NO_SAMPLE;
	e->path.standing.older = e->path.standing.newer = NO_SAMPLE;
	e->path.brief.older = e->path.brief.newer = NO_SAMPLE;
	e->path.bare.older = e->path.bare.newer = NO_SAMPLE;
	e->deliveries.silence = SILENCE;
	e->room.share = UNBOUNDED << 16;
	e->target_room = UNBOUNDED;
	estimates_set_rate(e, 0);
}

/* Whether the flow has measured too little of the channel to know e. */
static inline int estimates_is_new(const struct estimates *e)
{
	return e->path.heard < times(e->base, NEW_ROUNDS);
}

static inline u64 estimates_horizon(const struct estimates *e)
{
	return law_horizon(e->deliveries.gap / 1000, UNMEASURED / 1000) * 1000;
}

static inline void estimates_on_heard(struct estimates *e, const struct heard *h, u64 packet, int settled)
{
	u64 late = 0;

	if (h->acked) {
		path_on_acked(&e->path, h->now, h->rtt, h->smoothed_rtt);
		deliveries_on(&e->deliveries, h->now, h->sent, h->acked);
		if (e->path.delay * 1000ull > e->budget)
			late = h->acked;
	}
	share_forget_step(&e->lost);
	share_update(&e->lost, h->now, h->lost + h->marked * packet, h->acked + h->lost, packet * STEP_PACKETS,
		     LOST_STEPS);
	if (settled)
		trial_count(&e->room.trial, h->now, h->smoothed_rtt, h->lost + h->marked * packet,
			    h->acked + h->lost);
	if (settled && h->lost && h->lost_sent > e->room.cut_at) {
		u64 bare = least_get(&e->path.bare), empty = share_get(&e->empty);
		struct loss loss = {
			.delay = less(e->path.newest, bare),
			.at_loss = less(most_get(&e->path.burst), bare),
			.full = e->path.high.delay,
			.packet_time = time_for(e->rate, packet),
			/* A new flow's longer target overflows buffers that s does not. */
			.target = estimates_is_new(e) ? smaller(e->target, e->steady) : e->target,
			.steady = e->steady,
			.rate = e->rate,
			.smoothed_rtt = h->smoothed_rtt,
			.lost = share_get(&e->lost),
			.packet = packet,
			.rate_varies = !room_is_bounded(&e->room) && empty > ONE / VARYING_LEAST &&
				       empty <= ONE / VARYING_MOST,
		};

		if (room_on_loss(&e->room, h->now, &loss))
			estimates_set_rate(e, e->rate / 8 * 7);
	}
	if (settled) {
		share_forget_step(&e->late);
		share_update(&e->late, h->now, late, h->acked, packet * STEP_PACKETS, CHANNEL_STEPS);
	}
	e->smoothed_rtt = h->smoothed_rtt;
	if (h->acked)
		e->dry = h->app_limited;
}

static inline u64 estimates_period(const struct estimates *e, u64 packet)
{
	u64 rounds = larger(times(more(e->base, e->target), 2), e->smoothed_rtt);

	rounds = smaller(rounds, larger(LONGEST_PERIOD, times(e->base, 2)));
	return larger(rounds, smaller(time_for(e->rate, packet * FEWEST_PACKETS), 1000 * MS));
}

static inline void estimates_update_target(struct estimates *e)
{
	u64 lost = share_get(&e->lost), empty = share_get(&e->empty), late = share_get(&e->late);
	u64 room = room_get(&e->room), shares;
	struct channel channel = {
		.rate = e->rate,
		.budget = e->budget / 1000,
		/* Losses of a trial do not lower its own target. */
		.lost = e->room.trial.loss_before ? 0 : lost,
		.late = late,
		.room = room,
	};

	if (estimates_is_new(e))
		empty = larger(empty, NEW_EMPTY);
	channel.empty = empty;
	shares = lost | empty << 20 | late << 40;
	if (e->target_rate && shares == e->target_shares &&
	    apart(room, e->target_room) <= e->target_room / 64 && apart(e->rate, e->target_rate) <= e->target_rate / 64)
		return;
	e->target_rate = e->rate;
	e->target_shares = shares;
	e->target_room = room;
	e->target = law_target(&channel) * 1000;
}

static inline void estimates_refresh(struct estimates *e, u64 now, u64 packet, int steady)
{
	u64 elapsed = less(now, e->looked), since_drained, period, before, rate = 0;

	e->base = path_base(&e->path);
	e->queue = path_queue(&e->path);
	since_drained = e->drained ? less(now, e->drained) : ~0ull;
	period = estimates_period(e, packet);
	if (deliveries_rate(&e->deliveries, period, more(e->base, e->target), &rate)) {
		int drained = since_drained <= more(period, times(e->smoothed_rtt, 2));
		u64 refill = less(e->base / REFILL_PART, e->budget / 2);
		int lengthened = e->lengthened && less(now, e->lengthened) < more(times(e->smoothed_rtt, 2), e->base);
		int lowers = !(e->dry || drained) || e->queue > larger(e->target, refill) ||
			     share_exceeds(&e->lost, REFILL_LOSS, packet);

		if (e->room.trial.open ? e->queue > e->steady : rate > e->rate || (lowers && !lengthened))
			estimates_set_rate(e, rate);
	}
	share_forget_step(&e->empty);
	if (steady && !e->dry && since_drained > DRAINED && !room_is_bounded(&e->room)) {
		u64 look = smaller(elapsed, LONGEST_LOOK);
		u64 brief = path_above(&e->path, least_get(&e->path.brief));
		u64 empty = brief <= smaller(EMPTY, e->steady / EMPTY_PART) ? look : 0;

		share_update(&e->empty, now, empty, look, 1, CHANNEL_STEPS);
	}
	e->looked = now;
	before = room_judge(&e->room, now, share_get(&e->lost));
	if (before > e->rate)
		estimates_set_rate(e, before);
	room_grow(&e->room, elapsed, e->steady, e->budget, share_get(&e->lost));
	estimates_update_target(e);
	e->deliveries.spacing = estimates_period(e, packet) / MARKS_PER_PERIOD;
	e->deliveries.silence = larger(SILENCE, smaller(times(time_for(e->rate, packet), 2), LONGEST_SILENCE));
}

static inline void estimates_lengthen(struct estimates *e, u64 rate, int holds_rate)
{
	if (holds_rate)
		e->lengthened = e->looked;
	path_lengthen(&e->path);
	e->base = path_base(&e->path);
	e->queue = path_queue(&e->path);
	estimates_set_rate(e, larger(e->rate, rate));
	estimates_update_target(e);
}

#endif
