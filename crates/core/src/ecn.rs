//! Explicit congestion notification: the two bits of the IP header by which a queue says that it is full without dropping
//! anything (RFC 3168 §5; RFC 9331 §4 for what ECT(1) asks of a queue).
//!
//! A sender says with each packet that it answers marks; a queue turns that into [`Ecn::Ce`] where it would have dropped the
//! packet; the receiver counts such packets and says with each acknowledgement how many there were; the controller hears of it as
//! [`Feedback::marked`](crate::Feedback::marked).

/// A code point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// The sender does not answer marks: a queue drops instead.
    #[default]
    NotEct = 0b00,
    /// The sender answers many marks a little each, and is to have low latency (L4S, RFC 9331).
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

    /// Those bits.
    #[inline]
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// Whether a queue may mark the packet rather than drop it.
    #[inline]
    pub const fn is_capable(self) -> bool {
        !matches!(self, Ecn::NotEct)
    }

    /// Whether the packet is for the queue of low latency, which takes the odd ones: ECT(1), and CE, whose origin nobody
    /// knows (RFC 9331 §5.1).
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
