//! The calls of the page's worker: numbers in, numbers out.
//!
//! Text and arrays lie in the module's memory. `room` makes room for a text and returns its
//! address. A function's answer lies at `answer`; its length in bytes is the function's result.

#![allow(unsafe_code)] // `no_mangle`, and nothing else

use std::cell::RefCell;

use serde_json::{Value, json};
use verus_core::{Bytes, Time};

use crate::{Lane, hand, lists};

/// The runs that a page shows beside one another.
const LANES: usize = 2;

#[derive(Default)]
struct Module {
    request: Vec<u8>,
    answer: Vec<u8>,
    lanes: [Option<Lane>; LANES],
}

thread_local! {
    static MODULE: RefCell<Module> = RefCell::default();
}

impl Module {
    fn say(&mut self, answer: &Value) -> usize {
        self.answer = answer.to_string().into_bytes();
        self.answer.len()
    }

    /// Answers with an error.
    fn complain(&mut self, problem: impl ToString) -> usize {
        self.say(&json!({ "error": problem.to_string() }))
    }
}

/// Makes room for a text of `bytes` bytes; returns its address.
#[unsafe(no_mangle)]
extern "C" fn room(bytes: usize) -> *mut u8 {
    MODULE.with_borrow_mut(|module| {
        module.request = vec![0; bytes];
        module.request.as_mut_ptr()
    })
}

/// Where the last answer lies.
#[unsafe(no_mangle)]
extern "C" fn answer() -> *const u8 {
    MODULE.with_borrow(|module| module.answer.as_ptr())
}

/// The lists to choose from.
#[unsafe(no_mangle)]
extern "C" fn list() -> usize {
    MODULE.with_borrow_mut(|module| module.say(&lists::lists()))
}

/// Opens the run of the scenario in the room, in place of the lane's present run.
#[unsafe(no_mangle)]
extern "C" fn open(lane: usize) -> usize {
    MODULE.with_borrow_mut(|module| {
        module.lanes[lane] = None; // what it held is there for the next
        let text = std::mem::take(&mut module.request);
        match Lane::open(&String::from_utf8_lossy(&text)) {
            Ok((opened, report)) => {
                module.lanes[lane] = Some(opened);
                module.say(&report)
            }
            Err(error) => module.complain(error),
        }
    })
}

/// Forgets the run in a lane.
#[unsafe(no_mangle)]
extern "C" fn close(lane: usize) {
    MODULE.with_borrow_mut(|module| module.lanes[lane] = None);
}

/// Goes on until `at_s`. Returns the number of four-byte numbers in the answer ([`Lane::advance`])
/// or, below zero, the length of the error text.
#[unsafe(no_mangle)]
extern "C" fn advance(lane: usize, at_s: f64) -> isize {
    MODULE.with_borrow_mut(|module| {
        let Some(found) = &mut module.lanes[lane] else {
            return -(module.complain("there is no run") as isize);
        };
        match found.advance(Time::from_secs_f64(at_s)) {
            Ok(frame) => {
                module.answer.clear();
                let bytes = frame.iter().flat_map(|number| number.to_le_bytes());
                module.answer.extend(bytes);
                frame.len() as isize
            }
            Err(error) => -(module.complain(error) as isize),
        }
    })
}

/// The metrics of a lane's run.
#[unsafe(no_mangle)]
extern "C" fn results(lane: usize) -> usize {
    MODULE.with_borrow_mut(|module| {
        let results = module.lanes[lane].as_ref().map(Lane::results);
        module.say(&results.unwrap_or_default())
    })
}

/// Sets the window of flows that a person controls, bytes.
#[unsafe(no_mangle)]
extern "C" fn set_window(bytes: f64) {
    hand::set_window(Bytes::from_f64(bytes));
}
