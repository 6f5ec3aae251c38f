//! Keys, tags and tokens: authentication, without a state for unauthenticated peers.
//!
//! Every packet ends its covered part with a tag: keyed BLAKE3, cut to 16 bytes. The padding after
//! it is the same in all packets. Handshake packets are keyed by the pre-shared key. Without one,
//! they are keyed by a public constant, so that the tag is a checksum. A connection's packets are
//! keyed by that and both ends' random nonces, with a different key for each direction. So even
//! without a pre-shared key, an attacker who did not see the handshake cannot forge them. A packet
//! recorded in one connection is useless in another, and in the other direction. This
//! authenticates; it does not encrypt.
//!
//! An address is proven by a token, which only a receiver at that address can return. It holds all
//! that the server must know, so the server keeps nothing until it comes back (RFC 9000 §8.1.2).

use std::net::{IpAddr, SocketAddr};

use blake3::Hasher;
use constant_time_eq::constant_time_eq;
use verus_core::{Duration, Time};

use super::wire::{MIN_HELLO_BYTES, Packet, TAG_BYTES};

/// How long a token is good for: the round trip that it needs, with a wide margin.
const TOKEN_LIFETIME: Duration = Duration::from_secs(15);

/// Context of the handshake's key (BLAKE3's key derivation wants one that is unique to its use).
const CONTEXT: &str = "Verus probe, wire format 2, handshake key";

/// Argon2id with 64 MiB, three passes and four lanes: the second choice of RFC 9106 §4, for where 2 GiB is too
/// much. A tenth of a second, once at the start.
const STRETCH: (u32, u32, u32) = (64 * 1024, 3, 4);

/// The salt is the same everywhere. Both ends must derive the same key before the first packet, so
/// that a server keeps no state for a client without a key and sends it nothing. Tables computed
/// for this salt are as large as the keys in them; only a random key resists those.
const SALT: &[u8] = b"Verus probe, wire format 2, salt";

/// A pre-shared key, stretched: an attacker with a recorded handshake pays as much for each guess.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// The bytes of a key file, stretched. It takes 64 MiB of memory meanwhile.
    pub fn stretch(key: &[u8]) -> Self {
        let (memory, passes, lanes) = STRETCH;
        let params = argon2::Params::new(memory, passes, lanes, Some(32))
            .expect("constant parameters within the algorithm's limits");
        let mut secret = [0; 32];
        argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params)
            .hash_password_into(key, SALT, &mut secret)
            .expect(
                "a key of a file's size and a salt of 32 bytes are within the algorithm's limits",
            );
        Secret(secret)
    }
}

/// A key for one purpose.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// The key of handshake packets: from the pre-shared secret, or the one that everybody knows.
    pub fn handshake(secret: Option<&Secret>) -> Self {
        let mut hasher = Hasher::new_derive_key(CONTEXT);
        if let Some(secret) = secret {
            hasher.update(b"shared:");
            hasher.update(&secret.0);
        }
        Key(*hasher.finalize().as_bytes())
    }

    /// A key from random bytes.
    pub fn random(bytes: [u8; 32]) -> Self {
        Key(bytes)
    }

    fn derive(&self, parts: &[&[u8]]) -> Key {
        let mut hasher = Hasher::new_keyed(&self.0);
        for part in parts {
            hasher.update(part);
        }
        Key(*hasher.finalize().as_bytes())
    }

    fn tag(&self, covered: &[u8]) -> [u8; TAG_BYTES] {
        let hash = blake3::keyed_hash(&self.0, covered);
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&hash.as_bytes()[..TAG_BYTES]);
        tag
    }

    /// A seed that only holders of the key can know, for a flow of a connection.
    pub fn secret(&self, connection: u64, flow: u16) -> u64 {
        let derived = self.derive(&[&connection.to_be_bytes(), &flow.to_be_bytes()]);
        let mut secret = [0; 8];
        secret.copy_from_slice(&derived.0[..8]);
        u64::from_le_bytes(secret)
    }

    /// Writes the tag behind the first `covered` bytes of `buffer`; returns where it ends.
    #[inline]
    pub fn seal(&self, buffer: &mut [u8], covered: usize) -> usize {
        let tag = self.tag(&buffer[..covered]);
        buffer[covered..covered + TAG_BYTES].copy_from_slice(&tag);
        covered + TAG_BYTES
    }

    /// A separate packet: the output of `encode`, sealed, and padded to at least `padded_to` bytes.
    pub fn sealed(&self, padded_to: usize, encode: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
        let mut packet = vec![0; padded_to.max(MIN_HELLO_BYTES + TAG_BYTES)];
        let covered = encode(&mut packet);
        let end = self.seal(&mut packet, covered);
        packet.truncate(end.max(padded_to));
        super::wire::pad(&mut packet, end);
        packet
    }

    /// Whether the packet was sealed with this key and is unchanged.
    #[inline]
    pub fn opens(&self, packet: &Packet<'_>) -> bool {
        constant_time_eq(&self.tag(packet.covered), packet.tag) && packet.is_padded()
    }
}

