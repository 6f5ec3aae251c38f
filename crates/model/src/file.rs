//! A model as bytes: magic, version, length, contents, checksum.
//!
//! ```text
//! "VERUSMDL"  version u16  length u64  contents (postcard)  SHA-256 of all before it
//! ```
//!
//! Numbers are little-endian. The contents are the grid, the record of the training, and the
//! elements in order: each as its distance from the one before and its count. The bytes are hostile
//! until checked. Memory is bounded by the length of the input, and nothing is used before
//! checksum, grid and every element have been checked.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::matrix::{Grid, Matrix, Transition};

const MAGIC: &[u8; 8] = b"VERUSMDL";
const VERSION: u16 = 1;
const HEAD: usize = MAGIC.len() + 2 + 8;
const SUM: usize = 32;

/// A longer file is no model: some thirty million transitions.
pub const MAX_BYTES: u64 = 128 << 20;

/// The record of a model's training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The controller that was watched.
    pub scheme: String,
    /// Over which channels, or in which recorded runs.
    pub channels: Vec<String>,
    /// The number of flows on the channel, for each set of runs.
    pub users: Vec<u32>,
    /// Seeds of the runs.
    pub seeds: Vec<u64>,
    /// Length of each run, s.
    pub duration_s: f64,
    /// Size of a packet, bytes.
    pub packet_bytes: u32,
    /// Percentile of d beyond which samples are outliers.
    pub percentile: f64,
    /// Samples collected.
    pub samples: u64,
    /// The number of these left out as outliers.
    pub outliers: u64,
    /// Transitions counted.
    pub transitions: u64,
}

/// A model: its matrix, and the record of its training.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    about: About,
    matrix: Matrix,
}

/// Why bytes are no model. The message goes on from the name of the file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FileError {
    /// A file of another kind.
    #[error("is not a model file (it does not begin with `VERUSMDL`)")]
    Foreign,
    /// A file of another version of the program.
    #[error("is a model file of version {0}; this program reads version {VERSION}")]
    Version(u16),
    /// A file that ends too early, or goes on too long.
    #[error("is damaged: it has {found} bytes and should have {wanted}")]
    Length {
        /// Bytes there are.
        found: u64,
        /// Bytes its head promises.
        wanted: u64,
    },
    /// A file longer than any model.
    #[error("is too long for a model file ({0} bytes)")]
    TooLong(u64),
    /// Contents that differ from those written.
    #[error("is damaged: its checksum does not fit its contents")]
    Checksum,
    /// Invalid contents, though their checksum fits.
    #[error("cannot be used as a model: {0}")]
    Contents(String),
}

#[derive(Serialize)]
struct Outgoing<'a> {
    grid: Grid,
    about: &'a About,
    elements: Vec<(u64, u32)>,
}

#[derive(Deserialize)]
struct Incoming {
    grid: Grid,
    about: About,
    elements: Vec<(u64, u32)>,
}

impl Model {
    /// A model of a matrix.
    pub fn new(about: About, matrix: Matrix) -> Self {
        Model { about, matrix }
    }

