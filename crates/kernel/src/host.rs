//! Whether this machine can load a congestion control.

use std::fs::{self, DirBuilder, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use rustix::mount::{MountFlags, mount};

use crate::Error;

/// Where the BPF file system belongs.
const BPF: &str = "/sys/fs/bpf";
/// The type that `statfs` reports for it (BPF_FS_MAGIC).
const BPF_MAGIC: u32 = 0xcafe_4a11;
/// Where pins are, in it.
pub(crate) const PINS: &str = "/sys/fs/bpf/verus";
/// The kernel's own types.
const TYPES: &str = "/sys/kernel/btf/vmlinux";
/// `cong_control` has had four arguments since, of which the fourth is the sample; links of struct_ops, which outlive the
/// loader, are older (6.4).
const LEAST: (u32, u32) = (6, 10);
const LEAST_TEXT: &str = "6.10";

/// Whether it can, by all that is known before it is tried.
///
/// # Errors
/// If something is missing.
pub(crate) fn check() -> Result<(), Error> {
    let uname = rustix::system::uname();
    check_version(&uname.release().to_string_lossy())?;
    if !rustix::process::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    if !Path::new(TYPES).exists() {
        return Err(Error::NoTypes);
    }
    Ok(())
}

fn check_version(release: &str) -> Result<(), Error> {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|digits| digits.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < LEAST {
        return Err(Error::OldKernel {
            running: release.to_owned(),
            needed: LEAST_TEXT,
        });
    }
    Ok(())
}

/// Mounts the BPF file system if it is not, and makes the folder of pins.
///
/// # Errors
/// If it cannot be mounted, or others may change the folder of pins.
pub(crate) fn make_pins() -> Result<(), Error> {
    let refused = |why: String| Error::NoFileSystem {
        at: BPF.into(),
        why,
    };
    let is_mounted = rustix::fs::statfs(BPF).is_ok_and(|about| about.f_type as u32 == BPF_MAGIC);
    if !is_mounted {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("bpf", BPF, "bpf", flags, Some(c"mode=700"))
            .map_err(|error| refused(error.to_string()))?;
    }
    match DirBuilder::new().mode(0o700).create(PINS) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(refused(error.to_string())),
        _ => are_pins_ours().map(drop),
    }
}

/// Whether there is a folder of pins that only root may change. By default the kernel mounts the
/// BPF file system for everybody (mode 1777), so that any user may make a folder or a link of that
/// name first.
///
/// # Errors
/// If others may change it.
pub(crate) fn are_pins_ours() -> Result<bool, Error> {
    for (at, others_may_add) in [(BPF, true), (PINS, false)] {
        match fs::symlink_metadata(at) {
            Ok(found) => {
                if let Some(why) = unsafe_folder(&found, others_may_add) {
                    return Err(Error::Unsafe { at: at.into(), why });
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => {
                return Err(Error::Unsafe {
                    at: at.into(),
                    why: format!("cannot be looked at ({error})"),
                });
            }
        }
    }
    Ok(true)
}

/// Why a folder is not root's alone. With `others_may_add`, others may add to it if they cannot
/// rename root's files there.
fn unsafe_folder(found: &Metadata, others_may_add: bool) -> Option<String> {
    /// In such a folder, only the owner of a file renames or removes it.
    const STICKY: u32 = 0o1000;
    let mode = found.mode() & 0o7777;
    if !found.is_dir() {
        Some("is not a folder".to_owned())
    } else if found.uid() != 0 {
        Some(format!("belongs to user {}", found.uid()))
    } else if mode & 0o022 != 0 && !(others_may_add && mode & STICKY != 0) {
        Some(format!("may be changed by others (mode {mode:o})"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_are_told_which_one_is_needed_and_why() {
        for release in ["6.10.0", "6.12.9-amd64", "7.0", "10.1-rc1"] {
            assert!(check_version(release).is_ok(), "{release}");
        }
        for release in ["6.9.12", "5.15.0-101-generic", "6", ""] {
            let error = check_version(release)
                .expect_err("it is too old")
                .to_string();
            assert_eq!(
                error,
                format!(
                    "this kernel is {release}: a congestion control by eBPF takes Linux 6.10 or later (before, the kernel \
                     calls cong_control with other arguments)"
                )
            );
        }
    }
}
