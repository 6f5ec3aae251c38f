//! `compare --emulate`: one run of the lab in real time, between two network namespaces.
//!
//! ```text
//!  namespace of senders ── device ▶ emulated link ▶ device ── namespace of receivers
//! ```
//!
//! The lab passes a scenario as JSON and gets the results in the form of its simulator. The flows
//! are real: our controllers over UDP or QUIC, the kernel's TCP, or any program.

mod flow;
mod program;
mod quic;
mod stage;
mod tcp;
mod udp;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::path::Path;
use std::thread;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use serde::Deserialize;
use serde_json::{Value, json};
use verus_core::{Bytes, Duration, Time};
use verus_emu::device::{Device, DeviceConfig};
use verus_emu::emulator::Emulator;
use verus_emu::namespace::Namespace;
use verus_emu::netlink;
use verus_measure::{EndMetrics, rate_series};
use verus_senders::{External, LinuxTcp, Program, Scheme};
use verus_sim::{ChannelInfo, Paths, Scenario};

use self::flow::{Flow, LogSettings, Outcome, Received};
use self::stage::Stage;
use crate::failure::Failure;
use crate::guest;
use crate::shell::privilege;
use crate::ui::Ui;

/// The kind of a flow's sender.
#[derive(Clone, Debug)]
enum Kind {
    /// Our controller over UDP.
    Udp(Scheme),
    /// Our controller in QUIC.
    Quic(Scheme),
    /// The kernel's TCP.
    Tcp(LinuxTcp),
    /// The kernel's TCP with one of ours, which is loaded for the run.
    Loaded(verus_kernel::Config),
    /// Any other program (`cmd:SENDER => RECEIVER`).
    Program(Program),
}

/// For `verus compare --emulate`: reads a run from standard input and prints its results, as JSON.
#[derive(clap::Args)]
pub struct Args {
    /// Read several runs, and print only a list: for each, why it cannot be had in real time, or null.
    #[arg(long)]
    check: bool,
    /// Run on virtual time, in a separate guest.
    #[arg(long = "virtual")]
    on_virtual_time: bool,
}

/// Smallest packet of data. A handshake's largest packet must be smaller, so that the link begins
/// with data.
const LEAST_PACKET: u32 = 1280;
const MOST_PACKET: u32 = 9000;
const DEVICE: &str = "verus0";
const SENDERS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 1);
const RECEIVERS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 2);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EmulationJob {
    scenario: Scenario,
    transport: Transport,
    #[serde(default)]
    qlog: Option<LogSettings>,
    /// Whether the results have the fate of each packet at the bottleneck.
    #[serde(default)]
    packets: bool,
}

/// The transport of our own controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Transport {
    Udp,
    Quic,
}

/// Runs the job.
pub fn run(args: &Args, ui: &Ui) -> Result<(), Failure> {
    let mut text = String::new();
    io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Failure::usage(format_args!("cannot read the run: {error}")))?;
    let not_a_run = |error| Failure::usage(format_args!("not a run: {error}"));
    let kernel = args.on_virtual_time.then(guest::Kernel::find).transpose()?;
    if args.check {
        let mut refusals = Vec::new();
        for job in serde_json::Deserializer::from_str(&text).into_iter::<EmulationJob>() {
            let parts = job.map_err(not_a_run)?.parts(kernel.as_ref());
            refusals.push(parts.err().map(Failure::into_message));
        }
        return ui.json(&refusals);
    }
    let job: EmulationJob = serde_json::from_str(&text).map_err(not_a_run)?;
    let (mut flows, paths) = job.parts(kernel.as_ref())?;
    if let Some(kernel) = &kernel {
        // Ends with the lab, which may be killed.
        set_pdeathsig(Signal::SIGTERM)
            .map_err(|error| Failure::run(format_args!("virtual time: {error}")))?;
        let program = std::env::current_exe()
            .map_err(|error| Failure::run(format_args!("this program's path: {error}")))?;
        let task = guest::host::Task {
            seed: job.scenario.seed,
            input: Some(text.into_bytes()),
            ..guest::host::Task::of(vec![program.into(), "emulate".into()])
        };
        return guest::host::run(kernel, task, ui);
    }
    // Before rights are given up. Loaded programs are removed with this process, however it ends.
    let loaded = hold(&mut flows)?;
    privilege::acquire(None)?;
    let outcome = emulate(&job, paths, &flows)?;
    drop(loaded);
    ui.json(&outcome)
}

