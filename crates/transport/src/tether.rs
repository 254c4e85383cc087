//! Tethers: connections that show by their existence that a node's host is up.
//!
//! A tether is a plain TCP connection without TLS, because it is handed over to another process (the spawner), which
//! outlives the server process of its node. After one line and one byte nothing is sent; only its end matters. It
//! carries no data and grants no rights. Its proof is a MAC with a one-time secret that the control node sent over an
//! authenticated connection, so nobody else can open one.
//!
//! The line: `outlast-tether/1 <node> <incarnation> <challenge> <mac>`.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use model::id::{Incarnation, NodeId};
use ring::hmac;
use rustix::net::sockopt;

use crate::limits::{TETHER_HELLO_BYTES_MAX, TETHER_KEEP_ALIVE, TETHER_PROBES_MAX};

const PROTOCOL: &str = "outlast-tether/1";
/// The answer of the control node to a valid hello.
pub(crate) const ACCEPTED: u8 = b'+';

/// The right to open one tether. Valid for a short time.
#[derive(Clone, PartialEq, Eq)]
pub struct Proof {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) challenge: [u8; 16],
    pub(crate) secret: [u8; 32],
}

/// Without the secret.
impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proof")
            .field("node", &self.node)
            .field("incarnation", &self.incarnation)
            .finish_non_exhaustive()
    }
}

/// Opens a tether. Blocks for at most `timeout` per step. The connection can be passed to another process.
pub fn dial(address: SocketAddr, proof: &Proof, timeout: Duration) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(timeout))?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(Hello::signed(proof).to_string().as_bytes())?;
    let mut answer = [0];
    match stream.read(&mut answer)? {
        1 if answer[0] == ACCEPTED => {}
        _ => return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the control node refused the tether")),
    }
    stream.set_write_timeout(None)?;
    stream.set_read_timeout(None)?;
    keep_alive(&stream)?;
    Ok(stream)
}

/// The kernel probes the peer, whichever process holds the connection.
pub(crate) fn keep_alive(stream: impl AsFd) -> io::Result<()> {
    let stream = stream.as_fd();
    sockopt::set_tcp_keepidle(stream, TETHER_KEEP_ALIVE)?;
    sockopt::set_tcp_keepintvl(stream, TETHER_KEEP_ALIVE)?;
    sockopt::set_tcp_keepcnt(stream, TETHER_PROBES_MAX)?;
    sockopt::set_socket_keepalive(stream, true)?;
    Ok(())
}

/// The only line of a tether.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) challenge: [u8; 16],
    mac: [u8; 32],
}

impl Hello {
    pub(crate) fn signed(proof: &Proof) -> Self {
        let mut hello =
            Self { node: proof.node, incarnation: proof.incarnation, challenge: proof.challenge, mac: [0; 32] };
        let key = hmac::Key::new(hmac::HMAC_SHA256, &proof.secret);
        let mac = hmac::sign(&key, hello.signed_part().as_bytes());
        hello.mac.copy_from_slice(mac.as_ref());
        hello
    }

    /// Compares in constant time.
    pub(crate) fn is_signed_with(&self, secret: &[u8; 32]) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        hmac::verify(&key, self.signed_part().as_bytes(), &self.mac).is_ok()
    }

    fn signed_part(&self) -> String {
        format!("{PROTOCOL} {} {} {}", self.node, self.incarnation.0, Hex(&self.challenge))
    }

    /// Parses a line, which ends with a line feed.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        if line.len() > TETHER_HELLO_BYTES_MAX {
            return None;
        }
        let mut words = std::str::from_utf8(line).ok()?.strip_suffix('\n')?.split(' ');
        if words.next()? != PROTOCOL {
            return None;
        }
        let hello = Self {
            node: words.next()?.parse().ok()?,
            incarnation: Incarnation(words.next()?.parse().ok()?),
            challenge: parse_hex(words.next()?)?,
            mac: parse_hex(words.next()?)?,
        };
        let is_canonical = words.next().is_none() && hello.to_string().as_bytes() == line;
        is_canonical.then_some(hello)
    }
}

impl fmt::Display for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.signed_part(), Hex(&self.mac))
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// Tells tethers of one node apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TetherId(pub u64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TetherEvent {
    Opened { tether: TetherId, node: NodeId, incarnation: Incarnation },
    Closed { tether: TetherId, node: NodeId, incarnation: Incarnation, reason: TetherEnd },
}

/// Why a tether ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TetherEnd {
    /// The last holder closed it or died (FIN).
    Closed,
    /// The host reset it (RST), as after a reboot.
    Reset,
    /// The host does not answer any more.
    Vanished,
    /// The peer sent data.
    Protocol,
    /// This server was shut down.
    Shutdown,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hellos_round_trip_and_prove_their_secret(node: u64, incarnation: u64, challenge: [u8; 16], secret: [u8; 32]) {
            let proof = Proof { node: NodeId(node), incarnation: Incarnation(incarnation), challenge, secret };
            let hello = Hello::signed(&proof);
            let line = hello.to_string();
            prop_assert!(line.len() <= TETHER_HELLO_BYTES_MAX);
            prop_assert_eq!(Hello::parse(line.as_bytes()), Some(hello.clone()));
            prop_assert!(hello.is_signed_with(&secret));
            let mut other = secret;
            other[3] ^= 1;
            prop_assert!(!hello.is_signed_with(&other));
            let changed = Hello { incarnation: Incarnation(incarnation ^ 1), ..hello };
            prop_assert!(!changed.is_signed_with(&secret));
        }

        #[test]
        fn any_bytes_are_rejected_or_round_trip(line in "(outlast-tether/1 )?(node_[0-9a-z]{13} )?[+0-9]{0,4} ?[0-9a-fA-F]{0,32} ?[0-9a-f]{0,64}\n?") {
            if let Some(hello) = Hello::parse(line.as_bytes()) {
                prop_assert_eq!(hello.to_string(), line);
            }
        }
    }
}
