//! The core's cost over UDP, as ratios within one run to programs that only send the same packets
//! through `quinn-udp`.
//!
//! `cargo bench -p verus-probe --bench udp [cost] [blast] [late] [many] [link]`

use std::io::IoSliceMut;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket as StdSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use hdrhistogram::Histogram;
use quinn_udp::{RecvMeta, UdpSocketState};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, clock_gettime,
    timerfd_create, timerfd_settime,
};
use verus_channel::{QueueConfig, RateSchedule, Service};
use verus_clock::Clock;
use verus_core::controller::Observer;
use verus_core::{Bytes, Controller, Duration, Feedback, Rate, Recovery, Time, Timeout};
use verus_faults::machine::Steal;
use verus_faults::{Bottleneck, Proxy, ProxyConfig, ProxyStats, Schedule};
use verus_probe::client::{Client, ClientConfig};
use verus_probe::driver::Driver;
use verus_probe::flow::Algorithms;
use verus_probe::server::{Library, Server, ServerConfig};
use verus_probe::socket::UdpSocket;
use verus_probe::wire::Request;
use verus_senders::{Built, Scheme};

const PACKET_BYTES: u16 = 1400;
const SEGMENT: usize = PACKET_BYTES as usize - 28;
const PAIRS: usize = 7;
/// A run during which the machine gave more than this share of its time to others is void.
const MOST_STOLEN: f64 = 0.05;

fn main() {
    let selected: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let runs = |name: &str| selected.is_empty() || selected.iter().any(|word| word == name);
    println!("packets of {PACKET_BYTES} B (IP), loopback; median of {PAIRS} interleaved pairs");
    let parts: [(&str, fn()); 5] = [
        ("cost", cost),
        ("blast", blast),
        ("late", late),
        ("many", many),
        ("link", link),
    ];
    for (name, part) in parts {
        if runs(name) {
            let before = Steal::now();
            part();
            let stolen = before.share_since();
            let void = if stolen > MOST_STOLEN { ": VOID" } else { "" };
            println!(
                "    the machine gave {:.1} % of its time to others{void}\n",
                stolen * 100.0
            );
        }
    }
}

fn thread_cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A window that never changes, so that only the cost of moving packets remains.
#[derive(Debug)]
struct Fixed(Bytes);

