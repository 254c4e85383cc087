//! The way from an attempt's init to the spawner.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use minicbor::{Decode, Encode};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use crate::protocol::{Exit, Key};

/// The end of the attempt in a slot.
#[derive(Debug, Encode, Decode)]
pub struct Report {
    #[n(0)]
    pub slot: u32,
    /// Whose it is: a slot may have been given to another in the meantime.
    #[n(1)]
    pub key: Key,
    #[n(2)]
    pub exit: Exit,
}

/// A report is a verdict and a few numbers.
const REPORT_BYTES_MAX: usize = 4096;

impl Report {
    pub fn send(&self, to: BorrowedFd<'_>) -> io::Result<()> {
        let bytes = minicbor::to_vec(self).map_err(io::Error::other)?;
        send(to, &bytes, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The next report, if one waits.
    pub fn receive(from: BorrowedFd<'_>) -> Option<Self> {
        let mut bytes = [0; REPORT_BYTES_MAX];
        let (_, length) = recv(from, &mut bytes[..], RecvFlags::DONTWAIT).ok()?;
        minicbor::decode(bytes.get(..length)?).ok()
    }
}

/// The spawner's end, and the one that all inits share.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}
