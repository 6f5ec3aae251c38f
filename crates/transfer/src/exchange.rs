//! One file crossing one stream: [`supply`] at the end that it comes from, [`take`] at the other.
//!
//! The receiver begins. It reports the part of the file that it already has, as digests of pieces,
//! and learns how much of that is right. Then the data come in order, without holes, and at the end
//! the digest of the whole.
//!
//! No wait is endless (see [`wire`](super::wire)). Two things take long without a message, by
//! design. While both ends read a piece from disk, each allows the other time. While the receiver
//! writes, it reports its position every [`SIGN`].

use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::Gauge;
use super::digest::{BLOCK, Digest, Tally};
use super::files::{Part, Place, Reader, Run, Source, Standing};
use super::frames::{Demand, FileInfo, Subject, Supply};
use super::housekeeping::Room;
use super::refusal::{Reason, Refusal};
use super::wire::{Receiving, Sending, Trouble, Wire};

/// Interval of the receiver's reports of its position, in bytes.
const REPORT: u64 = 1 << 20;
/// How long an end that was stopped waits for the reason.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Interval of the receiver's signs of life, while it writes or waits for data.
const SIGN: Duration = Duration::from_secs(10);
/// A disk that reads slower than this, in bytes a second, is taken for dead.
const SLOWEST_DISK: u32 = 4 << 20;

/// Result of the transfer of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Its size, in bytes.
    pub size: u64,
    /// How much of its data went over the wire now; holes do not.
    pub moved: u64,
    /// How much an earlier attempt had left.
    pub kept: u64,
    /// It was there already, the very same.
    pub same: bool,
}

/// Work on files, on a thread where it delays no connection.
pub(super) async fn off<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Trouble> {
    spawn_blocking(work).await.map_err(|_| {
        Trouble::Here(Refusal::new(
            Reason::Storage,
            "work on a file was cut short",
        ))
    })
}

/// Time for both ends to read `bytes`, which are at this end. A size that only the peer claims
/// gives it no time.
fn reading(bytes: u64) -> Duration {
    2 * Duration::from_secs(bytes) / SLOWEST_DISK
}

/// Sends `sign` at intervals while `work` goes on.
async fn while_alive<T>(
    sending: &mut Sending,
    sign: &Demand,
    work: impl Future<Output = T>,
) -> Result<T, Trouble> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return Ok(done),
            () = sleep(SIGN) => sending.sign(sign).await?,
        }
    }
}

fn protocol(text: &str) -> Trouble {
    Trouble::Protocol(text.to_owned())
}

fn unreadable(error: &io::Error) -> Refusal {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        changed()
    } else {
        Refusal::from_io("cannot read it", error)
    }
}

fn changed() -> Refusal {
    Refusal::new(
        Reason::Changed,
        "the file was changed while it was sent; send it again",
    )
}

/// Sends a file to the peer, which requests the part that it lacks.
pub(super) async fn supply(
    wire: &mut Wire,
    source: &Source,
    gauge: &Gauge,
) -> Result<Delivered, Trouble> {
    let result = try_supply(wire, source, gauge).await;
    if let Some(refusal) = result.as_ref().err().and_then(Trouble::for_peer) {
        let _ = timeout(LAST_WORDS, wire.send(&Supply::Failed(refusal))).await;
    }
    result
}

