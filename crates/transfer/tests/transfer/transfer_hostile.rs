//! Unauthenticated, idle and silent peers. Nobody is kept out, and no wait is endless. An unproven
//! address gets at most three times the bytes that came from it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::transfer_common::{World, home, noise, path, raw};
use quinn::Connection;
use tokio::time::{Instant, sleep, timeout};
use verus_faults::machine;
use verus_transfer::frames::{Answer, Demand, Request};
use verus_transfer::refusal::Reason;
use verus_transfer::secrets::Identity;
use verus_transfer::trust::Trust;
use verus_transfer::{Client, ClientConfig, Event, Limits, Outcome, Transfer, Trouble};

/// Waits for an event that `wanted` recognises, and returns its result.
async fn event<T>(world: &mut World, wanted: impl Fn(&Event) -> Option<T>) -> T {
    let matched = async {
        loop {
            let event = world.server.event().await.expect("it runs");
            if let Some(matched) = wanted(&event) {
                return matched;
            }
        }
    };
    timeout(Duration::from_secs(20), matched)
        .await
        .expect("it is told")
}

fn end_reason(event: &Event) -> Option<String> {
    match event {
        Event::Left { why, .. } => Some(why.clone()),
        _ => None,
    }
}

fn failed(event: &Event) -> Option<String> {
    match event {
        Event::Failed { why, .. } => Some(why.clone()),
        Event::Transfer(Transfer {
            outcome: Outcome::Failed(why),
            ..
        }) => Some(why.clone()),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "reads the clock: make test-clock"]
async fn strangers_who_say_nothing_keep_nobody_out() {
    let _machine = machine::watch(50);
    const STRANGERS: usize = 100;
    let world = World::new();
    let server = world.address;
    let connections = Arc::new(AtomicUsize::new(0));
    let endpoint = raw::caller();
    let config = raw::calling(raw::transport(1 << 20));
    let mut strangers = tokio::task::JoinSet::new();
    for _ in 0..STRANGERS {
        let (endpoint, config, connections) =
            (endpoint.clone(), config.clone(), Arc::clone(&connections));
        strangers.spawn(async move {
            loop {
                if let Ok(connecting) = endpoint.connect_with(config.clone(), server, "verus")
                    && let Ok(connection) = connecting.await
                {
                    connections.fetch_add(1, Ordering::Relaxed);
                    connection.closed().await;
                }
                sleep(Duration::from_millis(200)).await;
            }
        });
    }
    let began = Instant::now();
    while connections.load(Ordering::Relaxed) < 2 * STRANGERS {
        assert!(began.elapsed() < Duration::from_secs(60), "they are slow");
        sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..3 {
        let began = Instant::now();
        let client = world.connect().await.expect("a place");
        client.list(&path("")).await.expect("an answer");
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
    }
    strangers.abort_all();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "reads the clock: make test-clock"]
async fn clients_that_ask_for_nothing_make_room_after_a_moment() {
    let _machine = machine::watch(50);
    let mut world = World::open(Limits::default(), 4);
    let mut idle: Vec<Connection> = Vec::new();
    for _ in 0..2 {
        idle.push(raw::greet(world.address, 1 << 20).await);
    }
    let began = Instant::now();
    // One address has two places, and for 3 s a client may be about to ask.
    let client = world.connect().await.expect("a place");
    client.list(&path("")).await.expect("an answer");
    let took = began.elapsed();
    assert!((2..8).contains(&took.as_secs()), "{took:?}");
    assert!(
        event(&mut world, end_reason)
            .await
            .contains("wanted its place")
    );
    let closed = idle.iter().filter(|it| it.close_reason().is_some()).count();
    assert_eq!(closed, 1, "of 2, where one address has 2 places");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "reads the clock: make test-clock"]
async fn many_clients_of_one_address_are_all_served_in_turn() {
    let _machine = machine::watch(50);
    const CLIENTS: usize = 24;
    let world = Arc::new(World::open(Limits::default(), 4));
    fs::write(world.served("file"), noise(20_000, 1)).expect("written");
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let mut config = world.config();
        config.queueing = Duration::from_secs(60);
        clients.spawn(async move {
            let client = Client::connect(&config)
                .await
                .map_err(|error| error.to_string())?;
            // It has a place, and takes a moment before it asks.
            sleep(Duration::from_millis(50)).await;
            let listed = client.list(&path("file")).await;
            client.close(true).await;
            listed.map(drop).map_err(|trouble| trouble.to_string())
        });
    }
    while let Some(served) = clients.join_next().await {
        assert_eq!(served.expect("no panic"), Ok(()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "reads the clock: make test-clock"]
async fn one_address_does_not_have_all_places_even_for_those_who_work() {
    let _machine = machine::watch(50);
    let world = World::open(Limits::default(), 4);
    fs::write(world.served("big"), noise(32 << 20, 1)).expect("written");
    let mut working = Vec::new();
    for _ in 0..2 {
        let connection = raw::greet(world.address, 4096).await;
        let (mut send, receive) = connection.open_bi().await.expect("a stream");
        let path = b"big".to_vec();
        raw::send_frame(&mut send, &Request::Get { path }).await;
        working.push((connection, send, receive));
    }
    // The third client from this address has no place; other addresses have two more.
    let mut config = world.config();
    config.queueing = Duration::from_millis(800);
    let error = Client::connect(&config).await.expect_err("both are in use");
    assert!(error.to_string().contains("as many clients"), "{error}");
    let elsewhere = quinn::Endpoint::client(SocketAddr::from(([127, 0, 0, 2], 0))).expect("lo");
    raw::greet_by(&elsewhere, world.address, 1 << 20).await;
    // After a while without progress, the same address gets in, too.
    world.connect().await.expect("they get nowhere");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "reads the clock: make test-clock"]
async fn a_client_that_asks_for_nothing_is_sent_away_after_a_while() {
    let _machine = machine::watch(50);
    let mut world = World::with(Limits {
        idle: Duration::from_millis(300),
        ..Limits::default()
    });
    let client = world.connect().await.expect("a server");
    client.list(&path("")).await.expect("an answer");
    assert!(
        event(&mut world, end_reason)
            .await
            .contains("asked for nothing")
    );
    let trouble = client.list(&path("")).await.expect_err("it is closed");
    assert!(trouble.is_lost(), "{trouble}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "reads the clock: make test-clock"]
async fn half_read_lists_and_empty_puts_are_given_up_and_hold_up_nobody() {
    let _machine = machine::watch(50);
    let mut world = World::open(
        Limits {
            silence: Duration::from_secs(2),
            ..Limits::default()
        },
        4,
    );
    for name in 0..2000 {
        fs::write(world.served(&format!("{name:0100}")), b"").expect("written");
    }
    let connection = raw::greet(world.address, 2000).await;
    let mut open = Vec::new();
    for number in 0..15 {
        let (mut send, receive) = connection.open_bi().await.expect("a stream");
        let request = if number < 8 {
            Request::List { path: Vec::new() }
        } else {
            raw::put(format!("slow{number}"), 1 << 30, false)
        };
        raw::send_frame(&mut send, &request).await;
        open.push((send, receive));
    }
    let honest = world.connect().await.expect("a place");
    let entries = honest.list(&path("")).await.expect("a list");
    assert!(entries.len() > 2000);
    for _ in 0..10 {
        let why = event(&mut world, failed).await;
        assert!(why.contains("said nothing for 2 s"), "{why}");
    }
    let parts = fs::read_dir(world.served("")).expect("there");
    let parts = parts
        .map(|entry| entry.expect("there").file_name())
        .filter(|name| name.as_encoded_bytes().ends_with(b".verus-part"));
    assert_eq!(parts.count(), 0, "nothing is left of files that never came");
}

/// What this process holds: resident memory in MiB, descriptors, threads.
fn held() -> (u64, usize, u64) {
    let status = fs::read_to_string("/proc/self/status").expect("this is Linux");
    let field = |name: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(name));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        number.expect("a field").parse().expect("a number")
    };
    let descriptors = fs::read_dir("/proc/self/fd").expect("this is Linux");
    (field("VmRSS") >> 10, descriptors.count(), field("Threads"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "reads the clock: make test-clock"]
async fn requests_that_are_not_finished_hold_bounded_memory_threads_and_descriptors() {
    let _machine = machine::watch(50);
    let world = World::open(Limits::default(), 32);
    for name in 0..2000 {
        fs::write(world.served(&format!("{name:0100}")), b"").expect("written");
    }
    let deep = vec!["d".repeat(60); 60].join("/");
    fs::create_dir_all(world.served(&deep)).expect("folders");
    for name in 0..100 {
        fs::create_dir(world.served(&format!("{deep}/e{name}"))).expect("a folder");
    }
    let before = held();
    let attacker = quinn::Endpoint::client(SocketAddr::from(([127, 0, 0, 2], 0))).expect("lo");
    let mut open = Vec::new();
    // As many as one address has places, each with as many requests as it may have.
    for client in 0..16 {
        let window = if client % 3 == 2 { 20_000 } else { 2_000 };
        let connection = raw::greet_by(&attacker, world.address, window).await;
        for number in 0..15 {
            let (mut send, receive) = connection.open_bi().await.expect("a stream");
            let request = match (client % 3, number) {
                (0, _) => Request::List { path: Vec::new() },
                (1, _) => raw::put(format!("slow{client}-{number}"), 1 << 30, false),
                (_, _) => Request::List {
                    path: "d".repeat(60).into_bytes(),
                },
            };
            raw::send_frame(&mut send, &request).await;
            open.push((send, receive));
        }
    }
    sleep(Duration::from_secs(1)).await;
    let now = held();
    assert!(now.0 < before.0 + 128, "{now:?} after {before:?}");
    // Two folders for each list and a file for each put: 15 requests of 16 clients.
    assert!(now.1 < before.1 + 600, "{now:?} after {before:?}");
    assert!(now.2 < before.2 + 250, "{now:?} after {before:?}");
    let honest = world.connect().await.expect("a place");
    honest.list(&path("")).await.expect("a list");
}

/// A server that greets and then sends nothing, or only signs of life.
async fn stalled(alive: bool) -> SocketAddr {
    let endpoint = raw::listener(raw::transport(1 << 20), &Identity::random().expect("a key"));
    let address = endpoint.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            let connection = incoming.await.expect("a client");
            tokio::spawn(async move {
                let mut open = Vec::new();
                while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                    if let Some(Request::Hello { .. }) = raw::receive_frame(&mut receive).await {
                        let welcome = Answer::Welcome {
                            proof: None,
                            writable: true,
                        };
                        raw::send_frame(&mut send, &welcome).await;
                    } else if alive {
                        let subject = verus_transfer::frames::Subject::Part;
                        raw::send_frame(&mut send, &Demand::Check { subject, bytes: 0 }).await;
                        raw::send_frame(&mut send, &Demand::EndOfPieces).await;
                        tokio::spawn(async move {
                            let mut receive = receive;
                            let read = receive.read_to_end(1 << 30);
                            let signs = async {
                                loop {
                                    raw::send_frame(&mut send, &Demand::Received { position: 0 })
                                        .await;
                                    sleep(Duration::from_millis(50)).await;
                                }
                            };
                            tokio::select! { _ = read => {}, () = signs => {} }
                        });
                        continue;
                    }
                    open.push((send, receive));
                }
            });
        }
    });
    address
}

fn to(world: &World, address: SocketAddr, silence: Duration) -> ClientConfig {
    ClientConfig {
        addresses: vec![address],
        token: None,
        trust: Trust::KnownHosts(world.home.path().join("hosts")),
        silence,
        ..world.config()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "reads the clock: make test-clock"]
async fn a_server_alive_only_in_quic_is_given_up() {
    let _machine = machine::watch(50);
    let world = World::new();
    let silence = Duration::from_millis(500);
    let address = stalled(false).await;
    let client = Client::connect(&to(&world, address, silence))
        .await
        .expect("greeted");
    fs::write(world.mine("a"), b"a").expect("written");
    let list = client.list(&path("")).await.map(drop);
    let put = world.put(&client, "a", "a", false).await.map(drop);
    let get = world.get(&client, "b", "b", false).await.map(drop);
    for ended in [list, put, get, client.make_folder(&path("c")).await] {
        let trouble = ended.expect_err("nobody answers");
        assert!(
            matches!(trouble, Trouble::Silent { stalled: false, .. }),
            "{trouble}"
        );
        assert!(trouble.is_lost(), "no more files are tried");
    }
}

/// A stand-in for a server that lists files without end.
async fn endless() -> SocketAddr {
    let endpoint = raw::listener(raw::transport(1 << 20), &Identity::random().expect("a key"));
    let address = endpoint.local_addr().expect("bound");
    tokio::spawn(async move {
        let connection = endpoint.accept().await.expect("a client").await;
        let connection = connection.expect("a client");
        while let Ok((mut send, mut receive)) = connection.accept_bi().await {
            if let Some(Request::Hello { .. }) = raw::receive_frame(&mut receive).await {
                let welcome = Answer::Welcome {
                    proof: None,
                    writable: true,
                };
                raw::send_frame(&mut send, &welcome).await;
                continue;
            }
            tokio::spawn(async move {
                for number in 0_u32.. {
                    let path = number.to_string().into_bytes();
                    raw::send_frame(&mut send, &Answer::Folder { path }).await;
                    sleep(Duration::from_millis(1)).await;
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "reads the clock: make test-clock"]
async fn a_list_without_end_is_given_up() {
    let _machine = machine::watch(50);
    let world = World::new();
    let silence = Duration::from_millis(500);
    let address = endless().await;
    let client = Client::connect(&to(&world, address, silence)).await;
    let client = client.expect("greeted");
    let began = Instant::now();
    let listed = timeout(10 * silence, client.list(&path(""))).await;
    let trouble = listed.expect("it gives up").expect_err("it has no end");
    assert!(trouble.to_string().contains("has not ended"), "{trouble}");
    assert!(began.elapsed() >= silence, "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "reads the clock: make test-clock"]
async fn signs_of_life_prolong_the_wait_but_not_for_ever() {
    let _machine = machine::watch(50);
    let world = World::new();
    let silence = Duration::from_millis(300);
    let address = stalled(true).await;
    let client = Client::connect(&to(&world, address, silence))
        .await
        .expect("greeted");
    fs::write(world.mine("a"), noise(100_000, 1)).expect("written");
    let began = Instant::now();
    let put = timeout(20 * silence, world.put(&client, "a", "a", false)).await;
    let trouble = put.expect("it ends").expect_err("it is never done");
    assert!(
        matches!(trouble, Trouble::Silent { stalled: true, .. }),
        "{trouble}"
    );
    assert!(began.elapsed() >= 9 * silence, "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "reads the clock: make test-clock"]
async fn an_end_that_waits_for_data_says_that_it_lives() {
    let _machine = machine::watch(50);
    let world = World::open(Limits::default(), 4);
    let connection = raw::greet(world.address, 1 << 20).await;
    let (mut send, mut receive) = connection.open_bi().await.expect("a stream");
    raw::send_frame(&mut send, &raw::put("slow", 100_000, false)).await;
    let mut said = Vec::new();
    for _ in 0..3 {
        let next = timeout(
            Duration::from_secs(15),
            raw::receive_frame::<Demand>(&mut receive),
        )
        .await;
        said.push(next.expect("within its interval").expect("a demand"));
    }
    assert!(
        matches!(
            said[..],
            [
                Demand::Check { bytes: 0, .. },
                Demand::EndOfPieces,
                Demand::Received { position: 0 }
            ]
        ),
        "{said:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "reads the clock: make test-clock"]
async fn a_first_packet_is_answered_with_no_more_than_three_times_its_bytes() {
    let _machine = machine::watch(50);
    let world = World::new();
    let first = raw::first_datagram();
    let length = first.len();
    let victim = tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a socket");
    victim.send_to(&first, world.address).await.expect("sent");
    let mut received = 0;
    let mut datagram = [0; 2048];
    let listen = async {
        loop {
            received += victim.recv(&mut datagram).await.expect("a datagram");
        }
    };
    // Probes come after 1, 3 and 7 s.
    let _ = timeout(Duration::from_secs(8), listen).await;
    assert!(received >= length, "the server answers: {received} bytes");
    assert!(received <= 3 * length, "{received} bytes for {length}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_fails_to_be_sent_the_server_goes_on() {
    let world = World::new();
    // A first packet from port 0, which no socket can send to.
    let first = raw::first_datagram();
    let raw = socket2::Socket::new(
        socket2::Domain::IPV4,
        socket2::Type::RAW,
        Some(socket2::Protocol::UDP),
    )
    .expect("root may");
    let mut udp = Vec::new();
    for word in [0, world.address.port(), 8 + first.len() as u16, 0] {
        udp.extend(word.to_be_bytes());
    }
    udp.extend(first);
    for _ in 0..20 {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        raw.send_to(&udp, &to.into()).expect("sent");
    }
    let client = world.connect().await.expect("a server");
    client.list(&path("")).await.expect("an answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_is_answered_with_no_more_bytes_than_it_has_and_ends_nobody() {
    let world = World::new();
    let first: Vec<Vec<u8>> = (0..8).map(|_| raw::first_datagram()).collect();
    let stranger = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    stranger.set_nonblocking(true).expect("ours");
    let (mut sent, mut came) = (0, 0);
    let mut answer = [0; 2048];
    for number in 0..6_000 {
        let dice = noise(8, number);
        let at = usize::from(u16::from_le_bytes([dice[0], dice[1]]));
        let mut datagram = first[usize::from(dice[2] % 8)].clone();
        match number % 3 {
            0 => datagram = noise(1 + at % 1_400, number),
            1 => datagram.truncate(1 + at % (datagram.len() - 1)),
            _ => {
                let at = at % datagram.len();
                datagram[at] ^= 1 << (dice[3] % 8);
            }
        }
        sent += stranger.send_to(&datagram, world.address).unwrap_or(0);
        if number % 50 == 0 {
            sleep(Duration::from_millis(4)).await;
            while let Ok(length) = stranger.recv(&mut answer) {
                came += length;
            }
        }
    }
    assert!(came <= sent, "{came} bytes for {sent}");
    let client = world.connect().await.expect("a server");
    client.list(&path("")).await.expect("an answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_takes_no_more_than_its_quota() {
    let world = World::with(Limits {
        bytes: Some(300_000),
        ..Limits::default()
    });
    let client = world.connect().await.expect("a server");
    fs::write(world.mine("a"), noise(200_000, 1)).expect("written");
    fs::write(world.mine("b"), noise(200_000, 2)).expect("written");
    world.put(&client, "a", "a", false).await.expect("it fits");
    let trouble = world.put(&client, "b", "b", false).await;
    match trouble.expect_err("it does not fit") {
        Trouble::There(refusal) => {
            assert_eq!(refusal.reason, Reason::NoSpace);
            assert!(refusal.detail.contains("--max-bytes"), "{refusal}");
        }
        other => panic!("{other}"),
    }
    assert!(!world.served("b").exists() && !world.served(".b.verus-part").exists());
    // The same if it would replace another file, which stays until the new one is whole. An
    // identical file takes no room.
    let trouble = world.put(&client, "b", "a", true).await;
    assert!(matches!(trouble, Err(Trouble::There(refusal)) if refusal.reason == Reason::NoSpace));
    let same = world.put(&client, "a", "a", false).await.expect("same");
    assert!(same.same);
    fs::write(world.mine("small"), noise(50_000, 3)).expect("written");
    world
        .put(&client, "small", "a", true)
        .await
        .expect("it fits");
    world
        .put(&client, "b", "a", true)
        .await
        .expect("now it fits");
    // Folders take room, too.
    let mut folders = 0;
    while client
        .make_folder(&path(&format!("f{folders}")))
        .await
        .is_ok()
    {
        folders += 1;
        assert!(folders < 100, "they take none");
    }
    assert!(folders > 10, "{folders}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_replaced_at_once_take_no_more_than_the_quota() {
    const FILES: u64 = 8;
    const SIZE: u64 = 64 << 10;
    // Room for two more than there are.
    let limits = Limits {
        bytes: Some((FILES + 2) * SIZE),
        ..Limits::default()
    };
    let home = home();
    for number in 0..FILES {
        let name = format!("served/{number}");
        fs::write(home.path().join(name), noise(SIZE as usize, number)).expect("written");
    }
    let world = World::around(home, limits, 4, None);
    let connection = raw::greet(world.address, 1 << 20).await;
    let (mut open, mut refused) = (Vec::new(), 0);
    for number in 0..FILES {
        let (mut send, mut receive) = connection.open_bi().await.expect("a stream");
        // Of another size, so that nothing is compared.
        let put = raw::put(number.to_string(), SIZE - 1, true);
        raw::send_frame(&mut send, &put).await;
        match raw::receive_frame(&mut receive).await {
            Some(Demand::Check { bytes: 0, .. }) => open.push((send, receive)),
            Some(Demand::Failed(refusal)) => {
                assert_eq!(refusal.reason, Reason::NoSpace, "{refusal}");
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((open.len(), refused), (2, FILES - 2));
    // The room of interrupted transfers is free again, and can be reused any number of times.
    drop(open);
    connection.close(0_u32.into(), b"");
    fs::write(world.mine("again"), noise(SIZE as usize, 99)).expect("written");
    let client = world.connect().await.expect("a place");
    let began = Instant::now();
    while let Err(trouble) = world.put(&client, "again", "again", true).await {
        assert!(began.elapsed() < Duration::from_secs(20), "{trouble}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_that_cannot_be_made_take_no_room() {
    let world = World::with(Limits {
        bytes: Some(400_000),
        ..Limits::default()
    });
    let client = world.connect().await.expect("a server");
    fs::write(world.mine("a"), b"a").expect("written");
    world
        .put(&client, "a", "file", false)
        .await
        .expect("it fits");
    let deep = vec!["d"; 60].join("/");
    for below in [
        format!("file/{deep}"),
        "file".to_owned(),
        "file/x".to_owned(),
    ] {
        for _ in 0..100 {
            let trouble = client.make_folder(&path(&below)).await;
            assert!(trouble.is_err(), "{below}");
        }
    }
    // Making an existing folder again takes no room, and 60 take the room of 60.
    for _ in 0..10 {
        client.make_folder(&path(&deep)).await.expect("it fits");
    }
    fs::write(world.mine("b"), noise(140_000, 1)).expect("written");
    world.put(&client, "b", "b", false).await.expect("it fits");
    let beyond = client.make_folder(&path("one/more/and/another")).await;
    assert!(
        beyond.is_err(),
        "400 000 bytes are 97 blocks, of which 97 are taken"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unfinished_file_of_no_more_use_gives_its_room_back() {
    let home = home();
    let part = home.path().join("served/.a.verus-part");
    fs::write(&part, noise(100_000, 2)).expect("written");
    let limits = Limits {
        bytes: Some(300_000),
        ..Limits::default()
    };
    for name in ["served/a", "mine/a"] {
        fs::write(home.path().join(name), noise(50_000, 1)).expect("written");
    }
    fs::write(home.path().join("mine/b"), noise(200_000, 3)).expect("written");
    let world = World::around(home, limits, 4, Some(crate::transfer_common::TOKEN));
    let client = world.connect().await.expect("a server");
    let same = world.put(&client, "a", "a", false).await.expect("same");
    assert!(same.same && !part.exists());
    world.put(&client, "b", "b", false).await.expect("it fits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unfinished_file_of_the_end_of_time_is_as_old_as_its_last_change() {
    for (seconds, stays) in [(i64::MAX, true), (i64::MIN, false), (0, false)] {
        let home = tempfile::tempdir().expect("a folder");
        let served = home.path().join("served");
        fs::create_dir_all(&served).expect("a folder");
        let part = served.join(".x.verus-part");
        let file = fs::File::create(&part).expect("a file");
        file.set_len(1000).expect("a file");
        let time = rustix::fs::Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        let times = rustix::fs::Timestamps {
            last_access: time,
            last_modification: time,
        };
        // A file system may cut it to its own end of time.
        rustix::fs::futimens(&file, &times).expect("ours");
        drop(file);
        let limits = Limits {
            bytes: Some(1 << 20),
            ..Limits::default()
        };
        // With a quota, the folder is looked through before the server starts.
        let world = World::around(home, limits, 4, Some(crate::transfer_common::TOKEN));
        world.connect().await.expect("it serves");
        assert_eq!(part.exists(), stays, "{seconds} s");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_fail_fill_no_log() {
    let mut world = World::open(Limits::default(), 4);
    let connection = raw::greet(world.address, 1 << 20).await;
    let began = Instant::now();
    const REQUESTS: usize = 400;
    for number in 0..REQUESTS {
        let (mut send, mut receive) = connection.open_bi().await.expect("a stream");
        let path = vec![b'x'; 4000];
        let request = match number % 4 {
            0 => Request::Get { path },
            1 => Request::List { path },
            2 => Request::MakeFolder { path },
            _ => raw::put(path, 1, false),
        };
        raw::send_frame(&mut send, &request).await;
        let _ = receive.read_to_end(1 << 20).await;
    }
    let seconds = began.elapsed().as_secs() as usize + 1;
    connection.close(0_u32.into(), b"");
    let (mut reported, mut bytes, mut unreported) = (0, 0, 0);
    loop {
        let event = world.server.event().await.expect("it runs");
        let (path, why) = match event {
            Event::Failed { path, why, .. } => (path, why),
            Event::Transfer(Transfer {
                path,
                outcome: Outcome::Failed(why),
                ..
            }) => (path, why),
            Event::Left { .. } => break,
            _ => continue,
        };
        reported += 1;
        bytes += path.len() + why.len();
        let others = why
            .split("(and ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        unreported += others.map_or(0, |number| number.parse::<usize>().expect("a number"));
    }
    assert!(
        reported <= 10 * seconds,
        "{reported} of {REQUESTS} in {seconds} s"
    );
    assert!(
        reported >= 10 && reported + unreported <= REQUESTS,
        "{reported}, {unreported}"
    );
    assert!(bytes < reported * 600, "{bytes} bytes for {reported}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_unfinished_files_of_ours_are_removed_and_no_others() {
    let home = tempfile::tempdir().expect("a folder");
    let served = home.path().join("served");
    fs::create_dir_all(served.join("in")).expect("folders");
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let make = |name: &str| {
        let file = fs::File::create(served.join(name)).expect("a file");
        file.set_len(1000).expect("a file");
        file.set_modified(old).expect("ours");
        file
    };
    make("in/.old.verus-part");
    make("a file as old");
    make(".locked.verus-part");
    let locked = fs::File::open(served.join(".locked.verus-part")).expect("there");
    locked.lock().expect("ours");
    make(".linked.verus-part");
    fs::hard_link(served.join(".linked.verus-part"), served.join("link")).expect("a link");
    make(".theirs.verus-part");
    std::os::unix::fs::chown(served.join(".theirs.verus-part"), Some(65_534), None)
        .expect("these tests run as root");
    let fresh = std::fs::metadata(home.path()).and_then(|about| about.modified());
    make(".fresh.verus-part")
        .set_modified(fresh.expect("known"))
        .expect("ours");
    let _world = World::around(home, Limits::default(), 4, None);
    let removed = async {
        while served.join("in/.old.verus-part").exists() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), removed)
        .await
        .expect("it is old");
    for name in [
        "a file as old",
        ".locked.verus-part",
        ".linked.verus-part",
        ".fresh.verus-part",
        ".theirs.verus-part",
    ] {
        assert!(served.join(name).exists(), "{name}");
    }
}
