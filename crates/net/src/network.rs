//! The network of an address, which limits per user count by.

use std::net::IpAddr;

/// An IPv4 address, which a household or more share, or the 64 bits that an IPv6 subscriber has at least (RFC 6177).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network(u128);

impl Network {
    /// The network of `address`.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            // No IPv6 network in use is all zeros in its first half.
            IpAddr::V4(ip) => Network(u128::from(ip.to_bits())),
            IpAddr::V6(ip) => Network(ip.to_bits() >> 64 << 64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_a_64_and_a_mapped_address_is_ipv4() {
        let of = |text: &str| Network::of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::2"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.7"), of("192.0.2.7"));
        assert_ne!(of("192.0.2.7"), of("192.0.2.8"));
    }
}