/// Loads the congestion controls that flows need into the kernel, each setting once, under unique
/// names. These replace the names in the flows.
fn hold(flows: &mut [Kind]) -> Result<Vec<verus_kernel::Held>, Failure> {
    let mut named: Vec<(verus_kernel::Config, String)> = Vec::new();
    let mut loaded = Vec::new();
    for kind in flows {
        let Kind::Loaded(config) = kind else {
            continue;
        };
        if let Some((_, name)) = named.iter().find(|(known, _)| known == config) {
            config.name.clone_from(name);
            continue;
        }
        let requested = config.clone();
        config.name = format!("verus_{:x}_{}", std::process::id(), named.len());
        loaded.push(verus_kernel::hold(config).map_err(|error| crate::kernel::failure_of(&error))?);
        named.push((requested, config.name.clone()));
    }
    Ok(loaded)
}

impl EmulationJob {
    /// The flows and the path, or an error if they cannot run in real time.
    fn parts(&self, kernel: Option<&guest::Kernel>) -> Result<(Vec<Kind>, Paths), Failure> {
        let flows = self.flows(kernel)?;
        let paths = self.scenario.paths();
        Ok((
            flows,
            paths.map_err(|error| Failure::usage(error.to_string()))?,
        ))
    }

    /// The kind of each flow, or an error if one of them cannot run in real time, or in a guest with
    /// that kernel.
    fn flows(&self, kernel: Option<&guest::Kernel>) -> Result<Vec<Kind>, Failure> {
        let scenario = &self.scenario;
        let refuse = |what: &str| Err(Failure::usage(format_args!("in real time, {what}")));
        if scenario.records {
            return refuse("there is no record of each packet (leave --records out)");
        }
        if scenario.handshake || scenario.quick_acks > 0 {
            return refuse(
                "each transport has a handshake and a receiver of its own (leave --handshake and --quick-acks out)",
            );
        }
        if scenario.medium != "none" {
            return refuse("the two directions share no medium (leave --medium out)");
        }
        if scenario.max_events.is_some() {
            return refuse("there are no events to be counted (leave --max-events out)");
        }
        if !(LEAST_PACKET..=MOST_PACKET).contains(&scenario.packet_bytes) {
            return refuse(&format!(
                "packet_bytes must be between {LEAST_PACKET} and {MOST_PACKET}, not {}",
                scenario.packet_bytes
            ));
        }
        let mut kinds = Vec::new();
        for flow in &scenario.flows {
            if flow.delay_ms.is_some() || flow.crosses.is_some() {
                return refuse("all flows have the same path");
            }
            if flow.traffic.is_some() {
                return refuse("flows send without pauses");
            }
            let kind = self.kind(&flow.scheme, kernel)?;
            let whole = flow.start_s == 0.0 && flow.stop_s.is_none() && flow.bytes.is_none();
            if !whole && !matches!(kind, Kind::Udp(_) | Kind::Tcp(_)) {
                return refuse(
                    "flows in QUIC, of loaded controllers and of programs last for the whole run",
                );
            }
            kinds.push(kind);
        }
        let ours = kinds
            .iter()
            .any(|kind| matches!(kind, Kind::Udp(_) | Kind::Quic(_)));
        if ours && scenario.ack_every != 1 {
            return refuse(
                "ack_every must be 1 but for senders that are not ours, which have their own",
            );
        }
        Ok(kinds)
    }

    fn kind(&self, text: &str, kernel: Option<&guest::Kernel>) -> Result<Kind, Failure> {
        let refused = |problem: String| Failure::usage(format_args!("scheme `{text}`: {problem}"));
        match External::parse(text).transpose().map_err(refused)? {
            Some(External::Kernel(_)) if kernel.is_some() => Err(refused(
                "the guest kernel of --virtual takes no programs (leave --virtual out)".to_owned(),
            )),
            Some(External::Kernel(scheme)) => {
                let mut words = scheme.split([':', ',']);
                let law = words.next().unwrap_or_default();
                let settings: Vec<String> = words.map(str::to_owned).collect();
                verus_kernel::Config::parse(law, &settings, None)
                    .map(Kind::Loaded)
                    .map_err(|error| refused(error.to_string()))
            }
            Some(External::Linux(tcp)) => {
                let (available, whose) = match kernel {
                    // One that is not described is asked when it runs.
                    Some(kernel) => (
                        kernel.congestion_controls().map(<[String]>::to_vec),
                        "the guest kernel",
                    ),
                    None => (Some(congestion_controls()), "this kernel"),
                };
                match available {
                    Some(available) if !available.contains(&tcp.cc) => {
                        Err(refused(format!("{whose} has {}", available.join(", "))))
                    }
                    _ => Ok(Kind::Tcp(tcp)),
                }
            }
            Some(External::Program(program)) => Ok(Kind::Program(program)),
            None => {
                let scheme =
                    crate::scheme::open(text).map_err(|error| Failure::usage(error.to_string()))?;
                Ok(match self.transport {
                    Transport::Udp => Kind::Udp(scheme),
                    Transport::Quic => Kind::Quic(scheme),
                })
            }
        }
    }
}

