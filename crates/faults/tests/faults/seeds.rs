//! The settings of property tests (`.cargo/config.toml`).

use proptest::test_runner::{Config, RngSeed};

#[test]
fn properties_draw_the_same_each_time_and_write_nothing() {
    let config = Config::default();
    assert!(matches!(config.rng_seed, RngSeed::Fixed(_)), "{config:?}");
    assert!(config.failure_persistence.is_none(), "{config:?}");
}
