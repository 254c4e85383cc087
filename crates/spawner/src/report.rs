//! Reports from an attempt's init to the spawner: started, ended.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use minicbor::{Decode, Encode};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use crate::protocol::{AttemptKey, Exit};

/// State of the attempt in a slot.
#[derive(Debug, Encode, Decode)]
pub struct Report {
    #[n(0)]
    pub slot: u32,
    /// Guards against a slot that was reused in the meantime.
    #[n(1)]
    pub key: AttemptKey,
    #[n(2)]
    /// Absent: the program was started.
    pub exit: Option<Exit>,
}

/// A report is an exit status and a few numbers.
const REPORT_BYTES_MAX: usize = 4096;

impl Report {
    pub fn send(&self, to: BorrowedFd<'_>) -> io::Result<()> {
        let bytes = minicbor::to_vec(self).map_err(io::Error::other)?;
        send(to, &bytes, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Next report, if one is queued.
    pub fn receive(from: BorrowedFd<'_>) -> Option<Self> {
        let mut bytes = [0; REPORT_BYTES_MAX];
        let (_, length) = recv(from, &mut bytes[..], RecvFlags::DONTWAIT).ok()?;
        minicbor::decode(bytes.get(..length)?).ok()
    }
}

/// Receiving end of the spawner, and the sending end that all inits share.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}