async fn try_supply(wire: &mut Wire, source: &Source, gauge: &Gauge) -> Result<Delivered, Trouble> {
    let size = source.info.size;
    let mut reader = source.read().map_err(Trouble::Here)?;
    let mut target_checked = false;
    loop {
        match wire.receive().await? {
            Demand::Check {
                subject: Subject::Target,
                bytes,
            } if !target_checked && bytes == size => {
                target_checked = true;
                reader = compare(wire, reader, bytes).await?;
            }
            Demand::Check {
                subject: Subject::Part,
                bytes,
            } if bytes <= size && (bytes == size || bytes.is_multiple_of(BLOCK)) => {
                reader.rewind(0);
                reader = compare(wire, reader, bytes).await?;
                break;
            }
            Demand::Done => {
                if source.changed() {
                    return Err(Trouble::Here(changed()));
                }
                gauge.start(size);
                return Ok(Delivered {
                    size,
                    same: true,
                    ..Delivered::default()
                });
            }
            Demand::Failed(refusal) => return Err(Trouble::There(refusal)),
            _ => return Err(protocol("a demand out of turn")),
        }
    }
    let kept = reader.tally().position();
    gauge.start(kept);
    let mut moved = 0;
    {
        let Wire { sending, receiving } = wire;
        let listen = listen(receiving, size, gauge);
        let send = send(sending, source, reader, &mut moved, gauge);
        tokio::pin!(listen, send);
        let sent = tokio::select! {
            // Nothing can be done before all is sent; the peer may well have failed.
            heard = &mut listen => match heard {
                Ok(()) => Err(protocol("done before the end")),
                Err(trouble) => Err(trouble),
            },
            sent = &mut send => match sent {
                Ok(()) => listen.await,
                // The peer has stopped the transfer, and sends the reason.
                Err(Trouble::Stopped) => match timeout(LAST_WORDS, listen).await {
                    Ok(Err(trouble)) => Err(trouble),
                    _ => Err(Trouble::Stopped),
                },
                Err(trouble) => Err(trouble),
            },
        };
        sent?;
    }
    gauge.set(size);
    Ok(Delivered {
        size,
        moved,
        kept,
        same: false,
    })
}

/// Tells the peer which pieces of its first `bytes` are the same here. The reader is left where the
/// first difference begins.
async fn compare(wire: &mut Wire, mut reader: Reader, bytes: u64) -> Result<Reader, Trouble> {
    let piece = reader.tally().piece();
    let expected = bytes.div_ceil(piece);
    let mut whole = 0;
    let mut matching = true;
    let mut count = 0;
    wire.allow(reading(piece.min(bytes)));
    loop {
        match wire.receive().await? {
            Demand::Piece(digest) => {
                count += 1;
                if count > expected {
                    return Err(protocol("more pieces than there can be"));
                }
                if !matching {
                    continue;
                }
                let end = (count * piece).min(bytes);
                let read = off(move || reader.skip_to(end).map(|_| reader)).await?;
                reader = read.map_err(|error| Trouble::Here(unreadable(&error)))?;
                matching = reader.tally().latest() == digest;
                if matching {
                    whole = reader.tally().pieces();
                }
                wire.send(&Supply::Same(matching)).await?;
            }
            Demand::EndOfPieces => break,
            Demand::Failed(refusal) => return Err(Trouble::There(refusal)),
            _ => return Err(protocol("a demand out of turn")),
        }
    }
    wire.allow(Duration::ZERO);
    if !matching {
        reader.rewind(whole);
    }
    Ok(reader)
}

/// Sends the rest, and reads one run while another is sent.
async fn send(
    sending: &mut Sending,
    source: &Source,
    reader: Reader,
    moved: &mut u64,
    gauge: &Gauge,
) -> Result<(), Trouble> {
    type Read = (Reader, io::Result<Option<Run>>);
    let size = source.info.size;
    let read = move |mut reader: Reader| -> JoinHandle<Read> {
        spawn_blocking(move || {
            let run = reader.next_run(size);
            (reader, run)
        })
    };
    let cut_short = |_| {
        Trouble::Here(Refusal::new(
            Reason::Storage,
            "reading the file was cut short",
        ))
    };
    let (mut reader, mut run) = read(reader).await.map_err(cut_short)?;
    while let Some(Run { at, bytes }) = run.map_err(|error| Trouble::Here(unreadable(&error)))? {
        let next = read(reader);
        let length = bytes.len() as u64;
        sending.send(&Supply::Data { at, length }).await?;
        sending.bytes(&bytes).await?;
        *moved += length;
        gauge.add_moved(length);
        (reader, run) = next.await.map_err(cut_short)?;
    }
    if source.changed() {
        return Err(Trouble::Here(changed()));
    }
    let digest = off(move || reader.finish()).await?;
    sending.send(&Supply::End { digest }).await
}

