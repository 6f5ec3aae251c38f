//! `receive`: looks up paths at a server, and receives each file into a folder.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use verus_transfer::address::Remote;
use verus_transfer::files::Place;
use verus_transfer::folder::Folder;
use verus_transfer::paths::RelativePath;
use verus_transfer::refusal::{Reason, Refusal};
use verus_transfer::{Client, Entry, Trouble};

use crate::failure::Failure;
use crate::files::{self, Job};
use crate::ui::Ui;

/// Receive files and folders from a server (`serve`).
///
/// Each arrives under its own name in the current folder, or in --into. The same command, given again, continues an
/// interrupted transfer where it stopped.
#[derive(clap::Args)]
pub struct Args {
    // Not as a doc comment: rustdoc would take the brackets for a link.
    #[arg(
        required = true,
        value_name = "HOST/PATH",
        help = "The server, and what to get from the folder that it serves: HOST[:PORT]/PATH; without a PATH everything"
    )]
    from: Vec<Remote>,
    /// Folder to receive into; it is created if it does not exist.
    #[arg(short = 'o', long, value_name = "DIR", default_value = ".")]
    into: PathBuf,
    #[command(flatten)]
    more: files::ClientArgs,
}

/// Receives.
///
/// # Errors
/// If anything did not arrive whole.
pub fn run(args: &Args, ui: &Ui) -> Result<(), Failure> {
    let ui = &ui.to_the_end();
    let host = &args.from[0].host;
    if let Some(other) = args.from.iter().find(|from| from.host != *host) {
        return Err(Failure::usage(format_args!(
            "`{}` and `{host}` are two servers; receive from one at a time",
            other.host
        )));
    }
    let into = fs::create_dir_all(&args.into)
        .and_then(|()| Folder::open(&args.into))
        .map_err(|error| {
            let refusal = Refusal::from_io("cannot write to it", &error);
            Failure::usage(format_args!("--into `{}`: {refusal}", args.into.display()))
        })?;
    files::session(host, &args.more, None, ui, |client| async move {
        receive(&client, &into, args, ui).await
    })
}

async fn receive(client: &Arc<Client>, into: &Folder, args: &Args, ui: &Ui) -> Result<(), Failure> {
    let host = &args.from[0].host;
    let mut jobs = Vec::new();
    let mut unavailable = Vec::new();
    for from in &args.from {
        let listed = list(client, &from.path, into, args, ui).await;
        let (some, missing) =
            listed.map_err(|trouble| Failure::run(format_args!("{from}: {trouble}")))?;
        jobs.extend(some);
        unavailable.extend(missing);
    }
    files::check_targets(&jobs)?;
    files::run(jobs, unavailable, client, host, &args.more, "receive", ui).await
}

/// The files at a path to receive, and the entries that cannot be had. Makes the folders.
async fn list(
    client: &Client,
    path: &RelativePath,
    into: &Folder,
    args: &Args,
    ui: &Ui,
) -> Result<(Vec<Job>, Vec<String>), Trouble> {
    let name = path.split_last().map(|(_, name)| name.to_owned());
    // The whole contents of a server go directly into the folder.
    let base = match &name {
        Some(name) => RelativePath::default().join(name).map_err(Trouble::Here)?,
        None => RelativePath::default(),
    };
    let mut jobs = Vec::new();
    let mut unavailable = Vec::new();
    for entry in client.list(path).await? {
        match entry {
            Entry::Folder(inner) => {
                let local = base.append(&inner).map_err(Trouble::Here)?;
                into.make(&local, &mut 0).map_err(|error| {
                    Trouble::Here(
                        Refusal::from_io("cannot write", &error)
                            .and(format_args!("the folder was to be `{local}`")),
                    )
                })?;
            }
            Entry::File(inner, info) => {
                let remote = path.append(&inner).map_err(Trouble::Here)?;
                let local = base.append(&inner).map_err(Trouble::Here)?;
                jobs.push(job(
                    remote,
                    &local,
                    info.size,
                    into.clone(),
                    args.more.force,
                )?);
            }
            Entry::Unavailable(inner, refusal) => {
                let shown = path.append(&inner).unwrap_or(inner);
                if refusal.reason == Reason::NotAFile {
                    ui.note(format_args!("skipped `{shown}`: {refusal}"));
                } else {
                    unavailable.push(format!("{shown}: {refusal}"));
                }
            }
        }
    }
    Ok((jobs, unavailable))
}

fn job(
    remote: RelativePath,
    local: &RelativePath,
    size: u64,
    into: Folder,
    replace: bool,
) -> Result<Job, Trouble> {
    let Some((parent, name)) = local.split_last() else {
        return Err(Trouble::Protocol("a file without a name".to_owned()));
    };
    let name = name.to_owned();
    Ok(Job {
        shown: remote.to_string(),
        target: local.clone(),
        size,
        work: Box::new(move |client, gauge| {
            Box::pin(async move {
                let folder = into.folder(&parent).map_err(|error| {
                    Trouble::Here(Refusal::from_io("cannot write to the folder", &error))
                })?;
                let place = Place {
                    folder,
                    name,
                    replace,
                    apart: None,
                };
                client.get(&remote, place, &gauge).await
            })
        }),
    })
}
