//! Processes in their sandbox, with files in and out.

use blobs::workers::{Entry, Function, Manifest};
use bytes::Bytes;
use model::job::End;
use model::message::ToRunner;
use model::spec::Sandbox;
use model::verdict::Constraints;
use serde_json::{Value, json};

use crate::common::{Bench, sandboxed, ticket};

fn with(mut job: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        job[name] = value.clone();
    }
    job
}

// FEATURES: C5
#[tokio::test]
async fn files_go_in_and_come_out() {
    let mut bench = Bench::roomy().await;
    let input = bench.blobs.put(Bytes::from_static(b"hello")).await.unwrap();
    let script =
        "cat inputs/a/name; mkdir outputs/d; tr a-z A-Z < inputs/a/name > outputs/d/x.txt; echo no > outputs/no";
    let job = with(sandboxed(script), &json!({"inputs": {"a/name": input}, "outputs": ["d/*.txt"]}));
    bench.run(ticket(1), &job);
    bench.started(ticket(1)).await;
    let outcome = bench.ended(ticket(1)).await;
    assert_eq!(outcome.end, End::Succeeded, "{outcome:?}");
    assert_eq!(outcome.result.unwrap().as_str(), "\"hello\"");
    let [artifact] = &outcome.artifacts[..] else { panic!("{:?}", outcome.artifacts) };
    assert_eq!((artifact.path.as_str(), artifact.bytes), ("d/x.txt", 5));
    let kept = bench.blobs.materialise(artifact.blob).await.unwrap();
    assert_eq!(std::fs::read(kept.path()).unwrap(), b"HELLO");
    assert!(outcome.usage.unwrap().memory_peak_bytes > 0);
}

#[tokio::test]
async fn a_missing_input_is_told_and_leaves_nothing_behind() {
    let mut bench = Bench::roomy().await;
    let missing = model::blob::BlobId::of(b"never put");
    bench.run(ticket(1), &with(sandboxed("true"), &json!({"inputs": {"x": missing}})));
    bench.started(ticket(1)).await;
    let outcome = bench.ended(ticket(1)).await;
    assert_eq!(outcome.end, End::Fatal);
    let message = outcome.message.unwrap();
    assert!(message.contains("`x`") && message.contains(&missing.to_string()), "{message}");
    bench.settle().await;
    bench.nothing_left().await;
}

#[tokio::test]
async fn a_link_among_the_outputs_fails_the_job_and_shows_nothing_of_the_host() {
    let mut bench = Bench::roomy().await;
    bench.run(ticket(1), &with(sandboxed("ln -s /etc/passwd outputs/x"), &json!({"outputs": ["*"]})));
    bench.started(ticket(1)).await;
    let outcome = bench.ended(ticket(1)).await;
    assert_eq!(outcome.end, End::Fatal, "{outcome:?}");
    assert!(outcome.message.unwrap().contains("`x`") && outcome.artifacts.is_empty());
}

#[tokio::test]
async fn too_much_output_fails_the_job() {
    let mut bench = Bench::roomy().await;
    let script = "for i in 1 2 3; do head -c 600k /dev/zero > outputs/$i; done";
    let job = with(sandboxed(script), &json!({"outputs": ["*"], "limits": {"output_bytes": 1_000_000}}));
    bench.run(ticket(1), &job);
    bench.started(ticket(1)).await;
    let outcome = bench.ended(ticket(1)).await;
    assert!(matches!(outcome.end, End::Fatal | End::Error), "{outcome:?}");
    assert!(outcome.artifacts.is_empty());
}

/// The policy's word counts, whatever the job asked for.
// FEATURES: D1
#[tokio::test]
async fn no_more_files_are_kept_than_the_policy_allows() {
    let mut bench = Bench::roomy().await;
    let script = "head -c 5000 /dev/zero > outputs/x";
    let job = with(sandboxed(script), &json!({"outputs": ["*"], "limits": {"output_bytes": 1_000_000}}));
    let constraints = Constraints { max_artifact_bytes: Some(4_999), ..Constraints::default() };
    bench.run_constrained(ticket(1), &job, constraints);
    bench.started(ticket(1)).await;
    let outcome = bench.ended(ticket(1)).await;
    assert!(matches!(outcome.end, End::Fatal | End::Error) && outcome.artifacts.is_empty(), "{outcome:?}");
    let constraints = Constraints { max_artifact_bytes: Some(5_000), ..Constraints::default() };
    bench.run_constrained(ticket(2), &job, constraints);
    bench.started(ticket(2)).await;
    assert_eq!(bench.ended(ticket(2)).await.artifacts.len(), 1);
}

