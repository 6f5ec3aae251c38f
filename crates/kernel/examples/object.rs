//! Writes `forward` for the kernel to standard output, as `bpftool struct_ops register` takes it.

#[cfg(has_programs)]
fn main() -> std::io::Result<()> {
    use std::io::Write as _;
    let object = include_bytes!(concat!(env!("OUT_DIR"), "/forward-bare.bpf.o"));
    std::io::stdout().write_all(object)
}

#[cfg(not(has_programs))]
fn main() {
    eprintln!("there is no program: {}", env!("WITHOUT_PROGRAMS"));
    std::process::exit(1);
}
