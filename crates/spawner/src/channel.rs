//! Socket between a server and its spawner: whole messages with file descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use minicbor::{Decode, Encode};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Messages up to this size go through the socket; larger ones in a memfd, because socket buffers limit the size.
const INLINE_BYTES_MAX: usize = 32 * 1024;
/// Largest message accepted.
pub const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Descriptors of one message: log, input, and the memfd of the message itself.
const DESCRIPTORS_MAX: usize = 3;

const INLINE: u8 = 0;
const IN_MEMFD: u8 = 1;

/// One end of the connection.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    /// Receive buffer, reused: after a fork, every newly touched page costs a copy.
    buffer: Mutex<Box<[u8]>>,
}

impl Channel {
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, buffer: Mutex::new(vec![0; INLINE_BYTES_MAX].into_boxed_slice()) }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a message. On `WouldBlock` (non-blocking sockets) nothing was sent.
    pub fn send(&self, message: &impl Encode<()>, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut bytes = vec![INLINE];
        minicbor::encode(message, &mut bytes).map_err(io::Error::other)?;
        if bytes.len() <= INLINE_BYTES_MAX {
            return self.send_bytes(&bytes, descriptors);
        }
        let file = memfd_create("message", MemfdFlags::CLOEXEC)?;
        write_all(file.as_fd(), &bytes[1..])?;
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().copied().chain([file.as_fd()]).collect();
        self.send_bytes(&[IN_MEMFD], &descriptors)
    }

    fn send_bytes(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one message"));
        }
        sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Next message and its descriptors; `None` once the other side has closed the connection.
    pub fn receive<M: for<'b> Decode<'b, ()>>(&self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        let mut bytes = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received =
            recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                descriptors.extend(passed);
            }
        }
        let message = match bytes[..received.bytes].split_first() {
            None => return Ok(None),
            Some((&INLINE, body)) => minicbor::decode(body),
            Some((&IN_MEMFD, _)) => minicbor::decode(&read_whole(descriptors.pop())?),
            Some(_) => return Err(malformed("unknown message kind")),
        };
        Ok(Some((message.map_err(|error| malformed(&error.to_string()))?, descriptors)))
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn write_all(file: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::write(file, bytes)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

fn read_whole(file: Option<OwnedFd>) -> io::Result<Vec<u8>> {
    let file = file.ok_or_else(|| malformed("the message's memfd is missing"))?;
    let size = rustix::fs::fstat(&file)?.st_size as usize;
    if size > MESSAGE_BYTES_MAX {
        return Err(malformed("the message is too long"));
    }
    let mut bytes = vec![0; size];
    let mut offset = 0;
    while offset < size {
        match rustix::io::pread(&file, &mut bytes[offset..], offset as u64)? {
            0 => return Err(malformed("the message is truncated")),
            read => offset += read,
        }
    }
    Ok(bytes)
}

/// Memfd with this content, positioned at its start.
pub fn memfd_with(content: &[u8]) -> io::Result<OwnedFd> {
    let file = memfd_create("input", MemfdFlags::CLOEXEC)?;
    write_all(file.as_fd(), content)?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (Channel, Channel) {
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        (Channel::new(a), Channel::new(b))
    }

    #[test]
    fn short_and_long_messages_arrive_whole_with_their_descriptors() {
        let (local, remote) = pair();
        for length in [0, 10, INLINE_BYTES_MAX, 3 * 1024 * 1024] {
            let text = "x".repeat(length);
            let file = memfd_with(b"content").unwrap();
            local.send(&text, &[file.as_fd()]).unwrap();
            let (received, descriptors) = remote.receive::<String>().unwrap().unwrap();
            assert_eq!(received.len(), length);
            let mut content = [0; 7];
            rustix::io::read(&descriptors[0], &mut content).unwrap();
            assert_eq!((&content, descriptors.len()), (b"content", 1));
        }
    }

    #[test]
    fn the_largest_message_is_accepted_and_a_larger_one_is_rejected() {
        let (local, remote) = pair();
        // CBOR header of a text of this length: five bytes.
        local.send(&"x".repeat(MESSAGE_BYTES_MAX - 5), &[]).unwrap();
        assert!(remote.receive::<String>().unwrap().is_some());
        local.send(&"x".repeat(MESSAGE_BYTES_MAX - 4), &[]).unwrap();
        assert_eq!(remote.receive::<String>().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn receiving_from_a_closed_connection_returns_none() {
        let (local, remote) = pair();
        drop(local);
        assert!(remote.receive::<String>().unwrap().is_none());
    }
}
