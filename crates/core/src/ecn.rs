//! Explicit congestion notification: the two bits of the IP header by which a queue signals
//! congestion without dropping packets (RFC 3168 §5). RFC 9331 §4 defines a queue's duty under
//! ECT(1).
//!
//! A sender sets ECT(0) or ECT(1) on packets to say that it answers marks. A queue marks such a
//! packet [`Ecn::Ce`] where it would have dropped it. The receiver counts marked packets and
//! reports the count with each acknowledgement; the controller gets it as
//! [`Feedback::marked`](crate::Feedback::marked).

/// A code point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// The sender does not answer marks: a queue drops instead.
    #[default]
    NotEct = 0b00,
    /// The sender answers frequent marks with a small reduction each, and asks for low latency (L4S, RFC 9331).
    Ect1 = 0b01,
    /// The sender answers a mark as it would a loss (RFC 3168).
    Ect0 = 0b10,
    /// A queue marked the packet.
    Ce = 0b11,
}

impl Ecn {
    /// The code point in the two lowest bits of an IPv4 header's second byte or an IPv6 header's traffic class.
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0b00 => Ecn::NotEct,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// The two bits of this code point.
    #[inline]
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// Whether a queue may mark the packet rather than drop it.
    #[inline]
    pub const fn is_capable(self) -> bool {
        !matches!(self, Ecn::NotEct)
    }

    /// Whether the packet belongs in the low-latency queue: ECT(1), and CE, since a mark hides which code point the
    /// sender set (RFC 9331 §5.1).
    #[inline]
    pub const fn is_l4s(self) -> bool {
        self.bits() & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points_are_those_of_rfc_3168() {
        let all = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce];
        for (bits, ecn) in (0u8..).zip(all) {
            assert_eq!(ecn.bits(), bits);
            assert_eq!(Ecn::from_bits(0b1011_1000 | bits), ecn);
        }
        assert_eq!(all.map(Ecn::is_capable), [false, true, true, true]);
        assert_eq!(all.map(Ecn::is_l4s), [false, true, false, true]);
    }
}