impl Controller for Fixed {
    fn on_feedback(&mut self, _: &Feedback<'_>) {}
    fn on_timeout(&mut self, _: &Timeout<'_>) {}
    fn window(&self) -> Bytes {
        self.0
    }
    fn recovery(&self) -> Recovery {
        Recovery::rack()
    }
}

#[derive(Clone)]
enum Chosen {
    Fixed(u64),
    Scheme(Scheme),
}

impl Algorithms for Chosen {
    fn controller(&self, seed: u64) -> Built {
        match self {
            Chosen::Fixed(packets) => Built::Other(Box::new(Fixed(Bytes::new(
                packets * u64::from(PACKET_BYTES),
            )))),
            Chosen::Scheme(scheme) => scheme.build(seed),
        }
    }
    fn observer(&self) -> Option<Box<dyn Observer>> {
        None
    }
}

impl Library for Chosen {
    fn algorithms(&self, _: &str) -> Result<Box<dyn Algorithms>, String> {
        Ok(Box::new(self.clone()))
    }
}

fn scheme(text: &str) -> Chosen {
    Chosen::Scheme(Scheme::parse(text).unwrap_or_else(|error| panic!("{error}")))
}

/// One end's processor use and packet counts.
#[derive(Clone, Debug, Default)]
struct Used {
    cpu: f64,
    wakeups: u64,
    bytes: u64,
    lateness: Option<Histogram<u32>>,
}

fn request(upload: u16, download: u16, seconds: f64, rate_bps: u64, packet_bytes: u16) -> Request {
    Request {
        upload_flows: upload,
        download_flows: download,
        packet_bytes,
        duration_nanos: (seconds * 1e9) as u64,
        rate_bps,
        scheme: "verus".to_owned(),
        ..Request::default()
    }
}

/// A test that was run.
struct Ran {
    server: Used,
    clients: Vec<Used>,
    /// The emulated link's counts, if there was one.
    link: Option<ProxyStats>,
}

/// Runs a server and clients in separate threads; returns the use of the server's and the clients'
/// threads. Between them lies loopback, or an emulated link of 20 ms in each direction.
fn probe(chosen: &Chosen, requests: &[Request], segments: usize, link: Option<(Rate, f64)>) -> Ran {
    let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a port");
    let mut address = socket.local_addr().expect("bound");
    let proxy = link.map(|(rate, bdps)| {
        let mut config = ProxyConfig::new(address);
        config.schedule = Schedule::perfect(Duration::from_millis(20));
        config.up = Some(Bottleneck {
            service: Service::Rate(RateSchedule::constant(rate)),
            queue: queue(rate, bdps),
        });
        Proxy::start(config).expect("a proxy")
    });
    if let Some(proxy) = &proxy {
        address = proxy.addr();
    }
    let over = Arc::new(AtomicBool::new(false));
    let server = thread::spawn({
        let (over, chosen) = (Arc::clone(&over), chosen.clone());
        move || {
            let mut driver = Driver::new(socket).expect("a timer");
            driver.set_most_segments(segments);
            let now = driver.clock().now();
            // All clients have one address here, and may be as many as the server takes.
            let mut config = ServerConfig::default();
            config.limits.clients_per_address = config.limits.clients;
            let mut server = Server::new(config, chosen, [1; 32], now);
            let mut bytes = 0;
            while !over.load(Ordering::Relaxed) {
                let until = driver.clock().now() + Duration::from_millis(100);
                driver
                    .turn(&mut server, Some(until), None)
                    .expect("it turns");
                let flows = server.connections().flat_map(|c| c.incoming());
                bytes = bytes.max(flows.map(|(flow, _)| flow.distinct()).sum());
                server.drain_notices().for_each(drop);
            }
            Used {
                cpu: thread_cpu(),
                wakeups: driver.wakeups(),
                bytes,
                lateness: None,
            }
        }
    });
    let clients: Vec<_> = requests
        .iter()
        .cloned()
        .enumerate()
        .map(|(index, request)| {
            let chosen = chosen.clone();
            thread::spawn(move || {
                let socket = UdpSocket::connect(address).expect("loopback");
                let mut driver = Driver::new(socket).expect("a timer");
                driver.set_most_segments(segments);
                let (config, entropy) = (ClientConfig::new(request), [index as u8 + 2; 32]);
                let mut client = Client::new(config, chosen, entropy, driver.clock().now());
                while client.outcome().is_none() {
                    driver.turn(&mut client, None, None).expect("it turns");
                }
                client.outcome().expect("it ended").expect("it ended well");
                let connection = client.connection().expect("it was connected");
                let received: u64 = connection.incoming().map(|(flow, _)| flow.distinct()).sum();
                let sent: u64 = connection
                    .outgoing()
                    .iter()
                    .map(|flow| flow.distinct())
                    .sum();
                Used {
                    cpu: thread_cpu(),
                    wakeups: driver.wakeups(),
                    bytes: received + sent,
                    lateness: connection
                        .outgoing()
                        .first()
                        .map(|flow| flow.lateness().clone()),
                }
            })
        })
        .collect();
    let clients: Vec<Used> = clients
        .into_iter()
        .map(|client| client.join().expect("a client ended well"))
        .collect();
    over.store(true, Ordering::Relaxed);
    Ran {
        server: server.join().expect("the server ended well"),
        clients,
        link: proxy.map(|proxy| proxy.stats()),
    }
}

/// A socket and nothing else.
struct Bare {
    socket: StdSocket,
    state: UdpSocketState,
    buffers: Vec<Vec<u8>>,
}

impl Bare {
    fn new() -> Self {
        let socket = StdSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let state = UdpSocketState::new((&socket).into()).expect("a socket");
        let _ = state.set_recv_buffer_size((&socket).into(), 4 << 20);
        let _ = state.set_send_buffer_size((&socket).into(), 4 << 20);
        Bare {
            socket,
            state,
            buffers: vec![vec![0; 1 << 16]; 8],
        }
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("bound")
    }

    /// Whether it left.
    fn send(&self, to: SocketAddr, contents: &[u8], segment: usize) -> bool {
        let transmit = quinn_udp::Transmit {
            destination: to,
            ecn: None,
            contents,
            segment_size: Some(segment),
            src_ip: None,
        };
        self.state
            .try_send((&self.socket).into(), &transmit)
            .is_ok()
    }

    /// How many bytes and packets were there to read.
    fn receive(&mut self) -> (u64, u64) {
        let mut meta = [RecvMeta::default(); 8];
        let mut slices: Vec<IoSliceMut<'_>> = self
            .buffers
            .iter_mut()
            .map(|buffer| IoSliceMut::new(buffer))
            .collect();
        let read = self
            .state
            .recv((&self.socket).into(), &mut slices, &mut meta)
            .unwrap_or(0);
        let bytes: usize = meta[..read].iter().map(|meta| meta.len).sum();
        let packets: usize = meta[..read]
            .iter()
            .map(|meta| meta.len.div_ceil(meta.stride.max(1)))
            .sum();
        (bytes as u64, packets as u64)
    }

    fn wait(&self, extra: Option<&std::os::fd::OwnedFd>) {
        let socket = PollFd::new(&self.socket, PollFlags::IN);
        let timeout = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        match extra {
            Some(timer) => {
                let mut fds = [socket, PollFd::new(timer, PollFlags::IN)];
                let _ = poll(&mut fds, Some(&timeout));
            }
            None => {
                let _ = poll(&mut [socket], Some(&timeout));
            }
        }
    }
}

fn arm(timer: &std::os::fd::OwnedFd, clock: &Clock, at: Time) {
    let value = Itimerspec {
        it_interval: rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        it_value: clock.to_timespec(at),
    };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &value).expect("a timer");
}

fn new_timer() -> std::os::fd::OwnedFd {
    timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).expect("a timer")
}

