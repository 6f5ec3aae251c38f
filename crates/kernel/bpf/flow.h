/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What a flow has, and where: what forward.bpf.c writes and flows.bpf.c reads. crates/kernel/src/flows.rs has the record. */
#ifndef VERUS_FLOW_H
#define VERUS_FLOW_H

#include "kernel.h"
#include "forward.h"

struct flow {
	struct forward law;
	/* Marks (ECN) that the law has not heard of yet: windows in which the receiver told of any. */
	u32 marks;
	u32 timeouts;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct flow);
} flows SEC(".maps");

#endif
