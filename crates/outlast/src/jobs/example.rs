//! Example job for tests.

use std::collections::BTreeMap;

use api::{AttemptView, HistoryView, JobView, StateView};
use model::blob::BlobId;
use model::id::{Attempt, JobId, QueueId};
use model::job::Artifact;
use model::json::Json;
use model::spec::{Limits, Priority, ProcessRun, Run, Sandbox};
use model::state::State;
use model::time::{Millis, Timestamp};

/// Time since the start of 2026.
fn at(millis: u64) -> Timestamp {
    Timestamp(Millis(1_767_225_600_000 + millis))
}

fn states() -> Vec<StateView> {
    vec![StateView { state: State::Pending, at: at(0) }, StateView { state: State::Succeeded, at: at(1500) }]
}

pub fn job() -> JobView {
    let command = ["sh", "-c", "echo hi"].map(str::to_owned).to_vec();
    JobView {
        id: JobId(1),
        seq: 1,
        state: State::Succeeded,
        reason: None,
        message: None,
        queue: QueueId(2),
        attempt: Attempt(1),
        retries: 0,
        created_at: at(0),
        states: states(),
        runner: Some("runner_0000000000003".to_owned()),
        exit_code: Some(0),
        signal: None,
        cpu_seconds: Some(0.25),
        cpu_percent: None,
        memory_peak_bytes: Some(3 << 20),
        result: Json::parse(br#"{"x":1}"#),
        artifacts: vec![Artifact {
            path: "out/report.txt".to_owned(),
            blob: BlobId([0xab; 32]),
            bytes: 2048,
            executable: false,
        }],
        eligible_at: None,
        topic: "default".to_owned(),
        tenant: "default".to_owned(),
        priority: Priority::Interactive,
        run: Run::Process(ProcessRun { command, ..ProcessRun::default() }),
        timeout_ms: None,
        deadline: None,
        not_before: None,
        max_retries: 3,
        labels: BTreeMap::from([("team".to_owned(), "x".to_owned())]),
        sandbox: Some(Sandbox::None),
        inputs: BTreeMap::from([("in.csv".to_owned(), BlobId([0xcd; 32]))]),
        outputs: vec!["out/*".to_owned()],
        limits: Limits { memory_bytes: Some(512 << 20), pids: Some(16), ..Limits::default() },
        idempotency_key: None,
        submitter: None,
        requires: Vec::new(),
        exclusive: false,
        constraints: None,
        approval: None,
        origin: None,
    }
}

pub fn history() -> HistoryView {
    let attempt = AttemptView {
        attempt: Attempt(1),
        runner: "runner_0000000000003".to_owned(),
        dispatched_at: at(400),
        started_at: Some(at(500)),
        ended_at: Some(at(1500)),
        end: Some("exited".to_owned()),
        exit_code: Some(0),
        signal: None,
        cpu_seconds: Some(0.25),
        memory_peak_bytes: Some(3 << 20),
        log: None,
        message: None,
        placement: None,
    };
    HistoryView {
        id: JobId(1),
        state: State::Succeeded,
        states: states(),
        states_dropped: 0,
        attempts: vec![attempt],
        attempts_dropped: 0,
        decisions: Vec::new(),
        approval: None,
        output_decisions: Vec::new(),
    }
}