/// Sends a packet each `every` and reads the answers; the other end answers each packet with one of
/// the size of an acknowledgement. Returns the use of sender and receiver.
fn bare_at_rate(seconds: f64, every: Duration) -> (Used, Used) {
    let (mut sender, mut receiver) = (Bare::new(), Bare::new());
    let (to, back) = (receiver.address(), sender.address());
    let over = Arc::new(AtomicBool::new(false));
    let answering = thread::spawn({
        let over = Arc::clone(&over);
        move || {
            let answer = [0; 150];
            let mut used = Used::default();
            while !over.load(Ordering::Relaxed) {
                receiver.wait(None);
                used.wakeups += 1;
                loop {
                    let (bytes, packets) = receiver.receive();
                    if packets == 0 {
                        break;
                    }
                    used.bytes += bytes;
                    receiver.send(back, &answer, answer.len());
                }
            }
            used.cpu = thread_cpu();
            used
        }
    });
    let sending = thread::spawn(move || {
        let (clock, timer) = (Clock::new(), new_timer());
        let packet = [0; SEGMENT];
        let mut next = clock.now();
        let end = next + Duration::from_secs_f64(seconds);
        let mut used = Used::default();
        while next < end {
            let now = clock.now();
            while next <= now {
                sender.send(to, &packet, SEGMENT);
                next += every;
            }
            while sender.receive().1 > 0 {}
            arm(&timer, &clock, next);
            sender.wait(Some(&timer));
            used.wakeups += 1;
        }
        used.cpu = thread_cpu();
        used
    });
    let sent = sending.join().expect("the sender ended well");
    over.store(true, Ordering::Relaxed);
    (sent, answering.join().expect("the receiver ended well"))
}

