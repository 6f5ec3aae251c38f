//! Changes that an emulated path makes to its host, and their reversal: a number for its devices
//! and addresses, and forwarding.
//!
//! Each setting is noted before it changes, in a folder for the host's network namespace. A locked
//! file in that folder belongs to a living path; the kernel releases the lock of a process that
//! dies. The last path that needs a setting restores it, or else the next path to begin after its
//! death. The last path of all removes the folder.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::ifaddrs::getifaddrs;
use rustix::fs::{FlockOperation, flock};

use crate::namespace::Namespace;
use crate::netlink::{Confinement, Family, Source};

/// Paths at a time on one host: as many as there are networks for them.
pub const MOST: u8 = 250;

/// Says how to put things back: settings below `/proc/sys` and their values.
const BEFORE: &str = "before.json";
/// Held while the folder changes.
const LOCK: &str = "lock";
/// The name that a folder's begins with; the namespace's number follows.
const FOLDER: &str = "net-";
/// Folder of a path's drafts. It writes a file there and moves it once it is whole.
const DRAFTS: &str = "drafts";
/// The settings that a path needs as they are, one a line.
const NEEDS: &str = "needs";
/// Prefix of the names of paths' devices.
const DEVICE: &str = "verus";
const SETTINGS: &str = "/proc/sys/net";

/// A path's place on its host, until it is dropped.
#[derive(Debug)]
pub struct Place {
    folder: PathBuf,
    number: u8,
    _alive: File,
}

/// Addresses of both ends of a path, and its devices' name.
#[derive(Clone, Debug)]
pub struct Names {
    /// The name of the device at either end.
    pub device: String,
    /// The near end, which is the host's, and the far end, where programs run: within 100.64.0.0/10, as carriers
    /// use it (RFC 6598).
    pub ipv4: (Ipv4Addr, Ipv4Addr),
    /// The same for IPv6: unique local addresses (RFC 4193).
    pub ipv6: (Ipv6Addr, Ipv6Addr),
}

impl Names {
    /// Those of path `number`.
    pub fn new(number: u8) -> Self {
        let v4 = |end| Ipv4Addr::new(100, 64, number, end);
        // The global ID spells «verus».
        let v6 = |end| Ipv6Addr::new(0xfd76, 0x6572, 0x7573, u16::from(number), 0, 0, 0, end);
        Names {
            device: format!("{DEVICE}{number}"),
            ipv4: (v4(1), v4(2)),
            ipv6: (v6(1), v6(2)),
        }
    }
}

