//! The log that a bridge may write: `verus-measure`'s, where the feature `qlog` is on.

#[cfg(feature = "qlog")]
pub(crate) use verus_measure::qlog::{Qlog, Trigger};

#[cfg(not(feature = "qlog"))]
pub(crate) use none::{Qlog, Trigger};

/// Without the feature there never is a log. The type has no values, so that code that would write
/// to one compiles to nothing.
#[cfg(not(feature = "qlog"))]
mod none {
    use verus_core::rtt::RttEstimate;
    use verus_core::{Bytes, Controller, Time};

    #[derive(Debug)]
    pub(crate) enum Qlog {}

    #[derive(Clone, Copy)]
    pub(crate) enum Trigger {
        Timeout,
    }

    impl Qlog {
        pub(crate) fn sent(&mut self, _: Time, _: u64, _: Bytes) {
            match *self {}
        }

        pub(crate) fn acknowledged(
            &mut self,
            _: Time,
            _: impl Iterator<Item = u64>,
            _: Option<Bytes>,
            _: Option<u64>,
        ) {
            match *self {}
        }

        pub(crate) fn lost(&mut self, _: Time, _: u64, _: Option<Trigger>) {
            match *self {}
        }

        pub(crate) fn state(&mut self, _: Time, _: &dyn Controller, _: Bytes, _: &RttEstimate) {
            match *self {}
        }
    }
}
