//! Performance of the emulator on this machine: rates, timing beside a bare timer's, CPU. Takes
//! root.
//!
//! `cargo bench -p verus-emu [rate] [delay] [cpu]`

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration as Span;

use hdrhistogram::Histogram;
use rustix::event::PollFlags;
use rustix::time::{ClockId, clock_gettime};
use verus_channel::queue::QueueConfig;
use verus_channel::{PathConfig, RateSchedule, Service};
use verus_clock::{Alarm, Clock};
use verus_core::{Duration, Rate};
use verus_emu::device::{Device, DeviceConfig};
use verus_emu::emulator::{Emulator, Timing, in_real_time};
use verus_emu::namespace::Namespace;
use verus_emu::netlink;

const DEVICE: &str = "verus0";
const NEAR: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 2);
const PORT: u16 = 7000;
/// Each figure is the best of so many runs: what the machine does beside is not the emulator's.
const RUNS: usize = 5;
const SECONDS: u64 = 5;

fn main() {
    let selected: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    if let Err(error) = Namespace::new() {
        println!("SKIPPED: the emulator's benchmark takes root ({error})");
        return;
    }
    let parts: [(&str, fn()); 3] = [("rate", rate), ("delay", delay), ("cpu", cpu)];
    for (name, part) in parts {
        if selected.is_empty() || selected.iter().any(|word| word == name) {
            part();
        }
    }
}

/// Results of a run.
struct Ran {
    timing: Timing,
    /// Packets that the devices dropped.
    drops: u64,
    /// CPU seconds of the emulator per second.
    cpu: f64,
    /// A bare timer of 1 ms at the same time, µs late.
    timer: Histogram<u64>,
    /// Measurements of the traffic: Mbit/s, or round trips in ms.
    samples: Vec<f64>,
}

/// A link of `mbps` and `delay_ms` each way, `traffic` from the near to the far end.
fn run(
    mbps: f64,
    delay_ms: f64,
    traffic: impl Fn(&Namespace, &Namespace, &AtomicBool) -> Vec<f64> + Sync,
) -> io::Result<Ran> {
    let ends = [Namespace::new()?, Namespace::new()?];
    let device = |index: usize, ipv4| {
        ends[index].within(|| {
            Device::new(&DeviceConfig {
                name: DEVICE.to_owned(),
                ipv4,
                ipv6: None,
                mtu: 1500,
            })
        })?
    };
    let devices = [device(0, NEAR)?, device(1, FAR)?];
    // 20 ms of queue.
    let queue =
        QueueConfig::parse(&format!("droptail:bytes={}", (mbps * 2500.0) as u64)).expect("a queue");
    let path = PathConfig {
        link: Some((
            Service::Rate(RateSchedule::constant(Rate::from_mbps(mbps))),
            queue,
        )),
        ..PathConfig::propagation(Duration::from_millis_f64(delay_ms))
    };
    let back = PathConfig {
        link: None,
        ..path.clone()
    };
    let mut emulator = Emulator::new(devices, &[path, back], 1)?;
    emulator.begin();
    let over = AtomicBool::new(false);
    let (ring, wake) = UnixStream::pair()?;
    thread::scope(|scope| {
        let emulation = scope.spawn(|| {
            in_real_time();
            while !over.load(Ordering::Relaxed) {
                emulator.turn(None, wake.as_fd(), &mut (), &mut ())?;
            }
            let cpu = clock_gettime(ClockId::ThreadCPUTime);
            let cpu = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
            let elapsed = emulator.elapsed().unwrap_or_default().as_secs_f64();
            Ok::<_, io::Error>((emulator.timing(), cpu / elapsed))
        });
        let timer = scope.spawn(|| bare_timer(&over));
        let samples = traffic(&ends[0], &ends[1], &over);
        over.store(true, Ordering::Relaxed);
        (&ring).write_all(b"!")?;
        let (timing, cpu) = emulation.join().expect("the emulator ended well")?;
        let mut drops = 0;
        for end in &ends {
            drops += end.within(|| netlink::device_drops(DEVICE))??;
        }
        Ok(Ran {
            timing,
            drops,
            cpu,
            timer: timer.join().expect("the timer ended well")?,
            samples,
        })
    })
}

