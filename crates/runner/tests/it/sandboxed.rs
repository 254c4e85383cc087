//! Sandboxed processes with inputs, outputs and workers.

use blobs::workers::{Function, Manifest, ManifestEntry};
use bytes::Bytes;
use model::job::End;
use model::message::ShardMessage;
use model::spec::Sandbox;
use model::verdict::Constraints;
use serde_json::{Value, json};

use crate::support::{Fixture, attempt_ref, sandboxed};

fn with(mut job: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        job[name] = value.clone();
    }
    job
}

// FEATURES: C5
#[tokio::test]
async fn inputs_are_provided_and_artifacts_are_collected() {
    let mut fixture = Fixture::with_slots().await;
    let input = fixture.blobs.put(Bytes::from_static(b"hello")).await.unwrap();
    let script =
        "cat inputs/a/name; mkdir outputs/d; tr a-z A-Z < inputs/a/name > outputs/d/x.txt; echo no > outputs/no";
    let job = with(sandboxed(script), &json!({"inputs": {"a/name": input}, "outputs": ["d/*.txt"]}));
    fixture.run(attempt_ref(1), &job);
    fixture.started(attempt_ref(1)).await;
    let outcome = fixture.ended(attempt_ref(1)).await;
    assert_eq!(outcome.end, End::Succeeded, "{outcome:?}");
    assert_eq!(outcome.result.unwrap().as_str(), "\"hello\"");
    let [artifact] = &outcome.artifacts[..] else { panic!("{:?}", outcome.artifacts) };
    assert_eq!((artifact.path.as_str(), artifact.bytes), ("d/x.txt", 5));
    let stored = fixture.blobs.materialise(artifact.blob).await.unwrap();
    assert_eq!(std::fs::read(stored.path()).unwrap(), b"HELLO");
    assert!(outcome.usage.unwrap().memory_peak_bytes > 0);
}

#[tokio::test]
async fn a_missing_input_fails_the_job_and_leaves_no_files() {
    let mut fixture = Fixture::with_slots().await;
    let missing = model::blob::BlobId::of(b"never put");
    fixture.run(attempt_ref(1), &with(sandboxed("true"), &json!({"inputs": {"x": missing}})));
    let outcome = fixture.ended(attempt_ref(1)).await;
    assert_eq!(outcome.end, End::Fatal);
    let message = outcome.message.unwrap();
    assert!(message.contains("`x`") && message.contains(&missing.to_string()), "{message}");
    fixture.commit_all().await;
    fixture.wait_until_removed().await;
}

#[tokio::test]
async fn a_symbolic_link_in_the_outputs_fails_the_job() {
    let mut fixture = Fixture::with_slots().await;
    fixture.run(attempt_ref(1), &with(sandboxed("ln -s /etc/passwd outputs/x"), &json!({"outputs": ["*"]})));
    fixture.started(attempt_ref(1)).await;
    let outcome = fixture.ended(attempt_ref(1)).await;
    assert_eq!(outcome.end, End::Fatal, "{outcome:?}");
    assert!(outcome.message.unwrap().contains("`x`") && outcome.artifacts.is_empty());
}

#[tokio::test]
async fn outputs_over_their_limit_fail_the_job() {
    let mut fixture = Fixture::with_slots().await;
    let script = "for i in 1 2 3; do head -c 600k /dev/zero > outputs/$i; done";
    let job = with(sandboxed(script), &json!({"outputs": ["*"], "limits": {"output_bytes": 1_000_000}}));
    fixture.run(attempt_ref(1), &job);
    fixture.started(attempt_ref(1)).await;
    let outcome = fixture.ended(attempt_ref(1)).await;
    assert!(matches!(outcome.end, End::Fatal | End::Error), "{outcome:?}");
    assert!(outcome.artifacts.is_empty());
}

/// The policy's constraint wins over the job's own limit.
// FEATURES: D1
#[tokio::test]
async fn artifacts_are_limited_by_the_policys_constraint() {
    let mut fixture = Fixture::with_slots().await;
    let script = "head -c 5000 /dev/zero > outputs/x";
    let job = with(sandboxed(script), &json!({"outputs": ["*"], "limits": {"output_bytes": 1_000_000}}));
    let constraints = Constraints { max_artifact_bytes: Some(4_999), ..Constraints::default() };
    fixture.run_constrained(attempt_ref(1), &job, constraints);
    fixture.started(attempt_ref(1)).await;
    let outcome = fixture.ended(attempt_ref(1)).await;
    assert!(matches!(outcome.end, End::Fatal | End::Error) && outcome.artifacts.is_empty(), "{outcome:?}");
    let constraints = Constraints { max_artifact_bytes: Some(5_000), ..Constraints::default() };
    fixture.run_constrained(attempt_ref(2), &job, constraints);
    fixture.started(attempt_ref(2)).await;
    assert_eq!(fixture.ended(attempt_ref(2)).await.artifacts.len(), 1);
}

