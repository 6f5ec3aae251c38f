//! Departures between acknowledgements: release.h, compiled natively.

use proptest::prelude::*;

use crate::program::Program;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// The state of a flow; see `struct release` in release.h.
#[derive(Clone, Copy, Debug)]
struct Release {
    answered: u64,
    horizon: u64,
    packet: u64,
    burst: u64,
    window: u64,
    rate: u64,
    pace: u64,
}

/// 8 Mbit/s, a packet each millisecond; the window is of 60 ms.
const STEADY: Release = Release {
    answered: 5 * SECOND,
    horizon: 100 * MS,
    packet: 1000,
    burst: 2000,
    window: 60_000,
    rate: 1_000_000,
    pace: 2_000_000,
};

impl Release {
    /// How fast the next burst leaves, bytes a second, and how much may be in flight at the most.
    fn ask(self, program: &mut Program, now: u64, in_flight: u64) -> (u64, u64) {
        let told = program.ask(&format!(
            "r {} {} {} {} {} {} {} {now} {in_flight}",
            self.answered, self.horizon, self.packet, self.burst, self.window, self.rate, self.pace
        ));
        let [pace, most] = told[..] else {
            panic!("{self:?} was answered by {told:?}");
        };
        (pace, most)
    }

    /// What is in flight so long after the last acknowledgement, if TCP sends bursts at the pace that each was told.
    fn in_flight_after(self, program: &mut Program, silence: u64) -> u64 {
        let (mut now, mut in_flight) = (self.answered, self.window);
        loop {
            let (pace, most) = self.ask(program, now, in_flight);
            let next = now + self.burst * SECOND / pace;
            if next > self.answered + silence || in_flight + self.burst > most {
                return in_flight;
            }
            (now, in_flight) = (next, in_flight + self.burst);
        }
    }
}

#[test]
fn a_window_with_room_fills_at_the_laws_pace() {
    let mut program = Program::start("release.c");
    let (pace, _) = STEADY.ask(&mut program, STEADY.answered, 30_000);
    assert_eq!(pace, STEADY.pace);
}

#[test]
fn a_window_that_the_next_burst_fills_is_kept_full_at_r() {
    let mut program = Program::start("release.c");
    let in_flight = STEADY.window - STEADY.burst / 2;
    let (pace, _) = STEADY.ask(&mut program, STEADY.answered, in_flight);
    assert_eq!(pace, STEADY.rate);
}

#[test]
fn more_than_is_due_slows_departures_but_does_not_end_them() {
    let mut program = Program::start("release.c");
    for beyond in [STEADY.burst, STEADY.window] {
        let in_flight = STEADY.window + beyond;
        let (pace, _) = STEADY.ask(&mut program, STEADY.answered, in_flight);
        assert_eq!(pace, STEADY.rate / 2);
    }
}

#[test]
fn a_silent_path_is_sent_what_r_delivers_until_h_is_over() {
    let mut program = Program::start("release.c");
    for silence_ms in [20, 50, 80] {
        let sent = STEADY.in_flight_after(&mut program, silence_ms * MS) - STEADY.window;
        let due = silence_ms * STEADY.packet;
        assert!(
            sent.abs_diff(due) <= 3 * STEADY.burst,
            "{sent} bytes in {silence_ms} ms, where {due} are due"
        );
    }
    let (_, most) = STEADY.ask(&mut program, STEADY.answered, 0);
    assert_eq!(most, 60_000 + 100_000 + 2_000);
    let late = STEADY.in_flight_after(&mut program, 10 * SECOND);
    assert!(late <= most && late >= most - STEADY.burst, "{late}");
}

#[test]
fn without_a_horizon_nothing_is_due_in_silence() {
    let mut program = Program::start("release.c");
    let release = Release {
        horizon: 0,
        ..STEADY
    };
    let in_flight = release.window - release.burst / 2;
    let (pace, most) = release.ask(&mut program, release.answered + SECOND, in_flight);
    assert_eq!((pace, most), (release.rate, release.window + release.burst));
}

proptest! {
    #[test]
    fn the_pace_is_between_half_of_r_and_the_laws(
        numbers in prop::array::uniform8(0..u64::MAX), now in any::<u64>(), shift in 0..64_u32
    ) {
        let [answered, horizon, packet, window, rate, pace, in_flight, _] = numbers.map(|number| number >> shift);
        let release = Release { answered, horizon, packet, burst: packet.saturating_mul(2), window, rate, pace };
        let (told, most) = release.ask(&mut Program::start("release.c"), now, in_flight);
        prop_assert!(told >= (rate / 2).min(pace), "{told} of {release:?}");
        prop_assert!(told <= pace.max(rate), "{told} of {release:?}");
        prop_assert!(most >= window);
    }
}
