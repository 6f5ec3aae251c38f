//! The queues that texts can name: this crate's, and those that a program adds.

use std::sync::OnceLock;

use verus_words::spec::{Kind, Shown, assert_new};

use super::foreign::{self, Configuration};
use super::{KINDS, QueueConfig, SpecError};

/// The queues that texts can name: this crate's, and those that a program adds.
#[derive(Clone, Debug)]
pub struct Registry {
    kinds: Vec<Kind<QueueConfig>>,
}

static INSTALLED: OnceLock<Registry> = OnceLock::new();

/// This crate's queues.
impl Default for Registry {
    fn default() -> Self {
        Registry {
            kinds: KINDS.to_vec(),
        }
    }
}

impl Registry {
    /// Makes this the registry by which the program reads the texts of queues. Call it first in `main`: once a queue has
    /// been read or the list shown, the registry cannot be replaced.
    ///
    /// # Errors
    /// Gives the registry back if it is too late.
    pub fn install(self) -> Result<(), Registry> {
        INSTALLED.set(self)
    }

    /// The registry that was [installed](Self::install), else this crate's queues.
    pub fn installed() -> &'static Registry {
        INSTALLED.get_or_init(Registry::default)
    }

    /// Adds a queue with configuration `C`. `name` is its name in texts, `summary` the sentence that lists show.
    ///
    /// # Panics
    /// If the name is taken, or contains anything but lower-case letters, digits, hyphens and underscores; or if the
    /// defaults of `C` do not go together.
    #[must_use]
    pub fn with<C: Configuration>(mut self, name: &'static str, summary: &'static str) -> Self {
        assert_new("a queue", name, self.kinds.iter().map(|kind| kind.name));
        if let Err(problem) = C::default().check() {
            panic!("the defaults of `{name}` make no queue: {problem}");
        }
        self.kinds.push(Kind {
            name,
            summary,
            example: name,
            keys: foreign::keys::<C>,
            read: foreign::read::<C>,
        });
        self
    }

    /// Every kind of queue with its keys, units and defaults.
    pub fn catalogue(&self) -> Vec<Shown> {
        Kind::list(&self.kinds)
    }

    /// As [`QueueConfig::parse`], of these queues.
    ///
    /// # Errors
    /// As [`QueueConfig::parse`].
    pub fn parse(&self, text: &str) -> Result<QueueConfig, SpecError> {
        Kind::parse("queue", &self.kinds, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Queue, Waiting};
    use verus_core::Time;
    use verus_words::spec::{Problem, Row, field};

    /// A queue of one packet.
    #[derive(Clone, Debug, Default)]
    struct Config<const LEAST: u64> {
        most: u64,
    }

    impl<const LEAST: u64> Configuration for Config<LEAST> {
        const ROWS: &'static [Row<Self>] = &[field!(most).whole("packets", "packets")];

        fn check(&self) -> Result<(), Problem> {
            if self.most < LEAST {
                return Err(Problem::bad("most", "more", self.most));
            }
            Ok(())
        }

        fn build(&self, _seed: u64) -> Box<dyn Queue> {
            Box::new(One(None))
        }
    }

    #[derive(Debug)]
    struct One(Option<Waiting>);

    impl Queue for One {
        fn enqueue(&mut self, _now: Time, packet: Waiting) {
            self.0 = Some(packet);
        }

        fn dequeue(&mut self, _now: Time) -> Option<Waiting> {
            self.0.take()
        }
    }

    #[test]
    fn a_queue_that_is_added_is_listed_parsed_and_named_where_one_is_unknown() {
        let registry = Registry::default().with::<Config<0>>("mine", "a queue of mine");
        let listed = registry.catalogue().pop().expect("several");
        assert_eq!((listed.name, listed.example), ("mine", "mine"));
        assert_eq!(listed.keys[0].key, "most");
        assert_eq!(registry.parse("codel"), QueueConfig::parse("codel"));
        let unknown = registry.parse("nonesuch").expect_err("unknown").to_string();
        assert!(unknown.ends_with("infinite, mine"), "{unknown}");
        assert!(QueueConfig::parse("mine").is_err(), "it is not installed");
    }

    #[test]
    fn its_text_is_what_is_not_as_by_default() {
        let registry = Registry::default().with::<Config<0>>("mine", "a queue of mine");
        let parsed = |text| registry.parse(text).expect("valid");
        assert_eq!(parsed("mine").to_string(), "mine");
        assert_eq!(parsed("mine: most=3").to_string(), "mine:most=3");
        assert_eq!(parsed("mine:most=3"), parsed("mine:most=3.0"));
        assert_ne!(parsed("mine:most=3"), parsed("mine:most=4"));
    }

    #[test]
    #[should_panic(expected = "there is a queue `codel` already")]
    fn a_name_that_is_taken_is_refused() {
        let _ = Registry::default().with::<Config<0>>("codel", "another one");
    }

    #[test]
    #[should_panic(expected = "`a:b` is no name for a queue")]
    fn a_name_that_no_text_could_have_is_refused() {
        let _ = Registry::default().with::<Config<0>>("a:b", "another one");
    }

    #[test]
    #[should_panic(expected = "the defaults of `mine` make no queue: most must be more, not `0`")]
    fn defaults_that_make_no_queue_are_refused() {
        let _ = Registry::default().with::<Config<1>>("mine", "a queue of mine");
    }
}
