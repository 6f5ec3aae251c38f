/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Saturating integers, as in crates/core/src/units.rs, of 64 bits: BPF has no wider type.
 */
#ifndef VERUS_INTEGER_H
#define VERUS_INTEGER_H

#ifdef __bpf__
/*
 * A function that is verified once, by itself; inlined, it would be verified on every path of its
 * caller.
 */
#define APART __attribute__((noinline))
#else
#define APART static inline
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed int s32;
typedef signed long long s64;

#define MS 1000000ull
/* The divisor of bit/s × ns that gives bytes: 10^9 ns in a second, 8 bits in a byte. */
#define BYTE 8000000000ull

static inline u64 smaller(u64 a, u64 b)
{
	return a < b ? a : b;
}

static inline u64 larger(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* The difference, or zero. */
static inline u64 less(u64 a, u64 b)
{
	return a > b ? a - b : 0;
}

static inline u64 apart(u64 a, u64 b)
{
	return a > b ? a - b : b - a;
}

static inline u64 more(u64 a, u64 b)
{
	u64 sum = a + b;

	return sum < a ? ~0ull : sum;
}

/*
 * Hides the origin of a number from the compiler. Compilers recognise a test for overflow, and
 * replace it by a product of 128 bits, which BPF lacks.
 */
static inline u64 opaque(u64 a)
{
	asm volatile("" : "+r"(a));
	return a;
}

/* The product, saturated. `n` is a constant, so that the compiler evaluates the division. */
static inline u64 times(u64 a, u64 n)
{
	return n && a > opaque(~0ull / n) ? ~0ull : a * n;
}

/*
 * An index that the verifier knows to be within a table of `mask` + 1 entries. Compilers would
 * otherwise remove the mask.
 */
static inline u64 masked(u64 index, u64 mask)
{
	index &= mask;
#ifdef __bpf__
	asm volatile("%0 &= %1" : "+r"(index) : "i"(mask));
#endif
	return index;
}

/*
 * a·b ÷ c rounded down, or up with `up`; all ones where that exceeds 64 bits or c is zero. The
 * product has 128 bits, in two numbers of 64. Long division takes a bit at a time. Calls are rare:
 * the product exceeds 64 bits only at Tbit/s and over hours.
 */
APART u64 mul_div_wide(u64 a, u64 b, u64 c, u64 up)
{
	u64 low = (a & 0xffffffff) * (b & 0xffffffff);
	u64 one = (a >> 32) * (b & 0xffffffff);
	u64 two = (a & 0xffffffff) * (b >> 32);
	u64 middle = (low >> 32) + (one & 0xffffffff) + (two & 0xffffffff);
	u64 high = (a >> 32) * (b >> 32) + (one >> 32) + (two >> 32) + (middle >> 32);
	u64 quotient = 0;
	int bit;

	low = (low & 0xffffffff) | (middle << 32);
	if (high >= c)
		return ~0ull;
	for (bit = 0; bit < 64; bit++) {
		u64 carry = high >> 63, borrow, takes;

		high = (high << 1) | (low >> 63);
		low <<= 1;
		/*
		 * Whether c fits, without a branch: the verifier would follow both sides in each of
		 * 64 rounds.
		 */
		borrow = ((~high & c) | ((~high | c) & (high - c))) >> 63;
		takes = opaque(carry | (borrow ^ 1));
		high -= c & (0 - takes);
		quotient = (quotient << 1) | takes;
	}
	if (up && high && quotient != ~0ull)
		quotient++;
	return quotient;
}

/* Whether a·b fits in 64 bits. No division is needed where both fit in 32 bits. */
static inline int fits(u64 a, u64 b)
{
	return !((a | b) >> 32) || !a || b <= opaque(~0ull / a);
}

static inline u64 mul_div(u64 a, u64 b, u64 c)
{
	if (!c)
		return ~0ull;
	return fits(a, b) ? a * b / c : mul_div_wide(a, b, c, 0);
}

/* The rate in bit/s; zero over an empty span. */
static inline u64 rate_of(u64 bytes, u64 span)
{
	return span ? mul_div(bytes, BYTE, span) : 0;
}

/* The whole bytes that a rate carries in a span. */
static inline u64 bytes_in(u64 rate, u64 span)
{
	return mul_div(rate, span, BYTE);
}

/* The time that a size takes at a rate, rounded up; all ones at rate zero. */
static inline u64 time_for(u64 rate, u64 bytes)
{
	u64 bits;

	if (!rate)
		return ~0ull;
	if (!fits(bytes, BYTE))
		return mul_div_wide(bytes, BYTE, rate, 1);
	bits = bytes * BYTE;
	return bits / rate + (bits % rate != 0);
}

/* ∛x, rounded down; x below 2^63. */
APART u64 cube_root(u64 x)
{
	u64 root = 0;
	int bit;

	for (bit = 20; bit >= 0; bit--) {
		u64 next = root | 1ull << bit;
		/* One if next³ exceeds x, without a branch, as above. */
		u64 exceeds = opaque((x - next * next * next) >> 63);

		root |= (1ull << bit) & (exceeds - 1);
	}
	return root;
}

#endif
