//! The server's cost for the costliest scheme that a stranger may request, relative to that
//! scheme's defaults.
//!
//! `cargo bench -p verus-probe --bench strangers` prints the table and fails above three times; `--
//! NAME …` tries only these. For each key in the list of schemes it tries every word, the least and
//! the greatest value that the server grants, and some between. A costlier value stays while the
//! other keys are tried, in two passes. Time is virtual, and processor time is counted in the
//! server alone. Each trial is a separate process, so that its memory can be measured.

// A benchmark reads clocks; that is all it does.
#![allow(clippy::disallowed_methods)]

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::process::{Command, ExitCode};

use rustix::time::{ClockId, clock_gettime};
use verus_core::controller::{Arrival, Observer};
use verus_core::{Bytes, Duration, Rate, Time};
use verus_probe::Server;
use verus_probe::connection::Batch;
use verus_probe::limits::Limits;
use verus_probe::seal::{Key, Keys};
use verus_probe::server::{Catalogue, ServerConfig};
use verus_probe::wire::{
    self, Accept, AckBody, Data, Hello, Kind, MIN_HELLO_BYTES, Packet, Request, Retry, Status,
};
use verus_senders::{self as algorithm, Scheme};

/// More than this many times the defaults costs too much for strangers.
const MOST: f64 = 3.0;

/// A stranger's behaviour once it is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    /// Asks for as many downloads as one test may have, and says nothing more.
    Vanishes,
    /// Acknowledges packets of some downloads through a bottleneck that is dead for a while.
    Answers,
    /// Sends as many uploads as one test may have, then nothing.
    Sends,
}

impl Deed {
    const ALL: [Deed; 3] = [Deed::Vanishes, Deed::Answers, Deed::Sends];

    fn flows(self) -> u16 {
        match self {
            Deed::Answers => 16,
            Deed::Vanishes | Deed::Sends => 128,
        }
    }

    /// For how long it is watched.
    fn lasts(self) -> Duration {
        match self {
            Deed::Vanishes => Duration::from_secs(60),
            Deed::Answers => Duration::from_secs(8),
            Deed::Sends => Duration::from_secs(6),
        }
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Deed::Vanishes => "vanishes",
            Deed::Answers => "answers",
            Deed::Sends => "sends",
        })
    }
}

/// The rate that each flow is granted, bit/s: that of `constant` by default. The rate has a
/// separate limit.
const GRANTED_BPS: u64 = 10_000_000;

/// The path: each way's delay, the rate towards the stranger, and how long a packet may wait for it.
const DELAY: Duration = Duration::from_millis(20);
const LINK: Rate = Rate::from_bps(20_000_000);
const QUEUE: Duration = Duration::from_millis(100);

/// When nothing arrives either way, s.
const DEAD_S: std::ops::Range<f64> = 4.0..5.5;

/// How often an upload has a packet, and for how long, s.
const EACH: Duration = Duration::from_millis(50);
const SENT_FOR_S: f64 = 3.0;

const PACKET_BYTES: u16 = 1400;
const ADDRESS: &str = "192.0.2.1:1000";

/// The thread's time on a processor.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The most memory that this process has held, kB.
fn most_memory_kb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kb.expect("VmHWM in kB")
}

/// A download flow at the stranger.
struct FlowState {
    /// Numbers that came, from and to, ascending; old ones are forgotten.
    ranges: VecDeque<(u64, u64)>,
    acks: u64,
    observer: Option<Box<dyn Observer>>,
}

impl FlowState {
    /// Records a packet; returns an acknowledgement of all remembered ones.
    fn note(&mut self, now: Time, number: u64) -> AckBody {
        match self.ranges.back_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            Some((_, last)) if *last >= number => {}
            _ => self.ranges.push_back((number, number)),
        }
        while self.ranges.len() > 8 {
            self.ranges.pop_front();
        }
        self.acks += 1;
        let mut spans = Vec::new();
        let mut below = None;
        for &(first, last) in self.ranges.iter().rev() {
            spans.extend(below.map(|below: u64| (below - last - 1) as u32));
            spans.push((last - first + 1) as u32);
            below = Some(first);
        }
        AckBody {
            ack_number: self.acks,
            sent_nanos: now.as_nanos(),
            newest: self.ranges.back().expect("one came").1,
            spans,
            ..AckBody::default()
        }
    }
}

