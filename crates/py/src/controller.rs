//! Controllers written in Python: a class of the user's behind the core's trait.
//!
//! ```text
//!  sender ── event ──▶ PythonController ── method ──▶ object of the user's class
//!                          ▲                               │
//!                          └── window, budget, rate, tick ─┘  attributes, read after each event
//! ```
//!
//! The object's answers are read after each event and kept here, since a sender asks several times
//! for each packet. An object fails if it raises, gives an invalid answer or does not return. It
//! then allows nothing more, and its run ends with its error ([`Configured::failure`]).

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration as Span, Instant};

use pyo3::exceptions::{PyKeyboardInterrupt, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString, PyTuple};
use verus_core::configuration::Configured;
use verus_core::{
    Allowance, Bytes, Controller, Departure, Duration, Ecn, Feedback, Rate, Time, Timeout,
};
use verus_senders::{Elsewhere, Value};
use verus_words::spec::{Given, Problem, places};

use crate::convert::SERIES;
use crate::{events, lock};

/// Where the Python half is.
const MODULE: &str = "verus.controller";

/// The prefix of a class that was given to this process, in place of its file's name.
const GIVEN: &str = "python:";

/// The most that such a controller may have in flight, or allow at once, bytes: 700,000 packets of 1500 bytes, a second of
/// 8 Gbit/s. Beyond it a mistaken unit is likelier than a wish, and the memory of this machine is at stake.
const MOST_ALLOWED: f64 = (1u64 << 30) as f64;

/// The fastest that it may ask for, Mbit/s, as of a link.
const FASTEST_MBPS: f64 = 1e6;

/// Whether a scheme's text is of this kind: `FILE.py:CLASS…` or `python:CLASS…`.
pub(crate) fn is_python(text: &str) -> bool {
    split(text).is_some()
}

/// The file, or [`GIVEN`], and the text after it.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix(GIVEN) {
        return Some((GIVEN, rest));
    }
    let (file, rest) = text.split_once(':').unwrap_or((text, ""));
    file.ends_with(".py").then_some((file, rest))
}

/// The files that such a scheme names, and the place of each in it: that of the class, and each value that is a file,
/// which the class may read.
pub(crate) fn files(text: &str) -> Option<Vec<(Range<usize>, PathBuf)>> {
    let (file, _) = split(text)?;
    if file == GIVEN {
        return Some(Vec::new());
    }
    let end = text.find(':').unwrap_or(text.len());
    let mut files = vec![(0..end, file.into())];
    let class = (end + 1).min(text.len());
    for (_, place) in places(&text[class..]) {
        let place = class + place.start..class + place.end;
        let value = text[place.clone()].trim();
        let is_number = value
            .bytes()
            .all(|byte| byte == b'.' || byte.is_ascii_digit());
        if !is_number && Path::new(value).is_file() {
            files.push((place, value.into()));
        }
    }
    Some(files)
}

/// The scheme with more settings, as [`verus_words::spec::with_settings`] adds them.
pub(crate) fn with_settings(text: &str, settings: &str, first: bool) -> String {
    let with = |text| verus_words::spec::with_settings(text, settings, first);
    match split(text) {
        Some((GIVEN, class)) => format!("{GIVEN}{}", with(class)),
        Some((file, class)) => format!("{file}:{}", with(class)),
        None => with(text),
    }
}

/// Opens a scheme that names a class.
pub(crate) fn open(text: &str) -> Option<Result<Elsewhere, Problem>> {
    let (file, rest) = split(text)?;
    Some(Given::parse(rest).and_then(|given| {
        let config = Python::attach(|py| Class::find(py, file, &given))?;
        Ok(Elsewhere {
            name: config.state.name.clone(),
            params: Value::all(&given),
            config: Arc::new(config),
        })
    }))
}

/// A class with its keys.
struct Class {
    /// Makes an object of it.
    make: Py<PyAny>,
    state: Arc<State>,
}

/// State shared by the objects of one scheme in one run.
#[derive(Debug, Default)]
struct State {
    name: String,
    /// Its name in messages.
    place: String,
    call_limit: Span,
    run_limit: Span,
    failure: Mutex<Option<String>>,
    /// Why its calls are to end, if they take too long.
    late: Mutex<Option<String>>,
    /// Calls begun and ended: odd while one is under way.
    calls: AtomicU64,
    /// In which thread, as Python counts them.
    thread: AtomicU64,
    /// The names of its probes, since the first.
    shown: OnceLock<Vec<&'static str>>,
}

