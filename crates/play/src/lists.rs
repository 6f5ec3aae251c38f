//! The page's choices: the lists that `verus list` prints.

use serde_json::{Value, json};
use verus_channel::{generate, queue};
use verus_senders::Registry;

/// Schemes whose name alone suffices, queues, and built-in channels.
pub fn lists() -> Value {
    let registry = Registry::default();
    let schemes = registry.catalogue().into_iter();
    let schemes = schemes.filter(|entry| entry.stands_alone());
    let schemes: Vec<Value> = schemes
        .map(|entry| json!({ "name": entry.name, "summary": entry.summary }))
        .collect();
    let queues: Vec<Value> = queue::catalogue()
        .iter()
        .map(|queue| json!(queue))
        .collect();
    let channels: Vec<&str> = generate::names().collect();
    json!({ "schemes": schemes, "queues": queues, "channels": channels })
}
