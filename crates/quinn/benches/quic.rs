//! The cost of hosting the core's controllers in quinn, and the results.
//!
//! - **cost**: our Cubic through the adapter against quinn's Cubic, in bytes per CPU second over
//!   loopback, with both ends in one process. Pairs are interleaved; the result is the median of
//!   their ratios.
//! - **link**: Verus, our Cubic and quinn's Cubic on a link of 50 Mbit/s and 40 ms, made by the
//!   fault proxy: their utilization and queue.
//! - **limits**: Verus on that link without one of the things it needs from quinn: an
//!   acknowledgement for each packet, a driver, batches (GSO).
//! - **epochs**: how late epochs are closed at 1, 10 and 100 Mbit/s, beside a bare timer in the
//!   same run.
//!
//! `cargo bench -p verus-quinn --bench quic` runs all; `-- cost` and so on one; `-- --quick` shorter ones. A run
//! during which the machine took more than 5 % of the time for others (steal) is void, and repeated.

// A benchmark reads clocks; that is all it does.
#![allow(clippy::disallowed_methods)]

#[path = "../tests/quinn/quic_common.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod quic_common;

use std::sync::Arc;
use std::time::{Duration as Span, Instant};

use hdrhistogram::Histogram;
use quic_common::{Pair, read, runtime, transport, write};
use quinn::TransportConfig;
use quinn::congestion::CubicConfig;
use rustix::time::{ClockId, clock_gettime};
use verus_core::Duration;
use verus_faults::machine::Steal;
use verus_faults::{Bottleneck, ProxyConfig, ProxyStats};
use verus_quinn::{self as quic, Event};

/// A run is void above this share of stolen time.
const STEAL: f64 = 0.05;
/// One way.
const DELAY: Duration = Duration::from_millis(20);
/// quinn's own Cubic, where a scheme is named.
const QUINN_CUBIC: &str = "quinn";

fn transport_of(scheme: &str) -> TransportConfig {
    if scheme == QUINN_CUBIC {
        let mut transport = TransportConfig::default();
        transport.congestion_controller_factory(Arc::new(CubicConfig::default()));
        transport
    } else {
        transport(scheme)
    }
}

/// Runs until the machine has kept to itself; says the share stolen.
fn undisturbed<T>(mut run: impl FnMut() -> T) -> (T, f64) {
    let mut tries = 0;
    loop {
        let before = Steal::now();
        let outcome = run();
        let share = before.share_since();
        tries += 1;
        if share <= STEAL || tries == 5 {
            return (outcome, share);
        }
        println!("  void: {:.0} % of the time was stolen", share * 100.0);
    }
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Bytes per CPU second, and per second, over loopback.
fn loopback(scheme: &str, bytes: usize) -> (f64, f64) {
    runtime().block_on(async {
        let pair = Pair::with(transport_of(scheme), transport_of(scheme)).await;
        let _driver = quic::drive(&pair.client);
        pair.send(bytes / 10).await;
        let (cpu, wall) = (cpu_seconds(), Instant::now());
        pair.send(bytes).await;
        let (cpu, wall) = (cpu_seconds() - cpu, wall.elapsed().as_secs_f64());
        if let Some(view) = quic::view(&pair.client) {
            let counters = view.snapshot().counters;
            assert_eq!(counters.misses, 0, "{counters:?}");
        }
        (bytes as f64 / cpu, bytes as f64 / wall)
    })
}

fn cost(quick: bool) {
    let (rounds, bytes) = if quick { (3, 256 << 20) } else { (7, 1 << 30) };
    println!("Cost: {} MB over loopback, {rounds} pairs", bytes >> 20);
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let ((ours, theirs), steal) = undisturbed(|| {
            // The order alternates.
            if round % 2 == 0 {
                let ours = loopback("cubic", bytes);
                (ours, loopback(QUINN_CUBIC, bytes))
            } else {
                let theirs = loopback(QUINN_CUBIC, bytes);
                (loopback("cubic", bytes), theirs)
            }
        });
        let ratio = ours.0 / theirs.0;
        println!(
            "  ours {:.0} MB/CPU s ({:.2} Gbit/s), quinn's {:.0} MB/CPU s ({:.2} Gbit/s), ratio {ratio:.3}, steal {:.1} %",
            ours.0 / 1e6,
            ours.1 * 8e-9,
            theirs.0 / 1e6,
            theirs.1 * 8e-9,
            steal * 100.0
        );
        ratios.push(ratio);
    }
    println!("  median ratio {:.3} (aim: 0.95)", median(&ratios));
}

