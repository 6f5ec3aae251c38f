//! A run ends in time, and its sums are right, with a queue of another crate that gives no packet
//! back. The test is a separate program, since queues are installed once in a process, before any
//! is read.

use verus_channel::queue::{Configuration, Queue, Registry, Waiting};
use verus_core::Time;
use verus_sim::{FlowSpec, Scenario};
use verus_words::spec::{Row, field};

/// Gives `packets` packets, and then nothing.
#[derive(Clone, Debug)]
struct Hoard {
    packets: u64,
}

impl Default for Hoard {
    fn default() -> Self {
        Hoard { packets: 1000 }
    }
}

impl Configuration for Hoard {
    const ROWS: &'static [Row<Self>] = &[field!(packets).whole("packets", "what it gives")];

    fn build(&self, _seed: u64) -> Box<dyn Queue> {
        Box::new(HoardQueue(self.packets, Vec::new()))
    }
}

#[derive(Debug)]
struct HoardQueue(u64, Vec<Waiting>);

impl Queue for HoardQueue {
    fn enqueue(&mut self, _now: Time, packet: Waiting) {
        self.1.push(packet);
    }

    fn dequeue(&mut self, _now: Time) -> Option<Waiting> {
        self.0 = self.0.checked_sub(1)?;
        (!self.1.is_empty()).then(|| self.1.remove(0))
    }
}

#[test]
fn a_run_ends_though_a_queue_gives_nothing_back() {
    let registry = Registry::default().with::<Hoard>("hoard", "keeps what it gets");
    registry.install().expect("no queue is read before");
    let scenario = Scenario {
        queue: "hoard:packets=200".to_owned(),
        flows: ["cubic", "verus", "bbr"].map(FlowSpec::new).to_vec(),
        trace: "rate:8".to_owned(),
        duration_s: 30.0,
        ..Scenario::default()
    };
    let plan = scenario.plan().expect("a scenario");
    let first = plan.run(&mut |_| true).expect("it ends").metrics;
    assert_eq!((first.departures, first.drops), (200, 0));
    assert!(first.backlog > 100, "they try again: {}", first.backlog);
    assert_eq!(first.arrivals, first.departures + first.backlog);
    let again = plan.run(&mut |_| true).expect("it ends").metrics;
    assert_eq!(format!("{first:?}"), format!("{again:?}"));
}
