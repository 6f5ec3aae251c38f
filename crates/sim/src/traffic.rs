//! What a user has to send, and when: `full`, `turns`, `on-off`, `c.r1002`, `files`, `pages`, `video`, `media` or `cbr`, with settings
//! as `KIND:key=value`.
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
//! A user is a sequence of connections, one at a time, and each begins anew: an algorithm without memory, a receiver
//! without data. All that is drawn comes from a stream of the run's seed and the user alone, so two schemes meet the
//! same sizes and pauses, and `on-off`, which the network cannot delay, the same instants.
//!
//! **Sizes** are truncated lognormal. A mean m and a standard deviation s give σ² = ln(1 + s²/m²) and μ = ln m − σ²/2;
//! what exceeds the maximum is drawn again, as 3GPP and 3GPP2 evaluations do (capping instead would pile up files of
//! just that size), so the mean of what is sent is a little below m. A megabyte is 10⁶ bytes.
//!
//! `on-off` is Table 3 of the model-driven paper, taken literally: mean 4 MB and "variance 3.3" in MB², which makes σ²
//! = ln(1 + 3.3/16) = 0.1875 and μ = 1.2925; its §6.6 turns the size into a time at 4 Mbit/s. `c.r1002` is the FTP
//! model of 3GPP2 C.R1002: mean 2 MB, standard deviation 0.722 MB, at most 5 MB, reading for 180 s. Neither says how a
//! user begins. Here both begin with a pause, since independent users do not all begin to send at the same moment.

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp, LogNormal};
use verus_core::range::Within;
use verus_core::spec::{
    Given, Kind, Problem, REQUIRED, Row, Setting, Shown, Words, field, shown, words,
};
use verus_core::{Bytes, Duration, random};

use crate::frames::Video;
use crate::media::Media;

const MB: f64 = 1e6;

/// What the three kinds that pause are made of, as a text gives it.
struct Asked {
    pause_s: f64,
    mean_mb: f64,
    /// Spread of the sizes: in MB or MB², depending on the kind.
    spread: f64,
    max_mb: f64,
    rate_mbps: f64,
    pause_first: bool,
}

/// With less than a millisecond a user would do nothing but switch; the upper limit is that of a run's duration.
const SECONDS: Within = Within {
    words: "a number of seconds between 0.001 and 1e6",
    valid: |value| (0.001..=1e6).contains(&value),
};
const GAP: Within = Within {
    words: "a number of seconds between 0 and 1e6",
    valid: |value| (0.0..=1e6).contains(&value),
};
const RATE: Within = Within {
    words: "a number of Mbit/s between 0.001 and 1e6",
    valid: |value| (0.001..=1e6).contains(&value),
};
const SIZE: Within = Within {
    words: "a number of MB between 1e-6 and 1e6",
    valid: |value| (1e-6..=1e6).contains(&value),
};
const DEVIATION: Within = Within {
    words: "a number of MB between 0 and 1e6",
    valid: |value| (0.0..=1e6).contains(&value),
};
const VARIANCE: Within = Within {
    words: "a number of MB² between 0 and 1e12",
    valid: |value| (0.0..=1e12).contains(&value),
};

/// Whether a user begins with a pause.
const BEGIN: Words<bool> = &[("off", true), ("on", false)];

impl Asked {
    const ON_OFF: Asked = Asked {
        pause_s: 60.0,
        mean_mb: 4.0,
        spread: 3.3,
        max_mb: 10.0,
        rate_mbps: 4.0,
        pause_first: true,
    };
    const FTP: Asked = Asked {
        pause_s: 180.0,
        mean_mb: 2.0,
        spread: 0.722,
        max_mb: 5.0,
        ..Asked::ON_OFF
    };

    const fn pause(key: &'static str, meaning: &'static str) -> Row<Self> {
        field!(pause_s, key).within("s", meaning, SECONDS)
    }

