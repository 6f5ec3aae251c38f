//! Identities of the two ends. The server has a key, whose fingerprint clients pin. The clients
//! have a token that never crosses the wire.
//!
//! Both ends prove that they know the token by a hash of it and of a secret that only this TLS
//! connection has (RFC 8446 §7.5, exporters). A man in the middle has two connections with two
//! different secrets, so a proof from one does not hold on the other. A server seen for the first
//! time must prove itself before it is trusted.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::private::{self, Home};
use super::secret_error::SecretError;

/// Bytes of a fingerprint, and random bytes of a token that we make: 160 bits, of which neither can
/// be guessed or matched.
const BYTES: usize = 20;
/// Fewest characters of a token that was not made here.
const MIN_TOKEN: usize = 16;
/// Where a folder keeps the token of the client [`DEFAULT`](super::access::DEFAULT).
pub const TOKEN_FILE: &str = "token";
/// Where a folder keeps a server's key.
pub const IDENTITY_FILE: &str = "server.pem";

/// RFC 4648's letters, in lower case: no 0, 1 or 8 to mistake for a letter.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// A server's key, as a client recognises it: the first 160 bits of the BLAKE3 hash of its
/// certificate, as 32 letters and digits in groups of four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; BYTES]);

impl Fingerprint {
    /// The fingerprint of a certificate in DER.
    pub fn of(certificate: &[u8]) -> Self {
        let hash = blake3::hash(certificate);
        let mut bytes = [0; BYTES];
        bytes.copy_from_slice(&hash.as_bytes()[..BYTES]);
        Fingerprint(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_letters(&self.0))
    }
}

impl FromStr for Fingerprint {
    type Err = SecretError;

    /// Reads a printed fingerprint; case, dashes, colons and spaces do not matter.
    fn from_str(text: &str) -> Result<Self, SecretError> {
        from_letters(text).map(Fingerprint).ok_or_else(|| {
            SecretError::Text(format!(
                "`{text}` is not a fingerprint: those are 32 letters and digits, as `serve` prints them"
            ))
        })
    }
}

fn to_letters(bytes: &[u8; BYTES]) -> String {
    let mut text = String::with_capacity(BYTES * 2);
    for (index, five) in bytes.as_chunks::<5>().0.iter().enumerate() {
        let bits = five
            .iter()
            .fold(0u64, |bits, &byte| bits << 8 | u64::from(byte));
        for place in (0..8).rev() {
            if (place == 7 && index > 0) || place == 3 {
                text.push('-');
            }
            text.push(char::from(LETTERS[(bits >> (5 * place)) as usize & 31]));
        }
    }
    text
}

fn from_letters(text: &str) -> Option<[u8; BYTES]> {
    let mut bytes = Vec::with_capacity(BYTES);
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.chars().filter(|c| !matches!(c, '-' | ':' | ' ')) {
        let letter = letter.to_ascii_lowercase();
        let value = LETTERS.iter().position(|&l| char::from(l) == letter)?;
        bits = (bits << 5 | value as u32) & 0xfff;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    // Nothing may be left over.
    bytes.try_into().ok().filter(|_| count == 0)
}

/// The key that proves a client's identity: a hash of its token. A server keeps only this. It lets
/// its holder pass for the client, so it is as secret as the token.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(blake3::Hash);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// Reads one as [`to_hex`](Self::to_hex) writes it.
    pub fn from_hex(text: &str) -> Option<Self> {
        blake3::Hash::from_hex(text).ok().map(Key)
    }

    /// The key as hexadecimal digits, for a file.
    pub fn to_hex(&self) -> String {
        self.0.to_hex().to_string()
    }

    /// Proof that one end of a connection has the key; `channel` is the secret of the connection.
    pub fn proof(&self, channel: &[u8; 32], prover: Prover) -> [u8; 32] {
        let role: &[u8] = match prover {
            Prover::Client => b"client",
            Prover::Server => b"server",
        };
        *blake3::Hasher::new_keyed(self.0.as_bytes())
            .update(channel)
            .update(role)
            .finalize()
            .as_bytes()
    }

    /// Whether a proof holds; the time taken reveals nothing about it.
    pub fn verify(&self, channel: &[u8; 32], prover: Prover, proof: &[u8; 32]) -> bool {
        // `blake3::Hash` is compared in constant time.
        blake3::Hash::from_bytes(self.proof(channel, prover)) == blake3::Hash::from_bytes(*proof)
    }
}

