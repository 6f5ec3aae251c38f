//! Senders that run in real time only: the kernel's, one of ours in the kernel, and any program.

/// Prefix of congestion controls that the kernel has.
const LINUX: &str = "linux:cc=";
/// Prefix of our schemes in the kernel.
const KERNEL: &str = "kernel:";
/// Prefix of programs: `cmd:…`, or `cmd[LABEL]:…`.
const PROGRAM: &str = "cmd";
/// Key of the size of a TCP receiver's buffer.
const BUFFER: &str = "rcvbuf=";
/// Separates a sender's command from its receiver's.
const BETWEEN: &str = "=>";

/// A sender that runs in real time only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum External {
    /// `linux:cc=NAME`: the kernel's TCP.
    Linux(LinuxTcp),
    /// `kernel:SCHEME`: the kernel's TCP with one of ours, which is loaded for the run.
    Kernel(String),
    /// `cmd:SENDER => RECEIVER`: any other program.
    Program(Program),
}

/// The kernel's TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinuxTcp {
    /// The name of its congestion control.
    pub cc: String,
    /// The receiver's buffer in bytes, which bounds the window that it advertises (`rcvbuf=BYTES`, `SO_RCVBUFFORCE`). Without
    /// it, the kernel adapts the buffer up to `net.ipv4.tcp_rmem`.
    pub receive_buffer: Option<usize>,
}

impl LinuxTcp {
    fn parse(text: &str) -> Result<Self, String> {
        let (cc, settings) = text.split_once(',').unwrap_or((text, ""));
        let receive_buffer = match settings {
            "" => None,
            _ => Some(
                (settings.strip_prefix(BUFFER))
                    .and_then(|bytes| bytes.parse().ok())
                    .filter(|bytes| (4096..1 << 30).contains(bytes))
                    .ok_or_else(|| format!("takes {BUFFER}BYTES after its name, 4096 to 2^30"))?,
            ),
        };
        Ok(LinuxTcp {
            cc: cc.to_owned(),
            receive_buffer,
        })
    }
}

/// The programs of a flow, as command lines of a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// A name for tables and figures.
    pub label: String,
    /// The sender.
    pub sender: String,
    /// The receiver; if there is none, our TCP sink receives.
    pub receiver: Option<String>,
}

impl External {
    /// Reads a scheme; `None` if it is of another kind. The error is a program's, and goes on from the scheme's text.
    pub fn parse(text: &str) -> Option<Result<Self, String>> {
        if let Some(tcp) = text.strip_prefix(LINUX) {
            return Some(LinuxTcp::parse(tcp).map(External::Linux));
        }
        if let Some(scheme) = text.strip_prefix(KERNEL) {
            return Some(Ok(External::Kernel(scheme.to_owned())));
        }
        Program::parse(text).map(|program| program.map(External::Program))
    }
}

impl Program {
    fn parse(text: &str) -> Option<Result<Self, String>> {
        let rest = text.trim().strip_prefix(PROGRAM)?;
        let (label, words) = match rest.strip_prefix('[') {
            Some(labelled) => labelled.split_once(']')?,
            None => ("", rest),
        };
        let words = words.strip_prefix(':')?;
        let (sender, receiver) = match words.split_once(BETWEEN) {
            Some((sender, receiver)) => (sender.trim(), Some(receiver.trim())),
            None => (words.trim(), None),
        };
        let Some(command) = sender
            .split_whitespace()
            .next()
            .filter(|_| receiver != Some(""))
        else {
            return Some(Err(format!(
                "names no command (`cmd:SENDER`, or `cmd:SENDER {BETWEEN} RECEIVER`)"
            )));
        };
        let label = match label {
            "" => command.rsplit('/').next().unwrap_or(command),
            label => label,
        };
        Some(Ok(Program {
            label: label.to_owned(),
            sender: sender.to_owned(),
            receiver: receiver.map(str::to_owned),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_of_real_time_is_of_the_kernel_or_names_one_program_or_two() {
        let parsed = |text| External::parse(text).map(|scheme| scheme.expect("valid"));
        let program = |label: &str, receiver: Option<&str>| {
            Some(External::Program(Program {
                label: label.to_owned(),
                sender: "bin/send {host}".to_owned(),
                receiver: receiver.map(str::to_owned),
            }))
        };
        assert_eq!(parsed("cubic"), None);
        assert_eq!(parsed("cmd.py"), None);
        assert_eq!(parsed("cmd[a]b"), None);
        let linux = |cc: &str, receive_buffer| {
            Some(External::Linux(LinuxTcp {
                cc: cc.to_owned(),
                receive_buffer,
            }))
        };
        assert_eq!(parsed("linux:cc=bbr"), linux("bbr", None));
        assert_eq!(
            parsed("linux:cc=bbr,rcvbuf=60000"),
            linux("bbr", Some(60_000))
        );
        for bad in ["rcvbuf=many", "rcvbuf=1", "buf=4096"] {
            let problem = External::parse(&format!("linux:cc=bbr,{bad}"));
            assert!(problem.expect("such a scheme").is_err(), "{bad}");
        }
        assert_eq!(
            parsed("kernel:forward:budget_ms=50"),
            Some(External::Kernel("forward:budget_ms=50".to_owned()))
        );
        assert_eq!(parsed("cmd:bin/send {host}"), program("send", None));
        assert_eq!(
            parsed(" cmd[a: b]: bin/send {host} => take -p {port}"),
            program("a: b", Some("take -p {port}"))
        );
        for nothing in ["cmd:", "cmd: => take", "cmd:send =>"] {
            let problem = External::parse(nothing)
                .expect("such a scheme")
                .expect_err("no sender");
            assert!(problem.starts_with("names no command"), "{problem}");
        }
    }
}