    const MEAN: Row<Self> =
        field!(mean_mb).within("MB", "mean size (lognormal, before truncation)", SIZE);
    const MAX: Row<Self> =
        field!(max_mb).within("MB", "largest size; larger ones are drawn again", SIZE);
    const FIRST: Row<Self> = words!(
        pause_first,
        "begin",
        BEGIN,
        "what comes first, a pause or a file"
    );

    const ON_OFF_ROWS: &'static [Row<Self>] = &[
        Self::pause("off_s", "mean time off (exponential)"),
        Self::MEAN,
        field!(spread, "variance").within("MB²", "variance of the size", VARIANCE),
        Self::MAX,
        field!(rate_mbps).within("Mbit/s", "rate that turns a size into a time on", RATE),
        Self::FIRST,
    ];
    const FTP_ROWS: &'static [Row<Self>] = &[
        Self::pause("reading_s", "mean reading time (exponential)"),
        Self::MEAN,
        field!(spread, "sd_mb").within("MB", "standard deviation of the size", DEVIATION),
        Self::MAX,
        Self::FIRST,
    ];

    fn read(mut self, rows: &[Row<Self>], given: &Given<'_>) -> Result<Self, Problem> {
        given.apply(rows, &mut self)?;
        // At least half of all draws are below the mean, so drawing again comes to an end.
        if self.max_mb < self.mean_mb {
            return Err(Problem::bad("max_mb", "at least mean_mb", self.max_mb));
        }
        Ok(self)
    }

    fn size(&self, variance: f64) -> Size {
        Size {
            mean_mb: self.mean_mb,
            variance,
            max_mb: self.max_mb,
        }
    }
}

/// Pieces of data one after another, as a text gives them: files, pages, frames.
#[derive(Clone)]
struct Pieces {
    bytes: Option<u64>,
    count: Option<u64>,
    /// Time from the end of one file to the beginning of the next, or mean thinking time after a page.
    gap_s: f64,
    request_bytes: u64,
    sd_bytes: f64,
    max_bytes: Option<u64>,
    key_bytes: u64,
    group: u64,
    fps: f64,
    rate_mbps: f64,
    deadline_ms: f64,
    on_s: f64,
    audio_count: Option<u64>,
    unmeasured_s: f64,
}

/// The largest piece: 10¹⁵ bytes, so that no sum of them overflows in any run.
const LARGEST: u64 = 1_000_000_000_000_000;
const REQUEST_BYTES: std::ops::RangeInclusive<u64> = 1..=65_535;

/// The upper limit is a frame each microsecond, as fine as the clocks of media; one each quarter of an hour is not a
/// video any more.
const FPS: Within = Within {
    words: "a number of frames a second between 0.001 and 1e6",
    valid: |value| (0.001..=1e6).contains(&value),
};
const DEADLINE: Within = Within {
    words: "a number of ms between 0.001 and 1e9",
    valid: |value| (0.001..=1e9).contains(&value),
};
const SPREAD: Within = Within {
    words: "a number of bytes between 0 and 1e15",
    valid: |value| (0.0..=1e15).contains(&value),
};

impl Pieces {
    /// The live source is the compressed stream of draft-huitema-ccwg-c4-test, 1.2 Mbit/s; a frame that is a quarter of
    /// a second late is of no use there. A request is as long as in picoquic's transfers.
    const NONE: Pieces = Pieces {
        bytes: None,
        count: None,
        gap_s: 1.0,
        request_bytes: 397,
        sd_bytes: 0.0,
        max_bytes: None,
        key_bytes: 37_500,
        group: 30,
        fps: 30.0,
        rate_mbps: 1.0,
        deadline_ms: 250.0,
        on_s: 10.0,
        audio_count: None,
        unmeasured_s: 0.0,
    };
    const FRAMES: Pieces = Pieces {
        bytes: Some(3_750),
        ..Pieces::NONE
    };
    const EVEN: Pieces = Pieces {
        bytes: Some(1_200),
        ..Pieces::NONE
    };

