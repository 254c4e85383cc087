//! Answers of a runner node to its control node.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use minicbor::{Decode, Encode};
use model::codec;
use model::envelope::FromNode;
use model::message::AttemptRef;
use runner::logs::{self, Position, Reader};
use tokio::sync::watch;
use transport::{Answers, ByteStream, Refusal, RefusalKind};

use super::{ControlLink, report};

/// Request for a part of an attempt's log.
pub(crate) const READ_LOG: &str = "log.read";
/// Request for new samples of the usage of processes. The answer is empty; the usage is sent on the link.
pub(crate) const SAMPLE: &str = "sample";

/// Size of an answer, at least one chunk.
const ANSWER_BYTES: usize = 1 << 20;

/// Body of [`READ_LOG`]. The first chunk of the answer is the position after it, then encoded chunks follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub(crate) struct ReadLog {
    #[n(0)]
    pub attempt_ref: AttemptRef,
    #[n(1)]
    pub after: Position,
}

/// Answers requests of the control node.
pub(super) struct NodeAnswers {
    pub logs: PathBuf,
    /// Absent until the runner is started.
    pub runner: Arc<watch::Sender<Option<runner::Handle>>>,
    pub link: ControlLink,
}

#[transport::async_trait]
impl Answers for NodeAnswers {
    async fn answer(&self, method: &str, body: Bytes) -> Result<ByteStream, Refusal> {
        match method {
            READ_LOG => {
                let invalid = |_| Refusal::new(RefusalKind::Invalid, "the request for a log is malformed");
                let request: ReadLog = codec::decode(&body).map_err(invalid)?;
                let path = logs::path(&self.logs, request.attempt_ref);
                let read = tokio::task::spawn_blocking(move || read_log(&path, request.after)).await;
                let failed = |text: String| Refusal::new(RefusalKind::Failed, format!("reading the log: {text}"));
                let found = read.map_err(|error| failed(error.to_string()))?;
                let gone = || Refusal::new(RefusalKind::NotFound, "this node has no log of the attempt");
                let (position, chunks) = found.map_err(|error| failed(error.to_string()))?.ok_or_else(gone)?;
                Ok(stream::iter([Ok(codec::encode(&position).into()), Ok(chunks)]).boxed())
            }
            SAMPLE => {
                let runner = self.runner.borrow().clone();
                if let Some(runner) = runner {
                    runner.sampling().refresh().await;
                    self.link.send(&FromNode::Usage(report::usage(&runner)));
                }
                Ok(stream::empty().boxed())
            }
            _ => Err(Refusal::new(RefusalKind::NotFound, format!("`{method}` is not a request to a runner node"))),
        }
    }
}

/// The next part of a log, and the position after it. `None` if there is no such log.
fn read_log(path: &Path, after: Position) -> io::Result<Option<(Position, Bytes)>> {
    let Some(mut reader) = Reader::open_at(path, after)? else { return Ok(None) };
    let mut chunks = BytesMut::new();
    while chunks.len() < ANSWER_BYTES
        && let Some(chunk) = reader.next()?
    {
        chunk.encode(&mut chunks);
    }
    Ok(Some((reader.position(), chunks.freeze())))
}
