use std::sync::Arc;
use verus_channel::Trace;
use verus_core::{Duration, Rate};
pub enum Channel {
    Trace(Arc<Trace>),
    Rate(Rate),
}
impl Channel {
    pub fn trace(&self) -> Option<&Arc<Trace>> {
        match self {
            Channel::Trace(t) => Some(t),
            _ => None,
        }
    }
}
pub fn open(text: &str, _seed: u64, _d: Duration) -> Result<Channel, verus_channel::Error> {
    if let Some(r) = text.strip_prefix("rate:") {
        return Ok(Channel::Rate(Rate::from_mbps(r.parse().unwrap())));
    }
    Ok(Channel::Trace(Arc::new(Trace::read(
        std::path::Path::new(text),
    )?)))
}
