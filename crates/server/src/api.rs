//! The HTTP API: routes and shared state.

mod access;
mod actor;
mod approvals;
mod audit;
mod blobs;
mod blocking;
mod body;
mod dead_letters;
mod docs;
mod events;
mod generation;
mod guard;
mod health;
mod jobs;
mod join_tokens;
mod list;
mod logs;
mod metrics;
mod nodes;
mod pages;
mod parameters;
mod path;
mod permit;
mod policy;
mod problem;
mod queues;
mod range;
mod references;
mod rejected;
mod replay;
mod schedules;
mod submit;
mod tenants;
mod why;
mod workers;
mod workflows;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::http::HeaderValue;
use axum::routing::{delete, get, post, put};
use model::envelope::NodeReport;
use model::id::{JobId, ShardId, Shards, Slot};
use model::message::Capacity;
use model::time::Millis;
use parking_lot::RwLock;
use store::Store;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::cluster::Cluster;
use crate::inbox::Inbox;
use crate::local_runner;
use crate::node_control::NodeControl;
use crate::options::{Execution, Options};
use crate::plans::Plans;
use crate::policy::PolicyChecks;
use crate::runner_node::{Hardware, machine_name};
pub(crate) use blocking::BlockingStore;
use blocking::blocking;
use permit::Permits;
pub use policy::check_view;
use problem::{ProblemKind, Refused};

/// Parts of the node that handlers use once it is ready.
pub(crate) struct Core {
    /// Accessed with [`Core::store`].
    pub store: BlockingStore,
    pub shards: Shards,
    pub inboxes: Vec<Inbox>,
    pub logs: PathBuf,
    pub blobs: ::blobs::Blobs,
    pub runner: runner::Handle,
    pub node: model::id::NodeId,
    pub policy: PolicyChecks,
    pub plans: Arc<Plans>,
    /// Signs checkpoints of the audit log.
    pub audit_key: Arc<signing::Key>,
    pub nodes: Arc<NodeControl>,
    pub cluster: Arc<Cluster>,
    pub hardware: Hardware,
    pub execution: Execution,
    pub data_dir: PathBuf,
    /// Changes with every commit.
    pub commits: watch::Receiver<()>,
}

impl Core {
    /// The store. Only in [`Core::read`] and other work that may block.
    pub fn store(&self) -> &dyn Store {
        self.store.get()
    }

    /// Reads the store on a thread that may block.
    pub async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Self) -> Result<T, Refused> + Send + 'static,
    ) -> Result<T, Refused> {
        let core = self.clone();
        blocking(move || read(&core)).await
    }

    /// What this node reports about itself.
    pub fn own_report(&self) -> NodeReport {
        let (count, capacity) = (u32::from(self.shards.count()), self.runner.capacity());
        let slots =
            Capacity { process: capacity.process * count, echo: capacity.echo * count, wasm: capacity.wasm * count };
        let profile = local_runner::profile(&self.execution);
        self.hardware.report(&machine_name(), &self.data_dir, slots, profile, &self.runner)
    }

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

/// Shared state of the handlers.
pub(crate) struct App {
    core: RwLock<Option<Arc<Core>>>,
    /// Known once the node is ready, also while it stops.
    generation: OnceLock<HeaderValue>,
    /// Answers kept for resent requests.
    replays: Arc<replay::Replays>,
    guard: guard::Guard,
    /// Whether jobs may run without a sandbox.
    allow_unsandboxed: bool,
    /// How long a job waits for an approval.
    approval_expiry: Millis,
    /// Whether originals of redacted results are shown.
    show_originals: bool,
    stopping: watch::Receiver<bool>,
    /// Counter of [`App::any_shard`].
    next_shard: AtomicUsize,
    /// Serialises the creation of schedules.
    creating_schedules: tokio::sync::Mutex<()>,
    subscribers: Permits,
    log_readers: Permits,
    audit_readers: Permits,
}

impl App {
    pub fn new(options: &Options, listen: SocketAddr, stopping: watch::Receiver<bool>) -> Self {
        Self {
            core: RwLock::new(None),
            generation: OnceLock::new(),
            replays: Arc::default(),
            guard: guard::Guard::new(options, listen),
            allow_unsandboxed: options.allow_unsandboxed,
            approval_expiry: Millis(options.approval_expiry_ms),
            show_originals: options.show_originals,
            stopping,
            next_shard: AtomicUsize::new(0),
            creating_schedules: tokio::sync::Mutex::default(),
            subscribers: Permits::new(events::SUBSCRIBERS_MAX),
            log_readers: Permits::new(logs::READERS_MAX),
            audit_readers: Permits::new(audit::READERS_MAX),
        }
    }

    pub fn open(&self, core: Core) {
        // Before the first request is executed: one for another generation must be refused.
        if let Some(value) = generation::value(core.node, core.runner.incarnation()) {
            self.generation.get_or_init(|| value);
        }
        *self.core.write() = Some(Arc::new(core));
    }