    /// The record of its training.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Its matrix.
    pub fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    /// The model as a file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let grid = *self.matrix.grid();
        let mut last = 0;
        let elements = self
            .matrix
            .transitions()
            .map(|transition| {
                let at = place(&grid, &transition);
                let distance = at - last;
                last = at;
                (distance, transition.count)
            })
            .collect();
        let contents = postcard::to_stdvec(&Outgoing {
            grid,
            about: &self.about,
            elements,
        })
        .expect("numbers and texts serialise");
        let mut bytes = Vec::with_capacity(HEAD + contents.len() + SUM);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((contents.len() as u64).to_le_bytes());
        bytes.extend(contents);
        let sum = Sha256::digest(&bytes);
        bytes.extend(sum);
        bytes
    }

    /// The model in a file's bytes.
    ///
    /// # Errors
    /// Names the mistake, in words that follow the file's name.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FileError> {
        let length = bytes.len() as u64;
        if !bytes.starts_with(MAGIC) {
            // A model cut short within its first word is a damaged one.
            return Err(if !bytes.is_empty() && MAGIC.starts_with(bytes) {
                FileError::Length {
                    found: length,
                    wanted: (HEAD + SUM) as u64,
                }
            } else {
                FileError::Foreign
            });
        }
        if length > MAX_BYTES {
            return Err(FileError::TooLong(length));
        }
        let Some((head, rest)) = bytes.split_at_checked(HEAD) else {
            return Err(FileError::Length {
                found: length,
                wanted: (HEAD + SUM) as u64,
            });
        };
        let version = u16::from_le_bytes([head[8], head[9]]);
        if version != VERSION {
            return Err(FileError::Version(version));
        }
        let promised = u64::from_le_bytes(head[10..HEAD].try_into().expect("eight bytes"));
        let expected = promised.saturating_add((HEAD + SUM) as u64);
        if expected != length {
            return Err(FileError::Length {
                found: length,
                wanted: expected,
            });
        }
        let (contents, sum) = rest.split_at(rest.len() - SUM);
        if Sha256::digest(&bytes[..bytes.len() - SUM])[..] != *sum {
            return Err(FileError::Checksum);
        }
        let (incoming, after): (Incoming, _) = postcard::take_from_bytes(contents)
            .map_err(|error| FileError::Contents(error.to_string()))?;
        if !after.is_empty() {
            return Err(FileError::Contents("something follows its end".to_owned()));
        }
        incoming.check().map_err(FileError::Contents)
    }

    /// The matrix as the paper stores it (Table 2): comma-separated probabilities, all m × m of
    /// them, a line for each row in the order of Fig. 2; `0` where there is no transition.
    ///
    /// # Errors
    /// Those of `into`.
    pub fn write_csv(&self, into: &mut dyn Write) -> io::Result<()> {
        let states = self.matrix.grid().states();
        let elements = self.matrix.rows();
        let mut elements = elements.iter().peekable();
        let mut line = String::new();
        for row in 0..states {
            line.clear();
            let mut column = 0;
            while let Some(&(_, at, probability)) = elements.next_if(|element| element.0 == row) {
                line.extend(std::iter::repeat_n("0,", (at - column) as usize));
                line.push_str(&probability.to_string());
                line.push(',');
                column = at + 1;
            }
            line.extend(std::iter::repeat_n("0,", (states - column) as usize));
            line.pop();
            line.push('\n');
            into.write_all(line.as_bytes())?;
        }
        Ok(())
    }

    /// The number of bytes that [`write_csv`](Self::write_csv) writes.
    pub fn csv_bytes(&self) -> u64 {
        let states = self.matrix.grid().states();
        let texts = self.matrix.rows().into_iter();
        let beyond: u64 = texts
            .map(|(.., probability)| probability.to_string().len() as u64 - 1)
            .sum();
        2 * states * states + beyond
    }
}

/// The index of an element among all, in the matrix's order.
fn place(grid: &Grid, transition: &Transition) -> u64 {
    let (delays, windows) = (grid.delays(), grid.windows());
    let pair = u64::from(transition.from_delay) * delays + u64::from(transition.to_delay);
    let subset = pair * windows + u64::from(transition.from_window);
    subset * windows + u64::from(transition.to_window)
}

