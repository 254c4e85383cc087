//! Shell of a shard under test: handles inputs, commits, performs effects, advances virtual time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use engine::{
    Accepted, Answer, ApprovalDecision, Config, Effect, Fetch, Input, NewQueue, PeerMessage, PolicyMode, Refusal,
    RequestId, Settings, Shard, SignRequest, Step,
};
use model::audit::SignedCheckpoint;
use model::change::Change;
use model::id::{Epoch, Incarnation, JobId, QueueId, RunnerId, ShardId};
use model::job::{End, Job, Outcome};
use model::message::{AttemptRef, Capacity, FromRunner, RunnerHeader, Session, ShardMessage, ToRunner};
use model::queue::{Queue, QueueRef, QueueToken};
use model::reason::ReasonCode;
use model::spec::JobSpec;
use model::state::State;
use model::time::{Millis, Now};
use model::verdict::{Approval, Decision, PolicyVersion, Verdict};

use super::messages::{POLICY, START, config_of, decision, room, signed, submission};
use super::records::Records;
use super::runner::Runner;

/// Waits give up after this many rounds.
const ROUNDS_MAX: usize = 10_000;

pub struct Fixture {
    pub config: Config,
    pub settings: Arc<Settings>,
    pub shard: Shard,
    /// The steady clock.
    pub now: Millis,
    /// Wall clock minus steady clock, in milliseconds.
    pub wall_offset: i64,
    pub records: Records,
    pub runners: BTreeMap<RunnerId, Runner>,
    pub changes: Vec<Change>,
    pub ended: Vec<JobId>,
    /// Jobs of policy checks, in order.
    pub policy_requests: Vec<JobId>,
    /// Messages to other shards.
    pub shard_messages: Vec<(ShardId, PeerMessage)>,
    /// Jobs with a requested content scan, in order.
    pub scans: Vec<JobId>,
    /// Dispatched attempts with their runner, in order.
    pub runs: Vec<(RunnerId, AttemptRef)>,
    pub stops: Vec<AttemptRef>,
    /// Numbers of the inventory requests, in order.
    pub inventory_requests: Vec<u64>,
    /// Messages to runners, without retransmissions.
    sent: BTreeSet<(RunnerId, Session, u64)>,
    /// Acknowledgements of this step.
    headers: BTreeMap<RunnerId, RunnerHeader>,
    /// All messages to runners are dropped.
    pub drop_runner_messages: bool,
    /// Fetches wait in `fetches` until [`Fixture::answer_fetches`].
    pub hold_fetches: bool,
    pub fetches: VecDeque<Fetch>,
    /// Signatures of audit checkpoints are lost.
    pub lose_signatures: bool,
    /// Requested signatures, in order.
    pub signatures: Vec<SignRequest>,
    /// Number of fetched workflows.
    pub workflow_fetches: usize,
    /// Number of the commit after which the shard crashes.
    pub crash_at: Option<usize>,
    pub commits: usize,
    /// Size in bytes.
    pub largest_commit: usize,
    /// Whether queue counters must equal the jobs on record: no job or queue was removed.
    pub exact_counters: bool,
    answers: BTreeMap<RequestId, Answer>,
    pub(super) inbox: VecDeque<Input>,
    requests: u64,
    epoch: u64,
}

impl Fixture {
    pub fn new() -> Self {
        Self::with(config_of(0, 1))
    }

    /// A shard with one runner of that capacity.
    pub fn with_runner(capacity: u32) -> Self {
        let mut fixture = Self::new();
        fixture.runner(super::messages::RUNNER, room(capacity));
        fixture
    }

    pub fn with(config: Config) -> Self {
        Self::governed(config, Settings::default())
    }

    pub fn governed(config: Config, settings: Settings) -> Self {
        let settings = Arc::new(settings);
        Self {
            config,
            shard: Shard::new(config, settings.clone(), Epoch(1), Now::both(START)),
            settings,
            now: START,
            wall_offset: 0,
            records: Records::default(),
            runners: BTreeMap::new(),
            changes: Vec::new(),
            ended: Vec::new(),
            policy_requests: Vec::new(),
            scans: Vec::new(),
            shard_messages: Vec::new(),
            runs: Vec::new(),
            stops: Vec::new(),
            inventory_requests: Vec::new(),
            sent: BTreeSet::new(),
            headers: BTreeMap::new(),
            drop_runner_messages: false,
            hold_fetches: false,
            fetches: VecDeque::new(),
            lose_signatures: false,
            signatures: Vec::new(),
            workflow_fetches: 0,
            crash_at: None,
            commits: 0,
            largest_commit: 0,
            exact_counters: true,
            answers: BTreeMap::new(),
            inbox: VecDeque::new(),
            requests: 0,
            epoch: 1,
        }
    }

