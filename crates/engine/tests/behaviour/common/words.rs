//! Short words for long types.

use engine::{Config, Submission};
use model::id::{Attempt, JobId, RunnerId, ShardId, Shards};
use model::job::Scan;
use model::message::{Capacity, Ticket};
use model::spec::{EchoRun, JobSpec, ProcessRun, Run, Sandbox};
use model::time::{Millis, Timestamp};
use model::verdict::{Decision, OutputDecision, OutputVerdict, Phase, PolicyVersion, Verdict};

/// The beginning of 2026.
pub const START: Millis = Millis(1_767_225_600_000);
pub const SECOND: u64 = 1_000;
pub const HOUR: u64 = 3_600 * SECOND;
pub const DAY: u64 = 24 * HOUR;

/// The rules that are in force where there are any.
pub const POLICY: PolicyVersion = PolicyVersion([7; 16]);

/// The runner of tests that need but one.
pub const RUNNER: RunnerId = RunnerId(1);

pub fn echo() -> JobSpec {
    JobSpec::new(Run::Echo(EchoRun::default()))
}

pub fn process() -> JobSpec {
    let run = ProcessRun { command: vec!["true".to_owned()], ..ProcessRun::default() };
    JobSpec { sandbox: Some(Sandbox::None), ..JobSpec::new(Run::Process(run)) }
}

/// An ordinary job with something changed.
pub fn job(change: impl FnOnce(&mut JobSpec)) -> JobSpec {
    let mut spec = echo();
    change(&mut spec);
    spec
}

/// With an idempotency key.
pub fn keyed(key: &str) -> JobSpec {
    job(|spec| spec.idempotency_key = Some(key.to_owned()))
}

pub fn submission(spec: &JobSpec) -> Submission {
    Submission::new(spec.clone().pack(), spec.queue)
}

pub fn at(millis_after_start: u64) -> Option<Timestamp> {
    Some(Timestamp(START + Millis(millis_after_start)))
}

pub fn ticket(job: JobId, attempt: u32) -> Ticket {
    Ticket { job, attempt: Attempt(attempt) }
}

pub fn decision(policy: PolicyVersion, verdict: Verdict) -> Decision {
    Decision { at: START, verdict, rule: "a rule".to_owned(), message: None, policy: Some(policy), constraints: None }
}

/// What a look at a result's content has come to.
pub fn scan(verdict: OutputVerdict) -> Box<Scan> {
    let decision = OutputDecision {
        at: START,
        phase: Phase::Content,
        verdict,
        rule: "an output rule".to_owned(),
        message: None,
        policy: None,
        findings: Vec::new(),
        attempt: Attempt::default(),
    };
    Box::new(Scan { decision, redacted: None })
}

/// Room for that many of either kind.
pub fn room(of_each: u32) -> Capacity {
    Capacity { process: of_each, echo: of_each, wasm: of_each }
}

/// The settings of one of so many shards.
pub fn config_of(shard: u16, shards: u16) -> Config {
    Config::new(ShardId(shard), Shards::new(shards).expect("a number of shards"))
}
