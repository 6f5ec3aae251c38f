//! Admission of clients to a server: each client has a name, a token and rights.
//!
//! The protocol carries no names. A client proves that it knows one of the keys
//! ([`secrets`](super::secrets)), and the server compares the proof with each of them. One
//! comparison is a keyed hash of 38 bytes, one block of BLAKE3, for at most [`MAX_CLIENTS`]
//! clients. The server always tries all of them, so that the time reveals nothing.

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
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if (1..=MAX_NAME).contains(&text.len()) && text.chars().all(allowed) {
            Ok(ClientName(text.into()))
        } else {
            Err(format!(
                "a client's name is 1 to {MAX_NAME} letters, digits, `.`, `_` and `-`"
            ))
        }
    }
}

/// Rights of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// List and get files.
    Read,
    /// Put files and make folders, without learning about the files there.
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
    /// Its rights.
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

    /// The server's proof that it knows this client's key, too.
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

/// Result of reading the list of clients again.
#[derive(Debug)]
pub enum Refreshed {
    /// It is the same.
    Same,
    /// It has changed: clients that are missing from it must go.
    Changed,
    /// It cannot be read, so the last list stays in force. Reported once.
    Trouble(SecretError),
}

/// The clients that a server admits.
#[derive(Debug)]
pub struct Access(Kind);

#[derive(Debug)]
enum Kind {
    Anybody,
    One(Visitor),
    Folder(Box<ClientFolder>),
}

/// Clients of a folder of secrets, which may change at any time.
#[derive(Debug)]
struct ClientFolder {
    home: Home,
    /// Replaces the folder's own token.
    token_override: Option<Key>,
    list: Mutex<ClientList>,
}

#[derive(Debug)]
struct ClientList {
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
    /// The clients of the store in a folder. The client [`DEFAULT`] has `token_override`, or else
    /// the folder's own token.
    ///
    /// # Errors
    /// If they cannot be read, or others may read them.
    pub fn kept_in(home: Home, token_override: Option<Token>) -> Result<Self, SecretError> {
        let token_override = token_override.map(|token| token.key().clone());
        let list = ClientList::read(&home, token_override.as_ref())?;
        Ok(Access(Kind::Folder(Box::new(ClientFolder {
            home,
            token_override,
            list: Mutex::new(list),
        }))))
    }

    /// How many clients there are; none if anybody is let in.
    pub fn clients(&self) -> Option<usize> {
        match &self.0 {
            Kind::Anybody => None,
            Kind::One(_) => Some(1),
            Kind::Folder(folder) => Some(folder.clients().len()),
        }
    }

    /// Checks whether the list of clients has changed. May read files.
    pub fn refresh(&self) -> Refreshed {
        match &self.0 {
            Kind::Anybody | Kind::One(_) => Refreshed::Same,
            Kind::Folder(folder) => folder.refresh(),
        }
    }

    /// The client that made this proof; `channel` is the secret of the connection.
    ///
    /// # Errors
    /// If no client's key verifies it.
    pub fn admit(&self, channel: &[u8; 32], proof: Option<&[u8; 32]>) -> Result<Visitor, Stranger> {
        let find = |clients: &[Visitor]| {
            let proof = proof.ok_or(Stranger::NoToken)?;
            let mut admitted = Err(Stranger::WrongToken);
            for client in clients {
                let key = client.key.as_ref();
                if key.is_some_and(|key| key.verify(channel, Prover::Client, proof)) {
                    admitted = Ok(client);
                }
            }
            admitted.cloned()
        };
        match &self.0 {
            Kind::Anybody => Ok(Visitor {
                name: None,
                rights: Rights::Both,
                key: None,
            }),
            Kind::One(client) => find(std::slice::from_ref(client)),
            Kind::Folder(folder) => find(&folder.clients()),
        }
    }

    /// Whether a client that was let in would be let in again, with the same rights.
    pub fn still_admits(&self, visitor: &Visitor) -> bool {
        match &self.0 {
            Kind::Anybody | Kind::One(_) => true,
            Kind::Folder(folder) => folder.clients().contains(visitor),
        }
    }
}

impl ClientFolder {
    fn list(&self) -> std::sync::MutexGuard<'_, ClientList> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clients(&self) -> Arc<[Visitor]> {
        Arc::clone(&self.list().clients)
    }

    fn refresh(&self) -> Refreshed {
        let mut list = self.list();
        let stamps = stamps(&self.home);
        if stamps == list.stamps {
            return Refreshed::Same;
        }
        match ClientList::read(&self.home, self.token_override.as_ref()) {
            Ok(read) => {
                let same = read.clients == list.clients;
                *list = read;
                if same {
                    Refreshed::Same
                } else {
                    Refreshed::Changed
                }
            }
            Err(error) => {
                // Reported again only after the next change of the file.
                list.stamps = stamps;
                Refreshed::Trouble(error)
            }
        }
    }
}

fn stamps(home: &Home) -> [Option<Stamp>; 2] {
    [TOKEN_FILE, STORE_FILE].map(|name| home.stamp(name))
}

impl ClientList {
    fn read(home: &Home, token_override: Option<&Key>) -> Result<Self, SecretError> {
        // Taken before reading, so that a change meanwhile leads to another read.
        let stamps = stamps(home);
        let mut clients: Vec<Visitor> = store::read(home)?
            .into_iter()
            .map(|kept| Visitor::new(kept.name, kept.rights, kept.key))
            .collect();
        let default = match token_override {
            Some(key) => Some(key.clone()),
            None => Token::in_home(home)?.map(|token| token.key().clone()),
        };
        let name = ClientName::default_client();
        clients.extend(default.map(|key| Visitor::new(name, Rights::Both, key)));
        Ok(ClientList {
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

        // A given token replaces the folder's own, which is then not read.
        let override_token = Token::random().expect("made");
        let access = Access::kept_in(home(), Some(override_token.clone())).expect("readable");
        assert!(enter(&access, &override_token).is_ok());
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
