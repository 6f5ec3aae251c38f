//! A user's traffic: `full`, `turns`, `on-off`, `c.r1002`, `files`, `pages`, `video`, `media` or
//! `cbr`, with settings as `KIND:key=value`.
//!
//! ```text
//!  full      ├────────────────────────────────────────────────▶ one connection, always something to send
//!  turns     ├──── on ────┤···· off ····├──── on ────┤···· off ···   one connection, and the clock says when
//!  on-off    ····├── ON: size / rate ──┤······ OFF ······├── ON ──┤···    the clock ends a connection
//!  c.r1002   ····├── file ──┤······· reading ·······├── file ──┤······    its delivery does, and reading follows
//!  files     ├─ file ─┤ gap ├─ file ─┤ gap ├─ file ─┤                     likewise
//!  pages     ?├─ page ─┤ thinking ?├─ page ─┤ thinking ?├─ page ─┤     one connection, and a request for each
//!  video, cbr├┤  ├┤  ├┤  ├┤  ├┤  ├┤  ├┤  ├┤  ├┤  ├┤  ├─▶ one connection, and a frame whenever it is due
//! ```
//!
//! A user is a sequence of connections, one at a time, and each begins anew: an algorithm without
//! memory, a receiver without data. All draws come from a stream of the run's seed and the user
//! alone, so two schemes meet the same sizes and pauses. With `on-off`, which the network cannot
//! delay, they also meet the same instants.
//!
//! **Sizes** are truncated lognormal. A mean m and a standard deviation s give σ² = ln(1 + s²/m²)
//! and μ = ln m − σ²/2. A size above the maximum is drawn again, as in 3GPP and 3GPP2 evaluations;
//! capping would pile up files of just that size. So the mean of the sizes sent is a little below
//! m. A megabyte is 10⁶ bytes.
//!
//! `on-off` is Table 3 of the model-driven paper, taken literally: mean 4 MB and "variance 3.3" in
//! MB². This makes σ² = ln(1 + 3.3/16) = 0.1875 and μ = 1.2925; its §6.6 turns the size into a time
//! at 4 Mbit/s. `c.r1002` is the FTP model of 3GPP2 C.R1002: mean 2 MB, standard deviation 0.722
//! MB, at most 5 MB, reading for 180 s. Both leave open how a user begins. Here both begin with a
//! pause, since independent users do not all begin to send at the same moment.

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp, LogNormal};
use verus_core::{Bytes, Duration, random};

use crate::frames::Video;
use crate::media::Media;

mod text;

pub use text::catalogue;

const MB: f64 = 1e6;

/// A user's traffic.
#[derive(Clone, Debug, PartialEq)]
pub enum Traffic {
    /// Always something to send.
    Full,
    /// On and off by the clock.
    OnOff {
        /// Mean time off, s.
        off_s: f64,
        /// The size that determines the time on.
        size: Size,
        /// The rate that makes it a time, Mbit/s.
        rate_mbps: f64,
        /// Whether it begins with a pause.
        pause_first: bool,
    },
    /// Files with a reading time after each.
    Ftp {
        /// Mean reading time, s.
        reading_s: f64,
        /// Size of the files.
        size: Size,
        /// Whether it begins with a pause.
        pause_first: bool,
    },
    /// Files of one size.
    Files {
        /// The size.
        bytes: u64,
        /// From the end of one to the beginning of the next, s.
        gap_s: f64,
        /// How many; without end if absent.
        count: Option<u64>,
    },
    /// Pages, each sent when it is requested.
    Pages(Pages),
    /// Frames at a fixed rate.
    Video(Video),
    /// Audio and two videos.
    Media(Media),
    /// On and off in turn.
    Turns(Turns),
}

/// Pages that a client requests, one after another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pages {
    /// Size of a request.
    pub request: Bytes,
    /// Size of the pages; all of the mean size if the variance is zero.
    pub size: Size,
    /// Mean time from a page to the next request, s.
    pub think_s: f64,
    /// How many; without end if absent.
    pub count: Option<u64>,
}

/// On-off periods of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turns {
    /// Length of a period with data to send.
    pub on: Duration,
    /// Length of the pause after it.
    pub off: Duration,
    /// Number of pauses; without end if absent.
    pub pauses: Option<u64>,
}

