//! A scenario that can be run: checked, its files read, its texts parsed.

use verus_core::algorithm::{Registry, Scheme};

use crate::paths::Paths;
use crate::scenario::{Error, Scenario};
use crate::traffic::Traffic;

/// A checked scenario, with its files read and its texts parsed.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) paths: Paths,
    pub(crate) schemes: Vec<Scheme>,
    pub(crate) traffic: Vec<Traffic>,
}

impl Plan {
    /// What the packets cross.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Why a controller of this plan's gave up, if one did.
    ///
    /// # Errors
    /// Its words.
    pub(crate) fn check_controllers(&self) -> Result<(), Error> {
        let failure = self.schemes.iter().find_map(Scheme::failure);
        failure.map_or(Ok(()), |failure| Err(Error::Controller(failure)))
    }
}

impl Scenario {
    /// Checks every field and reads what it names.
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
        self.check()?;
        let schemes = self.schemes(registry)?;
        Ok(Plan {
            scenario: self.clone(),
            traffic: self.traffic()?,
            paths: self.paths()?,
            schemes,
        })
    }
}
