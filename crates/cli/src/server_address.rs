//! `HOST[:PORT]` on the command line, and the addresses behind it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// A server as a person names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name or address, without brackets.
    pub name: String,
    /// Its port, if one was given.
    pub port: Option<u16>,
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = |port: &str| {
            port.parse()
                .ok()
                .filter(|&port| port > 0)
                .ok_or_else(|| format!("`{port}` is not a port (1 to 65535)"))
        };
        let (name, port) = if text.parse::<Ipv6Addr>().is_ok() {
            (text, None)
        } else if let Some(rest) = text.strip_prefix('[') {
            let (name, rest) = rest
                .split_once(']')
                .ok_or_else(|| format!("`{text}`: the bracket is not closed"))?;
            let given = match rest {
                "" => None,
                rest => {
                    let given = rest
                        .strip_prefix(':')
                        .ok_or_else(|| format!("`{text}`: expected `:PORT` after the bracket"))?;
                    Some(port(given)?)
                }
            };
            (name, given)
        } else {
            match text.split_once(':') {
                Some((name, given)) => (name, Some(port(given)?)),
                None => (text, None),
            }
        };
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(format!("`{text}` names no host"));
        }
        Ok(Host {
            name: name.to_owned(),
            port,
        })
    }
}

impl Host {
    /// The first address of the host, of the wanted family if one is wanted.
    pub fn resolve(&self, default_port: u16, family: Option<Family>) -> Result<SocketAddr, String> {
        let port = self.port.unwrap_or(default_port);
        let found = (self.name.as_str(), port)
            .to_socket_addrs()
            .map_err(|error| format!("cannot find the host `{}`: {error}", self.name))?;
        let wanted = |address: &SocketAddr| match (family, address.ip()) {
            (None, _) => true,
            (Some(Family::V4), ip) => ip.is_ipv4(),
            (Some(Family::V6), ip) => ip.is_ipv6(),
        };
        found.into_iter().find(wanted).ok_or_else(|| {
            let family = match family {
                Some(Family::V6) => "IPv6 ",
                Some(Family::V4) => "IPv4 ",
                None => "",
            };
            format!("the host `{}` has no {family}address", self.name)
        })
    }
}

/// Which of the two Internets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// An address as people write it: IPv4 that arrived on an IPv6 socket is IPv4.
pub fn shown(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V6(ip) => SocketAddr::new(IpAddr::V6(ip).to_canonical(), address.port()),
        IpAddr::V4(_) => address,
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
        assert_eq!(host("192.0.2.1:70"), is("192.0.2.1", Some(70)));
        for bad in ["", ":70", "a:0", "a:b", "[::1", "[::1]70", "a b", "a:70000"] {
            assert!(host(bad).is_err(), "{bad}");
        }
    }
}
