//! Where a server is, as users write it: `HOST[:PORT][/PATH]`, HOST being a name, an IPv4 address, or an
//! IPv6 address in brackets.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use verus_net::host;

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
        let host: host::Host = text.parse()?;
        // One name for one host, however it is written: known hosts go by it.
        let name = match host.name.split_once('%') {
            Some((address, zone)) => format!("{}%{zone}", uniform(address)),
            None => uniform(&host.name),
        };
        Ok(Host {
            name,
            port: host.port.unwrap_or(DEFAULT_PORT),
        })
    }
}

fn uniform(name: &str) -> String {
    match name.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => name.to_lowercase(),
    }
}

impl Host {
    /// Its addresses, in the order in which to try them.
    ///
    /// # Errors
    /// If it is not found.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, String> {
        let host = host::Host {
            name: self.name.clone(),
            port: Some(self.port),
        };
        host.resolve(self.port, None)
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
            ("[FE80::1%eth0]:5", "[fe80::1%eth0]:5"),
            ("fe80::1%Wan/x", "[fe80::1%Wan]:9488/x"),
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
