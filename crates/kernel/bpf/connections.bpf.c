/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Writes a record of each TCP connection in the reader's network namespace, whatever its congestion
 * control: the control group of `forward`. crates/kernel/src/connections.rs defines the same record.
 */
#include "kernel.h"

/* From tcp_states.h: the states in which a connection may still send data. */
enum { TCP_ESTABLISHED = 1, TCP_FIN_WAIT1 = 4, TCP_CLOSE_WAIT = 8 };

/* Fields in the order of their sizes, so that no compiler inserts padding. */
struct record {
	u8 sender[16];
	u64 window_bytes;
	/* The newest delivery rate that the application did not limit, bytes/s (tcpi_delivery_rate). */
	u64 delivery_rate;
	u32 smoothed_rtt_us;
	/* The least of the last five minutes; its highest value before the first. */
	u32 least_rtt_us;
	u32 sent_packets;
	u32 lost_packets;
};

SEC("iter/tcp")
int read_connections(struct bpf_iter__tcp *context)
{
	struct sock_common *common = context->sk_common;
	struct record record = {};
	const struct tcp_congestion_ops *sender;
	struct tcp_sock *tcp;
	u8 state;

	if (!common)
		return 0;
	tcp = (struct tcp_sock *)bpf_skc_to_tcp_sock(common);
	if (!tcp)
		return 0;
	state = common->skc_state;
	if (state != TCP_ESTABLISHED && state != TCP_FIN_WAIT1 && state != TCP_CLOSE_WAIT)
		return 0;
	sender = ((struct inet_connection_sock *)tcp)->icsk_ca_ops;
	bpf_probe_read_kernel(record.sender, sizeof(record.sender), &sender->name);
	record.window_bytes = (u64)tcp->snd_cwnd * tcp->mss_cache;
	if (tcp->rate_delivered && tcp->rate_interval_us)
		record.delivery_rate = (u64)tcp->rate_delivered * tcp->mss_cache * 1000000 / tcp->rate_interval_us;
	record.smoothed_rtt_us = tcp->srtt_us >> 3;
	record.least_rtt_us = tcp->rtt_min.s[0].v;
	record.sent_packets = tcp->data_segs_out;
	record.lost_packets = tcp->lost;
	bpf_seq_write(context->meta->seq, &record, sizeof(record));
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