/// A link of 40 ms.
#[derive(Clone, Copy)]
struct Link {
    mbps: f64,
    /// Its queue, in bandwidth-delay products.
    bdps: f64,
}

/// The link on which controllers are compared; its queue as in a router that follows the rule of thumb.
const SHALLOW: Link = Link {
    mbps: 50.0,
    bdps: 1.0,
};
/// The same with a queue as deep as in many cellular base stations, or less.
const DEEP: Link = Link {
    bdps: 4.0,
    ..SHALLOW
};

/// A proxy with that link towards the server.
impl Link {
    fn limit(self, config: &mut ProxyConfig) {
        let queue = (self.mbps * 1e6 / 8.0 * 0.04 * self.bdps).max(15_000.0) as u64;
        let queue = format!("droptail:bytes={queue}");
        config.up = Some(Bottleneck::new(self.mbps, &queue));
    }
}

struct LinkRun {
    stats: ProxyStats,
    snapshot: Option<quic::Snapshot>,
}

/// One flow over a link, after a warm-up.
fn over_link(
    mut client: TransportConfig,
    scheme: &str,
    link: Link,
    seconds: f64,
    driven: bool,
    change: impl FnOnce(&mut TransportConfig),
) -> LinkRun {
    client.send_window(1 << 26);
    if scheme != QUINN_CUBIC {
        quic::Factory::new(quic_common::scheme(scheme).config(), 1)
            .send_window(1 << 26)
            .install(&mut client);
    }
    change(&mut client);
    runtime().block_on(async {
        let server = transport_of(scheme);
        let (pair, proxy) = Pair::behind(client, server, DELAY, |way| link.limit(way)).await;
        let _driver = driven.then(|| quic::drive(&pair.client));
        let server = pair.server.clone();
        let reading = tokio::spawn(async move { read(&server).await });
        let client = pair.client.clone();
        let writing = tokio::spawn(async move { write(&client, usize::MAX >> 8).await });
        tokio::time::sleep(Span::from_secs(3)).await;
        proxy.restart_counts();
        tokio::time::sleep(Span::from_secs_f64(seconds)).await;
        let stats = proxy.stats();
        let snapshot = quic::view(&pair.client).map(|view| view.snapshot());
        pair.client.close(0u32.into(), b"enough");
        let _ = writing.await;
        let _ = reading.await;
        LinkRun { stats, snapshot }
    })
}

fn link(quick: bool) {
    let (rounds, seconds) = if quick { (1, 8.0) } else { (3, 12.0) };
    println!("Link: 50 Mbit/s, 40 ms, {seconds} s after 3 s, {rounds} runs, medians");
    for (depth, on) in [("1 BDP", SHALLOW), ("4 BDP", DEEP)] {
        for scheme in ["verus", "verus:ratio=4", "cubic", QUINN_CUBIC] {
            let (mut used, mut mean, mut p95, mut late) = (vec![], vec![], vec![], vec![]);
            let (mut drops, mut most) = (0, 0.0f64);
            for _ in 0..rounds {
                let (run, steal) = undisturbed(|| {
                    over_link(transport_of(scheme), scheme, on, seconds, true, |_| ())
                });
                let link = run.stats.up.bottleneck.expect("a bottleneck");
                used.push(link.utilization());
                mean.push(link.queueing.mean_ms);
                p95.push(link.queueing.p95_ms);
                late.push(run.stats.lateness.p99_ms);
                drops += link.dropped;
                most = most.max(steal);
                if let Some(snapshot) = run.snapshot {
                    assert_eq!(snapshot.counters.misses, 0, "{:?}", snapshot.counters);
                }
            }
            println!(
                "  queue {depth} {scheme:14} link {:.3}, queueing mean {:.1} p95 {:.1} ms, drops {drops} in all, proxy late p99 {:.2} ms, steal at most {:.1} %",
                median(&used),
                median(&mean),
                median(&p95),
                median(&late),
                most * 100.0
            );
        }
    }
}