impl fmt::Debug for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.state.place)
    }
}

impl State {
    /// Why calls are to end, if they are; none ends for it again.
    fn late(&self, py: Python<'_>) -> Option<String> {
        let problem = lock(&self.late).clone()?;
        let thread = self.thread.load(Ordering::Relaxed);
        // An interrupt for a call that had just ended would end this one; it is discarded.
        let _ = py
            .import(MODULE)
            .and_then(|module| module.call_method1("spare", (thread,)));
        Some(problem)
    }

    /// Records an error, unless there was one before.
    fn fail(&self, method: &str, now: Time, problem: impl fmt::Display) {
        let (place, seconds) = (&self.place, now.as_secs_f64());
        lock(&self.failure)
            .get_or_insert_with(|| format!("{place}.{method} at {seconds:.6} s: {problem}"));
    }
}

impl Class {
    fn find(py: Python<'_>, file: &str, given: &Given<'_>) -> Result<Self, Problem> {
        let class = || -> PyResult<Self> {
            let arguments = (file, given.name, given.pairs.clone());
            let class = py.import(MODULE)?.call_method1("find", arguments)?;
            let (make, name, place, call_limit_s, run_limit_s): (_, String, String, f64, f64) =
                class.extract()?;
            // They are above 0; one too long to count is none.
            let span = |seconds| {
                Span::try_from_secs_f64(seconds).unwrap_or(Span::from_secs(u32::MAX.into()))
            };
            Ok(Class {
                make,
                state: Arc::new(State {
                    name,
                    place,
                    call_limit: span(call_limit_s),
                    run_limit: span(run_limit_s),
                    ..State::default()
                }),
            })
        };
        class().map_err(|error| {
            let problem = Problem::Together(error.value(py).to_string());
            pass_on_interrupt(py, &error);
            problem
        })
    }
}

impl Configured for Class {
    fn label(&self) -> (String, &'static [&'static str]) {
        (self.state.name.clone(), &[])
    }

    fn build(&self, seed: u64) -> Box<dyn Controller> {
        let mut controller = PythonController {
            state: Arc::clone(&self.state),
            ..PythonController::default()
        };
        let made = Python::attach(|py| -> PyResult<()> {
            let module = py.import(MODULE)?;
            self.state
                .thread
                .store(thread_number(py)?, Ordering::Relaxed);
            watch_from_now(&self.state);
            let object = during(&self.state, || {
                module.call_method1("make", (self.make.bind(py), seed))
            })?;
            let overridden = |method: &str| -> PyResult<bool> {
                module.call_method1("hears", (&object, method))?.extract()
            };
            controller.hears_sent = overridden("on_sent")?;
            controller.hears_tick = overridden("on_tick")?;
            let every: Option<f64> = module.call_method1("every_of", (&object,))?.extract()?;
            controller.every = every.map(Duration::from_millis_f64);
            controller.ecn = match module.call_method1("ecn_of", (&object,))?.extract()? {
                Some("classic") => Ecn::Ect0,
                Some(_) => Ecn::Ect1,
                None => Ecn::NotEct,
            };
            controller.object = Some(object.unbind());
            Ok(())
        });
        if let Err(error) = made {
            let problem = Python::attach(|py| describe(py, &error));
            self.state.fail("__init__", Time::ZERO, problem);
        }
        Box::new(controller)
    }

    fn failure(&self) -> Option<String> {
        lock(&self.state.failure).clone()
    }
}

/// One object, and its last answers.
#[derive(Default)]
struct PythonController {
    /// `None` if it could not be made.
    object: Option<Py<PyAny>>,
    state: Arc<State>,
    hears_sent: bool,
    hears_tick: bool,
    /// How long feedback may wait for more, where the class says that it may.
    every: Option<Duration>,
    /// Feedback not yet reported to it, and when it is due.
    pending: Option<events::Feedback>,
    due: Option<Time>,
    ecn: Ecn,
    window: Option<Bytes>,
    budget: Option<Bytes>,
    /// The object's view of the rest of its budget.
    object_budget: Option<Bytes>,
    pacing: Option<Rate>,
    burst: Option<Bytes>,
    next_tick: Option<Time>,
}

