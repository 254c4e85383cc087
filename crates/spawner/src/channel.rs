//! The socket between a server and its spawner: whole messages, with descriptors.

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

/// A message up to this size goes through the socket itself; a larger one in a file of its own, so that no socket's
/// limit is in the way of a long command.
const INLINE_BYTES_MAX: usize = 32 * 1024;
/// The largest message that is read.
pub const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How many descriptors come with a message at most: a log, an input, and the message itself.
const DESCRIPTORS_MAX: usize = 3;

const INLINE: u8 = 0;
const IN_A_FILE: u8 = 1;

/// One end of the connection.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    /// Kept from message to message: a process that forks pays for every page that it touches anew.
    received: Mutex<Box<[u8]>>,
}

impl Channel {
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, received: Mutex::new(vec![0; INLINE_BYTES_MAX].into_boxed_slice()) }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a message. `WouldBlock` on a socket that does not wait: nothing was sent.
    pub fn send(&self, message: &impl Encode<()>, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut bytes = vec![INLINE];
        minicbor::encode(message, &mut bytes).map_err(io::Error::other)?;
        if bytes.len() <= INLINE_BYTES_MAX {
            return self.send_bytes(&bytes, descriptors);
        }
        let file = memfd_create("message", MemfdFlags::CLOEXEC)?;
        write_all(file.as_fd(), &bytes[1..])?;
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().copied().chain([file.as_fd()]).collect();
        self.send_bytes(&[IN_A_FILE], &descriptors)
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

    /// The next message and its descriptors; `None` when the other side has gone.
    pub fn receive<M: for<'b> Decode<'b, ()>>(&self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        let mut bytes = self.received.lock().unwrap_or_else(PoisonError::into_inner);
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
            Some((&IN_A_FILE, _)) => minicbor::decode(&read_whole(descriptors.pop())?),
            Some(_) => return Err(malformed("an unknown kind of message")),
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
    let file = file.ok_or_else(|| malformed("a message without its file"))?;
    let size = rustix::fs::fstat(&file)?.st_size as usize;
    if size > MESSAGE_BYTES_MAX {
        return Err(malformed("a message is too long"));
    }
    let mut bytes = vec![0; size];
    let mut at = 0;
    while at < size {
        match rustix::io::pread(&file, &mut bytes[at..], at as u64)? {
            0 => return Err(malformed("a message is cut short")),
            read => at += read,
        }
    }
    Ok(bytes)
}

/// A file that reads back what it is given, from the start.
pub fn file_with(content: &[u8]) -> io::Result<OwnedFd> {
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
        let (here, there) = pair();
        for length in [0, 10, INLINE_BYTES_MAX, 3 * 1024 * 1024] {
            let text = "x".repeat(length);
            let file = file_with(b"content").unwrap();
            here.send(&text, &[file.as_fd()]).unwrap();
            let (received, descriptors) = there.receive::<String>().unwrap().unwrap();
            assert_eq!(received.len(), length);
            let mut content = [0; 7];
            rustix::io::read(&descriptors[0], &mut content).unwrap();
            assert_eq!((&content, descriptors.len()), (b"content", 1));
        }
    }

    #[test]
    fn the_largest_message_is_read_and_a_larger_one_refused() {
        let (here, there) = pair();
        // Head of a text of this length: five bytes.
        here.send(&"x".repeat(MESSAGE_BYTES_MAX - 5), &[]).unwrap();
        assert!(there.receive::<String>().unwrap().is_some());
        here.send(&"x".repeat(MESSAGE_BYTES_MAX - 4), &[]).unwrap();
        assert_eq!(there.receive::<String>().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn an_end_that_is_gone_is_told() {
        let (here, there) = pair();
        drop(here);
        assert!(there.receive::<String>().unwrap().is_none());
    }
}
