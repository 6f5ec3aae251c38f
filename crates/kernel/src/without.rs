//! A build without programs for the kernel: each call says why.

use crate::{Config, Connection, Error, Flow, Loaded};

const WHY: Error = Error::NotBuilt(env!("WITHOUT_PROGRAMS"));

/// Not to be had here.
///
/// # Errors
/// Always.
pub fn load(_: &Config) -> Result<(), Error> {
    Err(WHY)
}

/// Not to be had here.
pub fn default_name() -> Option<String> {
    None
}

/// Not to be had here.
///
/// # Errors
/// Always.
pub fn unload(_: &str) -> Result<(), Error> {
    Err(WHY)
}

/// Not to be had here.
///
/// # Errors
/// Always.
pub fn list() -> Result<Vec<Loaded>, Error> {
    Err(WHY)
}

/// Not to be had here.
///
/// # Errors
/// Always.
pub fn connections() -> Result<Vec<Connection>, Error> {
    Err(WHY)
}

/// Not to be had here.
#[derive(Debug)]
pub enum Held {}

/// Not to be had here.
///
/// # Errors
/// Always.
pub fn hold(_: &Config) -> Result<Held, Error> {
    Err(WHY)
}

/// Not to be had here.
#[derive(Debug)]
pub enum Reader {}

impl Reader {
    /// Not to be had here.
    ///
    /// # Errors
    /// Always.
    pub fn new(_: &Loaded) -> Result<Self, Error> {
        Err(WHY)
    }

    /// Not to be had here.
    ///
    /// # Errors
    /// Always.
    pub fn read(&self) -> Result<Vec<Flow>, Error> {
        Err(WHY)
    }
}
