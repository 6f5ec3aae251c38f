/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Fields of Linux's types that the programs use. The loader finds their offsets by name, in the
 * running kernel's BTF (CO-RE). So no 3 MB header is needed, and one object fits every kernel with
 * these fields.
 */
#ifndef VERUS_KERNEL_H
#define VERUS_KERNEL_H

#include "integer.h"

/* The type names that libbpf's headers use. */
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;

enum bpf_map_type { BPF_MAP_TYPE_SK_STORAGE = 24 };
#define BPF_F_NO_PREALLOC 1
#define BPF_SK_STORAGE_GET_F_CREATE 1

#include <bpf/bpf_helpers.h>

#define AF_INET6 10

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		u8 u6_addr8[16];
	} in6_u;
};

struct sock_common {
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	u16 skc_dport;
	u16 skc_num;
	u16 skc_family;
	unsigned char skc_state;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	u32 sk_pacing_status;
	unsigned long sk_pacing_rate;
};

struct minmax_sample {
	u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	u16 tcp_header_len;
	u32 packets_out;
	u32 sacked_out;
	u32 lost_out;
	u32 retrans_out;
	u32 snd_cwnd;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 mss_cache;
	u32 srtt_us;
	/* The least round trip of the last five minutes, us. */
	struct minmax rtt_min;
	u32 lost;
	u32 delivered;
	u32 data_segs_out;
	u32 total_retrans;
	u32 rate_delivered;
	u32 rate_interval_us;
	u64 tcp_mstamp;
	u64 bytes_acked;
};

struct rate_sample {
	s32 losses;
	u32 acked_sacked;
	u32 prior_in_flight;
	u32 delivered_ce;
	long rtt_us;
	_Bool is_app_limited;
	_Bool is_ack_delayed;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

/* Members are matched by name by libbpf. loaded.rs writes `name`, which follows five pointers. */
struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*set_state)(struct sock *sk, u8 new_state);
	u32 (*min_tso_segs)(struct sock *sk);
	void (*cong_control)(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs);
	u32 (*undo_cwnd)(struct sock *sk);
	char name[16];
	u32 flags;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
};

/* A tcp_sock begins with it. */
struct inet_connection_sock {
	const struct tcp_congestion_ops *icsk_ca_ops;
};

#pragma clang attribute pop

#endif