/// A truncated lognormal size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Mean before truncation, MB.
    pub mean_mb: f64,
    /// Variance before truncation, MB².
    pub variance: f64,
    /// The largest, MB.
    pub max_mb: f64,
}

/// The data that a connection carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// Endless data.
    Endless,
    /// Endless data, for this time.
    For(Duration),
    /// A file.
    File(Bytes),
    /// Pages, each when it is requested.
    Pages(Pages),
    /// Frames, each when it is due.
    Frames(Video),
    /// Audio and two videos.
    Media(Media),
    /// Endless data, in periods.
    Turns(Turns),
}

impl Traffic {
    /// Whether it has pieces (files or frames) whose completion is measured.
    pub(crate) fn has_pieces(&self) -> bool {
        matches!(
            self,
            Traffic::Ftp { .. }
                | Traffic::Files { .. }
                | Traffic::Pages(_)
                | Traffic::Video(_)
                | Traffic::Media(_)
        )
    }

    /// The connections of the user with this number.
    pub(crate) fn user(&self, seed: u64, user: u64) -> User {
        User {
            traffic: self.clone(),
            draws: random::stream(seed, "traffic", user),
            begun: 0,
        }
    }
}

impl Size {
    /// Draws a size; the mean if the variance is zero.
    pub(crate) fn draw_bytes(&self, draws: &mut ChaCha8Rng) -> Bytes {
        let mb = if self.variance > 0.0 {
            self.draw(draws)
        } else {
            self.mean_mb
        };
        Bytes::new((mb * MB).round().max(1.0) as u64)
    }

    fn draw(&self, draws: &mut ChaCha8Rng) -> f64 {
        let variance = libm::log1p(self.variance / (self.mean_mb * self.mean_mb));
        let mean = libm::log(self.mean_mb) - variance / 2.0;
        let sizes = LogNormal::new(mean, variance.sqrt()).expect("its settings were checked");
        loop {
            let size = sizes.sample(draws);
            if size <= self.max_mb {
                return size;
            }
        }
    }
}

/// One user's connections, in order.
#[derive(Clone, Debug)]
pub(crate) struct User {
    traffic: Traffic,
    draws: ChaCha8Rng,
    begun: u64,
}

impl User {
    /// A copy of the user's random stream, for what its connection draws.
    pub(crate) fn draws(&self) -> ChaCha8Rng {
        self.draws.clone()
    }

