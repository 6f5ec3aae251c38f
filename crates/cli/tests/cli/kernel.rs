//! `verus kernel`: loading into the kernel, behaviour there, and complete removal.

#[cfg(feature = "kernel")]
mod loaded;

#[cfg(not(feature = "kernel"))]
#[test]
fn a_build_without_it_says_what_it_takes_in_one_line() {
    for words in [
        &["kernel", "load", "forward"][..],
        &["kernel", "status"],
        &["kernel", "unload", "forward"],
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_verus-endpoint"))
            .args(words)
            .output()
            .expect("the binary runs");
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "verus: this verus-endpoint cannot load programs into the kernel: it takes clang, libelf and zlib \
             (CONTRIBUTING.md)\n"
        );
    }
}
