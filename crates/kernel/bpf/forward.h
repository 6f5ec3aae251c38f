/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The `forward` of a flow, as in crates/forward/src/forward.rs, which gives the reasons. Both compute
 * with the same integers in the same order, so their results agree to the last unit
 * (crates/kernel/tests).
 *
 * For the kernel, and for a test that runs natively: no floating point, no 128-bit types, no signed
 * division, no pointer except to its own state, every loop bounded. Times in ns, sizes in bytes
 * (IP), rates in bit/s.
 *
 * Features of the core that are missing here: arrival times by the receiver's clock; the parts that
 * can be left out for research; and the release of packets, which is TCP's (release.h).
 */
#ifndef VERUS_FORWARD_H
#define VERUS_FORWARD_H

#include "drains.h"
#include "estimates.h"

#define INITIAL_PACKETS 10
#define PROBE_PACKETS 2
#define QUEUED_SAMPLES 3
#define OVERFLOW 32
/* The shortest interval between decisions, as in credit.rs. */
#define TICK (1 * MS)

struct forward {
	/* W, bytes. */
	u64 window;
	/* The pace of departures, bit/s. */
	u64 pace;
	u64 packet;
	/* Slow start's window; in use while `is_starting`. */
	u64 starting;
	u64 updated;
	/* r, kbit/s, and q, us, of one to two round trips ago, before the queue was long. */
	u32 calm_older_rate;
	u32 calm_newer_rate;
	u32 calm_older_target;
	u32 calm_newer_target;
	u64 calm_since;
	u64 now;
	u32 queued_samples;
	u8 is_starting;
	u8 silent;
	u16 reserved;
	struct drains drains;
	struct estimates estimates;
};

/* The phase as reported: silence takes precedence over slow start, and slow start over drains. */
enum forward_phase { SLOW_START, STEADY, DRAIN, SILENT };

static inline enum forward_phase forward_phase(const struct forward *f)
{
	if (f->silent)
		return SILENT;
	if (f->is_starting)
		return SLOW_START;
	return f->drains.phase == PHASE_LAW ? STEADY : DRAIN;
}

static inline void decide(struct forward *f)
{
	const struct estimates *e = &f->estimates;
	struct state state = {
		.rate = e->rate,
		.base = e->base / 1000,
		.queue = e->queue / 1000,
		.target = e->target / 1000,
		.lead = estimates_lead(e) / 1000,
		.packet = f->packet,
		.phase = f->drains.phase,
	};
	struct decision decision;

	if (f->silent || f->is_starting) {
		state.given = f->silent ? f->packet * PROBE_PACKETS : f->starting;
		state.phase = PHASE_GIVEN;
	}
	law_decide(&state, &decision);
	f->window = decision.window;
	f->pace = decision.pace;
}

/* Ends slow start, and begins and ends drains. */
static inline void change_phase(struct forward *f)
{
	struct estimates *e = &f->estimates;

	if (!f->is_starting) {
		struct seen seen = {
			.queue = e->queue,
			.target = e->target,
			.base = e->base,
			.smoothed_rtt = e->smoothed_rtt,
			.steady = e->steady,
			.range = path_range(&e->path),
			.calm_target = f->calm_older_target * 1000ull,
			.link_is_steady = share_get(&e->empty) <= SPARE,
			.feedback_time = e->path.heard,
		};
		int lengthened;

		if (f->drains.phase == PHASE_LAW && !f->drains.high &&
		    less(f->now, f->calm_since) >= e->smoothed_rtt) {
			f->calm_older_rate = f->calm_newer_rate;
			f->calm_newer_rate = cut(e->rate / 1000);
			f->calm_older_target = f->calm_newer_target;
			f->calm_newer_target = cut(e->target / 1000);
			f->calm_since = f->now;
		}
		lengthened = drains_update(&f->drains, f->now, &seen);
		if (lengthened)
			estimates_lengthen(e, f->calm_older_rate * 1000ull, lengthened == LENGTHENED_BEFORE);
	} else {
		f->queued_samples = e->queue > e->target / 2 ? f->queued_samples + 1 : 0;
		if (f->queued_samples >= QUEUED_SAMPLES || share_exceeds(&e->lost, OVERFLOW, f->packet)) {
			f->is_starting = 0;
			drains_new(&f->drains, f->now, e->path.heard);
			f->drains.phase = PHASE_DRAIN;
			f->drains.since = f->now;
			f->drains.first = 1;
		}
	}
	if (f->drains.phase != PHASE_LAW)
		e->drained = f->now;
}

/* Starts a flow with packets of `packet` bytes. `f` must be zero. */
static inline void forward_start(struct forward *f, u64 now, u64 packet, u64 budget)
{
	f->packet = larger(packet, 1);
	f->now = now;
	estimates_new(&f->estimates, budget);
	drains_new(&f->drains, now, 0);
	f->is_starting = 1;
	f->starting = f->packet * INITIAL_PACKETS;
	decide(f);
}

static inline void forward_on_heard(struct forward *f, const struct heard *h)
{
	int answered;

	f->now = larger(f->now, h->now);
	estimates_on_heard(&f->estimates, h, f->packet, !f->is_starting);
	if (f->is_starting && (times(h->in_flight, 2) >= f->starting || (h->acked && !h->app_limited)))
		f->starting += h->acked;
	if (!h->acked)
		return;
	answered = f->silent;
	f->silent = 0;
	if (answered || less(f->now, f->updated) >= smaller(TICK, f->estimates.smoothed_rtt / 2)) {
		f->updated = f->now;
		estimates_refresh(&f->estimates, f->now, f->packet, !f->is_starting && f->drains.phase == PHASE_LAW);
		change_phase(f);
		decide(f);
	}
}

/* Handles an expired retransmission timeout. */
static inline void forward_on_timeout(struct forward *f, u64 now)
{
	f->now = larger(f->now, now);
	f->silent = 1;
	if (f->is_starting)
		f->starting = f->packet * INITIAL_PACKETS;
	decide(f);
}

static inline void forward_on_packet_size(struct forward *f, u64 packet)
{
	f->packet = larger(packet, 1);
	decide(f);
}

/*
 * The limit of the data in flight: the window rounded to the nearest packet. A small window, which
 * pacing enforces, has one packet more.
 */
static inline u64 forward_allowed(const struct forward *f)
{
	return more(f->window, f->window < f->packet * SMALL_PACKETS ? f->packet : f->packet / 2);
}

#endif
