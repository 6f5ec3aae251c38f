/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * `forward` as a congestion control of the kernel's TCP (struct_ops tcp_congestion_ops). The law is
 * in forward.h.
 */
#include "flow.h"

/* From sock.h: TCP's own timer paces unless a queue discipline (fq) does. */
enum { SK_PACING_NONE, SK_PACING_NEEDED };
/* From tcp.h. */
enum { TCP_CA_CWR = 2, TCP_CA_LOSS = 4 };
/*
 * From tcp.h: root need not allow it to users by name. No other network namespace can have it as
 * its default without this flag.
 */
enum { TCP_CONG_NON_RESTRICTED = 1 };

/*
 * A pair needs a window of two pairs, since TCP sends at most half a window at once. The pace
 * enforces a small window.
 */
#define LEAST_WINDOW (2 * PAIR)

/* The numbers of flows that began and ended. */
struct {
	u64 begun;
	u64 ended;
} count SEC(".data.count");

#define ARGUMENT(type, n) ((type)context[n])
/* Casts a struct sock, for which the kernel passes a struct tcp_sock. */
#define TCP(sock) ((struct tcp_sock *)(sock))

/* Creates the state of a new flow, all zero. */
static inline struct flow *begin(struct sock *sock)
{
	struct flow *flow;

	bpf_sk_storage_delete(&flows, sock);
	flow = bpf_sk_storage_get(&flows, sock, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (flow)
		__sync_fetch_and_add(&count.begun, 1);
	return flow;
}

/*
 * The round trip of the newest packet acknowledged; 0 where there is no valid sample. A packet that
 * was sent twice gives none. A single packet, whose acknowledgement the receiver may have delayed
 * (delayed ACK), gives one only if it is shorter than the known round trip.
 */
static inline u64 round_trip(const struct rate_sample *sample, u64 known)
{
	int alone = sample->is_ack_delayed || (sample->acked_sacked == 1 && sample->prior_in_flight <= 1);
	u64 rtt = sample->rtt_us * 1000ull;

	return sample->rtt_us > 0 && (!alone || !known || rtt < known) ? rtt : 0;
}

SEC("struct_ops")
void flow_release(u64 *context)
{
	struct sock *sock = ARGUMENT(struct sock *, 0);

	if (!bpf_sk_storage_delete(&flows, sock))
		__sync_fetch_and_add(&count.ended, 1);
}

/* After a spurious loss: restores c. The law alone decides the window. */
SEC("struct_ops")
u32 flow_undo(u64 *context)
{
	struct sock *sock = ARGUMENT(struct sock *, 0);
	struct flow *flow = bpf_sk_storage_get(&flows, sock, 0, 0);

	if (flow)
		room_undo(&flow->law.estimates.room);
	return TCP(sock)->snd_cwnd;
}

SEC("struct_ops")
u32 flow_ssthresh(u64 *context)
{
	return TCP(ARGUMENT(struct sock *, 0))->snd_ssthresh;
}

/*
 * The least pace in a drain. At most a pair is in flight then, and its packets leave within 10 ms.
 * With the law's pace the second would leave after the drain, and Q would appear unchanged by the
 * drain.
 */
#define DRAIN_BYTES_PER_S (1200000 / 8)

/* The configuration, which the loader sets before it loads the program. */
const volatile struct {
	/* The name under which the congestion control is registered. */
	char name[16];
	/* The delay budget. */
	u64 budget_ns;
} config SEC(".rodata.config") = { .name = "forward", .budget_ns = 90 * MS };

/* Passes window and pace to TCP, which counts packets and bytes of payload. */
static inline void apply(struct sock *sock, const struct flow *flow)
{
	struct tcp_sock *tcp = TCP(sock);
	const struct forward *law = &flow->law;
	enum forward_phase phase = forward_phase(law);
	u64 packet = larger(law->packet, 1);
	u64 fewest = phase == DRAIN ? PAIR : LEAST_WINDOW;
	struct release release = {
		.now = tcp->tcp_mstamp * 1000,
		.acknowledged_at = flow->acknowledged_at,
		.acknowledged = flow->acknowledged,
		.in_flight = (tcp->packets_out - (tcp->sacked_out + tcp->lost_out) + tcp->retrans_out) * packet,
		.packet = packet,
		.rate = law->estimates.rate,
		.horizon = estimates_horizon(&law->estimates),
		.limit = larger(forward_allowed(law), fewest * packet),
		.pace = law->pace,
	};

	/* With fq, which paces instead of TCP's timer, nothing leaves between acknowledgements. */
	if (phase == STEADY && law->window >= SMALL_PACKETS * packet && sock->sk_pacing_status == SK_PACING_NEEDED)
		release_decide(&release);
	tcp->snd_cwnd = larger(smaller(release.limit / packet, tcp->snd_cwnd_clamp), 1);
	sock->sk_pacing_rate = larger(mul_div(release.pace / 8, tcp->mss_cache, packet),
				      phase == DRAIN ? DRAIN_BYTES_PER_S : 1);
}

SEC("struct_ops")
void forward_init(u64 *context)
{
	struct sock *sock = ARGUMENT(struct sock *, 0);
	struct tcp_sock *tcp = TCP(sock);
	struct flow *flow = begin(sock);

	if (!flow)
		return;
	forward_start(&flow->law, tcp->tcp_mstamp * 1000, packet_of(tcp, sock->__sk_common.skc_family), config.budget_ns);
	if (tcp->srtt_us) {
		/* A connection that had another congestion control continues from its window. */
		u64 window = tcp->snd_cwnd * flow->law.packet;

		flow->law.estimates.smoothed_rtt = (tcp->srtt_us >> 3) * 1000ull;
		/*
		 * D begins with the handshake's round trip, which has a shorter queue than the
		 * flow's first packets.
		 */
		path_on_acked(&flow->law.estimates.path, flow->law.now, tcp->rtt_min.s[0].v * 1000ull,
			      flow->law.estimates.smoothed_rtt);
		flow->law.starting = larger(flow->law.starting, window);
		flow->law.window = flow->law.starting;
		flow->law.pace = larger(rate_of(window, flow->law.estimates.smoothed_rtt), 1);
	}
	/* Status and rate are both set, since those of another congestion control would remain. */
	sock->sk_pacing_status = SK_PACING_NEEDED;
	apply(sock, flow);
}

SEC("struct_ops")
void forward_heard(u64 *context)
{
	struct sock *sock = ARGUMENT(struct sock *, 0);
	const struct rate_sample *sample = ARGUMENT(const struct rate_sample *, 3);
	struct tcp_sock *tcp = TCP(sock);
	struct flow *flow = bpf_sk_storage_get(&flows, sock, 0, 0);
	struct forward *law;
	struct heard heard = {};
	u64 packet, known, rtt;

	if (!flow)
		return;
	law = &flow->law;
	packet = packet_of(tcp, sock->__sk_common.skc_family);
	if (packet != law->packet)
		forward_on_packet_size(law, packet);
	packet = law->packet;
	heard.now = tcp->tcp_mstamp * 1000;
	heard.acked = sample->acked_sacked * packet;
	heard.lost = sample->losses > 0 ? sample->losses * packet : 0;
	heard.marked = flow->marks;
	flow->marks = 0;
	heard.smoothed_rtt = (tcp->srtt_us >> 3) * 1000ull;
	heard.in_flight = sample->prior_in_flight * packet;
	heard.app_limited = sample->is_app_limited;
	known = law->estimates.base + law->estimates.queue;
	rtt = round_trip(sample, known);
	heard.rtt = rtt ? rtt : known;
	heard.sent = less(heard.now, heard.rtt);
	/*
	 * TCP does not report when a lost packet had left. It declares packets lost that left
	 * before the newest packet delivered (RACK, RFC 8985). It has mostly done so already for
	 * those that left before the packet delivered previously, so the departure of that packet
	 * is used. The newest packet's departure would assign the last losses of an overflow,
	 * detected after c was halved, to another overflow.
	 */
	heard.lost_sent = law->estimates.deliveries.sent;
	if (!heard.rtt)
		heard.acked = 0;
	forward_on_heard(law, &heard);
	if (heard.acked) {
		flow->acknowledged_at = heard.now;
		flow->acknowledged = heard.acked;
	}
	apply(sock, flow);
}

/* Called before each burst. */
SEC("struct_ops")
u32 forward_burst(u64 *context)
{
	struct sock *sock = ARGUMENT(struct sock *, 0);
	struct flow *flow = bpf_sk_storage_get(&flows, sock, 0, 0);

	if (flow)
		apply(sock, flow);
	return PAIR;
}

SEC("struct_ops")
void forward_state(u64 *context)
{
	struct sock *sock = ARGUMENT(struct sock *, 0);
	u8 state = ARGUMENT(u8, 1);
	struct flow *flow = bpf_sk_storage_get(&flows, sock, 0, 0);

	if (!flow)
		return;
	if (state == TCP_CA_CWR) {
		/*
		 * Called once for each window with marks: the receiver does not report their number
		 * (RFC 3168).
		 */
		flow->marks++;
	} else if (state == TCP_CA_LOSS) {
		flow->timeouts++;
		forward_on_timeout(&flow->law, TCP(sock)->tcp_mstamp * 1000);
		apply(sock, flow);
	}
}

/* Section `.struct_ops.link`, or `.struct_ops` for the bare object: see build.rs. */
SEC(OPERATIONS)
struct tcp_congestion_ops forward_operations = {
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)forward_init,
	.release = (void *)flow_release,
	.cong_control = (void *)forward_heard,
	.set_state = (void *)forward_state,
	.undo_cwnd = (void *)flow_undo,
	.ssthresh = (void *)flow_ssthresh,
	.min_tso_segs = (void *)forward_burst,
	.name = "forward",
};

char _license[] SEC("license") = "Dual MIT/GPL";
