//! What an emulated path needs of the host that it stands on, and giving it back: a number for its devices and
//! addresses, and forwarding.
//!
//! Everything is written down before it is changed, in a folder for the host's network namespace. A file of
//! that folder that is locked belongs to a path that lives; the kernel takes the lock from whoever dies. The
//! last path to end, or the first to begin after all others have died, puts things back and removes the folder.

use std::collections::BTreeMap;
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

/// Paths at a time on one host: as many as there are networks for them.
pub const MOST: u8 = 250;

/// Says how to put things back: settings below `/proc/sys` and their values.
const BEFORE: &str = "before.json";
/// Held while the folder changes.
const LOCK: &str = "lock";
/// The name that a folder's begins with; the namespace's number follows.
const FOLDER: &str = "net-";
/// A path's drafts: what it is writing elsewhere, which is nothing before it is whole.
const DRAFTS: &str = "drafts";
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
            device: format!("verus{number}"),
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
        if living.is_empty() {
            put_back(&folder)?;
        }
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

    /// Notes that `path` is a draft, to be removed should this process die before it has done so itself or given
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

    /// Lets the host forward packets between its interfaces, until no path needs it any more.
    ///
    /// # Errors
    /// If a setting cannot be changed or noted.
    pub fn forward(&self, ipv6: bool) -> io::Result<()> {
        let _lock = lock(&self.folder)?;
        // The kernel changes these with it (ip-sysctl).
        let along = ["ipv4/conf/*/forwarding", "ipv4/conf/*/accept_redirects"];
        self.set("ipv4/ip_forward", "1", &along)?;
        if ipv6 {
            // A host that forwards ignores router advertisements, and with them its own default
            // route, unless told otherwise (the kernel's ip-sysctl, accept_ra).
            for name in matching("ipv6/conf/*/accept_ra")? {
                if read(&name)? == "1" {
                    self.set(&name, "2", &[])?;
                }
            }
            let along = ["ipv6/conf/*/forwarding"];
            self.set("ipv6/conf/all/forwarding", "1", &along)?;
        }
        Ok(())
    }

    /// Sets `name` to `value`, having noted what it was, with all of `along`, which change with it.
    fn set(&self, name: &str, value: &str, along: &[&str]) -> io::Result<()> {
        let before = read(name)?;
        if before == value {
            return Ok(());
        }
        let mut notes = notes(&self.folder)?;
        // In the order of putting back: the one that the others follow comes first.
        notes.entry(format!("0 {name}")).or_insert(before);
        for pattern in along {
            for other in matching(pattern)? {
                let before = read(&other)?;
                notes.entry(format!("1 {other}")).or_insert(before);
            }
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
        if sweep(&self.folder).is_ok_and(|living| living.is_empty())
            && put_back(&self.folder).is_ok()
        {
            let _ = fs::remove_dir_all(&self.folder);
            // Unless there are others.
            let _ = self.folder.parent().map(fs::remove_dir);
        }
    }
}

/// Makes a folder that nobody else may write to, or makes sure of that.
fn own_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let found = fs::symlink_metadata(folder)?;
    let writable = found.mode() & 0o022 != 0;
    if !found.is_dir() || found.uid() != nix::unistd::geteuid().as_raw() || writable {
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
        // Whoever held it may have removed the folder meanwhile.
        let file = match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        flock(&file, FlockOperation::LockExclusive)?;
        if fs::metadata(&path).is_ok_and(|found| same(&found, &file)) {
            return Ok(file);
        }
    }
}

fn same(found: &fs::Metadata, file: &File) -> bool {
    file.metadata()
        .is_ok_and(|file| (file.dev(), file.ino()) == (found.dev(), found.ino()))
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
        let _ = fs::remove_file(draft).or_else(|_| fs::remove_dir_all(draft));
    }
    let own = format!("{number}.");
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with(&own)) {
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

/// Restores the settings as they were noted.
fn put_back(folder: &Path) -> io::Result<()> {
    for (name, value) in notes(folder)? {
        let Some((_, name)) = name.split_once(' ') else {
            continue;
        };
        // An interface may be gone.
        if read(name).is_ok_and(|now| now != value) {
            write(name, &value)?;
        }
    }
    match fs::remove_file(folder.join(BEFORE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
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
