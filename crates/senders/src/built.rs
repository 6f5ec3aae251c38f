//! A controller whose calls the compiler sees through.
//!
//! A sender calls its controller a dozen times for each packet. For the most used algorithms the type is known here: each of a
//! sender's ways is compiled for each of these types, so that the compiler can inline the calls. All others are called through a table of virtual functions (`dyn` [`Controller`]), with
//! the same results.

use std::any::Any;

use verus_core::receiver::{Ack, Received};
use verus_core::sender::{FalseAck, Hosted, State, Transmit};
use verus_core::{Bytes, Controller, Time};
use verus_forward::Forward;
use verus_peers::tcp::cubic::Cubic;
use verus_peers::tcp::reno::NewReno;
use verus_protocol::Verus;

/// A controller, by its type if that is one of those known here.
#[derive(Debug)]
pub enum Built {
    /// Verus.
    Verus(Box<Verus>),
    /// forward.
    Forward(Box<Forward>),
    /// Cubic.
    Cubic(Box<Cubic>),
    /// NewReno.
    NewReno(Box<NewReno>),
    /// A controller of any other type.
    Other(Box<dyn Controller>),
}

macro_rules! to_its_type {
    ($this:ident, $method:ident($($argument:ident),*)) => {
        match $this {
            Built::Verus(controller) => Hosted::$method(controller, $($argument),*),
            Built::Forward(controller) => Hosted::$method(controller, $($argument),*),
            Built::Cubic(controller) => Hosted::$method(controller, $($argument),*),
            Built::NewReno(controller) => Hosted::$method(controller, $($argument),*),
            Built::Other(controller) => Hosted::$method(controller, $($argument),*),
        }
    };
}

// Thin: each arm must be inlined into the sender's own function, however many arms there are.
impl Hosted for Built {
    fn as_dyn(&self) -> &dyn Controller {
        to_its_type!(self, as_dyn())
    }
    fn as_dyn_mut(&mut self) -> &mut dyn Controller {
        to_its_type!(self, as_dyn_mut())
    }
    #[inline(always)]
    fn window(&self) -> Bytes {
        to_its_type!(self, window())
    }
    #[inline(always)]
    fn poll_transmit(&mut self, state: &mut State, now: Time) -> Option<Transmit> {
        to_its_type!(self, poll_transmit(state, now))
    }
    #[inline(always)]
    fn on_ack(
        &mut self,
        state: &mut State,
        now: Time,
        ack: &Ack,
        received: &[Received],
        report: Option<&[u8]>,
    ) -> Result<(), FalseAck> {
        to_its_type!(self, on_ack(state, now, ack, received, report))
    }
    #[inline(always)]
    fn on_timer(&mut self, state: &mut State, now: Time) {
        to_its_type!(self, on_timer(state, now));
    }
    #[inline(always)]
    fn on_timer_if_due(&mut self, state: &mut State, now: Time) -> bool {
        to_its_type!(self, on_timer_if_due(state, now))
    }
    #[inline(always)]
    fn next_timer(&self, state: &State) -> Option<Time> {
        to_its_type!(self, next_timer(state))
    }
}

impl From<Box<dyn Controller>> for Built {
    fn from(controller: Box<dyn Controller>) -> Self {
        /// The controller as a `T`, if it is one.
        fn downcast<T: Controller>(
            controller: Box<dyn Controller>,
            wrap: fn(Box<T>) -> Built,
        ) -> Result<Built, Box<dyn Controller>> {
            if !(&*controller as &dyn Any).is::<T>() {
                return Err(controller);
            }
            let controller: Box<dyn Any> = controller;
            Ok(wrap(controller.downcast().expect("it is one")))
        }
        downcast(controller, Built::Verus)
            .or_else(|controller| downcast(controller, Built::Forward))
            .or_else(|controller| downcast(controller, Built::Cubic))
            .or_else(|controller| downcast(controller, Built::NewReno))
            .unwrap_or_else(Built::Other)
    }
}