    /// Handles one input and its consequences.
    pub fn input(&mut self, input: Input) {
        self.input_together(vec![input]);
    }

    /// Handles inputs in one commit, and their consequences.
    pub fn input_together(&mut self, inputs: Vec<Input>) {
        self.step(inputs);
        loop {
            if !self.hold_fetches
                && let Some(fetch) = self.fetches.pop_front()
            {
                let fetched = self.records.answer(&fetch);
                self.step(vec![Input::Fetched(fetched)]);
            } else if let Some(input) = self.inbox.pop_front() {
                self.step(vec![input]);
            } else {
                break;
            }
        }
    }

    pub fn answer_fetches(&mut self) {
        self.hold_fetches = false;
        self.input_together(Vec::new());
    }

    fn step(&mut self, inputs: Vec<Input>) {
        self.runners.values_mut().for_each(|runner| runner.now = self.now);
        let mut step = Step::new();
        for input in inputs {
            self.shard.handle(self.clocks(), input, &mut step);
            self.recount();
        }
        self.shard.flush(&mut step);
        self.finish(step);
    }

    fn finish(&mut self, step: Step) {
        self.recount();
        self.changes.extend(self.records.commit(&step.batch));
        self.records.check(self.exact_counters);
        self.commits += 1;
        self.largest_commit = self.largest_commit.max(step.batch.as_bytes().len());
        if self.crash_at == Some(self.commits) {
            return self.crash();
        }
        self.ended.extend(step.ended.iter().map(|ended| ended.job().id));
        for effect in step.effects {
            self.perform(effect);
        }
        let headers = std::mem::take(&mut self.headers);
        self.inbox.extend(headers.into_values().map(Input::RunnerHeader));
    }

    #[track_caller]
    fn recount(&self) {
        if let Err(miscount) = self.shard.recount() {
            panic!("{miscount}");
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Answer { request, answer } => {
                assert!(self.answers.insert(request, answer).is_none(), "{request:?} was answered twice");
            }
            Effect::CheckPolicy { job, .. } => self.policy_requests.push(job),
            Effect::ToShard { shard, message } => self.shard_messages.push((shard, message)),
            Effect::ScanOutput { job, .. } => self.scans.push(job),
            Effect::SignAudit(request) => {
                self.signatures.push(*request);
                if !self.lose_signatures {
                    self.inbox.push_back(signature(signed(request.checkpoint)));
                }
            }
            Effect::Fetch(fetch) => {
                self.workflow_fetches += usize::from(matches!(fetch, Fetch::Workflow { .. }));
                self.fetches.push_back(fetch);
            }
            Effect::Send { runner, incarnation, message } => self.send(runner, incarnation, message),
        }
    }

    fn send(&mut self, runner_id: RunnerId, incarnation: Incarnation, message: ToRunner) {
        if let ToRunner::Message { session, sequence, message, .. } = &message
            && self.sent.insert((runner_id, *session, *sequence))
        {
            match message {
                ShardMessage::Run { attempt_ref, .. } => self.runs.push((runner_id, *attempt_ref)),
                ShardMessage::Stop { attempt_ref } => self.stops.push(*attempt_ref),
                ShardMessage::Inventory { request } => self.inventory_requests.push(*request),
            }
        }
        if self.drop_runner_messages {
            return;
        }
        if let Some(runner) = self.runners.get_mut(&runner_id).filter(|runner| runner.incarnation == incarnation) {
            if let Some(header) = runner.header(&message, self.now) {
                self.headers.insert(runner_id, header);
            }
            let messages = runner.receive(message);
            self.inbox.extend(messages.into_iter().map(Input::Runner));
        }
    }

