//! `include/verus.h` is what cbindgen makes of the sources.

use std::path::Path;

#[test]
fn the_header_is_generated_from_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("a configuration");
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(root.join("src/lib.rs"))
        .generate()
        .expect("a header");
    let mut generated = Vec::new();
    bindings.write(&mut generated);
    let generated = String::from_utf8(generated).expect("UTF-8");
    let path = root.join("include/verus.h");
    if std::env::var_os("VERUS_WRITE_HEADER").is_some() {
        std::fs::write(&path, &generated).expect("the checkout can be written");
    }
    let checked_in = std::fs::read_to_string(&path).expect("the header");
    assert!(
        checked_in == generated,
        "include/verus.h is out of date: VERUS_WRITE_HEADER=1 cargo test -p verus-capi header"
    );
}
