//! Sealed packets: authenticated and encrypted with the cluster's key.
//!
//! A datagram is a version, the id of the key, the sender's stream, a counter, and the sealed packet with its tag. The
//! cluster's id and everything before the packet are associated data.

use std::fmt;

use hashbrown::HashMap;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};

use crate::limits::{DATAGRAM_BYTES_MAX, MEMBERS_MAX, PACKET_BYTES_MAX};

const VERSION: u8 = 1;
const KEY_ID: std::ops::Range<usize> = 1..5;
const STREAM: std::ops::Range<usize> = 5..21;
const COUNTER: std::ops::Range<usize> = 21..29;
const HEADER_BYTES: usize = 29;
const TAG_BYTES: usize = 16;

/// What sealing adds to a packet.
pub(crate) const OVERHEAD_BYTES: usize = HEADER_BYTES + TAG_BYTES;

/// Most streams whose counters are remembered. Twice the members: each may have been started again.
const STREAMS_MAX: usize = 2 * MEMBERS_MAX;

/// Counters below the newest one that are still accepted, once each. Packets may overtake each other.
const WINDOW: u64 = 64;

/// Names a cluster. Packets of another cluster are not accepted, even with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClusterId(pub [u8; 16]);

/// The secret that all nodes of a cluster share.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey([u8; 32]);

impl ClusterKey {
    pub fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(…)")
    }
}

/// The keys of a node.
///
/// To replace a key without losing packets, every node first accepts the new key, then seals with it and accepts the old one,
/// then drops the old one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyring {
    pub cluster: ClusterId,
    /// Seals what this node sends.
    pub seal_with: ClusterKey,
    /// Accepted from others, besides `seal_with`.
    pub also_accept: Option<ClusterKey>,
}

/// Why a datagram was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("the datagram is too short")]
    Truncated,
    #[error("the datagram is longer than {DATAGRAM_BYTES_MAX} bytes")]
    Oversize,
    #[error("the datagram has an unknown version")]
    WrongVersion,
    #[error("the datagram is sealed with a key that this node does not have")]
    UnknownKey,
    #[error("the datagram is damaged, forged or from another cluster")]
    NotAuthentic,
    #[error("the datagram was received before")]
    Replayed,
}

/// The system has no random numbers, or refuses the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot seal packets: the system has no random numbers")]
pub struct SealError;

/// Datagrams by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenCounters {
    pub opened: u64,
    pub truncated: u64,
    pub oversize: u64,
    pub wrong_version: u64,
    pub unknown_key: u64,
    pub not_authentic: u64,
    pub replayed: u64,
}

/// Both directions of a node's sealed packets.
#[derive(Debug)]
pub struct Sealed {
    cluster: ClusterId,
    /// The first one seals.
    keys: Vec<MasterKey>,
    stream: [u8; 16],
    seal_key: LessSafeKey,
    sent: u64,
    streams: HashMap<StreamId, Stream, foldhash::quality::RandomState>,
    /// Orders the streams by their last use.
    clock: u64,
    counters: OpenCounters,
}

type StreamId = ([u8; 4], [u8; 16]);

#[derive(Debug)]
struct MasterKey {
    id: [u8; 4],
    secret: hkdf::Prk,
}

impl MasterKey {
    fn new(key: &ClusterKey) -> Result<Self, SealError> {
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, b"outlast gossip").extract(&key.0);
        let mut id = [0; 4];
        let info = [b"key id".as_slice()];
        secret.expand(&info, Length(id.len())).and_then(|okm| okm.fill(&mut id)).map_err(|_| SealError)?;
        Ok(Self { id, secret })
    }

    /// The key of one sender's stream. The stream's name is random for each start of a node, so no two senders and no two
    /// starts share a key, and a counter is a nonce that never repeats. A random nonce under one common key would reach
    /// its safe limit of 2³² packets in days.
    fn stream_key(&self, stream: &[u8; 16]) -> Result<LessSafeKey, SealError> {
        let info = [b"stream".as_slice(), stream];
        let okm = self.secret.expand(&info, &CHACHA20_POLY1305).map_err(|_| SealError)?;
        Ok(LessSafeKey::new(UnboundKey::from(okm)))
    }
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Another node's stream.
#[derive(Debug)]
struct Stream {
    key: LessSafeKey,
    newest: u64,
    /// Bit n: the counter `newest - n` was received.
    received: u64,
    used_at: u64,
}

impl Stream {
    fn is_fresh(&self, counter: u64) -> bool {
        if counter > self.newest {
            return true;
        }
        let age = self.newest - counter;
        age < WINDOW && self.received >> age & 1 == 0
    }

    fn mark(&mut self, counter: u64) {
        if counter > self.newest {
            let steps = counter - self.newest;
            self.received = if steps < WINDOW { self.received << steps } else { 0 };
            self.newest = counter;
        }
        self.received |= 1 << (self.newest - counter);
    }
}

