//! Answers of the control node to a runner node.

use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{BoxStream, try_unfold};
use futures_util::{StreamExt, TryStreamExt, stream};
use model::blob::{BlobId, WorkerId};
use model::id::NodeId;
use model::time::{Millis, Timestamp};

use super::{ObjectPeer, PeerError, PeerFuture, PeerObject, PeerUpload, PeerWorker, PutOffset, file_chunks};
use crate::blocking::blocking;
use crate::format::{HEADER_BYTES, Header};
use crate::keys::blob_key;
use crate::limits::CHUNK_BYTES;
use crate::storage::StoredRange;
use crate::{Blobs, Error, Stat};

/// The store as a peer of one runner node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PeerService {
    blobs: Blobs,
    peer: NodeId,
}

impl Blobs {
    /// Serves a runner node, whose id the network has authenticated. Its uploads count against its own limits.
    pub fn serve_peer(&self, peer: NodeId) -> PeerService {
        PeerService { blobs: self.clone(), peer }
    }

    /// Opens a stored object. From its first byte on, its checksum is verified while it is read: a damaged object is
    /// detected here and not only at the runner node, so that a client can upload it again.
    async fn open_stored(&self, id: BlobId, offset: u64) -> Result<Option<PeerObject>, Error> {
        self.shared.protection.touch(id).await;
        if self.shared.damaged.contains(id) {
            return Err(Error::damaged(id, "its bytes do not match their checksum"));
        }
        let Some((start, stored_bytes)) = self.shared.storage.get_start(&blob_key(id), HEADER_BYTES).await? else {
            return Ok(None);
        };
        let header = self.shared.damaged.record(id, Header::decode(&start, stored_bytes, id))?;
        if offset > stored_bytes {
            return Err(Error::BadRange { start: offset, end: stored_bytes, bytes: stored_bytes });
        }
        let range = self.shared.storage.get_range(&blob_key(id), offset..stored_bytes).await?;
        let Some(range) = range else { return Ok(None) };
        let chunks = match range {
            StoredRange::File(file) => file_chunks::read(SharedFile(Arc::new(file)), offset..stored_bytes).boxed(),
            StoredRange::Stream(stream) => stream,
        };
        let chunks = if offset == 0 { self.check_chunks(id, header, chunks) } else { chunks };
        Ok(Some(PeerObject { stored_bytes, content: chunks.map_err(PeerError::from).boxed() }))
    }

    fn check_chunks(
        &self,
        id: BlobId,
        header: Header,
        chunks: BoxStream<'static, Result<Bytes, Error>>,
    ) -> BoxStream<'static, Result<Bytes, Error>> {
        let damaged = Arc::clone(&self.shared.damaged);
        // Checksums are computed on blocking threads, ahead of the consumer, and combined in order.
        let summed = chunks
            .map_ok(|chunk| {
                blocking(move || {
                    let crc = crc32c::crc32c(&chunk);
                    Ok((chunk, crc))
                })
            })
            .try_buffered(2);
        let header_crc = crc32c::crc32c(&header.encode());
        let state = (summed.boxed(), 0, 0, damaged);
        try_unfold(state, move |(mut chunks, mut crc, mut bytes, damaged)| async move {
            let Some((chunk, chunk_crc)) = chunks.try_next().await? else { return Ok(None) };
            crc = crc32c::crc32c_combine(crc, chunk_crc, chunk.len());
            bytes += chunk.len() as u64;
            let is_last = bytes == HEADER_BYTES as u64 + header.packed_bytes;
            let packed_bytes = usize::try_from(header.packed_bytes).unwrap_or(usize::MAX);
            if is_last && crc != crc32c::crc32c_combine(header_crc, header.packed_crc, packed_bytes) {
                damaged.record(id, Err(Error::damaged(id, "its bytes do not match their checksum")))?;
            }
            Ok(Some((chunk, (chunks, crc, bytes, damaged))))
        })
        .boxed()
    }

    async fn open_manifest(&self, id: WorkerId) -> Result<Option<PeerWorker>, Error> {
        let Some((manifest, registered_at)) = self.shared.storage.manifest(id).await? else { return Ok(None) };
        let manifest_bytes = manifest.len() as u64;
        let mut rest = manifest;
        let chunks = std::iter::from_fn(move || {
            let chunk = rest.split_to(rest.len().min(CHUNK_BYTES));
            (!chunk.is_empty()).then_some(Ok(chunk))
        });
        let registered_at = Timestamp(Millis(registered_at));
        Ok(Some(PeerWorker { registered_at, manifest_bytes, manifest: stream::iter(chunks).boxed() }))
    }
}

impl ObjectPeer for PeerService {
    fn stat(&self, id: BlobId) -> PeerFuture<'_, Option<Stat>> {
        Box::pin(async move {
            self.blobs.shared.protection.touch(id).await;
            // A damaged blob counts as missing, so that a runner node with its content repairs it.
            if self.blobs.shared.damaged.contains(id) {
                return Ok(None);
            }
            Ok(self.blobs.stat(id).await?)
        })
    }

    fn get(&self, id: BlobId, offset: u64) -> PeerFuture<'_, Option<PeerObject>> {
        Box::pin(async move { Ok(self.blobs.open_stored(id, offset).await?) })
    }

    fn put_offset(&self, id: BlobId, stored_bytes: u64) -> PeerFuture<'_, PutOffset> {
        Box::pin(async move { Ok(self.blobs.peer_put_offset(self.peer, id, stored_bytes).await?) })
    }

    fn put(&self, id: BlobId, upload: PeerUpload) -> PeerFuture<'_, ()> {
        Box::pin(async move { Ok(self.blobs.peer_put(self.peer, id, upload).await?) })
    }

    fn missing(&self, ids: Vec<BlobId>) -> PeerFuture<'_, Vec<BlobId>> {
        Box::pin(async move { Ok(self.blobs.missing(&ids).await?) })
    }

    fn worker(&self, id: WorkerId) -> PeerFuture<'_, Option<PeerWorker>> {
        Box::pin(async move { Ok(self.blobs.open_manifest(id).await?) })
    }
}

#[derive(Clone)]
struct SharedFile(Arc<File>);

impl AsRef<File> for SharedFile {
    fn as_ref(&self) -> &File {
        &self.0
    }
}
