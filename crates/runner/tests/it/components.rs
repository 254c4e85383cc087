//! WebAssembly components as jobs.

use model::blob::BlobId;
use model::job::End;
use model::message::{Capacity, ToRunner};
use serde_json::{Value, json};

use crate::common::{Bench, ticket};

/// A component whose `wasi:cli/run` does what `body` says (instructions that leave 0 or 1).
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

async fn bench() -> Bench {
    Bench::new(Capacity { process: 1, echo: 1, wasm: 2 }).await
}

async fn put(bench: &Bench, body: &str) -> BlobId {
    bench.blobs.put(component(body).into()).await.unwrap()
}

fn wasm(component: BlobId) -> Value {
    json!({"run": {"wasm": {"component": component}}})
}

#[tokio::test]
async fn a_component_succeeds_or_fails_by_its_own_word() {
    let mut bench = bench().await;
    let (fine, bad) = (put(&bench, "i32.const 0").await, put(&bench, "i32.const 1").await);
    // The second time it is prepared already.
    for job in [1, 2] {
        bench.run(ticket(job), &wasm(fine));
        bench.started(ticket(job)).await;
        let outcome = bench.ended(ticket(job)).await;
        assert_eq!((outcome.end, outcome.exit_code), (End::Succeeded, Some(0)), "{outcome:?}");
    }
    bench.run(ticket(3), &wasm(bad));
    bench.started(ticket(3)).await;
    assert_eq!(bench.ended(ticket(3)).await.exit_code, Some(1));
}

// FEATURES: E1
#[tokio::test]
async fn a_trap_is_the_jobs_failure_with_its_text() {
    let mut bench = bench().await;
    let trapping = put(&bench, "unreachable").await;
    bench.run(ticket(1), &wasm(trapping));
    bench.started(ticket(1)).await;
    let outcome = bench.ended(ticket(1)).await;
    assert_eq!(outcome.end, End::Error);
    assert!(outcome.message.unwrap().contains("unreachable"));
}

// FEATURES: E1
#[tokio::test]
async fn an_endless_component_is_stopped_by_order_and_by_fuel() {
    let mut bench = bench().await;
    let endless = put(&bench, "(loop (br 0)) i32.const 0").await;
    bench.run(ticket(1), &wasm(endless));
    bench.started(ticket(1)).await;
    bench.tell(ToRunner::Stop { ticket: ticket(1) });
    bench.stopped(ticket(1)).await;
    let mut job = wasm(endless);
    job["limits"] = json!({"fuel": 100_000});
    bench.run(ticket(2), &job);
    bench.started(ticket(2)).await;
    let outcome = bench.ended(ticket(2)).await;
    assert!(outcome.message.as_ref().is_some_and(|text| text.contains("fuel")), "{outcome:?}");
}

#[tokio::test]
async fn what_is_no_component_is_told_and_not_tried_again() {
    let mut bench = bench().await;
    let garbage = bench.blobs.put(bytes::Bytes::from_static(b"not wasm")).await.unwrap();
    for (job, blob) in [(1, garbage), (2, BlobId::of(b"never put"))] {
        bench.run(ticket(job), &wasm(blob));
        bench.started(ticket(job)).await;
        let outcome = bench.ended(ticket(job)).await;
        assert_eq!(outcome.end, End::Fatal, "{outcome:?}");
    }
}
