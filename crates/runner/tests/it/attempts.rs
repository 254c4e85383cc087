//! Attempts: stopped on request, all of them when the runner stops, and nothing left of them.

use std::time::Duration;

use model::job::End;
use model::message::{Capacity, RunnerWord, ToRunner};
use runner::Departure;
use runner::logs::{Reader, Stream};
use serde_json::json;

use crate::common::{Bench, echo, endless, shell, ticket};

#[tokio::test]
async fn a_stop_of_what_is_unknown_is_confirmed_and_keeps_it_from_running() {
    let mut bench = Bench::roomy().await;
    bench.tell(ToRunner::Stop { ticket: ticket(1) });
    bench.stopped(ticket(1)).await;
    // The order to run it comes late: the order to stop it counts.
    bench.run(ticket(1), &echo());
    bench.tell(ToRunner::Stop { ticket: ticket(1) });
    let (repeated, _) = bench.inventory().await;
    assert_eq!(repeated.len(), 2, "the hello and one end: {repeated:?}");
}

#[tokio::test]
async fn a_stop_ends_an_attempt_once() {
    let mut bench = Bench::roomy().await;
    for (job, run) in [(1, endless()), (2, shell("exec sleep 600"))] {
        bench.run(ticket(job), &run);
        bench.started(ticket(job)).await;
        for _ in 0..3 {
            bench.tell(ToRunner::Stop { ticket: ticket(job) });
        }
        bench.stopped(ticket(job)).await;
        assert_eq!(bench.settle().await, []);
    }
}

#[tokio::test]
async fn an_echo_ends_after_its_delay_whatever_comes_before_it() {
    let mut bench = Bench::roomy().await;
    bench.run(ticket(1), &endless());
    bench.started(ticket(1)).await;
    for (job, delay_ms) in [(2, 60), (3, 20)] {
        bench.run(ticket(job), &json!({"run": {"echo": {"value": job, "delay_ms": delay_ms}}}));
        bench.started(ticket(job)).await;
    }
    for job in [3, 2] {
        let outcome = bench.ended(ticket(job)).await;
        assert_eq!((outcome.end, outcome.result.unwrap().as_str()), (End::Succeeded, job.to_string().as_str()));
    }
}

#[tokio::test]
async fn a_program_is_judged_by_its_end_and_its_output_is_kept() {
    let mut bench = Bench::roomy().await;
    bench.run(ticket(1), &shell("echo out; echo err >&2; exit 5"));
    bench.started(ticket(1)).await;
    let outcome = bench.ended(ticket(1)).await;
    assert_eq!((outcome.end, outcome.exit_code, outcome.signal), (End::Error, Some(5), None));
    let mut reader = Reader::open(&bench.log(ticket(1))).unwrap().unwrap();
    let mut pieces = Vec::new();
    while let Some(piece) = reader.next().unwrap() {
        pieces.push((piece.stream, piece.bytes));
    }
    pieces.sort_by_key(|(stream, _)| *stream == Stream::Stderr);
    assert_eq!(pieces, [(Stream::Stdout, "out\n".into()), (Stream::Stderr, "err\n".into())]);
    assert!(outcome.log.is_some(), "and kept as a blob");
    let scratch = bench.directory.path().join("scratch");
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 1, "nothing goes before its end is safe");
    bench.settle().await;
    while std::fs::read_dir(&scratch).unwrap().count() > 0 || bench.log(ticket(1)).exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_program_that_needs_its_grace_gets_it() {
    let mut bench = Bench::roomy().await;
    bench.run(ticket(1), &shell("trap 'echo cleaned up; exit 0' TERM; echo ready; while :; do sleep 0.01; done"));
    bench.started(ticket(1)).await;
    let log = bench.log(ticket(1));
    let said = || -> String {
        let Some(mut reader) = Reader::open(&log).unwrap() else {
            return String::new();
        };
        let pieces = std::iter::from_fn(|| reader.next().unwrap()).filter(|piece| piece.stream == Stream::Stdout);
        pieces.map(|piece| String::from_utf8_lossy(&piece.bytes).into_owned()).collect()
    };
    while said() != "ready\n" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bench.tell(ToRunner::Stop { ticket: ticket(1) });
    bench.stopped(ticket(1)).await;
    assert_eq!(said(), "ready\ncleaned up\n");
}

#[tokio::test]
async fn a_runner_that_stops_gives_everything_back_and_takes_nothing_more() {
    let mut bench = Bench::roomy().await;
    let runs = [(1, endless()), (2, shell("exec sleep 600")), (3, shell("trap '' TERM; while :; do sleep 0.01; done"))];
    for (job, run) in &runs {
        bench.run(ticket(*job), run);
        bench.started(ticket(*job)).await;
    }
    bench.runner.stop(Departure::EndProcesses).await;
    bench.run(ticket(4), &echo());
    let mut stopped = Vec::new();
    while stopped.len() < 4 {
        let (_, said) = bench.any_word().await;
        match said.word {
            RunnerWord::Here { capacity, .. } => assert_eq!(capacity, Capacity::default(), "it says that it is closed"),
            RunnerWord::Ended { ticket, outcome, .. } => {
                assert_eq!(outcome.end, End::Stopped);
                stopped.push(ticket);
            }
            RunnerWord::Started { ticket, .. } => panic!("{ticket:?} was started"),
        }
    }
    stopped.sort_unstable();
    assert_eq!(stopped, [ticket(1), ticket(2), ticket(3), ticket(4)]);
    assert_eq!(bench.settle().await, []);
}
