/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A flow's Verus (SIGCOMM 2015), as crates/verus/src/verus.rs has it in paper mode, in whole numbers: the equations, and what
 * they mean, are told there. For the kernel and for a test that runs natively, as forward.h.
 *
 * What the paper has and this has not:
 *
 *   - a clock: epochs end when the first acknowledgement after their end comes;
 *   - the window of each packet: that of a lost one is taken to be what was in flight when the newest acknowledged one left;
 *   - a spline (profile.h);
 *   - Eq. 5: the kernel sends no burst in each epoch. W bounds what is in flight, and is spread over a round trip.
 *
 * Times in ns, windows in 2^-16 packets.
 */
#ifndef VERUS_VERUS_H
#define VERUS_VERUS_H

#include "profile.h"

#define ONE_PACKET (1ull << PACKET_SHIFT)
/* §5.3: epsilon, delta 1, delta 2, and how often the profile is fitted. */
#define EPOCH (5 * MS)
#define DECREMENT (1 * MS)
#define INCREMENT (2 * MS)
#define UPDATE_INTERVAL (1000 * MS)
/* N: slow start ends above N times the least delay (§5.1). */
#define EXIT_MULTIPLE 15
/* 1 - alpha of Eq. 2, and M of Eq. 6, which the paper gives no values: those of the authors' prototype. */
#define NEWEST(change) ((change) * 4 / 5)
#define DECREASED(window) ((window) * 7 / 10)
/* R in 2^-16. */
#define RATIO_SHIFT 16
#define MOST_RATIO (100ull << RATIO_SHIFT)
/* After a timeout, so many packets probe the path until one is acknowledged. */
#define SILENT_PACKETS 2
/* A receiver answers every second packet at once, and one alone after up to 40 ms: a window is two pairs at the least. */
#define LEAST_PACKETS 4
#define LONGEST_TIME (LONGEST_DELAY * 1000)

/* As they are shown: flows.rs has the words. */
enum verus_phase { VERUS_SLOW_START, VERUS_TRACKING, VERUS_SILENT = 3, VERUS_RECOVERY };

struct verus {
	/* W. */
	u64 window;
	/* D_est; D_min, D_max and the largest delay of this epoch, each 0 until there is one. */
	u64 estimate;
	u64 delay_min;
	u64 delay_max;
	u64 epoch_max;
	/* When the open epoch ends; 0 before the first, which begins as slow start ends. */
	u64 epoch_end;
	u64 refit_at;
	/* When the window was last cut. What left before was lost for the same reason. */
	u64 cut_at;
	/* Packets in flight when the newest acknowledged one had left. */
	u64 charted;
	u64 ratio;
	u64 smoothed_rtt;
	u64 now;
	u8 phase;
	/* Nothing that left since the last cut is acknowledged. */
	u8 unanswered;
	/* The source had run dry: a delay without a queue says nothing of what a larger window brings. */
	u8 dry;
	u8 reserved[5];
	struct profile profile;
};

/* What an acknowledgement revealed, in packets. */
struct answer {
	u64 now;
	/* When the newest packet that it acknowledges had left, and how long that took; 0: not known. */
	u64 sent;
	u64 rtt;
	/* Packets acknowledged, and taken for lost. */
	u64 acked;
	u64 lost;
	/* Packets in flight when the newest one left, itself included; 0: not known. */
	u64 charted;
	/* Packets in flight before the acknowledgement. */
	u64 in_flight;
	u64 smoothed_rtt;
	u64 app_limited;
};

/* D_est is the delay that the profile gives for the window. */
static inline void follow_window(struct verus *v)
{
	u64 delay = profile_delay(&v->profile, v->window);

	if (delay)
		v->estimate = delay;
}

static inline void refit(struct verus *v)
{
	profile_fit(&v->profile);
	v->refit_at = more(v->now, UPDATE_INTERVAL);
}

/* Eq. 6. Recovery begins. */
static inline void cut(struct verus *v)
{
	u64 lost = v->charted << PACKET_SHIFT;

	if (lost)
		v->window = smaller(v->window, DECREASED(lost));
	v->window = larger(v->window, ONE_PACKET);
	if (v->phase == VERUS_SLOW_START)
		refit(v);
	follow_window(v);
	v->phase = VERUS_RECOVERY;
	v->cut_at = v->now;
	v->unanswered = 1;
	if (!v->epoch_end)
		v->epoch_end = more(v->now, EPOCH);
}

/* Eq. 4 for so many epochs in a row, of which none had a delay of its own but the first. */
static inline void step(struct verus *v, int rises, u64 epochs)
{
	u64 most = v->delay_min * v->ratio;

	if (v->delay_max << RATIO_SHIFT > most)
		v->estimate = less(v->estimate, epochs * INCREMENT);
	else if (rises)
		v->estimate = larger(less(v->estimate, epochs * DECREMENT), v->delay_min);
	else if (!v->dry)
		v->estimate = smaller(v->estimate + epochs * INCREMENT, LONGEST_TIME);
}