impl fmt::Debug for PythonController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.state.place)
    }
}

/// Runs `call`, which calls the object, so that [`watch`] can time it.
fn during<T>(state: &State, call: impl FnOnce() -> T) -> T {
    state.calls.fetch_add(1, Ordering::Relaxed);
    let result = call();
    state.calls.fetch_add(1, Ordering::Relaxed);
    result
}

/// Interrupts the program, which the user meant, once this call of it has returned.
fn pass_on_interrupt(py: Python<'_>, error: &PyErr) {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        let _ = py
            .import("_thread")
            .and_then(|module| module.call_method0("interrupt_main"));
    }
}

/// An exception in a sentence.
fn describe(py: Python<'_>, error: &PyErr) -> String {
    pass_on_interrupt(py, error);
    py.import(MODULE)
        .and_then(|module| module.call_method1("told", (error.clone_ref(py).into_value(py),)))
        .and_then(|text| text.extract())
        .unwrap_or_else(|_| error.to_string())
}

impl PythonController {
    /// Reports an event to the object, and reads its answers.
    fn tell<A>(&mut self, method: &'static str, now: Time, arguments: A)
    where
        A: for<'a> FnOnce(Python<'a>) -> PyResult<Bound<'a, PyTuple>>,
    {
        let Some(object) = self.object.take() else {
            return;
        };
        let outcome = Python::attach(|py| -> Result<(), String> {
            let bound = object.bind(py);
            let failed = |error: PyErr| describe(py, &error);
            if self.object_budget != self.budget {
                let budget = self.budget.map(Bytes::get);
                bound
                    .setattr(intern!(py, "budget_bytes"), budget)
                    .map_err(failed)?;
            }
            let arguments = arguments(py).map_err(failed)?;
            let name = PyString::intern(py, method);
            let called = during(&self.state, || bound.call_method1(name, arguments));
            if let Some(problem) = self.state.late(py) {
                return Err(problem);
            }
            called.map_err(failed)?;
            self.read(bound)
        });
        match outcome {
            Ok(()) => self.object = Some(object),
            Err(problem) => {
                self.state.fail(method, now, problem);
                self.stop();
            }
        }
    }

    /// Nothing more leaves.
    fn stop(&mut self) {
        (self.window, self.pacing, self.next_tick) = (Some(Bytes::ZERO), None, None);
        (self.every, self.pending, self.due) = (None, None, None);
    }

    /// When the object asks for its tick.
    fn own_tick(&self) -> Option<Time> {
        self.next_tick.filter(|_| self.hears_tick)
    }

    /// Reports the feedback that has waited for more.
    fn report_pending(&mut self, now: Time) {
        self.due = None;
        if let Some(feedback) = self.pending.take() {
            self.tell("on_feedback", now, |py| (feedback,).into_pyobject(py));
        }
    }

