//! `probe client --record`: recordings of a live channel in both directions, as traces
//! (`docs/recording.md`).

use std::io::Write as _;
use std::path::Path;
use std::time::SystemTime;

use serde_json::{Value, json};
use verus_channel::raw;
use verus_channel::statistics::{BurstHistograms, Statistics};
use verus_core::{Bytes, Duration, Rate, Time};
use verus_probe::recording::{self, Limit, Recording, Tape, Way};
use verus_probe::results::{Direction, Recorder};
use verus_probe::wire::Request;
use verus_senders::Scheme;

use crate::failure::Failure;
use crate::folder;
use crate::ui::Ui;

use super::client::{Args, RecordMode, TestDirection, details, show};
use super::contents::{TestSettings, contents};
use super::session::{Session, Test, Watched};

/// Bytes of an opportunity in a recorded trace: Mahimahi's packet.
const OPPORTUNITY: Bytes = Bytes::new(1500);
/// Default length of a recording, s.
const DEFAULT_SECONDS: f64 = 60.0;

/// Share of the time with a queue from which the queue counts as permanent.
const STEADY: f64 = 0.95;

/// Stretch of single arrivals for drawing, as in the paper's Fig. 1, and their largest number.
const DRAWN: Duration = Duration::from_millis(250);
const MOST_DRAWN: usize = 3000;

/// The settings of a recording.
struct RecordingPlan {
    mode: RecordMode,
    request: Request,
    /// The schemes of upload and download.
    schemes: [Scheme; 2],
    /// The constant rates of upload and download, if any.
    offered: [Option<Rate>; 2],
    settling: Duration,
}

impl RecordingPlan {
    fn new(args: &Args) -> Result<Self, Failure> {
        let usage = |text: &str| Failure::usage(text);
        let mut offered = [None; 2];
        let [up, down] = match args.record_mode {
            RecordMode::Saturate => {
                if args.rate_mbps.is_some() || args.up_rate_mbps.is_some() {
                    return Err(usage(
                        "--rate-mbps and --up-rate-mbps belong to --record-mode constant; \
                         saturate finds the rate",
                    ));
                }
                let queue_ms = args.queue_ms.map(|millis| format!(":delay_ms={millis}"));
                let scheme = format!("saturate{}", queue_ms.unwrap_or_default());
                [scheme.clone(), scheme]
            }
            RecordMode::Constant => {
                if args.queue_ms.is_some() {
                    return Err(usage("--queue-ms belongs to --record-mode saturate"));
                }
                let Some(rate) = args.rate_mbps else {
                    return Err(usage(
                        "--record-mode constant needs --rate-mbps (the paper: 5 down, and \
                         --up-rate-mbps 2.5)",
                    ));
                };
                let up = args.up_rate_mbps.unwrap_or(rate);
                offered = [up, rate].map(|rate| Some(Rate::from_mbps(rate)));
                [up, rate].map(|rate| format!("constant:rate_mbps={rate}"))
            }
        };
        let parse = |flag: &str, text: &str| {
            Scheme::parse(text).map_err(|error| Failure::usage(format_args!("{flag}: {error}")))
        };
        let up_flag = args
            .up_rate_mbps
            .map_or("--rate-mbps", |_| "--up-rate-mbps");
        let schemes = [parse(up_flag, &up)?, parse("--rate-mbps", &down)?];
        let settling = match args.record_mode {
            RecordMode::Saturate => recording::SETTLING,
            RecordMode::Constant => Duration::ZERO,
        };
        let direction = args.test_direction().unwrap_or(TestDirection::Both);
        let flows = |way| u16::from(direction == way || direction == TestDirection::Both);
        let duration = Duration::from_secs_f64(args.duration.unwrap_or(DEFAULT_SECONDS));
        let request = Request {
            upload_flows: flows(TestDirection::Up),
            download_flows: flows(TestDirection::Down),
            packet_bytes: args.packet_bytes,
            status_millis: 100,
            duration_nanos: (duration + settling).as_nanos(),
            bytes: 0,
            rate_bps: 0,
            seed: args.seed,
            scheme: down,
        };
        Ok(RecordingPlan {
            mode: args.record_mode,
            request,
            schemes,
            offered,
            settling,
        })
    }
}