/// A client that does as little as the deed takes.
struct Stranger {
    deed: Deed,
    request: Request,
    token: Vec<u8>,
    keys: Option<(u64, Keys)>,
    began: Option<Time>,
    flows: Vec<FlowState>,
    uploaded: u64,
    due: Time,
    out: Vec<Vec<u8>>,
    refused: Option<String>,
}

impl Stranger {
    fn new(deed: Deed, scheme: &Scheme) -> Self {
        let flows = deed.flows();
        let flow = |_| FlowState {
            ranges: VecDeque::new(),
            acks: 0,
            observer: (deed == Deed::Answers).then(|| scheme.observer()).flatten(),
        };
        Stranger {
            deed,
            request: Request {
                upload_flows: if deed == Deed::Sends { flows } else { 0 },
                download_flows: if deed == Deed::Sends { 0 } else { flows },
                packet_bytes: PACKET_BYTES,
                duration_nanos: 3_600_000_000_000,
                scheme: scheme.text().to_owned(),
                ..Request::default()
            },
            token: Vec::new(),
            keys: None,
            began: None,
            flows: (0..flows).map(flow).collect(),
            uploaded: 0,
            due: Time::ZERO,
            out: Vec::new(),
            refused: None,
        }
    }

    fn say(&mut self, encode: impl FnOnce(u64, &mut [u8]) -> usize, padded_to: usize) {
        let (id, keys) = self.keys.as_ref().expect("it was let in");
        let packet = (keys.client).sealed(padded_to, |buffer| encode(*id, buffer));
        self.out.push(packet);
    }

    fn hello(&mut self) {
        let hello = Hello {
            nonce: [7; 16],
            token: &self.token,
            request: self.request.clone(),
            quiet_millis: 0,
        };
        let handshake = Key::handshake(None);
        let packet = handshake.sealed(MIN_HELLO_BYTES, |buffer| hello.encode(buffer));
        self.out.push(packet);
    }

    fn receive(&mut self, now: Time, datagram: &[u8]) {
        let packet = Packet::parse(datagram).expect("the server's");
        match packet.kind {
            Kind::Retry => {
                let retry = Retry::decode(&packet).expect("the server's");
                self.token = retry.token.to_vec();
                self.hello();
            }
            Kind::Accept if self.keys.is_none() => {
                let accept = Accept::decode(&packet).expect("the server's");
                let keys = Keys::new(&Key::handshake(None), &[7; 16], &accept.server_nonce);
                self.keys = Some((packet.connection, keys));
                (self.began, self.due) = (Some(now), now);
                let status = Status {
                    number: 1,
                    flows: Vec::new(),
                };
                self.say(|id, buffer| status.encode(id, buffer), 48);
            }
            Kind::Data if self.deed == Deed::Answers => {
                let data = Data::decode(&packet).expect("the server's");
                let flow = &mut self.flows[usize::from(packet.flow)];
                let ack = flow.note(now, data.number);
                let mut report = Vec::new();
                if let Some(observer) = &mut flow.observer {
                    observer.on_packet(&Arrival {
                        at: now,
                        number: data.number,
                        size: Bytes::new(u64::from(PACKET_BYTES)),
                        stamp: data.stamp,
                    });
                    observer.write_report(&mut report);
                }
                let report = (!report.is_empty()).then_some(&report[..]);
                let flow = packet.flow;
                self.say(|id, buffer| ack.encode(flow, id, report, buffer), 48);
            }
            Kind::Refuse => {
                let refused = wire::Ending::decode(&packet).expect("the server's");
                self.refused = Some(refused.text.to_owned());
            }
            _ => {}
        }
    }

    fn next_timer(&self) -> Option<Time> {
        let observers = self.flows.iter().filter_map(|flow| flow.observer.as_ref());
        let tick = observers.filter_map(|observer| observer.next_tick()).min();
        let upload = self.began.filter(|began| {
            self.deed == Deed::Sends && self.due.since(*began).as_secs_f64() < SENT_FOR_S
        });
        tick.into_iter().chain(upload.map(|_| self.due)).min()
    }

