//! A run that a page looks at while it goes on.
//!
//! Links are served when their state is read, so a run's records of its last round trip are
//! incomplete. The run is kept a round trip ahead of the display, so that the packets shown are
//! exact. A window that is set by hand takes effect at the run's time: the person is as far from
//! the bottleneck as any sender.

use serde_json::{Value, json};
use verus_channel::Service;
use verus_core::{Duration, Phase, Time};
use verus_senders::Registry;
use verus_sim::{Error, Outcome, Records, Scenario, Simulation};

use crate::hand;

/// Time over which throughput and delay are averaged: long enough for some packets at 1 Mbit/s,
/// short enough to show a mobile link's changes.
pub const SLICE: Duration = Duration::from_millis(100);

/// For how long a packet that was dropped is shown, ms of the run.
const FALLS_MS: f64 = 300.0;

/// More packets than this are not shown one by one: they would be less than a pixel each.
const MOST_SHOWN: usize = 4000;

/// The longest run, s: a page shows minutes, and keeps each packet's record.
const LONGEST_S: f64 = 600.0;

/// A run, and its displayed state.
pub struct Lane {
    stage: Stage,
    end: Time,
    /// The reader of the run's records.
    reader: Reader,
    /// How far the run is ahead of the display: a round trip without queues.
    lead: Duration,
    next_slice: Time,
    /// The window of each flow, bytes, and its algorithm's phase.
    senders: Vec<(f32, f32)>,
    slices: Vec<f32>,
    slice_count: usize,
    frame: Vec<f32>,
}

enum Stage {
    Running(Box<Simulation>),
    Over(Box<Outcome>),
    /// After a run that failed.
    Failed,
}

/// Takes in records in the order of time.
struct Reader {
    /// Until when, ms.
    shown_ms: f64,
    /// How long data take behind the bottleneck, ms.
    way_ms: f64,
    /// How many packets had been sent by then.
    sent: usize,
    /// Rows of those in the bottleneck, in the order of sending.
    waiting: Vec<usize>,
    /// Rows of those that left it and are not yet acknowledged.
    under_way: Vec<usize>,
    /// Rows of those dropped lately.
    fallen: Vec<usize>,
    waiting_bytes: u64,
    dropped: u64,
    /// Departures from the bottleneck since the last slice, of each flow.
    departed: Vec<Departed>,
    dropped_in_slice: u64,
}

#[derive(Clone, Copy, Default)]
struct Departed {
    bytes: u64,
    packets: u64,
    delay_ms: f64,
}

impl Lane {
    /// A run of this scenario, before its first event, and its facts: the number of its flows, the
    /// channel's mean rate, and its capacity in each slice.
    ///
    /// # Errors
    /// If the scenario is invalid.
    pub fn open(scenario_json: &str) -> Result<(Lane, Value), Error> {
        let scenario = Scenario {
            records: true,
            series: false,
            ..Scenario::from_json(scenario_json)?
        };
        if scenario.duration_s > LONGEST_S {
            return Err(Error::Field(verus_sim::FieldError::Value {
                field: "duration_s".to_owned(),
                expected: format!("at most {LONGEST_S} s here").into(),
                value: scenario.duration_s.to_string(),
            }));
        }
        let registry = Registry::default().with::<hand::Config>(hand::NAME, "the person");
        let plan = scenario.plan_with(&registry)?;
        let end = Time::from_secs_f64(scenario.duration_s);
        let flows = scenario.flows.len();
        let way_ms = scenario.delay_ms;
        let back_ms = scenario.ack_delay_ms.unwrap_or(way_ms);
        let link = plan.paths().there.link.as_ref();
        let facts = json!({
            "flows": flows,
            "slice_s": SLICE.as_secs_f64(),
            "mean_mbps": plan.paths().channel.mean_mbps,
            "base_rtt_ms": way_ms + back_ms,
            "capacity_mbps": link.map_or_else(Vec::new, |link| capacity_mbps(&link.0, end)),
        });
        let lane = Lane {
            stage: Stage::Running(Box::new(Simulation::new(plan))),
            end,
            reader: Reader::new(flows, way_ms),
            lead: Duration::from_millis_f64(way_ms + back_ms) + Duration::from_millis(1),
            next_slice: Time::ZERO + SLICE,
            senders: vec![(0.0, 0.0); flows],
            slices: Vec::new(),
            slice_count: 0,
            frame: Vec::new(),
        };
        Ok((lane, facts))
    }