/// How late a timer of 1 ms is that does nothing else.
fn bare_timer(over: &AtomicBool) -> io::Result<Histogram<u64>> {
    in_real_time();
    let clock = Clock::new();
    let mut alarm = Alarm::new()?;
    let (_never, source) = UnixStream::pair()?;
    let mut late = Histogram::new_with_max(60_000_000, 3).expect("constant bounds");
    let mut next = clock.now();
    while !over.load(Ordering::Relaxed) {
        next += Duration::from_millis(1);
        while clock.now() < next {
            alarm.wait(&clock, Some(next), [(source.as_fd(), PollFlags::IN)])?;
        }
        late.saturating_record(clock.now().since(next).as_micros());
    }
    Ok(late)
}

/// The kernel's TCP as fast as it goes; Mbit/s that arrived.
fn bulk(near: &Namespace, far: &Namespace, over: &AtomicBool) -> Vec<f64> {
    let address = SocketAddr::from((FAR, PORT));
    thread::scope(|scope| {
        let receiver = scope.spawn(|| -> io::Result<f64> {
            far.enter()?;
            let (mut stream, _) = TcpListener::bind(address)?.accept()?;
            stream.set_read_timeout(Some(Span::from_millis(100)))?;
            let clock = Clock::new();
            let (began, mut received) = (clock.now(), 0u64);
            let mut buffer = vec![0; 1 << 20];
            while clock.now().since(began) < Duration::from_secs(SECONDS) {
                received += stream.read(&mut buffer).unwrap_or(0) as u64;
            }
            over.store(true, Ordering::Relaxed);
            Ok(received as f64 * 8e-6 / clock.now().since(began).as_secs_f64())
        });
        scope.spawn(|| -> io::Result<()> {
            near.enter()?;
            let mut stream = loop {
                match TcpStream::connect_timeout(&address, Span::from_secs(5)) {
                    Ok(stream) => break stream,
                    Err(_) => thread::sleep(Span::from_millis(20)),
                }
            };
            stream.set_write_timeout(Some(Span::from_millis(100)))?;
            let block = vec![0; 1 << 17];
            while !over.load(Ordering::Relaxed) {
                let _ = stream.write(&block);
            }
            Ok(())
        });
        vec![receiver.join().expect("it received").expect("a stream")]
    })
}

/// Datagrams that come back at once, one each 10 ms; their round trips in ms.
fn echo(near: &Namespace, far: &Namespace, _: &AtomicBool) -> Vec<f64> {
    const COUNT: usize = 400;
    let address = SocketAddr::from((FAR, PORT));
    thread::scope(|scope| {
        let (ready, listening) = std::sync::mpsc::channel();
        scope.spawn(move || -> io::Result<()> {
            far.enter()?;
            let socket = UdpSocket::bind(address)?;
            let _ = ready.send(());
            let mut buffer = [0; 100];
            for _ in 0..COUNT {
                let (length, from) = socket.recv_from(&mut buffer)?;
                socket.send_to(&buffer[..length], from)?;
            }
            Ok(())
        });
        let sender = scope.spawn(move || -> io::Result<Vec<f64>> {
            near.enter()?;
            let _ = listening.recv();
            let socket = UdpSocket::bind((NEAR, 0))?;
            socket.connect(address)?;
            let clock = Clock::new();
            let mut buffer = [0; 100];
            (0..COUNT)
                .map(|_| {
                    let sent = clock.now();
                    socket.send(&[0; 64])?;
                    socket.recv(&mut buffer)?;
                    let round_trip = clock.now().since(sent);
                    thread::sleep(Span::from_millis(10));
                    Ok(round_trip.as_millis_f64())
                })
                .collect()
        });
        sender.join().expect("it sent").expect("answers")
    })
}

