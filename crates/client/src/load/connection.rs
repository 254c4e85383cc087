//! Raw HTTP/1.1 connection with one request at a time.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::reply::{Head, Length, Malformed, parse_chunks, parse_head};
use crate::address::Address;

const BUFFER_BYTES: usize = 64 * 1024;

/// A keep-alive connection for one request at a time.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    content: Vec<u8>,
}

/// A response; borrows the connection's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply<'a> {
    pub status: u16,
    pub body: &'a [u8],
    /// The server closes the connection after this response.
    pub closes: bool,
}

impl Connection {
    pub async fn open(address: &Address) -> io::Result<Self> {
        let stream = TcpStream::connect(address.host_and_port()).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(BUFFER_BYTES), content: Vec::new() })
    }

    /// Sends a complete request and reads the response. After an error the connection must not be used further.
    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<Reply<'_>> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let head = self.read_head().await?;
        let chunked = match head.length {
            Length::Known(length) => {
                self.read_until(head.size + length).await?;
                false
            }
            Length::Chunked => {
                self.read_chunks(head.size).await?;
                true
            }
        };
        let body = if chunked { &self.content[..] } else { &self.buffer[head.size..] };
        Ok(Reply { status: head.status, body, closes: head.closes })
    }

    async fn read_head(&mut self) -> io::Result<Head> {
        loop {
            self.read_some().await?;
            if let Some(head) = parse_head(&self.buffer).map_err(malformed)? {
                return Ok(head);
            }
        }
    }

    async fn read_until(&mut self, size: usize) -> io::Result<()> {
        while self.buffer.len() < size {
            self.read_some().await?;
        }
        if self.buffer.len() > size {
            return Err(malformed(Malformed("it is longer than its Content-Length")));
        }
        Ok(())
    }

    async fn read_chunks(&mut self, start: usize) -> io::Result<()> {
        while parse_chunks(&self.buffer[start..], &mut self.content).map_err(malformed)?.is_none() {
            self.read_some().await?;
        }
        Ok(())
    }

    async fn read_some(&mut self) -> io::Result<()> {
        self.buffer.reserve(BUFFER_BYTES / 4);
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

fn malformed(error: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
