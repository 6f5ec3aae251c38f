//! A controller whose calls the compiler sees through.
//!
//! A sender calls its controller a dozen times for each packet. For the most used algorithms the type is known here: each
//! of the sender's ways is compiled for each of these types, so that the compiler can inline the calls. All others are
//! called through a table of virtual functions (`dyn` [`Controller`]), with the same results.

use std::any::Any;

use crate::controller::Controller;
use crate::forward::Forward;
use crate::tcp::cubic::Cubic;
use crate::tcp::reno::NewReno;
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

/// Evaluates `$call`, compiled for each type of controller; `$controller` is the box with the controller.
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

pub(crate) use call;

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