    fn read(&mut self, object: &Bound<'_, PyAny>) -> Result<(), String> {
        let py = object.py();
        let bytes = |name| number(object, name, "of bytes, ", MOST_ALLOWED);
        self.window = bytes(intern!(py, "window_bytes"))?.map(|bytes| Bytes::new(bytes as u64));
        self.budget = bytes(intern!(py, "budget_bytes"))?.map(|bytes| Bytes::new(bytes as u64));
        self.object_budget = self.budget;
        self.burst = bytes(intern!(py, "burst_bytes"))?.map(|bytes| Bytes::new(bytes as u64));
        let mbps = number(object, intern!(py, "pacing_mbps"), "", FASTEST_MBPS)?;
        self.pacing = mbps.map(Rate::from_mbps);
        let at = number(object, intern!(py, "next_tick_s"), "of seconds, ", 1e9)?;
        self.next_tick = at.map(Time::from_secs_f64);
        if (self.window, self.budget, self.pacing) == (None, None, None) {
            return Err(
                "it set none of window_bytes, budget_bytes and pacing_mbps, \
                        so that nothing bounds what is sent"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// A number that the object allows; `None` for no bound.
fn number(
    object: &Bound<'_, PyAny>,
    name: &Bound<'_, PyString>,
    unit: &str,
    most: f64,
) -> Result<Option<f64>, String> {
    let py = object.py();
    let value = object.getattr(name).map_err(|error| describe(py, &error))?;
    if value.is_none() {
        return Ok(None);
    }
    match value.extract::<f64>() {
        Ok(number) if (0.0..=most).contains(&number) && !value.is_instance_of::<PyBool>() => {
            Ok(Some(number))
        }
        _ => {
            let shown = value.repr().map(|text| text.to_string());
            let shown = shown.unwrap_or_else(|_| "what it is".to_owned());
            Err(format!(
                "{name} must be a number {unit}between 0 and {most}, or None, not {shown}"
            ))
        }
    }
}

impl Controller for PythonController {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.tell("on_start", now, |py| {
            (now.as_secs_f64(), packet_size.get()).into_pyobject(py)
        });
        if self.object.is_none() {
            self.stop();
        }
    }

    fn on_sent(&mut self, packet: &Departure) {
        if let Some(budget) = &mut self.budget {
            *budget = budget.saturating_sub(packet.size);
        }
        if self.hears_sent {
            self.tell("on_sent", packet.at, |py| {
                (events::Departure(*packet),).into_pyobject(py)
            });
        }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        if let Some(every) = self.every {
            self.due.get_or_insert(feedback.now + every);
            match &mut self.pending {
                Some(pending) => pending.add(feedback),
                None => self.pending = Some(events::Feedback::new(feedback)),
            }
            return;
        }
        self.tell("on_feedback", feedback.now, |py| {
            (events::Feedback::new(feedback),).into_pyobject(py)
        });
    }

    fn on_timeout(&mut self, timeout: &Timeout<'_>) {
        self.report_pending(timeout.now);
        self.tell("on_timeout", timeout.now, |py| {
            (events::Timeout::new(timeout),).into_pyobject(py)
        });
    }

    fn on_tick(&mut self, now: Time, in_flight: Bytes) {
        if self.due.is_some_and(|at| at <= now) {
            self.report_pending(now);
        }
        if self.own_tick().is_none_or(|at| at > now) {
            return;
        }
        self.tell("on_tick", now, |py| {
            (now.as_secs_f64(), in_flight.get()).into_pyobject(py)
        });
        if let Some(at) = self.own_tick().filter(|&at| at <= now) {
            let problem = format!(
                "next_tick_s must be after now, or None, not {}",
                at.as_secs_f64()
            );
            self.state.fail("on_tick", now, problem);
            self.object = None;
            self.stop();
        }
    }

    fn window(&self) -> Bytes {
        self.window.unwrap_or(Bytes::new(MOST_ALLOWED as u64))
    }

    fn allowance(&self) -> Allowance {
        let window = Allowance::window(self.window());
        match self.budget {
            Some(budget) => window.and_budget(budget),
            None => window,
        }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.pacing
    }

    fn send_quantum(&self) -> Option<Bytes> {
        self.burst
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn next_tick(&self) -> Option<Time> {
        let tick = self.own_tick();
        tick.map_or(self.due, |tick| {
            Some(self.due.map_or(tick, |due| due.min(tick)))
        })
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        let shown = Python::attach(|py| self.shown(py));
        let names = self.state.shown.get_or_init(|| {
            let names = shown.iter().map(|(name, _)| intern_name(name));
            names.collect()
        });
        for name in names {
            let probe = shown.iter().find(|(other, _)| other == name);
            record(name, probe.map_or(f64::NAN, |&(_, value)| value));
        }
    }
}

impl PythonController {
    /// The object's probes.
    fn shown(&self, py: Python<'_>) -> Vec<(String, f64)> {
        let Some(object) = &self.object else {
            return Vec::new();
        };
        let shown = during(&self.state, || object.call_method0(py, "probe"));
        let shown = shown.and_then(|shown| {
            let shown = shown.into_bound(py).cast_into::<PyDict>();
            let shown = shown.map_err(|_| PyTypeError::new_err("it must return a dict"))?;
            let pair = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
                let name: String = name.extract()?;
                if SERIES.contains(&name.as_str()) {
                    let taken =
                        format!("`{name}` is a column of every series: give it another name");
                    return Err(PyValueError::new_err(taken));
                }
                Ok((name, value.extract()?))
            };
            shown.iter().map(pair).collect::<PyResult<Vec<_>>>()
        });
        shown.unwrap_or_else(|error| {
            let mut failure = lock(&self.state.failure);
            failure.get_or_insert_with(|| {
                format!("{}.probe: {}", self.state.place, describe(py, &error))
            });
            Vec::new()
        })
    }
}

/// A name that lasts as long as the program: few are ever shown.
fn intern_name(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = lock(&NAMES);
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = Box::leak(name.to_owned().into());
    names.insert(name);
    name
}

/// A class at work, as [`watch`] last saw it.
struct Watched {
    state: Weak<State>,
    began: Instant,
    calls: u64,
    since: Instant,
}

static WATCHED: Mutex<Vec<Watched>> = Mutex::new(Vec::new());

#[allow(
    clippy::disallowed_methods,
    reason = "how long the user waits, not what time it is in a simulation"
)]
fn now() -> Instant {
    Instant::now()
}

fn watch_from_now(state: &Arc<State>) {
    let mut watched = lock(&WATCHED);
    if !watched
        .iter()
        .any(|one| one.state.as_ptr() == Arc::as_ptr(state))
    {
        watched.push(Watched {
            state: Arc::downgrade(state),
            began: now(),
            calls: 0,
            since: now(),
        });
    }
}

/// Ends the calls that take longer than they may. To be called from time to time, by another thread than theirs.
pub(crate) fn watch(py: Python<'_>) {
    let mut watched = lock(&WATCHED);
    let now = now();
    watched.retain_mut(|one| {
        let Some(state) = one.state.upgrade() else {
            return false;
        };
        let calls = state.calls.load(Ordering::Relaxed);
        if calls != one.calls {
            (one.calls, one.since) = (calls, now);
        }
        let under_way = calls % 2 == 1;
        let problem = if under_way && now - one.since > state.call_limit {
            format!(
                "took longer than {} s (`call_limit_s` of the class)",
                state.call_limit.as_secs_f64()
            )
        } else if now - one.began > state.run_limit {
            format!(
                "the run took longer than {} s (`run_limit_s` of the class)",
                state.run_limit.as_secs_f64()
            )
        } else {
            return true;
        };
        *lock(&state.late) = Some(problem);
        if under_way {
            // The calling thread cannot get between the end of a call and its being counted: this one has the
            // interpreter lock.
            end_call(py, state.thread.load(Ordering::Relaxed));
        }
        false
    });
}

/// Ends the call that `thread` makes, as Python counts threads; 0 is none.
pub(crate) fn end_call(py: Python<'_>, thread: u64) {
    if thread != 0 {
        let module = py.import(MODULE);
        let _ = module.and_then(|module| module.call_method1("interrupt", (thread,)));
    }
}

/// This thread, as Python counts threads.
pub(crate) fn thread_number(py: Python<'_>) -> PyResult<u64> {
    py.import(MODULE)?.call_method0("thread")?.extract()
}

static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs controllers of Python: one of them simulates, as one that predicts does.
pub(crate) fn has_turn() -> bool {
    HAS_TURN.get()
}

/// Does `work` with each of `runs`, one after another, in a thread that Python knows: it need not be made known at each call.
/// Nothing of the kind is done by another thread meanwhile: the interpreter lock would make them take turns, and each turn
/// would cost more than a call. Unless `has_turn`: then the thread that has it waits for these runs. Meanwhile `thread` is
/// this thread, as Python counts it, so that [`end_call`] ends its call.
pub(crate) fn in_one_interpreter(
    runs: &[usize],
    has_turn: bool,
    thread: &AtomicU64,
    work: impl Fn(usize) + Sync,
) {
    if runs.is_empty() {
        return;
    }
    let _turn = (!has_turn).then(|| lock(&TURN));
    HAS_TURN.set(true);
    Python::attach(|py| {
        thread.store(thread_number(py).unwrap_or(0), Ordering::Relaxed);
        py.detach(|| runs.iter().copied().for_each(&work));
        // Under the interpreter lock, so that [`end_call`] does not meet a thread that has ended.
        thread.store(0, Ordering::Relaxed);
    });
    HAS_TURN.set(false);
}
