//! What must be said to the kernel about interfaces, routes and address translation; about the calling
//! thread's network namespace.

use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;

use netlink_bindings::nftables::{self, CmpOps, Nfgenmsg, PayloadBase, Registers, TableFlags};
use netlink_bindings::rt_link::{self, Ifinfomsg};
use netlink_bindings::rt_route::{self, Rtmsg};
use netlink_socket2::{NetlinkSocket, ReplyError};

// <linux/if.h>, <linux/rtnetlink.h>, <linux/socket.h>, <linux/netfilter.h>, <linux/nfnetlink.h>
const IFF_UP: u32 = 1;
const LOOPBACK: i32 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;
const NF_INET_POST_ROUTING: u32 = 4;
const NF_IP_PRI_NAT_SRC: i32 = 100;
const NFNL_SUBSYS_NFTABLES: u16 = 10;

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

/// Everything that has no nearer route goes to the interface `index`.
///
/// # Errors
/// If the kernel refuses.
pub fn default_route(index: u32, ipv6: bool) -> io::Result<()> {
    let header = Rtmsg {
        rtm_family: if ipv6 { AF_INET6 } else { AF_INET },
        rtm_table: RT_TABLE_MAIN,
        rtm_protocol: RTPROT_STATIC,
        rtm_scope: if ipv6 { 0 } else { RT_SCOPE_LINK },
        rtm_type: RTN_UNICAST,
        ..Default::default()
    };
    let mut request = rt_route::Request::new()
        .set_create()
        .op_newroute_do(&header);
    request.encode().push_oif(index);
    acknowledged(NetlinkSocket::new().request(&request)?.recv_ack())
}

/// Whether there is a way to what has no nearer route, by which others than this host can be reached.
///
/// # Errors
/// If the system does not tell.
pub fn has_default_route(ipv6: bool) -> io::Result<bool> {
    let nowhere = |text: &str, columns: [usize; 2], loopback: &str| {
        text.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            columns.iter().all(|&column| {
                words
                    .get(column)
                    .is_some_and(|word| word.bytes().all(|digit| digit == b'0'))
            }) && words.last() != Some(&loopback)
                && words.first() != Some(&loopback)
        })
    };
    Ok(if ipv6 {
        // Destination and prefix length first, the interface last.
        nowhere(
            &fs::read_to_string("/proc/thread-self/net/ipv6_route")?,
            [0, 1],
            "lo",
        )
    } else {
        // The interface first; destination and mask second and eighth.
        nowhere(
            &fs::read_to_string("/proc/thread-self/net/route")?,
            [1, 7],
            "lo",
        )
    })
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

/// Address translation for what comes from one address, as long as this lasts: the kernel takes the table
/// away with the socket that made it, whatever becomes of the process.
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
        let mut socket = NetlinkSocket::new();
        let mut batch = nftables::Chained::new(socket.reserve_seq(8));
        let family = Nfgenmsg {
            nfgen_family: match source {
                IpAddr::V4(_) => AF_INET,
                IpAddr::V6(_) => AF_INET6,
            },
            ..Default::default()
        };
        let mut whole = Nfgenmsg::default();
        whole.set_res_id(NFNL_SUBSYS_NFTABLES);
        batch.request().op_batch_begin_do(&whole);
        batch
            .request()
            .set_create()
            .op_newtable_do(&family)
            .encode()
            .push_name_bytes(table.as_bytes())
            .push_flags(TableFlags::Owner as u32);
        batch
            .request()
            .set_create()
            .op_newchain_do(&family)
            .encode()
            .push_table_bytes(table.as_bytes())
            .push_name_bytes(b"postrouting")
            .nested_hook()
            .push_num(NF_INET_POST_ROUTING)
            .push_priority(NF_IP_PRI_NAT_SRC)
            .end_nested()
            .push_type_bytes(b"nat");
        // ip saddr SOURCE masquerade
        let (offset, address) = match source {
            IpAddr::V4(address) => (12, address.octets().to_vec()),
            IpAddr::V6(address) => (8, address.octets().to_vec()),
        };
        batch
            .request()
            .set_create()
            .set_append()
            .op_newrule_do(&family)
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
            .end_nested()
            .nested_elem()
            .nested_data_cmp()
            .push_sreg(Registers::Reg1 as u32)
            .push_op(CmpOps::Eq as u32)
            .nested_data()
            .push_value(&address)
            .end_nested()
            .end_nested()
            .end_nested()
            .nested_elem()
            .push_name(c"masq")
            .end_nested()
            .end_nested();
        batch.request().op_batch_end_do(&whole);
        let batch = batch.finalize();
        acknowledged(socket.request_chained(&batch)?.recv_all())?;
        Ok(Masquerade { _owner: socket })
    }
}

fn acknowledged(reply: Result<(), ReplyError>) -> io::Result<()> {
    reply.map_err(|error| {
        let cause = error.as_io_error();
        io::Error::new(cause.kind(), format!("{error}"))
    })
}
