//! Traffic as a text: `KIND:key=value,…`, its kinds, and the keys of each.

use verus_core::{Bytes, Duration};
use verus_words::range::Within;
use verus_words::spec::{
    Given, Kind, Problem, REQUIRED, Row, Setting, Shown, SpecError, Takes, Words, field, shown,
    words,
};

use super::{MB, Pages, Size, Traffic, Turns};
use crate::frames::Video;
use crate::media::Media;

/// The settings of the three kinds that pause.
struct Settings {
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

impl Settings {
    const ON_OFF: Settings = Settings {
        pause_s: 60.0,
        mean_mb: 4.0,
        spread: 3.3,
        max_mb: 10.0,
        rate_mbps: 4.0,
        pause_first: true,
    };
    const FTP: Settings = Settings {
        pause_s: 180.0,
        mean_mb: 2.0,
        spread: 0.722,
        max_mb: 5.0,
        ..Settings::ON_OFF
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
    spread: f64,
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
const SHARE: Within = Within {
    words: "a number between 0 and 1",
    valid: |value| (0.0..=1.0).contains(&value),
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
        spread: 0.0,
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
            || Takes::Number("bytes"),
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
            || Takes::Number("bytes"),
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
            || Takes::Number("bytes"),
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
            || Takes::Number("bytes"),
            "size of the first frame of a group",
            |c| c.key_bytes.to_string(),
            |c, setting| {
                c.key_bytes = bytes(setting)?;
                Ok(())
            },
        ),
        field!(group).whole("frames", "from one key frame to the next"),
        field!(fps).within("1/s", "frames a second", FPS),
        field!(spread).within(
            "fraction",
            "how much larger or smaller a frame may be (uniform)",
            SHARE,
        ),
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
            spread: self.spread,
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
        keys: || shown(Settings::ON_OFF_ROWS, &Settings::ON_OFF),
        read: |given| {
            let settings = Settings::ON_OFF.read(Settings::ON_OFF_ROWS, given)?;
            Ok(Traffic::OnOff {
                off_s: settings.pause_s,
                size: settings.size(settings.spread),
                rate_mbps: settings.rate_mbps,
                pause_first: settings.pause_first,
            })
        },
    },
    Kind {
        name: "c.r1002",
        summary: "files, each read when all of it has come; a connection for each (3GPP2 C.R1002)",
        example: "c.r1002:reading_s=180,mean_mb=2,sd_mb=0.722,max_mb=5",
        keys: || shown(Settings::FTP_ROWS, &Settings::FTP),
        read: |given| {
            let settings = Settings::FTP.read(Settings::FTP_ROWS, given)?;
            Ok(Traffic::Ftp {
                reading_s: settings.pause_s,
                size: settings.size(settings.spread * settings.spread),
                pause_first: settings.pause_first,
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

impl Traffic {
    /// The traffic that `text` describes.
    ///
    /// # Errors
    /// If a kind, key or value is unknown or out of range; the message names it and lists the valid ones.
    pub fn parse(text: &str) -> Result<Traffic, SpecError> {
        Kind::parse("traffic", KINDS, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
