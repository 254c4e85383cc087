//! Object storage: a local directory, a bucket, or the store of a peer.

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use model::blob::{BlobId, WorkerId};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetResultPayload, ObjectMeta, ObjectStore, ObjectStoreExt};

use crate::blocking::blocking;
use crate::keys::{blob_key, worker_key};
use crate::limits::MANIFEST_BYTES_MAX;
use crate::local::Local;
use crate::options::Location;
use crate::pack::{Body, Packed};
use crate::peer::{PeerClient, Pieces};
use crate::scratch::Scratch;
use crate::{Error, Options, remote, tree};

#[derive(Debug)]
pub(crate) struct Storage {
    backend: Backend,
    /// Incomplete objects; on the same disk as the objects if these are local.
    pub scratch: Arc<Scratch>,
}

#[derive(Debug)]
enum Backend {
    Objects {
        store: Arc<dyn ObjectStore>,
        /// Writer for a local directory; `store` writes to a bucket.
        local: Option<Arc<Local>>,
    },
    Peer(PeerClient),
}

/// Stored object, opened for reading.
pub(crate) struct Object {
    pub stored_bytes: u64,
    pub payload: Payload,
}

pub(crate) enum Payload {
    File(File, PathBuf),
    Stream(ObjectStream),
    /// Received from a peer by a task of its own.
    Pieces(Pieces),
}

pub(crate) type ObjectStream = BoxStream<'static, Result<Bytes, Error>>;

/// Part of a stored object.
pub(crate) enum StoredRange {
    /// The whole object.
    File(File),
    /// Exactly the part.
    Stream(ObjectStream),
}

impl Storage {
    pub async fn open(options: &Options, work_scratch: &Arc<Scratch>) -> Result<Self, Error> {
        match &options.location {
            Location::Directory(root) => {
                let root = root.clone();
                blocking(move || {
                    tree::create_all_durably(&root)?;
                    let scratch = Arc::new(Scratch::open(&root.join("scratch"))?);
                    let store =
                        LocalFileSystem::new_with_prefix(&root).map_err(Error::storage("open the directory"))?;
                    let local = Arc::new(Local::new(root, Arc::clone(&scratch)));
                    Ok(Self { backend: Backend::Objects { store: Arc::new(store), local: Some(local) }, scratch })
                })
                .await
            }
            Location::S3(s3) => {
                let store = remote::open(s3).await?;
                Ok(Self { backend: Backend::Objects { store, local: None }, scratch: Arc::clone(work_scratch) })
            }
            Location::Peer(peer) => {
                let client = PeerClient::new(Arc::clone(peer), options.peer_retry);
                Ok(Self { backend: Backend::Peer(client), scratch: Arc::clone(work_scratch) })
            }
        }
    }

    /// The peer with the objects, if they are not in a store of this node.
    pub fn peer(&self) -> Option<&PeerClient> {
        match &self.backend {
            Backend::Objects { .. } => None,
            Backend::Peer(peer) => Some(peer),
        }
    }

    /// The store of this node, for what a peer does not offer.
    fn store(&self, action: &'static str) -> Result<&Arc<dyn ObjectStore>, Error> {
        match &self.backend {
            Backend::Objects { store, .. } => Ok(store),
            Backend::Peer(_) => Err(Error::NotAtThisNode { action }),
        }
    }

    /// Refuses an action on a store that is at a peer.
    pub fn require_own_store(&self, action: &'static str) -> Result<(), Error> {
        self.store(action).map(drop)
    }

    /// Writes a blob atomically, durable when this returns.
    pub async fn publish_blob(&self, packed: Packed) -> Result<(), Error> {
        match &self.backend {
            Backend::Objects { .. } => self.publish(blob_key(packed.id), packed.body).await,
            Backend::Peer(peer) => peer.publish(packed).await,
        }
    }

    /// Writes an object atomically, durable when this returns.
    pub async fn publish(&self, key: Key, body: Body) -> Result<(), Error> {
        match &self.backend {
            Backend::Objects { local: Some(local), .. } => {
                let local = Arc::clone(local);
                blocking(move || local.publish(&key, body)).await
            }
            Backend::Objects { store, local: None } => remote::publish(store.as_ref(), &key, body).await,
            Backend::Peer(_) => Err(Error::NotAtThisNode { action: "write an object" }),
        }
    }

    pub async fn has_blob(&self, id: BlobId) -> Result<bool, Error> {
        match &self.backend {
            Backend::Objects { .. } => Ok(self.head(&blob_key(id)).await?.is_some()),
            Backend::Peer(peer) => Ok(peer.stat(id).await?.is_some()),
        }
    }

