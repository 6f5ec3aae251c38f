/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Writes a record of each flow of one loaded congestion control in the reader's network namespace.
 */
#include "flow.h"

SEC("iter/tcp")
int read_flows(struct bpf_iter__tcp *context)
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
	record.sent_packets = tcp->data_segs_out;
	record.resent_packets = tcp->total_retrans;
	record.in_flight_packets = tcp->packets_out - (tcp->sacked_out + tcp->lost_out) + tcp->retrans_out;
	record.lost_packets = tcp->lost;
	record.delivered_packets = tcp->delivered;
	record.timeouts = flow->timeouts;
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
	fill(&record, flow, tcp);
	bpf_seq_write(context->meta->seq, &record, sizeof(record));
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