    /// Goes on until `at`, or the end, and returns the state:
    ///
    /// - its time (s), whether the run is over (1), bytes and packets in the bottleneck, packets
    ///   dropped, and the number of flows, slices and packets that follow;
    /// - of each flow its window (bytes) and its phase, as a number of `PHASES` in
    ///   `python/verus/play/charts.js`;
    /// - of each slice since the last call its end (s), the bytes in the bottleneck then, and
    ///   packets dropped in it. Of each flow in it: throughput (Mbit/s), mean queueing delay (ms;
    ///   not-a-number without departures) and window (bytes);
    /// - of each packet its flow, its place (0 in the bottleneck, 1 behind it, 2 acknowledged, 3
    ///   dropped), and the share of that part of the path that it has passed.
    ///
    /// # Errors
    /// A controller gave up.
    pub fn advance(&mut self, at: Time) -> Result<&[f32], Error> {
        let at = at.min(self.end);
        self.slices.clear();
        self.slice_count = 0;
        while self.next_slice <= at {
            self.show(self.next_slice)?;
            self.slice();
            self.next_slice += SLICE;
        }
        self.show(at)?;
        self.frame.clear();
        let over = matches!(self.stage, Stage::Over(_)) && at >= self.end;
        let reader = &self.reader;
        let shown = reader.waiting.len() + reader.under_way.len() + reader.fallen.len();
        self.frame.extend([
            at.as_secs_f64() as f32,
            f32::from(u8::from(over)),
            reader.waiting_bytes as f32,
            reader.waiting.len() as f32,
            reader.dropped as f32,
            self.senders.len() as f32,
            self.slice_count as f32,
            shown.min(MOST_SHOWN) as f32,
        ]);
        for (window, phase) in &self.senders {
            self.frame.extend([*window, *phase]);
        }
        self.frame.extend_from_slice(&self.slices);
        if let Some(records) = records(&self.stage) {
            self.frame.extend(
                reader
                    .packets(records)
                    .take(MOST_SHOWN)
                    .flat_map(|packet| [packet.0 as f32, packet.1, packet.2]),
            );
        }
        Ok(&self.frame)
    }

    /// Whether the run is over, and every metric: so far, or of all of it.
    pub fn results(&self) -> Value {
        match &self.stage {
            Stage::Running(simulation) => {
                let metrics = simulation.so_far(self.frontier());
                json!({ "over": false, "metrics": metrics })
            }
            Stage::Over(outcome) => json!({ "over": true, "metrics": outcome.metrics }),
            Stage::Failed => Value::Null,
        }
    }

    /// Where the run is.
    fn frontier(&self) -> Time {
        let shown = Time::from_secs_f64(self.reader.shown_ms / 1000.0);
        (shown + self.lead).min(self.end)
    }

    /// Takes in all that happens until `at`.
    fn show(&mut self, at: Time) -> Result<(), Error> {
        if let Stage::Running(simulation) = &mut self.stage {
            simulation.run_until((at + self.lead).min(self.end))?;
            for (shown, sender) in self.senders.iter_mut().zip(simulation.senders()) {
                let phase = sender.controller().phase();
                *shown = (sender.window().as_f64() as f32, number(phase));
            }
        }
        if at + self.lead >= self.end {
            self.stage = match std::mem::replace(&mut self.stage, Stage::Failed) {
                Stage::Running(simulation) => Stage::Over(Box::new(simulation.finish()?)),
                ended => ended,
            };
        }
        if let Some(records) = records(&self.stage) {
            self.reader.read(records, at);
        }
        Ok(())
    }

    /// Records the slice that ends with the last displayed state.
    fn slice(&mut self) {
        let (reader, mbit) = (&mut self.reader, SLICE.as_secs_f64() * 1e6);
        self.slice_count += 1;
        self.slices.extend([
            (reader.shown_ms / 1000.0) as f32,
            reader.waiting_bytes as f32,
            std::mem::take(&mut reader.dropped_in_slice) as f32,
        ]);
        for (departed, (window, _)) in reader.departed.iter_mut().zip(&self.senders) {
            let departed = std::mem::take(departed);
            self.slices.extend([
                (departed.bytes as f64 * 8.0 / mbit) as f32,
                (departed.delay_ms / departed.packets as f64) as f32,
                *window,
            ]);
        }
    }
}

fn records(stage: &Stage) -> Option<&Records> {
    match stage {
        Stage::Running(simulation) => simulation.records(),
        Stage::Over(outcome) => outcome.records.as_ref(),
        Stage::Failed => None,
    }
}

