//! Policy checks of jobs and results by the configured backend: rules in Rego, a policy service, or none.
//!
//! Shards request a check after the commit of a job and receive the decision as an input. A cached decision is attached
//! to the submit and makes the check unnecessary.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::{Actor, Input, PolicyMode, Settings};
use hashbrown::HashMap;
use model::codec;
use model::id::{Epoch, JobId, RunnerId, ShardId};
use model::machine::FAIL_OPEN_RULE;
use model::spec::JobSpec;
use model::time::Millis;
use model::verdict::{Decision, PolicyVersion, Verdict};
use parking_lot::{Mutex, RwLock};
use policy::{Cache, JobFacts, Policy, Reloaded};
use policy_service::{Client, FailMode, UnavailableReason};
use tokio::sync::watch;

use crate::clock;
use crate::error::Error;
use crate::inbox::{Inbox, Message};
use crate::measures::{PolicyMeasures, Reload};
use crate::options::Options;

/// Interval of checks for changed rules.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// Limit of cached decisions of the rules.
const DECISIONS_CACHED_MAX: usize = 100_000;

/// Request of a shard for a policy decision.
#[derive(Debug)]
pub(crate) struct CheckRequest {
    pub shard: ShardId,
    pub epoch: Epoch,
    pub job: JobId,
    pub spec: Bytes,
    pub submitter: Actor,
}

/// Policy backend.
enum Backend {
    None,
    Rules { rules: Arc<Policy>, requests: mpsc::Sender<CheckRequest> },
    Service { client: Client, tasks: tokio::runtime::Handle },
}

/// Handle to the policy backend. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PolicyChecks(Arc<Inner>);

struct Inner {
    backend: Backend,
    fail_mode: FailMode,
    settings: RwLock<Arc<Settings>>,
    inboxes: Vec<Inbox>,
    /// Jobs whose check is in progress.
    /// Jobs in a check, with the newest owner of their shard that asked.
    pending: Mutex<HashMap<JobId, Epoch, foldhash::fast::FixedState>>,
    failed_open: AtomicU64,
    measures: PolicyMeasures,
}

impl PolicyChecks {
    /// Loads the rules, or prepares the client of the policy service. Rules that cannot be loaded are an error: a
    /// server with a configured policy does not start without it.
    pub fn open(options: &Options, inboxes: Vec<Inbox>) -> Result<Self, Error> {
        let variable = std::env::var(policy_service::FAIL_MODE_VARIABLE).ok();
        let fail_mode = FailMode::resolve(variable.as_deref(), options.policy.fail_mode)
            .map_err(|error| Error::Policy(error.to_string()))?;
        let mut rules_thread = None;
        let (backend, mode) = match (&options.policy.rules, &options.policy.service) {
            (Some(_), Some(_)) => {
                return Err(Error::Policy(
                    "`policy.rules` and `policy.service` are both set: remove one of them".to_owned(),
                ));
            }
            (None, None) => (Backend::None, PolicyMode::Disabled),
            (Some(directory), None) => {
                let rules = Arc::new(
                    Policy::open(directory, Cache::new(DECISIONS_CACHED_MAX), clock::now())
                        .map_err(|error| Error::Policy(error.to_string()))?,
                );
                let version = rules.rules().version();
                let (requests, receiver) = mpsc::channel();
                rules_thread = Some((rules.clone(), receiver));
                (Backend::Rules { rules, requests }, PolicyMode::Enforced(version))
            }
            (None, Some(service)) => {
                let client =
                    Client::connect_lazy(service.client()?).map_err(|error| Error::Policy(error.to_string()))?;
                let tasks = tokio::runtime::Handle::current();
                (Backend::Service { client, tasks }, PolicyMode::Enforced(unknown_version()))
            }
        };
        let settings = RwLock::new(Arc::new(options.settings(mode)));
        let (failed_open, measures) = (AtomicU64::new(0), PolicyMeasures::default());
        let checks = Self(Arc::new(Inner {
            backend,
            fail_mode,
            settings,
            inboxes,
            pending: Mutex::default(),
            failed_open,
            measures,
        }));
        if let Some((rules, receiver)) = rules_thread {
            start_rules_thread(&checks, rules, receiver)?;
        }
        Ok(checks)
    }

