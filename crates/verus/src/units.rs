//! Delays and windows as Eqs. 2 to 6 compute with them, which is with fractions. Clocks and sizes of packets are whole
//! ([`Duration`], [`Bytes`](verus_core::Bytes)).

use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

use verus_core::units::Duration;

macro_rules! unit {
    ($(#[$doc:meta])* $Unit:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
        pub struct $Unit(pub f64);

        impl $Unit {
            /// None at all.
            pub const ZERO: $Unit = $Unit(0.0);

            /// The larger of both.
            #[inline]
            #[must_use]
            pub const fn max(self, other: $Unit) -> $Unit {
                $Unit(self.0.max(other.0))
            }

            /// The smaller of both.
            #[inline]
            #[must_use]
            pub const fn min(self, other: $Unit) -> $Unit {
                $Unit(self.0.min(other.0))
            }
        }

        impl Add for $Unit {
            type Output = $Unit;
            #[inline]
            fn add(self, other: $Unit) -> $Unit {
                $Unit(self.0 + other.0)
            }
        }

        impl AddAssign for $Unit {
            #[inline]
            fn add_assign(&mut self, other: $Unit) {
                self.0 += other.0;
            }
        }

        impl Sub for $Unit {
            type Output = $Unit;
            #[inline]
            fn sub(self, other: $Unit) -> $Unit {
                $Unit(self.0 - other.0)
            }
        }

        impl SubAssign for $Unit {
            #[inline]
            fn sub_assign(&mut self, other: $Unit) {
                self.0 -= other.0;
            }
        }

        impl Mul<$Unit> for f64 {
            type Output = $Unit;
            #[inline]
            fn mul(self, unit: $Unit) -> $Unit {
                $Unit(self * unit.0)
            }
        }

        /// How many times the other.
        impl Div for $Unit {
            type Output = f64;
            #[inline]
            fn div(self, other: $Unit) -> f64 {
                self.0 / other.0
            }
        }
    };
}

unit! {
    /// A delay in milliseconds.
    Millis
}

unit! {
    /// Packets: a window, or an epoch's budget.
    Packets
}

impl From<Duration> for Millis {
    #[inline]
    fn from(duration: Duration) -> Millis {
        Millis(duration.as_millis_f64())
    }
}