/// Congestion controls of the running kernel.
fn congestion_controls() -> Vec<String> {
    let list = Path::new("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let list = std::fs::read_to_string(list).unwrap_or_default();
    list.split_whitespace().map(str::to_owned).collect()
}

fn emulate(job: &EmulationJob, paths: Paths, kinds: &[Kind]) -> Result<Value, Failure> {
    let scenario = &job.scenario;
    let cannot = |error: io::Error| privilege::explain("an emulated link", &error);
    let failed = |error: io::Error| Failure::run(format_args!("the emulated link: {error}"));
    let namespaces = [
        Namespace::new().map_err(cannot)?,
        Namespace::new().map_err(cannot)?,
    ];
    let device = |index: usize, ipv4| {
        let config = DeviceConfig {
            name: DEVICE.to_owned(),
            ipv4,
            ipv6: None,
            mtu: scenario.packet_bytes as u16,
        };
        namespaces[index]
            .within(|| Device::new(&config))
            .and_then(|device| device)
            .map_err(cannot)
    };
    let devices = [device(0, SENDERS)?, device(1, RECEIVERS)?];
    let directions = [paths.there.clone(), paths.back.clone()];
    let emulator = Emulator::new(devices, &directions, scenario.seed).map_err(failed)?;
    let stage = Stage::new(scenario, &paths, job.packets).map_err(failed)?;
    let duration = Duration::from_secs_f64(scenario.duration_s);
    let (emulator, watch, outcomes) = thread::scope(|scope| {
        let emulation = stage.emulate(scope, emulator, duration);
        let flows: Vec<_> = kinds
            .iter()
            .enumerate()
            .zip(&scenario.flows)
            .map(|((index, kind), settings)| {
                let flow = Flow {
                    index,
                    seed: scenario.seed.wrapping_add(index as u64),
                    packet_bytes: scenario.packet_bytes as u16,
                    duration,
                    start: Duration::from_secs_f64(settings.start_s),
                    stop: settings.stop_s.map(Duration::from_secs_f64),
                    bytes: settings.bytes,
                    receiver: (RECEIVERS, 6000 + index as u16).into(),
                    namespaces: &namespaces,
                    stage: &stage,
                    logs: job.qlog.as_ref(),
                    run_seed: scenario.seed,
                };
                scope.spawn(move || run_flow(flow, kind))
            })
            .collect();
        let played = stage.play(kinds.len());
        let emulated = emulation
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let outcomes: Vec<Result<Outcome, io::Error>> = flows
            .into_iter()
            .map(|flow| {
                flow.join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect();
        // The flow that failed first is the reason why the others failed.
        let mut ended = Vec::new();
        for (outcome, flow) in outcomes.into_iter().zip(&scenario.flows) {
            ended.push(outcome.map_err(|error| {
                Failure::run(format_args!("flow of `{}`: {error}", flow.scheme))
            })?);
        }
        played.map_err(failed)?;
        let (emulator, watch) = emulated.map_err(failed)?;
        Ok::<_, Failure>((emulator, watch, ended))
    })?;
    let drops = namespaces
        .iter()
        .map(|namespace| {
            namespace
                .within(|| netlink::device_drops(DEVICE))
                .and_then(|drops| drops)
        })
        .sum::<io::Result<u64>>()
        .map_err(failed)?;
    Ok(results(
        scenario, &paths, &emulator, watch, &outcomes, drops,
    ))
}

/// Runs both ends of a flow, a sender in one namespace and a receiver in the other, until the stage is over.
///
/// # Errors
/// If either end failed; the stage is then over for all.
fn run_flow(flow: Flow<'_>, kind: &Kind) -> io::Result<Outcome> {
    let outcome = thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            flow.namespaces[1].enter()?;
            let received = match kind {
                Kind::Udp(_) => udp::receive(&flow),
                Kind::Quic(_) => quic::receive(&flow).map(|bytes| Received {
                    bytes: Some(bytes),
                    completion: None,
                }),
                Kind::Tcp(tcp) => tcp::receive(&flow, tcp.receive_buffer),
                Kind::Loaded(_) => tcp::receive(&flow, None),
                Kind::Program(program) => program::receive(&flow, program).map(|bytes| Received {
                    bytes,
                    completion: None,
                }),
            };
            if received.is_err() {
                flow.stage.end();
            }
            received
        });
        let sent = flow.namespaces[0].within(|| {
            flow.stage.await_receiver(flow.index)?;
            match kind {
                Kind::Udp(scheme) => udp::send(&flow, scheme),
                Kind::Quic(scheme) => quic::send(&flow, scheme),
                Kind::Tcp(tcp) => tcp::send(&flow, &tcp.cc),
                Kind::Loaded(config) => tcp::send(&flow, &config.name),
                Kind::Program(program) => program::send(&flow, program),
            }
        });
        let sent = sent.and_then(|sent| sent);
        if sent.is_err() {
            flow.stage.end();
        }
        let received = receiver
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let received = received?;
        Ok(Outcome {
            delivered_bytes: received.bytes,
            completion: received.completion,
            ..sent?
        })
    });
    if outcome.is_err() {
        flow.stage.end();
    }
    outcome
}

