//! Access to an S3-compatible bucket.

use std::io::Read;
use std::sync::{Arc, Once};
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::path::Path as Key;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt, RetryConfig, WriteMultipart};

use crate::blocking::blocking;
use crate::options::{Credentials, S3};
use crate::pack::Body;
use crate::scratch::TempFile;
use crate::{Error, keys};

/// Retry limits of a request: long enough for a short outage, short enough that a caller still waits for the error.
const RETRIES_MAX: usize = 5;
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);

/// The S3 limit is 10,000 parts.
const PARTS_MAX: u64 = 9_000;
const PART_BYTES_MIN: u64 = 8 << 20;
/// Parts of one object in flight. Bounds memory.
const PARTS_IN_FLIGHT_MAX: usize = 4;

/// Connects and sends one request, so that a wrong bucket name or key is reported at the start.
pub(crate) async fn open(options: &S3) -> Result<Arc<dyn ObjectStore>, Error> {
    install_tls_provider();
    let mut builder = match &options.credentials {
        Credentials::Environment => AmazonS3Builder::from_env(),
        Credentials::Explicit { access_key_id, secret_access_key } => {
            AmazonS3Builder::new().with_access_key_id(access_key_id).with_secret_access_key(&secret_access_key.0)
        }
    };
    builder = builder.with_bucket_name(&options.bucket);
    if let Some(region) = &options.region {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
    }
    let retry = RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() };
    let bucket = builder.with_retry(retry).build().map_err(Error::storage("access the bucket"))?;
    let prefix = Key::parse(&options.prefix).map_err(|error| Error::bad_path(&options.prefix, error.to_string()))?;
    let store: Arc<dyn ObjectStore> = Arc::new(PrefixStore::new(bucket, prefix));
    match store.head(&Key::from(keys::BLOBS)).await {
        Ok(_) | Err(object_store::Error::NotFound { .. }) => Ok(store),
        Err(error) => Err(Error::storage("access the bucket")(error)),
    }
}

/// The client uses the process-wide TLS provider. One that is already installed stays.
fn install_tls_provider() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
}

/// The object is durable when this returns: S3 guarantees it with its response.
pub(crate) async fn publish(store: &dyn ObjectStore, key: &Key, body: Body) -> Result<(), Error> {
    match body {
        Body::Memory(bytes) => {
            store.put(key, bytes.into()).await.map_err(Error::storage("write to the bucket"))?;
            Ok(())
        }
        Body::File(file) => publish_in_parts(store, key, file).await,
    }
}

async fn publish_in_parts(store: &dyn ObjectStore, key: &Key, mut file: TempFile) -> Result<(), Error> {
    let bytes = file.file.metadata().map_err(Error::io("read the size of", &file.path))?.len();
    let part_bytes = usize::try_from(PART_BYTES_MIN.max(bytes / PARTS_MAX)).unwrap_or(usize::MAX);
    std::io::Seek::rewind(&mut file.file).map_err(Error::io("read", &file.path))?;
    let upload = store.put_multipart(key).await.map_err(Error::storage("write to the bucket"))?;
    let mut parts = WriteMultipart::new_with_chunk_size(upload, part_bytes);
    let sent = send(&mut parts, file, part_bytes).await;
    match sent {
        Ok(()) => {
            parts.finish().await.map_err(Error::storage("write to the bucket"))?;
            Ok(())
        }
        Err(error) => {
            // If this request fails, the bucket's lifecycle rules remove the unfinished upload.
            let _ = parts.abort().await;
            Err(error)
        }
    }
}

async fn send(parts: &mut WriteMultipart, mut file: TempFile, part_bytes: usize) -> Result<(), Error> {
    loop {
        parts.wait_for_capacity(PARTS_IN_FLIGHT_MAX).await.map_err(Error::storage("write to the bucket"))?;
        let (back, part) = blocking(move || {
            let mut part = Vec::with_capacity(part_bytes);
            let read = (&mut file.file).take(part_bytes as u64).read_to_end(&mut part);
            read.map_err(Error::io("read", &file.path))?;
            Ok((file, part))
        })
        .await?;
        if part.is_empty() {
            return Ok(());
        }
        file = back;
        parts.put(part.into());
    }
}