    const fn size(key: &'static str, meaning: &'static str) -> Row<Self> {
        Row::other(
            key,
            || "bytes".to_owned(),
            meaning,
            |c| {
                c.bytes
                    .map_or(REQUIRED.to_owned(), |bytes| bytes.to_string())
            },
            |c, setting| {
                c.bytes = Some(bytes(setting)?);
                Ok(())
            },
        )
    }
    const fn count(unit: &'static str) -> Row<Self> {
        field!(count).whole_or("no end", unit, "how many")
    }
    const fn gap(key: &'static str, meaning: &'static str) -> Row<Self> {
        field!(gap_s, key).within("s", meaning, GAP)
    }
    const DEADLINE: Row<Self> =
        field!(deadline_ms).within("ms", "a frame that takes longer is late", DEADLINE);

    const FILES_ROWS: &'static [Row<Self>] = &[
        Self::size("bytes", "size of a file"),
        Self::gap("gap_s", "from the end of one to the beginning of the next"),
        Self::count("files"),
    ];
    const PAGES_ROWS: &'static [Row<Self>] = &[
        Self::size(
            "bytes",
            "size of a page; its mean where sd_bytes is above 0",
        ),
        field!(sd_bytes).within(
            "bytes",
            "standard deviation of the size (lognormal, before truncation)",
            SPREAD,
        ),
        Row::other(
            "max_bytes",
            || "bytes".to_owned(),
            "largest size; larger ones are drawn again",
            |c| {
                c.max_bytes
                    .map_or("10 times bytes".to_owned(), |bytes| bytes.to_string())
            },
            |c, setting| {
                c.max_bytes = Some(bytes(setting)?);
                Ok(())
            },
        ),
        Row::other(
            "request_bytes",
            || "bytes".to_owned(),
            "size of a request, as the way back accounts it",
            |c| c.request_bytes.to_string(),
            |c, setting| {
                let valid = setting.whole().ok().filter(|v| REQUEST_BYTES.contains(v));
                c.request_bytes =
                    valid.ok_or_else(|| setting.bad("a whole number between 1 and 65535"))?;
                Ok(())
            },
        ),
        Self::gap(
            "think_s",
            "mean time from a page to the next request (exponential)",
        ),
        Self::count("pages"),
    ];
    const VIDEO_ROWS: &'static [Row<Self>] = &[
        Self::size("bytes", "size of a frame"),
        Row::other(
            "key_bytes",
            || "bytes".to_owned(),
            "size of the first frame of a group",
            |c| c.key_bytes.to_string(),
            |c, setting| {
                c.key_bytes = bytes(setting)?;
                Ok(())
            },
        ),
        field!(group).whole("frames", "from one key frame to the next"),
        field!(fps).within("1/s", "frames a second", FPS),
        Self::DEADLINE,
        Self::count("frames"),
    ];
    const MEDIA_ROWS: &'static [Row<Self>] = &[
        field!(audio_count).whole_or("no end", "frames", "how many frames of audio"),
        Self::count("frames of each video"),
        field!(deadline_ms).within(
            "ms",
            "when the better video has waited for so long, the rest of its group is given up",
            DEADLINE,
        ),
        field!(unmeasured_s).within(
            "s",
            "frames of the first so much time are sent and not measured",
            GAP,
        ),
    ];
    const EVEN_ROWS: &'static [Row<Self>] = &[
        field!(rate_mbps).within("Mbit/s", "rate of the data", RATE),
        Self::size("bytes", "size of each piece"),
        Self::DEADLINE,
        Self::count("pieces"),
    ];
    const TURNS_ROWS: &'static [Row<Self>] = &[
        field!(on_s).within("s", "how long there is something to send", SECONDS),
        field!(gap_s, "off_s").within("s", "how long there is nothing then", SECONDS),
        field!(count).whole_or("no end", "pauses", "how many pauses"),
    ];

    fn read(&self, rows: &[Row<Self>], given: &Given<'_>) -> Result<Self, Problem> {
        let mut pieces = self.clone();
        given.apply(rows, &mut pieces)?;
        Ok(pieces)
    }

    /// The size, for kinds that need one.
    fn needed_bytes(&self, given: &Given<'_>) -> Result<u64, Problem> {
        let missing = || Problem::Together(format!("`{}` needs bytes=N", given.name));
        self.bytes.ok_or_else(missing)
    }

    fn pages(&self, given: &Given<'_>) -> Result<Pages, Problem> {
        let bytes = self.needed_bytes(given)?;
        let max = self
            .max_bytes
            .unwrap_or(bytes.saturating_mul(10).min(LARGEST));
        // At least half of all draws are below the mean, so drawing again comes to an end.
        if max < bytes {
            return Err(Problem::bad("max_bytes", "at least bytes", max));
        }
        let mb = |bytes: f64| bytes / MB;
        Ok(Pages {
            request: Bytes::new(self.request_bytes),
            size: Size {
                mean_mb: mb(bytes as f64),
                variance: mb(self.sd_bytes) * mb(self.sd_bytes),
                max_mb: mb(max as f64),
            },
            think_s: self.gap_s,
            count: self.count,
        })
    }

    fn frames(&self, key: u64, bytes: u64, group: u64, fps: f64) -> Video {
        Video {
            key: Bytes::new(key),
            frame: Bytes::new(bytes),
            group,
            fps,
            deadline: Duration::from_millis_f64(self.deadline_ms),
            count: self.count,
        }
    }
}

