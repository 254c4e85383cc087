//! Fixture: a control node and a runner node, with a faulty network in between.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use blobs::peer::{ObjectPeer, PeerError, PeerFuture, PeerObject, PeerService, PeerStream, PeerUpload, PutOffset};
use blobs::peer::{PeerUploadStats, PeerWorker};
use blobs::{Blobs, Location, Options, PeerRetry, Stat};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use model::blob::{BlobId, WorkerId};
use model::id::NodeId;
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::support::{Fixture, files_below};

pub const NODE: NodeId = NodeId(7);
pub const OTHER_NODE: NodeId = NodeId(8);
pub const MIB: usize = 1 << 20;

/// Network with faults, in front of the control node.
#[derive(Debug)]
pub struct Network {
    pub service: PeerService,
    /// Requests that fail from now on; `usize::MAX` for all.
    pub lost: AtomicUsize,
    pub faults: Mutex<Faults>,
    pub gets: AtomicUsize,
    pub requests: AtomicUsize,
    pub downloaded_bytes: AtomicU64,
    pub uploaded_bytes: AtomicU64,
}

#[derive(Debug, Default)]
pub struct Faults {
    /// Bytes after which the next downloads are cut, last first.
    pub cut_downloads: Vec<u64>,
    /// Bytes after which the next uploads are cut, last first.
    pub cut_uploads: Vec<u64>,
    /// A cut stream ends instead of failing.
    pub cut_silently: bool,
    /// Positions in the object of flipped bits, one per download, last first.
    pub flips: Vec<u64>,
    /// Downloads with an extra byte at their end.
    pub extended: usize,
    /// Downloads that hang after this many bytes.
    pub hang_after: Option<u64>,
    /// The next upload succeeds, but its answer is lost.
    pub lose_put_answer: bool,
}

impl Network {
    pub fn new(service: PeerService) -> Arc<Self> {
        Arc::new(Self {
            service,
            lost: AtomicUsize::new(0),
            faults: Mutex::default(),
            gets: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            downloaded_bytes: AtomicU64::new(0),
            uploaded_bytes: AtomicU64::new(0),
        })
    }

    pub fn request(&self) -> Result<(), PeerError> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let lost = |left: usize| if left == usize::MAX { Some(left) } else { left.checked_sub(1) };
        match self.lost.try_update(Ordering::SeqCst, Ordering::SeqCst, lost) {
            Ok(_) => Err(unreachable()),
            Err(_) => Ok(()),
        }
    }

    pub fn set(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.faults.lock());
    }
}

pub fn unreachable() -> PeerError {
    PeerError::Unreachable { reason: "the connection was cut".to_owned() }
}

/// Ends a stream after some bytes.
pub fn cut(content: PeerStream, bytes: u64, silently: bool) -> PeerStream {
    let mut left = bytes;
    let before = content.map(move |piece| {
        let mut piece = piece?;
        piece.truncate(usize::try_from(left).unwrap());
        left -= piece.len() as u64;
        Ok((piece, left == 0))
    });
    let mut ended = false;
    let before = before.take_while(move |item| {
        let continues = !ended;
        ended |= matches!(item, Ok((_, true)));
        async move { continues }
    });
    let before = before.map(|item: Result<_, PeerError>| item.map(|(piece, _)| piece));
    let failure = if silently { None } else { Some(Err(unreachable())) };
    before.chain(stream::iter(failure)).boxed()
}