/// Records into `target`.
///
/// # Errors
/// If nothing could be recorded; then no files remain. The results of a load that was cut short are
/// kept.
pub fn run(args: &Args, target: &Path, ui: &Ui) -> Result<(), Failure> {
    let ui = &ui.to_the_end();
    let plan = RecordingPlan::new(args)?;
    let secret = super::read_key(args.key_file.as_deref())?;
    folder::check("--record", target, args.force)?;
    let mut session = Session::open(&args.server()?, args.family(), secret, ui)?;
    let host = &args.host.name;
    let light = recording::light_request(&plan.request);
    let light_scheme = Scheme::parse(&light.scheme).expect("a rate in range");
    let probe = |session: &mut Session<'_>| {
        let recorder = Recorder::new(host, light_scheme.clone(), light.clone());
        tape(session, &light, &light_scheme, recorder)
    };

    let light_s = recording::LIGHT_FOR.as_secs_f64();
    ui.note(format_args!(
        "{}: light probes for {light_s} s, which find the empty path",
        session.address
    ));
    let (test, before) = probe(&mut session)?;
    if test.outcome().is_err() || session.stopped_by.is_some() {
        return session.end(&test, &light);
    }
    let load_s = (Duration::from_nanos(plan.request.duration_nanos) - plan.settling).as_secs_f64();
    let settling_s = plan.settling.as_secs_f64();
    ui.note(match plan.mode {
        RecordMode::Saturate => {
            format!("the load: {settling_s} s to find the rate, then {load_s} s that are recorded")
        }
        RecordMode::Constant => format!("the load: {load_s} s at a constant rate"),
    });
    session.lines = true;
    let slept = session.driver.clock().slept();
    let wall = (now(), session.driver.clock().now());
    let recorder = Recorder::new(host, plan.schemes[0].clone(), plan.request.clone())
        .with_downward(plan.schemes[1].clone());
    let (load_test, mut load) = tape(&mut session, &plan.request, &plan.schemes[0], recorder)?;
    load.note_own_silence(session.driver.clock().slept().saturating_sub(slept));
    let Some((connection, record)) = load_test.result() else {
        return session.end(&load_test, &plan.request);
    };
    session.lines = false;
    let cut_short = load_test.outcome().is_err() || session.stopped_by.is_some();
    let after = if cut_short {
        Tape::default()
    } else {
        ui.note(format_args!(
            "light probes for {light_s} s again, which find the clocks' drift"
        ));
        match probe(&mut session) {
            Ok((test, tape)) if test.outcome().is_ok() => tape,
            _ => {
                ui.note(
                    "no answer to the light probes after the load; the clocks' drift is less sure",
                );
                Tape::default()
            }
        }
    };
    let failed = |error: &dyn std::fmt::Display| {
        Failure::run(format_args!("{}: no recording: {error}", session.address))
    };
    let recording = Recording::new([&before, &load, &after], &plan.request, plan.settling)
        .map_err(|error| {
            session
                .end(&load_test, &plan.request)
                .err()
                .unwrap_or_else(|| failed(&error))
        })?;
    let settings = TestSettings {
        host,
        address: session.address.to_string(),
        request: &plan.request,
        schemes: [&plan.schemes[0], &plan.schemes[1]],
    };
    let mut contents = contents(&settings, record);
    let granted = (record.rows.iter())
        .find_map(|(_, row)| row.server_limit_mbps)
        .map(Rate::from_mbps);
    let notes =
        add(&mut contents, &plan, &recording, granted, wall).map_err(|error| failed(&error))?;
    folder::write("--record", target, &contents)?;
    show(args, ui, record)?;
    details(ui, &session.driver, connection);
    for line in notes {
        ui.note(line);
    }
    ui.note(format_args!(
        "recording in `{}`; `verus report` draws it",
        target.display()
    ));
    if let Some(command) = replay(target, &contents.run["recording"]) {
        ui.note(format_args!("`{command}` runs controllers over it"));
    }
    session.end(&load_test, &plan.request)
}

