//! Our controllers over UDP: the paper's sender and receiver, as in `verus probe`.

use std::io;

use verus_core::Duration;
use verus_probe::client::{Client, ClientConfig};
use verus_probe::driver::Driver;
use verus_probe::results::Recorder;
use verus_probe::server::{Catalogue, Server, ServerConfig, overhead};
use verus_probe::socket::UdpSocket;
use verus_probe::wire::Request;
use verus_senders::Scheme;

use super::flow::{Flow, Outcome, ProfilePoint, Received};

/// Interval of checks of a sleeping end for the end of the run.
const LOOK: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(10);
/// Longer than any run: an outage of the channel is no reason to give up.
const SILENCE: Duration = Duration::from_secs(3600);

/// Receives until the run is over; returns the bytes of packets whose data was new.
pub fn receive(flow: &Flow<'_>) -> io::Result<Received> {
    let mut driver = Driver::new(UdpSocket::bind(flow.receiver)?)?;
    let mut config = ServerConfig::default();
    config.limits.duration = SILENCE;
    config.limits.silence = SILENCE;
    let now = driver.clock().now();
    let mut server = Server::new(config, Catalogue, entropy()?, now);
    flow.stage.listen(flow.index);
    let (mut distinct, mut completion) = (0, None);
    while !flow.stage.is_over() {
        let until = driver.clock().now() + LOOK;
        driver.turn(&mut server, Some(until), None)?;
        server.drain_notices().for_each(drop);
        let flows = server.connections().flat_map(|c| c.incoming());
        distinct = flows
            .map(|(flow, _)| flow.distinct())
            .sum::<u64>()
            .max(distinct);
        completion = flow.completion(distinct, completion);
    }
    Ok(Received {
        bytes: Some(distinct),
        completion,
    })
}

/// Sends until its data, its time or the run is over.
pub fn send(flow: &Flow<'_>, scheme: &Scheme) -> io::Result<Outcome> {
    let socket = UdpSocket::connect(flow.receiver)?;
    flow.stage.announce(flow.index, socket.local_addr()?.port());
    flow.await_start()?;
    let mut driver = Driver::new(socket)?;
    let request = Request {
        upload_flows: 1,
        download_flows: 0,
        packet_bytes: flow.packet_bytes,
        status_millis: 1000,
        // The stage ends it, or all of its data has arrived.
        duration_nanos: match flow.bytes {
            None => (flow.duration + SILENCE).as_nanos().min(SILENCE.as_nanos()),
            Some(_) => 0,
        },
        bytes: flow.bytes.unwrap_or(0),
        rate_bps: 0,
        seed: flow.seed,
        scheme: scheme.text().to_owned(),
    };
    let config = ClientConfig {
        request: request.clone(),
        secret: None,
        patience: PATIENCE,
        silence: SILENCE,
        log: false,
        overhead: overhead(flow.receiver),
    };
    let mut next_sample = driver.clock().now();
    let mut client = Client::new(config, scheme.clone(), entropy()?, next_sample);
    client.log_to(Vec::from_iter(flow.log(scheme, "udp", next_sample)?));
    let mut recorder = Recorder::new("emulated", scheme.clone(), request);
    while !flow.is_over() {
        driver.turn(&mut client, Some(next_sample), None)?;
        match client.outcome() {
            Some(Err(error)) => return Err(io::Error::other(error.to_string())),
            Some(Ok(())) if flow.bytes.is_some() => break,
            _ => {}
        }
        let now = driver.clock().now();
        if now >= next_sample {
            next_sample = now + Recorder::INTERVAL;
            if let Some(connection) = client.connection_mut() {
                recorder.sample(now, connection);
            }
        }
    }
    let Some(connection) = client.connection_mut() else {
        return Err(io::Error::other("the receiver did not answer"));
    };
    connection.end_logs()?;
    let record = recorder.finish(driver.clock().now(), connection);
    let metrics = record.rows.first().map(|(_, row)| row.totals.metrics);
    let profiles = record.profiles.iter().map(|row| ProfilePoint {
        time_s: row.time_s,
        kind: row.kind,
        window_packets: row.window_packets,
        delay_ms: row.delay_ms,
    });
    Ok(Outcome {
        transport: "udp",
        delivered_bytes: None,
        completion: None,
        rtt_mean_ms: metrics.and_then(|metrics| metrics.rtt_mean_ms),
        rtt_p95_ms: metrics.and_then(|metrics| metrics.rtt_p95_ms),
        retransmit_rate: metrics.and_then(|metrics| metrics.retransmit_rate),
        window_bytes: record.series.iter().map(|row| row.window_bytes).collect(),
        profiles: profiles.collect(),
    })
}

fn entropy() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}
