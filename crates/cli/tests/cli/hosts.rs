//! Hosts of a test's own, as network namespaces of `ip` (iproute2).

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Runs `ip` with these words, which must succeed.
pub fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output();
    let output = output.expect("`ip` (iproute2) is there");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "ip {words}: {error}");
}

/// A separate host; dropping it removes it.
pub struct Host(String);

impl Host {
    pub fn new() -> Self {
        // Never twice the same: a namespace may be busy for a while after it was removed.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let host = Host(format!("verus-test-{}-{count}", std::process::id()));
        ip(&format!("netns add {}", host.0));
        host.ip("link set lo up");
        host
    }

    pub fn ip(&self, words: &str) {
        ip(&format!("-n {} {words}", self.0));
    }

    /// A program on this host.
    pub fn run(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]);
        command.stdin(Stdio::null());
        command
    }

    /// Does `work` on a thread of this host.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let namespace = std::fs::File::open(format!("/run/netns/{}", self.0));
                let namespace = namespace.expect("`ip` keeps it there");
                let net = nix::sched::CloneFlags::CLONE_NEWNET;
                nix::sched::setns(&namespace, net).expect("we are root");
                work()
            });
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Joins two hosts by a cable; the names of its ends, and their addresses.
pub fn cable(ends: [(&Host, &str, &str); 2]) {
    let [(a, a_name, a_address), (b, b_name, b_address)] = ends;
    ip(&format!(
        "link add name {a_name} netns {} type veth peer name {b_name} netns {}",
        a.0, b.0
    ));
    for (host, name, address) in [(a, a_name, a_address), (b, b_name, b_address)] {
        // No waiting for others who might have the address.
        let nodad = if address.contains(':') { " nodad" } else { "" };
        host.ip(&format!("addr add {address} dev {name}{nodad}"));
        host.ip(&format!("link set dev {name} up"));
    }
}
