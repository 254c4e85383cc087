//! Standard output and standard error of a guest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError};

use crate::spec::{Sink, Stream};

/// Write size announced to the guest. A larger write is accepted too, since its data is already in host memory.
const WRITE_BYTES: usize = 64 << 10;

/// Both streams of one guest, with a shared limit.
pub struct Output {
    sink: Arc<dyn Sink>,
    /// Remaining limit. Only the guest's thread writes; the atomics merely satisfy `Sync`.
    left_bytes: AtomicU64,
    truncated_bytes: AtomicU64,
}

impl Output {
    pub fn new(sink: Arc<dyn Sink>, bytes_max: u64) -> Self {
        Self { sink, left_bytes: AtomicU64::new(bytes_max), truncated_bytes: AtomicU64::new(0) }
    }

    pub fn truncated_bytes(&self) -> u64 {
        self.truncated_bytes.load(Ordering::Relaxed)
    }

    fn write(&self, stream: Stream, bytes: &[u8]) {
        let left = self.left_bytes.load(Ordering::Relaxed);
        let accepted = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        if accepted > 0 {
            self.sink.write(stream, &bytes[..accepted]);
            self.left_bytes.store(left - accepted as u64, Ordering::Relaxed);
        }
        self.truncated_bytes.fetch_add((bytes.len() - accepted) as u64, Ordering::Relaxed);
    }
}

/// One stream of a guest. Every open of it returns a clone.
#[derive(Clone)]
pub struct Pipe {
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
        // Only used by WASI 0.3, which is not linked.
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
    struct RecordingSink(Mutex<Vec<u8>>);

    impl Sink for RecordingSink {
        fn write(&self, _stream: Stream, bytes: &[u8]) {
            assert!(!bytes.is_empty());
            self.0.lock().extend_from_slice(bytes);
        }
    }

    #[test]
    fn output_is_truncated_at_the_shared_limit_of_both_streams() {
        let sink = Arc::new(RecordingSink::default());
        let output = Output::new(sink.clone(), 6);
        output.write(Stream::Stdout, b"abcd");
        assert_eq!(output.truncated_bytes(), 0);
        output.write(Stream::Stderr, b"efgh");
        output.write(Stream::Stdout, b"ij");
        assert_eq!(*sink.0.lock(), b"abcdef");
        assert_eq!(output.truncated_bytes(), 4);
    }
}
