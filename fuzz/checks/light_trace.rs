//! Invariants of any bytes read as CellReplay's light trace, or as its size offsets.

use std::sync::Arc;

use verus_channel::path::Packet;
use verus_channel::path::config::PathConfig;
use verus_channel::{
    LightConfig, LightTrace, QueueConfig, RateSchedule, Service, SizeOffsets, Way,
};
use verus_core::{Bytes, Duration, Rate, Time};

struct Number(u32);

impl Packet for Number {}

/// Reads `bytes` as either, and sends packets over a path made from them.
///
/// # Panics
/// If a packet arrives before it was sent, twice or never.
pub fn check(bytes: &[u8]) {
    let offsets = SizeOffsets::parse("bytes", bytes).ok();
    let light = LightTrace::parse("bytes", bytes).ok();
    if light.is_none() && offsets.is_none() {
        return;
    }
    let default_trace =
        || LightTrace::parse("plain", &b"0 20 0 1\n50 9 0\n90 3 0\n"[..]).expect("valid");
    let trace = light.unwrap_or_else(default_trace);
    assert!(trace.trains() >= 2 && trace.period_ms() > 0);
    let rate = RateSchedule::constant(Rate::from_mbps(20.0));
    let queue = QueueConfig::parse("infinite").expect("valid");
    let config = PathConfig {
        link: Some((Service::Rate(rate), queue)),
        light: Some(LightConfig {
            trace: Arc::new(trace),
            timer: Duration::from_millis(30),
            sizes: offsets.map(Arc::new),
        }),
        ..PathConfig::default()
    };
    let mut path = config.build(1, Way::Forth);
    // In bursts, with pauses that grow.
    let sent =
        |number: u64| Time::from_nanos(number / 10 * number * 100_000 + number % 10 * 300_000);
    let mut arrived = [false; 400];
    for number in 0..400 {
        let now = sent(u64::from(number));
        path.serve_before(now, &mut ());
        let size = Bytes::new(1 + u64::from(number) * 977 % 1400);
        path.send(now, size, Number(number), &mut ());
        assert!(path.next_departure().is_some_and(|due| due >= now));
    }
    path.serve(Time::MAX, &mut ());
    while let Some((at, Number(number))) = path.arrive(Time::MAX, 0, &mut ()) {
        assert!(at >= sent(u64::from(number)), "before it was sent");
        let before = std::mem::replace(&mut arrived[number as usize], true);
        assert!(!before, "twice");
    }
    assert!(arrived.iter().all(|there| *there), "never");
    assert_eq!(path.packets(), 0);
}
