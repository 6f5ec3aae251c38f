//! Compiles the programs for the kernel (`bpf/*.bpf.c`) with clang, if the feature `load` is on.
//!
//! Where that cannot be had, the crate is built all the same, and says at run time why it loads nothing.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Source, object and definitions of each program. The bare object is for `bpftool struct_ops
/// register`, which knows no links before version 7.2. It has a name of its own, since `unregister`
/// removes all objects of one name.
const PROGRAMS: [(&str, &str, &[&str]); 4] = [
    ("forward", "forward", &["OPERATIONS=\".struct_ops.link\""]),
    (
        "forward",
        "forward-bare",
        &[
            "OPERATIONS=\".struct_ops\"",
            "forward_operations=forward_bare",
        ],
    ),
    ("flows", "flows", &[]),
    ("connections", "connections", &[]),
];
/// The names of Debian's versions, the plain name first.
const CLANGS: [&str; 9] = [
    "clang", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15",
    "clang-14",
];
/// The oldest that these programs were compiled and run with.
const LEAST: u32 = 14;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rustc-check-cfg=cfg(has_programs)");
    let why = match programs() {
        Ok(()) => {
            println!("cargo::rustc-cfg=has_programs");
            String::new()
        }
        Err(why) => {
            if env::var_os("CARGO_FEATURE_LOAD").is_some() {
                println!("cargo::warning=`verus kernel` will not work: {why}");
            }
            why
        }
    };
    println!("cargo::rustc-env=WITHOUT_PROGRAMS={why}");
}

/// Compiles all of them.
///
/// # Errors
/// Why not.
fn programs() -> Result<(), String> {
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return Err("it takes Linux".to_owned());
    }
    if env::var_os("CARGO_FEATURE_LOAD").is_none() {
        return Err("it takes clang, libelf and zlib (CONTRIBUTING.md)".to_owned());
    }
    let clang = clang()?;
    let headers = env::var_os("DEP_BPF_INCLUDE").ok_or("libbpf left no headers")?;
    let into = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo names no folder")?);
    for (source, object, defined) in PROGRAMS {
        let object = into.join(object).with_extension("bpf.o");
        compile(&clang, Path::new(&headers), source, defined, &object)?;
    }
    Ok(())
}

/// The newest-named clang there is, or the one that `CLANG` names.
fn clang() -> Result<String, String> {
    let named = env::var("CLANG").ok();
    let names = named.iter().map(String::as_str).chain(CLANGS);
    for name in names {
        let Ok(output) = Command::new(name).arg("--version").output() else {
            continue;
        };
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = output.split("version ").nth(1).and_then(|rest| {
            let digits = rest.split('.').next()?;
            digits.parse::<u32>().ok()
        });
        if version.is_some_and(|version| version >= LEAST) {
            return Ok(name.to_owned());
        }
    }
    Err(format!(
        "it was built where there is no clang {LEAST} or later"
    ))
}

fn compile(
    clang: &str,
    headers: &Path,
    name: &str,
    defined: &[&str],
    object: &Path,
) -> Result<(), String> {
    // Of the debug information, only the part that the kernel and libbpf read (BTF) is kept.
    // libbpf's linker would strip the rest, too, but does not run at build time.
    let done = Command::new(clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror",
        ])
        .args(defined.iter().map(|one| format!("-D{one}")))
        .arg("-I")
        .arg(headers)
        .arg("-c")
        .arg(format!("bpf/{name}.bpf.c"))
        .arg("-o")
        .arg(object)
        .output()
        .map_err(|error| format!("{clang} does not start: {error}"))?;
    if !done.status.success() {
        let output = String::from_utf8_lossy(&done.stderr);
        panic!("{clang} does not compile bpf/{name}.bpf.c:\n{output}");
    }
    strip(clang, object);
    Ok(())
}

/// Takes DWARF out, which is most of the object; without llvm-strip it stays, and only weighs.
fn strip(clang: &str, object: &Path) {
    let strip = clang.replace("clang", "llvm-strip");
    let _ = Command::new(strip).arg("-g").arg(object).status();
}
