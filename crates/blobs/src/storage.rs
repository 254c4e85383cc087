//! Object storage: a local directory or a bucket.

use std::sync::Arc;
use std::time::SystemTime;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt};

use crate::blocking::blocking;
use crate::local::Local;
use crate::options::Location;
use crate::pack::Body;
use crate::scratch::Scratch;
use crate::{Error, remote, tree};

#[derive(Debug)]
pub(crate) struct Storage {
    store: Arc<dyn ObjectStore>,
    /// Writer for a local directory; `store` writes to a bucket.
    local: Option<Arc<Local>>,
    /// Incomplete objects; on the same disk as the objects if these are local.
    pub scratch: Arc<Scratch>,
}

impl Storage {
    pub async fn open(location: &Location, work_scratch: &Arc<Scratch>) -> Result<Self, Error> {
        match location {
            Location::Directory(root) => {
                let root = root.clone();
                blocking(move || {
                    tree::create_all_durably(&root)?;
                    let scratch = Arc::new(Scratch::open(&root.join("scratch"))?);
                    let store =
                        LocalFileSystem::new_with_prefix(&root).map_err(Error::storage("open the directory"))?;
                    let local = Arc::new(Local::new(root, Arc::clone(&scratch)));
                    Ok(Self { store: Arc::new(store), local: Some(local), scratch })
                })
                .await
            }
            Location::S3(options) => {
                let store = remote::open(options).await?;
                Ok(Self { store, local: None, scratch: Arc::clone(work_scratch) })
            }
        }
    }

    /// Writes an object atomically, durable when this returns.
    pub async fn publish(&self, key: Key, body: Body) -> Result<(), Error> {
        match &self.local {
            Some(local) => {
                let local = Arc::clone(local);
                blocking(move || local.publish(&key, body)).await
            }
            None => remote::publish(self.store.as_ref(), &key, body).await,
        }
    }

    pub async fn head(&self, key: &Key) -> Result<Option<ObjectMeta>, Error> {
        found(self.store.head(key).await, "look up an object")
    }

    pub async fn get(&self, key: &Key) -> Result<Option<GetResult>, Error> {
        found(self.store.get(key).await, "read an object")
    }

    /// The first bytes of an object, and its size.
    pub async fn get_start(&self, key: &Key, bytes: usize) -> Result<Option<(Vec<u8>, u64)>, Error> {
        // A range request on an empty object fails.
        let Some(meta) = self.head(key).await? else { return Ok(None) };
        if meta.size == 0 {
            return Ok(Some((Vec::new(), 0)));
        }
        let options = GetOptions::new().with_range(Some(0..bytes as u64));
        let Some(result) = found(self.store.get_opts(key, options).await, "read an object")? else { return Ok(None) };
        let size = result.meta.size;
        let start = result.bytes().await.map_err(Error::storage("read an object"))?;
        Ok(Some((start.into(), size)))
    }

    pub fn list(&self, under: &'static str) -> BoxStream<'static, Result<ObjectMeta, Error>> {
        self.store.list(Some(&Key::from(under))).map_err(|error| Error::storage("list objects")(error)).boxed()
    }

    /// Missing objects are not an error.
    pub async fn delete(&self, keys: Vec<Key>) -> Result<(), Error> {
        let keys = futures_util::stream::iter(keys.into_iter().map(Ok)).boxed();
        let mut deleted = self.store.delete_stream(keys);
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

fn found<T>(result: object_store::Result<T>, action: &'static str) -> Result<Option<T>, Error> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(Error::storage(action)(error)),
    }
}