/// The secret that admits a client. Shown only on purpose.
#[derive(Clone)]
pub struct Token {
    key: Key,
    text: String,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// The end of a connection that makes a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prover {
    /// The end that connected.
    Client,
    /// The end that was connected to.
    Server,
}

impl Token {
    /// Takes a token that a user gave. White space around it does not matter.
    ///
    /// # Errors
    /// If it is short enough to be guessed.
    pub fn new(text: &str) -> Result<Self, SecretError> {
        let text = text.trim();
        if text.len() < MIN_TOKEN {
            return Err(SecretError::Text(format!(
                "the token is {} characters long; it takes at least {MIN_TOKEN} that nobody can guess",
                text.len()
            )));
        }
        let key = blake3::derive_key("verus transfer 1: client token", text.as_bytes());
        Ok(Token {
            key: Key(blake3::Hash::from_bytes(key)),
            text: text.to_owned(),
        })
    }

    /// Makes one.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn random() -> Result<Self, SecretError> {
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes).map_err(|error| SecretError::Make(error.to_string()))?;
        Token::new(&to_letters(&bytes))
    }

    /// Reads one from a file that no other user may read.
    ///
    /// # Errors
    /// If it cannot be read, others may read it, or it is too short.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        Token::found_in(path, &private::read(path)?)
    }

    /// Reads the one that is kept in a folder, if there is one.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn in_home(home: &Home) -> Result<Option<Self>, SecretError> {
        let path = home.path().join(TOKEN_FILE);
        let text = home.read(TOKEN_FILE)?;
        text.map(|text| Token::found_in(&path, &text.text))
            .transpose()
    }

    fn found_in(path: &Path, text: &str) -> Result<Self, SecretError> {
        Token::new(text).map_err(|error| SecretError::Bad {
            path: path.to_owned(),
            problem: format!("holds no token: {error}"),
        })
    }

    /// Makes the one that is kept in a folder, unless there is one.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn keep_in(home: &Home) -> Result<(), SecretError> {
        home.create(TOKEN_FILE, &format!("{}\n", Token::random()?.text))
    }

    /// The token itself.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The key that proves it.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Proof that one end of a connection knows the token; `channel` is the secret of the
    /// connection.
    pub fn proof(&self, channel: &[u8; 32], prover: Prover) -> [u8; 32] {
        self.key.proof(channel, prover)
    }

    /// Whether a proof holds; the time taken reveals nothing about it.
    pub fn verify(&self, channel: &[u8; 32], prover: Prover, proof: &[u8; 32]) -> bool {
        self.key.verify(channel, prover, proof)
    }
}

