//! A scenario that can be run: checked, its files read, its texts parsed.

use verus_senders::{Registry, Scheme};

use verus_channel::PathConfig;
use verus_channel::schedule::Follower;
use verus_core::{Duration, Time};

use crate::paths::Paths;
use crate::scenario::{Error, Scenario};
use crate::traffic::Traffic;

/// Events between two looks at whether a run is to go on, some 0.2 s of work.
const LOOK_EVERY: u64 = 1 << 20;

/// A checked scenario, with its files read and its texts parsed.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) paths: Paths,
    pub(crate) schemes: Vec<Scheme>,
    pub(crate) traffic: Vec<Traffic>,
}

impl Plan {
    /// The paths of the packets.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The round trip of a handshake that a flow made by `now`: its path's without queues. None where there was no
    /// handshake, or the path has no delay.
    pub(crate) fn handshake(&self, flow: usize, now: Time) -> Option<Duration> {
        if !self.scenario.handshake {
            return None;
        }
        let delay = |way: &PathConfig| Follower::new(way.delays[flow].clone()).at(now);
        let rtt = delay(&self.paths.there) + delay(&self.paths.back);
        (!rtt.is_zero()).then_some(rtt)
    }

    /// Why a controller of this plan's gave up, if one did.
    ///
    /// # Errors
    /// Its words.
    pub(crate) fn check_controllers(&self) -> Result<(), Error> {
        let failure = self.schemes.iter().find_map(Scheme::failure);
        failure.map_or(Ok(()), |failure| Err(Error::Controller(failure)))
    }

    /// The error by which a run ends where the controller of a flow, or one that is not known, did something wrong.
    pub(crate) fn gave_up(&self, flow: Option<usize>, now: Time, problem: &str) -> Error {
        let mut schemes: Vec<&str> = self.schemes.iter().map(Scheme::text).collect();
        schemes.dedup();
        let schemes_named = flow.map_or_else(
            || schemes.join("+"),
            |at| self.schemes[at].text().to_owned(),
        );
        let seconds = now.as_secs_f64();
        Error::Controller(format!("`{schemes_named}` at {seconds:.6} s: {problem}"))
    }

    /// How many events there will have been when to look whether the run may go on, after so many.
    pub(crate) fn next_look(&self, events: u64) -> u64 {
        let soon = events.saturating_add(LOOK_EVERY);
        let limit = self
            .scenario
            .max_events
            .map(|limit| limit.saturating_add(1));
        limit
            .filter(|&limit| limit > events)
            .map_or(soon, |limit| limit.min(soon))
    }
}

impl Scenario {
    /// Checks every field and reads the files that it names.
    ///
    /// # Errors
    /// The first thing that is wrong, by name.
    pub fn plan(&self) -> Result<Plan, Error> {
        self.plan_with(Registry::installed())
    }

    /// As [`plan`](Self::plan), where schemes may name what `registry` has.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub fn plan_with(&self, registry: &Registry) -> Result<Plan, Error> {
        let mut texts = self.texts()?;
        let traffic = std::mem::take(&mut texts.traffic);
        // First, since a scheme may load a program of the user's, after which no other file may be readable.
        let paths = self.paths_of(texts)?;
        Ok(Plan {
            scenario: self.clone(),
            paths,
            traffic,
            schemes: self.schemes(registry)?,
        })
    }
}