    fn on_timer(&mut self, now: Time) {
        for observer in self
            .flows
            .iter_mut()
            .filter_map(|flow| flow.observer.as_mut())
        {
            if observer.next_tick().is_some_and(|at| at <= now) {
                observer.on_tick(now);
            }
        }
        if self.deed != Deed::Sends || self.next_timer().is_none_or(|at| at > now) {
            return;
        }
        let payload = usize::from(PACKET_BYTES) - 28;
        for flow in 0..self.deed.flows() {
            let data = Data {
                number: self.uploaded,
                sent_nanos: now.as_nanos(),
                start: self.uploaded * u64::from(PACKET_BYTES),
                len: u32::from(PACKET_BYTES),
                stamp: None,
            };
            self.say(|id, buffer| data.encode(flow, id, buffer), payload);
        }
        self.uploaded += 1;
        self.due = now + EACH;
    }
}

/// The server's cost of a deed.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    cpu_ms: f64,
    memory_kb: f64,
}

/// One test of a stranger; `None` if the server refuses it.
fn perform(deed: Deed, scheme: &Scheme) -> Option<Cost> {
    let config = ServerConfig {
        limits: Limits {
            rate_per_client: Some(Rate::from_bps(GRANTED_BPS * u64::from(deed.flows()))),
            ..Limits::default()
        },
        ..ServerConfig::default()
    };
    let from: SocketAddr = ADDRESS.parse().expect("an address");
    let mut server = Server::new(config, Catalogue, [2; 32], Time::ZERO);
    let mut stranger = Stranger::new(deed, scheme);
    let memory = most_memory_kb();
    // Reading the clock has a cost that is not the server's.
    let began = cpu();
    (0..1000).for_each(|_| _ = std::hint::black_box(cpu()));
    let asking = (cpu() - began) / 1001.0;

    let (mut up, mut down) = (VecDeque::new(), VecDeque::new());
    let (mut now, mut link_free, mut spent) = (Time::ZERO, Time::ZERO, 0.0);
    let mut batch = Batch::new(16);
    let mut arrived: Vec<Vec<u8>> = Vec::new();
    stranger.hello();
    while stranger.refused.is_none() && now < Time::ZERO + deed.lasts() {
        let seconds = now.since(Time::ZERO).as_secs_f64();
        let dead = deed == Deed::Answers && DEAD_S.contains(&seconds);
        for packet in stranger.out.drain(..).filter(|_| !dead) {
            up.push_back((now + DELAY, packet));
        }
        let timer = server.next_timer();
        let next = [
            up.front().map(|(at, _): &(Time, Vec<u8>)| *at),
            down.front().map(|(at, _): &(Time, Vec<u8>)| *at),
            timer,
            stranger.next_timer(),
        ];
        let Some(next) = next.into_iter().flatten().min() else {
            break;
        };
        now = now.max(next);
        while up.front().is_some_and(|(at, _)| *at <= now) {
            arrived.extend(up.pop_front().map(|(_, packet)| packet));
        }
        if !arrived.is_empty() || timer.is_some_and(|at| at <= now) {
            let began = cpu();
            for packet in arrived.drain(..) {
                server.handle(now, now, from, None, &packet);
            }
            server.on_timer(now);
            spent += cpu() - began - asking;
            loop {
                let began = cpu();
                let some = server.poll_transmit(now, &mut batch);
                spent += cpu() - began - asking;
                if !some {
                    break;
                }
                for packet in batch.contents().chunks(batch.payload()) {
                    let waits = link_free.max(now);
                    // A stranger that has vanished receives nothing.
                    let deaf = deed == Deed::Vanishes && stranger.began.is_some();
                    if !dead && waits.since(now) <= QUEUE {
                        link_free = waits + LINK.time_for(Bytes::new(packet.len() as u64));
                        if !deaf {
                            down.push_back((link_free + DELAY, packet.to_vec()));
                        }
                    }
                }
            }
            server.drain_notices().for_each(drop);
        }
        while down.front().is_some_and(|(at, _)| *at <= now) {
            let (_, packet) = down.pop_front().expect("just seen");
            stranger.receive(now, &packet);
        }
        stranger.on_timer(now);
    }
    stranger.refused.is_none().then(|| Cost {
        cpu_ms: spent * 1e3,
        memory_kb: most_memory_kb() - memory,
    })
}

