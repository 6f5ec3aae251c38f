//! Where a server is, as users write it: `HOST[:PORT][/PATH]`, HOST being a name, an IPv4 address, or an
//! IPv6 address in brackets.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use super::DEFAULT_PORT;
use super::paths::RelativePath;

/// A server, and a path on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The server.
    pub host: Host,
    /// The path, below the folder that it serves.
    pub path: RelativePath,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name or address, without brackets.
    pub name: String,
    /// Its UDP port.
    pub port: u16,
}

impl fmt::Display for Host {
    /// Also its name in the file of known hosts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.host)?;
        if !self.path.is_empty() {
            write!(f, "/{}", self.path)?;
        }
        Ok(())
    }
}

impl FromStr for Remote {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, path) = text.split_once('/').unwrap_or((text, ""));
        let host = host
            .parse()
            .map_err(|problem: String| format!("`{text}`: {problem}"))?;
        let path = RelativePath::parse(path.trim_end_matches('/').as_bytes())
            .map_err(|refusal| format!("`{text}`: {refusal}"))?;
        Ok(Remote { host, path })
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Ok(Host {
                name: address.to_string(),
                port: DEFAULT_PORT,
            });
        }
        let (name, port) = if let Some(rest) = text.strip_prefix('[') {
            let (name, rest) = rest
                .split_once(']')
                .ok_or("an address in brackets has no closing one")?;
            let address = name.split_once('%').map_or(name, |(address, _)| address);
            if address.parse::<Ipv6Addr>().is_err() {
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
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => port
                .parse()
                .ok()
                .filter(|&port| port > 0)
                .ok_or_else(|| format!("`{port}` is not a port (1 to 65535)"))?,
        };
        let odd = |c: char| c.is_whitespace() || c.is_control() || c == '#';
        if name.is_empty() {
            return Err("expected HOST[:PORT][/PATH]".to_owned());
        }
        if name.contains(odd) {
            return Err("the host's name has a space or a control character in it".to_owned());
        }
        // One name for one host, however it is written: known hosts go by it.
        let name = match name.parse::<IpAddr>() {
            Ok(address) => address.to_string(),
            Err(_) => name.to_lowercase(),
        };
        Ok(Host { name, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_as_people_write_them() {
        for (text, shown) in [
            ("Example.org", "example.org:9488"),
            ("example.org:77/a/b", "example.org:77/a/b"),
            ("192.0.2.1/a/", "192.0.2.1:9488/a"),
            ("[2001:DB8::1]:5/x", "[2001:db8::1]:5/x"),
            ("[::1]", "[::1]:9488"),
            ("::1/x", "[::1]:9488/x"),
            ("[fe80::1%eth0]:5", "[fe80::1%eth0]:5"),
            ("host/", "host:9488"),
        ] {
            let remote: Remote = text.parse().expect(text);
            assert_eq!(remote.to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_host_is_refused_with_the_reason() {
        for (text, part) in [
            ("", "expected HOST"),
            (":5", "expected HOST"),
            ("host:0", "not a port"),
            ("host:x/y", "not a port"),
            ("host:70000", "not a port"),
            ("[::1", "closing"),
            ("[x]:5", "not an IPv6"),
            ("[::1]5", "after `]`"),
            ("a b", "space"),
            ("host/../x", "`..`"),
            ("host//x", "absolute"),
            ("host/a//x", "empty name"),
        ] {
            let error = text.parse::<Remote>().expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
