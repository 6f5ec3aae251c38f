//! `serve`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use serde_json::json;
use verus_net::transfer::folder::Folder;
use verus_net::transfer::secrets::{Identity, Token};
use verus_net::transfer::{DEFAULT_PORT, Delivered, Event, Limits, Server, ServerConfig, bind};

use crate::failure::Failure;
use crate::files;
use crate::host::shown;
use crate::ui::Ui;

/// Serve a folder to `send` and `receive`.
///
/// Clients know this server by its fingerprint and need its token; both are made at the first start and
/// kept in the --config folder. Nothing outside of the folder is read or written.
#[derive(clap::Args)]
pub struct Args {
    /// The folder.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Listen on this address only (default: all, IPv4 and IPv6).
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Listen on this UDP port; 0 takes a free one.
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Take no files.
    #[arg(long)]
    read_only: bool,
    /// The token that clients must have: a file (default: `token` in the --config folder, made if missing).
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Serve anybody, without a token.
    #[arg(long, conflicts_with = "token_file")]
    no_token: bool,
    /// Clients at a time.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    max_clients: u16,
    /// Clients at a time from one address (IPv6: one /64) (default: half of --max-clients).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    clients_per_address: Option<u16>,
    /// What all files in DIR may take together before clients may add no more, as 500MB or 2GiB.
    #[arg(long, value_name = "SIZE")]
    max_bytes: Option<ByteSize>,
    /// Remove unfinished files that were not written to for so long, as 12h or 7d, or `forever`.
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = keep)]
    keep_parts: Keep,
    /// Print events as JSON Lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: files::Common,
}

/// How long something is kept; nothing for ever.
#[derive(Clone, Copy)]
struct Keep(Option<Duration>);

fn keep(text: &str) -> Result<Keep, String> {
    if text == "forever" {
        return Ok(Keep(None));
    }
    humantime::parse_duration(text)
        .map(|time| Keep(Some(time)))
        .map_err(|error| format!("{error}; expected a time, as 12h or 7d, or `forever`"))
}

/// Serves until it is told to stop.
///
/// # Errors
/// If it cannot serve, and the signal that ended it.
pub fn run(args: &Args, ui: &Ui) -> Result<(), Failure> {
    let folder = Folder::open(&args.folder).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::NotADirectory => "it is not a folder".to_owned(),
            io::ErrorKind::NotFound => "no such folder".to_owned(),
            _ => error.to_string(),
        };
        Failure::usage(format_args!(
            "cannot serve `{}`: {why}",
            args.folder.display()
        ))
    })?;
    let home = args.common.folder()?;
    let identity = Identity::kept_in(&home).map_err(Failure::usage)?;
    let (token, token_path) = if args.no_token {
        (None, None)
    } else if let Some(path) = &args.token_file {
        (
            Some(Token::read(path).map_err(Failure::usage)?),
            Some(path.clone()),
        )
    } else {
        let token = Token::kept_in(&home).map_err(Failure::usage)?;
        (Some(token), Some(home.join("token")))
    };
    let fingerprint = identity.fingerprint();
    let socket = listen(args)?;
    files::runtime()?.block_on(async {
        let stopped = files::stopped()?;
        let config = ServerConfig {
            folder,
            identity,
            token,
            read_only: args.read_only,
            scheme: args.common.scheme.clone(),
            max_clients: usize::from(args.max_clients),
            limits: Limits {
                clients_each: args.clients_per_address.map(usize::from),
                bytes: args.max_bytes.map(|size| size.as_u64()),
                keep_parts: args.keep_parts.0,
                ..Limits::default()
            },
        };
        let failed = |error: io::Error| Failure::run(format_args!("cannot serve: {error}"));
        let mut server = Server::start(config, socket).map_err(failed)?;
        let local = server.local_addr().map_err(failed)?;
        if args.json {
            ui.line(json!({
                "event": "listening", "address": local.to_string(), "fingerprint": fingerprint.to_string(),
                "token_file": token_path.as_ref().map(|path| path.display().to_string()),
                "folder": args.folder.display().to_string(), "read_only": args.read_only,
            }))?;
        } else {
            ui.line(format_args!(
                "serving `{}`{} on UDP {local}",
                args.folder.display(),
                if args.read_only { ", read-only," } else { "" },
            ))?;
            ui.line(format_args!("fingerprint  {fingerprint}"))?;
            match &token_path {
                Some(path) => ui.line(format_args!(
                    "token        in `{}`; clients need a copy (--token-file, or VERUS_TOKEN)",
                    path.display()
                ))?,
                None => ui.line("token        none: anybody who can reach this port is served")?,
            }
        }
        tokio::pin!(stopped);
        let ended = loop {
            tokio::select! {
                event = server.event() => match event {
                    Some(event) => {
                        if let Err(failure) = tell(args, ui, &event) {
                            break failure;
                        }
                    }
                    None => break Failure::run("the server has stopped"),
                },
                signal = &mut stopped => break Failure::signal(signal),
            }
        };
        server.stop().await;
        while let Some(event) = server.try_event() {
            let _ = tell(args, ui, &event);
        }
        Err(ended)
    })
}

