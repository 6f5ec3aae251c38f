//! Time, sizes and rates, each with its unit in its type.
//!
//! Everything is an integer, so that the same run gives the same bytes on every machine. Time is in
//! nanoseconds since the run began, sizes are in bytes, rates in bits per second.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

use serde::{Deserialize, Serialize};

/// An instant: nanoseconds since the caller's clock began. Callers supply it; the core never asks
/// what time it is.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(u64);

/// A span of time in nanoseconds. `std::time::Duration` keeps seconds and nanoseconds apart, which
/// costs a division on arithmetic that happens for every packet.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Duration(u64);

/// A number of bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(u64);

/// A data rate in bits per second.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(u64);

const NANOS_PER_SEC: u64 = 1_000_000_000;
const NANOS_PER_MILLI: u64 = 1_000_000;
const NANOS_PER_MICRO: u64 = 1_000;

/// a·b ÷ c, rounded down; saturates. A division of 128 bits takes ten times as long as one of 64,
/// and is rarely needed.
#[inline]
fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).unwrap_or(u64::MAX),
    }
}

impl Time {
    /// The instant at which the clock began.
    pub const ZERO: Time = Time(0);
    /// Later than any event.
    pub const MAX: Time = Time(u64::MAX);

    /// The instant `nanos` ns after the clock began.
    pub const fn from_nanos(nanos: u64) -> Self {
        Time(nanos)
    }

    /// The instant `millis` ms after the clock began; saturates at [`Time::MAX`].
    pub const fn from_millis(millis: u64) -> Self {
        Time(millis.saturating_mul(NANOS_PER_MILLI))
    }

    /// The instant `secs` seconds after the clock began (rounded to the nanosecond; negative and
    /// not-a-number become zero).
    pub fn from_secs_f64(secs: f64) -> Self {
        Time(Duration::from_secs_f64(secs).0)
    }

