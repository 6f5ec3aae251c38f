//! Rights of clients at a server, on the loopback interface: each client has a token, which admits
//! it until it is revoked.

use std::fs;
use std::time::{Duration, SystemTime};

use crate::transfer_common::{TOKEN, World, home, noise, path};
use tokio::time::{Instant, sleep, timeout};
use verus_transfer::access::store::Store;
use verus_transfer::access::{Access, ClientName, Rights};
use verus_transfer::private::Home;
use verus_transfer::refusal::Reason;
use verus_transfer::secrets::Token;
use verus_transfer::{Client, ConnectError, Event, Trouble};

const MEGABYTE: usize = 1 << 20;
/// Longer than a revocation takes, with the machine busy.
const SOON: Duration = Duration::from_secs(20);

fn refused(trouble: Trouble) -> (Reason, String) {
    match trouble {
        Trouble::Here(refusal) | Trouble::There(refusal) => (refusal.reason, refusal.detail),
        other => panic!("{other}"),
    }
}

fn name(text: &str) -> ClientName {
    text.parse().expect("a good name")
}

/// A world whose server reads its clients from a folder.
struct WorldWithClients {
    world: World,
    store: Store,
}

impl WorldWithClients {
    fn new() -> WorldWithClients {
        let home = home();
        let folder = home.path().join("config");
        let open = || Home::make(&folder).expect("a folder");
        let world = World::start(home, None, |config| {
            config.access = Access::kept_in(open(), None).expect("no token yet");
            config.max_clients = 8;
        });
        WorldWithClients {
            world,
            store: Store::open(open()),
        }
    }

    fn add(&self, client: &str, rights: Rights) -> Token {
        let added = self
            .store
            .add(&name(client), rights, SystemTime::UNIX_EPOCH);
        added.expect("a new name")
    }

    async fn enter(&self, token: Token) -> Result<Client, ConnectError> {
        let mut config = self.world.config();
        config.token = Some(token);
        Client::connect(&config).await
    }