// FEATURES: D1
#[tokio::test]
async fn a_process_gets_at_least_the_sandbox_that_the_policy_wants() {
    let mut bench = Bench::roomy().await;
    let job = json!({"run": {"process": {"command": ["sh", "-c", "printf %s \"$PWD\""]}}, "sandbox": "none"});
    for (number, constraints) in [
        Constraints { sandbox: Some(Sandbox::Standard), ..Constraints::default() },
        Constraints { network: Some(false), ..Constraints::default() },
    ]
    .into_iter()
    .enumerate()
    {
        let ticket = ticket(number as u64 + 1);
        bench.run_constrained(ticket, &job, constraints);
        bench.started(ticket).await;
        let outcome = bench.ended(ticket).await;
        assert_eq!(outcome.result.map(|result| result.as_str().to_owned()).as_deref(), Some("\"/job\""));
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_not_tried_again() {
    let mut bench = Bench::roomy().await;
    bench.run(ticket(1), &json!({"run": {"process": {"command": ["no-such-program"]}}}));
    bench.started(ticket(1)).await;
    let outcome = bench.ended(ticket(1)).await;
    assert_eq!(outcome.end, End::Fatal);
    assert!(outcome.message.unwrap().contains("No such file"));
}

// FEATURES: C10
#[tokio::test]
async fn a_function_of_a_worker_runs_with_its_bundle() {
    let mut bench = Bench::roomy().await;
    let script = Bytes::from_static(
        b"#!/bin/sh\necho \"$GREETING $1 $(cat \"$(dirname \"$0\")/../data\")\"\necho x >> \"$0\" && echo changed\n",
    );
    let (bytes, blob) = (script.len() as u64, bench.blobs.put(script).await.unwrap());
    let data = bench.blobs.put(Bytes::from_static(b"data")).await.unwrap();
    let manifest = Manifest {
        name: "greeter".to_owned(),
        version: "1".to_owned(),
        files: [
            ("bin/greet".to_owned(), Entry::File { blob, bytes, executable: true }),
            ("data".to_owned(), Entry::File { blob: data, bytes: 4, executable: false }),
        ]
        .into(),
        env: [("GREETING".to_owned(), "hello".to_owned())].into(),
        functions: vec![Function {
            name: "greet".to_owned(),
            version: "1".to_owned(),
            command: vec!["./bin/greet".to_owned()],
        }],
    };
    let worker = bench.blobs.register(manifest).await.unwrap();
    let process = json!({"worker": worker, "function": "greet", "command": ["you"]});
    bench.run(ticket(1), &json!({"run": {"process": process}}));
    bench.started(ticket(1)).await;
    let outcome = bench.ended(ticket(1)).await;
    assert_eq!(outcome.end, End::Error, "its own file is read-only, so the last command fails: {outcome:?}");
    bench.run(ticket(2), &json!({"run": {"process": {"worker": worker, "function": "nothing", "command": []}}}));
    bench.started(ticket(2)).await;
    let outcome = bench.ended(ticket(2)).await;
    assert_eq!(outcome.end, End::Fatal);
    assert!(outcome.message.unwrap().contains("it has: greet"));
}

#[tokio::test]
async fn nothing_is_left_of_a_job_that_was_stopped() {
    let mut bench = Bench::roomy().await;
    bench.run(ticket(1), &with(sandboxed("mkdir -m 0 outputs/d; echo up; sleep 1000"), &json!({"outputs": ["*"]})));
    bench.started(ticket(1)).await;
    bench.tell(ToRunner::Stop { ticket: ticket(1) });
    bench.stopped(ticket(1)).await;
    bench.settle().await;
    bench.nothing_left().await;
}
