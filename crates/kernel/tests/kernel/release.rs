//! Departures between acknowledgements: release.h, compiled natively, and a TCP that obeys it.

use proptest::prelude::*;

use crate::program::Program;

const MS: u64 = 1_000_000;
const PACKET: u64 = 1500;
/// A packet takes 1 ms, and the law's pace is twice that.
const RATE: u64 = 12_000_000;
const HORIZON: u64 = 100 * MS;
const WINDOW: u64 = 40 * PACKET;

/// The state of a flow; see `struct release` in release.h.
#[derive(Clone, Copy, Debug)]
struct State {
    now: u64,
    acknowledged_at: u64,
    acknowledged: u64,
    in_flight: u64,
    packet: u64,
    rate: u64,
    horizon: u64,
    limit: u64,
    pace: u64,
}

impl State {
    /// The limit of the data in flight, and the pace of the next burst.
    fn decide(&self, program: &mut Program) -> (u64, u64) {
        let answer = program.ask(&format!(
            "r {} {} {} {} {} {} {} {} {}",
            self.now,
            self.acknowledged_at,
            self.acknowledged,
            self.in_flight,
            self.packet,
            self.rate,
            self.horizon,
            self.limit,
            self.pace
        ));
        let [limit, pace] = answer[..] else {
            panic!("{self:?} was answered by {answer:?}");
        };
        (limit, pace)
    }
}

/// A sender of TCP: it sends pairs within the window, one each time that an acknowledgement comes
/// or its pacing timer expires, and no single packet (`tcp_tso_should_defer`).
struct Tcp {
    program: Program,
    state: State,
    /// When the pacing timer expires; none if the window was full then.
    timer: Option<u64>,
    sent: u64,
}

impl Tcp {
    fn new(horizon: u64) -> Self {
        let mut tcp = Tcp {
            program: Program::start("release.c"),
            state: State {
                now: 1000 * MS,
                acknowledged_at: 1000 * MS,
                acknowledged: 2 * PACKET,
                in_flight: WINDOW - 2 * PACKET,
                packet: PACKET,
                rate: RATE,
                horizon,
                limit: WINDOW,
                pace: 2 * RATE,
            },
            timer: None,
            sent: 0,
        };
        tcp.write();
        tcp
    }

    fn write(&mut self) {
        if self.timer.is_some_and(|timer| timer > self.state.now) {
            return;
        }
        let (limit, pace) = self.state.decide(&mut self.program);
        let pair = 2 * PACKET;
        let fits = limit / PACKET * PACKET >= self.state.in_flight + pair;
        self.timer = fits.then(|| self.state.now + pair * 8000 * MS / pace);
        if fits {
            self.state.in_flight += pair;
            self.sent += pair;
        }
    }

    /// Lets the pacing timer expire as often as it does until `until`.
    fn wait(&mut self, until: u64) {
        while let Some(timer) = self.timer.filter(|&timer| timer <= until) {
            self.state.now = timer;
            self.write();
        }
        self.state.now = until;
    }

    fn acknowledge(&mut self, at: u64, bytes: u64) {
        self.wait(at);
        self.state.in_flight -= bytes.min(self.state.in_flight);
        (self.state.acknowledged_at, self.state.acknowledged) = (at, bytes);
        self.write();
    }
}

#[test]
fn in_silence_the_path_is_sent_what_r_delivers_until_h_is_over() {
    for silence in [10, 20, 50, 100] {
        let mut tcp = Tcp::new(HORIZON);
        let before = tcp.sent;
        tcp.wait(tcp.state.now + silence * MS);
        // All but one packet, as in the core, and a pair that is not complete.
        let due = (silence - 1) * PACKET;
        let sent = tcp.sent - before;
        assert!(
            sent <= due && due - sent <= 2 * PACKET,
            "{silence} ms: {sent} bytes of {due}"
        );
        tcp.wait(tcp.state.now + 10_000 * MS);
        assert!(tcp.sent - before <= 100 * PACKET);
    }
}

#[test]
fn without_a_horizon_nothing_leaves_in_silence() {
    let mut tcp = Tcp::new(0);
    let before = tcp.sent;
    tcp.wait(tcp.state.now + 1000 * MS);
    assert_eq!(tcp.sent, before);
}

#[test]
fn where_acknowledgements_come_as_r_says_the_window_stays_full() {
    for packets in [2, 4, 16] {
        let mut tcp = Tcp::new(HORIZON);
        let began = tcp.state.now;
        for acknowledgement in 1..=500 {
            tcp.acknowledge(began + acknowledgement * packets * MS, packets * PACKET);
            assert!(
                tcp.state.in_flight <= WINDOW,
                "{} bytes",
                tcp.state.in_flight
            );
        }
        // Departures lag by a pair at most.
        let acknowledged = 500 * packets * PACKET;
        assert!(
            tcp.sent + 4 * PACKET >= acknowledged - packets * PACKET,
            "{packets}: {}",
            tcp.sent
        );
    }
}

#[test]
fn after_a_silence_the_path_is_not_sent_more_than_before() {
    let mut tcp = Tcp::new(HORIZON);
    let began = tcp.state.now;
    // 30 packets arrive during a silence, and are acknowledged at its end.
    tcp.acknowledge(began + 31 * MS, 30 * PACKET);
    assert!(tcp.state.in_flight <= WINDOW);
    tcp.wait(began + 32 * MS);
    assert!(
        tcp.state.in_flight >= WINDOW - 4 * PACKET,
        "{}",
        tcp.state.in_flight
    );
}

proptest! {
    #[test]
    fn the_limit_grows_by_what_is_in_flight_at_most_and_the_pace_is_at_most_the_laws(
        numbers in prop::array::uniform9(1..u64::MAX), shift in 0..64_u32
    ) {
        let [now, acknowledged_at, acknowledged, in_flight, packet, rate, horizon, limit, pace] =
            numbers.map(|number| number >> shift);
        let packet = packet.clamp(1, 1 << 16);
        let state = State { now, acknowledged_at, acknowledged, in_flight, packet, rate, horizon, limit, pace };
        let (limit, pace) = state.decide(&mut Program::start("release.c"));
        prop_assert!(limit >= state.limit && limit - state.limit <= in_flight, "{limit} of {state:?}");
        prop_assert!(pace <= state.pace, "{pace} of {state:?}");
    }
}
