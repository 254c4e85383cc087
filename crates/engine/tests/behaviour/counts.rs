//! Counters for operators.

use engine::{
    DURATION_BOUNDS, FailMode, Input, OUTPUT_VERDICTS, OutputRules, PolicyMode, Settings, Topic, TopicCounts,
    UNPLACED_REASONS, VERDICTS,
};
use model::id::Attempt;
use model::job::End;
use model::reason::ReasonCode;
use model::spec::JobSpec;
use model::state::State;
use model::time::Millis;
use model::verdict::{Constraints, OutputVerdict, Verdict};

use crate::support::{Fixture, POLICY, RUNNER, SECOND, config_of, echo, job, room, scan};

fn about(topic: &str) -> JobSpec {
    job(|spec| spec.topic = topic.to_owned())
}

fn counts(shard: &Fixture, topic: &str) -> TopicCounts {
    shard.shard.topics().iter().find(|(name, _)| *name == topic).map(|(_, counts)| *counts).unwrap_or_default()
}

fn ended(shard: &Fixture, topic: &str, state: State) -> u64 {
    counts(shard, topic).ended[usize::from(state.code())]
}

fn in_state(shard: &Fixture, state: State) -> u64 {
    shard.shard.stats().states[usize::from(state.code())]
}

// FEATURES: D15
#[test]
fn a_job_is_counted_under_its_topic_at_submit_dispatch_and_end() {
    let mut shard = Fixture::with_runner(1);
    let [first, second] = ["mail", "print"].map(|topic| shard.submit(&about(topic)));
    shard.advance(3 * SECOND);
    shard.run_attempt(first, End::Succeeded);
    shard.run_attempt(second, End::Fatal);
    for (topic, state, waited) in [("mail", State::Succeeded, Millis(1)), ("print", State::Failed, Millis(5_000))] {
        let counts = counts(&shard, topic);
        assert_eq!((counts.received, counts.dispatched, ended(&shard, topic, state)), (1, 1, 1), "{topic}");
        let place = DURATION_BOUNDS.iter().position(|bound| *bound == waited).unwrap();
        assert_eq!(counts.waits.counts[place], 1, "{topic}: {:?}", counts.waits);
    }
    assert_eq!(shard.shard.stats().durations.counts.iter().sum::<u64>(), 2);
    assert!(shard.shard.stats().durations.sum >= Millis(6 * SECOND), "both took at least three seconds");
}

// FEATURES: D15
#[test]
fn restored_jobs_are_counted_under_their_topic() {
    let mut shard = Fixture::with_runner(1);
    let [running, waiting] = ["mail", "print"].map(|topic| shard.submit(&about(topic)));
    shard.crash();
    assert_eq!((in_state(&shard, State::Dispatched), in_state(&shard, State::Scheduled)), (1, 1));
    shard.run_attempt(running, End::Succeeded);
    shard.run_attempt(waiting, End::Succeeded);
    assert_eq!((ended(&shard, "mail", State::Succeeded), ended(&shard, "print", State::Succeeded)), (1, 1));
    assert_eq!(counts(&shard, "mail").received, 0, "it was received before the crash");
    assert_eq!(shard.shard.stats().states, [0; State::ALL.len()]);
}

// FEATURES: D15
#[test]
fn every_decision_is_counted_by_its_verdict() {
    let verdicts = [
        Verdict::Allow,
        Verdict::AllowWith(Constraints::default()),
        Verdict::RequireApproval,
        Verdict::Deny,
        Verdict::Throttle(Millis(1_000)),
    ];
    let settings = Settings { policy: PolicyMode::Enforced(POLICY), ..Settings::default() };
    let mut shard = Fixture::governed(config_of(0, 1), settings);
    for (index, verdict) in verdicts.into_iter().enumerate() {
        let id = shard.submit(&echo());
        let name = verdict.as_str();
        shard.verdict(id, verdict);
        assert_eq!(VERDICTS[index], name);
        assert_eq!(shard.shard.stats().decided.map(|count| count as usize)[index], 1, "{name}");
    }
    assert_eq!(shard.shard.stats().decided, [1; 5]);
    assert_eq!(in_state(&shard, State::ApprovalRequired), 1);
}

fn scanning(fail_mode: FailMode) -> Fixture {
    let output = OutputRules { scan: true, hold_until_scanned: true, fail_mode };
    let settings = Settings { other_topics: Some(Topic { output, ..Topic::default() }), ..Settings::default() };
    let mut shard = Fixture::governed(config_of(0, 1), settings);
    shard.runner(RUNNER, room(10));
    shard
}

// FEATURES: D15
#[test]
fn every_decision_about_a_result_is_counted_by_its_verdict() {
    let mut shard = scanning(FailMode::Closed);
    for verdict in OUTPUT_VERDICTS {
        let id = shard.submit(&echo());
        shard.run_attempt(id, End::Succeeded);
        shard.input(Input::Scanned { job: id, attempt: Attempt(1), scan: scan(verdict) });
    }
    let stats = shard.shard.stats();
    assert_eq!((stats.outputs, stats.outputs_skipped), ([1; 4], 0));
    assert_eq!(OUTPUT_VERDICTS[1], OutputVerdict::Quarantine, "the index matches the verdict");
}

// FEATURES: D15
#[test]
fn a_result_released_without_a_scan_is_counted_as_skipped() {
    for (fail_mode, skipped) in [(FailMode::Open, 1), (FailMode::Closed, 0)] {
        let mut shard = scanning(fail_mode);
        let id = shard.submit(&echo());
        shard.run_attempt(id, End::Succeeded);
        shard.input(Input::ScanFailed { job: id, attempt: Attempt(1), message: "no time".to_owned() });
        let stats = shard.shard.stats();
        assert_eq!((stats.scans_failed, stats.outputs_skipped, stats.outputs), (1, skipped, [0; 4]));
    }
}

// FEATURES: D15
#[test]
fn failed_placement_tries_are_counted_by_reason() {
    let mut shard = Fixture::new();
    shard.submit(&echo());
    shard.advance(60 * SECOND);
    let stats = shard.shard.stats();
    let no_workers = UNPLACED_REASONS.iter().position(|reason| *reason == ReasonCode::NoWorkers).unwrap();
    assert!(stats.unplaced > 0);
    assert_eq!(stats.unplaced_by[no_workers], stats.unplaced);
    assert_eq!(shard.shard.connected_runners(), 0);
    shard.runner(RUNNER, room(1));
    assert_eq!(shard.shard.connected_runners(), 1);
}
