//! Loads, lists and unloads congestion controls.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{
    Link, MapCore as _, MapFlags, MapHandle, Object, ObjectBuilder, PrintLevel, ProgramType,
};

use crate::host::{self, PINS};
use crate::settings::check_name;
use crate::{Config, Error, Loaded, NAME_BYTES};

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/forward.bpf.o"));

/// The congestion controls that the kernel can choose from.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
/// Of these, the ones that every network namespace may have as its default.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
/// Defaults that distributions have, the first being the most frequent; Linux is never without the second.
const USUAL_DEFAULTS: [&str; 2] = ["cubic", "reno"];
/// The default of new connections in this network namespace.
const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Names of the object's maps, then of two programs: the one that uses all maps, and the one for
/// acknowledgements.
const OPERATIONS: &str = "forward_operations";
const CONFIG: &str = ".rodata.config";
const COUNT: &str = ".data.count";
const FLOWS: &str = "flows";
const INIT: &str = "forward_init";
const HEARD: &str = "forward_heard";
const BURST: &str = "forward_burst";
/// Of `struct tcp_congestion_ops` in `kernel.h`, where the name begins: behind five pointers.
const NAME_AT: usize = 5 * 8;
/// Of `config`: a name and its zeros, and a number.
const NAME_SPACE: usize = NAME_BYTES + 1;
const NANOS_PER_MS: f64 = 1e6;

/// How often to check whether the kernel has forgotten a name, which may take a moment.
const LOOKS: u32 = 1000;
/// See [`LOOKS`].
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// A congestion control that is there as long as this is, and is left to nobody.
#[derive(Debug)]
pub struct Held {
    link: Link,
    _object: Object,
}

/// Registers a congestion control until the returned value is dropped.
///
/// # Errors
/// If something is missing, or the kernel refuses it.
pub fn hold(config: &Config) -> Result<Held, Error> {
    host::check()?;
    if available().contains(&config.name) {
        return Err(Error::Exists(config.name.clone()));
    }
    let refused = |doing: &str| {
        let doing = format!("`{}`: {doing}", config.name);
        move |error: libbpf_rs::Error| Error::Kernel {
            doing,
            why: format!("{error:#}"),
        }
    };
    let mut open = open(PROGRAM).map_err(refused("its object cannot be read"))?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let Some(value) = map.initial_value_mut() else {
            continue;
        };
        if name == OPERATIONS {
            value[NAME_AT..NAME_AT + NAME_SPACE].copy_from_slice(&padded(&config.name));
        } else if name == CONFIG {
            let number = (config.budget_ms * NANOS_PER_MS).round() as u64;
            value[..NAME_SPACE].copy_from_slice(&padded(&config.name));
            value[NAME_SPACE..].copy_from_slice(&number.to_ne_bytes());
        }
    }
    let mut object = open
        .load()
        .map_err(refused("the kernel does not take the program"))?;
    let link = object
        .maps_mut()
        .find(|map| map.name() == OPERATIONS)
        .expect("forward.bpf.c has it")
        .attach_struct_ops()
        .map_err(refused("the kernel does not register it"))?;
    Ok(Held {
        link,
        _object: object,
    })
}

/// Registers a congestion control for good: until [`unload`], or the machine's end.
///
/// # Errors
/// If something is missing, or the kernel refuses it; then nothing stays loaded.
pub fn load(config: &Config) -> Result<(), Error> {
    let at = pin(&config.name)?;
    host::check()?;
    host::make_pins()?;
    let mut handle = hold(config)?;
    handle.link.pin(at).map_err(|error| Error::Kernel {
        doing: format!("`{}` cannot be pinned in {PINS}", config.name),
        why: error.to_string(),
    })
}

