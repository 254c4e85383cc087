//! The largest permitted inputs: each commit stays below the limit of a round plus that of one input.

use engine::{INPUT_BYTES_MAX, Input, Submission};
use model::blob::BlobId;
use model::job::{Artifact, End, Outcome, Redacted};
use model::json::Json;
use model::limits;
use model::spec::{EchoRun, JobSpec, Run};
use model::verdict::OutputVerdict;
use model::workflow::WorkflowState;
use serde_json::json;

use crate::support::{Fixture, keyed, room, scan, submission};

#[track_caller]
fn expect_bounded(fixture: &Fixture) {
    let limit = fixture.config.step_bytes_max + INPUT_BYTES_MAX;
    assert!(fixture.largest_commit <= limit, "{} bytes in one commit", fixture.largest_commit);
}

/// An echo job with a spec of about this size.
fn echo_of(bytes: usize, key: Option<String>) -> JobSpec {
    let run = Run::Echo(EchoRun { value: Json::of(&"x".repeat(bytes)), ..EchoRun::default() });
    JobSpec { idempotency_key: key, ..JobSpec::new(run) }
}

fn submit(fixture: &mut Fixture, jobs: Vec<Submission>) {
    let count = jobs.len();
    let request = fixture.next_request();
    fixture.input(Input::Submit { request, jobs });
    fixture.advance(1_000);
    assert_eq!(fixture.shard.live_jobs(), count);
}

#[test]
fn batches_of_the_largest_and_of_the_most_jobs() {
    let each = limits::BATCH_BODY_BYTES_MAX / limits::BATCH_JOBS_MAX;
    for (jobs, bytes) in [(8, limits::JOB_BODY_BYTES_MAX), (limits::BATCH_JOBS_MAX, each), (limits::BATCH_JOBS_MAX, 1)]
    {
        let mut fixture = Fixture::with_runner(10);
        let spec = |number: usize| submission(&echo_of(bytes, Some(number.to_string())));
        submit(&mut fixture, (0..jobs).map(spec).collect());
        expect_bounded(&fixture);
    }
}

/// As many artifacts as fit, with long paths.
fn artifacts() -> Vec<Artifact> {
    let path = "p".repeat(limits::PATH_BYTES_MAX);
    let artifact = |number: u32| Artifact {
        path: format!("{number}{}", &path[10..]),
        blob: BlobId::of(b""),
        bytes: u64::MAX,
        executable: true,
    };
    let mut artifacts: Vec<Artifact> = (0..limits::ARTIFACTS_MAX as u32).map(artifact).collect();
    artifacts.truncate(Artifact::fitting(&artifacts));
    artifacts
}

fn largest_result() -> Json {
    Json::of(&"r".repeat(limits::RESULT_BYTES_MAX - 2))
}

#[test]
fn results_artifacts_and_their_redaction() {
    let mut fixture = Fixture::with_runner(10);
    let job = fixture.submit(&keyed("a"));
    let attempt_ref = fixture.current(job);
    fixture.start(attempt_ref);
    let message = Some("m".repeat(limits::MESSAGE_BYTES_MAX));
    let result = Some(largest_result());
    fixture.end_with(attempt_ref, Outcome { result, message, artifacts: artifacts(), ..Outcome::of(End::Succeeded) });
    expect_bounded(&fixture);
    let redacted = Redacted {
        result: Some(largest_result()),
        spilled: None,
        artifacts: artifacts(),
        log: None,
        keep_original: true,
    };
    let scan = model::job::Scan { redacted: Some(redacted), ..*scan(OutputVerdict::Redact) };
    fixture.input(Input::Scanned { job, attempt: attempt_ref.attempt, scan: Box::new(scan) });
    assert!(fixture.records.job(job).unwrap().original.is_some());
    expect_bounded(&fixture);
}

#[test]
fn many_large_results_in_one_round() {
    let mut fixture = Fixture::with_runner(10);
    let jobs = fixture.submit_some(20);
    for job in jobs {
        let attempt_ref = fixture.current(job);
        fixture.start(attempt_ref);
        let outcome = Outcome { result: Some(largest_result()), ..Outcome::of(End::Succeeded) };
        fixture.end_with(attempt_ref, outcome);
    }
    expect_bounded(&fixture);
}

#[test]
fn workflows_with_the_largest_definition_lists_and_signals() {
    let mut fixture = Fixture::with_runner(100);
    fixture.runner(crate::support::RUNNER, room(100));
    let text = "d".repeat(workflow::limits::DEFINITION_BYTES_MAX - 64 * 1024);
    let list: Vec<String> = (0..100).map(|_| "i".repeat(limits::LIST_RESULT_BYTES_MAX / 200)).collect();
    let id = fixture.start_workflow(&format!(
        r#"
name: large
inputs: {{items: {{type: list, default: {list}}}}}
tasks:
  first: {{run: {{echo: {{value: small}}}}}}
  each: {{needs: first, for_each: "${{inputs.items}}", run: {{echo: {{value: "${{item}}"}}}}}}
  all: {{needs: each, run: {{echo: {{value: "${{length(tasks.each.result)}}"}}}}}}
  wait: {{wait_for: go}}
  constant: {{run: {{echo: {{value: "{text}"}}}}}}
outputs: ${{tasks.all.result}}
"#,
        text = &text[..1024 * 1024],
        list = serde_json::to_string(&list).unwrap(),
    ));
    let payload = "s".repeat(limits::SIGNAL_BYTES_MAX - 2);
    fixture.signal(id, "go", &json!(payload)).unwrap();
    assert_eq!(fixture.run_to_end(id), WorkflowState::Succeeded);
    expect_bounded(&fixture);
    fixture.crash();
    expect_bounded(&fixture);
}