impl Sealed {
    pub fn new(keyring: &Keyring) -> Result<Self, SealError> {
        let mut stream = [0; 16];
        SystemRandom::new().fill(&mut stream).map_err(|_| SealError)?;
        let keys = master_keys(keyring)?;
        Ok(Self {
            cluster: keyring.cluster,
            seal_key: keys[0].stream_key(&stream)?,
            keys,
            stream,
            sent: 0,
            streams: HashMap::default(),
            clock: 0,
            counters: OpenCounters::default(),
        })
    }

    /// Replaces the keys. Datagrams of keys that are gone are no longer accepted.
    pub fn rotate(&mut self, keyring: &Keyring) -> Result<(), SealError> {
        let keys = master_keys(keyring)?;
        self.seal_key = keys[0].stream_key(&self.stream)?;
        self.cluster = keyring.cluster;
        self.streams.retain(|(key_id, _), _| keys.iter().any(|key| key.id == *key_id));
        self.keys = keys;
        Ok(())
    }

    pub fn counters(&self) -> OpenCounters {
        self.counters
    }

    /// Seals a packet. Fails only for a packet that is too long.
    pub fn seal(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        if packet.len() > PACKET_BYTES_MAX.get() {
            return None;
        }
        self.sent += 1;
        let mut datagram = Vec::with_capacity(packet.len() + OVERHEAD_BYTES);
        datagram.push(VERSION);
        datagram.extend_from_slice(&self.keys[0].id);
        datagram.extend_from_slice(&self.stream);
        datagram.extend_from_slice(&self.sent.to_be_bytes());
        let aad = associated_data(self.cluster, &datagram);
        datagram.extend_from_slice(packet);
        let tag = self
            .seal_key
            .seal_in_place_separate_tag(nonce(self.sent), Aad::from(aad), &mut datagram[HEADER_BYTES..])
            .ok()?;
        datagram.extend_from_slice(tag.as_ref());
        Some(datagram)
    }

    /// Opens a datagram, once.
    pub fn open(&mut self, datagram: &[u8]) -> Result<Vec<u8>, OpenError> {
        let result = self.try_open(datagram);
        let counter = match &result {
            Ok(_) => &mut self.counters.opened,
            Err(OpenError::Truncated) => &mut self.counters.truncated,
            Err(OpenError::Oversize) => &mut self.counters.oversize,
            Err(OpenError::WrongVersion) => &mut self.counters.wrong_version,
            Err(OpenError::UnknownKey) => &mut self.counters.unknown_key,
            Err(OpenError::NotAuthentic) => &mut self.counters.not_authentic,
            Err(OpenError::Replayed) => &mut self.counters.replayed,
        };
        *counter += 1;
        result
    }

    fn try_open(&mut self, datagram: &[u8]) -> Result<Vec<u8>, OpenError> {
        if datagram.len() > DATAGRAM_BYTES_MAX {
            return Err(OpenError::Oversize);
        }
        let (Some(header), Some(body)) = (datagram.first_chunk::<HEADER_BYTES>(), datagram.get(HEADER_BYTES..)) else {
            return Err(OpenError::Truncated);
        };
        if body.len() < TAG_BYTES {
            return Err(OpenError::Truncated);
        }
        if header[0] != VERSION {
            return Err(OpenError::WrongVersion);
        }
        let key_id: [u8; 4] = part(header, KEY_ID);
        let stream: [u8; 16] = part(header, STREAM);
        let counter = u64::from_be_bytes(part(header, COUNTER));
        let master = self.keys.iter().find(|key| key.id == key_id).ok_or(OpenError::UnknownKey)?;
        let aad = Aad::from(associated_data(self.cluster, header));
        let mut packet = body.to_vec();
        let id = (key_id, stream);
        self.clock += 1;
        if let Some(known) = self.streams.get_mut(&id) {
            if !known.is_fresh(counter) {
                return Err(OpenError::Replayed);
            }
            let opened = known.key.open_in_place(nonce(counter), aad, &mut packet);
            let len = opened.map_err(|_| OpenError::NotAuthentic)?.len();
            known.mark(counter);
            known.used_at = self.clock;
            packet.truncate(len);
            return Ok(packet);
        }
        let key = master.stream_key(&stream).map_err(|_| OpenError::NotAuthentic)?;
        let len = key.open_in_place(nonce(counter), aad, &mut packet).map_err(|_| OpenError::NotAuthentic)?.len();
        packet.truncate(len);
        // Only an authentic stream is remembered. One that has been silent for longest makes room: if it is replayed later,
        // its packets are addressed to nodes by incarnation, and nobody acts on them.
        if self.streams.len() >= STREAMS_MAX
            && let Some(oldest) = self.streams.iter().min_by_key(|(_, stream)| stream.used_at).map(|(id, _)| *id)
        {
            self.streams.remove(&oldest);
        }
        self.streams.insert(id, Stream { key, newest: counter, received: 1, used_at: self.clock });
        Ok(packet)
    }
}

