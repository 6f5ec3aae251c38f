//! The file of a server's clients: names, rights, and keys that recognise their tokens, but never
//! the tokens.
//!
//! It is JSON, for people to read:
//! `{"version": 1, "tokens": [{"name": "alice", "rights": "both", "made": "2026-11-22T03:17:00Z", "key": "…"}]}`.
//! A new one takes the old one's place at once, and two writers wait for each other.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{ClientName, DEFAULT, MAX_CLIENTS, Rights};
use crate::private::Home;
use crate::secret_error::SecretError;
use crate::secrets::{Key, TOKEN_FILE, Token};

/// Where a folder keeps its clients.
pub const STORE_FILE: &str = "tokens.json";
/// The version of the format; another one is refused.
const VERSION: u32 = 1;

/// Why a client cannot be added, or taken away.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The file cannot be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// It has a token already.
    #[error("`{0}` has a token already; `verus serve token revoke {0}` takes it away")]
    Exists(ClientName),
    /// The name is that of the token of the folder.
    #[error(
        "`{DEFAULT}` is the client that has the token in the file `{TOKEN_FILE}`; take another name"
    )]
    Reserved,
    /// There is no such client.
    #[error("`{0}` has no token here; `verus serve token list` names those who have")]
    Absent(ClientName),
    /// There are enough.
    #[error("there are {MAX_CLIENTS} clients, and no more may be")]
    Full,
}

/// A client's entry in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its name.
    pub name: ClientName,
    /// Its rights.
    pub rights: Rights,
    /// When its token was made; for the token of the folder, when its file was written.
    pub made: SystemTime,
    /// The key that recognises its token.
    pub key: Key,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    tokens: Vec<StoredClient>,
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredClient {
    name: String,
    rights: String,
    made: String,
    key: String,
}

impl StoredClient {
    fn parse(self) -> Result<Kept, String> {
        let name = &self.name;
        let about = |problem: String| format!("client {name:?}: {problem}");
        let key = Key::from_hex(&self.key);
        Ok(Kept {
            name: name.parse().map_err(about)?,
            rights: self.rights.parse().map_err(about)?,
            made: humantime::parse_rfc3339_weak(&self.made)
                .map_err(|_| about("`made` is a time like 2026-11-22T03:17:00Z".to_owned()))?,
            key: key.ok_or_else(|| about("`key` is 64 hexadecimal digits".to_owned()))?,
        })
    }
}

impl From<&Kept> for StoredClient {
    fn from(kept: &Kept) -> Self {
        StoredClient {
            name: kept.name.to_string(),
            rights: kept.rights.to_string(),
            made: humantime::format_rfc3339_seconds(kept.made).to_string(),
            key: kept.key.to_hex(),
        }
    }
}

/// The clients of a folder's store; none if there is none.
///
/// # Errors
/// If it cannot be read, others may read it, or it is not such a file.
pub fn read(home: &Home) -> Result<Vec<Kept>, SecretError> {
    match home.read(STORE_FILE)? {
        None => Ok(Vec::new()),
        Some(text) => parse(&text.text).map_err(|problem| SecretError::Bad {
            path: home.path().join(STORE_FILE),
            problem,
        }),
    }
}

fn parse(text: &str) -> Result<Vec<Kept>, String> {
    let unreadable = |error: serde_json::Error| format!("is not a list of tokens: {error}");
    let Versioned { version } = serde_json::from_str(text).map_err(unreadable)?;
    if version != VERSION {
        return Err(format!(
            "has version {version}; this program knows version {VERSION}"
        ));
    }
    let document: Document = serde_json::from_str(text).map_err(unreadable)?;
    if document.tokens.len() > MAX_CLIENTS {
        return Err(format!("has more than {MAX_CLIENTS} tokens"));
    }
    let mut names = BTreeSet::new();
    let mut clients = Vec::new();
    for entry in document.tokens {
        let kept = entry.parse()?;
        if kept.name.as_str() == DEFAULT || !names.insert(kept.name.clone()) {
            return Err(format!("has `{}` twice", kept.name));
        }
        clients.push(kept);
    }
    Ok(clients)
}

fn write(home: &Home, clients: &[Kept]) -> Result<(), SecretError> {
    let document = Document {
        version: VERSION,
        tokens: clients.iter().map(StoredClient::from).collect(),
    };
    let mut text = serde_json::to_string_pretty(&document)
        .map_err(|error| SecretError::Make(error.to_string()))?;
    text.push('\n');
    home.replace(STORE_FILE, &text)
}

/// The clients of a folder, to be changed. Servers that run notice.
#[derive(Debug)]
pub struct Store {
    home: Home,
}

impl Store {
    /// Those of this folder.
    pub fn open(home: Home) -> Self {
        Store { home }
    }

    /// Adds a client and makes its token, which is kept nowhere.
    ///
    /// # Errors
    /// If there is one of that name, or the file cannot be written.
    pub fn add(
        &self,
        name: &ClientName,
        rights: Rights,
        made: SystemTime,
    ) -> Result<Token, StoreError> {
        if name.as_str() == DEFAULT {
            return Err(StoreError::Reserved);
        }
        let _lock = self.home.lock()?;
        let mut clients = read(&self.home)?;
        if clients.iter().any(|kept| kept.name == *name) {
            return Err(StoreError::Exists(name.clone()));
        }
        if clients.len() >= MAX_CLIENTS {
            return Err(StoreError::Full);
        }
        let token = Token::random()?;
        clients.push(Kept {
            name: name.clone(),
            rights,
            made,
            key: token.key().clone(),
        });
        write(&self.home, &clients)?;
        Ok(token)
    }