/// The two keys of a connection.
#[derive(Clone, Debug)]
pub struct Keys {
    /// For the client's packets.
    pub client: Key,
    /// For the server's packets.
    pub server: Key,
}

impl Keys {
    /// The keys of the connection between the ends that chose these nonces.
    pub fn new(handshake: &Key, client_nonce: &[u8; 16], server_nonce: &[u8; 16]) -> Self {
        let direction = |name: &[u8]| handshake.derive(&[name, client_nonce, server_nonce]);
        Keys {
            client: direction(b"client to server"),
            server: direction(b"server to client"),
        }
    }
}

/// Bytes of a token.
pub const TOKEN_BYTES: usize = 8 + TAG_BYTES;

/// Mints and checks tokens; holds nothing but its key.
#[derive(Debug)]
pub struct Tokens(Key);

impl Tokens {
    /// Tokens under a key that only this server knows.
    pub fn new(key: Key) -> Self {
        Tokens(key)
    }

    /// A token that proves, to this server and for a while, that the sender of it and `nonce`
    /// receives at `address`.
    pub fn mint(&self, now: Time, address: SocketAddr, nonce: &[u8; 16]) -> [u8; TOKEN_BYTES] {
        let at = now.as_nanos().to_be_bytes();
        let mut token = [0; TOKEN_BYTES];
        token[..8].copy_from_slice(&at);
        token[8..].copy_from_slice(&self.mac(&at, address, nonce));
        token
    }

    /// Whether `token` proves `address` now.
    pub fn proves(&self, now: Time, address: SocketAddr, nonce: &[u8; 16], token: &[u8]) -> bool {
        let Some((at, mac)) = token.split_first_chunk::<8>() else {
            return false;
        };
        let minted = Time::from_nanos(u64::from_be_bytes(*at));
        constant_time_eq(&self.mac(at, address, nonce), mac)
            && minted <= now
            && now.since(minted) <= TOKEN_LIFETIME
    }

    fn mac(&self, at: &[u8; 8], address: SocketAddr, nonce: &[u8; 16]) -> [u8; TAG_BYTES] {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let mut bytes = [0; 8 + 16 + 2 + 16];
        bytes[..8].copy_from_slice(at);
        bytes[8..24].copy_from_slice(&ip);
        bytes[24..26].copy_from_slice(&address.port().to_be_bytes());
        bytes[26..].copy_from_slice(nonce);
        self.0.tag(&bytes)
    }
}

/// Tells repeats from new packets by a counter that rises with each packet, for counters up to 64
/// behind the newest. Older ones count as repeats (RFC 4303 §3.4.3).
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayWindow {
    newest: Option<u64>,
    /// Bit i: whether `newest − i` was seen.
    seen: u64,
}

/// A packet's freshness by its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Newer than all before.
    Newest,
    /// Overtaken on the way.
    Late,
    /// Seen before, or too old to tell.
    Repeat,
}

