//! A controller whose calls the compiler sees through.
//!
//! A sender calls its controller a dozen times for each packet. For the most used algorithms the type is known here, so
//! that the compiler can inline these calls; all others are called through a table of virtual functions (`dyn`
//! [`Controller`]), with the same results.

use std::any::Any;

use crate::controller::{Allowance, Controller, Departure, Feedback, Stamp, Timeout};
use crate::forward::Forward;
use crate::tcp::cubic::Cubic;
use crate::tcp::reno::NewReno;
use crate::units::{Bytes, Rate, Time};
use crate::verus::Verus;

/// A controller, by its type if that is one of those known here.
#[derive(Debug)]
pub(crate) enum Direct {
    Verus(Box<Verus>),
    Forward(Box<Forward>),
    Cubic(Box<Cubic>),
    NewReno(Box<NewReno>),
    /// A controller of any other type.
    Other(Box<dyn Controller>),
}

/// Calls `$call` of the controller, whatever its type.
macro_rules! call {
    ($direct:expr, $controller:ident => $call:expr) => {
        match $direct {
            Direct::Verus($controller) => $call,
            Direct::Forward($controller) => $call,
            Direct::Cubic($controller) => $call,
            Direct::NewReno($controller) => $call,
            Direct::Other($controller) => $call,
        }
    };
}

impl From<Box<dyn Controller>> for Direct {
    fn from(controller: Box<dyn Controller>) -> Self {
        /// The controller as a `T`, if it is one.
        fn known<T: Controller>(
            controller: Box<dyn Controller>,
            as_known: fn(Box<T>) -> Direct,
        ) -> Result<Direct, Box<dyn Controller>> {
            if !(&*controller as &dyn Any).is::<T>() {
                return Err(controller);
            }
            let controller: Box<dyn Any> = controller;
            Ok(as_known(controller.downcast().expect("it is one")))
        }
        known(controller, Direct::Verus)
            .or_else(|controller| known(controller, Direct::Forward))
            .or_else(|controller| known(controller, Direct::Cubic))
            .or_else(|controller| known(controller, Direct::NewReno))
            .unwrap_or_else(Direct::Other)
    }
}

/// As in [`Controller`].
impl Direct {
    #[inline]
    pub(crate) fn window(&self) -> Bytes {
        call!(self, controller => controller.window())
    }

    #[inline]
    pub(crate) fn allowance(&self) -> Allowance {
        call!(self, controller => controller.allowance())
    }

    #[inline]
    pub(crate) fn pacing_rate(&self) -> Option<Rate> {
        call!(self, controller => controller.pacing_rate())
    }

    #[inline]
    pub(crate) fn send_quantum(&self) -> Option<Bytes> {
        call!(self, controller => controller.send_quantum())
    }

    #[inline]
    pub(crate) fn next_tick(&self) -> Option<Time> {
        call!(self, controller => controller.next_tick())
    }

    #[inline]
    pub(crate) fn stamp(&self, packet: &Departure) -> Option<Stamp> {
        call!(self, controller => controller.stamp(packet))
    }

    #[inline]
    pub(crate) fn on_sent(&mut self, packet: &Departure) {
        call!(self, controller => controller.on_sent(packet));
    }

    #[inline]
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        call!(self, controller => controller.on_feedback(feedback));
    }

    pub(crate) fn on_timeout(&mut self, timeout: &Timeout<'_>) {
        call!(self, controller => controller.on_timeout(timeout));
    }

    #[inline]
    pub(crate) fn on_tick(&mut self, now: Time, in_flight: Bytes) {
        call!(self, controller => controller.on_tick(now, in_flight));
    }

    /// The controller as a trait object, for all other calls.
    pub(crate) fn as_dyn(&self) -> &dyn Controller {
        call!(self, controller => &**controller)
    }
}
