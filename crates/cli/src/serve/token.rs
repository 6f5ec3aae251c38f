//! `serve token`: clients by name, made and revoked while servers run.

use std::path::PathBuf;
use std::time::SystemTime;

use serde_json::json;
use verus_transfer::access::store::{Kept, Store, StoreError};
use verus_transfer::access::{ClientName, Rights};
use verus_transfer::private::Home;

use crate::failure::Failure;
use crate::files;
use crate::table;
use crate::ui::Ui;

use super::{privilege, used};

/// Make, list and revoke the tokens of clients, while the server runs.
#[derive(clap::Args)]
#[command(disable_help_subcommand = true)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Make a token for a client and print it; it cannot be printed again.
    Add {
        /// Name of the client: up to 64 letters, digits, `.`, `_` and `-`.
        name: ClientName,
        /// Rights of the client: read, write (without listing or reading), or both.
        #[arg(long, value_name = "RIGHTS", default_value = "both")]
        rights: Rights,
        #[command(flatten)]
        more: More,
    },
    /// List the clients that have a token.
    List {
        #[command(flatten)]
        more: More,
    },
    /// Revoke a client's token; a running server closes its connections within a second.
    Revoke {
        /// Name of the client.
        name: ClientName,
        #[command(flatten)]
        more: More,
    },
}

#[derive(clap::Args)]
struct More {
    /// Where the server keeps keys and tokens (default: VERUS_CONFIG, then ~/.config/verus).
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
    /// When root: the user as whom the server runs, as in `serve` (default: the owner of the --config folder).
    #[arg(long, value_name = "NAME|UID[:GID]")]
    user: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl More {
    /// The configuration folder, with its contents. Root acts in a user's folder with that user's
    /// rights only.
    fn folder(&self) -> Result<PathBuf, Failure> {
        let server_user = privilege::choose_for_tokens(self.user.as_deref())?;
        let folder = files::config_folder(self.config.as_deref(), server_user.home())?;
        server_user.assume()?;
        if self.user.is_none() {
            privilege::owner(&folder)?.assume()?;
        }
        Ok(folder)
    }

    fn store(&self) -> Result<(Store, PathBuf), Failure> {
        let folder = self.folder()?;
        let home = Home::make(&folder).map_err(Failure::usage)?;
        Ok((Store::open(home), folder))
    }
}

/// Runs the chosen verb.
pub fn run(args: &Args, ui: &Ui) -> Result<(), Failure> {
    match &args.verb {
        Verb::Add { name, rights, more } => add(name, *rights, more, ui),
        Verb::List { more } => list(more, ui),
        Verb::Revoke { name, more } => {
            let (store, folder) = more.store()?;
            store.revoke(name).map_err(Failure::usage)?;
            if more.json {
                ui.json(&json!({"schema": 1, "name": name.as_str(), "revoked": true}))?;
            }
            ui.note(format_args!(
                "revoked `{name}` in `{}`; a server that runs hangs up on it within a second",
                folder.display()
            ));
            Ok(())
        }
    }
}

fn add(name: &ClientName, rights: Rights, more: &More, ui: &Ui) -> Result<(), Failure> {
    let (store, folder) = more.store()?;
    let made = super::now();
    let token = store.add(name, rights, made).map_err(|error| match error {
        StoreError::Full => Failure::run(error),
        error => Failure::usage(error),
    })?;
    let printed = if more.json {
        ui.json(&json!({
            "schema": 1, "name": name.as_str(), "rights": rights.as_str(),
            "made": humantime::format_rfc3339_seconds(made).to_string(), "token": token.text(),
        }))
    } else {
        ui.line(token.text())
    };
    if printed.is_err() {
        // A token that was never printed is of no use, and its name would be taken.
        let _ = store.revoke(name);
        return printed;
    }
    ui.note(format_args!(
        "added `{name}` ({}) in `{}`; this is the only time that its token is shown. The client keeps it in a file \
         (--token-file, chmod 600) or in VERUS_TOKEN",
        match rights {
            Rights::Read => "may read",
            Rights::Write => "may write",
            Rights::Both => "may read and write",
        },
        folder.display()
    ));
    Ok(())
}

fn list(more: &More, ui: &Ui) -> Result<(), Failure> {
    let made = |made: SystemTime| humantime::format_rfc3339_seconds(made).to_string();
    let folder = more.folder()?;
    let (clients, times) = match Home::open(&folder).map_err(Failure::usage)? {
        Some(home) => {
            let times = used::read(&home);
            (Store::open(home).list().map_err(Failure::usage)?, times)
        }
        None => Default::default(),
    };
    // A last use before the token was made is another client's.
    let used = |kept: &Kept| {
        let used = times.get(kept.name.as_str()).copied();
        used.filter(|&used| used >= kept.made).map(made)
    };
    if more.json {
        for kept in &clients {
            ui.json(&json!({
                "schema": 1, "name": kept.name.as_str(), "rights": kept.rights.as_str(), "made": made(kept.made),
                "last_used": used(kept),
            }))?;
        }
        return Ok(());
    }
    if clients.is_empty() {
        ui.note(format_args!(
            "nobody has a token in `{}`; `verus serve token add NAME` makes one",
            folder.display()
        ));
        return Ok(());
    }
    let mut rows = vec![["client", "rights", "made", "last used"].map(str::to_owned)];
    for kept in &clients {
        let (name, rights) = (kept.name.to_string(), kept.rights.to_string());
        let used = used(kept).unwrap_or_else(|| "–".to_owned());
        rows.push([name, rights, made(kept.made), used]);
    }
    for line in table::aligned(&rows) {
        ui.line(line)?;
    }
    Ok(())
}
