/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The law of `forward`, line by line as in crates/forward/src/law.rs, which explains each
 * number. Times in us below 2^26, rates in bit/s below 2^37, shares in 2^-16.
 */
#ifndef VERUS_LAW_H
#define VERUS_LAW_H

#include "integer.h"

#define ONE (1ull << 16)
#define LONGEST ((1ull << 26) - 1)
#define FASTEST ((1ull << 37) - 1)
#define REFERENCE 10000000ull
#define STEADY_OF 13
#define STEADY_IN 45
#define CHANGING 60
#define SPARE (ONE / 25)
#define LOSS_PRICE 50
#define UNPRICED (ONE / 64)
#define DAMPING 8
#define GAPS 4
#define LONGEST_GAPS 80000ull
#define LONGEST_HORIZON 200000ull
#define DRAIN_PERCENT 15
#define SMALL_PACKETS 4
#define LEAST_SHARE 8
#define DRAINED_SHARE 2
/* The value of c where no buffer bounds the target. */
#define UNBOUNDED (1ull << 26)

/* The measurements that q depends on. */
struct channel {
	u64 rate;
	u64 budget;
	u64 lost;
	u64 empty;
	u64 late;
	u64 room;
};

enum law_phase { PHASE_GIVEN, PHASE_LAW, PHASE_DRAIN, PHASE_SHORT_DRAIN };

/* The measurements and the phase that the window depends on. */
struct state {
	u64 rate;
	u64 base;
	u64 queue;
	u64 target;
	u64 lead;
	u64 packet;
	u64 given;
	u64 phase;
};

struct decision {
	u64 window;
	u64 pace;
};

/* s, the target queue on a steady link, us. */
static inline u64 law_steady(u64 budget, u64 rate)
{
	u64 root = cube_root((REFERENCE << 39) / smaller(larger(rate, 1), FASTEST));

	return ((smaller(budget, 1 << 20) * STEADY_OF / STEADY_IN) * root) >> 13;
}

static inline u64 law_priced(u64 queue, u64 lost)
{
	return (queue << 16) / (ONE + LOSS_PRICE * lost);
}

/* q, the target queue, us. */
static inline u64 law_target(const struct channel *channel)
{
	u64 budget = smaller(channel->budget, 1 << 20);
	u64 steady = law_steady(budget, channel->rate);
	u64 empty = less(smaller(channel->empty, ONE), SPARE);
	u64 late = ONE + CHANGING * smaller(channel->late, ONE);
	u64 bracket = ONE + ((CHANGING * empty) << 16) / late;
	u64 lost = smaller(channel->lost, ONE);
	u64 unbound = larger(steady, smaller((steady * bracket) >> 16, budget));
	u64 bound = (steady * smaller(channel->room, UNBOUNDED)) >> 16;

	return bound < unbound ? law_priced(bound, less(lost, UNPRICED)) : law_priced(unbound, lost);
}

/* H, the horizon, us. */
static inline u64 law_horizon(u64 gap, u64 spread)
{
	u64 gaps = smaller(GAPS * smaller(gap, LONGEST), LONGEST_GAPS);

	return smaller(gaps + smaller(spread, LONGEST), LONGEST_HORIZON);
}

/* W, and the pace at which it leaves. */
static inline void law_decide(const struct state *state, struct decision *decision)
{
	u64 rate = smaller(state->rate, FASTEST);
	u64 base = smaller(state->base, LONGEST);
	u64 queue = smaller(state->queue, LONGEST);
	u64 target = smaller(state->target, LONGEST / 2);
	u64 drained = base * DRAIN_PERCENT / 100;
	u64 draining = state->phase == PHASE_DRAIN || state->phase == PHASE_SHORT_DRAIN;
	u64 span, window, over;

	if (state->phase == PHASE_LAW)
		span = larger(less(base + target + target / DAMPING, queue / DAMPING), base / 2);
	else if (state->phase == PHASE_SHORT_DRAIN)
		span = larger(less(base, queue + target), drained);
	else
		span = drained;
	if (state->phase == PHASE_GIVEN)
		window = state->given;
	else
		window = rate * smaller(span, LONGEST) / 8000000;
	window = larger(window, state->packet / (draining ? DRAINED_SHARE : LEAST_SHARE));
	if (window < SMALL_PACKETS * state->packet)
		over = base + queue;
	else if (state->phase == PHASE_GIVEN)
		over = (base + queue) / 2;
	else
		over = larger((base + target) / 2, less(base + target, state->lead));
	decision->window = window;
	decision->pace = larger(smaller(window, 1ull << 40) * 8000000 / larger(over, 1), 1);
}

#endif
