//! Confines the process to the needs of a server, where the kernel supports it: Landlock (Linux
//! 5.13), which needs no rights and cannot be undone.
//!
//! It holds for the calling thread and those that it starts, so it must be done before the runtime
//! starts threads.

use std::fmt;
use std::os::fd::AsFd;

use serde_json::{Value, json};

use crate::failure::Failure;

/// How the process is confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confined {
    /// By this version of Landlock.
    Landlock(i32),
    /// Not confined: the kernel has no Landlock, or it is switched off.
    NotOffered,
}

impl Confined {
    /// For programs: the version, or null.
    pub fn json(self) -> Value {
        match self {
            Confined::Landlock(abi) => json!(abi),
            Confined::NotOffered => Value::Null,
        }
    }
}

impl fmt::Display for Confined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Confined::Landlock(abi) => write!(
                f,
                "by Landlock (ABI {abi}) to this folder and the list of tokens"
            ),
            Confined::NotOffered => f.write_str("no: this system offers no Landlock"),
        }
    }
}

/// Confines the process. From now on, files can be opened beneath `folder` only, and read beneath
/// `home`. No program can be run, and no connection made over TCP or to a socket outside. Open
/// descriptors stay usable.
///
/// # Errors
/// If the kernel offers Landlock and refuses this.
#[cfg(target_os = "linux")]
pub fn confine(folder: impl AsFd, writable: bool, home: impl AsFd) -> Result<Confined, Failure> {
    use landlock::{
        ABI, Access, AccessFs, AccessNet, LandlockStatus, PathBeneath, Ruleset, RulesetAttr,
        RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
    };
    /// The newest version that we know. The kernel enforces the part that it supports.
    const NEWEST: ABI = ABI::V9;

    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads != 1 && !cfg!(test) {
        return Err(Failure::run(format_args!(
            "cannot confine the server: {threads} threads run already"
        )));
    }
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    // `Refer`: from one folder beneath to another. The server never makes devices, links or
    // sockets.
    let write = AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer;
    let served = if writable { read | write } else { read };
    let restrict = || -> Result<landlock::RestrictionStatus, RulesetError> {
        Ruleset::default()
            .handle_access(AccessFs::from_all(NEWEST))?
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?
            .create()?
            .add_rule(PathBeneath::new(folder, served))?
            .add_rule(PathBeneath::new(home, read))?
            .restrict_self()
    };
    let status = restrict()
        .map_err(|error| Failure::run(format_args!("cannot confine the server: {error}")))?;
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) => Confined::NotOffered,
        (
            _,
            LandlockStatus::Available {
                effective_abi,
                kernel_abi,
            },
        ) => Confined::Landlock(kernel_abi.unwrap_or(effective_abi as i32)),
        _ => Confined::NotOffered,
    })
}

/// Landlock exists only on Linux.
#[cfg(not(target_os = "linux"))]
pub fn confine(_: impl AsFd, _: bool, _: impl AsFd) -> Result<Confined, Failure> {
    Ok(Confined::NotOffered)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::env;
    use std::fs::{self, File};
    use std::io::ErrorKind;
    use std::net::TcpListener;
    use std::path::PathBuf;
    use std::process::Command;

    /// Names the folder of a test to the confined process.
    const SCENE: &str = "VERUS_TEST_SANDBOX";

    /// Printed by the confined process after all attempts.
    const TRIED: &str = "everything was tried";

    /// Runs the next test in a separate process, `writable` or not. Panics with its output if it
    /// fails.
    fn child(writable: bool) {
        let scene = tempfile::tempdir().expect("a folder");
        for name in ["served", "served/below", "home", "outside"] {
            fs::create_dir(scene.path().join(name)).expect("a folder");
            fs::write(scene.path().join(name).join("file"), "text").expect("a file");
        }
        let output = Command::new(env::current_exe().expect("this program"))
            .args([
                "--exact",
                "serve::sandbox::tests::inside",
                "--ignored",
                "--nocapture",
            ])
            .env(SCENE, scene.path())
            .env("WRITABLE", if writable { "yes" } else { "no" })
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains(TRIED),
            "{output:?}"
        );
        assert_eq!(
            fs::read_to_string(scene.path().join("outside/file")).expect("there"),
            "text"
        );
    }

    #[test]
    fn a_confined_process_opens_nothing_outside_of_the_folder() {
        child(true);
    }

    #[test]
    fn a_server_that_takes_no_files_cannot_even_by_mistake() {
        child(false);
    }

    /// The confined process of the tests above, rather than a separate test. Without Landlock in
    /// the kernel it fails, and they do too: nothing was shown.
    #[test]
    #[ignore = "run by the tests above, in a process of its own"]
    fn inside() {
        let scene = PathBuf::from(env::var_os(SCENE).expect("named by the test"));
        let writable = env::var("WRITABLE").is_ok_and(|text| text == "yes");
        let open = |name: &str| File::open(scene.join(name)).expect("not yet confined");
        let (served, home) = (open("served"), open("home"));
        let confined = confine(&served, writable, &home).expect("the kernel agrees");
        assert!(
            matches!(confined, Confined::Landlock(1..)),
            "this kernel offers no Landlock, so nothing could be shown here"
        );
        let denied = |error: std::io::Error| error.kind() == ErrorKind::PermissionDenied;
        // Threads that are started now are confined as well.
        let path = scene.join("outside/file");
        let elsewhere = std::thread::spawn(move || File::open(path));
        let elsewhere = elsewhere.join().expect("it ends");
        assert!(elsewhere.is_err_and(denied), "by another thread");
        for outside in ["outside/file", "served/../outside/file"] {
            assert!(
                fs::read(scene.join(outside)).is_err_and(denied),
                "{outside}"
            );
            assert!(
                fs::write(scene.join(outside), "x").is_err_and(denied),
                "{outside}"
            );
            assert!(
                fs::remove_file(scene.join(outside)).is_err_and(denied),
                "{outside}"
            );
        }
        assert!(fs::read("/etc/passwd").is_err_and(denied));
        assert!(fs::read_dir("/").is_err_and(denied));
        assert!(fs::write(scene.join("outside/new"), "x").is_err_and(denied));
        assert!(Command::new("/bin/true").status().is_err_and(denied));
        let moved = fs::rename(scene.join("served/file"), scene.join("outside/moved"));
        assert!(moved.is_err(), "a file was moved out");
        if matches!(confined, Confined::Landlock(4..)) {
            assert!(TcpListener::bind("127.0.0.1:0").is_err_and(denied));
        }
        // The list of tokens is read and not written.
        assert_eq!(
            fs::read_to_string(scene.join("home/file")).expect("read"),
            "text"
        );
        assert!(fs::write(scene.join("home/file"), "x").is_err_and(denied));
        assert!(fs::write(scene.join("home/new"), "x").is_err_and(denied));
        // The served files stay usable.
        assert_eq!(
            fs::read_to_string(scene.join("served/file")).expect("read"),
            "text"
        );
        let put = fs::write(scene.join("served/below/.part"), "new").and_then(|()| {
            fs::rename(
                scene.join("served/below/.part"),
                scene.join("served/below/file"),
            )?;
            fs::create_dir(scene.join("served/made"))
        });
        assert_eq!(put.is_ok(), writable, "{put:?}");
        println!("{TRIED}");
    }

    #[test]
    fn it_is_said_where_there_is_none() {
        assert!(Confined::NotOffered.to_string().contains("no Landlock"));
        assert_eq!(Confined::NotOffered.json(), Value::Null);
        assert!(Confined::Landlock(4).to_string().contains("ABI 4"));
    }
}