/// The same in `times` separate processes: the median.
fn cost(deed: Deed, scheme: &str, times: usize) -> Option<Cost> {
    let once = || {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--trial", &deed.to_string(), scheme])
            .output()
            .expect("the program runs again");
        assert!(output.status.success(), "{deed}, {scheme}: {output:?}");
        let text = String::from_utf8(output.stdout).expect("numbers");
        let mut numbers = text
            .split_whitespace()
            .map(|word| word.parse().expect("a number"));
        let (cpu_ms, memory_kb) = (numbers.next()?, numbers.next()?);
        Some(Cost { cpu_ms, memory_kb })
    };
    let costs: Option<Vec<Cost>> = (0..times).map(|_| once()).collect();
    let median = |of: fn(&Cost) -> f64| {
        let mut all: Vec<f64> = costs.as_ref()?.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        Some(all[all.len() / 2])
    };
    Some(Cost {
        cpu_ms: median(|cost| cost.cpu_ms)?,
        memory_kb: median(|cost| cost.memory_kb)?,
    })
}

/// Values for the keys of a scheme, as they are written.
type Values = BTreeMap<&'static str, String>;

fn written(name: &str, values: &Values) -> String {
    let pairs: Vec<String> = values
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if pairs.is_empty() {
        return name.to_owned();
    }
    format!("{name}:{}", pairs.join(","))
}

/// Whether a server grants it to strangers.
fn granted(deed: Deed, name: &str, values: &Values) -> bool {
    Scheme::parse(&written(name, values)).is_ok_and(|scheme| {
        let rate = scheme.fixed_rate().map_or(0, |rate| rate.as_bps());
        let sends = deed != Deed::Sends;
        scheme.extra_cost(sends).is_none() && !(sends && rate > GRANTED_BPS)
    })
}

/// Values to try for a key: its words, or the least and the greatest number that is granted, and
/// some between.
fn candidates(deed: Deed, name: &str, key: &algorithm::Key) -> Vec<String> {
    let ok = |value: &str| {
        let values = Values::from([(key.key, value.to_owned())]);
        granted(deed, name, &values)
    };
    let words = match &key.takes {
        algorithm::Takes::OneOf(words) => &words[..],
        algorithm::Takes::Number(_) | algorithm::Takes::Path => &[],
    };
    let words = words.iter().copied().chain(["none"]);
    let mut values: Vec<String> = words.filter(|word| ok(word)).map(str::to_owned).collect();
    let decades = (-9..=15).flat_map(|power| [1, 2, 5].map(|digit| format!("{digit}e{power}")));
    let numbers: Vec<f64> = std::iter::once("0".to_owned())
        .chain(decades)
        .filter(|number| ok(number))
        .map(|number| number.parse().expect("a number"))
        .collect();
    let (Some(&least), Some(&greatest)) = (numbers.first(), numbers.last()) else {
        return values;
    };
    // The bounds lie between these and the next.
    let edge = |mut inside: f64, mut outside: f64| {
        for _ in 0..30 {
            let middle = f64::midpoint(inside, outside);
            if ok(&middle.to_string()) {
                inside = middle;
            } else {
                outside = middle;
            }
        }
        inside
    };
    let mut ends = vec![edge(least, least / 3.0), edge(greatest, greatest * 3.0)];
    if let Ok(default) = key.default.parse::<f64>() {
        ends.extend([default / 3.0, default * 3.0]);
    }
    ends.push(numbers[numbers.len() / 2]);
    values.extend(ends.iter().map(f64::to_string).filter(|number| ok(number)));
    values.dedup();
    values
}

/// The measure of a cost.
type Measure = fn(&Cost) -> f64;

