//! Progress bars: one for each file under way and, with several, one for all.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytesize::ByteSize;
use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressStyle};
use tokio::time::Instant;
use verus_transfer::Gauge;

use crate::plain;
use crate::ui::Ui;

/// Number of samples over which a rate is taken.
const SAMPLES: usize = 30;

/// All progress bars.
pub struct Progress {
    bars: Option<MultiProgress>,
    all: ProgressBar,
    files: BTreeMap<usize, File>,
    next: usize,
    total: u64,
    /// Sum of the sizes of completed files, and of their transferred bytes.
    through: u64,
    moved: u64,
    several: bool,
    samples: VecDeque<(Instant, u64)>,
}

struct File {
    bar: ProgressBar,
    size: u64,
    gauge: Arc<Gauge>,
}

impl Progress {
    /// Interval of drawing.
    pub const INTERVAL: Duration = Duration::from_millis(200);

    /// For `count` files of `total` bytes.
    pub fn new(ui: &Ui, total: u64, count: usize) -> Self {
        let bars = ui.progress().then(MultiProgress::new);
        let all = bar(bars.as_ref(), total);
        let several = count > 1;
        if several {
            all.set_prefix("all");
        }
        Progress {
            bars,
            all,
            files: BTreeMap::new(),
            next: 0,
            total,
            through: 0,
            moved: 0,
            several,
            samples: VecDeque::new(),
        }
    }

    /// Adds the bar of a file.
    pub fn begin(&mut self, name: &str, size: u64, gauge: Arc<Gauge>) -> usize {
        let name = plain::line(name);
        let bar = if self.several {
            let bar = bar(self.bars.as_ref(), size);
            bar.set_prefix(name);
            bar
        } else {
            self.all.set_prefix(name);
            ProgressBar::hidden()
        };
        let id = self.next;
        self.next += 1;
        self.files.insert(id, File { bar, size, gauge });
        id
    }

    /// Removes the bar of a completed or failed file.
    pub fn end(&mut self, id: usize) {
        if let Some(file) = self.files.remove(&id) {
            file.bar.finish_and_clear();
            self.through += file.size;
            self.moved += file.gauge.position().saturating_sub(file.gauge.kept());
        }
    }

    /// Draws all bars.
    pub fn draw(&mut self, rtt: Duration) {
        if self.bars.is_none() {
            return;
        }
        let (mut position, mut moved) = (self.through, self.moved);
        for file in self.files.values() {
            let file_position = file.gauge.position();
            file.bar.set_position(file_position);
            position += file_position;
            moved += file_position.saturating_sub(file.gauge.kept());
        }
        let now = Instant::now();
        self.samples.push_back((now, moved));
        if self.samples.len() > SAMPLES {
            self.samples.pop_front();
        }
        let rate = match (self.samples.front(), self.samples.back()) {
            (Some((then, before)), Some((now, after))) if now > then => {
                after.saturating_sub(*before) as f64 / (*now - *then).as_secs_f64()
            }
            _ => 0.0,
        };
        let remaining = self.total.saturating_sub(position);
        let time = if rate > 0.0 && remaining > 0 {
            let seconds = (remaining as f64 / rate).min(1e7);
            format!(
                "   {} left",
                HumanDuration(Duration::from_secs_f64(seconds))
            )
        } else {
            String::new()
        };
        self.all.set_position(position);
        self.all.set_message(format!(
            "{:.1} Mbit/s   RTT {:.1} ms{time}",
            rate * 8e-6,
            rtt.as_secs_f64() * 1e3
        ));
    }

    /// Prints something above the bars.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bars {
            Some(bars) => bars.suspend(print),
            None => print(),
        }
    }

    /// Removes them.
    pub fn clear(&self) {
        if let Some(bars) = &self.bars {
            let _ = bars.clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn bar(bars: Option<&MultiProgress>, size: u64) -> ProgressBar {
    let Some(bars) = bars else {
        return ProgressBar::hidden();
    };
    let bar = bars.add(ProgressBar::new(size));
    let shown = ByteSize::b(size).display().si().to_string();
    let template = format!("{{prefix:20!}} [{{bar:30}}] {{percent:>3}} % of {shown}   {{msg}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