impl ReplayWindow {
    /// Notes a counter.
    #[inline]
    pub fn note(&mut self, counter: u64) -> Freshness {
        let Some(newest) = self.newest else {
            self.newest = Some(counter);
            self.seen = 1;
            return Freshness::Newest;
        };
        if counter > newest {
            let ahead = counter - newest;
            self.seen = if ahead < 64 {
                self.seen << ahead | 1
            } else {
                1
            };
            self.newest = Some(counter);
            return Freshness::Newest;
        }
        let behind = newest - counter;
        if behind >= 64 || self.seen >> behind & 1 == 1 {
            return Freshness::Repeat;
        }
        self.seen |= 1 << behind;
        Freshness::Late
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Accept, Kind, encode_plain};
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_tag_is_good_for_its_bytes_its_key_and_its_direction_alone() {
        let secret = Secret::stretch(b"secret");
        let handshake = Key::handshake(Some(&secret));
        let keys = Keys::new(&handshake, &[1; 16], &[2; 16]);
        let mut buffer = [0; 100];
        let covered = encode_plain(Kind::Challenge, 7, &[9; 16], &mut buffer);
        let end = keys.server.seal(&mut buffer, covered);
        crate::wire::pad(&mut buffer, end);
        let end = buffer.len();
        let good = Packet::parse(&buffer[..end]).expect("well formed");
        assert!(keys.server.opens(&good));
        assert!(!keys.client.opens(&good), "no reflection");
        assert!(
            !Keys::new(&handshake, &[1; 16], &[3; 16])
                .server
                .opens(&good)
        );
        assert!(!Key::handshake(None).opens(&good));
        for at in 0..end {
            let mut forged = buffer;
            forged[at] ^= 1;
            let forged = Packet::parse(&forged[..end]);
            assert!(
                !forged.is_ok_and(|packet| keys.server.opens(&packet)),
                "byte {at}"
            );
        }
        let covered = Accept {
            client_nonce: [1; 16],
            server_nonce: [2; 16],
            limit_bps: None,
            quiet_millis: 0,
        }
        .encode(7, &mut buffer);
        let end = Key::handshake(None).seal(&mut buffer, covered);
        let open = Packet::parse(&buffer[..end]).expect("well formed");
        assert!(Key::handshake(None).opens(&open));
        let empty = Secret::stretch(b"");
        assert!(!Key::handshake(Some(&empty)).opens(&open));
    }

    #[test]
    fn a_token_proves_one_address_for_a_while() {
        let tokens = Tokens::new(Key::random([5; 32]));
        let (here, now) = (address("192.0.2.1:5"), Time::from_millis(1_000_000));
        let token = tokens.mint(now, here, &[1; 16]);
        assert!(tokens.proves(now + Duration::from_secs(15), here, &[1; 16], &token));
        assert!(!tokens.proves(now + Duration::from_secs(16), here, &[1; 16], &token));
        assert!(!tokens.proves(Time::ZERO, here, &[1; 16], &token));
        assert!(!tokens.proves(now, address("192.0.2.1:6"), &[1; 16], &token));
        assert!(!tokens.proves(now, here, &[2; 16], &token));
        assert!(!tokens.proves(now, here, &[1; 16], &token[..23]));
        assert!(!tokens.proves(now, here, &[1; 16], &[]));
        assert!(!Tokens::new(Key::random([6; 32])).proves(now, here, &[1; 16], &token));
    }

    proptest! {
        #[test]
        fn each_counter_is_new_once(counters in prop::collection::vec(0u64..200, 0..300)) {
            let mut window = ReplayWindow::default();
            let mut noted = HashSet::new();
            let mut newest = None;
            for counter in counters {
                let expected = if newest.is_none_or(|newest| counter > newest) {
                    Freshness::Newest
                } else if noted.contains(&counter) || newest.is_some_and(|newest| newest - counter >= 64) {
                    Freshness::Repeat
                } else {
                    Freshness::Late
                };
                prop_assert_eq!(window.note(counter), expected);
                noted.insert(counter);
                newest = newest.max(Some(counter));
            }
        }
    }
}