/// Runs a test and tapes it.
fn tape(
    session: &mut Session<'_>,
    request: &Request,
    scheme: &Scheme,
    recorder: Recorder,
) -> Result<(Test, Tape), Failure> {
    let mut tape = Tape::default();
    let mut events = Vec::new();
    let watched = Watched {
        events: true,
        ..Watched::default()
    };
    let test = session.run(request, scheme, recorder, watched, |connection| {
        connection.drain_events(&mut events);
        tape.take(events.drain(..));
        let sent = connection.incoming().map(|(_, status)| status.sent).sum();
        tape.note_sent_there(sent);
        Ok(())
    })?;
    Ok((test, tape))
}

/// Adds the recording's files and its part of `run.json` to those of the test. Returns lines for a
/// person.
fn add(
    contents: &mut folder::Contents,
    plan: &RecordingPlan,
    recording: &Recording,
    granted: Option<Rate>,
    wall: (SystemTime, Time),
) -> Result<Vec<String>, verus_channel::Error> {
    let clocks = &recording.clocks;
    // The clocks of the two ends begin with their programs, so their difference means nothing to a
    // person.
    let mut notes = vec![format!(
        "base round trip {:.2} ms; one-way delays are known to ± {:.3} ms",
        clocks.base_rtt_ms, clocks.offset_error_ms
    )];
    let mut directions = serde_json::Map::new();
    let flow_counts = [plan.request.upload_flows, plan.request.download_flows];
    for (((direction, way), offered), flows) in [
        (Direction::Up, &recording.up),
        (Direction::Down, &recording.down),
    ]
    .into_iter()
    .zip(plan.offered)
    .zip(flow_counts)
    {
        if flows == 0 {
            continue;
        }
        let bounds = [granted, offered];
        let (lines, summary) = add_way(contents, direction, way, bounds, recording.from, wall)?;
        notes.extend(lines);
        directions.insert(direction.name().to_owned(), summary);
    }
    if let Value::Object(run) = &mut contents.run {
        run.insert("kind".to_owned(), json!("recording"));
        run.insert(
            "recording".to_owned(),
            json!({
                "mode": match plan.mode {
                    RecordMode::Saturate => "saturate",
                    RecordMode::Constant => "constant",
                },
                "schemes": plan.schemes.each_ref().map(Scheme::text),
                "began": humantime::format_rfc3339_millis(unix(recording.from, wall)).to_string(),
                "settling_s": plan.settling.as_secs_f64(),
                "opportunity_bytes": OPPORTUNITY.get(),
                "clocks": clocks,
                "ways": directions,
            }),
        );
    }
    Ok(notes)
}

/// Adds one direction's files. Returns lines for a person, and its part of `run.json`.
///
/// A trace whose rate the path did not limit is named after the actual limit.
fn add_way(
    contents: &mut folder::Contents,
    direction: Direction,
    way: &Way,
    [granted, offered]: [Option<Rate>; 2],
    from: Time,
    wall: (SystemTime, Time),
) -> Result<([String; 2], Value), verus_channel::Error> {
    let name = direction.name();
    let arrivals = way
        .arrivals
        .iter()
        .map(|arrival| (arrival.at, arrival.size));
    let trace = raw::from_arrivals(name, arrivals, from, OPPORTUNITY)?;
    let lines = trace.opportunities().map(|millis| format!("{millis}\n"));
    let rate = trace.mean_rate(OPPORTUNITY);
    let limit = Limit::of(way, rate, granted, offered);
    let mark = limit
        .mark()
        .map_or_else(String::new, |mark| format!("-{mark}"));
    let files = [
        format!("{name}{mark}.trace"),
        format!("{name}.raw"),
        format!("{name}-packets.csv"),
    ];
    let trace_file = files[0].clone();
    let bytes = [
        lines.collect::<String>().into_bytes(),
        raw_log(way, wall),
        packets(way, from),
    ];
    contents.more.extend(files.into_iter().zip(bytes));
    let statistics = Statistics::of(trace.opportunities(), OPPORTUNITY);
    let line = format!(
        "{name}: {:.2} Mbit/s over {:.1} s, {} of {} packets lost, a queue {:.1} % of the time",
        rate.as_mbps(),
        trace.period().as_secs_f64(),
        way.lost,
        way.sent,
        way.queued_share * 100.0
    );
    let verdict = words(limit, way, granted, offered, &trace_file);
    let summary = json!({
        "trace": trace_file,
        "limited_by": limit,
        "is_channel": limit.is_path(),
        "mean_mbps": rate.as_mbps(),
        "duration_s": trace.period().as_secs_f64(),
        "sent": way.sent,
        "lost": way.lost,
        "untimed": way.untimed,
        "queued_share": way.queued_share,
        "own_silence_s": way.own_silence.as_secs_f64(),
        "statistics": statistics,
        "bursts": BurstHistograms::of(trace.opportunities(), OPPORTUNITY),
        "stretch": stretch(way),
        "series": series(way, from),
    });
    Ok(([line, format!("{name}: {verdict}")], summary))
}

