//! Senders that run in real time only: the kernel's, one of ours in the kernel, and any program.

/// Prefix of congestion controls that the kernel has.
const LINUX: &str = "linux:cc=";
/// Prefix of our schemes in the kernel.
const KERNEL: &str = "kernel:";
/// Prefix of programs: `cmd:…`, or `cmd[LABEL]:…`.
const PROGRAM: &str = "cmd";
/// Separates a sender's command from its receiver's.
const BETWEEN: &str = "=>";

/// A sender that runs in real time only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum External {
    /// `linux:cc=NAME`: the kernel's TCP with the congestion control of that name.
    Linux(String),
    /// `kernel:SCHEME`: the kernel's TCP with one of ours, which is loaded for the run.
    Kernel(String),
    /// `cmd:SENDER => RECEIVER`: any other program.
    Program(Program),
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
        if let Some(name) = text.strip_prefix(LINUX) {
            return Some(Ok(External::Linux(name.to_owned())));
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
        assert_eq!(
            parsed("linux:cc=bbr"),
            Some(External::Linux("bbr".to_owned()))
        );
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
