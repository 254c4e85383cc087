//! Blobs and workers over the transport: a runner node uses the blob store of its control node.
//!
//! The first chunk of every answer is a JSON head, which may be an error of the blob store. The content follows.

use std::fmt;

use blobs::Stat;
use blobs::peer::{ObjectPeer, PeerError, PeerFuture, PeerObject, PeerStream, PeerUpload, PeerWorker, PutOffset};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use model::blob::{BlobId, WorkerId};
use model::time::{Millis, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use transport::{ByteStream, Content, Refusal, RefusalKind, RequestError};

use crate::runner_node::ControlLink;

/// Kind of the object that [`ObjectPeer::get`] and [`ObjectPeer::put`] transfer.
const BLOB: &str = "blob";
const STAT: &str = "blob.stat";
const PUT_OFFSET: &str = "blob.put_offset";
const MISSING: &str = "blob.missing";
const WORKER: &str = "worker";

#[derive(Serialize, Deserialize)]
struct StatHead {
    bytes: u64,
    stored_bytes: u64,
}

/// Also the request for [`PUT_OFFSET`] and the id of an upload.
#[derive(Serialize, Deserialize)]
struct UploadHead {
    blob: String,
    stored_bytes: u64,
    offset: u64,
}

#[derive(Serialize, Deserialize)]
struct WorkerHead {
    registered_at_ms: u64,
    manifest_bytes: u64,
}

fn encode(value: &impl Serialize) -> Bytes {
    // Only maps with other keys than strings cannot be encoded.
    serde_json::to_vec(value).unwrap_or_default().into()
}

fn invalid(what: &str) -> Refusal {
    Refusal::new(RefusalKind::Invalid, format!("{what} is malformed"))
}

fn parse<T: std::str::FromStr>(text: &[u8], what: &str) -> Result<T, Refusal> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(|| invalid(what))
}

/// An answer: its head, then its content.
fn answer<T: Serialize>(head: &Result<T, PeerError>, content: PeerStream) -> ByteStream {
    let head = encode(head);
    let content = content.map_err(|error| Refusal::new(RefusalKind::Failed, error.to_string()));
    stream::once(async move { Ok(head) }).chain(content).boxed()
}

fn no_content() -> PeerStream {
    stream::empty().boxed()
}

/// Answers a request for a blob.
pub(super) async fn get(peer: &dyn ObjectPeer, kind: &str, id: &[u8], offset: u64) -> Result<ByteStream, Refusal> {
    if kind != BLOB {
        return Err(Refusal::new(RefusalKind::NotFound, format!("`{kind}` is not a kind of object")));
    }
    let (head, content) = match peer.get(parse(id, "the id of a blob")?, offset).await {
        Ok(Some(object)) => (Ok(Some(object.stored_bytes)), object.content),
        Ok(None) => (Ok(None), no_content()),
        Err(error) => (Err(error), no_content()),
    };
    Ok(answer(&head, content))
}

/// Takes an upload.
pub(super) async fn put(peer: &dyn ObjectPeer, kind: &str, id: &[u8], content: ByteStream) -> Result<Bytes, Refusal> {
    if kind != BLOB {
        return Err(Refusal::new(RefusalKind::NotFound, format!("`{kind}` is not a kind of object")));
    }
    let head: UploadHead = serde_json::from_slice(id).map_err(|_| invalid("the head of an upload"))?;
    let content = content.map_err(|refusal| PeerError::Unreachable { reason: refusal.to_string() }).boxed();
    let upload = PeerUpload { stored_bytes: head.stored_bytes, offset: head.offset, content };
    Ok(encode(&peer.put(parse(head.blob.as_bytes(), "the id of a blob")?, upload).await))
}

/// Answers other requests. `None`: not one about blobs or workers.
pub(super) async fn call(peer: &dyn ObjectPeer, method: &str, body: &[u8]) -> Option<Result<ByteStream, Refusal>> {
    Some(match method {
        STAT => stat(peer, body).await,
        PUT_OFFSET => put_offset(peer, body).await,
        MISSING => missing(peer, body).await,
        WORKER => worker(peer, body).await,
        _ => return None,
    })
}

async fn stat(peer: &dyn ObjectPeer, body: &[u8]) -> Result<ByteStream, Refusal> {
    let stat = peer.stat(parse(body, "the id of a blob")?).await;
    let head = stat.map(|stat| stat.map(|Stat { bytes, stored_bytes }| StatHead { bytes, stored_bytes }));
    Ok(answer(&head, no_content()))
}

async fn put_offset(peer: &dyn ObjectPeer, body: &[u8]) -> Result<ByteStream, Refusal> {
    let head: UploadHead = serde_json::from_slice(body).map_err(|_| invalid("the head of an upload"))?;
    let id = parse(head.blob.as_bytes(), "the id of a blob")?;
    Ok(answer(&peer.put_offset(id, head.stored_bytes).await, no_content()))
}

async fn missing(peer: &dyn ObjectPeer, body: &[u8]) -> Result<ByteStream, Refusal> {
    let ids: Vec<String> = serde_json::from_slice(body).map_err(|_| invalid("a list of blobs"))?;
    let ids: Result<Vec<BlobId>, Refusal> = ids.iter().map(|id| parse(id.as_bytes(), "the id of a blob")).collect();
    let missing = peer.missing(ids?).await;
    let missing = missing.map(|ids| ids.iter().map(ToString::to_string).collect::<Vec<String>>());
    // The list may be larger than one chunk.
    let list = missing.map(|ids| encode(&ids));
    Ok(match list {
        Ok(list) => answer(&Ok::<(), _>(()), stream::once(async { Ok(list) }).boxed()),
        Err(error) => answer(&Err::<(), _>(error), no_content()),
    })
}