/// A size in bytes.
fn bytes(setting: &Setting<'_>) -> Result<u64, Problem> {
    let valid = setting.whole().ok().filter(|bytes| *bytes <= LARGEST);
    valid.ok_or_else(|| setting.bad("a whole number between 1 and 1000000000000000"))
}

const KINDS: &[Kind<Traffic>] = &[
    Kind {
        name: "full",
        summary: "always something to send",
        example: "full",
        keys: Vec::new,
        read: |given| {
            given.apply(&[], &mut ())?;
            Ok(Traffic::Full)
        },
    },
    Kind {
        name: "on-off",
        summary: "on for the time that a file would take, then off; a connection for each (model paper, Table 3)",
        example: "on-off:off_s=60,mean_mb=4,variance=3.3,max_mb=10,rate_mbps=4",
        keys: || shown(Asked::ON_OFF_ROWS, &Asked::ON_OFF),
        read: |given| {
            let asked = Asked::ON_OFF.read(Asked::ON_OFF_ROWS, given)?;
            Ok(Traffic::OnOff {
                off_s: asked.pause_s,
                size: asked.size(asked.spread),
                rate_mbps: asked.rate_mbps,
                pause_first: asked.pause_first,
            })
        },
    },
    Kind {
        name: "c.r1002",
        summary: "files, each read when all of it has come; a connection for each (3GPP2 C.R1002)",
        example: "c.r1002:reading_s=180,mean_mb=2,sd_mb=0.722,max_mb=5",
        keys: || shown(Asked::FTP_ROWS, &Asked::FTP),
        read: |given| {
            let asked = Asked::FTP.read(Asked::FTP_ROWS, given)?;
            Ok(Traffic::Ftp {
                reading_s: asked.pause_s,
                size: asked.size(asked.spread * asked.spread),
                pause_first: asked.pause_first,
            })
        },
    },
    Kind {
        name: "files",
        summary: "files of one size, one after another; a connection for each",
        example: "files:bytes=100000,gap_s=1",
        keys: || shown(Pieces::FILES_ROWS, &Pieces::NONE),
        read: |given| {
            let files = Pieces::NONE.read(Pieces::FILES_ROWS, given)?;
            Ok(Traffic::Files {
                bytes: files.needed_bytes(given)?,
                gap_s: files.gap_s,
                count: files.count,
            })
        },
    },
    Kind {
        name: "pages",
        summary: "requests over the way back, and a page for each when it has come; one connection",
        example: "pages:bytes=500000,sd_bytes=0,request_bytes=397,think_s=1",
        keys: || shown(Pieces::PAGES_ROWS, &Pieces::NONE),
        read: |given| {
            let pages = Pieces::NONE.read(Pieces::PAGES_ROWS, given)?;
            Ok(Traffic::Pages(pages.pages(given)?))
        },
    },
    Kind {
        name: "video",
        summary: "frames at a fixed rate, whether there is room for them or not; one connection",
        example: "video:bytes=3750,key_bytes=37500,group=30,fps=30,deadline_ms=250",
        keys: || shown(Pieces::VIDEO_ROWS, &Pieces::FRAMES),
        read: |given| {
            let live = Pieces::FRAMES.read(Pieces::VIDEO_ROWS, given)?;
            let bytes = live.needed_bytes(given)?;
            Ok(Traffic::Video(live.frames(
                live.key_bytes,
                bytes,
                live.group,
                live.fps,
            )))
        },
    },
    Kind {
        name: "media",
        summary: "audio and video in two qualities, what matters most first; one connection (draft-huitema-ccwg-c4-test)",
        example: "media:deadline_ms=250",
        keys: || shown(Pieces::MEDIA_ROWS, &Pieces::NONE),
        read: |given| {
            let media = Pieces::NONE.read(Pieces::MEDIA_ROWS, given)?;
            Ok(Traffic::Media(Media {
                audio_frames: media.audio_count,
                frames: media.count,
                deadline: Duration::from_millis_f64(media.deadline_ms),
                unmeasured: Duration::from_secs_f64(media.unmeasured_s),
            }))
        },
    },
    Kind {
        name: "cbr",
        summary: "pieces of one size at a constant bit rate, whether there is room for them or not; one connection",
        example: "cbr:rate_mbps=1,bytes=1200,deadline_ms=250",
        keys: || shown(Pieces::EVEN_ROWS, &Pieces::EVEN),
        read: |given| {
            let even = Pieces::EVEN.read(Pieces::EVEN_ROWS, given)?;
            let bytes = even.needed_bytes(given)?;
            let fps = even.rate_mbps * MB / (8.0 * bytes as f64);
            if !(FPS.valid)(fps) {
                let pace = "between 0.001 and 1e6 pieces a second";
                return Err(Problem::bad("rate_mbps", pace, even.rate_mbps));
            }
            Ok(Traffic::Video(even.frames(bytes, bytes, 1, fps)))
        },
    },
    Kind {
        name: "turns",
        summary: "always something to send, and then nothing, by the clock; one connection",
        example: "turns:on_s=10,off_s=1",
        keys: || shown(Pieces::TURNS_ROWS, &Pieces::NONE),
        read: |given| {
            let turns = Pieces::NONE.read(Pieces::TURNS_ROWS, given)?;
            Ok(Traffic::Turns(Turns {
                on: Duration::from_secs_f64(turns.on_s),
                off: Duration::from_secs_f64(turns.gap_s),
                pauses: turns.count,
            }))
        },
    },
];

