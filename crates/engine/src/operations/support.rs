//! A shard with one runner and a store that keeps terminal jobs, for the tests of single operations.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::batch::{Keyspace, Op, ops};
use model::id::{Epoch, Incarnation, JobId, RunnerId, ShardId, Shards};
use model::job::{End, Job, Outcome, Scan};
use model::message::{AttemptRef, Capacity, FromRunner, Profile, RunnerMessage, ShardMessage, ToRunner};
use model::spec::{EchoRun, JobSpec, Run};
use model::time::{Millis, Now};
use model::verdict::{Decision, OutputDecision, OutputVerdict, Phase, PolicyVersion, Verdict};

use crate::{
    Answer, Config, Effect, FailMode, Fetch, Fetched, Input, OutputRules, PolicyMode, RequestId, Settings, Shard, Step,
    Submission, Topic,
};

const NOW: Millis = Millis(1_767_225_600_000);
const RUNNER: RunnerId = RunnerId(1);
const POLICY: PolicyVersion = PolicyVersion([7; 16]);

pub struct Bench {
    shard: Shard,
    step: Step,
    stored: BTreeMap<JobId, Job>,
    runs: Vec<AttemptRef>,
    sequence: u64,
    requests: u64,
}

impl Bench {
    pub fn new() -> Self {
        Self::with_settings(Settings::default())
    }

    fn with_settings(settings: Settings) -> Self {
        let config = Config::new(ShardId(0), Shards::new(1).expect("one shard"));
        let shard = Shard::new(config, Arc::new(settings), Epoch(1), Now::both(NOW));
        Self { shard, step: Step::new(), stored: BTreeMap::new(), runs: Vec::new(), sequence: 0, requests: 0 }
    }

    /// Results of this bench are scanned after they are shown.
    pub fn with_runner() -> Self {
        let output = OutputRules { scan: true, hold_until_scanned: false, fail_mode: FailMode::Closed };
        let topic = Topic { output, ..Topic::default() };
        let mut bench = Self::with_settings(Settings { other_topics: Some(topic), ..Settings::default() });
        let register = RunnerMessage::Register {
            capacity: Capacity { process: 1, echo: 1, wasm: 1 },
            profile: Arc::new(Profile::default()),
            in_flight: Vec::new(),
            request: 0,
            oldest_kept: 1,
        };
        bench.send(register);
        bench
    }

    pub fn with_approvals() -> Self {
        Self::with_settings(Settings { policy: PolicyMode::Enforced(POLICY), ..Settings::default() })
    }

    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    pub fn stored(&self, id: JobId) -> Option<&Job> {
        self.stored.get(&id)
    }

    /// Handles an input, commits it and performs its effects. Returns the answer to a request.
    fn give(&mut self, input: Input) -> Option<Answer> {
        let mut answer = None;
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            self.step.clear();
            self.shard.handle(Now::both(NOW), input, &mut self.step);
            self.shard.flush(&mut self.step);
            self.shard.recount().expect("the counters are right");
            for op in ops(self.step.batch.as_bytes()) {
                match op.expect("a readable batch") {
                    Op::Put { keyspace: Keyspace::Done, value, .. } => {
                        let job = Job::decode(value).expect("a job's record");
                        self.stored.insert(job.id, job);
                    }
                    Op::Delete { keyspace: Keyspace::Done, key } => {
                        self.stored.remove(&JobId::from_key(key).expect("a job's key"));
                    }
                    Op::Put { .. } | Op::Delete { .. } | Op::Event { .. } => {}
                }
            }
            for effect in self.step.effects.drain(..) {
                match effect {
                    Effect::Answer { answer: given, .. } => answer = Some(given),
                    Effect::Send { message: ToRunner::Message { message, .. }, .. } => {
                        if let ShardMessage::Run { attempt_ref, .. } = message {
                            self.runs.push(attempt_ref);
                        }
                    }
                    Effect::Fetch(Fetch::Job { id }) => {
                        let job = self.stored.get(&id).cloned().map(Box::new);
                        inputs.push(Input::Fetched(Fetched::Job { id, job }));
                    }
                    Effect::Send { .. }
                    | Effect::CheckPolicy { .. }
                    | Effect::ScanOutput { .. }
                    | Effect::Fetch(_)
                    | Effect::SignAudit(_)
                    | Effect::ToShard { .. } => {}
                }
            }
        }
        answer
    }

    pub fn ask(&mut self, input: impl FnOnce(RequestId) -> Input) -> Answer {
        self.requests += 1;
        self.give(input(RequestId(self.requests))).expect("every request is answered")
    }

    fn send(&mut self, message: RunnerMessage) {
        self.sequence += 1;
        let (incarnation, sequence) = (Incarnation(1), self.sequence);
        self.give(Input::Runner(FromRunner { runner: RUNNER, incarnation, sequence, message }));
    }

    pub fn submit(&mut self) -> JobId {
        let spec = JobSpec { max_retries: Some(1), ..JobSpec::new(Run::Echo(EchoRun::default())) };
        let jobs = vec![Submission::new(spec.pack(), None)];
        match self.ask(|request| Input::Submit { request, jobs }) {
            Answer::Submitted(results) => results[0].as_ref().expect("the job is accepted").id,
            other => panic!("{other:?}"),
        }
    }

    pub fn submit_for_approval(&mut self) -> JobId {
        let job = self.submit();
        let decision = Decision {
            at: NOW,
            verdict: Verdict::RequireApproval,
            rule: "a rule".to_owned(),
            message: None,
            policy: Some(POLICY),
            constraints: None,
        };
        self.give(Input::Verdict { job, decision });
        job
    }

    fn run(&mut self) -> AttemptRef {
        self.submit();
        let attempt_ref = *self.runs.last().expect("the job is dispatched");
        self.send(RunnerMessage::Started { attempt_ref, at: NOW });
        attempt_ref
    }

    pub fn start(&mut self) -> JobId {
        self.run().job
    }

    fn end(&mut self, end: End) -> JobId {
        let attempt_ref = self.run();
        self.send(RunnerMessage::Ended { attempt_ref, outcome: Box::new(Outcome::of(end)) });
        attempt_ref.job
    }

    pub fn succeed(&mut self) -> JobId {
        self.end(End::Succeeded)
    }

    pub fn fail(&mut self) -> JobId {
        self.end(End::Fatal)
    }

    pub fn quarantine(&mut self) -> JobId {
        let job = self.succeed();
        let attempt = self.stored[&job].attempt;
        let decision = OutputDecision {
            at: NOW,
            phase: Phase::Content,
            verdict: OutputVerdict::Quarantine,
            rule: "a rule".to_owned(),
            message: None,
            policy: None,
            findings: Vec::new(),
            attempt,
        };
        self.give(Input::Scanned { job, attempt, scan: Box::new(Scan { decision, redacted: None }) });
        job
    }
}
