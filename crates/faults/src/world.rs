//! Two ends without sockets, the faulty paths between them, and a virtual clock.
//!
//! A minute of silence costs nothing here, so hundreds of schedules run in seconds. Ends are driven
//! as from an event loop: arrivals, then timers, then packets that they want to send.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};

use verus_core::{Bytes, Time};

use crate::path::{Bottleneck, Datagram, Path, PathStats};
use crate::schedule::{Direction, End, Schedule};

/// The server's address.
pub const SERVER: SocketAddr = address(200, 4433);
/// Datagrams that wait for an end that is stopped, as in its socket's buffer; later ones are dropped.
const SOCKET_BUFFER_DATAGRAMS: usize = 150;
/// Turns that an end may need at one instant. One that needs more spins.
const TURNS_AT_ONCE: u32 = 10_000;

/// An end without sockets.
pub trait Endpoint {
    /// A datagram arrives.
    fn receive(&mut self, now: Time, from: SocketAddr, datagram: Vec<u8>);
    /// The next datagram that it wants to send now, and where to.
    fn transmit(&mut self, now: Time) -> Option<(SocketAddr, Vec<u8>)>;
    /// When it wants to be woken; a time that has passed means now.
    fn next_timer(&mut self) -> Option<Time>;
    /// The time that it asked for has come.
    fn on_timer(&mut self, now: Time);
    /// Whether it has finished or failed, and waits for nothing.
    fn is_done(&self) -> bool;
}

/// How a meeting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both ends are done, those stopped for good aside.
    Done,
    /// Time ran out.
    Deadline,
    /// Nothing is under way and no timer is set, yet not all are done.
    Stuck,
    /// An end kept asking to be woken at one instant: in real time it would use a whole core.
    Spinning,
}

/// The outcome between two ends.
#[derive(Clone, Copy, Debug)]
pub struct Meeting {
    /// How it ended.
    pub ending: Ending,
    /// When it ended.
    pub at: Time,
    /// Number of instants with an event. An event loop would have woken about as often.
    pub turns: u64,
    /// From the client to the server.
    pub up: PathStats,
    /// From the server to the client.
    pub down: PathStats,
}

/// The environment of the two ends, besides the schedule.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The link from the client to the server, if its capacity is limited.
    pub up: Option<Bottleneck>,
    /// The link from the server to the client, if its capacity is limited.
    pub down: Option<Bottleneck>,
}

/// A client's address after `changes` changes. The first change alters the IP address and the port, the second
/// the port alone, and so on, as a phone's and a router's changes do.
pub fn client_address(changes: usize) -> SocketAddr {
    let host = 1 + changes.div_ceil(2) % 100;
    address(host as u8, 50_000 + (changes % 10_000) as u16)
}

const fn address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), port)
}

/// A datagram with the client's address at the time of sending, in either direction.
#[derive(Clone, Debug)]
struct Addressed {
    client: SocketAddr,
    bytes: Vec<u8>,
}

impl Datagram for Addressed {
    fn size(&self) -> usize {
        self.bytes.size()
    }

    fn flip(&mut self, bit: usize) {
        self.bytes.flip(bit);
    }
}

/// One end, as the world sees it.
struct Host<'a> {
    end: End,
    endpoint: &'a mut dyn Endpoint,
    /// Datagrams that arrived while it was stopped.
    waiting: VecDeque<Addressed>,
}

/// Runs `client` and `server`, under the faults of `schedule`, until both are done or `deadline`.
pub fn run(
    schedule: &Schedule,
    surroundings: Surroundings,
    client: &mut dyn Endpoint,
    server: &mut dyn Endpoint,
    deadline: Time,
) -> Meeting {
    let path = |direction, bottleneck: Option<Bottleneck>| {
        let path = Path::new(schedule, direction).with_capacity(Bytes::new(64 << 20));
        match bottleneck {
            Some(bottleneck) => path.with_bottleneck(bottleneck),
            None => path,
        }
    };
    let mut world = World {
        schedule,
        up: path(Direction::Up, surroundings.up),
        down: path(Direction::Down, surroundings.down),
        changes: 0,
        now: Time::ZERO,
    };
    let mut hosts = [
        Host::new(End::Client, client),
        Host::new(End::Server, server),
    ];
    let (mut turns, mut turns_at_once) = (0, 0);
    let ending = loop {
        world.turn(&mut hosts);
        turns += 1;
        if hosts.iter().all(|host| world.is_over(host)) {
            break Ending::Done;
        }
        let next = match world.next(&mut hosts) {
            None => break Ending::Stuck,
            Some(next) if next > deadline => break Ending::Deadline,
            Some(next) => next,
        };
        if next <= world.now {
            turns_at_once += 1;
            if turns_at_once > TURNS_AT_ONCE {
                break Ending::Spinning;
            }
        } else {
            turns_at_once = 0;
            world.now = next;
        }
    };
    Meeting {
        ending,
        at: world.now,
        turns,
        up: world.up.stats(world.now),
        down: world.down.stats(world.now),
    }
}

