//! The HTTP API: routes, and what all of them share.

mod blobs;
mod body;
mod docs;
mod events;
mod guard;
mod health;
mod jobs;
mod list;
mod logs;
mod metrics;
mod needs;
mod nodes;
mod path;
mod problem;
mod queues;
mod range;
mod submit;
mod workers;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use axum::Router;
use axum::routing::{get, post, put};
use model::id::{JobId, ShardId, Shards, Slot};
use parking_lot::RwLock;
use store::{Embedded, Position};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::inbox::Inbox;
use crate::options::Options;
use problem::{Fault, Refused};

/// What handlers work with once the node is ready.
#[derive(Clone)]
pub(crate) struct Core {
    pub store: Arc<Embedded>,
    pub shards: Shards,
    pub inboxes: Vec<Inbox>,
    pub logs: PathBuf,
    pub blobs: ::blobs::Blobs,
    pub runner: runner::Handle,
    pub node: model::id::NodeId,
    /// The newest commit, for those who wait for changes.
    pub commits: watch::Receiver<Position>,
}

impl Core {
    pub fn shard_of(&self, slot: Slot) -> ShardId {
        self.shards.owner(slot)
    }

    pub fn inbox(&self, shard: ShardId) -> &Inbox {
        &self.inboxes[usize::from(shard.0)]
    }

    pub fn inbox_of(&self, job: JobId) -> &Inbox {
        self.inbox(self.shard_of(job.slot()))
    }
}

/// What every handler shares.
pub(crate) struct App {
    core: RwLock<Option<Arc<Core>>>,
    guard: guard::Guard,
    /// Whether jobs may ask to run without a sandbox.
    allow_unsandboxed: bool,
    stopping: watch::Receiver<bool>,
    /// Spreads jobs that belong nowhere in particular over the shards.
    turn: AtomicUsize,
    subscribers: AtomicUsize,
    log_readers: AtomicUsize,
}

impl App {
    pub fn new(options: &Options, listen: SocketAddr, stopping: watch::Receiver<bool>) -> Self {
        Self {
            core: RwLock::new(None),
            guard: guard::Guard::new(options, listen),
            allow_unsandboxed: options.allow_unsandboxed,
            stopping,
            turn: AtomicUsize::new(0),
            subscribers: AtomicUsize::new(0),
            log_readers: AtomicUsize::new(0),
        }
    }

    pub fn open(&self, core: Core) {
        *self.core.write() = Some(Arc::new(core));
    }

    pub fn close(&self) {
        *self.core.write() = None;
    }

    fn core(&self) -> Result<Arc<Core>, Refused> {
        self.core.read().clone().ok_or_else(|| Refused::new(Fault::NotReady))
    }

    /// Resolves when the node begins to stop: those who only wait should go.
    async fn stopping(&self) {
        let mut stopping = self.stopping.clone();
        // A dropped sender means that the node is gone.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }
}

fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/jobs", post(submit::submit).get(jobs::list))
        .route("/v1/jobs/running", get(jobs::running))
        .route("/v1/jobs/completed", get(jobs::completed))
        .route("/v1/jobs/history", get(jobs::history_of_all))
        .route("/v1/jobs/{id}", get(jobs::show).delete(jobs::remove))
        .route("/v1/jobs/{id}/result", get(jobs::result))
        .route("/v1/jobs/{id}/history", get(jobs::history))
        .route("/v1/jobs/{id}/logs", get(logs::logs))
        .route("/v1/jobs/{id}/cancel", post(jobs::cancel))
        .route("/v1/jobs/{id}/retry", post(jobs::retry))
        .route("/v1/jobs/{id}/retract", post(jobs::retract))
        .route("/v1/queues", post(queues::create).get(queues::list))
        .route("/v1/queues/{queue}", get(queues::show).delete(queues::remove))
        .route("/v1/queues/{queue}/drain", post(queues::drain))
        .route("/v1/queues/{queue}/cancel", post(queues::cancel))
        .route("/v1/queues/{queue}/jobs", post(submit::submit_to_queue).get(queues::jobs))
        .route("/v1/queues/{queue}/completed", get(queues::completed))
        .route("/v1/queues/{queue}/running", get(queues::running))
        .route("/v1/queues/{queue}/history", get(queues::history))
        .route("/v1/queues/{queue}/workers", get(workers::of_queue))
        .route("/v1/blobs", post(blobs::create))
        .route("/v1/blobs/missing", post(blobs::missing))
        .route("/v1/blobs/{id}", put(blobs::upload).get(blobs::show).head(blobs::head))
        .route("/v1/blobs/{id}/upload", get(blobs::progress))
        .route("/v1/workers", post(workers::register).get(workers::list))
        .route("/v1/workers/all", get(workers::all))
        .route("/v1/workers/{id}", get(workers::show).delete(workers::remove))
        .route("/v1/nodes", get(nodes::list))
        .route("/v1/nodes/{id}", get(nodes::show))
        .route("/v1/events", get(events::stream))
        .route("/v1/ws", get(events::socket))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::metrics))
        .route("/openapi.json", get(docs::openapi))
        .route("/docs", get(docs::page))
        .route("/", get(docs::front))
        .fallback(problem::unknown_route)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .with_state(app)
}

/// Serves until the node stops.
pub(crate) async fn serve(listener: TcpListener, app: Arc<App>, mut stop: watch::Receiver<bool>) {
    use axum::serve::ListenerExt;
    // Answers are small and awaited: they must not wait for a full packet.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let stopped = async move {
        let _ = stop.wait_for(|stopping| *stopping).await;
    };
    let service = guard::Guarded { router: router(app.clone()), app };
    let service = axum::ServiceExt::<axum::extract::Request>::into_make_service(service);
    if let Err(error) = axum::serve(listener, service).with_graceful_shutdown(stopped).await {
        tracing::error!(%error, "the API has stopped");
    }
}
