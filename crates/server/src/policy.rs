//! Who is asked whether jobs may run and results may be seen: rules in Rego, a kernel elsewhere, or nobody.
//!
//! Shards ask after the commit that makes a job durable and get their answers as inputs. What the rules are known to say
//! of such a job is attached to its submit and spares the question.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::{Actor, Gate, Input, Setup};
use hashbrown::HashSet;
use kernel::{Client, FailMode, Why};
use model::codec;
use model::id::{JobId, ShardId};
use model::machine::FAIL_OPEN_RULE;
use model::spec::JobSpec;
use model::time::Millis;
use model::verdict::{Decision, PolicyVersion, Verdict};
use parking_lot::{Mutex, RwLock};
use policy::{Cache, JobFacts, Policy, Reloaded};
use tokio::sync::watch;

use crate::clock;
use crate::error::Error;
use crate::inbox::{Inbox, Message};
use crate::measures::{PolicyMeasures, Reload};
use crate::options::Options;

/// How often the directory with the rules is looked at.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// How many answers of the rules are remembered.
const DECISIONS_KEPT_MAX: usize = 100_000;

/// What a shard wants to know.
#[derive(Debug)]
pub(crate) struct Question {
    pub shard: ShardId,
    pub job: JobId,
    pub spec: Bytes,
    pub submitter: Actor,
}

/// Who answers.
enum Judge {
    Nobody,
    Rules { rules: Arc<Policy>, questions: mpsc::Sender<Question> },
    Kernel { client: Client, tasks: tokio::runtime::Handle },
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct PolicyService(Arc<Inner>);

struct Inner {
    judge: Judge,
    fail_mode: FailMode,
    setup: RwLock<Arc<Setup>>,
    inboxes: Vec<Inbox>,
    /// Jobs that were asked about and are not answered yet.
    open: Mutex<HashSet<JobId, foldhash::fast::FixedState>>,
    failed_open: AtomicU64,
    measures: PolicyMeasures,
}

impl PolicyService {
    /// Loads the rules, or prepares to ask the kernel. Rules that cannot be loaded are an error: a server that was told
    /// to have some does not start without.
    pub fn open(options: &Options, inboxes: Vec<Inbox>) -> Result<Self, Error> {
        let variable = std::env::var(kernel::FAIL_MODE_VARIABLE).ok();
        let fail_mode = FailMode::resolve(variable.as_deref(), options.policy.fail_mode)
            .map_err(|error| Error::Policy(error.to_string()))?;
        let mut waiting = None;
        let (judge, gate) = match (&options.policy.rules, &options.policy.kernel) {
            (Some(_), Some(_)) => {
                return Err(Error::Policy("it names `rules` and a `kernel`: choose one".to_owned()));
            }
            (None, None) => (Judge::Nobody, Gate::Open),
            (Some(directory), None) => {
                let rules = Arc::new(
                    Policy::open(directory, Cache::new(DECISIONS_KEPT_MAX), clock::now())
                        .map_err(|error| Error::Policy(error.to_string()))?,
                );
                let version = rules.rules().version();
                let (questions, receiver) = mpsc::channel();
                waiting = Some((rules.clone(), receiver));
                (Judge::Rules { rules, questions }, Gate::Policy(version))
            }
            (None, Some(kernel)) => {
                let client =
                    Client::connect_lazy(kernel.client()?).map_err(|error| Error::Policy(error.to_string()))?;
                let tasks = tokio::runtime::Handle::current();
                (Judge::Kernel { client, tasks }, Gate::Policy(unheard()))
            }
        };
        let setup = RwLock::new(Arc::new(options.setup(gate)));
        let (failed_open, measures) = (AtomicU64::new(0), PolicyMeasures::default());
        let service =
            Self(Arc::new(Inner { judge, fail_mode, setup, inboxes, open: Mutex::default(), failed_open, measures }));
        if let Some((rules, receiver)) = waiting {
            start_deciding(&service, rules, receiver)?;
        }
        Ok(service)
    }

    /// What the shards are told.
    pub fn setup(&self) -> Arc<Setup> {
        self.0.setup.read().clone()
    }

    pub fn measures(&self) -> &PolicyMeasures {
        &self.0.measures
    }

    pub fn fail_mode(&self) -> FailMode {
        self.0.fail_mode
    }

    pub fn rules(&self) -> Option<&Arc<Policy>> {
        match &self.0.judge {
            Judge::Rules { rules, .. } => Some(rules),
            Judge::Nobody | Judge::Kernel { .. } => None,
        }
    }

    pub fn kernel(&self) -> Option<&Client> {
        match &self.0.judge {
            Judge::Kernel { client, .. } => Some(client),
            Judge::Nobody | Judge::Rules { .. } => None,
        }
    }

    /// What the rules are known to say of a job, without working it out. `spec` names no queue.
    pub fn known(&self, spec: &JobSpec, submitter: Option<&str>, now: Millis) -> Option<Decision> {
        self.rules()?.cached(&JobFacts { spec, submitter, queue: None }, now)
    }

    /// Whether results are looked at before they are shown.
    pub fn judges_results(&self) -> bool {
        self.rules().is_some() && self.0.setup.read().scans_outputs()
    }

    /// Finds out, and tells the shard. What waits for its answer is not asked about twice.
    pub fn ask(&self, question: Question) {
        if !self.0.open.lock().insert(question.job) {
            return;
        }
        match &self.0.judge {
            // A question from before the server was restarted without a policy: the shard has dropped it.
            Judge::Nobody => {}
            Judge::Rules { questions, .. } => drop(questions.send(question)),
            Judge::Kernel { client, tasks } => {
                let (service, client) = (self.clone(), client.clone());
                tasks.spawn(async move { service.ask_kernel(&client, question).await });
            }
        }
    }