struct World<'a> {
    schedule: &'a Schedule,
    up: Path<Addressed>,
    down: Path<Addressed>,
    /// How often the client's address has changed.
    changes: usize,
    now: Time,
}

impl World<'_> {
    /// Everything that happens at this instant, once.
    fn turn(&mut self, hosts: &mut [Host<'_>; 2]) {
        let now = self.now;
        let changes = &self.schedule.address_changes;
        self.changes = changes.iter().filter(|at| **at <= now).count();
        let stopped = hosts
            .each_ref()
            .map(|host| self.schedule.is_stopped(host.end, now));
        for (host, _) in hosts
            .iter_mut()
            .zip(stopped)
            .filter(|(_, stopped)| !stopped)
        {
            while let Some(datagram) = host.waiting.pop_front() {
                host.read(now, datagram);
            }
        }
        let [client, server] = hosts;
        while let Some(arrived) = self.up.poll(now) {
            server.arrive(now, arrived.datagram, stopped[1]);
        }
        while let Some(arrived) = self.down.poll(now) {
            // A datagram to an address that the client no longer has is lost.
            if arrived.datagram.client == client_address(self.changes) {
                client.arrive(now, arrived.datagram, stopped[0]);
            }
        }
        for (host, _) in hosts
            .iter_mut()
            .zip(stopped)
            .filter(|(_, stopped)| !stopped)
        {
            if host.endpoint.next_timer().is_some_and(|at| at <= now) {
                host.endpoint.on_timer(now);
            }
            while let Some((to, bytes)) = host.endpoint.transmit(now) {
                match host.end {
                    End::Client if to == SERVER => {
                        let client = client_address(self.changes);
                        self.up.send(now, Addressed { client, bytes });
                    }
                    // There is no other end.
                    End::Client => {}
                    End::Server => self.down.send(now, Addressed { client: to, bytes }),
                }
            }
        }
    }

    /// When something happens next.
    fn next(&self, hosts: &mut [Host<'_>; 2]) -> Option<Time> {
        let mut next: Vec<Time> = Vec::new();
        next.extend(self.up.next());
        next.extend(self.down.next());
        for host in hosts {
            match self.schedule.stop {
                Some(stop) if stop.end == host.end && stop.interval.contains(self.now) => {
                    next.extend(Some(stop.interval.end()).filter(|end| *end < Time::MAX));
                }
                _ => next.extend(host.endpoint.next_timer()),
            }
        }
        next.into_iter().min()
    }

    /// Whether an end is done, or never will be.
    fn is_over(&self, host: &Host<'_>) -> bool {
        host.endpoint.is_done()
            || self.schedule.stop.is_some_and(|stop| {
                stop.end == host.end
                    && stop.interval.contains(self.now)
                    && stop.interval.end() == Time::MAX
            })
    }
}

impl<'a> Host<'a> {
    fn new(end: End, endpoint: &'a mut dyn Endpoint) -> Self {
        Host {
            end,
            endpoint,
            waiting: VecDeque::new(),
        }
    }

    fn arrive(&mut self, now: Time, datagram: Addressed, stopped: bool) {
        if !stopped {
            self.read(now, datagram);
        } else if self.waiting.len() < SOCKET_BUFFER_DATAGRAMS {
            self.waiting.push_back(datagram);
        }
    }

    fn read(&mut self, now: Time, datagram: Addressed) {
        let from = match self.end {
            End::Client => SERVER,
            End::Server => datagram.client,
        };
        self.endpoint.receive(now, from, datagram.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Faults, Interval, Stop};
    use verus_core::Duration;

    /// Sends one datagram a second, a hundred times, and is done when as many answers came.
    struct Asks {
        requests: u32,
        answers: Vec<(Time, Vec<u8>)>,
    }

    /// Answers every datagram with the address that it came from.
    #[derive(Default)]
    struct Answers {
        pending: Vec<SocketAddr>,
        replies: u32,
    }

    impl Endpoint for Asks {
        fn receive(&mut self, now: Time, from: SocketAddr, datagram: Vec<u8>) {
            assert_eq!(from, SERVER);
            self.answers.push((now, datagram));
        }

        fn transmit(&mut self, now: Time) -> Option<(SocketAddr, Vec<u8>)> {
            (self.next_timer()? <= now).then(|| {
                self.requests += 1;
                (SERVER, vec![0; 8])
            })
        }

        fn next_timer(&mut self) -> Option<Time> {
            (self.requests < 100).then(|| Time::from_millis(u64::from(self.requests) * 1_000))
        }

        fn on_timer(&mut self, _now: Time) {}

        fn is_done(&self) -> bool {
            self.answers.len() == 100
        }
    }

    impl Endpoint for Answers {
        fn receive(&mut self, _now: Time, from: SocketAddr, _datagram: Vec<u8>) {
            self.replies += 1;
            self.pending.push(from);
        }

        fn transmit(&mut self, _now: Time) -> Option<(SocketAddr, Vec<u8>)> {
            let to = self.pending.pop()?;
            Some((to, to.to_string().into_bytes()))
        }

        fn next_timer(&mut self) -> Option<Time> {
            None
        }

        fn on_timer(&mut self, _now: Time) {}

        fn is_done(&self) -> bool {
            true
        }
    }

    fn meet(schedule: &Schedule) -> (Meeting, Asks, Answers) {
        let mut asks = Asks {
            requests: 0,
            answers: Vec::new(),
        };
        let mut answers = Answers::default();
        let deadline = Time::from_millis(1_000_000);
        let meeting = run(
            schedule,
            Surroundings::default(),
            &mut asks,
            &mut answers,
            deadline,
        );
        (meeting, asks, answers)
    }

    #[test]
    fn an_answer_takes_the_delay_of_both_ways() {
        let (meeting, asks, _) = meet(&Schedule::perfect(Duration::from_millis(30)));
        assert_eq!(meeting.ending, Ending::Done);
        assert_eq!(meeting.at, Time::from_millis(99_060));
        for (index, (at, _)) in asks.answers.iter().enumerate() {
            assert_eq!(*at, Time::from_millis(1_000 * index as u64 + 60));
        }
    }

    #[test]
    fn a_lost_answer_leaves_the_ends_stuck_if_nobody_repeats_it() {
        let mut schedule = Schedule::perfect(Duration::from_millis(30));
        schedule.up = Faults {
            loss: 0.5,
            ..schedule.up
        };
        let (meeting, ..) = meet(&schedule);
        assert_eq!(meeting.ending, Ending::Stuck);
    }

    #[test]
    fn after_an_address_change_the_server_sees_another_address_and_old_answers_are_lost() {
        let mut schedule = Schedule::perfect(Duration::from_millis(30));
        // The answer to the question at 20 s is under way at the change; those after it arrive.
        schedule.address_changes = vec![Time::from_millis(20_050), Time::from_millis(30_500)];
        let (meeting, asks, _) = meet(&schedule);
        assert_eq!((meeting.ending, asks.answers.len()), (Ending::Stuck, 99));
        let address = |index: usize| String::from_utf8(asks.answers[index].1.clone()).unwrap();
        assert_eq!(address(19), "10.0.0.1:50000");
        assert_eq!(address(20), "10.0.0.2:50001");
        assert_eq!(address(98), "10.0.0.2:50002");
    }

    #[test]
    fn a_paused_server_finds_what_came_meanwhile_when_it_goes_on() {
        let mut schedule = Schedule::perfect(Duration::from_millis(30));
        let interval = Interval {
            start: Time::from_millis(9_500),
            length: Duration::from_secs(20),
        };
        let end = End::Server;
        schedule.stop = Some(Stop { end, interval });
        let (meeting, asks, answers) = meet(&schedule);
        assert_eq!((meeting.ending, answers.replies), (Ending::Done, 100));
        let late = asks
            .answers
            .iter()
            .filter(|(at, _)| *at == Time::from_millis(29_530));
        assert_eq!(late.count(), 20);

        schedule.stop = Some(Stop {
            end,
            interval: Interval {
                length: Duration::MAX,
                ..interval
            },
        });
        let (meeting, asks, _) = meet(&schedule);
        assert_eq!((meeting.ending, asks.answers.len()), (Ending::Stuck, 10));
    }

    #[test]
    fn an_end_that_never_sleeps_is_found_out() {
        struct Restless;
        impl Endpoint for Restless {
            fn receive(&mut self, _: Time, _: SocketAddr, _: Vec<u8>) {}
            fn transmit(&mut self, _: Time) -> Option<(SocketAddr, Vec<u8>)> {
                None
            }
            fn next_timer(&mut self) -> Option<Time> {
                Some(Time::ZERO)
            }
            fn on_timer(&mut self, _: Time) {}
            fn is_done(&self) -> bool {
                false
            }
        }
        let schedule = Schedule::default();
        let meeting = run(
            &schedule,
            Surroundings::default(),
            &mut Restless,
            &mut Answers::default(),
            Time::MAX,
        );
        assert_eq!(meeting.ending, Ending::Spinning);
    }
}