/// At 10 Mbit/s: each end's use, beside ends that only send and receive.
fn cost() {
    const SECONDS: f64 = 3.0;
    let rate = 10_000_000;
    let every = Duration::from_secs_f64(f64::from(PACKET_BYTES) * 8.0 / rate as f64);
    let requests = [request(1, 0, SECONDS, rate, PACKET_BYTES)];
    let (mut ours, mut bare) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let mut ratios = [Vec::new(), Vec::new()];
    let mut wakeups = (0, 0);
    for _ in 0..PAIRS {
        let Ran {
            server, clients, ..
        } = probe(&scheme("verus"), &requests, 64, None);
        let (sent, received) = bare_at_rate(SECONDS, every);
        for (end, (ours_used, bare_used)) in [(&clients[0], &sent), (&server, &received)]
            .into_iter()
            .enumerate()
        {
            ours[end].push(ours_used.cpu / SECONDS * 100.0);
            bare[end].push(bare_used.cpu / SECONDS * 100.0);
            ratios[end].push(ours_used.cpu / bare_used.cpu);
        }
        wakeups = (clients[0].wakeups, sent.wakeups);
    }
    println!(
        "cost at 10 Mbit/s (Verus, a packet each {:.2} ms)",
        every.as_millis_f64()
    );
    for (end, name) in ["sender", "receiver"].into_iter().enumerate() {
        println!(
            "    {name:9} {:5.2} % of a core, bare {:5.2} %: {:.2} times",
            median(ours[end].clone()),
            median(bare[end].clone()),
            median(ratios[end].clone())
        );
    }
    println!(
        "    sender woken {} times in {SECONDS} s, bare {}",
        wakeups.0, wakeups.1
    );
}

/// Sends as fast as it goes; bytes received per CPU second of both ends.
fn bare_blast(seconds: f64, segments: usize) -> f64 {
    let (sender, mut receiver) = (Bare::new(), Bare::new());
    let to = receiver.address();
    let over = Arc::new(AtomicBool::new(false));
    let cpu = Arc::new(AtomicU64::new(0));
    let receiving = thread::spawn({
        let (over, cpu) = (Arc::clone(&over), Arc::clone(&cpu));
        move || {
            let mut total = 0;
            while !over.load(Ordering::Relaxed) {
                let (bytes, _) = receiver.receive();
                total += bytes;
                if bytes == 0 {
                    receiver.wait(None);
                }
            }
            cpu.fetch_add((thread_cpu() * 1e9) as u64, Ordering::Relaxed);
            total
        }
    });
    let sending = thread::spawn({
        let cpu = Arc::clone(&cpu);
        move || {
            let clock = Clock::new();
            let batch = vec![0; segments.min(47) * SEGMENT];
            let end = clock.now() + Duration::from_secs_f64(seconds);
            while clock.now() < end {
                sender.send(to, &batch, SEGMENT);
            }
            cpu.fetch_add((thread_cpu() * 1e9) as u64, Ordering::Relaxed);
        }
    });
    sending.join().expect("the sender ended well");
    over.store(true, Ordering::Relaxed);
    let bytes = receiving.join().expect("the receiver ended well");
    bytes as f64 / (cpu.load(Ordering::Relaxed) as f64 / 1e9)
}