/// Takes a congestion control out. Connections that run on it go on.
///
/// # Errors
/// If there is none, it is the default of new connections, or others may change the folder of pins.
pub fn unload(name: &str) -> Result<(), Error> {
    let at = pin(name)?;
    host::check()?;
    if !host::are_pins_ours()? || !at.exists() {
        return Err(Error::Unknown {
            name: name.to_owned(),
            loaded: pinned(),
        });
    }
    if default_name().as_deref() == Some(name) {
        return Err(Error::Default {
            name: name.to_owned(),
            other: other_default(&names(ALLOWED), name),
        });
    }
    let failed = |why: String| Error::Kernel {
        doing: format!("`{name}` cannot be unloaded"),
        why,
    };
    // At once, and not when the last that holds the link lets it go; kernels before 6.11 know only the second.
    if let Ok(link) = Link::open(&at) {
        let _ = link.detach();
    }
    fs::remove_file(&at).map_err(|error| failed(error.to_string()))?;
    // Empty only if this was the last.
    let _ = fs::remove_dir(PINS);
    for _ in 0..LOOKS {
        if !available().iter().any(|known| known == name) {
            return Ok(());
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Err(failed("the kernel still has its name".to_owned()))
}

/// Loaded congestion controls, and unloaded ones that still have flows, in the order of loading.
///
/// # Errors
/// If the kernel does not tell.
pub fn list() -> Result<Vec<Loaded>, Error> {
    host::check()?;
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    let programs: Vec<ProgramInfo> = ProgInfoIter::with_query_opts(options)
        .filter(|program| program.ty == ProgramType::StructOps)
        .collect();
    let named = |name: &'static str| {
        let fits = move |program: &&ProgramInfo| program.name.as_bytes() == name.as_bytes();
        programs.iter().filter(fits)
    };
    let mut loaded: Vec<Loaded> = named(INIT).filter_map(read).collect();
    for one in &mut loaded {
        let of_one = |name| named(name).find(|program| program.map_ids.contains(&one.flows));
        let bursts_ns = of_one(BURST).map_or(0, |program| program.run_time_ns);
        one.per_ack = of_one(HEARD)
            .filter(|program| program.run_cnt > 0)
            .map(|program| {
                Duration::from_nanos((program.run_time_ns + bursts_ns) / program.run_cnt)
            });
    }
    loaded.sort_by_key(|one| one.program);
    // Of several of one name, only the last can be registered under it.
    let names = available();
    let mut names_seen = std::collections::BTreeSet::new();
    for one in loaded.iter_mut().rev() {
        let first = names_seen.insert(one.config.name.clone());
        one.registered = first && names.contains(&one.config.name);
    }
    Ok(loaded)
}

/// The contents of a program's maps; `None` if they are not ours, or no longer exist.
fn read(program: &ProgramInfo) -> Option<Loaded> {
    let (mut config, mut count, mut flows) = (None, None, None);
    for &id in &program.map_ids {
        let map = MapHandle::from_map_id(id).ok()?;
        let value = || {
            map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
                .ok()
                .flatten()
        };
        match map.name().to_str() {
            Some(CONFIG) => config = value(),
            Some(COUNT) => count = value(),
            Some(FLOWS) => flows = Some(id),
            _ => {}
        }
    }
    let config = config?;
    let name = config.get(..NAME_SPACE)?.split(|byte| *byte == 0).next()?;
    let number = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..at + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    let count = count?;
    Some(Loaded {
        config: Config {
            name: String::from_utf8_lossy(name).into_owned(),
            budget_ms: number(&config, NAME_SPACE)? as f64 / NANOS_PER_MS,
        },
        registered: false,
        begun: number(&count, 0)?,
        ended: number(&count, 8)?,
        per_ack: None,
        flows: flows?,
        program: program.id,
    })
}

/// Its path in the BPF file system.
///
/// # Errors
/// If no congestion control can have that name: it may be a path, which leads anywhere.
fn pin(name: &str) -> Result<PathBuf, Error> {
    check_name(name)?;
    Ok(Path::new(PINS).join(name))
}

/// The names of the pins.
fn pinned() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(PINS)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The names that the kernel has.
fn available() -> Vec<String> {
    names(AVAILABLE)
}

fn names(file: &str) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// The default of new connections in this network namespace, if the kernel reports it.
pub fn default_name() -> Option<String> {
    names(DEFAULT).pop()
}

/// One of the `allowed` that may be the default in place of `name`.
fn other_default(allowed: &[String], name: &str) -> String {
    let usual = USUAL_DEFAULTS.map(str::to_owned);
    let mut others = usual.iter().filter(|usual| allowed.contains(usual));
    let other = others.find(|other| *other != name);
    let other = other.or_else(|| allowed.iter().find(|other| *other != name));
    other.unwrap_or(&usual[1]).clone()
}

fn padded(name: &str) -> [u8; NAME_SPACE] {
    let mut bytes = [0; NAME_SPACE];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes
}

/// Opens an object. Discards libbpf's messages, which are many lines; the error has the reason.
pub(crate) fn open(object: &[u8]) -> libbpf_rs::Result<libbpf_rs::OpenObject> {
    libbpf_rs::set_print(std::env::var_os("VERUS_LIBBPF").map(|_| {
        let print: fn(PrintLevel, String) = |_, line| eprint!("{line}");
        (PrintLevel::Debug, print)
    }));
    ObjectBuilder::default().open_memory(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_default_is_one_that_the_namespace_may_have() {
        for (allowed, name, other) in [
            ("reno cubic forward", "forward", "cubic"),
            ("reno forward", "forward", "reno"),
            ("reno cubic", "cubic", "reno"),
            ("bbr forward", "forward", "bbr"),
            ("", "forward", "reno"),
        ] {
            let allowed: Vec<String> = allowed.split_whitespace().map(str::to_owned).collect();
            assert_eq!(other_default(&allowed, name), other);
        }
    }
}
