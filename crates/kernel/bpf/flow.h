/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A flow: its state, and its record, which flows.bpf.c reads. crates/kernel/src/flows.rs defines
 * the same record.
 */
#ifndef VERUS_FLOW_H
#define VERUS_FLOW_H

#include "kernel.h"
#include "forward.h"
#include "release.h"

struct flow {
	struct forward law;
	/*
	 * ECN marks not yet passed to the law: the number of windows in which the receiver echoed a
	 * mark.
	 */
	u32 marks;
	u32 timeouts;
	/* When data were last acknowledged, and how much at once, bytes. */
	u64 acknowledged_at;
	u64 acknowledged;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct flow);
} flows SEC(".maps");

/* Fields in the order of their sizes, so that no compiler inserts padding. */
struct record {
	u8 local[16];
	u8 remote[16];
	u64 at_ns;
	u64 acked_bytes;
	u64 rate_bps;
	u64 pace_bps;
	u64 window_bytes;
	u64 base_ns;
	u64 queue_ns;
	u64 target_ns;
	u64 smoothed_rtt_ns;
	u64 packet_bytes;
	u64 newest_rtt_ns;
	u32 in_flight_packets;
	u32 sent_packets;
	u32 resent_packets;
	u32 lost_packets;
	u32 delivered_packets;
	u32 timeouts;
	/* p, in 2^-16. */
	u32 loss_share;
	u16 local_port;
	u16 remote_port;
	u16 family;
	u16 header_bytes;
	u8 phase;
	u8 reserved[3];
};

/* The size of a full packet on the wire (IP). */
static inline u64 packet_of(const struct tcp_sock *tcp, u16 family)
{
	return tcp->mss_cache + tcp->tcp_header_len + (family == AF_INET6 ? 40 : 20);
}

static inline void fill(struct record *record, const struct flow *flow, const struct tcp_sock *tcp)
{
	const struct forward *law = &flow->law;
	const struct estimates *e = &law->estimates;

	record->rate_bps = e->rate;
	record->pace_bps = law->pace;
	record->window_bytes = law->window;
	record->base_ns = e->base;
	record->queue_ns = e->queue;
	record->target_ns = e->target;
	record->smoothed_rtt_ns = e->smoothed_rtt;
	record->packet_bytes = law->packet;
	record->newest_rtt_ns = path_base(&e->path) + e->path.delay * 1000ull;
	record->header_bytes = law->packet - tcp->mss_cache;
	record->loss_share = share_get(&e->lost);
	record->phase = forward_phase(law);
}

#endif
