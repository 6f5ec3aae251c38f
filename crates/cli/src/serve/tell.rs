//! Reports of a server's events: a line for people, or an object for programs.

use std::net::SocketAddr;

use bytesize::ByteSize;
use serde_json::{Value, json};
use verus_net::host::shown;
use verus_transfer::access::ClientName;
use verus_transfer::{Direction, Event, Outcome, Transfer};

/// The report of an event, in both forms.
pub struct Report {
    /// For people.
    pub line: String,
    /// For programs.
    pub value: Value,
    /// Whether it belongs into the audit log: an operation of a known client, done or refused.
    pub account: bool,
}

/// The report of an event.
pub fn report(event: &Event) -> Report {
    let of = |kind, client, name: &Option<ClientName>, text: &str, more, account| Report {
        line: line(client, name.as_ref(), text),
        value: with(identity(kind, client, name.as_ref()), more),
        account,
    };
    match event {
        Event::Connected {
            client,
            name,
            rights,
        } => {
            let rights = json!({"rights": rights.as_str()});
            of("connected", *client, name, "connected", rights, false)
        }
        Event::TurnedAway { client, why } => {
            let (text, more) = (format!("turned away: {why}"), json!({"why": why}));
            of("turned_away", *client, &None, &text, more, false)
        }
        Event::Left { client, name, why } => {
            let (text, more) = (format!("left: {why}"), json!({"why": why}));
            of("left", *client, name, &text, more, false)
        }
        Event::Failed {
            client,
            name,
            path,
            why,
        } => {
            let text = format!("`{path}`: {why}");
            let more = json!({"file": path, "why": why});
            of("failed", *client, name, &text, more, true)
        }
        Event::Transfer(transfer) => Report {
            line: line(transfer.client, transfer.name.as_ref(), &sentence(transfer)),
            value: record(transfer),
            account: true,
        },
        Event::TokensUnreadable { why } => Report {
            line: format!("{why}; the tokens that were known go on counting"),
            value: json!({"event": "tokens_unreadable", "why": why}),
            account: false,
        },
    }
}

fn line(client: SocketAddr, name: Option<&ClientName>, text: &str) -> String {
    let client = shown(client);
    match name {
        Some(name) => format!("{name} ({client}): {text}"),
        None => format!("{client}: {text}"),
    }
}

fn identity(event: &str, client: SocketAddr, name: Option<&ClientName>) -> Value {
    json!({
        "event": event,
        "client": shown(client).to_string(),
        "name": name.map(ClientName::as_str),
    })
}

fn with(mut value: Value, more: Value) -> Value {
    if let (Some(value), Value::Object(more)) = (value.as_object_mut(), more) {
        value.extend(more);
    }
    value
}

fn sentence(transfer: &Transfer) -> String {
    let Transfer {
        path, moved, took, ..
    } = transfer;
    let size = |bytes: u64| ByteSize::b(bytes).display().si().to_string();
    let verb = match transfer.direction {
        Direction::Sent => "sent",
        Direction::Received => "received",
    };
    let seconds = took.as_secs_f64();
    match &transfer.outcome {
        Outcome::Same => format!(
            "{verb} `{path}`, {}: was there already",
            size(transfer.size.unwrap_or(0))
        ),
        Outcome::Complete => {
            let kept = match transfer.kept {
                0 => String::new(),
                kept => format!(", {} of it from an earlier attempt", size(kept)),
            };
            let whole = size(transfer.size.unwrap_or(0));
            format!("{verb} `{path}`, {whole} in {seconds:.1} s{kept}")
        }
        Outcome::Failed(why) => {
            let moved = match moved {
                0 => String::new(),
                moved => format!(" (after {} in {seconds:.1} s)", size(*moved)),
            };
            format!("not {verb} `{path}`: {why}{moved}")
        }
    }
}

fn record(transfer: &Transfer) -> Value {
    let direction = match transfer.direction {
        Direction::Sent => "sent",
        Direction::Received => "received",
    };
    let (event, outcome, why) = match &transfer.outcome {
        Outcome::Complete => (direction, "complete", None),
        Outcome::Same => (direction, "same", None),
        Outcome::Failed(why) => ("failed", "failed", Some(why)),
    };
    with(
        identity(event, transfer.client, transfer.name.as_ref()),
        json!({
            "file": transfer.path,
            "direction": direction,
            "outcome": outcome,
            "why": why,
            "bytes": transfer.size,
            "moved_bytes": transfer.moved,
            "kept_bytes": transfer.kept,
            "same": transfer.outcome == Outcome::Same,
            "duration_s": transfer.took.as_secs_f64(),
        }),
    )
}
