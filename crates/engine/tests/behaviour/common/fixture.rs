//! The shell of a shard under test: takes inputs, commits, performs effects, lets time pass.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use engine::leases::Message;
use engine::{
    Accepted, Answer, Config, Effect, Fetch, Gate, Input, NewQueue, Refusal, RequestId, Setup, Shard, Step, Word,
};
use model::change::Change;
use model::id::{Epoch, Incarnation, JobId, QueueId, RunnerId, ShardId};
use model::job::{End, Job, Outcome};
use model::message::{Capacity, FromRunner, Ticket, ToRunner};
use model::queue::{Queue, QueueRef, QueueToken};
use model::reason::ReasonCode;
use model::spec::JobSpec;
use model::state::State;
use model::time::Millis;
use model::verdict::{Approval, Decision, PolicyVersion, Verdict};

use super::records::Records;
use super::runner::Runner;
use super::words::{POLICY, START, config_of, decision, room, submission};

/// Waiting for something gives up after this many rounds.
const ROUNDS_MAX: usize = 10_000;

pub struct Fixture {
    pub config: Config,
    pub setup: Arc<Setup>,
    pub shard: Shard,
    pub now: Millis,
    pub records: Records,
    pub runners: BTreeMap<RunnerId, Runner>,
    pub changes: Vec<Change>,
    pub ended: Vec<JobId>,
    /// Jobs the policy was asked about, in order.
    pub asked: Vec<JobId>,
    /// What was said to other shards.
    pub letters: Vec<(ShardId, Message)>,
    /// Jobs whose results are to be scanned, in order.
    pub scans: Vec<JobId>,
    /// Attempts given out, in order, with the runner.
    pub runs: Vec<(RunnerId, Ticket)>,
    pub stops: Vec<Ticket>,
    /// The numbers of the inventory questions, in order.
    pub questions: Vec<u64>,
    /// Everything said to runners is lost on the way.
    pub deaf_runners: bool,
    /// Questions to the store wait in `fetches` until [`Fixture::answer_fetches`].
    pub hold_fetches: bool,
    pub fetches: VecDeque<Fetch>,
    /// The commit after which everything but the records is lost.
    pub crash_at: Option<usize>,
    pub commits: usize,
    /// In bytes.
    pub largest_commit: usize,
    /// Whether each queue knows every job it has ever had, and none was removed.
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

    /// The same with one runner that has room for that many.
    pub fn with_runner(capacity: u32) -> Self {
        let mut fixture = Self::new();
        fixture.runner(super::words::RUNNER, room(capacity));
        fixture
    }

    pub fn with(config: Config) -> Self {
        Self::governed(config, Setup::default())
    }