/// A fixed large window over loopback, with segmentation and without.
fn blast() {
    const SECONDS: f64 = 1.0;
    const WINDOW: u64 = 1000;
    let requests = [request(1, 0, SECONDS, 0, PACKET_BYTES)];
    println!("a fixed window of {WINDOW} packets, bytes received per CPU second of both ends");
    for (name, segments) in [("with GSO", 64), ("without GSO", 1)] {
        let (mut ours, mut bare, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let mut ends = (0.0, 0.0);
        for _ in 0..PAIRS {
            let Ran {
                server, clients, ..
            } = probe(&Chosen::Fixed(WINDOW), &requests, segments, None);
            ends = (clients[0].cpu, server.cpu);
            let rate = server.bytes as f64 / (server.cpu + clients[0].cpu);
            let beside = bare_blast(SECONDS, segments);
            ours.push(rate);
            bare.push(beside);
            ratios.push(rate / beside);
        }
        println!(
            "    {name:12} {:6.0} MB, bare {:6.0} MB: {:.2} of it   (last run: sender {:.2} s, receiver {:.2} s)",
            median(ours) / 1e6,
            median(bare) / 1e6,
            median(ratios),
            ends.0,
            ends.1
        );
    }
}

fn shown(histogram: &Histogram<u32>) -> String {
    format!(
        "p50 {:4}  p99 {:5}  largest {:6} µs  ({} of them)",
        histogram.value_at_quantile(0.5),
        histogram.value_at_quantile(0.99),
        histogram.max(),
        histogram.len()
    )
}

/// How late epochs end, beside a timer that does nothing else at the same time.
fn late() {
    const SECONDS: f64 = 5.0;
    println!(
        "lateness of epochs (5 ms) over an emulated link of 20 ms each way, beside a bare \
         timer of 5 ms at the same time"
    );
    for mbps in [1, 10, 100] {
        let ticking = thread::spawn(move || {
            let (clock, timer) = (Clock::new(), new_timer());
            let mut late = Histogram::<u32>::new_with_max(60_000_000, 2).expect("constant");
            let mut next = clock.now();
            let end = next + Duration::from_secs_f64(SECONDS);
            while next < end {
                next += Duration::from_millis(5);
                arm(&timer, &clock, next);
                let mut fds = [PollFd::new(&timer, PollFlags::IN)];
                let _ = poll(&mut fds, None);
                late.saturating_record(clock.now().since(next).as_micros());
            }
            late
        });
        let requests = [request(1, 0, SECONDS, 0, PACKET_BYTES)];
        let link = Some((Rate::from_mbps(f64::from(mbps)), 1.0));
        let Ran { clients, .. } = probe(&scheme("verus"), &requests, 64, link);
        let bare = ticking.join().expect("the timer ended well");
        let epochs = clients[0].lateness.clone().expect("one flow");
        println!("    {mbps:3} Mbit/s  epochs {}", shown(&epochs));
        println!("                bare   {}", shown(&bare));
    }
}

/// A thousand flows of 10 kbit/s on one server.
fn many() {
    const SECONDS: f64 = 5.0;
    let requests = vec![request(50, 50, SECONDS, 10_000, 200); 10];
    let Ran {
        server, clients, ..
    } = probe(&scheme("verus"), &requests, 64, None);
    let bytes: u64 = clients.iter().map(|client| client.bytes).sum();
    println!(
        "1000 flows of 10 kbit/s (10 clients, 50 flows up and 50 down each): the server used \
         {:.1} % of a core, woken {} times in {SECONDS} s; {:.2} of the bytes offered arrived",
        server.cpu / SECONDS * 100.0,
        server.wakeups,
        bytes as f64 / (1000.0 * 10_000.0 / 8.0 * SECONDS)
    );
}

/// A queue of `bdps` times the link's capacity in the 40 ms of a round trip; at least ten packets.
fn queue(rate: Rate, bdps: f64) -> QueueConfig {
    let bytes = rate.bytes_in(Duration::from_millis(40)).get() as f64 * bdps;
    let bytes = bytes.max(15_000.0).round();
    QueueConfig::parse(&format!("droptail:bytes={bytes}")).expect("a valid queue")
}

/// Results on the link of the QUIC benchmark: 50 Mbit/s, 40 ms.
fn link() {
    const SECONDS: f64 = 20.0;
    println!("a link of 50 Mbit/s, 40 ms, {SECONDS} s; queue in bandwidth-delay products");
    for bdps in [1.0, 4.0] {
        for text in ["verus", "verus:ratio=4", "cubic"] {
            let requests = [request(1, 0, SECONDS, 0, PACKET_BYTES)];
            let emulated = Some((Rate::from_mbps(50.0), bdps));
            let ran = probe(&scheme(text), &requests, 64, emulated);
            let link = ran.link.and_then(|stats| stats.up.bottleneck);
            let link = link.expect("there is one");
            println!(
                "    queue {bdps} {text:14} used {:.3} of it, queueing mean {:.1}, p95 {:.1} ms, drops {}",
                link.utilization(),
                link.queueing.mean_ms,
                link.queueing.p95_ms,
                link.dropped
            );
        }
    }
}
