//! Who is let in at a server, and what they may do there: each client has a name, a token and rights of its own.
//!
//! The wire knows no names. A client proves that it has *a* key ([`secrets`](super::secrets)), and the server
//! tries each that it has: a keyed hash of 38 bytes, one block of BLAKE3, for at most [`MAX_CLIENTS`]. All are tried
//! whichever holds, so that the time tells nothing.

pub mod store;

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use super::private::{Home, Stamp};
use super::secret_error::SecretError;
use super::secrets::{Key, Prover, TOKEN_FILE, Token};
use store::STORE_FILE;

/// Most clients that a server knows.
pub const MAX_CLIENTS: usize = 1024;

/// The client whose token is the file [`TOKEN_FILE`], or was named by the user.
pub const DEFAULT: &str = "default";

/// Longest name of a client, in bytes.
const MAX_NAME: usize = 64;

/// The name that the server's operator gives a client: letters, digits, `.`, `_` and `-`, so that it can be
/// printed and typed anywhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientName(Arc<str>);

impl ClientName {
    /// The client of the token that is not one of the store.
    pub fn default_client() -> Self {
        ClientName(DEFAULT.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ClientName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if (1..=MAX_NAME).contains(&text.len()) && text.chars().all(plain) {
            Ok(ClientName(text.into()))
        } else {
            Err(format!(
                "a client's name is 1 to {MAX_NAME} letters, digits, `.`, `_` and `-`"
            ))
        }
    }
}

/// What a client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// List and get files.
    Read,
    /// Put files and make folders, and learn nothing of what is in them.
    Write,
    /// Both.
    Both,
}

impl Rights {
    /// Whether it may list and get files.
    pub fn may_read(self) -> bool {
        self != Rights::Write
    }

    /// Whether it may put files and make folders.
    pub fn may_write(self) -> bool {
        self != Rights::Read
    }

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Rights::Read => "read",
            Rights::Write => "write",
            Rights::Both => "both",
        }
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Rights {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Rights::Read, Rights::Write, Rights::Both]
            .into_iter()
            .find(|rights| rights.as_str() == text)
            .ok_or_else(|| "rights are `read`, `write` or `both`".to_owned())
    }
}

/// A client that is let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// Its name; clients have none where every client is served.
    pub name: Option<ClientName>,
    /// What it may do.
    pub rights: Rights,
    key: Option<Key>,
}

impl Visitor {
    fn new(name: ClientName, rights: Rights, key: Key) -> Self {
        Visitor {
            name: Some(name),
            rights,
            key: Some(key),
        }
    }

    /// That the server has this client's key, too.
    pub fn answer(&self, channel: &[u8; 32]) -> Option<[u8; 32]> {
        let key = self.key.as_ref()?;
        Some(key.proof(channel, Prover::Server))
    }
}

/// Why a client is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// It proves nothing.
    NoToken,
    /// Its proof holds for no key.
    WrongToken,
}

/// What has become of the list of clients.
#[derive(Debug)]
pub enum Refreshed {
    /// It is the same.
    Same,
    /// It is another one: those that are no more in it must go.
    Changed,
    /// It cannot be read, so that the last one goes on counting. Said once.
    Trouble(SecretError),
}

/// Who is let in.
#[derive(Debug)]
pub struct Access(Kind);

#[derive(Debug)]
enum Kind {
    Anybody,
    One(Visitor),
    Kept(Box<Kept>),
}

/// Clients of a folder of secrets, which may change at any time.
#[derive(Debug)]
struct Kept {
    home: Home,
    /// Instead of the folder's own token.
    given: Option<Key>,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    clients: Arc<[Visitor]>,
    stamps: [Option<Stamp>; 2],
}

impl From<Option<Token>> for Access {
    /// One client with a token; without one, anybody.
    fn from(token: Option<Token>) -> Self {
        Access(match token {
            Some(token) => Kind::One(Visitor::new(
                ClientName::default_client(),
                Rights::Both,
                token.key().clone(),
            )),
            None => Kind::Anybody,
        })
    }
}