impl Place {
    /// Takes a place on the host of the calling thread's network namespace, after clearing away what paths that
    /// died have left. Notes are kept in a folder of `notes` (`/run/verus` for root), which must be ours alone.
    ///
    /// # Errors
    /// If all places are taken, or the notes cannot be kept.
    pub fn take(notes: &Path) -> io::Result<Self> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("`{}`: {error}", notes.display()))
        };
        own_folder(notes).map_err(named)?;
        let host = format!("{FOLDER}{}", Namespace::current()?.id()?);
        clear_up(notes, &host).map_err(named)?;
        let folder = notes.join(host);
        let _lock = lock(&folder).map_err(named)?;
        let living = sweep(&folder)?;
        put_back(&folder, &living)?;
        let addresses: Vec<Ipv4Addr> = getifaddrs()?
            .filter_map(|interface| Some(interface.address?.as_sockaddr_in()?.ip()))
            .collect();
        let taken = |number: u8| {
            let network = |address: &Ipv4Addr| address.octets()[..3] == [100, 64, number];
            living.contains(&number) || addresses.iter().any(network)
        };
        let number = (0..MOST)
            .find(|&number| !taken(number))
            .ok_or_else(|| io::Error::other(format!("{MOST} emulated paths are in use already")))?;
        let alive = File::create(folder.join(number.to_string()))?;
        flock(&alive, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Place {
            folder,
            number,
            _alive: alive,
        })
    }

    /// Its number, unlike that of any other path here.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// A file of this path's own, which is gone when the path is.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{}.{name}", self.number))
    }

    /// Notes that the file `path` is a draft, to be removed should this process die before it has done so itself or given
    /// it its name.
    ///
    /// # Errors
    /// If that cannot be noted.
    pub fn draft(&self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.file(DRAFTS))?;
        file.write_all(std::path::absolute(path)?.as_os_str().as_bytes())?;
        file.write_all(b"\0")
    }

    /// Lets the host forward packets from this path's `device` and back to it, until the path ends. Where the host
    /// would not forward otherwise, the answer keeps it from forwarding anything else as long as that is kept.
    ///
    /// A packet is forwarded if the interface that it came by says so: the device, and any by which answers come.
    /// For IPv6 only the whole host can say so (the kernel's ip-sysctl, `conf/all/forwarding`).
    ///
    /// # Errors
    /// If a setting cannot be changed or noted, or the rest cannot be confined: nothing is forwarded then.
    pub fn forward(&self, device: &str, ipv6: bool) -> io::Result<Option<Confinement>> {
        let _lock = lock(&self.folder)?;
        let noted = notes(&self.folder)?;
        let ours = |name: &str| -> io::Result<bool> {
            Ok(read(name)? == "0" || noted.contains_key(&format!("0 {name}")))
        };
        let table = format!("{device}-{}-forward", std::process::id());
        if ipv6 {
            const ALL: &str = "ipv6/conf/all/forwarding";
            let confinement = ours(ALL)?
                .then(|| Confinement::new(&table, Family::V6, &[Source::AnyBut(DEVICE)], DEVICE))
                .transpose()?;
            // A host that forwards ignores router advertisements, and with them its own default
            // route, unless told otherwise (the kernel's ip-sysctl, accept_ra).
            for name in matching("ipv6/conf/*/accept_ra")? {
                if read(&name)? == "1" || noted.contains_key(&format!("0 {name}")) {
                    self.set(&name, "2", &[])?;
                }
            }
            self.set(ALL, "1", &["ipv6/conf/*/forwarding"])?;
            return Ok(confinement);
        }
        let name = |interface: &str| format!("ipv4/conf/{interface}/forwarding");
        let mut answering = Vec::new();
        for entry in fs::read_dir(Path::new(SETTINGS).join("ipv4/conf"))? {
            let Ok(interface) = entry?.file_name().into_string() else {
                continue;
            };
            let real = !["all", "default", "lo"].contains(&interface.as_str());
            // One that is just going away does not answer.
            if real && !interface.starts_with(DEVICE) && ours(&name(&interface)).unwrap_or(false) {
                answering.push(interface);
            }
        }
        let sources: Vec<Source<'_>> = answering
            .iter()
            .map(|interface| Source::Interface(interface))
            .collect();
        let confinement = (!sources.is_empty())
            .then(|| Confinement::new(&table, Family::V4, &sources, DEVICE))
            .transpose()?;
        for interface in &answering {
            self.set(&name(interface), "1", &[])?;
        }
        // This goes with the device.
        write(&name(device), "1")?;
        Ok(confinement)
    }

    /// Sets `name` to `value`. Before, notes the old value, with all of `along`, which change with
    /// it. Also notes that this path needs them so.
    fn set(&self, name: &str, value: &str, along: &[&str]) -> io::Result<()> {
        let mut names = vec![name.to_owned()];
        for pattern in along {
            names.extend(matching(pattern)?);
        }
        let mut needs = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.file(NEEDS))?;
        needs.write_all((names.join("\n") + "\n").as_bytes())?;
        if read(name)? == value {
            return Ok(());
        }
        let mut notes = notes(&self.folder)?;
        for (index, name) in names.iter().enumerate() {
            // In the order of putting back: the one that the others follow comes first.
            let order = usize::from(index > 0);
            let before = read(name)?;
            notes.entry(format!("{order} {name}")).or_insert(before);
        }
        note(&self.folder, &notes)?;
        write(name, value)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A path that cannot clear up leaves it to the next.
        let Ok(_lock) = lock(&self.folder) else {
            return;
        };
        let _ = remove(&self.folder, self.number);
        let Ok(living) = sweep(&self.folder) else {
            return;
        };
        if put_back(&self.folder, &living).is_ok() && living.is_empty() {
            let _ = fs::remove_dir_all(&self.folder);
            // Unless there are others.
            let _ = self.folder.parent().map(fs::remove_dir);
        }
    }
}

/// Makes a folder that no other user may write to, or checks that an existing one is such a folder.
///
/// # Errors
/// If it cannot be made, or another user owns it or may write to it.
pub fn own_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let metadata = fs::symlink_metadata(folder)?;
    let writable = metadata.mode() & 0o022 != 0;
    if !metadata.is_dir() || metadata.uid() != nix::unistd::geteuid().as_raw() || writable {
        let kind = io::ErrorKind::InvalidInput;
        return Err(io::Error::new(kind, "others may write there"));
    }
    Ok(())
}

/// Clears away what paths that died have left in all folders but `host`'s. Only within its own namespace can a
/// setting be put back, so notes are kept as long as there is the namespace.
fn clear_up(notes: &Path, host: &str) -> io::Result<()> {
    // One that ends may just have removed them.
    for entry in fs::read_dir(notes).into_iter().flatten() {
        let folder = entry?.path();
        let name = folder.file_name().and_then(OsStr::to_str).unwrap_or("");
        let Some(namespace) = name.strip_prefix(FOLDER).filter(|_| name != host) else {
            continue;
        };
        let _lock = lock(&folder)?;
        if sweep(&folder)?.is_empty()
            && (!folder.join(BEFORE).exists() || !is_inhabited(namespace)?)
        {
            fs::remove_dir_all(&folder)?;
        }
    }
    Ok(())
}

/// Whether a process that we may look at is in the network namespace of this number, or the namespace has a
/// name (`ip netns`).
fn is_inhabited(namespace: &str) -> io::Result<bool> {
    let inode = namespace.parse().unwrap_or(0);
    let inhabited = fs::read_dir("/proc")?
        .flatten()
        .map(|process| process.path().join("ns/net"))
        .any(|its| fs::metadata(its).is_ok_and(|its| its.ino() == inode));
    let named = || {
        fs::read_dir("/run/netns")
            .into_iter()
            .flatten()
            .flatten()
            .any(|entry| fs::metadata(entry.path()).is_ok_and(|its| its.ino() == inode))
    };
    Ok(inhabited || named())
}

