//! A law in C as a program: a line in, a line out.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A law that runs; its end ends it.
#[derive(Debug)]
pub struct Program {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    /// Compiles it with the system's C compiler, once, and starts it. Undefined behaviour, or a
    /// read out of bounds, ends it.
    pub fn start(source: &'static str) -> Self {
        static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
        static COMPILED: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());
        let folder = FOLDER.get_or_init(|| tempfile::tempdir().expect("a folder"));
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        let program = compiled
            .entry(source)
            .or_insert_with(|| compile(source, folder.path()));
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let to = child.stdin.take().expect("piped");
        let from = BufReader::new(child.stdout.take().expect("piped"));
        Program { child, to, from }
    }

    /// Its answer.
    pub fn ask(&mut self, line: &str) -> Vec<u64> {
        self.ask_all(&[line]).remove(0)
    }

    /// Its answers to so few lines that one pipe holds them, and another the answers.
    pub fn ask_all(&mut self, lines: &[impl AsRef<str>]) -> Vec<Vec<u64>> {
        // At once: a line in two writes may be read in two.
        let text: String = lines
            .iter()
            .flat_map(|line| [line.as_ref(), "\n"])
            .collect();
        self.to.write_all(text.as_bytes()).expect("it reads");
        lines.iter().map(|_| self.answer()).collect()
    }

    fn answer(&mut self) -> Vec<u64> {
        let mut answer = String::new();
        self.from.read_line(&mut answer).expect("it answers");
        answer
            .split_whitespace()
            .map(|number| number.parse().expect("a number"))
            .collect()
    }
}

fn compile(source: &str, folder: &Path) -> PathBuf {
    let program = folder.join(source).with_extension("");
    // The fuzz target, which has this file too, is another crate.
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let file = above
        .map(|folder| folder.join("crates/kernel/tests/kernel").join(source))
        .find(|source| source.exists())
        .expect("the repository has it");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let done = Command::new(compiler)
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"])
        .args(["-fsanitize=undefined,address", "-fno-sanitize-recover=all"])
        .arg(file)
        .arg("-o")
        .arg(&program)
        .status()
        .expect("a C compiler");
    assert!(done.success(), "{source} does not compile");
    program
}