    /// Revokes a client's token. If the client is [`DEFAULT`], the token's file is removed too, and
    /// no server makes a new one.
    ///
    /// # Errors
    /// If the client has no token, or the file cannot be written.
    pub fn revoke(&self, name: &ClientName) -> Result<(), StoreError> {
        let absent = || StoreError::Absent(name.clone());
        let _lock = self.home.lock()?;
        let mut clients = read(&self.home)?;
        if name.as_str() == DEFAULT {
            if self.home.stamp(TOKEN_FILE).is_none() {
                return Err(absent());
            }
            // With a list, even an empty one, the folder does not count as unused.
            write(&self.home, &clients)?;
            self.home.remove(TOKEN_FILE)?;
            return Ok(());
        }
        let before = clients.len();
        clients.retain(|kept| kept.name != *name);
        if clients.len() == before {
            return Err(absent());
        }
        Ok(write(&self.home, &clients)?)
    }

    /// All clients, that of the folder's own token first.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn list(&self) -> Result<Vec<Kept>, SecretError> {
        let mut clients = Vec::new();
        if let Some(token) = Token::in_home(&self.home)? {
            let written = self.home.read(TOKEN_FILE)?;
            let seconds = written.map_or(0, |text| text.modified_s);
            clients.push(Kept {
                name: ClientName::default_client(),
                rights: Rights::Both,
                made: SystemTime::UNIX_EPOCH
                    + Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
                key: token.key().clone(),
            });
        }
        clients.extend(read(&self.home)?);
        Ok(clients)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ClientName {
        text.parse().expect("a good name")
    }

    #[test]
    fn the_file_has_names_and_rights_and_no_token() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(Home::make(folder.path()).expect("there"));
        let made = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let token = store.add(&name("a"), Rights::Read, made).expect("added");
        store.add(&name("b"), Rights::Both, made).expect("added");
        let text = std::fs::read_to_string(folder.path().join(STORE_FILE)).expect("written");
        assert!(
            !text.contains(token.text()) && !text.contains(&token.text()[..9]),
            "{text}"
        );
        assert!(text.contains("2001-09-09T01:46:40Z"), "{text}");
        let clients = store.list().expect("readable");
        let entries: Vec<_> = clients
            .iter()
            .map(|kept| (kept.name.as_str(), kept.rights, kept.made))
            .collect();
        assert_eq!(
            entries,
            [("a", Rights::Read, made), ("b", Rights::Both, made)]
        );
        assert_eq!(clients[0].key, *token.key());
    }

    #[test]
    fn a_name_is_given_once_and_taken_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(Home::make(folder.path()).expect("there"));
        let add = |text: &str| store.add(&name(text), Rights::Both, SystemTime::UNIX_EPOCH);
        add("a").expect("added");
        assert!(matches!(add("a"), Err(StoreError::Exists(_))));
        assert!(matches!(add(DEFAULT), Err(StoreError::Reserved)));
        store.revoke(&name("a")).expect("there");
        assert!(matches!(
            store.revoke(&name("a")),
            Err(StoreError::Absent(_))
        ));
        assert!(matches!(
            store.revoke(&name(DEFAULT)),
            Err(StoreError::Absent(_))
        ));
    }

    #[test]
    fn clients_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::make(folder.path()).expect("there");
        let key = Token::random().expect("made").key().clone();
        let kept = |number: usize| Kept {
            name: name(&format!("{number:0>64}")),
            rights: Rights::Write,
            made: SystemTime::UNIX_EPOCH,
            key: key.clone(),
        };
        let many: Vec<Kept> = (0..MAX_CLIENTS).map(kept).collect();
        write(&home, &many).expect("written");
        assert_eq!(read(&home).expect("readable"), many);
        let store = Store::open(home);
        let more = store.add(&name("more"), Rights::Both, SystemTime::UNIX_EPOCH);
        assert!(matches!(more, Err(StoreError::Full)));
    }

    #[test]
    fn a_file_that_says_what_cannot_be_is_refused() {
        let key = "0".repeat(64);
        let entry = |name: &str, rights: &str, made: &str, key: &str| {
            format!(
                r#"{{"name": "{name}", "rights": "{rights}", "made": "{made}", "key": "{key}"}}"#
            )
        };
        let list = |entries: &str| format!(r#"{{"version": 1, "tokens": [{entries}]}}"#);
        let good = entry("a", "read", "2026-11-22T03:17:00Z", &key);
        assert_eq!(parse(&list(&good)).expect("good").len(), 1);
        let b = |rights: &str, made: &str, key: &str| list(&entry("b", rights, made, key));
        let time = "2026-11-22T03:17:00Z";
        for (text, word) in [
            (String::new(), "not a list"),
            ("[]".to_owned(), "not a list"),
            (r#"{"version": 2, "clients": []}"#.to_owned(), "version 2"),
            (
                r#"{"version": 1, "tokens": [], "more": 1}"#.to_owned(),
                "more",
            ),
            (list(&format!("{good}, {good}")), "twice"),
            (list(&entry(DEFAULT, "read", time, &key)), "twice"),
            (list(&entry("a b", "read", time, &key)), "name"),
            (b("all", time, &key), "rights"),
            (b("read", "yesterday", &key), "made"),
            (b("read", time, "abc"), "key"),
        ] {
            let error = parse(&text).expect_err(&text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