/// Waits for the folder, which is made if need be, and holds it until the file is dropped.
fn lock(folder: &Path) -> io::Result<File> {
    loop {
        fs::create_dir_all(folder)?;
        let path = folder.join(LOCK);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        // The process that held it may have removed the folder meanwhile.
        let file = match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        flock(&file, FlockOperation::LockExclusive)?;
        if fs::metadata(&path).is_ok_and(|metadata| same(&metadata, &file)) {
            return Ok(file);
        }
    }
}

fn same(metadata: &fs::Metadata, file: &File) -> bool {
    file.metadata()
        .is_ok_and(|file| (file.dev(), file.ino()) == (metadata.dev(), metadata.ino()))
}

/// Clears away the files of paths that have died; returns the numbers of those that live.
fn sweep(folder: &Path) -> io::Result<Vec<u8>> {
    let mut living = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let file = File::open(entry.path())?;
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            remove(folder, number)?;
        } else {
            living.push(number);
        }
    }
    Ok(living)
}

/// Removes a path's files, and its drafts.
fn remove(folder: &Path, number: u8) -> io::Result<()> {
    let drafts = fs::read(folder.join(format!("{number}.{DRAFTS}"))).unwrap_or_default();
    for draft in drafts.split(|&byte| byte == 0).map(OsStr::from_bytes) {
        let _ = fs::remove_file(draft);
    }
    let prefix = format!("{number}.");
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with(&prefix)) {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_file(folder.join(number.to_string()))
}

fn notes(folder: &Path) -> io::Result<BTreeMap<String, String>> {
    match fs::read(folder.join(BEFORE)) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error),
    }
}

fn note(folder: &Path, notes: &BTreeMap<String, String>) -> io::Result<()> {
    let draft = folder.join("before.part");
    let mut file = File::create(&draft)?;
    file.write_all(&serde_json::to_vec_pretty(notes)?)?;
    file.sync_all()?;
    fs::rename(draft, folder.join(BEFORE))
}

/// Whether devices made here may have IPv6.
pub fn has_ipv6() -> bool {
    let on = |which| {
        read(&format!("ipv6/conf/{which}/disable_ipv6")).is_ok_and(|disabled| disabled == "0")
    };
    on("all") && on("default")
}

/// For a device that is not up yet: what crosses the path is what programs send, not what the kernel says of
/// itself to neighbours that are not there.
///
/// # Errors
/// If a setting cannot be changed.
pub fn hush(device: &str) -> io::Result<()> {
    if !Path::new(SETTINGS).join("ipv6/conf").join(device).exists() {
        return Ok(());
    }
    // No address of the link, and no asking for routers.
    write(&format!("ipv6/conf/{device}/addr_gen_mode"), "1")?;
    write(&format!("ipv6/conf/{device}/router_solicitations"), "0")
}

/// Restores the noted settings, except those that a living path needs.
fn put_back(folder: &Path, living: &[u8]) -> io::Result<()> {
    let mut needed = BTreeSet::new();
    for number in living {
        match fs::read_to_string(folder.join(format!("{number}.{NEEDS}"))) {
            Ok(names) => needed.extend(names.lines().map(str::to_owned)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let all = notes(folder)?;
    if all.is_empty() {
        return Ok(());
    }
    let is_needed = |key: &String| {
        let name = key.split_once(' ').map(|(_, name)| name);
        name.is_some_and(|name| needed.contains(name))
    };
    let (kept, due): (BTreeMap<_, _>, BTreeMap<_, _>) =
        all.into_iter().partition(|(key, _)| is_needed(key));
    for (key, value) in &due {
        let Some((_, name)) = key.split_once(' ') else {
            continue;
        };
        // An interface may be gone.
        if read(name).is_ok_and(|now| now != *value) {
            write(name, value)?;
        }
    }
    if !kept.is_empty() {
        return note(folder, &kept);
    }
    fs::remove_file(folder.join(BEFORE))
}

fn read(name: &str) -> io::Result<String> {
    let text = fs::read_to_string(Path::new(SETTINGS).join(name))?;
    Ok(text.trim().to_owned())
}

fn write(name: &str, value: &str) -> io::Result<()> {
    fs::write(Path::new(SETTINGS).join(name), value)
        .map_err(|error| io::Error::new(error.kind(), format!("{SETTINGS}/{name}: {error}")))
}

/// The settings whose names match `pattern`, in which one part may be `*`.
fn matching(pattern: &str) -> io::Result<Vec<String>> {
    let Some((before, after)) = pattern.split_once("/*/") else {
        return Ok(Vec::new());
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(Path::new(SETTINGS).join(before))? {
        let part = entry?.file_name();
        let name = format!("{before}/{}/{after}", part.to_string_lossy());
        if Path::new(SETTINGS).join(&name).exists() {
            names.push(name);
        }
    }
    Ok(names)
}
