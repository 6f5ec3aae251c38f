/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What ours have to do with the kernel's TCP in common. After the header of a law's flow. */
#ifndef VERUS_GLUE_H
#define VERUS_GLUE_H

/* As sock.h has them: TCP's own timer paces unless a queue discipline (fq) does. */
enum { SK_PACING_NONE, SK_PACING_NEEDED };
/* As tcp.h has them. */
enum { TCP_CA_CWR = 2, TCP_CA_LOSS = 4 };
/* Root need not allow it to users by name: with it alone can another network namespace have it as its default. */
enum { TCP_CONG_NON_RESTRICTED = 1 };

/*
 * A receiver answers every second packet at once, and one alone after up to 40 ms (delayed ACK, RFC 1122): the round trip of
 * that says nothing. So packets leave in pairs. A pair takes a window of two pairs, as TCP sends half a window at once at the
 * most; a small window is enforced by its pace.
 */
#define PAIR 2
#define LEAST_WINDOW (2 * PAIR)

/* Flows that began and ended. */
struct {
	u64 begun;
	u64 ended;
} count SEC(".data.count");

#define ARGUMENT(type, n) ((type)context[n])
/* The kernel hands a struct tcp_sock over where its type says struct sock. */
#define TCP(sock) ((struct tcp_sock *)(sock))

/* A flow as it begins: all zero, as what is new there is. */
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
 * The round trip of the newest packet acknowledged; 0 where it says nothing new. Of a packet that was sent twice it is not
 * known, and of one that the receiver may have kept unanswered for a while since no other followed (delayed ACK) only if it is
 * shorter than what is known.
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

/* The law alone says what the window is: nothing is given back where there was no loss. */
SEC("struct_ops")
u32 flow_undo(u64 *context)
{
	return TCP(ARGUMENT(struct sock *, 0))->snd_cwnd;
}

SEC("struct_ops")
u32 flow_ssthresh(u64 *context)
{
	return TCP(ARGUMENT(struct sock *, 0))->snd_ssthresh;
}

SEC("struct_ops")
u32 flow_burst(u64 *context __attribute__((unused)))
{
	return PAIR;
}

#endif