    async fn ask_kernel(&self, client: &Client, question: Question) {
        let Question { shard, job, spec, submitter } = question;
        let spec: JobSpec = match codec::decode(&spec) {
            Ok(spec) => spec,
            Err(error) => return self.tell_unavailable(shard, job, format!("the job cannot be read: {error}")),
        };
        let facts = kernel::CheckFacts::of(job, &spec, submitter.as_deref(), clock::now());
        let (began, asked_under) = (Instant::now(), self.setup().gate);
        match client.check(&facts).await {
            Ok(checked) => {
                self.0.measures.decisions.observe(began.elapsed());
                // A late answer must not bring back rules that others have replaced meanwhile.
                if checked.decision.policy.is_some_and(|version| !self.adopt(version, asked_under)) {
                    let message = "the policy has changed while it was asked".to_owned();
                    return self.tell_unavailable(shard, job, message);
                }
                self.tell(shard, Input::Verdict { job, decision: checked.decision });
            }
            // A line that is too long is no kernel that is away: those in it get their answer.
            Err(unavailable) if unavailable.why == Why::Busy => {
                self.tell_unavailable(shard, job, unavailable.to_string());
            }
            Err(unavailable) => match self.0.fail_mode {
                FailMode::Closed => self.tell_unavailable(shard, job, unavailable.to_string()),
                FailMode::Open => {
                    self.0.failed_open.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(%job, reason = %unavailable, "allowed without a word of the policy, which cannot be asked");
                    let decision = self.fail_open(&unavailable.to_string());
                    self.tell(shard, Input::Verdict { job, decision });
                }
            },
        }
    }

    fn fail_open(&self, message: &str) -> Decision {
        let policy = match self.setup().gate {
            Gate::Open => None,
            Gate::Policy(version) => Some(version),
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

    /// Other rules are in force: the shards are told before they get any answer of theirs.
    /// Not if others than `known` have come into force since.
    fn adopt(&self, version: PolicyVersion, known: Gate) -> bool {
        let mut setup = self.0.setup.write();
        if setup.gate == Gate::Policy(version) {
            return true;
        }
        if setup.gate != known {
            return false;
        }
        *setup = Arc::new(Setup { gate: Gate::Policy(version), ..(**setup).clone() });
        tracing::info!(%version, "the policy has changed");
        // Still under the lock: no shard may hear of two versions in the wrong order.
        for inbox in &self.0.inboxes {
            let _ = inbox.post(Message::Input(Box::new(Input::Setup(setup.clone()))));
        }
        true
    }

    fn tell_unavailable(&self, shard: ShardId, job: JobId, message: String) {
        self.tell(shard, Input::PolicyUnavailable { job, message });
    }

    pub fn tell(&self, shard: ShardId, input: Input) {
        if let Input::Verdict { job, .. } | Input::PolicyUnavailable { job, .. } = &input {
            self.0.open.lock().remove(job);
        }
        if let Some(inbox) = self.0.inboxes.get(usize::from(shard.0)) {
            // A shard that has stopped asks again when it comes back.
            let _ = inbox.post(Message::Input(Box::new(input)));
        }
    }

    /// How many jobs were allowed because the policy could not be asked.
    pub fn failed_open(&self) -> u64 {
        self.0.failed_open.load(Ordering::Relaxed)
    }

    /// Looks at the directory with the rules now and then, until the node stops.
    pub async fn keep_reloading(self, mut stopping: watch::Receiver<bool>) {
        let Some(rules) = self.rules().cloned() else { return };
        loop {
            tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => return,
                () = tokio::time::sleep(RELOAD_INTERVAL) => {}
            }
            let reloading = rules.clone();
            let look = move || reloading.needs_reload().then(|| reloading.reload(clock::now()));
            let reloaded = tokio::task::spawn_blocking(look).await;
            match reloaded {
                Ok(Some(Reloaded::Changed(version))) => {
                    self.measures().count_reload(Reload::Changed);
                    let known = self.setup().gate;
                    self.adopt(version, known);
                }
                Ok(Some(Reloaded::Refused(error))) => {
                    self.measures().count_reload(Reload::Refused);
                    tracing::error!(%error, "the rules have changed and cannot be used: those from before stay in force");
                }
                Ok(Some(Reloaded::Unchanged)) => self.measures().count_reload(Reload::Unchanged),
                Ok(None) => {}
                Err(error) => tracing::error!(%error, "the rules could not be looked at"),
            }
        }
    }
}

/// Stands for the rules of a kernel that has not answered yet.
fn unheard() -> PolicyVersion {
    PolicyVersion::of(b"a kernel that has not been heard of")
}

/// One thread works out what the rules say: they are quick, and their answers are kept.
fn start_deciding(
    service: &PolicyService,
    rules: Arc<Policy>,
    questions: mpsc::Receiver<Question>,
) -> Result<(), Error> {
    let service = Arc::downgrade(&service.0);
    let decide = move || {
        while let Ok(Question { shard, job, spec, submitter }) = questions.recv() {
            let Some(service) = service.upgrade().map(PolicyService) else { return };
            match codec::decode::<JobSpec>(&spec) {
                Ok(spec) => {
                    let facts = JobFacts { spec: &spec, submitter: submitter.as_deref(), queue: None };
                    let decision = service.measures().decisions.time(|| rules.decide(&facts, clock::now()));
                    service.tell(shard, Input::Verdict { job, decision });
                }
                Err(error) => service.tell_unavailable(shard, job, format!("the job cannot be read: {error}")),
            }
        }
    };
    thread::Builder::new().name("policy".to_owned()).spawn(decide)?;
    Ok(())
}