/// The costliest settings of a scheme that are granted. Each key in turn keeps the value that costs
/// most beside the others.
fn dearest(deed: Deed, entry: &algorithm::Entry, of: Measure, trials: &mut Trials) -> Values {
    let mut values = Values::new();
    let mut highest = trials
        .cost(deed, entry.name, &values)
        .map_or(0.0, |cost| of(&cost));
    let tried: Vec<(&'static str, Vec<String>)> = entry
        .keys
        .iter()
        .map(|key| (key.key, candidates(deed, entry.name, key)))
        .collect();
    for _ in 0..2 {
        let before = values.clone();
        for (key, candidates) in &tried {
            for value in candidates {
                let mut changed = values.clone();
                changed.insert(key, value.clone());
                if changed == values || !granted(deed, entry.name, &changed) {
                    continue;
                }
                // A smaller increase is chance, and so is one that does not recur.
                let dearer = |cost: &Cost| of(cost) > 1.05 * highest;
                let once = trials.cost(deed, entry.name, &changed).filter(dearer);
                let again = once.and_then(|_| cost(deed, &written(entry.name, &changed), 1));
                if let (Some(once), Some(again)) = (once, again.filter(dearer)) {
                    (values, highest) = (changed, of(&once).min(of(&again)));
                }
            }
        }
        if values == before {
            break;
        }
    }
    values
}

/// Trials already made, once each.
#[derive(Default)]
struct Trials(BTreeMap<(Deed, String), Option<Cost>>);

impl Trials {
    fn cost(&mut self, deed: Deed, name: &str, values: &Values) -> Option<Cost> {
        let scheme = written(name, values);
        let key = (deed, scheme.clone());
        *self.0.entry(key).or_insert_with(|| cost(deed, &scheme, 1))
    }
}

/// Prints a scheme's rows; the largest ratio.
fn tell(entry: &algorithm::Entry) -> f64 {
    let mut trials = Trials::default();
    let mut largest = 0.0_f64;
    let measures: [(&str, &str, Measure); 2] = [
        ("CPU", "ms", |cost| cost.cpu_ms),
        ("memory", "kB", |cost| cost.memory_kb),
    ];
    // Of an upload the server runs the receiver half, which few schemes have.
    let has_observer = Scheme::parse(entry.name).is_ok_and(|scheme| scheme.observer().is_some());
    for deed in Deed::ALL
        .into_iter()
        .filter(|deed| has_observer || *deed != Deed::Sends)
    {
        for (what, unit, of) in measures {
            let values = dearest(deed, entry, of, &mut trials);
            let Some(usual) = cost(deed, entry.name, 5).map(|cost| of(&cost)) else {
                continue;
            };
            let scheme = written(entry.name, &values);
            let costliest = cost(deed, &scheme, 5).map_or(0.0, |cost| of(&cost));
            let ratio = costliest / usual;
            largest = largest.max(ratio);
            println!(
                "| {} | {deed} | {what}, {unit} | {usual:.1} | {costliest:.1} | {ratio:.2} | `{scheme}` |",
                entry.name
            );
        }
    }
    largest
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    if let [first, deed, scheme] = &arguments[..]
        && first == "--trial"
    {
        let deed = Deed::ALL
            .into_iter()
            .find(|known| known.to_string() == *deed);
        let scheme = Scheme::parse(scheme).expect("a scheme");
        if let Some(cost) = perform(deed.expect("a deed"), &scheme) {
            println!("{} {}", cost.cpu_ms, cost.memory_kb);
        }
        return ExitCode::SUCCESS;
    }
    println!("| scheme | the stranger | what | defaults | dearest | times | the dearest |");
    println!("|---|---|---|---:|---:|---:|---|");
    let mut largest = 0.0_f64;
    for entry in algorithm::catalogue() {
        // A model runs only where its file is.
        let selected = arguments.is_empty() || arguments.iter().any(|name| name == entry.name);
        if selected && Scheme::parse(entry.name).is_ok() {
            largest = largest.max(tell(&entry));
        }
    }
    println!(
        "\nThe dearest that is granted to strangers costs {largest:.2} times the defaults; at most {MOST} may be."
    );
    ExitCode::from(u8::from(largest > MOST))
}
