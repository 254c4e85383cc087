//! Output of an attempt that runs on another node, read over its link.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::StreamExt;
use model::codec;
use model::message::AttemptRef;
use runner::logs::{LogChunk, Position, decode_chunks};
use transport::RefusalKind;

use crate::cluster::PeerNode;
use crate::runner_node::{READ_LOG, ReadLog};

/// Time for a node to begin its answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the log of an attempt in parts.
pub(super) struct RemoteReader {
    peer: Arc<PeerNode>,
    attempt_ref: AttemptRef,
    position: Position,
    chunks: VecDeque<LogChunk>,
    runtime: tokio::runtime::Handle,
}

impl RemoteReader {
    pub fn new(peer: Arc<PeerNode>, attempt_ref: AttemptRef, runtime: tokio::runtime::Handle) -> Self {
        Self { peer, attempt_ref, position: Position::default(), chunks: VecDeque::new(), runtime }
    }

    /// The next chunk, or `None` if there is none yet. Blocks.
    pub fn next(&mut self) -> io::Result<Option<LogChunk>> {
        if self.chunks.is_empty() {
            self.chunks = self.runtime.clone().block_on(self.read())?.into();
        }
        Ok(self.chunks.pop_front())
    }

    async fn read(&mut self) -> io::Result<Vec<LogChunk>> {
        let request = codec::encode(&ReadLog { attempt_ref: self.attempt_ref, after: self.position });
        let answer = self.peer.requests().call(READ_LOG, request.into(), TIMEOUT).await;
        let mut answer = match answer {
            Ok(answer) => answer,
            // Its end is committed: the output is a blob by now. Or the attempt has not begun to write.
            Err(refusal) if refusal.kind() == RefusalKind::NotFound => return Ok(Vec::new()),
            Err(refusal) => return Err(io::Error::other(refusal)),
        };
        let Some(head) = answer.next().await else { return Ok(Vec::new()) };
        let head = match head {
            Ok(head) => head,
            Err(refusal) if refusal.kind() == RefusalKind::NotFound => return Ok(Vec::new()),
            Err(refusal) => return Err(io::Error::other(refusal)),
        };
        let after: Position = codec::decode(&head).map_err(io::Error::other)?;
        let mut encoded = BytesMut::new();
        while let Some(part) = answer.next().await {
            encoded.extend_from_slice(&part.map_err(io::Error::other)?);
        }
        let chunks = decode_chunks(encoded.freeze(), self.position)?;
        self.position = after;
        Ok(chunks)
    }
}
