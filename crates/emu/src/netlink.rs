//! Requests to the kernel about interfaces, routes and address translation, in the calling thread's
//! network namespace.

use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;

use netlink_bindings::nftables::{
    self, CmpOps, CtKeys, MetaKeys, Nfgenmsg, PayloadBase, PushExprListAttrs, Registers,
    TableFlags, VerdictCode,
};
use netlink_bindings::rt_link::{self, Ifinfomsg};
use netlink_bindings::rt_route::{self, Rtmsg};
use netlink_bindings::traits::Pusher;
use netlink_socket2::{NetlinkSocket, ReplyError};

// <linux/if.h>, <linux/rtnetlink.h>, <linux/socket.h>, <linux/netfilter.h>, <linux/nfnetlink.h>
const IFF_UP: u32 = 1;
const LOOPBACK: i32 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;
const NF_INET_FORWARD: u32 = 2;
const NF_INET_POST_ROUTING: u32 = 4;
const NF_IP_PRI_FILTER: i32 = 0;
const NF_IP_PRI_NAT_SRC: i32 = 100;
const NFNL_SUBSYS_NFTABLES: u16 = 10;
/// The chain for forwarded packets, and sequence numbers for the largest number of rules.
const FORWARD: &[u8] = b"forward";
const REQUESTS: u32 = 1 << 16;

/// A version of the Internet protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The kernel's number for it.
    const fn number(self) -> u8 {
        match self {
            Family::V4 => AF_INET,
            Family::V6 => AF_INET6,
        }
    }
}

impl From<IpAddr> for Family {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }
}

/// Switches the loopback interface on, which a new namespace has switched off.
///
/// # Errors
/// If the kernel refuses.
pub fn loopback_up() -> io::Result<()> {
    let header = Ifinfomsg {
        ifi_index: LOOPBACK,
        ifi_flags: IFF_UP,
        ifi_change: IFF_UP,
        ..Default::default()
    };
    let request = rt_link::Request::new().op_setlink_do(&header);
    acknowledged(NetlinkSocket::new().request(&request)?.recv_ack())
}

/// The interface `index` holds so many packets that are to leave by it.
///
/// # Errors
/// If the kernel refuses.
pub fn set_queue_length(index: u32, packets: u32) -> io::Result<()> {
    let header = Ifinfomsg {
        ifi_index: index.cast_signed(),
        ..Default::default()
    };
    let mut request = rt_link::Request::new().op_setlink_do(&header);
    request.encode().push_txqlen(packets);
    acknowledged(NetlinkSocket::new().request(&request)?.recv_ack())
}

/// Everything of `family` that has no nearer route goes to the interface `index`.
///
/// # Errors
/// If the kernel refuses.
pub fn default_route(index: u32, family: Family) -> io::Result<()> {
    let header = Rtmsg {
        rtm_family: family.number(),
        rtm_table: RT_TABLE_MAIN,
        rtm_protocol: RTPROT_STATIC,
        rtm_scope: match family {
            Family::V4 => RT_SCOPE_LINK,
            Family::V6 => RT_SCOPE_UNIVERSE,
        },
        rtm_type: RTN_UNICAST,
        ..Default::default()
    };
    let mut request = rt_route::Request::new()
        .set_create()
        .op_newroute_do(&header);
    request.encode().push_oif(index);
    acknowledged(NetlinkSocket::new().request(&request)?.recv_ack())
}

/// Whether there is an IPv6 default route, by which other hosts can be reached.
///
/// # Errors
/// If the system does not report its routes.
pub fn has_ipv6_default_route() -> io::Result<bool> {
    // Destination and prefix length first, the interface last.
    let routes = fs::read_to_string("/proc/thread-self/net/ipv6_route")?;
    Ok(routes.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_zero = |word: &&str| word.bytes().all(|digit| digit == b'0');
        words.len() > 2 && words.iter().take(2).all(is_zero) && words.last() != Some(&"lo")
    }))
}

/// Packets that the kernel dropped at the interface `name`, in both directions together.
///
/// # Errors
/// If the system does not tell.
pub fn device_drops(name: &str) -> io::Result<u64> {
    let table = fs::read_to_string("/proc/thread-self/net/dev")?;
    let row = table.lines().find_map(|line| {
        let (device, row) = line.split_once(':')?;
        (device.trim() == name).then(|| row.split_whitespace())
    });
    // Received: bytes packets errs drop …; sent likewise, from the ninth on.
    let columns: Vec<u64> = row
        .into_iter()
        .flatten()
        .map_while(|column| column.parse().ok())
        .collect();
    match columns[..] {
        [_, _, _, received, _, _, _, _, _, _, _, sent, ..] => Ok(received + sent),
        _ => Err(io::Error::other(format!("no counters of `{name}`"))),
    }
}