    /// Current settings of the shards.
    pub fn settings(&self) -> Arc<Settings> {
        self.0.settings.read().clone()
    }

    pub fn measures(&self) -> &PolicyMeasures {
        &self.0.measures
    }

    pub fn fail_mode(&self) -> FailMode {
        self.0.fail_mode
    }

    pub fn rules(&self) -> Option<&Arc<Policy>> {
        match &self.0.backend {
            Backend::Rules { rules, .. } => Some(rules),
            Backend::None | Backend::Service { .. } => None,
        }
    }

    pub fn service(&self) -> Option<&Client> {
        match &self.0.backend {
            Backend::Service { client, .. } => Some(client),
            Backend::None | Backend::Rules { .. } => None,
        }
    }

    /// Cached decision of the rules about a job. `spec` names no queue.
    pub fn cached(&self, spec: &JobSpec, submitter: Option<&str>, now: Millis) -> Option<Decision> {
        self.rules()?.cached(&JobFacts { spec, submitter, queue: None }, now)
    }

    /// Whether rules decide about results.
    pub fn checks_results(&self) -> bool {
        self.rules().is_some() && self.0.settings.read().scans_outputs()
    }

    /// Starts a check, unless one of the job is in progress. The shard receives the decision as an input.
    pub fn request(&self, request: CheckRequest) {
        // The answer goes to the newest owner of the shard that asked.
        if self.0.pending.lock().insert(request.job, request.epoch).is_some() {
            return;
        }
        match &self.0.backend {
            // A request from before a restart without a policy. The shard no longer waits for it.
            Backend::None => {}
            Backend::Rules { requests, .. } => drop(requests.send(request)),
            Backend::Service { client, tasks } => {
                let (checks, client) = (self.clone(), client.clone());
                tasks.spawn(async move { checks.check_with_service(&client, request).await });
            }
        }
    }

    async fn check_with_service(&self, client: &Client, request: CheckRequest) {
        let CheckRequest { shard, job, spec, submitter, .. } = request;
        let spec: JobSpec = match codec::decode(&spec) {
            Ok(spec) => spec,
            Err(error) => return self.send_unavailable(shard, job, format!("cannot read the job: {error}")),
        };
        let facts = policy_service::CheckFacts::of(job, &spec, submitter.as_deref(), clock::now());
        let (start, version_before) = (Instant::now(), self.settings().policy);
        match client.check(&facts).await {
            Ok(checked) => {
                self.0.measures.decisions.observe(start.elapsed());
                // A late answer must not bring back a version that was replaced during the call.
                if checked.decision.policy.is_some_and(|version| !self.switch_version(version, version_before)) {
                    let message = "the policy changed during the check".to_owned();
                    return self.send_unavailable(shard, job, message);
                }
                self.send(shard, job, Input::Verdict { job, decision: checked.decision });
            }
            // A full queue of calls is no outage: it does not fail open.
            Err(unavailable) if unavailable.reason == UnavailableReason::Busy => {
                self.send_unavailable(shard, job, unavailable.to_string());
            }
            Err(unavailable) => match self.0.fail_mode {
                FailMode::Closed => self.send_unavailable(shard, job, unavailable.to_string()),
                FailMode::Open => {
                    self.0.failed_open.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(%job, reason = %unavailable, "policy service unavailable; job allowed by fail mode `open`");
                    let decision = self.fail_open(&unavailable.to_string());
                    self.send(shard, job, Input::Verdict { job, decision });
                }
            },
        }
    }

    fn fail_open(&self, message: &str) -> Decision {
        let policy = match self.settings().policy {
            PolicyMode::Disabled => None,
            PolicyMode::Enforced(version) => Some(version),
        };
        Decision {
            at: clock::now(),
            verdict: Verdict::Allow,
            rule: FAIL_OPEN_RULE.to_owned(),
            message: Some(message.to_owned()),
            policy,
            constraints: None,
        }
    }

    /// Puts another policy version in force. Shards receive it before any decision under it.
    /// False if the version in force is neither `version` nor `known`: another one came first.
    fn switch_version(&self, version: PolicyVersion, known: PolicyMode) -> bool {
        let mut settings = self.0.settings.write();
        if settings.policy == PolicyMode::Enforced(version) {
            return true;
        }
        if settings.policy != known {
            return false;
        }
        *settings = Arc::new(Settings { policy: PolicyMode::Enforced(version), ..(**settings).clone() });
        tracing::info!(%version, "policy changed");
        self.send_settings(&settings);
        true
    }