/*
 * Closes the epochs that have ended: Eqs. 2 to 4, and the window that brings the delay wanted. In those that nothing was heard
 * in D_max stays, which is no rise; there are no more of them than a round trip has, as a longer silence is a pause of the
 * source, or an outage.
 */
static inline void close_epochs(struct verus *v)
{
	u64 silent, latest, before, average, window;

	if (!v->epoch_end || v->now <= v->epoch_end)
		return;
	silent = (v->now - v->epoch_end - 1) / EPOCH;
	v->epoch_end = more(v->epoch_end, times(silent + 1, EPOCH));
	silent = smaller(silent, v->smoothed_rtt / EPOCH);
	latest = v->epoch_max ? v->epoch_max : v->delay_max;
	if (!latest)
		return;
	before = v->delay_max ? v->delay_max : latest;
	average = latest > before ? before + NEWEST(latest - before) : before - NEWEST(before - latest);
	v->delay_max = average;
	v->epoch_max = 0;
	if (v->phase != VERUS_TRACKING)
		return;
	if (v->now >= v->refit_at)
		refit(v);
	step(v, average > before, 1);
	step(v, 0, silent);
	window = profile_window(&v->profile, v->estimate);
	if (window)
		v->window = window;
}

static inline void on_acked(struct verus *v, const struct answer *a)
{
	u64 rtt = smaller(a->rtt, LONGEST_TIME);

	if (v->phase == VERUS_SILENT)
		v->phase = VERUS_RECOVERY;
	if (a->charted)
		v->charted = smaller(a->charted, LARGEST_WINDOW);
	if (v->phase == VERUS_SLOW_START && v->delay_min && rtt > EXIT_MULTIPLE * v->delay_min)
		cut(v);
	/* "if the protocol receives an acknowledgement with a sending window that is smaller than or equal to the current
	 * sending window" (§4): such as of a packet that left since. */
	if (v->phase == VERUS_RECOVERY &&
	    (a->sent >= v->cut_at || (a->charted && v->charted << PACKET_SHIFT <= v->window)))
		v->phase = VERUS_TRACKING;
	if (rtt) {
		v->epoch_max = larger(v->epoch_max, rtt);
		v->delay_min = v->delay_min ? smaller(v->delay_min, rtt) : rtt;
	}
	v->dry = !!a->app_limited;
	if (v->phase == VERUS_RECOVERY) {
		v->window += (smaller(a->acked, LARGEST_WINDOW) << 2 * PACKET_SHIFT) / v->window;
		follow_window(v);
	} else {
		if (rtt && a->charted && !v->dry)
			profile_add(&v->profile, v->charted, rtt);
		if (v->phase == VERUS_SLOW_START && a->in_flight >= v->window >> (PACKET_SHIFT + 1))
			v->window += smaller(a->acked, LARGEST_WINDOW) << PACKET_SHIFT;
	}
	v->window = smaller(v->window, (u64)LARGEST_WINDOW << PACKET_SHIFT);
}

/* A flow begins, with a window of so many packets. `v` is zero. */
static inline void verus_start(struct verus *v, u64 now, u64 packets, u64 ratio)
{
	v->now = now;
	v->window = smaller(larger(packets, 1), LARGEST_WINDOW) << PACKET_SHIFT;
	v->ratio = smaller(ratio, MOST_RATIO);
}

APART int verus_on_answer(struct verus *v, const struct answer *a)
{
	int unanswered;

	if (!v || !a)
		return 0;
	v->now = larger(v->now, a->now);
	v->smoothed_rtt = smaller(a->smoothed_rtt, LONGEST_TIME);
	close_epochs(v);
	unanswered = v->unanswered;
	if (a->acked) {
		if (a->sent >= v->cut_at)
			v->unanswered = 0;
		on_acked(v, a);
	}
	/* One cut for all that was in flight when the first loss was detected. */
	if (a->lost && !unanswered)
		cut(v);
	return 0;
}

/* Silence outlasted the retransmission timeout. */
APART int verus_on_timeout(struct verus *v, u64 now)
{
	if (!v)
		return 0;
	v->now = larger(v->now, now);
	close_epochs(v);
	cut(v);
	v->phase = VERUS_SILENT;
	return 0;
}

/* What may be in flight. */
static inline u64 bound(const struct verus *v)
{
	return v->phase == VERUS_SILENT ? SILENT_PACKETS * ONE_PACKET : larger(v->window, LEAST_PACKETS * ONE_PACKET);
}

/* In packets. */
static inline u64 verus_allowed(const struct verus *v)
{
	return bound(v) >> PACKET_SHIFT;
}

/*
 * Bytes per second that departures are spread at, of packets of `bytes`: two windows in a round trip, as Linux has it in slow
 * start. At one, a window that grows in each epoch would be full only when it is smaller again.
 */
static inline u64 verus_pace(const struct verus *v, u64 bytes)
{
	u64 rtt = v->smoothed_rtt ? v->smoothed_rtt : 1 * MS;

	return larger(mul_div(2 * smaller(bytes, 1 << 20) * bound(v) >> PACKET_SHIFT, 1000 * MS, rtt), 1);
}

#endif