// FEATURES: D1
#[tokio::test]
async fn a_process_gets_at_least_the_sandbox_of_the_policys_constraint() {
    let mut fixture = Fixture::with_slots().await;
    let job = json!({"run": {"process": {"command": ["sh", "-c", "printf %s \"$PWD\""]}}, "sandbox": "none"});
    for (number, constraints) in [
        Constraints { sandbox: Some(Sandbox::Standard), ..Constraints::default() },
        Constraints { network: Some(false), ..Constraints::default() },
    ]
    .into_iter()
    .enumerate()
    {
        let attempt_ref = attempt_ref(number as u64 + 1);
        fixture.run_constrained(attempt_ref, &job, constraints);
        fixture.started(attempt_ref).await;
        let outcome = fixture.ended(attempt_ref).await;
        assert_eq!(outcome.result.map(|result| result.as_str().to_owned()).as_deref(), Some("\"/job\""));
    }
}

#[tokio::test]
async fn a_missing_program_is_a_fatal_failure() {
    let mut fixture = Fixture::with_slots().await;
    fixture.run(attempt_ref(1), &json!({"run": {"process": {"command": ["no-such-program"]}}}));
    let outcome = fixture.ended(attempt_ref(1)).await;
    assert_eq!(outcome.end, End::Fatal);
    assert!(outcome.message.unwrap().contains("No such file"));
}

// FEATURES: C10
#[tokio::test]
async fn a_function_of_a_worker_runs_with_its_bundle() {
    let mut fixture = Fixture::with_slots().await;
    let script = Bytes::from_static(
        b"#!/bin/sh\necho \"$GREETING $1 $(cat \"$(dirname \"$0\")/../data\")\"\necho x >> \"$0\" && echo changed\n",
    );
    let (bytes, blob) = (script.len() as u64, fixture.blobs.put(script).await.unwrap());
    let data = fixture.blobs.put(Bytes::from_static(b"data")).await.unwrap();
    let manifest = Manifest {
        name: "greeter".to_owned(),
        version: "1".to_owned(),
        files: [
            ("bin/greet".to_owned(), ManifestEntry::File { blob, bytes, executable: true }),
            ("data".to_owned(), ManifestEntry::File { blob: data, bytes: 4, executable: false }),
        ]
        .into(),
        env: [("GREETING".to_owned(), "hello".to_owned())].into(),
        functions: vec![Function {
            name: "greet".to_owned(),
            version: "1".to_owned(),
            command: vec!["./bin/greet".to_owned()],
        }],
    };
    let worker = fixture.blobs.register(manifest).await.unwrap();
    let process = json!({"worker": worker, "function": "greet", "command": ["you"]});
    fixture.run(attempt_ref(1), &json!({"run": {"process": process}}));
    fixture.started(attempt_ref(1)).await;
    let outcome = fixture.ended(attempt_ref(1)).await;
    assert_eq!(outcome.end, End::Error, "the worker's file is read-only, so the last command fails: {outcome:?}");
    fixture.run(attempt_ref(2), &json!({"run": {"process": {"worker": worker, "function": "nothing", "command": []}}}));
    let outcome = fixture.ended(attempt_ref(2)).await;
    assert_eq!(outcome.end, End::Fatal);
    assert!(outcome.message.unwrap().contains("it has: greet"));
}

#[tokio::test]
async fn a_stopped_job_leaves_no_files() {
    let mut fixture = Fixture::with_slots().await;
    fixture
        .run(attempt_ref(1), &with(sandboxed("mkdir -m 0 outputs/d; echo up; sleep 1000"), &json!({"outputs": ["*"]})));
    fixture.started(attempt_ref(1)).await;
    fixture.send(ShardMessage::Stop { attempt_ref: attempt_ref(1) });
    fixture.stopped(attempt_ref(1)).await;
    fixture.commit_all().await;
    fixture.wait_until_removed().await;
}