/// The results, with the names of the lab's simulator.
fn results(
    scenario: &Scenario,
    paths: &Paths,
    emulator: &Emulator,
    watch: stage::FlowWatch,
    outcomes: &[Outcome],
    drops: u64,
) -> Value {
    let end = Time::from_secs_f64(scenario.duration_s);
    let capacity = |from, to| {
        emulator
            .capacity(verus_emu::emulator::Way::Forth, from, to)
            .unwrap_or(Bytes::ZERO)
    };
    let stage::FlowWatch {
        mut meter, packets, ..
    } = watch;
    for (index, (outcome, flow)) in outcomes.iter().zip(&scenario.flows).enumerate() {
        if flow.bytes.is_some() {
            meter.expect_pieces(index);
        }
        if let Some(took) = outcome.completion {
            meter.on_completion(index, took);
        }
    }
    let measured = meter.finish(end, capacity);
    let mut metrics = serde_json::to_value(&measured).expect("plain columns");
    let ends: Vec<EndMetrics> = outcomes
        .iter()
        .map(|outcome| EndMetrics {
            rtt_mean_ms: outcome.rtt_mean_ms,
            rtt_p95_ms: outcome.rtt_p95_ms,
            retransmit_rate: outcome.retransmit_rate,
            ..EndMetrics::of_goodput(outcome.delivered_bytes, measured.interval_s)
        })
        .collect();
    let of = |ends: EndMetrics| serde_json::to_value(ends).expect("plain columns");
    metrics = crate::folder::joined([of(EndMetrics::together(&ends)), metrics]);
    for (flow, ends) in metrics["per_flow"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .zip(&ends)
    {
        *flow = crate::folder::joined([of(*ends), flow.take()]);
    }
    let bin = Duration::from_millis_f64(scenario.bin_ms);
    let capacity_mbps = rate_series(end, bin, capacity);
    let series: Vec<Value> = measured
        .series
        .iter()
        .map(|flow| {
            json!({
                "throughput_mbps": flow.throughput_mbps,
                "qdelay_ms": flow.qdelay_mean_ms,
                "qdelay_max_ms": flow.qdelay_max_ms,
            })
        })
        .collect();
    let timing = emulator.timing();
    let late = |q| timing.lateness.value_at_quantile(q) as f64 / 1e3;
    let channel = |info: &ChannelInfo| serde_json::to_value(info).expect("plain columns");
    let others: BTreeMap<&str, Value> = paths
        .other_channels
        .iter()
        .map(|(field, info)| (*field, channel(info)))
        .collect();
    json!({
        "metrics": metrics,
        "trace": channel(&paths.channel),
        "other_channels": others,
        "bin_ms": scenario.bin_ms,
        "capacity_mbps": capacity_mbps,
        "series": series,
        "packets": packets,
        "flows": outcomes.iter().map(|outcome| json!({
            "transport": outcome.transport,
            "window_bytes": outcome.window_bytes,
            "profiles": outcome.profiles,
        })).collect::<Vec<_>>(),
        "timing": {
            "deliveries": timing.lateness.len(),
            "lateness_p50_ms": late(0.5),
            "lateness_p99_ms": late(0.99),
            "lateness_max_ms": timing.lateness.max() as f64 / 1e3,
            "missed_bytes": timing.missed_bytes,
            "device_losses": timing.device_losses + drops,
        },
    })
}