/// Verus's loss on that link from each way in which QUIC differs.
fn limits(quick: bool) {
    type Change = fn(&mut TransportConfig);
    let unchanged: Change = |_| ();
    let no_frequency: Change = |transport| {
        transport.ack_frequency_config(None);
    };
    let no_batches: Change = |transport| {
        transport.enable_segmentation_offload(false);
    };
    let (rounds, seconds) = if quick { (1, 8.0) } else { (3, 12.0) };
    println!(
        "Limits: Verus (ratio=2) at 50 Mbit/s, 40 ms, queue 4 BDP, {seconds} s after 3 s, {rounds} runs, medians"
    );
    for (what, change, driven) in [
        ("as configured", unchanged, true),
        ("ACKs as the peer likes", no_frequency, true),
        ("no batches", no_batches, true),
        ("no driver", unchanged, false),
    ] {
        let (mut used, mut mean, mut p95, mut most) = (vec![], vec![], vec![], 0.0f64);
        for _ in 0..rounds {
            let (run, steal) = undisturbed(|| {
                over_link(
                    TransportConfig::default(),
                    "verus:ratio=2",
                    DEEP,
                    seconds,
                    driven,
                    change,
                )
            });
            let link = run.stats.up.bottleneck.expect("a bottleneck");
            used.push(link.utilization());
            mean.push(link.queueing.mean_ms);
            p95.push(link.queueing.p95_ms);
            most = most.max(steal);
        }
        println!(
            "  {what:24} link {:.3}, queueing mean {:.1} p95 {:.1} ms, steal at most {:.1} %",
            median(&used),
            median(&mean),
            median(&p95),
            most * 100.0
        );
    }
}

fn quantiles(late: &[f64]) -> String {
    let mut histogram = Histogram::<u64>::new(3).expect("three digits");
    for ms in late {
        histogram
            .record((ms * 1e6) as u64)
            .expect("grows as needed");
    }
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
    format!(
        "n {} p50 {:.3} p99 {:.3} max {:.3} ms",
        late.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    )
}

/// A bare timer: how late each of its ticks of 5 ms was.
async fn bare_timer(seconds: f64) -> Vec<f64> {
    let start = tokio::time::Instant::now();
    let mut late = Vec::new();
    let mut due = start;
    while due < start + Span::from_secs_f64(seconds) {
        due += Span::from_millis(5);
        tokio::time::sleep_until(due).await;
        late.push(due.elapsed().as_secs_f64() * 1e3);
    }
    late
}

fn epochs(quick: bool) {
    let seconds = if quick { 4.0 } else { 8.0 };
    println!("Epochs: how late they are closed, {seconds} s each");
    for mbps in [1.0, 10.0, 100.0] {
        for driven in [true, false] {
            let ((bare, late), steal) = undisturbed(|| epochs_at(mbps, seconds, driven));
            println!(
                "  {mbps} Mbit/s, driven {driven}, steal {:.1} %",
                steal * 100.0
            );
            println!("    epochs {}", quantiles(&late));
            println!("    timer  {}", quantiles(&bare));
        }
    }
}

fn epochs_at(mbps: f64, seconds: f64, driven: bool) -> (Vec<f64>, Vec<f64>) {
    let mut client = TransportConfig::default();
    quic::Factory::new(quic_common::scheme("verus").config(), 1).install(&mut client);
    runtime().block_on(async {
        let (server, link) = (transport_of("verus"), Link { mbps, bdps: 1.0 });
        let (pair, _proxy) = Pair::behind(client, server, DELAY, |way| link.limit(way)).await;
        let _driver = driven.then(|| quic::drive(&pair.client));
        let server = pair.server.clone();
        let reading = tokio::spawn(async move { read(&server).await });
        let client = pair.client.clone();
        let writing = tokio::spawn(async move { write(&client, usize::MAX >> 8).await });
        tokio::time::sleep(Span::from_secs(3)).await;
        let view = quic::view(&pair.client).expect("our controller");
        view.log(1 << 22);
        let bare = tokio::spawn(bare_timer(seconds)).await.expect("a timer");
        let late = view
            .take_log()
            .into_iter()
            .filter_map(|event| match event {
                Event::Tick { due, at } => Some(at.since(due).as_millis_f64()),
                _ => None,
            })
            .collect();
        pair.client.close(0u32.into(), b"enough");
        let _ = writing.await;
        let _ = reading.await;
        (bare, late)
    })
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|word| word == "--quick");
    let selected = |name: &str| {
        let names = ["cost", "link", "limits", "epochs"];
        arguments.iter().any(|word| word == name)
            || !arguments.iter().any(|word| names.contains(&word.as_str()))
    };
    if selected("cost") {
        cost(quick);
    }
    if selected("link") {
        link(quick);
    }
    if selected("limits") {
        limits(quick);
    }
    if selected("epochs") {
        epochs(quick);
    }
}