/// Receives the peer's progress until it is done.
async fn listen(receiving: &mut Receiving, size: u64, gauge: &Gauge) -> Result<(), Trouble> {
    loop {
        match receiving.receive_sign().await? {
            Demand::Received { position } => {
                // The same position again only shows that the peer is alive.
                if position > gauge.position() {
                    gauge.set(position.min(size));
                    receiving.progress();
                }
            }
            Demand::Done => return Ok(()),
            Demand::Failed(refusal) => return Err(Trouble::There(refusal)),
            _ => return Err(protocol("a demand out of turn")),
        }
    }
}

/// Takes a file from the peer and puts it in its place.
pub(super) async fn take(
    wire: &mut Wire,
    place: Place,
    info: FileInfo,
    room: &Room,
    gauge: &Gauge,
) -> Result<Delivered, Trouble> {
    let result = try_take(wire, place, info, room, gauge).await;
    if let Some(refusal) = result.as_ref().err().and_then(Trouble::for_peer) {
        let _ = timeout(LAST_WORDS, wire.send(&Demand::Failed(refusal))).await;
        wire.stop();
    }
    result
}

async fn try_take(
    wire: &mut Wire,
    place: Place,
    info: FileInfo,
    room: &Room,
    gauge: &Gauge,
) -> Result<Delivered, Trouble> {
    let size = info.size;
    let mut target = examine_target(wire, &place, info, room).await?;
    let mut part = None;
    if target != Target::Same {
        part = Some(open_part(place.clone()).await?);
    }
    if target == Target::Nothing {
        // Another transfer may have completed the file before its lock on the unfinished one was free.
        target = examine_target(wire, &place, info, room).await?;
    }
    let Some(mut part) = part.filter(|_| target != Target::Same) else {
        wire.send(&Demand::Done).await?;
        gauge.start(size);
        return Ok(Delivered {
            size,
            same: true,
            ..Delivered::default()
        });
    };
    part = {
        let room = room.clone();
        let booked = off(move || part.book(&room, size).map(|_| part)).await?;
        booked.map_err(Trouble::Here)?
    };
    let (reader, length) = part.read(size).map_err(Trouble::Here)?;
    let (reader, kept) = check(wire, Subject::Part, reader, length).await?;
    let tally = reader.into_tally();
    part = {
        let sign = Demand::Received { position: kept };
        let cut = off(move || part.cut(kept).map(|_| part));
        let cut = while_alive(&mut wire.sending, &sign, cut).await??;
        cut.map_err(Trouble::Here)?
    };
    gauge.start(kept);
    let (part, tally, moved, digest) = fill(wire, part, tally, size, gauge).await?;
    let finish = off(move || {
        if tally.finish() == digest {
            part.finish(&info)
        } else {
            Err(Refusal::new(
                Reason::Damaged,
                "what arrived is not what was sent; send it again",
            ))
        }
    });
    let sign = Demand::Received { position: size };
    while_alive(&mut wire.sending, &sign, finish)
        .await??
        .map_err(Trouble::Here)?;
    wire.send(&Demand::Done).await?;
    gauge.set(size);
    Ok(Delivered {
        size,
        moved,
        kept,
        same: false,
    })
}

/// The state of a file's destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Nothing,
    Same,
    /// Something else, which may be replaced.
    Other,
}

/// Examines the destination. A file there that may not be replaced is refused.
async fn examine_target(
    wire: &mut Wire,
    place: &Place,
    info: FileInfo,
    room: &Room,
) -> Result<Target, Trouble> {
    let size = info.size;
    let looked = {
        let place = place.clone();
        off(move || place.look(&info))
            .await?
            .map_err(Trouble::Here)?
    };
    let different = match looked {
        Standing::Nothing => return Ok(Target::Nothing),
        _ if place.apart.is_some() => "something",
        Standing::Different(what) => what,
        Standing::SameSize(file) => {
            let (_, kept) = check(wire, Subject::Target, Reader::new(file, size), size).await?;
            if kept == size {
                let (place, room) = (place.clone(), room.clone());
                off(move || place.forget_part(&room)).await?;
                return Ok(Target::Same);
            }
            "another file of the same size"
        }
    };
    if place.replace {
        return Ok(Target::Other);
    }
    let text = format!("{different} of that name is there already; --force replaces it");
    Err(Trouble::Here(Refusal::new(Reason::Exists, text)))
}

