//! Properties of every queue and link over random sequences of events.

use std::sync::Arc;

use proptest::prelude::*;
use verus_channel::path::Packet;
use verus_channel::path::link::{Link, Service, WhenOver};
use verus_channel::schedule::Schedule;
use verus_channel::{QueueConfig, Trace, raw};
use verus_core::{Bytes, Duration, Ecn, Rate, Time, random};

/// Bytes and packets, in and out.
#[derive(Default, Debug, Clone, Copy, PartialEq)]
struct Count {
    packets: u64,
    bytes: u64,
}

impl Count {
    fn add(&mut self, size: Bytes) {
        self.packets += 1;
        self.bytes += size.get();
    }
}

fn queues() -> impl Strategy<Value = QueueConfig> {
    let texts = prop_oneof![
        Just("infinite".to_owned()),
        (1u64..20_000).prop_map(|bytes| format!("droptail:bytes={bytes}")),
        (1u64..20).prop_map(|packets| format!("droptail:packets={packets}")),
        (1u64..100).prop_map(|delay| format!("droptail:delay_ms={delay}")),
        (
            1u64..10_000,
            1u64..20_000,
            0.001f64..=1.0,
            0.001f64..=1.0,
            0..3usize,
            any::<bool>(),
            ecn()
        )
            .prop_map(|(min, more, p, weight, preset, limited, ecn)| {
                let preset = ["floyd", "gentle", "cs244"][preset];
                let limit = if limited {
                    format!(",limit={}", min + more)
                } else {
                    String::new()
                };
                format!(
                    "red:min={min},max={},p={p}{limit},weight={weight},preset={preset}{ecn}",
                    min + more
                )
            }),
        (1u64..50, 0u64..100, ecn()).prop_map(|(target, more, ecn)| {
            format!(
                "codel:target_ms={target},interval_ms={}{ecn}",
                target + more
            )
        }),
        (1u64..30, 1u64..30, ecn()).prop_map(|(target, burst, ecn)| {
            format!("pie:target_ms={target},update_ms=1,alpha_hz=9,beta_hz=30,burst_ms={burst}{ecn}")
        }),
        (1u64..20, 1u64..3000, 1u64..6, 1u64..30).prop_map(|(target, quantum, queues, packets)| {
            format!(
                "fq_codel:target_ms={target},interval_ms=20,quantum={quantum},queues={queues},packets={packets}"
            )
        }),
        (1u64..20, any::<bool>(), any::<bool>(), 2u64..60).prop_map(
            |(target, linux, drops, packets)| {
                let preset = if linux { "linux" } else { "rfc9332" };
                let drops = if drops { "yes" } else { "no" };
                format!(
                    "dualpi2:preset={preset},target_ms={target},update_ms=1,alpha_hz=9,beta_hz=30,packets={packets},drop_overload={drops}"
                )
            }
        ),
    ];
    texts.prop_map(|text| QueueConfig::parse(&text).expect("the strategy makes valid queues"))
}

/// The key `ecn`, or nothing.
fn ecn() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just(""), Just(",ecn=yes")]
}

fn services() -> impl Strategy<Value = Service> {
    let trace = (
        proptest::collection::vec(0u64..8, 1..60),
        any::<bool>(),
        100u64..3000,
    )
        .prop_map(|(gaps, looped, opportunity)| {
            let times = gaps.iter().scan(0, |time, gap| {
                *time += gap;
                Some(*time)
            });
            let times: Vec<u64> = times.chain([gaps.iter().sum::<u64>() + 1]).collect();
            Service::Trace {
                trace: Arc::new(Trace::from_millis("random", times).expect("times never decrease")),
                opportunity: Bytes::new(opportunity),
                end: if looped {
                    WhenOver::Loop
                } else {
                    WhenOver::End
                },
            }
        });
    let rate =
        proptest::collection::vec((1u64..100_000_000, 0u64..30_000_000), 1..6).prop_map(|steps| {
            let steps = steps.iter().scan(Time::ZERO, |from, (span, bps)| {
                let step = (*from, Rate::from_bps(*bps));
                *from += Duration::from_nanos(*span);
                Some(step)
            });
            Service::Rate(Schedule::new(steps.collect()).expect("the steps are in order"))
        });
    prop_oneof![trace, rate]
}

