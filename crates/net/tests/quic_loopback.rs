//! Each scheme of the catalogue carries data through quinn, over real sockets.

mod quic_common;

use std::time::Duration;

use quic_common::{Pair, runtime};
use verus_core::algorithm::catalogue;
use verus_net::quic::{self, Event};

const MEGABYTES: usize = 20;

/// All names of the catalogue.
fn schemes() -> Vec<String> {
    catalogue()
        .iter()
        .map(|entry| entry.name.to_owned())
        .collect()
}

#[test]
fn every_scheme_moves_a_file_and_no_acknowledgement_is_a_riddle() {
    for scheme in schemes() {
        for driven in [true, false] {
            runtime().block_on(async {
                let pair = Pair::new(&scheme).await;
                let _driver = driven.then(|| quic::drive(&pair.client));
                let view = quic::view(&pair.client).expect("our controller");
                let sent = pair.send(MEGABYTES << 20);
                tokio::time::timeout(Duration::from_secs(60), sent)
                    .await
                    .unwrap_or_else(|_| {
                        panic!("{scheme}, driven: {driven}: {:?}", view.snapshot())
                    });
                let snapshot = view.snapshot();
                eprintln!("{scheme} driven {driven}: {snapshot:?}");
                let counters = snapshot.counters;
                assert_eq!(counters.misses, 0, "{scheme}: {counters:?}");
                assert!(snapshot.delivered.get() >= (MEGABYTES << 20) as u64);
            });
        }
    }
}

#[test]
fn epochs_far_longer_than_a_round_trip_are_closed_in_time() {
    runtime().block_on(async {
        let pair = Pair::new("verus").await;
        let _driver = quic::drive(&pair.client);
        let view = quic::view(&pair.client).expect("our controller");
        // A loss ends slow start at the latest; from then on epochs run.
        pair.send(4 << 20).await;
        view.log(1 << 20);
        let from = view.snapshot().counters.ticks;
        pair.send(40 << 20).await;
        let ticks: Vec<_> = view
            .take_log()
            .into_iter()
            .filter_map(|event| match event {
                Event::Tick { due, at } => Some((due, at)),
                _ => None,
            })
            .collect();
        eprintln!("{} ticks from {from}; {:?}", ticks.len(), view.snapshot());
    });
}
