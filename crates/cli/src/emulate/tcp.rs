//! The kernel's TCP.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration as Span;

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use super::flow::{Flow, Outcome, Received};

/// How long a call may wait before the next check for the end of the run.
const WAIT: Span = Span::from_millis(100);
const CONNECTING: Span = Span::from_secs(10);

/// Receives until the run is over, into `buffer` bytes if given. Returns the bytes of data, without headers.
pub fn receive(flow: &Flow<'_>, buffer: Option<usize>) -> io::Result<Received> {
    let listener = TcpListener::bind(flow.receiver)?;
    if let Some(bytes) = buffer {
        // Before the handshake, which agrees on the window's scale.
        setsockopt(&listener, sockopt::RcvBufForce, &bytes)?;
    }
    listener.set_nonblocking(true)?;
    flow.stage.listen(flow.index);
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(error) if is_waiting(&error) && flow.stage.is_over() => {
                return Ok(Received::default());
            }
            Err(error) if is_waiting(&error) => std::thread::sleep(Span::from_millis(5)),
            Err(error) => return Err(error),
        }
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(WAIT))?;
    let mut buffer = vec![0; 1 << 18];
    let (mut received, mut completion) = (0u64, None);
    while !flow.stage.is_over() {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Ok(read) => {
                received += read as u64;
                completion = flow.completion(received, completion);
            }
            Err(error) if is_waiting(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Received {
        bytes: Some(received),
        completion,
    })
}

/// Sends until its data, its time or the run is over.
pub fn send(flow: &Flow<'_>, congestion_control: &str) -> io::Result<Outcome> {
    let socket = Socket::new(
        Domain::for_address(flow.receiver),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_tcp_congestion(congestion_control.as_bytes())?;
    // Unsent data are dropped when the run ends. Otherwise the kernel would try to send them for
    // minutes, and keep the namespace.
    socket.set_linger(Some(Span::ZERO))?;
    socket.connect_timeout(&flow.receiver.into(), CONNECTING)?;
    let mut stream: TcpStream = socket.into();
    stream.set_write_timeout(Some(WAIT))?;
    flow.stage.announce(flow.index, stream.local_addr()?.port());
    flow.await_start()?;
    let block = vec![0; 1 << 16];
    let mut remaining = flow.bytes.unwrap_or(u64::MAX);
    while remaining > 0 && !flow.is_over() {
        let next =
            usize::try_from(remaining).map_or(block.len(), |remaining| remaining.min(block.len()));
        match stream.write(&block[..next]) {
            // Data without an end is not counted.
            Ok(wrote) if flow.bytes.is_some() => remaining -= wrote as u64,
            Ok(_) => {}
            Err(error) if is_waiting(&error) => {}
            Err(error) => return Err(error),
        }
    }
    // Closing the connection drops data that has not arrived.
    if remaining == 0 {
        flow.stage.await_end();
    }
    Ok(Outcome {
        transport: "tcp",
        ..Default::default()
    })
}

fn is_waiting(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