    /// The next event that is one of those looked for.
    async fn event<T>(&mut self, pick: impl Fn(Event) -> Option<T>) -> T {
        let next = async {
            loop {
                let event = self.world.server.event().await.expect("it runs");
                if let Some(picked) = pick(event) {
                    return picked;
                }
            }
        };
        timeout(SOON, next).await.expect("it happens")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_counts_from_the_moment_it_is_made_and_no_longer_than_it_is_kept() {
    let mut access = WorldWithClients::new();
    let alice = access.add("alice", Rights::Both);
    let bob = access.add("bob", Rights::Both);
    let client = access.enter(alice.clone()).await.expect("she is known");
    let other = access.enter(bob).await.expect("he is known");
    let connected = |event| match event {
        Event::Connected { name, .. } => name,
        _ => None,
    };
    assert_eq!(access.event(connected).await.as_str(), "alice");
    assert_eq!(access.event(connected).await.as_str(), "bob");

    access.store.revoke(&name("alice")).expect("it was hers");
    let began = Instant::now();
    let lost = loop {
        match client.list(&path("")).await {
            Ok(_) => assert!(began.elapsed() < SOON, "it goes on being served"),
            Err(trouble) => break trouble,
        }
        sleep(Duration::from_millis(50)).await;
    };
    assert!(
        lost.is_lost() && lost.to_string().contains("revoked"),
        "{lost}"
    );
    let ended = access
        .event(|event| match event {
            Event::Left { name, why, .. } => Some((name, why)),
            _ => None,
        })
        .await;
    assert_eq!(ended.0, Some(name("alice")));
    assert!(ended.1.contains("revoked"), "{}", ended.1);
    let error = access.enter(alice).await.expect_err("she is no more known");
    assert!(matches!(error, ConnectError::WrongToken), "{error}");
    other.list(&path("")).await.expect("he still is");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_only_read_changes_nothing() {
    let access = WorldWithClients::new();
    let client = access.enter(access.add("reader", Rights::Read)).await;
    let client = client.expect("known");
    assert!(!client.writable());
    let world = &access.world;
    fs::write(world.mine("file"), b"mine").expect("written");
    fs::write(world.served("there"), b"there").expect("written");
    let put = world.put(&client, "file", "file", true).await;
    let (reason, detail) = refused(put.expect_err("not allowed"));
    assert_eq!(reason, Reason::ReadOnly);
    assert!(
        detail.contains("this token may read and not write"),
        "{detail}"
    );
    let put = world.put(&client, "file", "new/file", true).await;
    assert_eq!(refused(put.expect_err("not allowed")).0, Reason::ReadOnly);
    let made = client.make_folder(&path("folder")).await;
    assert_eq!(refused(made.expect_err("not allowed")).0, Reason::ReadOnly);
    let names = fs::read_dir(world.served("")).expect("readable").count();
    assert_eq!(names, 1, "nothing was made");
    world
        .get(&client, "there", "got", false)
        .await
        .expect("read");
    assert_eq!(client.list(&path("")).await.expect("read").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_only_write_learns_nothing() {
    let access = WorldWithClients::new();
    let client = access.enter(access.add("writer", Rights::Write)).await;
    let client = client.expect("known");
    assert!(client.writable());
    let world = &access.world;
    fs::write(world.served("secret"), b"secret").expect("written");
    for result in [
        client.list(&path("")).await.map(drop),
        client.list(&path("secret")).await.map(drop),
        client.list(&path("absent")).await.map(drop),
        world.get(&client, "secret", "got", false).await.map(drop),
        world.get(&client, "absent", "got", false).await.map(drop),
    ] {
        // The same whether it is there or not.
        let (reason, detail) = refused(result.expect_err("not allowed"));
        assert_eq!(reason, Reason::Unreadable);
        assert_eq!(detail, "this token may write and not read");
    }
    client.make_folder(&path("folder")).await.expect("written");
    // Any guess at a file's contents gets the same answer: right or wrong, of the same size or not.
    for guess in [&b"secret"[..], b"guess!", b"other size"] {
        fs::write(world.mine("guess"), guess).expect("written");
        let put = world.put(&client, "guess", "secret", false).await;
        let (reason, detail) = refused(put.expect_err("it is there"));
        assert_eq!(reason, Reason::Exists);
        assert_eq!(
            detail,
            "something of that name is there already; --force replaces it"
        );
    }
    // A forced transfer is sent whole, even if the contents are the same.
    fs::write(world.mine("guess"), b"secret").expect("written");
    let put = world.put(&client, "guess", "secret", true).await;
    let put = put.expect("written");
    assert!(!put.same && put.moved == 6, "{put:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_only_write_goes_on_with_its_own_part_and_no_other() {
    let access = WorldWithClients::new();
    let first = access.add("first", Rights::Write);
    let second = access.add("second", Rights::Write);
    let world = &access.world;
    let bytes = noise(64 * MEGABYTE, 1);
    fs::write(world.mine("file"), &bytes).expect("written");
    // An unfinished file of another client, which may read.
    fs::write(world.served(".file.verus-part"), &bytes[..8 * MEGABYTE]).expect("written");
    let ours = || {
        let parts = fs::read_dir(world.served("")).expect("readable");
        let parts = parts.map(|part| part.expect("readable"));
        let ours = parts.filter(|part| part.file_name() != ".file.verus-part");
        ours.map(|part| part.metadata().map_or(0, |part| part.len()))
            .sum::<u64>()
    };
    let client = access.enter(first.clone()).await.expect("known");
    tokio::select! {
        put = world.put(&client, "file", "file", false) => panic!("too quick: {put:?}"),
        () = async {
            while ours() < 4 * MEGABYTE as u64 {
                sleep(Duration::from_millis(1)).await;
            }
        } => {}
    }
    client.close(false).await;
    let kept = ours();
    assert!(kept >= 4 * MEGABYTE as u64);

    let other = access.enter(second).await.expect("known");
    let put = world.put(&other, "file", "elsewhere/file", false).await;
    assert_eq!(put.expect("written").kept, 0);
    let client = access.enter(first).await.expect("known");
    let put = world.put(&client, "file", "file", false).await;
    let put = put.expect("written");
    assert!(put.kept >= 3 * MEGABYTE as u64, "{put:?}");
    assert!(fs::read(world.served("file")).expect("whole") == bytes);
    let other = fs::metadata(world.served(".file.verus-part")).expect("still there");
    assert_eq!(other.len(), 8 * MEGABYTE as u64, "another's is left alone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn among_many_tokens_the_right_one_is_found() {
    let access = WorldWithClients::new();
    let tokens: Vec<Token> = (0..40)
        .map(|number| access.add(&format!("client-{number}"), Rights::Both))
        .collect();
    for token in [&tokens[0], &tokens[20], &tokens[39]] {
        access.enter(token.clone()).await.expect("known");
    }
    let stranger = Token::new(TOKEN).expect("long enough");
    let error = access.enter(stranger).await.expect_err("not one of them");
    assert!(matches!(error, ConnectError::WrongToken), "{error}");
}