/// Gaps between arrivals, with sizes.
fn arrivals() -> impl Strategy<Value = Vec<(Duration, Bytes)>> {
    let gap = prop_oneof![
        Just(0u64),
        0u64..1_000_000,
        0u64..80_000_000,
        Just(1_000_000)
    ];
    let size = prop_oneof![Just(1500u64), 1u64..5000];
    let arrival = (gap, size).prop_map(|(gap, size)| (Duration::from_nanos(gap), Bytes::new(size)));
    proptest::collection::vec(arrival, 1..200)
}

/// A packet of one of four connections, each with a different code point.
#[derive(Clone, Copy, Debug)]
struct Number(usize);

impl Number {
    fn lane(self) -> usize {
        self.0 % 4
    }
}

impl Packet for Number {
    fn connection(&self) -> u64 {
        self.lane() as u64
    }

    fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.lane() as u8)
    }
}

/// All bytes in the link: those that wait, and those of the packet being sent.
fn bytes_in(link: &Link<Number>) -> u64 {
    link.waiting_bytes().get() + link.being_sent().map_or(0, |packet| packet.size.get())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_reordered_early_or_beyond_capacity(
        service in services(), queue in queues(), arrivals in arrivals(), seed: u64,
    ) {
        let mut link: Link<Number> = Link::new(service.clone(), &queue, random::stream(seed, "queue", 0));
        let (mut arrived, mut refused, mut dropped, mut left) = <(Count, Count, Count, Count)>::default();
        let mut last_numbers = [None; 4];
        let mut now = Time::ZERO;
        let end = arrivals.iter().fold(Time::ZERO, |time, (gap, _)| time + *gap) + Duration::from_millis(200);
        let ends = arrivals.iter().enumerate().map(Some).chain([None]);
        for arrival in ends {
            let until = arrival.map_or(end, |(_, (gap, _))| now + *gap);
            // Arrivals come first, so a packet due at this very instant leaves after it.
            while let Some(due) = link.next_departure().filter(|due| *due < until) {
                prop_assert!(due >= now, "time goes on");
                now = due;
                let mut order = Ok(());
                let departed = link.depart(now, |packet| {
                    dropped.add(packet.size);
                    if last_numbers[packet.packet.lane()].is_some_and(|last| packet.packet.0 <= last) {
                        order = Err(TestCaseError::fail("dropped out of order"));
                    }
                });
                order?;
                if let Some(packet) = departed {
                    left.add(packet.size);
                    prop_assert!(packet.entered <= now, "left before it arrived");
                    let last_number = &mut last_numbers[packet.packet.lane()];
                    prop_assert!(last_number.is_none_or(|last| packet.packet.0 > last), "out of order");
                    *last_number = Some(packet.packet.0);
                }
                // An opportunity at this very instant is in use.
                let capacity = service.capacity(Time::ZERO, now + Duration::from_nanos(1));
                prop_assert!(left.bytes <= capacity.get(), "{left:?} beyond {capacity:?}");
                prop_assert_eq!(
                    arrived.bytes,
                    refused.bytes + dropped.bytes + left.bytes + bytes_in(&link)
                );
            }
            now = until;
            let Some((number, (_, size))) = arrival else { break };
            arrived.add(*size);
            if link.enqueue(now, *size, Number(number), |packet| dropped.add(packet.size)).is_err() {
                refused.add(*size);
            }
            let (waiting, all) = (link.waiting_bytes(), link.queued_packets());
            let packets = all - usize::from(link.being_sent().is_some());
            match queue.to_string().split_once(['=', ',']).map(|(kind, rest)| (kind.to_owned(), rest.to_owned())) {
                Some((kind, limit)) if kind == "droptail:bytes" => {
                    prop_assert!(waiting.get() <= limit.parse().unwrap());
                }
                Some((kind, limit)) if kind == "droptail:packets" => {
                    prop_assert!(packets <= limit.parse().unwrap());
                }
                _ => {}
            }
        }
        let inside = Count { packets: link.queued_packets() as u64, bytes: bytes_in(&link) };
        prop_assert_eq!(arrived.packets, refused.packets + dropped.packets + left.packets + inside.packets);
        prop_assert_eq!(arrived.bytes, refused.bytes + dropped.bytes + left.bytes + inside.bytes);
        if queue == QueueConfig::Infinite {
            prop_assert_eq!((refused, dropped), (Count::default(), Count::default()));
        }
    }

    #[test]
    fn a_saturated_trace_link_wastes_less_than_an_opportunity_of_its_capacity(
        service in services(), sizes in proptest::collection::vec(1u64..3000, 200),
    ) {
        let mut link = Link::new(service.clone(), &QueueConfig::Infinite, random::stream(0, "queue", 0));
        for size in sizes {
            link.enqueue(Time::ZERO, Bytes::new(size), Number(0), drop).expect("everything may wait");
        }
        let mut sent = 0;
        let mut now = Time::ZERO;
        for _ in 0..100 {
            let Some(due) = link.next_departure() else { break };
            now = due;
            sent += link.depart(due, |_| {}).map_or(0, |packet| packet.size.get());
        }
        let capacity = service.capacity(Time::ZERO, now).get();
        // The tolerance: a packet partly sent, and a nanosecond of rounding for each packet.
        prop_assert!(sent + 3000 + 1000 >= capacity, "{sent} of {capacity}");
    }

    #[test]
    fn capacity_adds_up(service in services(), times in proptest::array::uniform3(0u64..400_000_000)) {
        let mut times = times.map(Time::from_nanos);
        times.sort_unstable();
        let [a, b, c] = times;
        let parts = service.capacity(a, b) + service.capacity(b, c);
        let whole = service.capacity(a, c);
        // A rate's bytes are rounded down in each part.
        prop_assert!(whole.get() - parts.get() <= 1, "{whole:?} is not {parts:?}");
    }

    #[test]
    fn text_and_back_gives_the_same_queue(queue in queues()) {
        prop_assert_eq!(QueueConfig::parse(&queue.to_string()), Ok(queue));
    }

    #[test]
    fn any_text_is_a_queue_or_an_error(text in ".{0,40}", kind in "(red|codel|droptail|infinite|pie|fq_codel|dualpi2):[a-z_]{0,9}=[-+.0-9eNaif]{0,9}") {
        let _ = QueueConfig::parse(&text);
        let _ = QueueConfig::parse(&kind);
    }

    #[test]
    fn any_bytes_are_a_trace_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300), text in "[0-9\r\n.#-]{0,200}") {
        for input in [bytes.as_slice(), text.as_bytes()] {
            for name in ["a", "a.gz", "a.xz"] {
                let _ = Trace::parse(name, input);
                let _ = raw::parse(name, input);
            }
        }
    }

    #[test]
    fn a_trace_is_its_times(gaps in proptest::collection::vec(0u64..2000, 1..600)) {
        let times: Vec<u64> = gaps.iter().scan(1, |time, gap| { *time += gap; Some(*time) }).collect();
        let trace = Trace::from_millis("random", times.clone()).unwrap();
        prop_assert_eq!(trace.opportunities().collect::<Vec<_>>(), times.clone());
        prop_assert_eq!(trace.len(), times.len() as u64);
        let text: String = times.iter().map(|time| format!("{time}\n")).collect();
        let read = Trace::parse("random", text.as_bytes()).unwrap();
        prop_assert_eq!(read.sha256(), trace.sha256());
        prop_assert_eq!(read, trace);
    }
}