    /// Nanoseconds since the clock began.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the clock began, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / NANOS_PER_MILLI
    }

    /// Milliseconds since the clock began, with their fraction.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_MILLI as f64
    }

    /// Seconds since the clock began.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC as f64
    }

    /// The time since `earlier`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Duration = Duration(0);
    /// Longer than any run.
    pub const MAX: Duration = Duration(u64::MAX);

    /// A span of `nanos` ns.
    pub const fn from_nanos(nanos: u64) -> Self {
        Duration(nanos)
    }

    /// A span of `micros` µs.
    pub const fn from_micros(micros: u64) -> Self {
        Duration(micros * NANOS_PER_MICRO)
    }

    /// A span of `millis` ms.
    pub const fn from_millis(millis: u64) -> Self {
        Duration(millis.saturating_mul(NANOS_PER_MILLI))
    }

    /// A span of `secs` s.
    pub const fn from_secs(secs: u64) -> Self {
        Duration(secs.saturating_mul(NANOS_PER_SEC))
    }

    /// A span of `millis` ms with their fraction (rounded to the nanosecond; negative and
    /// not-a-number become zero).
    pub fn from_millis_f64(millis: f64) -> Self {
        Duration((millis * NANOS_PER_MILLI as f64 + 0.5) as u64)
    }

    /// A span of `secs` s with their fraction (rounded to the nanosecond; negative and
    /// not-a-number become zero).
    pub fn from_secs_f64(secs: f64) -> Self {
        Duration((secs * NANOS_PER_SEC as f64 + 0.5) as u64)
    }

    /// The span in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span in whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / NANOS_PER_MICRO
    }

    /// The span in milliseconds, with their fraction.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_MILLI as f64
    }

    /// The span in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC as f64
    }

    /// The span scaled by `factor` (negative and not-a-number give zero).
    pub fn mul_f64(self, factor: f64) -> Self {
        Duration((self.0 as f64 * factor + 0.5) as u64)
    }

    /// The difference, or zero if `other` is longer.
    pub const fn saturating_sub(self, other: Duration) -> Self {
        Duration(self.0.saturating_sub(other.0))
    }

    /// Whether the span is empty.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// How far apart two spans are.
    pub const fn abs_diff(self, other: Duration) -> Self {
        Duration(self.0.abs_diff(other.0))
    }
}

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);
    /// More bytes than any window.
    pub const MAX: Bytes = Bytes(u64::MAX);

    /// A size of `bytes` bytes.
    pub const fn new(bytes: u64) -> Self {
        Bytes(bytes)
    }

    /// The size as a plain number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The size as a floating-point number.
    pub const fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// A size from a floating-point number, rounded down (negative and not-a-number become zero).
    pub fn from_f64(bytes: f64) -> Self {
        Bytes(bytes as u64)
    }

    /// The difference, or zero if `other` is larger.
    pub const fn saturating_sub(self, other: Bytes) -> Self {
        Bytes(self.0.saturating_sub(other.0))
    }

    /// The size scaled by `factor`, rounded down (negative and not-a-number give zero).
    pub fn mul_f64(self, factor: f64) -> Self {
        Bytes((self.0 as f64 * factor) as u64)
    }

    /// Whether there are none.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Rate {
    /// A rate of `bits` bit/s.
    pub const fn from_bps(bits: u64) -> Self {
        Rate(bits)
    }

    /// A rate of `mbps` Mbit/s (negative and not-a-number become zero).
    pub fn from_mbps(mbps: f64) -> Self {
        Rate((mbps * 1e6).round() as u64)
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Megabits per second.
    pub fn as_mbps(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The rate scaled by `factor`, rounded down (negative and not-a-number give zero).
    pub fn mul_f64(self, factor: f64) -> Self {
        Rate((self.0 as f64 * factor) as u64)
    }

    /// How long `size` takes at this rate, rounded up to the nanosecond; [`Duration::MAX`] at
    /// rate zero.
    pub fn time_for(self, size: Bytes) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        if let Some(bits) = size.0.checked_mul(8 * NANOS_PER_SEC) {
            return Duration(bits.div_ceil(self.0));
        }
        let bits = size.0 as u128 * 8 * NANOS_PER_SEC as u128;
        Duration(u64::try_from(bits.div_ceil(self.0 as u128)).unwrap_or(u64::MAX))
    }

    /// The whole bytes that this rate carries in `span`, rounded down.
    pub fn bytes_in(self, span: Duration) -> Bytes {
        Bytes(mul_div(self.0, span.0, 8 * NANOS_PER_SEC))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, span: Duration) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    /// Saturates at [`Time::ZERO`].
    fn sub(self, span: Duration) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl Sub for Time {
    type Output = Duration;
    /// Panics in debug builds if `earlier` is later; [`Time::since`] saturates instead.
    fn sub(self, earlier: Time) -> Duration {
        Duration(self.0 - earlier.0)
    }
}

impl From<std::time::Duration> for Duration {
    fn from(span: std::time::Duration) -> Self {
        Duration(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Duration> for std::time::Duration {
    fn from(span: Duration) -> Self {
        std::time::Duration::from_nanos(span.0)
    }
}

impl Add for Duration {
    type Output = Duration;
    fn add(self, other: Duration) -> Duration {
        Duration(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Duration) {
        *self = *self + other;
    }
}

impl Sub for Duration {
    type Output = Duration;
    fn sub(self, other: Duration) -> Duration {
        Duration(self.0 - other.0)
    }
}

impl Mul<u64> for Duration {
    type Output = Duration;
    fn mul(self, factor: u64) -> Duration {
        Duration(self.0.saturating_mul(factor))
    }
}

impl Div<u64> for Duration {
    type Output = Duration;
    fn div(self, divisor: u64) -> Duration {
        Duration(self.0 / divisor)
    }
}

impl Div for Duration {
    type Output = f64;
    fn div(self, other: Duration) -> f64 {
        self.0 as f64 / other.0 as f64
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0 + other.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        self.0 += other.0;
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0 - other.0)
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Bytes) {
        self.0 -= other.0;
    }
}

impl Mul<u64> for Bytes {
    type Output = Bytes;
    fn mul(self, factor: u64) -> Bytes {
        Bytes(self.0.saturating_mul(factor))
    }
}

impl Div<u64> for Bytes {
    type Output = Bytes;
    fn div(self, divisor: u64) -> Bytes {
        Bytes(self.0 / divisor)
    }
}

impl Div for Bytes {
    type Output = f64;
    fn div(self, other: Bytes) -> f64 {
        self.0 as f64 / other.0 as f64
    }
}

impl Div<Duration> for Bytes {
    type Output = Rate;
    /// Zero over an empty span.
    fn div(self, span: Duration) -> Rate {
        if span.0 == 0 {
            return Rate(0);
        }
        Rate(mul_div(self.0, 8 * NANOS_PER_SEC, span.0))
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Add::add)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.as_millis_f64())
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.as_millis_f64())
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B", self.0)
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}Mbit/s", self.as_mbps())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_takes_its_bits_over_the_rate() {
        let rate = Rate::from_mbps(12.0);
        assert_eq!(rate.time_for(Bytes::new(1500)), Duration::from_millis(1));
        assert_eq!(rate.bytes_in(Duration::from_millis(1)), Bytes::new(1500));
        assert_eq!(Rate::from_bps(0).time_for(Bytes::new(1)), Duration::MAX);
    }

    #[test]
    fn products_of_more_than_64_bits_are_divided_alike() {
        // 2^61 bytes are 2^64 bits; at 2^40 bit/s, 2^24 s.
        let (size, rate) = (Bytes::new(1 << 61), Rate::from_bps(1 << 40));
        let span = Duration::from_secs(1 << 24);
        assert_eq!(rate.time_for(size), span);
        assert_eq!(rate.bytes_in(span), size);
        assert_eq!(size / span, rate);
        assert_eq!(Rate::from_bps(1).time_for(size), Duration::MAX);
    }

    #[test]
    fn bytes_over_time_is_a_rate() {
        assert_eq!(
            Bytes::new(1500) / Duration::from_millis(1),
            Rate::from_mbps(12.0)
        );
        assert_eq!(Bytes::new(1500) / Duration::ZERO, Rate::from_bps(0));
    }

    #[test]
    fn out_of_range_floats_become_zero() {
        assert_eq!(Duration::from_millis_f64(-1.0), Duration::ZERO);
        assert_eq!(Duration::from_millis_f64(f64::NAN), Duration::ZERO);
        assert_eq!(Bytes::from_f64(-1.0), Bytes::ZERO);
    }
}
