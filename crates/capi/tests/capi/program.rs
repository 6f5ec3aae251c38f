//! `examples/c/udp.c` compiles against the installed library, static and shared, and sends over loopback.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs a command, which must succeed; returns its output.
fn run(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap_or_else(|error| {
        panic!("{command:?} does not start ({error}): a C compiler and pkg-config are needed")
    });
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {status}\n{stderr}");
    assert!(stderr.is_empty(), "{command:?} warns:\n{stderr}");
    String::from_utf8(stdout).expect("UTF-8")
}

/// The folder in which cargo puts the libraries of this crate: that of its test programs.
fn built() -> PathBuf {
    let program = std::env::current_exe().expect("this program's path");
    program.parent().expect("its folder").to_owned()
}

#[test]
fn a_c_program_sends_over_udp_with_the_installed_library() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let prefix = folder.path().join("prefix");
    run(Command::new(root.join("install"))
        .arg(built())
        .arg(&prefix)
        .arg(env!("CARGO_PKG_VERSION")));

    let package = |words: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        run(command.args(words).arg("verus"))
    };
    assert_eq!(package(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    // With the static library for one scheme, with the shared one for the other.
    for (kind, libs, scheme) in [
        ("static", ["--static", "--libs"], "forward"),
        ("shared", ["--libs", "--cflags"], "verus:ratio=4"),
    ] {
        let mut libs = package(&libs);
        if kind == "static" {
            libs = libs.replace("-lverus", "-l:libverus.a");
        }
        // `make capi-sanitized` adds a sanitizer.
        let more = std::env::var("VERUS_CFLAGS").unwrap_or_default();
        let program = folder.path().join(kind);
        run(Command::new("cc")
            .args([
                "-std=c11",
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                "-O1",
                "-o",
            ])
            .arg(&program)
            .args(more.split_whitespace())
            .arg(root.join("../../examples/c/udp.c"))
            .args(package(&["--cflags"]).split_whitespace())
            .args(libs.split_whitespace()));
        let report = run(Command::new(&program)
            .args([scheme, "2000"])
            .env("LD_LIBRARY_PATH", prefix.join("lib")));
        assert!(
            report.starts_with(&format!("{scheme}: 2000 packets arrived")),
            "{report}"
        );
    }
}
