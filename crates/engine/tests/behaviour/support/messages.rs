//! Short constructors for test values.

use engine::{Config, Submission};
use model::audit::{Checkpoint, PublicKey, Signature, SignedCheckpoint};
use model::id::{Attempt, JobId, RunnerId, ShardId, Shards};
use model::job::Scan;
use model::message::{AttemptRef, Capacity};
use model::spec::{EchoRun, JobSpec, ProcessRun, Run, Sandbox};
use model::time::{Millis, Timestamp};
use model::verdict::{Decision, OutputDecision, OutputVerdict, Phase, PolicyVersion, Verdict};

/// Start of 2026.
pub const START: Millis = Millis(1_767_225_600_000);
pub const SECOND: u64 = 1_000;
pub const HOUR: u64 = 3_600 * SECOND;
pub const DAY: u64 = 24 * HOUR;

/// Policy version in force.
pub const POLICY: PolicyVersion = PolicyVersion([7; 16]);

/// The runner of tests with a single one.
pub const RUNNER: RunnerId = RunnerId(1);

pub fn echo() -> JobSpec {
    JobSpec::new(Run::Echo(EchoRun::default()))
}

pub fn process() -> JobSpec {
    let run = ProcessRun { command: vec!["true".to_owned()], ..ProcessRun::default() };
    JobSpec { sandbox: Some(Sandbox::None), ..JobSpec::new(Run::Process(run)) }
}

/// An echo job with changes.
pub fn job(change: impl FnOnce(&mut JobSpec)) -> JobSpec {
    let mut spec = echo();
    change(&mut spec);
    spec
}

/// An echo job with an idempotency key.
pub fn keyed(key: &str) -> JobSpec {
    job(|spec| spec.idempotency_key = Some(key.to_owned()))
}

pub fn submission(spec: &JobSpec) -> Submission {
    Submission::new(spec.clone().pack(), spec.queue)
}

pub fn at(millis_after_start: u64) -> Option<Timestamp> {
    Some(Timestamp(START + Millis(millis_after_start)))
}

pub fn attempt_ref(job: JobId, attempt: u32) -> AttemptRef {
    AttemptRef { job, attempt: Attempt(attempt) }
}

pub fn decision(policy: PolicyVersion, verdict: Verdict) -> Decision {
    Decision { at: START, verdict, rule: "a rule".to_owned(), message: None, policy: Some(policy), constraints: None }
}

/// Outcome of a content scan.
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

/// A signed checkpoint. The engine does not verify signatures.
pub fn signed(checkpoint: Checkpoint) -> SignedCheckpoint {
    SignedCheckpoint { checkpoint, public_key: PublicKey([1; 32]), signature: Signature([2; 64]) }
}

/// Capacity with that many slots for each executor.
pub fn room(of_each: u32) -> Capacity {
    Capacity { process: of_each, echo: of_each, wasm: of_each }
}

/// Configuration of one of `shards` shards.
pub fn config_of(shard: u16, shards: u16) -> Config {
    let config = Config::new(ShardId(shard), Shards::new(shards).expect("a number of shards"));
    // An inventory accepts attempts; most tests are about those that never start.
    Config { setup_timeout: config.dispatch_timeout, ..config }
}