/// Writes the data from the peer until its end message. Returns the part and its tally, the bytes
/// that moved, and the digest that the whole must have.
async fn fill(
    wire: &mut Wire,
    mut part: Part,
    mut tally: Tally,
    size: u64,
    gauge: &Gauge,
) -> Result<(Part, Tally, u64, Digest), Trouble> {
    let (mut moved, mut reported) = (0, tally.position());
    let digest = loop {
        let sign = Demand::Received {
            position: tally.position(),
        };
        let Wire { sending, receiving } = &mut *wire;
        match while_alive(sending, &sign, receiving.receive()).await?? {
            Supply::Data { at, length } => {
                let end = at + length;
                let torn = !length.is_multiple_of(BLOCK) && end != size;
                if at < tally.position() || end > size || torn {
                    return Err(protocol("data where none can be"));
                }
                let mut bytes = vec![0; length as usize];
                while_alive(sending, &sign, receiving.bytes(&mut bytes)).await??;
                let run = Run { at, bytes };
                let write = off(move || {
                    part.write(&run)?;
                    tally.zeros(at);
                    tally.data(&run.bytes);
                    Ok((part, tally))
                });
                let written = while_alive(sending, &sign, write).await??;
                (part, tally) = written.map_err(Trouble::Here)?;
                moved += length;
                gauge.add_moved(length);
                gauge.set(end);
                if end - reported >= REPORT {
                    reported = end;
                    wire.send(&Demand::Received { position: end }).await?;
                }
            }
            Supply::End { digest } => break digest,
            Supply::Failed(refusal) => return Err(Trouble::There(refusal)),
            Supply::Same(_) => return Err(protocol("a supply out of turn")),
        }
    };
    Ok((part, tally, moved, digest))
}

/// Asks the peer how much of the first `length` bytes is right. Consumes the reader and its tally.
async fn check(
    wire: &mut Wire,
    subject: Subject,
    mut reader: Reader,
    length: u64,
) -> Result<(Reader, u64), Trouble> {
    let bytes = length;
    wire.send(&Demand::Check { subject, bytes }).await?;
    let piece = reader.tally().piece();
    let pieces = length.div_ceil(piece);
    wire.allow(reading(piece.min(length)));
    for number in 1..=pieces {
        let end = (number * piece).min(length);
        let read = off(move || reader.skip_to(end).map(|_| reader)).await?;
        reader = read.map_err(|error| Trouble::Here(unreadable(&error)))?;
        wire.send(&Demand::Piece(reader.tally().latest())).await?;
    }
    wire.send(&Demand::EndOfPieces).await?;
    for number in 0..pieces {
        match wire.receive().await? {
            Supply::Same(true) => {}
            Supply::Same(false) => {
                wire.allow(Duration::ZERO);
                reader.rewind(number as usize);
                return Ok((reader, number * piece));
            }
            Supply::Failed(refusal) => return Err(Trouble::There(refusal)),
            _ => return Err(protocol("a supply out of turn")),
        }
    }
    wire.allow(Duration::ZERO);
    Ok((reader, length))
}

/// Opens the unfinished file. Retries for a moment, since an earlier transfer may still be
/// stopping.
async fn open_part(place: Place) -> Result<Part, Trouble> {
    const TRIES: u32 = 100;
    const PAUSE: Duration = Duration::from_millis(20);
    for _ in 1..TRIES {
        let place = place.clone();
        match off(move || Part::open(&place)).await? {
            Err(refusal) if refusal.reason == Reason::Busy => tokio::time::sleep(PAUSE).await,
            other => return other.map_err(Trouble::Here),
        }
    }
    off(move || Part::open(&place))
        .await?
        .map_err(Trouble::Here)
}
