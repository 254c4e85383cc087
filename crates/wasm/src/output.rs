//! What a guest prints, on its way to the sink.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError};

use crate::task::{Sink, Stream};

/// What a guest is told it may write at a time. What it writes beyond is taken too: it is in hand already.
const WRITE_BYTES: usize = 64 << 10;

/// Both streams of one guest: they share a limit.
pub(crate) struct Output {
    sink: Arc<dyn Sink>,
    /// What may still be kept. Only the guest's own thread writes: the atomics are for the types alone.
    left_bytes: AtomicU64,
    cut_bytes: AtomicU64,
}

impl Output {
    pub fn new(sink: Arc<dyn Sink>, bytes_max: u64) -> Self {
        Self { sink, left_bytes: AtomicU64::new(bytes_max), cut_bytes: AtomicU64::new(0) }
    }

    pub fn cut_bytes(&self) -> u64 {
        self.cut_bytes.load(Ordering::Relaxed)
    }

    fn write(&self, stream: Stream, bytes: &[u8]) {
        let left = self.left_bytes.load(Ordering::Relaxed);
        let kept = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        if kept > 0 {
            self.sink.write(stream, &bytes[..kept]);
            self.left_bytes.store(left - kept as u64, Ordering::Relaxed);
        }
        self.cut_bytes.fetch_add((bytes.len() - kept) as u64, Ordering::Relaxed);
    }
}

/// One stream of a guest; all that it opens are the same.
#[derive(Clone)]
pub(crate) struct Pipe {
    pub output: Arc<Output>,
    pub stream: Stream,
}

impl IsTerminal for Pipe {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Pipe {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        // Only WASI 0.3 would ask for this, and no guest gets it.
        Box::new(tokio::io::sink())
    }
}

impl OutputStream for Pipe {
    fn write(&mut self, bytes: Bytes) -> Result<(), StreamError> {
        self.output.write(self.stream, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StreamError> {
        Ok(())
    }

    fn check_write(&mut self) -> Result<usize, StreamError> {
        Ok(WRITE_BYTES)
    }
}

#[async_trait]
impl Pollable for Pipe {
    async fn ready(&mut self) {}
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[derive(Default)]
    struct Kept(Mutex<Vec<u8>>);

    impl Sink for Kept {
        fn write(&self, _stream: Stream, bytes: &[u8]) {
            assert!(!bytes.is_empty());
            self.0.lock().extend_from_slice(bytes);
        }
    }

    #[test]
    fn output_is_cut_at_the_limit_of_both_streams_together() {
        let kept = Arc::new(Kept::default());
        let output = Output::new(kept.clone(), 6);
        output.write(Stream::Stdout, b"abcd");
        assert_eq!(output.cut_bytes(), 0);
        output.write(Stream::Stderr, b"efgh");
        output.write(Stream::Stdout, b"ij");
        assert_eq!(*kept.0.lock(), b"abcdef");
        assert_eq!(output.cut_bytes(), 4);
    }
}