async fn worker(peer: &dyn ObjectPeer, body: &[u8]) -> Result<ByteStream, Refusal> {
    Ok(match peer.worker(parse(body, "the id of a worker")?).await {
        Ok(Some(PeerWorker { registered_at, manifest_bytes, manifest })) => {
            let head = WorkerHead { registered_at_ms: registered_at.0.0, manifest_bytes };
            answer(&Ok(Some(head)), manifest)
        }
        Ok(None) => answer(&Ok(None::<WorkerHead>), no_content()),
        Err(error) => answer(&Err::<Option<WorkerHead>, _>(error), no_content()),
    })
}

/// The blob store of the control node, as a runner node uses it.
#[derive(Clone)]
pub(crate) struct RemoteObjects {
    link: ControlLink,
}

impl RemoteObjects {
    pub fn new(link: ControlLink) -> Self {
        Self { link }
    }

    fn requests(&self) -> Result<transport::Requests, PeerError> {
        let requests = self.link.requests();
        requests.ok_or_else(|| PeerError::Unreachable { reason: "the control node is not connected".to_owned() })
    }

    async fn call<T: DeserializeOwned>(&self, method: &str, body: Bytes) -> Result<(T, PeerStream), PeerError> {
        head(self.requests()?.call(method, body).await.map_err(failed)?).await
    }
}

/// Reads the head of an answer.
async fn head<T: DeserializeOwned>(mut content: Content) -> Result<(T, PeerStream), PeerError> {
    let missing = || PeerError::Unreachable { reason: "the answer has no head".to_owned() };
    let first = content.next().await.ok_or_else(missing)?.map_err(failed)?;
    let head: Result<T, PeerError> = serde_json::from_slice(&first).map_err(|_| missing())?;
    Ok((head?, content.map_err(failed).boxed()))
}

fn failed(error: RequestError) -> PeerError {
    let reason = error.to_string();
    match error {
        RequestError::Refused(refusal) => match refusal.kind() {
            RefusalKind::Busy => PeerError::Busy { reason },
            RefusalKind::Failed => PeerError::Failed { reason },
            _ => PeerError::Rejected { reason },
        },
        RequestError::Connect(_) | RequestError::Interrupted(_) | RequestError::Invalid(_) => {
            PeerError::Unreachable { reason }
        }
    }
}

async fn whole(mut content: PeerStream) -> Result<Vec<u8>, PeerError> {
    let mut bytes = Vec::new();
    while let Some(piece) = content.try_next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

impl ObjectPeer for RemoteObjects {
    fn stat(&self, id: BlobId) -> PeerFuture<'_, Option<Stat>> {
        Box::pin(async move {
            let (head, _): (Option<StatHead>, _) = self.call(STAT, id.to_string().into()).await?;
            Ok(head.map(|StatHead { bytes, stored_bytes }| Stat { bytes, stored_bytes }))
        })
    }

    fn get(&self, id: BlobId, offset: u64) -> PeerFuture<'_, Option<PeerObject>> {
        Box::pin(async move {
            let content = self.requests()?.get_object(BLOB, id.to_string().into(), offset).await.map_err(failed)?;
            let (stored_bytes, content): (Option<u64>, _) = head(content).await?;
            Ok(stored_bytes.map(|stored_bytes| PeerObject { stored_bytes, content }))
        })
    }

    fn put_offset(&self, id: BlobId, stored_bytes: u64) -> PeerFuture<'_, PutOffset> {
        Box::pin(async move {
            let body = encode(&UploadHead { blob: id.to_string(), stored_bytes, offset: 0 });
            Ok(self.call(PUT_OFFSET, body).await?.0)
        })
    }

    fn put(&self, id: BlobId, upload: PeerUpload) -> PeerFuture<'_, ()> {
        Box::pin(async move {
            let PeerUpload { stored_bytes, offset, content } = upload;
            let id = encode(&UploadHead { blob: id.to_string(), stored_bytes, offset });
            let content = content.map_err(|error| Refusal::new(RefusalKind::Failed, error.to_string())).boxed();
            let result = self.requests()?.put_object(BLOB, id, content).await.map_err(failed)?;
            let malformed = |_| PeerError::Unreachable { reason: "the answer to an upload is malformed".to_owned() };
            serde_json::from_slice::<Result<(), PeerError>>(&result).map_err(malformed)?
        })
    }

    fn missing(&self, ids: Vec<BlobId>) -> PeerFuture<'_, Vec<BlobId>> {
        Box::pin(async move {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            let ((), content): ((), _) = self.call(MISSING, encode(&ids)).await?;
            let malformed = || PeerError::Unreachable { reason: "the list of missing blobs is malformed".to_owned() };
            let missing: Vec<String> = serde_json::from_slice(&whole(content).await?).map_err(|_| malformed())?;
            missing.iter().map(|id| id.parse().map_err(|_| malformed())).collect()
        })
    }

    fn worker(&self, id: WorkerId) -> PeerFuture<'_, Option<PeerWorker>> {
        Box::pin(async move {
            let (head, manifest): (Option<WorkerHead>, _) = self.call(WORKER, id.to_string().into()).await?;
            Ok(head.map(|WorkerHead { registered_at_ms, manifest_bytes }| PeerWorker {
                registered_at: Timestamp(Millis(registered_at_ms)),
                manifest_bytes,
                manifest,
            }))
        })
    }
}

impl fmt::Debug for RemoteObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemoteObjects")
    }
}