/// A link's capacity in each slice until `end`, Mbit/s.
fn capacity_mbps(service: &Service, end: Time) -> Vec<f64> {
    let slices = end.as_nanos() / SLICE.as_nanos();
    let mbps = |slice| {
        let from = Time::ZERO + SLICE * slice;
        (service.capacity(from, from + SLICE) / SLICE).as_mbps()
    };
    (0..slices).map(mbps).collect()
}

/// A phase as a number, 0 where an algorithm has none.
fn number(phase: Option<Phase>) -> f32 {
    match phase {
        None => 0.0,
        Some(Phase::SlowStart) => 1.0,
        Some(Phase::Steady) => 2.0,
        Some(Phase::Recovery) => 3.0,
        Some(Phase::Drain) => 4.0,
        Some(Phase::Silent) => 5.0,
    }
}

impl Reader {
    fn new(flows: usize, way_ms: f64) -> Self {
        Reader {
            shown_ms: 0.0,
            way_ms: way_ms.max(0.1),
            sent: 0,
            waiting: Vec::new(),
            under_way: Vec::new(),
            fallen: Vec::new(),
            waiting_bytes: 0,
            dropped: 0,
            departed: vec![Departed::default(); flows],
            dropped_in_slice: 0,
        }
    }

    /// Reads the events until `at`, which is not earlier than before.
    fn read(&mut self, records: &Records, at: Time) {
        let now = at.as_millis_f64();
        self.shown_ms = now;
        while self.sent < records.len() && records.sent_ms[self.sent] <= now {
            self.waiting.push(self.sent);
            self.waiting_bytes += u64::from(records.size_bytes[self.sent]);
            self.sent += 1;
        }
        let Reader {
            waiting,
            under_way,
            fallen,
            departed,
            ..
        } = self;
        let (mut gone, mut drops) = (0, 0);
        waiting.retain(|&row| {
            let size = u64::from(records.size_bytes[row]);
            if records.departed_ms[row] <= now {
                let departed = &mut departed[records.flow[row] as usize];
                departed.bytes += size;
                departed.packets += 1;
                departed.delay_ms += records.departed_ms[row] - records.sent_ms[row];
                under_way.push(row);
            } else if records.dropped_ms[row] <= now {
                fallen.push(row);
                drops += 1;
            } else {
                return true;
            }
            gone += size;
            false
        });
        self.waiting_bytes -= gone;
        self.dropped += drops;
        self.dropped_in_slice += drops;
        // An acknowledgement that never comes is under way no longer than one that does.
        let longest = 2.0 * self.way_ms;
        self.under_way.retain(|&row| {
            let received = records.received_ms[row];
            let lost = received <= now - longest && records.acked_ms[row].is_nan();
            !(records.acked_ms[row] <= now || lost)
        });
        self.fallen
            .retain(|&row| records.dropped_ms[row] > now - FALLS_MS);
    }