/// A server's key and certificate.
#[derive(Debug)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Makes one that is kept nowhere.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn random() -> Result<Self, SecretError> {
        Identity::parse(&Identity::generate()?)
            .map_err(|problem| SecretError::Make(problem.to_owned()))
    }

    /// Reads the one that is kept in a folder, or makes it.
    ///
    /// # Errors
    /// If it cannot be read or made, or others may read it.
    pub fn kept_in(home: &Home) -> Result<Self, SecretError> {
        let text = match home.read(IDENTITY_FILE)? {
            Some(text) => text.text,
            None => {
                home.create(IDENTITY_FILE, &Identity::generate()?)?;
                // Another process may have been faster, and its key is the one that clients will meet.
                home.read(IDENTITY_FILE)?
                    .ok_or_else(|| SecretError::Make("it is gone again".to_owned()))?
                    .text
            }
        };
        Identity::parse(&text).map_err(|problem| SecretError::Bad {
            path: home.path().join(IDENTITY_FILE),
            problem: problem.to_owned(),
        })
    }

    fn generate() -> Result<String, SecretError> {
        // Clients look at the key alone; the name is for people who inspect it. Its validity is rcgen's
        // default, from 1975 to 4096: pinned keys do not expire.
        let made = rcgen::generate_simple_self_signed(["verus".to_owned()])
            .map_err(|error| SecretError::Make(error.to_string()))?;
        Ok(format!(
            "{}{}",
            made.cert.pem(),
            made.signing_key.serialize_pem()
        ))
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let certificate = CertificateDer::from_pem_slice(text.as_bytes())
            .map_err(|_| "holds no certificate in PEM form")?;
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes())
            .map_err(|_| "holds no private key in PEM form")?;
        Ok(Identity { certificate, key })
    }

    /// The fingerprint by which clients recognise it.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// The certificate and the key, for TLS.
    pub fn parts(&self) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        (self.certificate.clone(), self.key.clone_key())
    }

    /// A secret for one purpose that stays the same as long as the identity does.
    pub fn derive(&self, purpose: &'static str) -> [u8; 32] {
        blake3::derive_key(purpose, self.key.secret_der())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn an_identity_is_made_once_and_kept_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::make(&folder.path().join("a/b")).expect("made");
        let first = Identity::kept_in(&home).expect("made");
        let again = Identity::kept_in(&home).expect("read");
        assert_eq!(first.fingerprint(), again.fingerprint());
        assert_eq!(first.derive("x"), again.derive("x"));
        assert_ne!(first.derive("x"), first.derive("y"));
        assert!(Token::in_home(&home).expect("none").is_none());
        Token::keep_in(&home).expect("made");
        let token = Token::in_home(&home).expect("readable").expect("made");
        Token::keep_in(&home).expect("there already");
        let again = Token::in_home(&home).expect("readable").expect("made");
        assert_eq!(token.text(), again.text());
        for file in [IDENTITY_FILE, TOKEN_FILE] {
            let mode = fs::metadata(home.path().join(file)).expect("it exists");
            assert_eq!(mode.mode() & 0o777, 0o600, "{file}");
        }
        assert_eq!(fs::read_dir(home.path()).expect("it exists").count(), 2);
        assert_ne!(
            first.fingerprint(),
            Identity::random().expect("made").fingerprint()
        );
    }

    #[test]
    fn a_key_that_others_may_read_or_that_is_none_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::make(folder.path()).expect("there");
        Identity::kept_in(&home).expect("made");
        let path = folder.path().join(IDENTITY_FILE);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("ours");
        let error = Identity::kept_in(&home).expect_err("others may read it");
        assert!(error.to_string().contains("mode 644"), "{error}");
        fs::write(&path, "nonsense").expect("ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
        let error = Identity::kept_in(&home).expect_err("it is no key");
        assert!(error.to_string().contains("no certificate"), "{error}");
    }

    #[test]
    fn only_the_same_token_on_the_same_connection_by_the_same_end_proves() {
        let token = Token::random().expect("random numbers");
        let other = Token::random().expect("random numbers");
        let (here, there) = ([1; 32], [2; 32]);
        let proof = token.proof(&here, Prover::Client);
        assert!(token.verify(&here, Prover::Client, &proof));
        assert!(!token.verify(&there, Prover::Client, &proof));
        assert!(!token.verify(&here, Prover::Server, &proof));
        assert!(!other.verify(&here, Prover::Client, &proof));
        assert!(Token::new("short").is_err());
        assert_eq!(format!("{token:?}"), "Token", "it does not leak into logs");
    }

    #[test]
    fn a_fingerprint_is_read_as_printed_and_as_people_type_it() {
        let print = Fingerprint([7; BYTES]);
        let text = print.to_string();
        assert_eq!(text.len(), 32 + 7);
        assert_eq!(text.parse::<Fingerprint>().expect("printed"), print);
        let typed = text.to_uppercase().replace('-', " ");
        assert_eq!(typed.parse::<Fingerprint>().expect("typed"), print);
        assert!("abcd".parse::<Fingerprint>().is_err());
        assert!(format!("{text}a").parse::<Fingerprint>().is_err());
        assert!(text.replace('a', "1").parse::<Fingerprint>().is_err());
    }

    #[test]
    fn letters_are_those_of_rfc_4648() {
        // `printf '\0\1…\23' | base32`, in lower case.
        let bytes = std::array::from_fn(|index| index as u8);
        assert_eq!(
            to_letters(&bytes).replace('-', ""),
            "aaaqeayeaudaocajbifqydiob4ibceqt"
        );
    }

    proptest! {
        #[test]
        fn letters_survive(bytes in prop::array::uniform20(any::<u8>())) {
            prop_assert_eq!(from_letters(&to_letters(&bytes)), Some(bytes));
        }
    }
}