/// Every kind of traffic with its keys, units and defaults.
pub fn catalogue() -> Vec<Shown> {
    Kind::list(KINDS)
}

/// Why a text does not describe traffic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("traffic `{text}`: {problem}")]
pub struct TrafficError {
    /// The whole text, as given.
    pub text: String,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What a user has to send.
#[derive(Clone, Debug, PartialEq)]
pub enum Traffic {
    /// Always something to send.
    Full,
    /// On and off by the clock.
    OnOff {
        /// Mean time off, s.
        off_s: f64,
        /// What the time on is made of.
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

/// What a connection is to carry.
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
    /// The traffic that `text` describes.
    ///
    /// # Errors
    /// If a kind, key or value is unknown or out of range; the message names it and lists the valid ones.
    pub fn parse(text: &str) -> Result<Traffic, TrafficError> {
        Kind::parse(KINDS, text).map_err(|problem| TrafficError {
            text: text.to_owned(),
            problem,
        })
    }

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

    /// The next connection: the time from the end of the one before (or the user's start) to its beginning, and what it
    /// carries.
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
        // The median of the lognormal is e^1.2925 = 3.642; of what is left of it, its 49.4th percentile.
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
        let half = Duration::from_millis(500);
        assert_eq!(
            drawn("files:bytes=1000,gap_s=0.5,count=3", 1, 0),
            [(Duration::ZERO, file), (half, file), (half, file)]
        );
        assert_eq!(drawn("full", 1, 0), [(Duration::ZERO, Load::Endless)]);
    }