/// Datagrams of 1500 bytes (IP) at 10 Mbit/s.
fn steady(near: &Namespace, far: &Namespace, over: &AtomicBool) -> Vec<f64> {
    let address = SocketAddr::from((FAR, PORT));
    thread::scope(|scope| {
        let (ready, listening) = std::sync::mpsc::channel();
        let receiver = scope.spawn(move || -> io::Result<f64> {
            far.enter()?;
            let socket = UdpSocket::bind(address)?;
            socket.set_read_timeout(Some(Span::from_millis(100)))?;
            let _ = ready.send(());
            let (mut buffer, mut received) = ([0; 2000], 0);
            while !over.load(Ordering::Relaxed) {
                received += socket.recv(&mut buffer).map_or(0, |length| length + 28);
            }
            Ok(received as f64 * 8e-6 / SECONDS as f64)
        });
        scope.spawn(move || -> io::Result<()> {
            near.enter()?;
            let _ = listening.recv();
            let socket = UdpSocket::bind((NEAR, 0))?;
            let (clock, mut alarm) = (Clock::new(), Alarm::new()?);
            let (_never, source) = UnixStream::pair()?;
            let mut next = clock.now();
            let end = next + Duration::from_secs(SECONDS);
            while next < end {
                next += Duration::from_micros(1200);
                while clock.now() < next {
                    alarm.wait(&clock, Some(next), [(source.as_fd(), PollFlags::IN)])?;
                }
                socket.send_to(&[0; 1472], address)?;
            }
            over.store(true, Ordering::Relaxed);
            Ok(())
        });
        vec![receiver.join().expect("it received").expect("datagrams")]
    })
}

fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * q) as usize]
}

/// The run with the least of `key` of [`RUNS`].
fn best(run: impl Fn() -> io::Result<Ran>, key: impl Fn(&Ran) -> f64) -> Ran {
    (0..RUNS)
        .map(|_| run().expect("an emulated link"))
        .min_by(|a, b| key(a).total_cmp(&key(b)))
        .expect("runs")
}

fn late(histogram: &Histogram<u64>) -> String {
    let at = |q| histogram.value_at_quantile(q) as f64 / 1e3;
    format!(
        "p50 {:.3} p99 {:.3} largest {:.3} ms",
        at(0.5),
        at(0.99),
        histogram.max() as f64 / 1e3
    )
}

fn rate() {
    println!("constant rates, 5 ms each way, the kernel's TCP for {SECONDS} s; best of {RUNS}");
    for mbps in [100.0, 200.0, 400.0, 600.0, 800.0, 1000.0, 1500.0, 2000.0] {
        let ran = best(
            || run(mbps, 5.0, bulk),
            |ran| ran.timing.lateness.value_at_quantile(0.99) as f64,
        );
        println!(
            "  {mbps:5} Mbit/s: {:6.1} arrived, late {}, a bare timer {}, devices lost {}, emulator {:.0} % of a core",
            ran.samples[0],
            late(&ran.timing.lateness),
            late(&ran.timer),
            ran.drops + ran.timing.device_losses,
            ran.cpu * 100.0
        );
    }
}

fn delay() {
    println!("round trips above the configured 40 ms, a datagram each 50 ms; best of {RUNS}");
    for mbps in [10.0, 1000.0] {
        let mut ran = best(
            || run(mbps, 20.0, echo),
            |ran| quantile(&mut ran.samples.clone(), 0.95),
        );
        // The datagram's serialization time on the link.
        let serialization_ms = 92.0 * 8.0 / mbps / 1e3;
        let above = |value: f64| value - 40.0 - serialization_ms;
        println!(
            "  {mbps:5} Mbit/s: p50 {:.3} p95 {:.3} p99 {:.3} ms; late {}, a bare timer {}",
            above(quantile(&mut ran.samples, 0.5)),
            above(quantile(&mut ran.samples, 0.95)),
            above(quantile(&mut ran.samples, 0.99)),
            late(&ran.timing.lateness),
            late(&ran.timer)
        );
    }
}

fn cpu() {
    println!(
        "datagrams of 1500 bytes at 10 Mbit/s for {SECONDS} s, 20 ms each way; best of {RUNS}"
    );
    let ran = best(|| run(12.0, 20.0, steady), |ran| ran.cpu);
    println!(
        "  {:.2} Mbit/s arrived, emulator {:.2} % of a core, woken {} times, late {}, a bare timer {}",
        ran.samples[0],
        ran.cpu * 100.0,
        ran.timing.wakeups,
        late(&ran.timing.lateness),
        late(&ran.timer)
    );
}