fn master_keys(keyring: &Keyring) -> Result<Vec<MasterKey>, SealError> {
    std::iter::once(&keyring.seal_with).chain(&keyring.also_accept).map(MasterKey::new).collect()
}

fn associated_data(cluster: ClusterId, header: &[u8]) -> Vec<u8> {
    [cluster.0.as_slice(), header].concat()
}

fn nonce(counter: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// A part of the header; the ranges above have the right lengths.
fn part<const N: usize>(header: &[u8; HEADER_BYTES], range: std::ops::Range<usize>) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&header[range]);
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyring(cluster: u8, key: u8, also: Option<u8>) -> Keyring {
        Keyring {
            cluster: ClusterId([cluster; 16]),
            seal_with: ClusterKey::new([key; 32]),
            also_accept: also.map(|key| ClusterKey::new([key; 32])),
        }
    }

    fn sealed(cluster: u8, key: u8, also: Option<u8>) -> Sealed {
        Sealed::new(&keyring(cluster, key, also)).unwrap()
    }

    #[test]
    fn packets_open_once_in_any_order_within_the_window() {
        let (mut a, mut b) = (sealed(1, 1, None), sealed(1, 1, None));
        let datagrams: Vec<_> = (0..100u8).map(|number| a.seal(&[number]).unwrap()).collect();
        assert_eq!(b.open(&datagrams[50]), Ok(vec![50]));
        assert_eq!(b.open(&datagrams[49]), Ok(vec![49]));
        assert_eq!(b.open(&datagrams[50]), Err(OpenError::Replayed));
        assert_eq!(b.open(&datagrams[49]), Err(OpenError::Replayed));
        assert_eq!(b.open(&datagrams[99]), Ok(vec![99]));
        assert_eq!(b.open(&datagrams[36]), Ok(vec![36]), "the oldest one of the window");
        assert_eq!(b.open(&datagrams[35]), Err(OpenError::Replayed), "too old to know");
        assert_eq!(b.open(&datagrams[50]), Err(OpenError::Replayed));
        assert_eq!(b.counters(), OpenCounters { opened: 4, replayed: 4, ..OpenCounters::default() });
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let (mut a, mut b) = (sealed(1, 1, None), sealed(1, 1, None));
        let datagram = a.seal(b"hello").unwrap();
        for index in 0..datagram.len() {
            let mut damaged = datagram.clone();
            damaged[index] ^= 1;
            assert!(b.open(&damaged).is_err(), "byte {index}");
        }
        for len in 0..datagram.len() {
            assert!(b.open(&datagram[..len]).is_err(), "{len} bytes");
        }
        assert_eq!(b.open(&datagram), Ok(b"hello".to_vec()));
    }

    #[test]
    fn packets_of_another_cluster_or_key_are_refused() {
        let mut other_cluster = sealed(2, 1, None);
        let mut other_key = sealed(1, 2, None);
        let mut me = sealed(1, 1, None);
        assert_eq!(me.open(&other_cluster.seal(b"x").unwrap()), Err(OpenError::NotAuthentic));
        assert_eq!(me.open(&other_key.seal(b"x").unwrap()), Err(OpenError::UnknownKey));
        assert_eq!(me.open(&[VERSION; DATAGRAM_BYTES_MAX + 1]), Err(OpenError::Oversize));
        assert_eq!(me.open(&[9; 100]), Err(OpenError::WrongVersion));
        assert_eq!(me.open(&[]), Err(OpenError::Truncated));
    }

    #[test]
    fn a_packet_of_full_size_fits_and_a_longer_one_does_not() {
        let (mut a, mut b) = (sealed(1, 1, None), sealed(1, 1, None));
        let packet = vec![7; PACKET_BYTES_MAX.get()];
        let datagram = a.seal(&packet).unwrap();
        assert_eq!(datagram.len(), DATAGRAM_BYTES_MAX);
        assert_eq!(b.open(&datagram), Ok(packet));
        assert_eq!(a.seal(&vec![7; PACKET_BYTES_MAX.get() + 1]), None);
    }

    #[test]
    fn a_key_is_replaced_without_losing_a_packet() {
        let (mut a, mut b) = (sealed(1, 1, None), sealed(1, 1, None));
        let steps = [(1, Some(2)), (2, Some(1)), (2, None)];
        for (key, also) in steps {
            a.rotate(&keyring(1, key, also)).unwrap();
            assert!(b.open(&a.seal(b"x").unwrap()).is_ok());
            assert!(a.open(&b.seal(b"x").unwrap()).is_ok());
            b.rotate(&keyring(1, key, also)).unwrap();
        }
        let mut old = sealed(1, 1, None);
        assert_eq!(b.open(&old.seal(b"x").unwrap()), Err(OpenError::UnknownKey));
    }

    #[test]
    fn keys_are_not_printed() {
        assert_eq!(format!("{:?}", ClusterKey::new([7; 32])), "ClusterKey(…)");
    }
}
