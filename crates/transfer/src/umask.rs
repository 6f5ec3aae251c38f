//! Permissions of transferred files.

use std::sync::OnceLock;

use rustix::fs::Mode;
use rustix::process::umask;

/// Permissions of new files: those that the umask allows of 0666.
///
/// The umask is read once, when the folder is opened: a confined process cannot read it any more.
#[allow(
    clippy::useless_conversion,
    reason = "a mode's type differs between systems"
)]
pub(super) fn permissions() -> u32 {
    static MASK: OnceLock<u32> = OnceLock::new();
    let mask = MASK.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok())
            .unwrap_or_else(|| {
                // Without /proc, the umask can only be read by setting it. Until it is set back, it
                // is the strictest.
                let mask = umask(Mode::RWXG | Mode::RWXO);
                umask(mask);
                mask.bits().into()
            })
    });
    0o666 & !mask
}