/// The command that replays a recording: its trace, the measured delay, and the other direction for
/// acknowledgements. None if no direction is a channel.
fn replay(target: &Path, recording: &Value) -> Option<String> {
    let mut channels = ["down", "up"].into_iter().filter_map(|name| {
        let direction = &recording["ways"][name];
        let file = target.join(direction["trace"].as_str()?);
        (direction["is_channel"] == true).then(|| quoted(&file.to_string_lossy()))
    });
    let mut command = format!("verus compare --trace {}", channels.next()?);
    if let Some(back) = channels.next() {
        command += &format!(" --ack {back}");
    }
    let rtt_ms = recording["clocks"]["base_rtt_ms"].as_f64()?;
    Some(format!("{command} --delay {:.2}ms", rtt_ms / 2.0))
}

/// Quotes a text as one word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// The limit of a recorded rate, in words, with its consequence for the trace.
fn words(
    limit: Limit,
    way: &Way,
    granted: Option<Rate>,
    offered: Option<Rate>,
    file: &str,
) -> String {
    let mbps = |rate: Option<Rate>| rate.map_or(f64::NAN, Rate::as_mbps);
    let no_channel = format!("`{file}` is not what the path carries, and no channel to replay");
    match limit {
        Limit::PathQueue if way.queued_share < STEADY => format!(
            "limited by the path, which had a queue for only {:.0} % of the time: it may have carried more in the rest",
            way.queued_share * 100.0
        ),
        Limit::PathQueue => "limited by the path: packets waited at its bottleneck".to_owned(),
        Limit::PathDrops => {
            "limited by the path, which drops packets and lets next to none wait".to_owned()
        }
        Limit::ServerLimit => format!(
            "limited by the server, which grants a test {} Mbit/s (`--max-mbps` there): {no_channel}",
            mbps(granted)
        ),
        Limit::OwnRate => format!(
            "limited by the load, a constant {} Mbit/s (--rate-mbps): {no_channel}",
            mbps(offered)
        ),
        Limit::OwnSilence => format!(
            "this machine did not run for {:.1} s of it: it was stopped, asleep or busy. {no_channel}; record it again",
            way.own_silence.as_secs_f64()
        ),
        Limit::Ends => format!("limited by the two ends, which were no faster: {no_channel}"),
    }
}

/// A short stretch from the middle, for drawing: arrival times in ms from its first packet, and
/// bytes.
fn stretch(way: &Way) -> Vec<(f64, u64)> {
    let middle = &way.arrivals[way.arrivals.len() / 2..];
    let Some(first) = middle.first() else {
        return Vec::new();
    };
    middle
        .iter()
        .take(MOST_DRAWN)
        .map(|arrival| (arrival.at.since(first.at), arrival.size))
        .take_while(|(after, _)| *after <= DRAWN)
        .map(|(after, size)| ((after.as_millis_f64() * 1e3).round() / 1e3, size.get()))
        .collect()
}