    /// Crashes the shard: a new owner starts from the records.
    pub fn crash(&mut self) {
        self.runners.values_mut().for_each(|runner| runner.now = self.now);
        self.inbox.clear();
        self.fetches.clear();
        self.epoch += 1;
        self.shard = self.records.restore(self.config, self.settings.clone(), Epoch(self.epoch), self.clocks());
        let mut finished = false;
        while !finished {
            let mut step = Step::new();
            finished = self.shard.resume(self.clocks(), &mut step);
            self.shard.flush(&mut step);
            self.finish(step);
        }
        self.input_together(Vec::new());
    }

    /// The store fails over to earlier records: a new owner starts in a new generation.
    pub fn fail_over(&mut self, kept: Records) {
        self.records = kept;
        let epoch = Epoch(self.epoch);
        self.epoch = epoch.next(epoch.generation() + 1).0 - 1;
        self.crash();
    }

    // Time.

    /// The wall clock may be ahead of the steady one, or behind.
    pub fn clocks(&self) -> Now {
        Now { wall: Millis(self.now.0.saturating_add_signed(self.wall_offset)), steady: self.now }
    }

    /// Time of the next tick on the steady clock.
    pub fn next_tick(&self) -> Millis {
        self.now + self.shard.tick_in(self.clocks())
    }

    /// Advances the time, with a tick whenever one is due.
    pub fn advance(&mut self, millis: u64) {
        let end = self.now + Millis(millis);
        for _ in 0..ROUNDS_MAX {
            let next = self.next_tick();
            if next > end {
                self.now = end;
                return self.input(Input::Tick);
            }
            self.now = next;
            self.input(Input::Tick);
            if self.next_tick() <= self.now {
                // Another tick is due at once; time advances nevertheless.
                self.now = self.now + Millis(1);
            }
        }
        panic!("the time does not advance by {millis} ms: another tick is always due at once");
    }

    // Requests.

    pub fn next_request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    /// The answer to a request, if there is one.
    pub fn answer(&mut self, request: RequestId) -> Option<Answer> {
        self.answers.remove(&request)
    }

    /// Sends a request that is answered at once.
    #[track_caller]
    pub fn request(&mut self, input: impl FnOnce(RequestId) -> Input) -> Answer {
        let request = self.next_request();
        self.input(input(request));
        self.answer(request).expect("the request is answered")
    }

    pub fn submit_request(&mut self, specs: &[JobSpec]) -> RequestId {
        let request = self.next_request();
        self.input(Input::Submit { request, jobs: specs.iter().map(submission).collect() });
        request
    }

    #[track_caller]
    pub fn try_submit(&mut self, specs: &[JobSpec]) -> Vec<Result<Accepted, Refusal>> {
        let request = self.submit_request(specs);
        match self.answer(request) {
            Some(Answer::Submitted(results)) => results,
            other => panic!("unexpected answer to a submit: {other:?}"),
        }
    }

    #[track_caller]
    pub fn submit(&mut self, spec: &JobSpec) -> JobId {
        let result = self.try_submit(std::slice::from_ref(spec)).remove(0);
        result.expect("the job is accepted").id
    }

    #[track_caller]
    pub fn submit_some(&mut self, count: usize) -> Vec<JobId> {
        let results = self.try_submit(&vec![super::messages::echo(); count]);
        results.into_iter().map(|result| result.expect("the job is accepted").id).collect()
    }

    #[track_caller]
    pub fn cancel(&mut self, job: JobId) -> State {
        shown(self.request(|request| Input::Cancel { request, job, by: None }))
    }

    #[track_caller]
    pub fn retract(&mut self, job: JobId) -> State {
        shown(self.request(|request| Input::Retract { request, job, by: None }))
    }