/// Address translation for packets from one address, as long as this lasts. The kernel removes the
/// table with the socket that made it, however the process ends.
pub struct Masquerade {
    _owner: NetlinkSocket,
}

impl fmt::Debug for Masquerade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Masquerade").finish_non_exhaustive()
    }
}

impl Masquerade {
    /// Packets from `source` leave with the address of the interface that they leave by. `table` names
    /// the table that says so.
    ///
    /// # Errors
    /// If the kernel has no nftables, or refuses.
    pub fn new(table: &str, source: IpAddr) -> io::Result<Self> {
        let family = Nfgenmsg {
            nfgen_family: Family::from(source).number(),
            ..Default::default()
        };
        let hook = Hook {
            chain: b"postrouting",
            kind: b"nat",
            number: NF_INET_POST_ROUTING,
            priority: NF_IP_PRI_NAT_SRC,
        };
        // ip saddr SOURCE masquerade
        let (offset, address) = match source {
            IpAddr::V4(address) => (12, address.octets().to_vec()),
            IpAddr::V6(address) => (8, address.octets().to_vec()),
        };
        let owner = own_table(table, &family, &hook, |batch| {
            let mut rule = batch
                .request()
                .set_create()
                .set_append()
                .op_newrule_do(&family);
            let expressions = rule
                .encode()
                .push_table_bytes(table.as_bytes())
                .push_chain_bytes(b"postrouting")
                .nested_expressions()
                .nested_elem()
                .nested_data_payload()
                .push_dreg(Registers::Reg1 as u32)
                .push_base(PayloadBase::NetworkHeader as u32)
                .push_offset(offset)
                .push_len(address.len() as u32)
                .end_nested()
                .end_nested();
            compare(expressions, CmpOps::Eq, &address)
                .nested_elem()
                .push_name(c"masq")
                .end_nested()
                .end_nested();
        })?;
        Ok(Masquerade { _owner: owner })
    }
}

/// Keeps the host from forwarding anything but to and from emulated paths, where it forwards only for them; as long
/// as [`Masquerade`] lasts.
pub struct Confinement {
    _owner: NetlinkSocket,
}

impl fmt::Debug for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Confinement").finish_non_exhaustive()
    }
}