impl Incoming {
    fn check(self) -> Result<Model, String> {
        if let Some(problem) = self.grid.problem() {
            return Err(problem);
        }
        let about = &self.about;
        let texts = std::iter::once(&about.scheme).chain(&about.channels);
        if texts.clone().any(|text| text.contains(char::is_control)) {
            return Err("a name in it has control characters".to_owned());
        }
        if ![about.duration_s, about.percentile]
            .iter()
            .all(|x| x.is_finite() && *x >= 0.0)
        {
            return Err("its training has a length or percentile that is no number".to_owned());
        }
        let (delays, windows) = (self.grid.delays(), self.grid.windows());
        let all = self.grid.states() * self.grid.states();
        let mut transitions = Vec::with_capacity(self.elements.len());
        let mut at: u64 = 0;
        for (index, &(distance, count)) in self.elements.iter().enumerate() {
            if (distance == 0 && index > 0) || count == 0 {
                return Err(format!("transition {index} is empty or there twice"));
            }
            at = at.saturating_add(distance);
            if at >= all {
                return Err(format!(
                    "transition {index} lies outside its {all} elements"
                ));
            }
            let (rest, to_window) = (at / windows, at % windows);
            let (pair, from_window) = (rest / windows, rest % windows);
            transitions.push(Transition {
                from_delay: (pair / delays) as u32,
                to_delay: (pair % delays) as u32,
                from_window: from_window as u32,
                to_window: to_window as u32,
                count,
            });
        }
        if transitions.is_empty() {
            return Err("it has no transitions".to_owned());
        }
        Ok(Model::new(self.about, Matrix::new(self.grid, &transitions)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn model() -> Model {
        let grid = Grid {
            delay_min_ms: 20,
            delay_max_ms: 23,
            step_ms: 2,
            packets_min: 0,
            packets_max: 1,
        };
        let transition = |from_delay, to_delay, from_window, to_window, count| Transition {
            from_delay,
            to_delay,
            from_window,
            to_window,
            count,
        };
        let matrix = Matrix::new(
            grid,
            &[
                transition(0, 0, 0, 0, 3),
                transition(0, 0, 0, 1, 1),
                transition(0, 1, 1, 1, 700),
                transition(1, 0, 0, 0, 2),
            ],
        );
        let about = About {
            scheme: "verus".to_owned(),
            channels: vec!["city-driving-3g-up".to_owned()],
            users: vec![1, 2],
            samples: 707,
            percentile: 99.9,
            ..Default::default()
        };
        Model::new(about, matrix)
    }

    fn sealed(contents: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((contents.len() as u64).to_le_bytes());
        bytes.extend(contents);
        let sum = Sha256::digest(&bytes);
        bytes.extend(sum);
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let model = model();
        assert_eq!(Model::from_bytes(&model.to_bytes()), Ok(model));
    }

    #[test]
    fn the_csv_is_the_whole_matrix() {
        let mut csv = Vec::new();
        model().write_csv(&mut csv).expect("memory takes it");
        assert_eq!(csv.len() as u64, model().csv_bytes());
        assert_eq!(
            String::from_utf8(csv).expect("text"),
            "0.75,0.25,0,0\n0,0,0,1\n1,0,0,0\n0,0,0,0\n"
        );
    }

    #[test]
    fn each_kind_of_damage_is_named() {
        let bytes = model().to_bytes();
        let refusal = |bytes: &[u8]| Model::from_bytes(bytes).expect_err("refused").to_string();
        assert!(refusal(b"").contains("not a model file"));
        assert!(refusal(b"PAR1 and so on").contains("not a model file"));
        for cut in [3, 8, 17, 18, 40, bytes.len() - 1] {
            assert!(refusal(&bytes[..cut]).contains("is damaged"), "{cut}");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(refusal(&longer).contains("is damaged"));
        let mut newer = bytes.clone();
        newer[8] = 9;
        assert!(refusal(&newer).contains("version 9"));
    }

    #[test]
    fn contents_that_make_no_sense_are_refused_though_their_checksum_fits() {
        let refusal = |grid: Grid, about: &About, elements: Vec<(u64, u32)>| {
            let outgoing = Outgoing {
                grid,
                about,
                elements,
            };
            let contents = postcard::to_stdvec(&outgoing).expect("serialises");
            Model::from_bytes(&sealed(&contents))
                .expect_err("refused")
                .to_string()
        };
        let model = model();
        let (grid, about) = (*model.matrix().grid(), model.about().clone());
        assert!(refusal(grid, &about, vec![]).contains("no transitions"));
        assert!(refusal(grid, &about, vec![(1, 1), (0, 1)]).contains("there twice"));
        assert!(refusal(grid, &about, vec![(1, 0)]).contains("empty"));
        assert!(refusal(grid, &about, vec![(16, 1)]).contains("outside"));
        assert!(refusal(grid, &about, vec![(1, 1), (u64::MAX, 1)]).contains("outside"));
        let huge = Grid {
            packets_max: u32::MAX,
            delay_max_ms: u32::MAX,
            ..grid
        };
        assert!(refusal(huge, &about, vec![(1, 1)]).contains("states"));
        let escape = About {
            scheme: "\u{1b}[2J".to_owned(),
            ..about.clone()
        };
        assert!(refusal(grid, &escape, vec![(1, 1)]).contains("control"));
        let nan = About {
            percentile: f64::NAN,
            ..about
        };
        assert!(refusal(grid, &nan, vec![(1, 1)]).contains("no number"));
        // A length beyond the end of the input must not reserve memory.
        assert!(Model::from_bytes(&sealed(&[0xff; 40])).is_err());
    }

    proptest! {
        #[test]
        fn any_changed_byte_is_noticed(at in any::<prop::sample::Index>(), flip in 1u8..) {
            let mut bytes = model().to_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert!(Model::from_bytes(&bytes).is_err());
        }

        #[test]
        fn no_contents_break_the_reader(contents in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(model) = Model::from_bytes(&sealed(&contents)) {
                prop_assert!(!model.matrix().is_empty());
            }
        }
    }
}
