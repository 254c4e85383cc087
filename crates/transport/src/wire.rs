//! The bytes below HTTP/2. Records how a connection ended, which HTTP/2 does not tell in full.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::error::chain;

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer said goodbye.
    Orderly,
    /// The connection broke.
    Broken(Fault),
    /// The peer did not answer keep-alive pings.
    KeepAliveTimeout,
    /// This side closed it.
    Local,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) text: String,
    /// The peer rejected our certificate.
    pub(crate) is_certificate_rejected: bool,
}

impl Fault {
    pub(crate) fn of(error: &io::Error) -> Self {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let is_certificate_rejected = tls.is_some_and(|tls| match tls {
            rustls::Error::AlertReceived(alert) => {
                format!("{alert:?}").contains("Certificate") || is_unknown_ca(*alert)
            }
            _ => false,
        });
        let text = match error.kind() {
            // rustls adds an address of its documentation.
            io::ErrorKind::UnexpectedEof => "the peer ended without closing it".to_owned(),
            _ => chain(error),
        };
        Self { text, is_certificate_rejected }
    }
}

fn is_unknown_ca(alert: rustls::AlertDescription) -> bool {
    alert == rustls::AlertDescription::UnknownCA || alert == rustls::AlertDescription::DecryptError
}

/// Observes one connection. Clones observe the same one.
#[derive(Debug, Clone)]
pub(crate) struct Wire {
    end: watch::Receiver<Option<End>>,
}

impl Wire {
    /// How the connection ended. `None` while it is open.
    pub(crate) fn end(&self) -> Option<End> {
        self.end.borrow().clone()
    }

    pub(crate) async fn ended(&self) -> End {
        let mut end = self.end.clone();
        let ended = end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        ended.unwrap_or(End::Local)
    }
}

/// A connection that records its end.
pub(crate) struct WireIo<S> {
    stream: S,
    end: watch::Sender<Option<End>>,
    keep_alive_timeout: Duration,
    last_read: Instant,
}

impl<S> WireIo<S> {
    pub(crate) fn new(stream: S, keep_alive_timeout: Duration) -> (Self, Wire) {
        let (end, observer) = watch::channel(None);
        (Self { stream, end, keep_alive_timeout, last_read: Instant::now() }, Wire { end: observer })
    }

    /// The first end counts.
    fn record(&self, end: impl FnOnce() -> End) {
        self.end.send_if_modified(|recorded| {
            let is_first = recorded.is_none();
            if is_first {
                *recorded = Some(end());
            }
            is_first
        });
    }

    fn observe<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &result {
            self.record(|| End::Broken(Fault::of(error)));
        }
        result
    }
}

/// HTTP/2 drops a connection whose pings are not answered, without a trace of the reason.
impl<S> Drop for WireIo<S> {
    fn drop(&mut self) {
        let is_silent = self.last_read.elapsed() >= self.keep_alive_timeout;
        self.record(|| if is_silent { End::KeepAliveTimeout } else { End::Local });
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WireIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (before, had_room) = (buffer.filled().len(), buffer.remaining() > 0);
        let result = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Poll::Ready(Ok(())) = result {
            if buffer.filled().len() > before {
                self.last_read = Instant::now();
            } else if had_room {
                self.record(|| End::Orderly);
            }
        }
        self.observe(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WireIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.observe(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.observe(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.observe(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Envelopes are small and urgent: they are not held back for later ones.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)
}

/// What each side lets the other send ahead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Windows {
    pub(crate) stream_bytes: u32,
    pub(crate) connection_bytes: u32,
    pub(crate) frame_bytes: u32,
    pub(crate) send_buffer_bytes: usize,
}

/// A stalled stream holds at most its own window, so others on the same connection go on.
pub(crate) const MEMBER_WINDOWS: Windows =
    Windows { stream_bytes: 2 << 20, connection_bytes: 16 << 20, frame_bytes: 1 << 20, send_buffer_bytes: 1 << 20 };

pub(crate) const JOINING_WINDOWS: Windows =
    Windows { stream_bytes: 64 << 10, connection_bytes: 64 << 10, frame_bytes: 16 << 10, send_buffer_bytes: 64 << 10 };

/// HTTP/2 pings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// Time without data after which a ping is sent.
    pub interval: Duration,
    /// Time to answer it.
    pub timeout: Duration,
}

impl KeepAlive {
    /// For links: a vanished peer is noticed after 5 s.
    pub const LINK: Self = Self { interval: Duration::from_secs(1), timeout: Duration::from_secs(4) };
    /// For transfers, which may fill a slow line.
    pub const BULK: Self = Self { interval: Duration::from_secs(10), timeout: Duration::from_secs(20) };
}