    pub fn close(&self) {
        *self.core.write() = None;
    }

    fn generation(&self) -> Option<&HeaderValue> {
        self.generation.get()
    }

    fn core(&self) -> Result<Arc<Core>, Refused> {
        self.core.read().clone().ok_or_else(|| Refused::new(ProblemKind::NotReady))
    }

    /// A shard for work that has none, chosen in turn.
    fn any_shard(&self, core: &Core) -> ShardId {
        let next = self.next_shard.fetch_add(1, Ordering::Relaxed) % usize::from(core.shards.count());
        ShardId(next as u16)
    }

    /// Resolves when the node begins to stop. Waiting requests end then.
    async fn stopping(&self) {
        let mut stopping = self.stopping.clone();
        // A dropped sender means that the node has stopped.
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
        .route("/v1/jobs/{id}/release", post(jobs::release))
        .route("/v1/jobs/{id}/why", get(why::why))
        .route("/v1/jobs/{id}/progress", post(workflows::progress))
        .route("/v1/workflows", post(workflows::start).get(workflows::list))
        .route("/v1/workflows/validate", post(workflows::validate))
        .route("/v1/workflows/{id}", get(workflows::show).delete(workflows::remove))
        .route("/v1/workflows/{id}/tasks", get(workflows::tasks))
        .route("/v1/workflows/{id}/tasks/{name}", get(workflows::task))
        .route("/v1/workflows/{id}/history", get(workflows::history))
        .route("/v1/workflows/{id}/definition", get(workflows::definition))
        .route("/v1/workflows/{id}/graph", get(workflows::graph))
        .route("/v1/workflows/{id}/cancel", post(workflows::cancel))
        .route("/v1/workflows/{id}/pause", post(workflows::pause))
        .route("/v1/workflows/{id}/resume", post(workflows::resume))
        .route("/v1/workflows/{id}/rerun", post(workflows::rerun))
        .route("/v1/workflows/{id}/signals/{name}", post(workflows::signal))
        .route("/v1/schemas/workflow", get(workflows::schema))
        .route("/v1/schedules", post(schedules::create).get(schedules::list))
        .route("/v1/schedules/{schedule}", get(schedules::show).delete(schedules::remove))
        .route("/v1/schedules/{schedule}/pause", post(schedules::pause))
        .route("/v1/schedules/{schedule}/resume", post(schedules::resume))
        .route("/v1/schedules/{schedule}/trigger", post(schedules::trigger))
        .route("/v1/approvals", get(approvals::list))
        .route("/v1/approvals/{id}", get(approvals::show))
        .route("/v1/approvals/{id}/approve", post(approvals::approve))
        .route("/v1/approvals/{id}/reject", post(approvals::reject))
        .route("/v1/dlq", get(dead_letters::list).delete(dead_letters::purge_many))
        .route("/v1/dlq/rejected", get(rejected::list))
        .route("/v1/dlq/{id}", get(dead_letters::show).delete(dead_letters::purge))
        .route("/v1/dlq/{id}/retry", post(dead_letters::retry))
        .route("/v1/policy", get(policy::show))
        .route("/v1/policy/check", post(policy::check))
        .route("/v1/audit", get(audit::list))
        .route("/v1/audit/export", get(audit::export))
        .route("/v1/audit/verify", get(audit::verify))
        .route("/v1/tenants", get(tenants::list))
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
        .route("/v1/nodes/{id}", get(nodes::show).delete(nodes::remove))
        .route("/v1/nodes/{id}/cordon", post(nodes::cordon))
        .route("/v1/nodes/{id}/uncordon", post(nodes::uncordon))
        .route("/v1/nodes/{id}/drain", post(nodes::drain))
        .route("/v1/nodes/{id}/session", get(nodes::show_other))
        .route("/v1/nodes/{id}/session/{move}", post(nodes::move_other))
        .route("/v1/session", get(nodes::show_own))
        .route("/v1/session/{move}", post(nodes::move_own))
        .route("/v1/join-tokens", post(join_tokens::create).get(join_tokens::list))
        .route("/v1/join-tokens/{id}", delete(join_tokens::revoke))
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
    // Responses are small and awaited: they are sent without waiting for a full packet.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let stopped = async move {
        let _ = stop.wait_for(|stopping| *stopping).await;
    };
    let replaying = replay::Replaying { router: router(app.clone()), app: app.clone() };
    let service = generation::Stamped { inner: guard::Guarded { inner: replaying, app: app.clone() }, app };
    let service = axum::ServiceExt::<axum::extract::Request>::into_make_service(service);
    if let Err(error) = axum::serve(listener, service).with_graceful_shutdown(stopped).await {
        tracing::error!(%error, "the HTTP server stopped");
    }
}
