//! Reads flows out: an iterator over the sockets of this network namespace, in the kernel.

use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::time::Duration;

use libbpf_rs::{Iter, IterOpts, Link, MapHandle, Object};

use crate::{Error, Flow, Loaded};

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/flows.bpf.o"));

/// `struct record` of `flow.h`.
const RECORD: usize = 160;
/// `enum forward_phase` of `forward.h`.
const PHASES: [&str; 4] = ["slow_start", "steady", "drain", "silent"];
const AF_INET6: u16 = 10;

/// Reads the flows of one congestion control.
#[derive(Debug)]
pub struct Reader {
    link: Link,
    _object: Object,
}

impl Reader {
    /// A reader of those flows of `loaded` that are in this network namespace.
    ///
    /// # Errors
    /// If the kernel does not accept the program, or its maps no longer exist.
    pub fn new(loaded: &Loaded) -> Result<Self, Error> {
        Self::open(loaded).map_err(|error| Error::Kernel {
            doing: format!("the flows of `{}` cannot be read", loaded.config.name),
            why: format!("{error:#}"),
        })
    }

    fn open(loaded: &Loaded) -> libbpf_rs::Result<Self> {
        let flows = MapHandle::from_map_id(loaded.flows)?;
        let mut open = crate::loaded::open(PROGRAM)?;
        for mut map in open.maps_mut() {
            if map.name() == "flows" {
                map.reuse_fd(flows.as_fd())?;
            }
        }
        let object = open.load()?;
        let program = object.progs_mut().next().expect("flows.bpf.c has one");
        let link = program.attach_iter_with_opts(IterOpts::None)?;
        Ok(Reader {
            link,
            _object: object,
        })
    }

    /// The flows, now.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn read(&self) -> Result<Vec<Flow>, Error> {
        let failed = |why: String| Error::Kernel {
            doing: "the flows cannot be read".to_owned(),
            why,
        };
        let mut bytes = Vec::new();
        let mut iter = Iter::new(&self.link).map_err(|error| failed(error.to_string()))?;
        iter.read_to_end(&mut bytes)
            .map_err(|error| failed(error.to_string()))?;
        Ok(bytes.chunks_exact(RECORD).map(flow).collect())
    }
}

/// A record, field by field in its order.
fn flow(record: &[u8]) -> Flow {
    let mut rest = record;
    let mut take = |bytes: usize| {
        let (taken, left) = rest.split_at(bytes);
        rest = left;
        taken
    };
    let (local, remote): ([u8; 16], [u8; 16]) = (
        take(16).try_into().expect("16 bytes"),
        take(16).try_into().expect("16 bytes"),
    );
    let mut long = || u64::from_ne_bytes(take(8).try_into().expect("8 bytes"));
    let [
        at,
        acked,
        rate,
        pace,
        window,
        base,
        queue,
        target,
        smoothed_rtt,
        packet,
        rtt,
    ] = std::array::from_fn(|_| long());
    let mut word = || u32::from_ne_bytes(take(4).try_into().expect("4 bytes"));
    let [in_flight, sent, resent, lost, delivered, timeouts, share] =
        std::array::from_fn(|_| word());
    let mut short = || u16::from_ne_bytes(take(2).try_into().expect("2 bytes"));
    let [local_port, remote_port, family, headers] = std::array::from_fn(|_| short());
    let phase = take(1)[0];
    let address = |bytes: [u8; 16], port| {
        let v6 = Ipv6Addr::from(bytes);
        let ip = match (family, v6.to_ipv4_mapped()) {
            (AF_INET6, None) => IpAddr::V6(v6),
            (AF_INET6, Some(v4)) => IpAddr::V4(v4),
            _ => IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])),
        };
        SocketAddr::new(ip, port)
    };
    Flow {
        local: address(local, local_port),
        remote: address(remote, remote_port),
        at: Duration::from_nanos(at),
        acked_bytes: acked,
        rate_bps: rate,
        pace_bps: pace,
        window_bytes: window,
        base: Duration::from_nanos(base),
        queue: Duration::from_nanos(queue),
        target: Duration::from_nanos(target),
        smoothed_rtt: Duration::from_nanos(smoothed_rtt),
        newest_rtt: Duration::from_nanos(rtt),
        packet_bytes: packet,
        header_bytes: headers,
        in_flight_packets: in_flight,
        sent_packets: sent,
        resent_packets: resent,
        lost_packets: lost,
        delivered_packets: delivered,
        timeouts,
        loss_share: f64::from(share) / 65536.0,
        phase: PHASES[usize::from(phase) % PHASES.len()],
    }
}
