//! `send`: sends files and folders to a server. All of them are checked first, so that a mistake in
//! the last argument leaves nothing half-done. Entries of a folder that cannot be sent are reported
//! at the end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use verus_transfer::Trouble;
use verus_transfer::address::Remote;
use verus_transfer::files::Source;
use verus_transfer::folder::{Folder, Walk, WalkEntry};
use verus_transfer::paths::RelativePath;
use verus_transfer::refusal::{Reason, Refusal};

use crate::failure::Failure;
use crate::files::{self, Job};
use crate::qlog;
use crate::ui::Ui;

/// Send files and folders to a server (`serve`).
///
/// Each arrives under its own name. The same command, given again, continues an interrupted transfer where it
/// stopped.
#[derive(clap::Args)]
pub struct Args {
    /// Files and folders.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    // Not as a doc comment: rustdoc would take the brackets for a link.
    #[arg(
        value_name = "HOST[/FOLDER]",
        help = "The server, and a folder below the one that it serves: HOST[:PORT][/FOLDER]"
    )]
    to: Remote,
    #[command(flatten)]
    more: files::ClientArgs,
    #[command(flatten)]
    qlog: qlog::QlogArgs,
}

/// The files to send.
#[derive(Default)]
struct Plan {
    folders: Vec<RelativePath>,
    jobs: Vec<Job>,
    /// Entries of folders that cannot be sent, and why.
    unavailable: Vec<String>,
}

/// Sends.
///
/// # Errors
/// If anything did not arrive whole.
pub fn run(args: &Args, ui: &Ui) -> Result<(), Failure> {
    let ui = &ui.to_the_end();
    let mut plan = Plan::default();
    for path in &args.files {
        plan.add(path, args, ui)?;
    }
    files::check_targets(&plan.jobs)?;
    let host = &args.to.host;
    let logs = args.qlog.open()?;
    files::session(host, &args.more, logs, ui, |client| async move {
        if !client.writable() {
            return Err(Failure::run(format_args!(
                "{host}: the server takes no files from us (it was started with --read-only, or our token may only read)"
            )));
        }
        for folder in &plan.folders {
            client.make_folder(folder).await.map_err(|trouble| {
                Failure::run(format_args!(
                    "{host}: cannot make the folder `{folder}`: {trouble}"
                ))
            })?;
        }
        files::run(
            plan.jobs,
            plan.unavailable,
            &client,
            host,
            &args.more,
            "send",
            ui,
        )
        .await
    })
}

impl Plan {
    /// Examines a file or folder that the user named, to report mistakes before anything is sent.
    fn add(&mut self, path: &Path, args: &Args, ui: &Ui) -> Result<(), Failure> {
        let cannot = |why: &dyn std::fmt::Display| {
            Failure::usage(format_args!("cannot send `{}`: {why}", path.display()))
        };
        let real = fs::canonicalize(path).map_err(|error| cannot(&system_error(&error)))?;
        let name = match path.file_name() {
            Some(name) => name,
            // `.` and `..` are sent under their real names.
            None => real
                .file_name()
                .ok_or_else(|| cannot(&"it has no name to arrive under"))?,
        };
        let target = args
            .to
            .path
            .join(name)
            .map_err(|refusal| cannot(&refusal))?;
        let kind = fs::metadata(&real).map_err(|error| cannot(&system_error(&error)))?;
        if kind.is_dir() {
            return self.add_folder(path, &target, args, ui);
        }
        if !kind.is_file() {
            return Err(cannot(&"it is neither a file nor a folder"));
        }
        let source = File::open(&real)
            .map_err(|error| cannot(&system_error(&error)))
            .and_then(|file| Source::new(file).map_err(|refusal| cannot(&refusal)))?;
        let size = source.info.size;
        let shown = path.display().to_string();
        let open = move || File::open(&real).map_err(unreadable).and_then(Source::new);
        self.jobs
            .push(job(shown, size, target, args.more.force, open));
        Ok(())
    }

    fn add_folder(
        &mut self,
        path: &Path,
        target: &RelativePath,
        args: &Args,
        ui: &Ui,
    ) -> Result<(), Failure> {
        let folder = Folder::open(path).map_err(|error| {
            let why = system_error(&error);
            Failure::usage(format_args!("cannot send `{}`: {why}", path.display()))
        })?;
        let place = |inner: &RelativePath| path.join(inner.as_os_str());
        self.folders.push(target.clone());
        for entry in Walk::new(folder.clone()) {
            match entry {
                WalkEntry::Folder(inner) => match target.append(&inner) {
                    Ok(target) => self.folders.push(target),
                    Err(refusal) => self.leave_out(&place(&inner), &refusal),
                },
                WalkEntry::File(inner, info) => {
                    let source = Source::open(&folder, &inner);
                    match source.and_then(|_| target.append(&inner)) {
                        Ok(target) => {
                            let shown = place(&inner).display().to_string();
                            let folder = folder.clone();
                            let open = move || Source::open(&folder, &inner);
                            self.jobs
                                .push(job(shown, info.size, target, args.more.force, open));
                        }
                        Err(refusal) => self.leave_out(&place(&inner), &refusal),
                    }
                }
                WalkEntry::Unavailable(inner, refusal) if refusal.reason == Reason::NotAFile => {
                    ui.note(format_args!(
                        "skipped `{}`: {refusal}",
                        place(&inner).display()
                    ));
                }
                WalkEntry::Unavailable(inner, refusal) => self.leave_out(&place(&inner), &refusal),
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, path: &Path, refusal: &Refusal) {
        self.unavailable
            .push(format!("{}: {refusal}", path.display()));
    }
}

fn job(
    shown: String,
    size: u64,
    target: RelativePath,
    replace: bool,
    open: impl FnOnce() -> Result<Source, Refusal> + Send + 'static,
) -> Job {
    Job {
        shown,
        target: target.clone(),
        size,
        work: Box::new(move |client, gauge| {
            Box::pin(async move {
                let source = open().map_err(Trouble::Here)?;
                client.put(&source, &target, replace, &gauge).await
            })
        }),
    }
}

fn unreadable(error: std::io::Error) -> Refusal {
    Refusal::from_io("cannot read it", &error)
}

/// The operating system's error, without its number.
fn system_error(error: &std::io::Error) -> String {
    Refusal::from_io("cannot read it", error).to_string()
}
