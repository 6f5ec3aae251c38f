//! A TUN device: packets of one network namespace, as bytes.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

use tun_rs::{DeviceBuilder, SyncDevice};

use crate::packet::{HEADROOM, Packet};
use crate::{footprint, netlink};

/// Most packets that one read may yield: the kernel joins at most 64 KiB, or 128 datagrams.
const SEGMENTS: usize = 256;
/// Most bytes that one read may yield: the most that the kernel joins, and its header.
const JOINED_BYTES: usize = (1 << 16) + HEADROOM;
/// Packets that the device holds until they are read: 12 ms at 10 Gbit/s. More are dropped, and counted
/// ([`crate::netlink::device_drops`]).
const QUEUE_PACKETS: u32 = 10_000;

/// The least MTU with which the kernel lets a device have IPv6 (RFC 8200, section 5).
pub const IPV6_LEAST_MTU: u16 = 1280;

/// The most buffers that wait to be used again: more than a long queue gives back at once.
const MOST_SPARE: usize = 1 << 14;

/// Name and addresses of a device.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Its name.
    pub name: String,
    /// Its address, and that of the far end, in a network of both (/30).
    pub ipv4: Ipv4Addr,
    /// The same for IPv6 (/126), where the system supports it; it takes an `mtu` of
    /// [`IPV6_LEAST_MTU`].
    pub ipv6: Option<Ipv6Addr>,
    /// Largest packet in bytes.
    pub mtu: u16,
}

/// A TUN device, which is gone when this is dropped.
pub struct Device {
    tun: SyncDevice,
    joined: Box<[u8]>,
    split: Vec<Box<[u8]>>,
    sizes: Vec<usize>,
    spare: Vec<Box<[u8]>>,
    packet_bytes: usize,
    unreadable: u64,
    unwritable: u64,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").finish_non_exhaustive()
    }
}

impl Device {
    /// Makes the device in the calling thread's network namespace.
    ///
    /// # Errors
    /// If the system does not grant it.
    pub fn new(config: &DeviceConfig) -> io::Result<Self> {
        let tun = DeviceBuilder::new()
            .name(&config.name)
            .mtu(config.mtu)
            .offload(true)
            .ipv4(config.ipv4, 30, None)
            .enable(false)
            .build_sync()?;
        // By netlink: the older call takes the rights of the machine's root, not of a namespace's.
        netlink::set_queue_length(tun.if_index()?, QUEUE_PACKETS)?;
        footprint::hush(&config.name)?;
        tun.enabled(true)?;
        if let Some(ipv6) = config.ipv6 {
            tun.add_address_v6(ipv6, 126)?;
        }
        tun.set_nonblocking(true)?;
        let packet_bytes = HEADROOM + usize::from(config.mtu);
        Ok(Device {
            tun,
            joined: vec![0; JOINED_BYTES].into(),
            split: (0..SEGMENTS).map(|_| buffer(packet_bytes)).collect(),
            sizes: vec![0; SEGMENTS],
            spare: Vec::new(),
            packet_bytes,
            unreadable: 0,
            unwritable: 0,
        })
    }

    /// Its index in the network namespace where it was made.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn index(&self) -> io::Result<u32> {
        self.tun.if_index()
    }

    /// Hands the next packets to `each`, one by one: what the kernel had joined is split as a network
    /// card would have done. Returns whether there was anything.
    ///
    /// # Errors
    /// If the device is gone. Packets that cannot be read or split are counted and lost.
    pub fn read(&mut self, mut each: impl FnMut(Packet)) -> io::Result<bool> {
        let read =
            self.tun
                .recv_multiple(&mut self.joined, &mut self.split, &mut self.sizes, HEADROOM);
        let count = match read {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if is_gone(&error) => return Err(error),
            Err(error) => {
                self.unreadable += 1;
                // There is more to read, unless it was the kernel that failed.
                return Ok(error.raw_os_error().is_none());
            }
        };
        for (buffer, &size) in self.split.iter_mut().zip(&self.sizes[..count]) {
            let fresh = self
                .spare
                .pop()
                .unwrap_or_else(|| self::buffer(self.packet_bytes));
            each(Packet {
                buffer: std::mem::replace(buffer, fresh),
                size,
            });
        }
        Ok(true)
    }

    /// Gives a packet to the kernel.
    ///
    /// # Errors
    /// If the device is gone; a packet that the kernel does not take now is counted and lost.
    pub fn write(&mut self, packet: &mut Packet) -> io::Result<()> {
        // No joined packets, no checksum left to do.
        packet.buffer[..HEADROOM].fill(0);
        match self.tun.send(&packet.buffer[..HEADROOM + packet.size]) {
            Ok(_) => Ok(()),
            Err(error) if is_gone(&error) => Err(error),
            Err(_) => {
                self.unwritable += 1;
                Ok(())
            }
        }
    }

    /// Takes back a buffer that [`Device::read`] gave away.
    #[inline]
    pub fn recycle(&mut self, packet: Packet) {
        // Duplicates give back more buffers than were given away.
        if self.spare.len() < MOST_SPARE {
            self.spare.push(packet.buffer);
        }
    }

    /// Packets lost here: what the kernel gave could not be split, or it took none.
    pub fn lost(&self) -> u64 {
        self.unreadable + self.unwritable
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }
}

/// Whether there is no device any more, rather than a packet that it would not give or take.
fn is_gone(error: &io::Error) -> bool {
    /// The file has no device attached.
    const EBADFD: i32 = 77;
    error.raw_os_error() == Some(EBADFD)
}

fn buffer(bytes: usize) -> Box<[u8]> {
    vec![0; bytes].into()
}
