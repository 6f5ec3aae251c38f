/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Reads the flows of one loaded congestion control out, as records: those of the reader's network namespace. */
#include "flow.h"

/* Little of it is more than 8 bytes, so that no compiler puts gaps in between. */
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
	u32 loss_share;
	u16 local_port;
	u16 remote_port;
	u16 family;
	u16 header_bytes;
	u8 phase;
	u8 reserved[3];
};

SEC("iter/tcp")
int tell_flows(struct bpf_iter__tcp *context)
{
	struct sock_common *common = context->sk_common;
	struct record record = {};
	struct tcp_sock *tcp;
	struct flow *flow;

	if (!common)
		return 0;
	tcp = (struct tcp_sock *)bpf_skc_to_tcp_sock(common);
	if (!tcp)
		return 0;
	flow = bpf_sk_storage_get(&flows, tcp, 0, 0);
	if (!flow)
		return 0;
	record.at_ns = bpf_ktime_get_ns();
	record.acked_bytes = tcp->bytes_acked;
	record.rate_bps = flow->law.estimates.rate;
	record.pace_bps = flow->law.pace;
	record.window_bytes = flow->law.window;
	record.base_ns = flow->law.estimates.base;
	record.queue_ns = flow->law.estimates.queue;
	record.target_ns = flow->law.estimates.wanted;
	record.smoothed_rtt_ns = flow->law.estimates.smoothed_rtt;
	record.packet_bytes = flow->law.packet;
	record.newest_rtt_ns = path_base(&flow->law.estimates.path) + flow->law.estimates.path.delay * 1000ull;
	record.header_bytes = flow->law.packet - tcp->mss_cache;
	record.sent_packets = tcp->data_segs_out;
	record.resent_packets = tcp->total_retrans;
	record.in_flight_packets = tcp->packets_out - (tcp->sacked_out + tcp->lost_out) + tcp->retrans_out;
	record.lost_packets = tcp->lost;
	record.delivered_packets = tcp->delivered;
	record.timeouts = flow->timeouts;
	record.loss_share = share_get(&flow->law.estimates.lost);
	record.family = common->skc_family;
	record.local_port = common->skc_num;
	record.remote_port = (common->skc_dport >> 8) | (common->skc_dport << 8);
	if (record.family == AF_INET6) {
		bpf_probe_read_kernel(record.local, 16, &common->skc_v6_rcv_saddr);
		bpf_probe_read_kernel(record.remote, 16, &common->skc_v6_daddr);
	} else {
		*(u32 *)record.local = common->skc_rcv_saddr;
		*(u32 *)record.remote = common->skc_daddr;
	}
	record.phase = forward_phase(&flow->law);
	bpf_seq_write(context->meta->seq, &record, sizeof(record));
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