/// Rate and mean one-way delay in bins of 100 ms, null where nothing arrived. These bins go by
/// arrival times; the test's own series of uploads go by those of acknowledgements.
fn series(way: &Way, from: Time) -> Value {
    const BIN: Duration = Duration::from_millis(100);
    let bin = |at: Time| (at.since(from).as_nanos() / BIN.as_nanos()) as usize;
    let bins = way.arrivals.last().map_or(0, |last| bin(last.at) + 1);
    let mut sums = vec![(0, 0.0, 0u32); bins];
    for arrival in &way.arrivals {
        let (bytes, delays, packets) = &mut sums[bin(arrival.at)];
        *bytes += arrival.size.get();
        if arrival.number.is_some() {
            *delays += arrival.delay_ms();
            *packets += 1;
        }
    }
    let thousandths = |value: f64| (value * 1e3).round() / 1e3;
    let rate = |bytes: u64| thousandths(bytes as f64 * 8.0 / BIN.as_secs_f64() / 1e6);
    let delay = |sum: f64, count: u32| (count > 0).then(|| thousandths(sum / f64::from(count)));
    json!({
        "bin_s": BIN.as_secs_f64(),
        "rate_mbps": sums.iter().map(|sum| rate(sum.0)).collect::<Vec<_>>(),
        "delay_ms": sums.iter().map(|sum| delay(sum.1, sum.2)).collect::<Vec<_>>(),
    })
}

/// Arrivals of packets with data, as Unix times, in the format that `verus trace convert` reads.
fn raw_log(way: &Way, wall: (SystemTime, Time)) -> Vec<u8> {
    let mut text = Vec::new();
    for arrival in way
        .arrivals
        .iter()
        .filter(|arrival| arrival.number.is_some())
    {
        let at = unix(arrival.at, wall)
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let _ = writeln!(text, "{}.{:06}", at.as_secs(), at.subsec_micros());
    }
    text
}

/// Each packet with its one-way delay.
fn packets(way: &Way, from: Time) -> Vec<u8> {
    let mut text = b"number,sent_s,arrived_s,delay_ms,bytes\n".to_vec();
    let seconds = |at: Time| (at.as_nanos() as f64 - from.as_nanos() as f64) / 1e9;
    for arrival in &way.arrivals {
        let (at, size) = (seconds(arrival.at), arrival.size.get());
        // The time when a packet without data was sent is not reported.
        let written = match arrival.number {
            Some(number) => writeln!(
                text,
                "{number},{:.6},{at:.6},{:.3},{size}",
                seconds(arrival.sent),
                arrival.delay_ms()
            ),
            None => writeln!(text, ",,{at:.6},,{size}"),
        };
        debug_assert!(written.is_ok(), "memory takes what is written");
    }
    text
}

/// The wall clock's time at `at`, from one moment on both clocks.
fn unix(at: Time, (wall, moment): (SystemTime, Time)) -> SystemTime {
    let after = std::time::Duration::from_nanos(at.since(moment).as_nanos());
    let before = std::time::Duration::from_nanos(moment.since(at).as_nanos());
    wall + after - before
}

#[expect(
    clippy::disallowed_methods,
    reason = "raw arrival logs and run.json tell when something was recorded"
)]
fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_replayed_with_its_delay_and_its_way_back() {
        let recording = |down: bool, up: bool| {
            json!({
                "clocks": {"base_rtt_ms": 40.5},
                "ways": {
                    "down": {"trace": "down.trace", "is_channel": down},
                    "up": {"trace": "up.trace", "is_channel": up},
                },
            })
        };
        let command = |down, up| replay(Path::new("my way"), &recording(down, up));
        assert_eq!(
            command(true, true).as_deref(),
            Some(
                "verus compare --trace 'my way/down.trace' --ack 'my way/up.trace' --delay 20.25ms"
            )
        );
        assert_eq!(
            command(false, true).as_deref(),
            Some("verus compare --trace 'my way/up.trace' --delay 20.25ms")
        );
        assert_eq!(command(false, false), None);
    }
}