/// Origin of packets that arrive at this host.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// By the one of this name.
    Interface(&'a str),
    /// By any but those whose names begin so.
    AnyBut(&'a str),
}

impl Confinement {
    /// Confines packets of `family` from each of `sources` to interfaces whose names begin with
    /// `paths`, and to connections that began there. `table` is the name of the nftables table with
    /// these rules.
    ///
    /// # Errors
    /// If the kernel has no nftables, or refuses.
    pub fn new(
        table: &str,
        family: Family,
        sources: &[Source<'_>],
        paths: &str,
    ) -> io::Result<Self> {
        let family = Nfgenmsg {
            nfgen_family: family.number(),
            ..Default::default()
        };
        let hook = Hook {
            chain: FORWARD,
            kind: b"filter",
            number: NF_INET_FORWARD,
            priority: NF_IP_PRI_FILTER,
        };
        let owner = own_table(table, &family, &hook, |batch| {
            for &source in sources {
                elsewhere(batch, &family, table, source, paths);
                unasked(batch, &family, table, source);
            }
        })?;
        Ok(Confinement { _owner: owner })
    }
}

/// `iifname SOURCE oifname != PATHS* drop`
fn elsewhere(
    batch: &mut nftables::Chained<'_>,
    family: &Nfgenmsg,
    table: &str,
    source: Source<'_>,
    paths: &str,
) {
    let mut rule = batch
        .request()
        .set_create()
        .set_append()
        .op_newrule_do(family);
    let expressions = rule
        .encode()
        .push_table_bytes(table.as_bytes())
        .push_chain_bytes(FORWARD)
        .nested_expressions();
    let (op, name) = source.compared();
    let expressions = compare_name(expressions, MetaKeys::Iifname, op, &name);
    let expressions = compare_name(
        expressions,
        MetaKeys::Oifname,
        CmpOps::Neq,
        paths.as_bytes(),
    );
    drop_it(expressions).end_nested();
}

/// `iifname SOURCE ct state & (established | related) == 0 drop`
fn unasked(batch: &mut nftables::Chained<'_>, family: &Nfgenmsg, table: &str, source: Source<'_>) {
    // <linux/netfilter/nf_conntrack_common.h>
    const ESTABLISHED_OR_RELATED: u32 = 1 << 1 | 1 << 2;
    let mut rule = batch
        .request()
        .set_create()
        .set_append()
        .op_newrule_do(family);
    let expressions = rule
        .encode()
        .push_table_bytes(table.as_bytes())
        .push_chain_bytes(FORWARD)
        .nested_expressions();
    let (op, name) = source.compared();
    let expressions = compare_name(expressions, MetaKeys::Iifname, op, &name)
        .nested_elem()
        .nested_data_ct()
        .push_dreg(Registers::Reg1 as u32)
        .push_key(CtKeys::State as u32)
        .end_nested()
        .end_nested()
        .nested_elem()
        .nested_data_bitwise()
        .push_sreg(Registers::Reg1 as u32)
        .push_dreg(Registers::Reg1 as u32)
        .push_len(4)
        .nested_mask()
        .push_value(&ESTABLISHED_OR_RELATED.to_ne_bytes())
        .end_nested()
        .nested_xor()
        .push_value(&[0; 4])
        .end_nested()
        .end_nested()
        .end_nested();
    let expressions = compare(expressions, CmpOps::Eq, &[0; 4]);
    drop_it(expressions).end_nested();
}

/// Goes on if the name of the packet's interface `which` compares so.
fn compare_name<P: Pusher>(
    expressions: PushExprListAttrs<P>,
    which: MetaKeys,
    op: CmpOps,
    name: &[u8],
) -> PushExprListAttrs<P> {
    let expressions = expressions
        .nested_elem()
        .nested_data_meta()
        .push_dreg(Registers::Reg1 as u32)
        .push_key(which as u32)
        .end_nested()
        .end_nested();
    compare(expressions, op, name)
}

/// Continues if the value loaded last compares so with `value`.
fn compare<P: Pusher>(
    expressions: PushExprListAttrs<P>,
    op: CmpOps,
    value: &[u8],
) -> PushExprListAttrs<P> {
    expressions
        .nested_elem()
        .nested_data_cmp()
        .push_sreg(Registers::Reg1 as u32)
        .push_op(op as u32)
        .nested_data()
        .push_value(value)
        .end_nested()
        .end_nested()
        .end_nested()
}

fn drop_it<P: Pusher>(expressions: PushExprListAttrs<P>) -> PushExprListAttrs<P> {
    expressions
        .nested_elem()
        .nested_data_immediate()
        .push_dreg(Registers::RegVerdict as u32)
        .nested_data()
        .nested_verdict()
        .push_code(VerdictCode::Drop as u32)
        .end_nested()
        .end_nested()
        .end_nested()
        .end_nested()
}

impl Source<'_> {
    /// How an interface's name is compared, and with what: a whole name ends with a zero.
    fn compared(self) -> (CmpOps, Vec<u8>) {
        match self {
            Source::Interface(name) => (CmpOps::Eq, [name.as_bytes(), b"\0"].concat()),
            Source::AnyBut(prefix) => (CmpOps::Neq, prefix.as_bytes().to_vec()),
        }
    }
}

/// Where packets meet a chain of rules.
struct Hook {
    chain: &'static [u8],
    kind: &'static [u8],
    number: u32,
    priority: i32,
}

/// Makes a table with one chain that `rules` fills. The socket owns it.
fn own_table(
    table: &str,
    family: &Nfgenmsg,
    hook: &Hook,
    rules: impl FnOnce(&mut nftables::Chained<'_>),
) -> io::Result<NetlinkSocket> {
    let mut socket = NetlinkSocket::new();
    let mut batch = nftables::Chained::new(socket.reserve_seq(REQUESTS));
    let mut whole = Nfgenmsg::default();
    whole.set_res_id(NFNL_SUBSYS_NFTABLES);
    batch.request().op_batch_begin_do(&whole);
    batch
        .request()
        .set_create()
        .op_newtable_do(family)
        .encode()
        .push_name_bytes(table.as_bytes())
        .push_flags(TableFlags::Owner as u32);
    batch
        .request()
        .set_create()
        .op_newchain_do(family)
        .encode()
        .push_table_bytes(table.as_bytes())
        .push_name_bytes(hook.chain)
        .nested_hook()
        .push_num(hook.number)
        .push_priority(hook.priority)
        .end_nested()
        .push_type_bytes(hook.kind);
    rules(&mut batch);
    batch.request().op_batch_end_do(&whole);
    let batch = batch.finalize();
    acknowledged(socket.request_chained(&batch)?.recv_all())?;
    Ok(socket)
}

fn acknowledged(reply: Result<(), ReplyError>) -> io::Result<()> {
    reply.map_err(|error| {
        let cause = error.as_io_error();
        io::Error::new(cause.kind(), format!("{error}"))
    })
}