fn listen(args: &Args) -> Result<std::net::UdpSocket, Failure> {
    let all = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let address = SocketAddr::new(args.bind.unwrap_or(all), args.port);
    bind(address)
        .or_else(|error| match args.bind {
            // A system without IPv6.
            None if error.kind() != io::ErrorKind::AddrInUse => {
                bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, args.port)))
            }
            _ => Err(error),
        })
        .map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::AddrInUse => "the port is in use; --port takes another".to_owned(),
                _ => error.to_string(),
            };
            Failure::usage(format_args!("cannot listen on UDP {address}: {why}"))
        })
}

fn tell(args: &Args, ui: &Ui, event: &Event) -> Result<(), Failure> {
    let line = |client: &SocketAddr, text: String, value: serde_json::Value| {
        if args.json {
            ui.line(value)
        } else if ui.is_quiet() {
            Ok(())
        } else {
            ui.line(format_args!("{}: {text}", shown(*client)))
        }
    };
    let named = |event: &str, client: &SocketAddr, why: &str| json!({"event": event, "client": shown(*client).to_string(), "why": why});
    match event {
        Event::Connected { client } => line(
            client,
            "connected".to_owned(),
            json!({"event": "connected", "client": shown(*client).to_string()}),
        ),
        Event::TurnedAway { client, why } => line(
            client,
            format!("turned away: {why}"),
            named("turned_away", client, why),
        ),
        Event::Left { client, why } => {
            line(client, format!("left: {why}"), named("left", client, why))
        }
        Event::Failed { client, path, why } => line(
            client,
            format!("`{path}`: {why}"),
            json!({"event": "failed", "client": shown(*client).to_string(), "file": path, "why": why}),
        ),
        Event::Sent {
            client,
            path,
            delivered,
        } => line(
            client,
            format!("sent `{path}`, {}", how(delivered)),
            file("sent", client, path, delivered),
        ),
        Event::Received {
            client,
            path,
            delivered,
        } => line(
            client,
            format!("received `{path}`, {}", how(delivered)),
            file("received", client, path, delivered),
        ),
    }
}

fn how(delivered: &Delivered) -> String {
    let size = ByteSize::b(delivered.size).display().si();
    match delivered {
        Delivered { same: true, .. } => format!("{size}: was there already"),
        Delivered { kept: 0, .. } => size.to_string(),
        Delivered { kept, .. } => {
            let kept = ByteSize::b(*kept).display().si();
            format!("{size}, {kept} of it from an earlier attempt")
        }
    }
}

fn file(event: &str, client: &SocketAddr, path: &str, delivered: &Delivered) -> serde_json::Value {
    json!({
        "event": event, "client": shown(*client).to_string(), "file": path, "bytes": delivered.size,
        "moved_bytes": delivered.moved, "kept_bytes": delivered.kept, "same": delivered.same,
    })
}