    #[test]
    fn every_example_is_understood_and_states_the_defaults() {
        for kind in catalogue() {
            let example = Traffic::parse(kind.example).unwrap();
            if !["files", "pages"].contains(&kind.name) {
                assert_eq!(Traffic::parse(kind.name).unwrap(), example);
            }
        }
    }

    #[test]
    fn each_fault_is_named() {
        let cases = [
            (
                "",
                "unknown kind ``; known are full, on-off, c.r1002, files, pages, video, media, cbr, turns",
            ),
            ("bursts", "unknown kind `bursts`"),
            (
                "full:bytes=1",
                "`full` has no key `bytes`; its keys are none",
            ),
            ("on-off:sd_mb=1", "`on-off` has no key `sd_mb`"),
            (
                "on-off:off_s=0",
                "off_s must be a number of seconds between 0.001 and 1e6, not `0`",
            ),
            ("on-off:off_s=nan", "off_s must be a number of seconds"),
            (
                "on-off:mean_mb=20",
                "max_mb must be at least mean_mb, not `10`",
            ),
            ("on-off:variance=-1", "variance must be"),
            (
                "on-off:begin=now",
                "begin must be one of off, on, not `now`",
            ),
            (
                "c.r1002:reading_s",
                "each parameter must be key=value, not `reading_s`",
            ),
            (
                "c.r1002:max_mb=1,max_mb=2",
                "max_mb must be given once, not `2`",
            ),
            ("files", "`files` needs bytes=N"),
            ("pages:think_s=1", "`pages` needs bytes=N"),
            (
                "pages:bytes=9,max_bytes=8",
                "max_bytes must be at least bytes, not `8`",
            ),
            (
                "pages:bytes=9,request_bytes=65536",
                "request_bytes must be a whole number between 1 and 65535, not `65536`",
            ),
            (
                "cbr:rate_mbps=1e6,bytes=1",
                "rate_mbps must be between 0.001 and 1e6 pieces a second, not `1000000`",
            ),
            (
                "turns:on_s=0",
                "on_s must be a number of seconds between 0.001 and 1e6, not `0`",
            ),
            (
                "video:bytes=1000000000000001",
                "bytes must be a whole number between 1 and 1000000000000000, not `1000000000000001`",
            ),
            (
                "files:bytes=0",
                "bytes must be a whole number between 1 and 1000000000000000, not `0`",
            ),
            ("files:bytes=1,gap_s=-1", "gap_s must be"),
            (
                "video:fps=0",
                "fps must be a number of frames a second between 0.001 and 1e6, not `0`",
            ),
            (
                "video:group=0",
                "group must be a whole number above 0, not `0`",
            ),
            ("video:deadline_ms=nan", "deadline_ms must be"),
        ];
        for (text, words) in cases {
            let error = Traffic::parse(text).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("traffic `{text}`: ")) && error.contains(words),
                "{error}"
            );
        }
    }
}
