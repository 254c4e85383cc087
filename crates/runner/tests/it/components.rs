//! WebAssembly components as jobs.

use model::blob::BlobId;
use model::job::End;
use model::message::{Capacity, ShardMessage};
use serde_json::{Value, json};

use crate::support::{Fixture, attempt_ref};

/// Component whose `wasi:cli/run` executes `body` (instructions that leave 0 or 1).
fn component(body: &str) -> Vec<u8> {
    let text = format!(
        r#"(component
            (core module $m (func (export "run") (result i32) {body}))
            (core instance $i (instantiate $m))
            (func $run (result (result)) (canon lift (core func $i "run")))
            (instance (export "wasi:cli/run@0.2.0") (export "run" (func $run))))"#
    );
    wat::parse_str(text).unwrap()
}

async fn fixture() -> Fixture {
    Fixture::new(Capacity { process: 1, echo: 1, wasm: 2 }).await
}

async fn put(fixture: &Fixture, body: &str) -> BlobId {
    fixture.blobs.put(component(body).into()).await.unwrap()
}

fn wasm(component: BlobId) -> Value {
    json!({"run": {"wasm": {"component": component}}})
}

#[tokio::test]
async fn a_component_succeeds_or_fails_by_its_result() {
    let mut fixture = fixture().await;
    let (fine, bad) = (put(&fixture, "i32.const 0").await, put(&fixture, "i32.const 1").await);
    // The second run finds the component compiled.
    for job in [1, 2] {
        fixture.run(attempt_ref(job), &wasm(fine));
        fixture.started(attempt_ref(job)).await;
        let outcome = fixture.ended(attempt_ref(job)).await;
        assert_eq!((outcome.end, outcome.exit_code), (End::Succeeded, Some(0)), "{outcome:?}");
    }
    fixture.run(attempt_ref(3), &wasm(bad));
    fixture.started(attempt_ref(3)).await;
    assert_eq!(fixture.ended(attempt_ref(3)).await.exit_code, Some(1));
}

// FEATURES: E1
#[tokio::test]
async fn a_trap_fails_the_job_with_its_message() {
    let mut fixture = fixture().await;
    let trapping = put(&fixture, "unreachable").await;
    fixture.run(attempt_ref(1), &wasm(trapping));
    fixture.started(attempt_ref(1)).await;
    let outcome = fixture.ended(attempt_ref(1)).await;
    assert_eq!(outcome.end, End::Error);
    assert!(outcome.message.unwrap().contains("unreachable"));
}

// FEATURES: E1
#[tokio::test]
async fn an_endless_component_is_stopped_by_a_stop_and_by_its_fuel_limit() {
    let mut fixture = fixture().await;
    let endless = put(&fixture, "(loop (br 0)) i32.const 0").await;
    fixture.run(attempt_ref(1), &wasm(endless));
    fixture.started(attempt_ref(1)).await;
    fixture.send(ShardMessage::Stop { attempt_ref: attempt_ref(1) });
    fixture.stopped(attempt_ref(1)).await;
    let mut job = wasm(endless);
    job["limits"] = json!({"fuel": 100_000});
    fixture.run(attempt_ref(2), &job);
    fixture.started(attempt_ref(2)).await;
    let outcome = fixture.ended(attempt_ref(2)).await;
    assert!(outcome.message.as_ref().is_some_and(|text| text.contains("fuel")), "{outcome:?}");
}

#[tokio::test]
async fn an_invalid_or_missing_component_is_a_fatal_failure() {
    let mut fixture = fixture().await;
    let garbage = fixture.blobs.put(bytes::Bytes::from_static(b"not wasm")).await.unwrap();
    for (job, blob) in [(1, garbage), (2, BlobId::of(b"never put"))] {
        fixture.run(attempt_ref(job), &wasm(blob));
        let outcome = fixture.ended(attempt_ref(job)).await;
        assert_eq!(outcome.end, End::Fatal, "{outcome:?}");
    }
}
