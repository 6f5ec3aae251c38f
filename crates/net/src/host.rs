//! `HOST[:PORT]` as people write it, and the addresses behind it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

/// How long the next address of a host waits for the one before (RFC 8305 §5).
pub const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// A server as a user names it: a name, an IPv4 address, or an IPv6 address. An IPv6 address may
/// have a zone (RFC 4007 §11) and is in brackets before a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name or address, without brackets.
    pub name: String,
    /// Its port, if one was given.
    pub port: Option<u16>,
}

/// Which of the two Internets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    fn has(self, address: SocketAddr) -> bool {
        address.is_ipv6() == (self == Family::V6)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, port) = if is_ipv6(text) {
            (text, None)
        } else if let Some(rest) = text.strip_prefix('[') {
            let (name, rest) = rest
                .split_once(']')
                .ok_or("an address in brackets has no closing one")?;
            if !is_ipv6(name) {
                return Err(format!("`{name}` is not an IPv6 address"));
            }
            let port = match rest {
                "" => None,
                _ => Some(rest.strip_prefix(':').ok_or("expected `:PORT` after `]`")?),
            };
            (name, port)
        } else {
            match text.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            }
        };
        let port = port.map(|port| {
            let number = port.parse().ok().filter(|&port| port > 0);
            number.ok_or_else(|| format!("`{port}` is not a port (1 to 65535)"))
        });
        let odd = |c: char| c.is_whitespace() || c.is_control() || c == '#';
        if name.is_empty() {
            return Err("expected HOST[:PORT]".to_owned());
        }
        if name.contains(odd) {
            return Err("the host's name has a space or a control character in it".to_owned());
        }
        Ok(Host {
            name: name.to_owned(),
            port: port.transpose()?,
        })
    }
}

/// Whether it is an IPv6 address, with or without the name of a network interface behind `%`.
fn is_ipv6(text: &str) -> bool {
    let (address, zone) = text
        .split_once('%')
        .map_or((text, None), |(address, zone)| (address, Some(zone)));
    address.parse::<Ipv6Addr>().is_ok()
        && zone.is_none_or(|zone| !zone.is_empty() && !zone.contains([':', '%']))
}

impl Host {
    /// The addresses of the host, of `family` if it is given, in the order in which to try them.
    /// The order is the system's, with IPv6 and IPv4 in turn (RFC 8305 §4).
    ///
    /// # Errors
    /// If the host is not found, or has no such address.
    pub fn resolve(&self, port: u16, family: Option<Family>) -> Result<Vec<SocketAddr>, String> {
        let addresses = (self.name.as_str(), self.port.unwrap_or(port))
            .to_socket_addrs()
            .map_err(|error| format!("cannot find the host `{}`: {error}", self.name))?;
        let addresses =
            addresses.filter(|address| family.is_none_or(|family| family.has(*address)));
        let addresses = in_turn(addresses);
        if addresses.is_empty() {
            let family = family.map_or_else(String::new, |family| format!("{family} "));
            return Err(format!("the host `{}` has no {family}address", self.name));
        }
        Ok(addresses)
    }
}

/// Each address once, one of each family in turn, the first staying the first.
fn in_turn(addresses: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut distinct: Vec<SocketAddr> = Vec::new();
    for address in addresses {
        if !distinct.contains(&address) {
            distinct.push(address);
        }
    }
    let Some(first) = distinct.first().map(SocketAddr::is_ipv6) else {
        return distinct;
    };
    let (ones, others): (Vec<_>, Vec<_>) = distinct
        .iter()
        .partition(|address| address.is_ipv6() == first);
    let turns = ones.len().max(others.len());
    (0..turns)
        .flat_map(|turn| [ones.get(turn), others.get(turn)])
        .flatten()
        .copied()
        .collect()
}

/// An address as people write it: IPv4 that arrived on an IPv6 socket is IPv4.
pub fn shown(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(six) if six.ip().to_ipv4_mapped().is_some() => {
            SocketAddr::new(IpAddr::V6(*six.ip()).to_canonical(), six.port())
        }
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_addresses_and_ports_are_told_apart() {
        let host = |text: &str| {
            let host = Host::from_str(text)?;
            Ok::<_, String>((host.name, host.port))
        };
        let is = |name: &str, port| Ok((name.to_owned(), port));
        assert_eq!(host("example.org"), is("example.org", None));
        assert_eq!(host("example.org:70"), is("example.org", Some(70)));
        assert_eq!(host("::1"), is("::1", None));
        assert_eq!(host("[::1]"), is("::1", None));
        assert_eq!(host("[::1]:70"), is("::1", Some(70)));
        assert_eq!(host("fe80::1%eth0"), is("fe80::1%eth0", None));
        assert_eq!(host("[fe80::1%eth0]"), is("fe80::1%eth0", None));
        assert_eq!(host("[fe80::1%eth0]:70"), is("fe80::1%eth0", Some(70)));
        assert_eq!(host("192.0.2.1:70"), is("192.0.2.1", Some(70)));
        for bad in [
            "",
            ":70",
            "a:0",
            "a:b",
            "[::1",
            "[::1]70",
            "[a]",
            "a b",
            "a:70000",
            "fe80::1%",
            "fe80::1%eth0:70",
            "[fe80::1%]:70",
        ] {
            assert!(host(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn families_take_turns_and_no_address_comes_twice() {
        let addresses = |texts: &str| -> Vec<SocketAddr> {
            texts
                .split(' ')
                .map(|text| text.parse().expect("an address"))
                .collect()
        };
        let addresses_by_family = addresses("[::1]:9 [::2]:9 [::1]:9 [::3]:9 1.2.3.4:9 1.2.3.5:9");
        let interleaved = in_turn(addresses_by_family.into_iter());
        assert_eq!(
            interleaved,
            addresses("[::1]:9 1.2.3.4:9 [::2]:9 1.2.3.5:9 [::3]:9")
        );
        assert_eq!(in_turn(std::iter::empty()), []);
    }

    #[test]
    fn a_zone_becomes_part_of_the_address() {
        let host: Host = "fe80::1%lo".parse().expect("a host");
        // Some machines have no IPv6. With IPv6, the zone of loopback has a number.
        if let Ok(addresses) = host.resolve(9, Some(Family::V6)) {
            let SocketAddr::V6(address) = addresses[0] else {
                panic!("{addresses:?}");
            };
            assert_ne!(address.scope_id(), 0);
        }
        let none = host
            .resolve(9, Some(Family::V4))
            .expect_err("no such address");
        assert!(none.contains("fe80::1%lo"), "{none}");
    }
}
