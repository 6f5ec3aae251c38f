/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* A flow of forward.bpf.c, and what flows.bpf.c tells of it. */
#ifndef VERUS_FORWARD_FLOW_H
#define VERUS_FORWARD_FLOW_H

#include "kernel.h"
#include "forward.h"

struct flow {
	struct forward law;
	/* Marks (ECN) that the law has not heard of yet: windows in which the receiver told of any. */
	u32 marks;
	u32 timeouts;
};

#include "flow.h"

static inline void tell(struct record *record, const struct flow *flow, const struct tcp_sock *tcp)
{
	const struct forward *law = &flow->law;
	const struct estimates *e = &law->estimates;

	record->rate_bps = e->rate;
	record->pace_bps = law->pace;
	record->window_bytes = law->window;
	record->base_ns = e->base;
	record->queue_ns = e->queue;
	record->target_ns = e->wanted;
	record->smoothed_rtt_ns = e->smoothed_rtt;
	record->packet_bytes = law->packet;
	record->newest_rtt_ns = path_base(&e->path) + e->path.delay * 1000ull;
	record->header_bytes = law->packet - tcp->mss_cache;
	record->loss_share = share_get(&e->lost);
	record->phase = forward_phase(law);
}

#endif