    /// Sets the runners that get no new attempts, and those of them that failed distinct jobs since a time.
    pub fn cordon(&self, cordoned: BTreeSet<RunnerId>, failing: BTreeMap<RunnerId, Millis>) {
        let mut settings = self.0.settings.write();
        *settings = Arc::new(Settings { cordoned, failing, ..(**settings).clone() });
        self.send_settings(&settings);
    }

    /// Called under the lock of the settings, so that every shard receives them in order.
    fn send_settings(&self, settings: &Arc<Settings>) {
        for inbox in &self.0.inboxes {
            let _ = inbox.post(Message::Input(Box::new(Input::Settings(settings.clone()))));
        }
    }

    fn send_unavailable(&self, shard: ShardId, job: JobId, message: String) {
        self.send(shard, job, Input::PolicyUnavailable { job, message });
    }

    /// Sends the answer about a job to the owner of the shard that asked last.
    fn send(&self, shard: ShardId, job: JobId, input: Input) {
        let epoch = self.0.pending.lock().remove(&job);
        if let Some(epoch) = epoch {
            self.reply(shard, epoch, input);
        }
    }

    /// Sends the answer to a request of a shard.
    pub fn reply(&self, shard: ShardId, epoch: Epoch, input: Input) {
        if let Some(inbox) = self.0.inboxes.get(usize::from(shard.0)) {
            // A stopped shard repeats the request after its restart.
            let _ = inbox.post(Message::Reply { epoch, input: Box::new(input) });
        }
    }

    /// Number of jobs allowed because the policy service was unavailable.
    pub fn failed_open(&self) -> u64 {
        self.0.failed_open.load(Ordering::Relaxed)
    }

    /// Reloads changed rules until the node stops.
    pub async fn reload_periodically(self, mut stopping: watch::Receiver<bool>) {
        let Some(rules) = self.rules().cloned() else { return };
        loop {
            tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => return,
                () = tokio::time::sleep(RELOAD_INTERVAL) => {}
            }
            let reloading = rules.clone();
            let reload = move || reloading.needs_reload().then(|| reloading.reload(clock::now()));
            let reloaded = tokio::task::spawn_blocking(reload).await;
            match reloaded {
                Ok(Some(Reloaded::Changed(version))) => {
                    self.measures().count_reload(Reload::Changed);
                    let known = self.settings().policy;
                    self.switch_version(version, known);
                }
                Ok(Some(Reloaded::Refused(error))) => {
                    self.measures().count_reload(Reload::Refused);
                    tracing::error!(%error, "the changed rules are invalid; the previous rules stay in force");
                }
                Ok(Some(Reloaded::Unchanged)) => self.measures().count_reload(Reload::Unchanged),
                Ok(None) => {}
                Err(error) => tracing::error!(%error, "cannot check the rules for changes"),
            }
        }
    }
}

/// Placeholder version of a policy service that has not answered yet. It is recorded with decisions: the hashed text
/// must not change.
fn unknown_version() -> PolicyVersion {
    PolicyVersion::of(b"a kernel that has not been heard of")
}

/// Starts the thread that evaluates the rules. One is enough: evaluation is fast and decisions are cached.
fn start_rules_thread(
    checks: &PolicyChecks,
    rules: Arc<Policy>,
    requests: mpsc::Receiver<CheckRequest>,
) -> Result<(), Error> {
    let checks = Arc::downgrade(&checks.0);
    let decide = move || {
        while let Ok(CheckRequest { shard, job, spec, submitter, .. }) = requests.recv() {
            let Some(checks) = checks.upgrade().map(PolicyChecks) else { return };
            match codec::decode::<JobSpec>(&spec) {
                Ok(spec) => {
                    let facts = JobFacts { spec: &spec, submitter: submitter.as_deref(), queue: None };
                    let decision = checks.measures().decisions.time(|| rules.decide(&facts, clock::now()));
                    checks.send(shard, job, Input::Verdict { job, decision });
                }
                Err(error) => checks.send_unavailable(shard, job, format!("cannot read the job: {error}")),
            }
        }
    };
    thread::Builder::new().name("policy".to_owned()).spawn(decide)?;
    Ok(())
}
