//! A qlog that stays in memory, as a test reads it.

use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// Where a log goes in tests.
#[derive(Clone, Default)]
pub struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panicked").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink {
    /// The events, without their namespace.
    ///
    /// # Panics
    /// If the log is none.
    pub fn events(&self) -> Vec<(String, Value)> {
        let text = self.0.lock().expect("nobody panicked");
        let records = text.split(|byte| *byte == 0x1e).skip(2);
        let events = records.map(|record| serde_json::from_slice(record).expect("JSON"));
        let named = |event: Value| {
            let (_, kind) = event["name"].as_str().expect("a name").split_once(':')?;
            Some((kind.to_owned(), event))
        };
        events.filter_map(named).collect()
    }
}

/// How many of them bear this name.
pub fn count(events: &[(String, Value)], name: &str) -> u64 {
    events.iter().filter(|(kind, _)| kind == name).count() as u64
}

/// Checks that times ascend, numbers are unique, and every acknowledged or lost packet was sent.
///
/// # Panics
/// If that does not hold.
pub fn consistent(events: &[(String, Value)]) {
    let mut before = 0.0;
    let mut sent = HashSet::new();
    for (kind, event) in events {
        let time = event["time"].as_f64().expect("a time");
        assert!(time >= before, "{event}");
        before = time;
        let data = &event["data"];
        let number = || data["header"]["packet_number"].as_u64().expect("a number");
        match kind.as_str() {
            "packet_sent" => assert!(sent.insert(number()), "unique: {event}"),
            "packet_lost" => assert!(sent.contains(&number()), "sent: {event}"),
            "packet_received" => {
                let ranges = data["frames"][0]["acked_ranges"].as_array();
                for range in ranges.expect("ranges") {
                    let end = |at| range.get(at).and_then(Value::as_u64);
                    let first = end(0).expect("a range");
                    for number in first..=end(1).unwrap_or(first) {
                        assert!(sent.contains(&number), "{number} sent: {event}");
                    }
                }
            }
            _ => {}
        }
    }
}
