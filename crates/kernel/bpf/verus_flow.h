/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* A flow of verus.bpf.c, and what flows.bpf.c tells of it. */
#ifndef VERUS_VERUS_FLOW_H
#define VERUS_VERUS_FLOW_H

#include "kernel.h"
#include "verus.h"

struct flow {
	struct verus law;
	/* Of the newest packet acknowledged: its round trip, ns; and bytes that were in flight when it left, until the law has
	 * heard of them. */
	u64 rtt;
	u32 in_flight;
	u32 timeouts;
};

#include "flow.h"

static inline void tell(struct record *record, const struct flow *flow, const struct tcp_sock *tcp)
{
	const struct verus *law = &flow->law;
	u64 packet = packet_of(tcp, record->family);

	/* Verus knows no rate: this is TCP's own. */
	record->rate_bps = rate_of(tcp->rate_delivered * packet, tcp->rate_interval_us * 1000ull);
	record->pace_bps = times(verus_pace(law, packet), 8);
	record->window_bytes = verus_allowed(law) * packet;
	/* D_max and D_est, as what they exceed D_min by. */
	record->base_ns = law->delay_min;
	record->queue_ns = less(law->delay_max, law->delay_min);
	record->target_ns = less(law->estimate, law->delay_min);
	record->smoothed_rtt_ns = law->smoothed_rtt;
	record->packet_bytes = packet;
	record->newest_rtt_ns = flow->rtt;
	record->header_bytes = packet - tcp->mss_cache;
	record->loss_share = NO_SHARE;
	record->phase = law->phase;
}

#endif
