//! `probe client --log`: the events of each packet, as CSV.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use verus_core::Time;
use verus_probe::connection::Connection;
use verus_probe::flow::Event;

use crate::draft::{self, DraftFile};
use crate::failure::Failure;

fn failed(log: &Path, error: &io::Error) -> Failure {
    Failure::run(format_args!("--log: `{}`: {error}", log.display()))
}

/// The packet log: a CSV file that gets its name when it is complete.
pub(super) struct PacketLog {
    path: PathBuf,
    draft: DraftFile,
    file: BufWriter<File>,
    events: Vec<Event>,
}

impl PacketLog {
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let (draft, file) = draft::name(path)
            .and_then(|name| DraftFile::create(path, name))
            .map_err(|error| {
                Failure::usage(format_args!("--log: `{}`: {error}", path.display()))
            })?;
        let mut log = PacketLog {
            path: path.to_owned(),
            draft,
            file: BufWriter::new(file),
            events: Vec::new(),
        };
        let heading = "event,flow,number,at_us,size_bytes,window_bytes,sent_us,rtt_us,received_us";
        writeln!(log.file, "{heading}").map_err(|error| failed(&log.path, &error))?;
        Ok(log)
    }

    pub(super) fn take(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        let mut events = std::mem::take(&mut self.events);
        connection.drain_events(&mut events);
        for event in events.drain(..) {
            self.line(&event)
                .map_err(|error| failed(&self.path, &error))?;
        }
        self.events = events;
        Ok(())
    }

    fn line(&mut self, event: &Event) -> io::Result<()> {
        let micros = |at: Time| at.as_nanos() as f64 / 1e3;
        match *event {
            Event::Sent {
                flow,
                number,
                at,
                size,
                window,
                retransmission,
            } => {
                let kind = if retransmission { "resent" } else { "sent" };
                let (at, size, window) = (micros(at), size.get(), window.get());
                writeln!(self.file, "{kind},{flow},{number},{at},{size},{window},,,")
            }
            Event::Acked {
                flow,
                number,
                at,
                sent,
                rtt,
                window,
                received,
            } => {
                let rtt = rtt.as_nanos() as f64 / 1e3;
                let received = received.map_or_else(String::new, |at| micros(at).to_string());
                let (at, sent, window) = (micros(at), micros(sent), window.get());
                writeln!(
                    self.file,
                    "acked,{flow},{number},{at},,{window},{sent},{rtt},{received}"
                )
            }
            Event::Lost { flow, number, at } => {
                writeln!(self.file, "lost,{flow},{number},{},,,,,", micros(at))
            }
            Event::Received {
                flow,
                number,
                at,
                sent,
                size,
                ..
            } => {
                let (at, sent, size) = (micros(at), micros(sent), size.get());
                writeln!(self.file, "received,{flow},{number},{at},{size},,{sent},,")
            }
            // These concern no packet of the log, or an `acked` line covers them.
            Event::Told { .. } | Event::Control { .. } => Ok(()),
        }
    }

    pub(super) fn finish(mut self) -> Result<(), Failure> {
        self.file
            .flush()
            .and_then(|()| self.draft.publish())
            .map_err(|error| failed(&self.path, &error))
    }
}
