//! A crate outside the workspace can bring a controller: `examples/own-controller` is built and
//! run.

use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "compiles a crate with all that it takes: make test-pages"]
fn a_crate_outside_the_workspace_runs_its_own_controller_in_the_simulator() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/own-controller");
    // With the versions of this repository: cargo leaves out what the example does not need.
    std::fs::copy(example.join("../../Cargo.lock"), example.join("Cargo.lock"))
        .expect("the example's folder can be written");
    let run = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--manifest-path"])
        .arg(example.join("Cargo.toml"))
        // Shares the existing build folder: macros and build scripts are the same.
        .env(
            "CARGO_TARGET_DIR",
            concat!(env!("CARGO_TARGET_TMPDIR"), "/.."),
        )
        .output()
        .expect("cargo runs where it runs this test");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let lines: Vec<&str> = said.lines().collect();
    let [tide, verus] = lines[..] else {
        panic!("two flows, two lines: {said}");
    };
    assert!(tide.starts_with("tide:queue_ms=30: "), "{tide}");
    assert!(verus.starts_with("verus:ratio=2: "), "{verus}");
    assert!(!tide.contains(": 0.00 Mbit/s"), "it sends: {tide}");
}