    #[track_caller]
    pub fn retry(&mut self, job: JobId) -> Result<State, Refusal> {
        match self.request(|request| Input::Retry { request, job, by: None }) {
            Answer::Job(job) => Ok(job.state),
            Answer::Refused(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    pub fn approve(&mut self, job: JobId, approval: Approval) -> Answer {
        let Approval { by, approved, comment, digest, rule, .. } = approval;
        let decision =
            ApprovalDecision { by: Some(by.into()), approved, comment, digest: Some(digest), rule: Some(rule) };
        self.request(|request| Input::Approve { request, job, decision: Box::new(decision) })
    }

    #[track_caller]
    pub fn create_queue(&mut self, change: impl FnOnce(&mut NewQueue)) -> Queue {
        let new = self.new_queue(change);
        match self.request(|request| Input::CreateQueue { request, queue: Box::new(new) }) {
            Answer::Queue(queue) => *queue,
            other => panic!("the queue was not created: {other:?}"),
        }
    }

    pub fn new_queue(&mut self, change: impl FnOnce(&mut NewQueue)) -> NewQueue {
        self.requests += 1;
        let secret = u128::from(self.requests).to_be_bytes();
        let token = QueueToken::new(secret, self.config.shards.home_slot(self.config.shard));
        let (tag, tenant) = (String::new(), "default".to_owned());
        let mut new = NewQueue { token, tag, tenant, max_retries: 3, max_running: None, key: None };
        change(&mut new);
        new
    }

    pub fn cancel_queue(&mut self, queue: QueueId) -> Answer {
        self.request(|request| Input::CancelQueue { request, queue: QueueRef::Id(queue), by: None })
    }

    pub fn drain_queue(&mut self, queue: QueueId) -> Answer {
        self.request(|request| Input::DrainQueue { request, queue: QueueRef::Id(queue), by: None })
    }

    pub fn remove_queue(&mut self, queue: QueueId) -> Answer {
        self.request(|request| Input::RemoveQueue { request, queue: QueueRef::Id(queue), by: None })
    }

    pub fn verdict(&mut self, job: JobId, verdict: Verdict) {
        self.verdict_of(job, POLICY, verdict);
    }

    pub fn verdict_of(&mut self, job: JobId, policy: PolicyVersion, verdict: Verdict) {
        self.decide(job, decision(policy, verdict));
    }

    pub fn decide(&mut self, job: JobId, decision: Decision) {
        self.input(Input::Verdict { job, decision });
    }

    /// Puts another policy version in force.
    pub fn change_policy(&mut self, version: PolicyVersion) {
        self.change_settings(|settings| settings.policy = PolicyMode::Enforced(version));
    }

    pub fn change_settings(&mut self, change: impl FnOnce(&mut Settings)) {
        change(Arc::make_mut(&mut self.settings));
        self.input(Input::Settings(self.settings.clone()));
    }

    /// Submits a job together with a policy decision.
    pub fn submit_decided(&mut self, spec: &JobSpec, decision: Decision) -> JobId {
        let mut submission = submission(spec);
        submission.decision = Some(Box::new(decision));
        match self.request(|request| Input::Submit { request, jobs: vec![submission] }) {
            Answer::Submitted(results) => results[0].as_ref().expect("the job is accepted").id,
            other => panic!("{other:?}"),
        }
    }

    // Runners.

    /// Registers a runner, or its next incarnation.
    pub fn runner(&mut self, id: RunnerId, capacity: Capacity) {
        let incarnation = self.runners.get(&id).map_or(1, |runner| runner.incarnation.0 + 1);
        let mut runner = Runner::new(id, Incarnation(incarnation), capacity);
        let register = runner.register(0);
        self.runners.insert(id, runner);
        self.input(Input::Runner(register));
    }

    /// Restarts a runner that finds these attempts alive.
    pub fn restart(&mut self, id: RunnerId, capacity: Capacity, alive: &[AttemptRef]) {
        let register = self.restart_silently(id, capacity, alive);
        self.input(Input::Runner(register));
    }

    /// Restarts a runner without delivering its first message.
    pub fn restart_silently(&mut self, id: RunnerId, capacity: Capacity, alive: &[AttemptRef]) -> FromRunner {
        let mut runner = self.runners[&id].restarted(capacity, alive);
        runner.now = self.now;
        let register = runner.register(0);
        self.runners.insert(id, runner);
        register
    }

    pub fn resize(&mut self, id: RunnerId, capacity: Capacity) {
        let runner = self.runners.get_mut(&id).expect("a runner");
        runner.now = self.now;
        runner.set_capacity(capacity);
        let register = runner.register(0);
        self.input(Input::Runner(register));
    }

    /// Runs `speak` on a runner. The test delivers its messages.
    pub fn messages<T>(&mut self, id: RunnerId, speak: impl FnOnce(&mut Runner) -> T) -> T {
        let runner = self.runners.get_mut(&id).expect("a runner");
        runner.now = self.now;
        speak(runner)
    }

    pub fn deliver(&mut self, message: FromRunner) {
        self.input(Input::Runner(message));
    }

    #[track_caller]
    fn holder(&mut self, attempt_ref: AttemptRef) -> &mut Runner {
        let mut runners = self.runners.values_mut();
        runners.find(|runner| runner.in_flight.contains(&attempt_ref)).expect("the attempt is in flight on a runner")
    }

    #[track_caller]
    pub fn accept(&mut self, attempt_ref: AttemptRef) {
        let message = self.holder(attempt_ref).accept(attempt_ref);
        self.deliver(message);
    }

    #[track_caller]
    pub fn start(&mut self, attempt_ref: AttemptRef) {
        let now = self.now;
        let message = self.holder(attempt_ref).start(attempt_ref, now);
        self.deliver(message);
    }

    #[track_caller]
    pub fn end(&mut self, attempt_ref: AttemptRef, end: End) {
        let message = self.holder(attempt_ref).end(attempt_ref, end);
        self.deliver(message);
    }

    pub fn end_with(&mut self, attempt_ref: AttemptRef, outcome: Outcome) {
        let message = self.holder(attempt_ref).end_with(attempt_ref, outcome);
        self.deliver(message);
    }

    /// Starts and ends the newest attempt of a job.
    #[track_caller]
    pub fn run_attempt(&mut self, job: JobId, end: End) {
        let attempt_ref = self.current(job);
        self.start(attempt_ref);
        self.end(attempt_ref, end);
    }

    /// The job's attempt in flight.
    #[track_caller]
    pub fn current(&self, job: JobId) -> AttemptRef {
        let record = self.job(job);
        assert!(record.state.is_on_runner(), "{job} is {}", record.state);
        AttemptRef { job, attempt: record.attempt }
    }

    /// Jobs dispatched since the last call, in order.
    pub fn take_runs(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.runs).into_iter().map(|(_, attempt_ref)| attempt_ref.job).collect()
    }

    pub fn lose(&mut self, runner: RunnerId, incarnation: u64) {
        self.input(Input::RunnerLost { runner, incarnation: Incarnation(incarnation) });
    }

    /// Runs all attempts and advances the time until every job has ended.
    #[track_caller]
    pub fn finish_all(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if self.shard.live_jobs() == 0 && self.inbox.is_empty() {
                return;
            }
            if !self.work() {
                let next = self.next_tick().max(self.now + Millis(1));
                self.now = next;
                self.input(Input::Tick);
            }
        }
        let left: Vec<_> = self.records.jobs(model::batch::Keyspace::Live);
        panic!("{} jobs do not end; the first is {:?}", left.len(), left.first());
    }

    /// Advances every attempt in flight by one state. Returns whether there was one.
    fn work(&mut self) -> bool {
        let now = self.now;
        let mut messages = Vec::new();
        for runner in self.runners.values_mut() {
            for attempt_ref in runner.in_flight.clone() {
                messages.push(if runner.to_stop.contains(&attempt_ref) {
                    runner.end(attempt_ref, End::Stopped)
                } else if runner.has_started(attempt_ref) {
                    runner.end(attempt_ref, End::Succeeded)
                } else {
                    runner.start(attempt_ref, now)
                });
            }
        }
        let any = !messages.is_empty();
        for message in messages {
            self.deliver(message);
        }
        any
    }

    // Records.

    #[track_caller]
    pub fn job(&self, id: JobId) -> Job {
        self.records.job(id).expect("a record of the job")
    }

    #[track_caller]
    pub fn state(&self, id: JobId) -> State {
        self.job(id).state
    }

    #[track_caller]
    pub fn reason(&self, id: JobId) -> Option<ReasonCode> {
        self.job(id).reason.map(|reason| reason.code)
    }

    #[track_caller]
    pub fn queue(&self, id: QueueId) -> Queue {
        self.records.queue(id).expect("a record of the queue")
    }
}

/// The answer to a request for a signature.
pub fn signature(signed: SignedCheckpoint) -> Input {
    Input::AuditSigned { signed: Box::new(signed) }
}

#[track_caller]
fn shown(answer: Answer) -> State {
    match answer {
        Answer::Job(job) => job.state,
        other => panic!("expected a job: {other:?}"),
    }
}