impl ObjectPeer for Network {
    fn stat(&self, id: BlobId) -> PeerFuture<'_, Option<Stat>> {
        Box::pin(async move {
            self.request()?;
            self.service.stat(id).await
        })
    }

    fn get(&self, id: BlobId, offset: u64) -> PeerFuture<'_, Option<PeerObject>> {
        Box::pin(async move {
            self.request()?;
            let Some(mut object) = self.service.get(id, offset).await? else { return Ok(None) };
            self.gets.fetch_add(1, Ordering::SeqCst);
            let mut faults = self.faults.lock();
            if let Some(flip) = faults.flips.pop() {
                let mut at = offset;
                object.content = object
                    .content
                    .map(move |piece| {
                        let piece = piece?;
                        let start = at;
                        at += piece.len() as u64;
                        if !(start..at).contains(&flip) {
                            return Ok(piece);
                        }
                        let mut flipped = piece.to_vec();
                        flipped[usize::try_from(flip - start).unwrap()] ^= 1;
                        Ok(Bytes::from(flipped))
                    })
                    .boxed();
            }
            if let Some(bytes) = faults.cut_downloads.pop() {
                object.content = cut(object.content, bytes, faults.cut_silently);
            }
            if let Some(left) = faults.extended.checked_sub(1) {
                faults.extended = left;
                object.content = object.content.chain(stream::iter([Ok(Bytes::from_static(b"x"))])).boxed();
            }
            if let Some(bytes) = faults.hang_after.take() {
                object.content = cut(object.content, bytes, true).chain(stream::pending()).boxed();
            }
            drop(faults);
            let total = object.stored_bytes;
            self.downloaded_bytes.fetch_add(total - offset, Ordering::SeqCst);
            Ok(Some(object))
        })
    }

    fn put_offset(&self, id: BlobId, stored_bytes: u64) -> PeerFuture<'_, PutOffset> {
        Box::pin(async move {
            self.request()?;
            self.service.put_offset(id, stored_bytes).await
        })
    }

    fn put(&self, id: BlobId, mut upload: PeerUpload) -> PeerFuture<'_, ()> {
        Box::pin(async move {
            self.request()?;
            let lose_answer = {
                let mut faults = self.faults.lock();
                if let Some(bytes) = faults.cut_uploads.pop() {
                    upload.content = cut(upload.content, bytes, faults.cut_silently);
                }
                std::mem::take(&mut faults.lose_put_answer)
            };
            self.uploaded_bytes.fetch_add(upload.stored_bytes - upload.offset, Ordering::SeqCst);
            self.service.put(id, upload).await?;
            if lose_answer { Err(unreachable()) } else { Ok(()) }
        })
    }

    fn missing(&self, ids: Vec<BlobId>) -> PeerFuture<'_, Vec<BlobId>> {
        Box::pin(async move {
            self.request()?;
            self.service.missing(ids).await
        })
    }

    fn worker(&self, id: WorkerId) -> PeerFuture<'_, Option<PeerWorker>> {
        Box::pin(async move {
            self.request()?;
            self.service.worker(id).await
        })
    }
}

/// A control node and a runner node.
pub struct Pair {
    pub control_fixture: Fixture,
    pub control: Blobs,
    pub network: Arc<Network>,
    pub runner_directory: TempDir,
    pub runner_options: Options,
    pub runner: Blobs,
}

pub const QUICK: PeerRetry = PeerRetry {
    attempts_max: 6,
    backoff_min: Duration::from_millis(1),
    backoff_max: Duration::from_millis(4),
    stall_timeout: Duration::from_secs(20),
};

impl Pair {
    pub async fn new() -> Self {
        Self::with(|_| {}, |_| {}).await
    }

    pub async fn with(control: impl FnOnce(&mut Options), runner: impl FnOnce(&mut Options)) -> Self {
        let mut control_fixture = Fixture::new();
        control(&mut control_fixture.options);
        let control = control_fixture.open().await;
        let network = Network::new(control.serve_peer(NODE));
        let runner_directory = tempfile::tempdir().unwrap();
        let peer: Arc<dyn ObjectPeer> = Arc::clone(&network) as _;
        let mut runner_options = Options::new(Location::Peer(peer), runner_directory.path().join("work"));
        runner_options.peer_retry = QUICK;
        runner(&mut runner_options);
        let open = Blobs::open(runner_options.clone()).await.unwrap();
        Self { control_fixture, control, network, runner_directory, runner_options, runner: open }
    }

    /// Fetches a blob to a file and compares it.
    pub async fn assert_fetched(&self, original: &Bytes) {
        let pinned = self.runner.materialise(BlobId::of(original)).await.unwrap();
        assert!(fs::read(pinned.path()).unwrap() == *original);
    }

    pub fn runner_leftovers(&self) -> Vec<std::path::PathBuf> {
        files_below(&self.runner_directory.path().join("work/scratch"))
    }

    pub fn stats(&self) -> PeerUploadStats {
        self.control.peer_upload_stats()
    }

    /// The stored object of some content, as a runner node would send it.
    pub async fn stored_object(original: &Bytes) -> Bytes {
        let fixture = Fixture::new();
        let id = fixture.open().await.put(original.clone()).await.unwrap();
        fs::read(fixture.stored(id)).unwrap().into()
    }

    /// Sends bytes as a runner node that does not follow the rules.
    pub async fn send(&self, id: BlobId, announced: u64, offset: u64, bytes: &[u8]) -> Result<(), PeerError> {
        let content: Vec<_> = bytes.chunks(100_000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let upload = PeerUpload { stored_bytes: announced, offset, content: stream::iter(content).boxed() };
        self.control.serve_peer(NODE).put(id, upload).await
    }
}