impl Access {
    /// The clients of the store in a folder, and with the folder's own token, or instead the `given` one,
    /// the client [`DEFAULT`].
    ///
    /// # Errors
    /// If they cannot be read, or others may read them.
    pub fn kept_in(home: Home, given: Option<Token>) -> Result<Self, SecretError> {
        let given = given.map(|token| token.key().clone());
        let known = Known::read(&home, given.as_ref())?;
        Ok(Access(Kind::Kept(Box::new(Kept {
            home,
            given,
            known: Mutex::new(known),
        }))))
    }

    /// How many clients there are; none if anybody is let in.
    pub fn clients(&self) -> Option<usize> {
        match &self.0 {
            Kind::Anybody => None,
            Kind::One(_) => Some(1),
            Kind::Kept(kept) => Some(kept.clients().len()),
        }
    }

    /// Looks whether the list of clients has changed. It may read files.
    pub fn refresh(&self) -> Refreshed {
        match &self.0 {
            Kind::Anybody | Kind::One(_) => Refreshed::Same,
            Kind::Kept(kept) => kept.refresh(),
        }
    }

    /// Whose proof it is; `channel` is the secret of the connection.
    ///
    /// # Errors
    /// If no client has it.
    pub fn admit(&self, channel: &[u8; 32], proof: Option<&[u8; 32]>) -> Result<Visitor, Stranger> {
        let find = |clients: &[Visitor]| {
            let proof = proof.ok_or(Stranger::NoToken)?;
            let mut found = Err(Stranger::WrongToken);
            for client in clients {
                let key = client.key.as_ref();
                if key.is_some_and(|key| key.verify(channel, Prover::Client, proof)) {
                    found = Ok(client);
                }
            }
            found.cloned()
        };
        match &self.0 {
            Kind::Anybody => Ok(Visitor {
                name: None,
                rights: Rights::Both,
                key: None,
            }),
            Kind::One(client) => find(std::slice::from_ref(client)),
            Kind::Kept(kept) => find(&kept.clients()),
        }
    }

    /// Whether a client that was let in would be let in again, with the same rights.
    pub fn still_admits(&self, visitor: &Visitor) -> bool {
        match &self.0 {
            Kind::Anybody | Kind::One(_) => true,
            Kind::Kept(kept) => kept.clients().contains(visitor),
        }
    }
}

impl Kept {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clients(&self) -> Arc<[Visitor]> {
        Arc::clone(&self.known().clients)
    }

    fn refresh(&self) -> Refreshed {
        let mut known = self.known();
        let stamps = stamps(&self.home);
        if stamps == known.stamps {
            return Refreshed::Same;
        }
        match Known::read(&self.home, self.given.as_ref()) {
            Ok(read) => {
                let same = read.clients == known.clients;
                *known = read;
                if same {
                    Refreshed::Same
                } else {
                    Refreshed::Changed
                }
            }
            Err(error) => {
                // Not again until the file has changed once more.
                known.stamps = stamps;
                Refreshed::Trouble(error)
            }
        }
    }
}

fn stamps(home: &Home) -> [Option<Stamp>; 2] {
    [TOKEN_FILE, STORE_FILE].map(|name| home.stamp(name))
}