    /// The flow of each packet, where it is, and how far.
    fn packets<'a>(&'a self, records: &'a Records) -> impl Iterator<Item = (u32, f32, f32)> + 'a {
        let now = self.shown_ms;
        let share = move |since: f64, of: f64| (((now - since) / of).clamp(0.0, 1.0)) as f32;
        let flow = |row: usize| records.flow[row];
        let under_way = self.under_way.iter().map(move |&row| {
            let received = records.received_ms[row];
            if received <= now {
                (flow(row), 2.0, share(received, self.way_ms))
            } else {
                (flow(row), 1.0, share(records.departed_ms[row], self.way_ms))
            }
        });
        let fallen = self.fallen.iter();
        let fallen =
            fallen.map(move |&row| (flow(row), 3.0, share(records.dropped_ms[row], FALLS_MS)));
        let waiting = self.waiting.iter().map(move |&row| (flow(row), 0.0, 0.0));
        under_way.chain(fallen).chain(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(flows: &str, more: &str) -> String {
        format!(
            r#"{{"trace":"rate:8","queue":"droptail:bytes=120000","duration_s":6,{more}"flows":[{flows}]}}"#
        )
    }

    const CUBIC: &str = r#"{"scheme":"cubic"}"#;

    /// Advances in steps of a frame at 60 Hz; returns all frames.
    fn play(lane: &mut Lane) -> Vec<Vec<f32>> {
        let steps = (1..=6 * 60).map(|step| Time::from_secs_f64(f64::from(step) / 60.0));
        steps
            .map(|at| lane.advance(at).expect("it goes on").to_vec())
            .collect()
    }

    #[test]
    fn looking_at_a_run_does_not_change_what_comes_of_it() {
        for (flows, more) in [
            (CUBIC.to_owned(), ""),
            (
                format!(r#"{CUBIC},{{"scheme":"verus"}}"#),
                r#""loss":0.01,"#,
            ),
            (
                r#"{"scheme":"sprout"}"#.to_owned(),
                r#""ack":"rate:1","ack_loss":0.1,"#,
            ),
        ] {
            let text = scenario(&flows, more);
            let (mut lane, _) = Lane::open(&text).expect("valid");
            play(&mut lane);
            let run = verus_sim::run(&Scenario::from_json(&text).expect("valid"), &mut |_| true);
            let mut metrics = run.expect("it runs").metrics;
            metrics.series.clear();
            let expected = json!({ "over": true, "metrics": metrics });
            assert_eq!(lane.results(), expected, "{flows}");
        }
    }

    #[test]
    fn what_is_shown_adds_up_to_what_is_measured() {
        let (mut lane, facts) = Lane::open(&scenario(CUBIC, "")).expect("valid");
        assert_eq!(facts["capacity_mbps"].as_array().map(Vec::len), Some(60));
        let frames = play(&mut lane);
        let last = frames.last().expect("there are frames");
        assert_eq!(last[1], 1.0, "it is over");
        let (mut mbit, mut drops, mut slices) = (0.0, 0.0, 0);
        for frame in &frames {
            let [flows, count] = [frame[5], frame[6]].map(|n| n as usize);
            for slice in frame[8 + 2 * flows..]
                .chunks_exact(3 + 3 * flows)
                .take(count)
            {
                slices += 1;
                drops += slice[2];
                mbit += f64::from(slice[3]) * SLICE.as_secs_f64();
            }
        }
        assert_eq!(slices, 60);
        let metrics = &lane.results()["metrics"];
        let departed = metrics["departed_bytes"].as_f64().expect("a number");
        assert!(
            (mbit - departed * 8.0 / 1e6).abs() < 0.02,
            "{mbit} {departed}"
        );
        assert!(drops > 0.0, "Cubic fills the queue");
        assert_eq!(
            f64::from(drops),
            metrics["drops"].as_f64().expect("a number")
        );
        assert_eq!(
            f64::from(last[3]),
            metrics["backlog"].as_f64().expect("a number")
        );
    }

    #[test]
    fn packets_are_in_the_bottleneck_on_their_way_or_fallen() {
        let (mut lane, _) = Lane::open(&scenario(CUBIC, "")).expect("valid");
        let frames = play(&mut lane);
        let mut places = [false; 4];
        for frame in &frames {
            let [flows, slices, packets] = [frame[5], frame[6], frame[7]].map(|n| n as usize);
            let from = 8 + 2 * flows + slices * (3 + 3 * flows);
            assert_eq!(frame.len(), from + 3 * packets);
            let mut waiting = 0.0;
            for packet in frame[from..].chunks_exact(3) {
                assert!((0.0..=1.0).contains(&packet[2]));
                places[packet[1] as usize] = true;
                waiting += f32::from(u8::from(packet[1] == 0.0));
            }
            assert_eq!(waiting, frame[3]);
            assert!(
                frame[2] <= 120_000.0 + 1500.0,
                "the queue and the packet being sent"
            );
        }
        assert_eq!(places, [true; 4]);
    }

    #[test]
    fn a_window_set_by_hand_is_in_flight_a_round_trip_later() {
        hand::set_window(verus_core::Bytes::new(30_000));
        let (mut lane, _) = Lane::open(&scenario(r#"{"scheme":"hand"}"#, "")).expect("valid");
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        lane.advance(at(1000)).expect("it goes on");
        let frame = lane.advance(at(2000)).expect("it goes on");
        assert_eq!(frame[8], 30_000.0);
        // 20 packets in a round trip of 40 ms at 8 Mbit/s: 6 Mbit/s, and no queue.
        assert!((frame[10 + 3] - 6.0).abs() < 0.5, "{}", frame[13]);
        assert!(frame[2] <= 3000.0);
        hand::set_window(verus_core::Bytes::new(90_000));
        let frame = lane.advance(at(3000)).expect("it goes on");
        // 50 kB more than the path holds.
        assert!((40_000.0..60_000.0).contains(&frame[2]), "{}", frame[2]);
    }

    #[test]
    fn what_is_wrong_with_a_scenario_is_told() {
        let wrong = |text: &str| Lane::open(text).err().expect("refused").to_string();
        assert!(wrong(r#"{"duration_s":601}"#).contains("duration_s must be at most 600 s"));
        assert!(wrong(r#"{"flows":[{"scheme":"cubik"}]}"#).contains("cubic"));
        assert!(wrong("{").contains("scenario:"));
    }
}