    pub fn governed(config: Config, setup: Setup) -> Self {
        let setup = Arc::new(setup);
        Self {
            config,
            shard: Shard::new(config, setup.clone(), Epoch(1), START),
            setup,
            now: START,
            records: Records::default(),
            runners: BTreeMap::new(),
            changes: Vec::new(),
            ended: Vec::new(),
            asked: Vec::new(),
            scans: Vec::new(),
            letters: Vec::new(),
            runs: Vec::new(),
            stops: Vec::new(),
            questions: Vec::new(),
            deaf_runners: false,
            hold_fetches: false,
            fetches: VecDeque::new(),
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

    /// Hands in one input and everything that follows from it.
    pub fn give(&mut self, input: Input) {
        self.give_together(vec![input]);
    }

    /// Hands in inputs that share one commit.
    pub fn give_together(&mut self, inputs: Vec<Input>) {
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
        self.give_together(Vec::new());
    }

    fn step(&mut self, inputs: Vec<Input>) {
        let mut step = Step::new();
        for input in inputs {
            self.shard.handle(self.now, input, &mut step);
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
            Effect::CheckPolicy { job, .. } => self.asked.push(job),
            Effect::ToShard { shard, message } => self.letters.push((shard, message)),
            Effect::ScanOutput { job, .. } => self.scans.push(job),
            Effect::Fetch(fetch) => self.fetches.push_back(fetch),
            Effect::Send { runner, incarnation, message } => self.send(runner, incarnation, message),
        }
    }

    fn send(&mut self, runner_id: RunnerId, incarnation: Incarnation, message: ToRunner) {
        match &message {
            ToRunner::Run { ticket, .. } => self.runs.push((runner_id, *ticket)),
            ToRunner::Stop { ticket } => self.stops.push(*ticket),
            ToRunner::Inventory { question } => self.questions.push(*question),
            ToRunner::Committed { .. } => {}
        }
        if self.deaf_runners {
            return;
        }
        if let Some(runner) = self.runners.get_mut(&runner_id).filter(|runner| runner.incarnation == incarnation) {
            let words = runner.hear(message, self.now);
            self.inbox.extend(words.into_iter().map(Input::Runner));
        }
    }

    /// Everything but the records is lost; a new owner starts from them.
    pub fn crash(&mut self) {
        self.inbox.clear();
        self.fetches.clear();
        self.epoch += 1;
        self.shard = self.records.restore(self.config, self.setup.clone(), Epoch(self.epoch), self.now);
        let mut step = Step::new();
        self.shard.resume(self.now, &mut step);
        self.shard.flush(&mut step);
        self.finish(step);
        self.give_together(Vec::new());
    }

    // Time.

    /// Lets time pass, with a tick whenever the shard wants one.
    pub fn pass(&mut self, millis: u64) {
        let end = self.now + Millis(millis);
        for _ in 0..ROUNDS_MAX {
            let next = self.shard.next_tick().max(self.now);
            if next > end {
                self.now = end;
                return self.give(Input::Tick);
            }
            self.now = next;
            self.give(Input::Tick);
            if self.shard.next_tick() <= self.now {
                // It wants to go on at once; a little time passes all the same.
                self.now = self.now + Millis(1);
            }
        }
        panic!("{millis} ms never pass: the shard always wants another tick");
    }

    // Requests.

    pub fn next_request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    /// The answer to a request, if it has come.
    pub fn answer(&mut self, request: RequestId) -> Option<Answer> {
        self.answers.remove(&request)
    }

    /// Asks and expects an answer at once.
    #[track_caller]
    pub fn ask(&mut self, input: impl FnOnce(RequestId) -> Input) -> Answer {
        let request = self.next_request();
        self.give(input(request));
        self.answer(request).expect("an answer")
    }

    pub fn submit_request(&mut self, specs: &[JobSpec]) -> RequestId {
        let request = self.next_request();
        self.give(Input::Submit { request, jobs: specs.iter().map(submission).collect() });
        request
    }

    #[track_caller]
    pub fn try_submit(&mut self, specs: &[JobSpec]) -> Vec<Result<Accepted, Refusal>> {
        let request = self.submit_request(specs);
        match self.answer(request) {
            Some(Answer::Submitted(results)) => results,
            other => panic!("a submit is answered as one: {other:?}"),
        }
    }

    #[track_caller]
    pub fn submit(&mut self, spec: &JobSpec) -> JobId {
        let result = self.try_submit(std::slice::from_ref(spec)).remove(0);
        result.expect("the job is accepted").id
    }

    #[track_caller]
    pub fn submit_some(&mut self, count: usize) -> Vec<JobId> {
        let results = self.try_submit(&vec![super::words::echo(); count]);
        results.into_iter().map(|result| result.expect("the job is accepted").id).collect()
    }

    #[track_caller]
    pub fn cancel(&mut self, job: JobId) -> State {
        shown(self.ask(|request| Input::Cancel { request, job, by: None }))
    }

    #[track_caller]
    pub fn retract(&mut self, job: JobId) -> State {
        shown(self.ask(|request| Input::Retract { request, job, by: None }))
    }

    #[track_caller]
    pub fn retry(&mut self, job: JobId) -> Result<State, Refusal> {
        match self.ask(|request| Input::Retry { request, job, by: None }) {
            Answer::Job(job) => Ok(job.state),
            Answer::Refused(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    pub fn approve(&mut self, job: JobId, approval: Approval) -> Answer {
        let Approval { by, approved, comment, digest, rule, .. } = approval;
        let word = Word { by: Some(by.into()), approved, comment, digest: Some(digest), rule: Some(rule) };
        self.ask(|request| Input::Approve { request, job, word: Box::new(word) })
    }

    #[track_caller]
    pub fn create_queue(&mut self, change: impl FnOnce(&mut NewQueue)) -> Queue {
        let new = self.new_queue(change);
        match self.ask(|request| Input::CreateQueue { request, queue: Box::new(new) }) {
            Answer::Queue(queue) => *queue,
            other => panic!("the queue is made: {other:?}"),
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
        self.ask(|request| Input::CancelQueue { request, queue: QueueRef::Id(queue), by: None })
    }

    pub fn drain_queue(&mut self, queue: QueueId) -> Answer {
        self.ask(|request| Input::DrainQueue { request, queue: QueueRef::Id(queue), by: None })
    }

    pub fn remove_queue(&mut self, queue: QueueId) -> Answer {
        self.ask(|request| Input::RemoveQueue { request, queue: QueueRef::Id(queue), by: None })
    }

    pub fn verdict(&mut self, job: JobId, verdict: Verdict) {
        self.verdict_of(job, POLICY, verdict);
    }

    pub fn verdict_of(&mut self, job: JobId, policy: PolicyVersion, verdict: Verdict) {
        self.decide(job, decision(policy, verdict));
    }

    pub fn decide(&mut self, job: JobId, decision: Decision) {
        self.give(Input::Verdict { job, decision });
    }

    /// Other rules are in force from now on.
    pub fn change_policy(&mut self, version: PolicyVersion) {
        self.change_setup(|setup| setup.gate = Gate::Policy(version));
    }

    pub fn change_setup(&mut self, change: impl FnOnce(&mut Setup)) {
        change(Arc::make_mut(&mut self.setup));
        self.give(Input::Setup(self.setup.clone()));
    }

    /// Submits a job together with what the policy is known to say of it.
    pub fn submit_decided(&mut self, spec: &JobSpec, decision: Decision) -> JobId {
        let mut submission = submission(spec);
        submission.decision = Some(Box::new(decision));
        match self.ask(|request| Input::Submit { request, jobs: vec![submission] }) {
            Answer::Submitted(results) => results[0].as_ref().expect("it is accepted").id,
            other => panic!("{other:?}"),
        }
    }

    // Runners.

    /// A runner appears, or appears again.
    pub fn runner(&mut self, id: RunnerId, capacity: Capacity) {
        let incarnation = self.runners.get(&id).map_or(1, |runner| runner.incarnation.0 + 1);
        let mut runner = Runner::new(id, Incarnation(incarnation), capacity);
        let here = runner.here(0);
        self.runners.insert(id, runner);
        self.give(Input::Runner(here));
    }

    /// A runner is restarted and finds these attempts alive.
    pub fn restart(&mut self, id: RunnerId, capacity: Capacity, keeps: &[Ticket]) {
        let here = self.restart_silently(id, capacity, keeps);
        self.give(Input::Runner(here));
    }

    /// The same; its first word is still to be handed in.
    pub fn restart_silently(&mut self, id: RunnerId, capacity: Capacity, keeps: &[Ticket]) -> FromRunner {
        let mut runner = self.runners[&id].restarted(capacity, keeps);
        let here = runner.here(0);
        self.runners.insert(id, runner);
        here
    }

    pub fn resize(&mut self, id: RunnerId, capacity: Capacity) {
        let runner = self.runners.get_mut(&id).expect("a runner");
        runner.set_capacity(capacity);
        let here = runner.here(0);
        self.give(Input::Runner(here));
    }

    /// What a runner would say, to be handed in by the test when and as often as it likes.
    pub fn words<T>(&mut self, id: RunnerId, speak: impl FnOnce(&mut Runner) -> T) -> T {
        speak(self.runners.get_mut(&id).expect("a runner"))
    }

    pub fn say(&mut self, word: FromRunner) {
        self.give(Input::Runner(word));
    }

    #[track_caller]
    fn holder(&mut self, ticket: Ticket) -> &mut Runner {
        let mut runners = self.runners.values_mut();
        runners.find(|runner| runner.in_hand.contains(&ticket)).expect("some runner has it in hand")
    }

    #[track_caller]
    pub fn start(&mut self, ticket: Ticket) {
        let now = self.now;
        let word = self.holder(ticket).start(ticket, now);
        self.say(word);
    }

    #[track_caller]
    pub fn end(&mut self, ticket: Ticket, end: End) {
        let now = self.now;
        let word = self.holder(ticket).end(ticket, now, end);
        self.say(word);
    }

    pub fn end_with(&mut self, ticket: Ticket, outcome: Outcome) {
        let now = self.now;
        let word = self.holder(ticket).end_with(ticket, now, outcome);
        self.say(word);
    }

    /// The newest attempt of a job starts and ends.
    #[track_caller]
    pub fn play(&mut self, job: JobId, end: End) {
        let ticket = self.current(job);
        self.start(ticket);
        self.end(ticket, end);
    }

    /// The attempt of a job that a runner has in hand.
    #[track_caller]
    pub fn current(&self, job: JobId) -> Ticket {
        let record = self.job(job);
        assert!(record.state.is_on_runner(), "{job} is {}", record.state);
        Ticket { job, attempt: record.attempt }
    }

    /// Attempts given out since the last look, in order.
    pub fn take_runs(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.runs).into_iter().map(|(_, ticket)| ticket.job).collect()
    }

    pub fn lose(&mut self, runner: RunnerId, incarnation: u64) {
        self.give(Input::RunnerLost { runner, incarnation: Incarnation(incarnation) });
    }

    /// Lets runners do what they are told and time pass until no job is left that has not ended.
    #[track_caller]
    pub fn finish_all(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if self.shard.live_jobs() == 0 && self.inbox.is_empty() {
                return;
            }
            if !self.work() {
                let next = self.shard.next_tick().max(self.now + Millis(1));
                self.now = next;
                self.give(Input::Tick);
            }
        }
        let left: Vec<_> = self.records.jobs(model::batch::Keyspace::Live);
        panic!("{} jobs never end, the first is {:?}", left.len(), left.first());
    }

    /// Every runner goes one step on with everything in hand; whether there was anything.
    fn work(&mut self) -> bool {
        let now = self.now;
        let mut words = Vec::new();
        for runner in self.runners.values_mut() {
            for ticket in runner.in_hand.clone() {
                words.push(if runner.to_stop.contains(&ticket) {
                    runner.end(ticket, now, End::Stopped)
                } else if runner.has_started(ticket) {
                    runner.end(ticket, now, End::Succeeded)
                } else {
                    runner.start(ticket, now)
                });
            }
        }
        let any = !words.is_empty();
        for word in words {
            self.say(word);
        }
        any
    }

    // What a user sees.

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

#[track_caller]
fn shown(answer: Answer) -> State {
    match answer {
        Answer::Job(job) => job.state,
        other => panic!("the job is shown: {other:?}"),
    }
}