impl Known {
    fn read(home: &Home, given: Option<&Key>) -> Result<Self, SecretError> {
        // Before they are read: what changes meanwhile is read again.
        let stamps = stamps(home);
        let mut clients: Vec<Visitor> = store::read(home)?
            .into_iter()
            .map(|kept| Visitor::new(kept.name, kept.rights, kept.key))
            .collect();
        let default = match given {
            Some(key) => Some(key.clone()),
            None => Token::in_home(home)?.map(|token| token.key().clone()),
        };
        let name = ClientName::default_client();
        clients.extend(default.map(|key| Visitor::new(name, Rights::Both, key)));
        Ok(Known {
            clients: clients.into(),
            stamps,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::store::Store;
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::SystemTime;

    const CHANNEL: [u8; 32] = [7; 32];

    fn name(text: &str) -> ClientName {
        text.parse().expect("a good name")
    }

    fn enter(access: &Access, token: &Token) -> Result<Visitor, Stranger> {
        access.admit(&CHANNEL, Some(&token.proof(&CHANNEL, Prover::Client)))
    }

    #[test]
    fn each_client_is_known_by_its_own_token_until_that_is_revoked() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = || Home::make(folder.path()).expect("there");
        let store = Store::open(home());
        let made = SystemTime::UNIX_EPOCH;
        let a = store.add(&name("a"), Rights::Read, made).expect("added");
        let access = Access::kept_in(home(), None).expect("readable");
        let visitor = enter(&access, &a).expect("it is a's");
        assert_eq!(visitor.name, Some(name("a")));
        assert_eq!(visitor.rights, Rights::Read);
        assert!(matches!(access.refresh(), Refreshed::Same));

        let b = store.add(&name("b"), Rights::Write, made).expect("added");
        assert_eq!(
            enter(&access, &b),
            Err(Stranger::WrongToken),
            "not yet read"
        );
        assert!(matches!(access.refresh(), Refreshed::Changed));
        assert_eq!(enter(&access, &b).expect("b's").name, Some(name("b")));
        assert!(access.still_admits(&visitor));

        store.revoke(&name("a")).expect("revoked");
        assert!(matches!(access.refresh(), Refreshed::Changed));
        assert!(!access.still_admits(&visitor));
        assert_eq!(enter(&access, &a), Err(Stranger::WrongToken));
        assert_eq!(access.admit(&CHANNEL, None), Err(Stranger::NoToken));

        // Another token under the same name is another client.
        let again = store.add(&name("a"), Rights::Read, made).expect("added");
        assert!(matches!(access.refresh(), Refreshed::Changed));
        assert!(!access.still_admits(&visitor));
        assert!(enter(&access, &again).is_ok());
    }

    #[test]
    fn the_token_of_the_folder_is_a_client_like_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = || Home::make(folder.path()).expect("there");
        Token::keep_in(&home()).expect("made");
        let token = Token::in_home(&home()).expect("readable").expect("there");
        let access = Access::kept_in(home(), None).expect("readable");
        let visitor = enter(&access, &token).expect("known");
        assert_eq!(visitor.name, Some(ClientName::default_client()));
        let store = Store::open(home());
        store
            .revoke(&ClientName::default_client())
            .expect("it is there");
        assert!(matches!(access.refresh(), Refreshed::Changed));
        assert!(enter(&access, &token).is_err());
        assert_eq!(access.clients(), Some(0));

        // One that the user named stands in its place, and is not looked for in the folder.
        let given = Token::random().expect("made");
        let access = Access::kept_in(home(), Some(given.clone())).expect("readable");
        assert!(enter(&access, &given).is_ok());
    }

    #[test]
    fn a_list_that_cannot_be_read_is_told_once_and_the_last_one_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = || Home::make(folder.path()).expect("there");
        let token = Store::open(home())
            .add(&name("a"), Rights::Both, SystemTime::UNIX_EPOCH)
            .expect("added");
        let access = Access::kept_in(home(), None).expect("readable");
        let path = folder.path().join(STORE_FILE);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("ours");
        match access.refresh() {
            Refreshed::Trouble(error) => assert!(error.to_string().contains("chmod 600")),
            other => panic!("{other:?}"),
        }
        assert!(matches!(access.refresh(), Refreshed::Same));
        assert!(enter(&access, &token).is_ok());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
        assert!(matches!(access.refresh(), Refreshed::Same));
        fs::remove_file(&path).expect("ours");
        assert!(matches!(access.refresh(), Refreshed::Changed));
        assert!(enter(&access, &token).is_err());
    }

    #[test]
    fn names_are_such_as_can_be_printed_and_typed() {
        for good in ["a", "Alice-2.home_x", &"n".repeat(64)] {
            assert_eq!(good.parse::<ClientName>().expect(good).as_str(), good);
        }
        for bad in ["", "a b", "a/b", "ü", "a\u{1b}", "a\n", &"n".repeat(65)] {
            assert!(bad.parse::<ClientName>().is_err(), "{bad:?}");
        }
    }
}
