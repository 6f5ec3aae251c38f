/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the kernel's TCP calls: Verus as a congestion control (struct_ops tcp_congestion_ops). The law is verus.h. */
#include "verus_flow.h"
#include "glue.h"

/* Set before the program is loaded. */
const volatile struct {
	/* The name under which it is registered. */
	char name[16];
	/* R, in 2^-16. */
	u64 ratio;
} config SEC(".rodata.config") = { .name = "verus", .ratio = 2 << RATIO_SHIFT };

/* Hands window and pace to TCP, which counts packets and bytes of payload. */
static inline void apply(struct sock *sock, const struct verus *law)
{
	struct tcp_sock *tcp = TCP(sock);

	tcp->snd_cwnd = larger(smaller(verus_allowed(law), tcp->snd_cwnd_clamp), 1);
	sock->sk_pacing_rate = verus_pace(law, tcp->mss_cache);
}

SEC("struct_ops")
void verus_init(u64 *context)
{
	struct sock *sock = ARGUMENT(struct sock *, 0);
	struct tcp_sock *tcp = TCP(sock);
	struct flow *flow = begin(sock);

	if (!flow)
		return;
	/* A connection that had another congestion control goes on from its window; a new one has TCP's initial window. */
	verus_start(&flow->law, tcp->tcp_mstamp * 1000, tcp->snd_cwnd, config.ratio);
	flow->law.smoothed_rtt = (tcp->srtt_us >> 3) * 1000ull;
	/* Both: what another congestion control left there would stay. */
	sock->sk_pacing_status = SK_PACING_NEEDED;
	apply(sock, &flow->law);
}

/* Comes before verus_heard, of the same acknowledgement. */
SEC("struct_ops")
void verus_acked(u64 *context)
{
	struct sock *sock = ARGUMENT(struct sock *, 0);
	const struct ack_sample *sample = ARGUMENT(const struct ack_sample *, 1);
	struct flow *flow = bpf_sk_storage_get(&flows, sock, 0, 0);

	if (flow)
		flow->in_flight = sample->in_flight;
}

SEC("struct_ops")
void verus_heard(u64 *context)
{
	struct sock *sock = ARGUMENT(struct sock *, 0);
	const struct rate_sample *sample = ARGUMENT(const struct rate_sample *, 3);
	struct tcp_sock *tcp = TCP(sock);
	struct flow *flow = bpf_sk_storage_get(&flows, sock, 0, 0);
	struct answer answer = {};
	u64 bytes, known;

	if (!flow)
		return;
	bytes = larger(tcp->mss_cache, 1);
	known = flow->law.delay_max;
	answer.now = tcp->tcp_mstamp * 1000;
	answer.rtt = round_trip(sample, known);
	answer.sent = less(answer.now, answer.rtt ? answer.rtt : known);
	answer.acked = sample->acked_sacked;
	answer.lost = sample->losses > 0 ? sample->losses : 0;
	answer.charted = (flow->in_flight + bytes - 1) / bytes;
	answer.in_flight = sample->prior_in_flight;
	answer.smoothed_rtt = (tcp->srtt_us >> 3) * 1000ull;
	answer.app_limited = sample->is_app_limited;
	flow->in_flight = 0;
	if (answer.rtt)
		flow->rtt = answer.rtt;
	verus_on_answer(&flow->law, &answer);
	apply(sock, &flow->law);
}

SEC("struct_ops")
void verus_state(u64 *context)
{
	struct sock *sock = ARGUMENT(struct sock *, 0);
	u8 state = ARGUMENT(u8, 1);
	struct flow *flow = bpf_sk_storage_get(&flows, sock, 0, 0);

	if (!flow || state != TCP_CA_LOSS)
		return;
	flow->timeouts++;
	verus_on_timeout(&flow->law, TCP(sock)->tcp_mstamp * 1000);
	apply(sock, &flow->law);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops verus_operations = {
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)verus_init,
	.release = (void *)flow_release,
	.pkts_acked = (void *)verus_acked,
	.cong_control = (void *)verus_heard,
	.set_state = (void *)verus_state,
	.undo_cwnd = (void *)flow_undo,
	.ssthresh = (void *)flow_ssthresh,
	.min_tso_segs = (void *)flow_burst,
	.name = "verus",
};

char _license[] SEC("license") = "Dual MIT/GPL";