    pub async fn head(&self, key: &Key) -> Result<Option<ObjectMeta>, Error> {
        found(self.store("look up an object")?.head(key).await, "look up an object")
    }

    pub async fn get_blob(&self, id: BlobId) -> Result<Option<Object>, Error> {
        let store = match &self.backend {
            Backend::Objects { store, .. } => store,
            Backend::Peer(peer) => {
                let found = peer.get(id).await?;
                return Ok(
                    found.map(|(stored_bytes, pieces)| Object { stored_bytes, payload: Payload::Pieces(pieces) })
                );
            }
        };
        let Some(found) = found(store.get(&blob_key(id)).await, "read an object")? else { return Ok(None) };
        let stored_bytes = found.meta.size;
        let payload = match found.payload {
            GetResultPayload::File(file, path) => Payload::File(file, path),
            GetResultPayload::Stream(stream) => Payload::Stream(with_errors(stream)),
        };
        Ok(Some(Object { stored_bytes, payload }))
    }

    /// Encoded manifest of a worker, and the time of its registration in milliseconds.
    pub async fn manifest(&self, id: WorkerId) -> Result<Option<(Bytes, u64)>, Error> {
        let store = match &self.backend {
            Backend::Objects { store, .. } => store,
            Backend::Peer(peer) => return peer.manifest(id).await,
        };
        let Some(object) = found(store.get(&worker_key(id)).await, "read an object")? else { return Ok(None) };
        if object.meta.size > MANIFEST_BYTES_MAX as u64 {
            return Err(Error::damaged(id, "it exceeds the maximum size of a manifest"));
        }
        let registered_at = u64::try_from(object.meta.last_modified.timestamp_millis()).unwrap_or_default();
        let bytes = object.bytes().await.map_err(Error::storage("read an object"))?;
        Ok(Some((bytes, registered_at)))
    }

    /// The first bytes of an object, and its size.
    pub async fn get_start(&self, key: &Key, bytes: usize) -> Result<Option<(Vec<u8>, u64)>, Error> {
        // A range request on an empty object fails.
        let Some(meta) = self.head(key).await? else { return Ok(None) };
        if meta.size == 0 {
            return Ok(Some((Vec::new(), 0)));
        }
        let options = GetOptions::new().with_range(Some(0..bytes as u64));
        let store = self.store("read an object")?;
        let Some(result) = found(store.get_opts(key, options).await, "read an object")? else { return Ok(None) };
        let size = result.meta.size;
        let start = result.bytes().await.map_err(Error::storage("read an object"))?;
        Ok(Some((start.into(), size)))
    }

    pub async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Option<StoredRange>, Error> {
        // An empty range request fails.
        if range.is_empty() {
            return Ok(Some(StoredRange::Stream(futures_util::stream::empty().boxed())));
        }
        let store = self.store("read an object")?;
        let options = GetOptions::new().with_range(Some(range));
        let Some(result) = found(store.get_opts(key, options).await, "read an object")? else { return Ok(None) };
        Ok(Some(match result.payload {
            GetResultPayload::File(file, _) => StoredRange::File(file),
            GetResultPayload::Stream(stream) => StoredRange::Stream(with_errors(stream)),
        }))
    }

    pub fn list(&self, under: &'static str) -> BoxStream<'static, Result<ObjectMeta, Error>> {
        match self.store("list objects") {
            Ok(store) => store.list(Some(&Key::from(under))).map_err(|e| Error::storage("list objects")(e)).boxed(),
            Err(error) => futures_util::stream::once(async { Err(error) }).boxed(),
        }
    }

    /// Missing objects are not an error.
    pub async fn delete(&self, keys: Vec<Key>) -> Result<(), Error> {
        let keys = futures_util::stream::iter(keys.into_iter().map(Ok)).boxed();
        let mut deleted = self.store("delete objects")?.delete_stream(keys);
        let mut outcome = Ok(());
        while let Some(result) = deleted.next().await {
            match result {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => outcome = Err(Error::storage("delete an object")(error)),
            }
        }
        outcome
    }
}

pub(crate) fn modified(meta: &ObjectMeta) -> SystemTime {
    meta.last_modified.into()
}

fn with_errors(stream: BoxStream<'static, object_store::Result<Bytes>>) -> ObjectStream {
    stream.map_err(|error| Error::storage("read an object")(error)).boxed()
}

fn found<T>(result: object_store::Result<T>, action: &'static str) -> Result<Option<T>, Error> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(Error::storage(action)(error)),
    }
}