    /// The next connection: the time from the end of the one before (or the user's start) to its
    /// beginning, and its load.
    pub(crate) fn next(&mut self) -> Option<(Duration, Load)> {
        let first = self.begun == 0;
        self.begun += 1;
        // Drawn whether it is used or not, so that users with and without a first pause have the same files.
        let mut pause = |mean_s: f64, pause_first: bool| {
            let times = Exp::new(1.0 / mean_s).expect("its settings were checked");
            let time = Duration::from_secs_f64(times.sample(&mut self.draws));
            if first && !pause_first {
                Duration::ZERO
            } else {
                time
            }
        };
        match &self.traffic {
            Traffic::Full => first.then_some((Duration::ZERO, Load::Endless)),
            Traffic::Video(video) => first.then_some((Duration::ZERO, Load::Frames(*video))),
            Traffic::Media(media) => first.then_some((Duration::ZERO, Load::Media(*media))),
            Traffic::Pages(pages) => first.then_some((Duration::ZERO, Load::Pages(*pages))),
            Traffic::Turns(turns) => first.then_some((Duration::ZERO, Load::Turns(*turns))),
            Traffic::OnOff {
                off_s,
                size,
                rate_mbps,
                pause_first,
            } => {
                let pause = pause(*off_s, *pause_first);
                let on_s = size.draw(&mut self.draws) * 8.0 / rate_mbps;
                Some((pause, Load::For(Duration::from_secs_f64(on_s))))
            }
            Traffic::Ftp {
                reading_s,
                size,
                pause_first,
            } => {
                let pause = pause(*reading_s, *pause_first);
                let bytes = (size.draw(&mut self.draws) * MB).round().max(1.0);
                Some((pause, Load::File(Bytes::new(bytes as u64))))
            }
            Traffic::Files {
                bytes,
                gap_s,
                count,
            } => {
                let gap = if first { 0.0 } else { *gap_s };
                let load = (Duration::from_secs_f64(gap), Load::File(Bytes::new(*bytes)));
                count
                    .is_none_or(|count| self.begun <= count)
                    .then_some(load)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 20_000;

    fn drawn(text: &str, seed: u64, user: u64) -> Vec<(Duration, Load)> {
        let mut user = Traffic::parse(text).unwrap().user(seed, user);
        std::iter::from_fn(|| user.next()).take(DRAWS).collect()
    }

    fn moments(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
        let count = values.clone().count() as f64;
        let mean = values.clone().sum::<f64>() / count;
        let variance = values.map(|x| (x - mean) * (x - mean)).sum::<f64>() / (count - 1.0);
        (mean, variance)
    }

    /// Within this many percent.
    fn near(value: f64, expected: f64, percent: f64) {
        let off = (value / expected - 1.0).abs() * 100.0;
        assert!(off < percent, "{value} is not {expected} ± {percent} %");
    }

    fn megabytes(load: &Load) -> f64 {
        match load {
            Load::File(bytes) => bytes.as_f64() / MB,
            Load::For(time) => time.as_secs_f64() * 4.0 / 8.0,
            _ => panic!("files and times have a size"),
        }
    }

    #[test]
    fn on_and_off_times_are_those_of_table_3() {
        let drawn = drawn("on-off", 1, 0);
        // A standard error of the mean of an exponential is 0.7 % here; of the sizes 0.3 %.
        let (off, spread) = moments(drawn.iter().map(|(pause, _)| pause.as_secs_f64()));
        near(off, 60.0, 3.0);
        near(spread, 3600.0, 10.0);
        let sizes = drawn.iter().map(|(_, load)| megabytes(load));
        // σ = 0.433, so ln 10 lies 2.33 σ above μ: 1 % is drawn again, which lowers both.
        let (mean, variance) = moments(sizes.clone());
        near(mean, 3.92, 1.5);
        near(variance, 2.66, 6.0);
        let logarithms = sizes.clone().filter(|&mb| mb < 8.0).map(f64::ln);
        assert!(logarithms.clone().count() > DRAWS * 9 / 10);
        assert!(sizes.clone().all(|mb| mb > 0.0 && mb <= 10.0));
        let mut sorted: Vec<f64> = sizes.collect();
        sorted.sort_by(f64::total_cmp);
        // The median of the lognormal is e^1.2925 = 3.642; of its truncated part, the 49.4th
        // percentile.
        near(sorted[DRAWS / 2], 3.62, 1.5);
    }

    #[test]
    fn files_and_reading_times_are_those_of_c_r1002() {
        let drawn = drawn("c.r1002", 1, 0);
        let (reading, _) = moments(drawn.iter().map(|(pause, _)| pause.as_secs_f64()));
        near(reading, 180.0, 3.0);
        let (mean, variance) = moments(drawn.iter().map(|(_, load)| megabytes(load)));
        // Truncation at 5 MB, 2.8 σ above, takes next to nothing.
        near(mean, 1.99, 1.5);
        near(variance.sqrt(), 0.70, 3.0);
        assert!(drawn.iter().all(|(_, load)| megabytes(load) <= 5.0));
    }

    #[test]
    fn draws_depend_on_the_seed_and_the_user_and_on_nothing_else() {
        let some = |text, seed, user| drawn(text, seed, user)[..20].to_vec();
        assert_eq!(some("on-off", 1, 0), some("on-off", 1, 0));
        assert_ne!(some("on-off", 1, 0), some("on-off", 2, 0));
        assert_ne!(some("on-off", 1, 0), some("on-off", 1, 1));
        let at_once = some("on-off:begin=on", 1, 0);
        assert_eq!(at_once[0].0, Duration::ZERO);
        assert_eq!(at_once[0].1, some("on-off", 1, 0)[0].1);
        assert_eq!(at_once[1..], some("on-off", 1, 0)[1..]);
    }

    #[test]
    fn files_of_one_size_come_at_equal_gaps_until_there_are_no_more() {
        let file = Load::File(Bytes::new(1000));
        let gap = Duration::from_millis(500);
        assert_eq!(
            drawn("files:bytes=1000,gap_s=0.5,count=3", 1, 0),
            [(Duration::ZERO, file), (gap, file), (gap, file)]
        );
        assert_eq!(drawn("full", 1, 0), [(Duration::ZERO, Load::Endless)]);
    }
}
