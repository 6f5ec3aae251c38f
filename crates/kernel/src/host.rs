//! Whether this machine can load a congestion control.

use std::fs;
use std::path::Path;

use rustix::mount::{MountFlags, mount};

use crate::Error;

/// Where the BPF file system belongs.
const BPF: &str = "/sys/fs/bpf";
/// What `statfs` says of one (BPF_FS_MAGIC).
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
/// What is missing.
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
/// If it cannot be mounted.
pub(crate) fn pins() -> Result<(), Error> {
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
    match fs::create_dir(PINS) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(refused(error.to_string()))
        }
        _ => Ok(()),
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
            let told = check_version(release)
                .expect_err("it is too old")
                .to_string();
            assert_eq!(
                told,
                format!(
                    "this kernel is {release}: a congestion control by eBPF takes Linux 6.10 or later (before, the kernel \
                     calls cong_control with other arguments)"
                )
            );
        }
    }
}
