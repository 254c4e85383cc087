//! Output policy: metadata check and content scan.

use engine::{Answer, FailMode, Input, OutputRules, Refusal, Settings, Topic};
use model::audit::Action;
use model::batch::Keyspace;
use model::id::{Attempt, JobId};
use model::job::{End, Outcome, Redacted, Scan};
use model::json::Json;
use model::reason::ReasonCode;
use model::state::State;
use model::verdict::{OutputVerdict, Phase};

use crate::support::{Fixture, RUNNER, SECOND, config_of, echo, room, scan};

fn scanning(hold_until_scanned: bool, fail_mode: FailMode) -> Fixture {
    let output = OutputRules { scan: true, hold_until_scanned, fail_mode };
    let settings = Settings { other_topics: Some(Topic { output, ..Topic::default() }), ..Settings::default() };
    let mut shard = Fixture::governed(config_of(0, 1), settings);
    shard.runner(RUNNER, room(4));
    shard
}

fn scanned(shard: &mut Fixture, job: JobId, verdict: OutputVerdict) {
    shard.input(Input::Scanned { job, attempt: Attempt(1), scan: scan(verdict) });
}

fn redaction(keep_original: bool) -> Box<Scan> {
    let result = Some(Json::of(&"[redacted]"));
    let redacted = Redacted { result, spilled: None, artifacts: Vec::new(), log: None, keep_original };
    Box::new(Scan { redacted: Some(redacted), ..*scan(OutputVerdict::Redact) })
}

/// A job whose runner reported success.
fn done(shard: &mut Fixture) -> JobId {
    let id = shard.submit(&echo());
    shard.run_attempt(id, End::Succeeded);
    id
}

// FEATURES: D3
#[test]
fn a_result_is_shown_and_then_scanned() {
    let mut shard = scanning(false, FailMode::Open);
    let id = done(&mut shard);
    assert_eq!((shard.state(id), shard.scans.as_slice()), (State::Succeeded, &[id][..]));
    scanned(&mut shard, id, OutputVerdict::Allow);
    assert_eq!(shard.state(id), State::Succeeded);
    assert_eq!(shard.records.table(Keyspace::Scans).count(), 0);
    let bad = done(&mut shard);
    scanned(&mut shard, bad, OutputVerdict::Quarantine);
    assert_eq!(shard.state(bad), State::Quarantined);
    assert_eq!(shard.records.dead_letter(bad).unwrap().reason, Some(ReasonCode::OutputQuarantined));
}

// FEATURES: D3
#[test]
fn a_topic_can_withhold_results_until_they_are_scanned() {
    for (verdict, state) in [
        (OutputVerdict::Allow, State::Succeeded),
        (OutputVerdict::Quarantine, State::Quarantined),
        (OutputVerdict::Deny, State::Quarantined),
    ] {
        let mut shard = scanning(true, FailMode::Open);
        let id = done(&mut shard);
        assert_eq!((shard.state(id), shard.scans.as_slice()), (State::Scanning, &[id][..]));
        scanned(&mut shard, id, verdict);
        assert_eq!(shard.state(id), state);
    }
}

#[test]
fn a_scan_lost_in_a_crash_is_requested_again() {
    for hold in [false, true] {
        let mut shard = scanning(hold, FailMode::Open);
        let id = done(&mut shard);
        shard.crash();
        assert_eq!(shard.scans, [id, id], "held: {hold}");
        shard.advance(121 * SECOND);
        assert_eq!(shard.scans, [id, id, id], "without an answer, held: {hold}");
        scanned(&mut shard, id, OutputVerdict::Deny);
        assert_eq!(shard.state(id), State::Quarantined);
        shard.crash();
        shard.advance(121 * SECOND);
        assert_eq!(shard.scans.len(), 3, "an answered scan is not requested again");
    }
}

// FEATURES: D3
#[test]
fn a_topics_fail_mode_decides_about_results_that_cannot_be_scanned() {
    for hold in [false, true] {
        for (mode, state, action) in [
            (FailMode::Open, State::Succeeded, Action::OutputUnchecked),
            (FailMode::Closed, State::Quarantined, Action::OutputQuarantined),
        ] {
            let mut shard = scanning(hold, mode);
            let id = done(&mut shard);
            shard.input(Input::ScanFailed { job: id, attempt: Attempt(1), message: "the disk is away".to_owned() });
            assert_eq!(shard.state(id), state, "held: {hold}");
            assert_eq!(shard.records.audit().last().map(|entry| entry.action), Some(action));
            if state == State::Quarantined {
                assert_eq!(shard.job(id).reason.unwrap().code, ReasonCode::OutputUnchecked);
            }
            assert_eq!(shard.records.table(Keyspace::Scans).count(), 0);
        }
    }
}

/// The metadata check decides before the result is shown.
#[test]
fn a_result_quarantined_by_its_metadata_is_never_shown() {
    let mut shard = scanning(false, FailMode::Open);
    let id = shard.submit(&echo());
    shard.start(shard.current(id));
    let mut known = scan(OutputVerdict::Deny).decision;
    known.phase = Phase::Metadata;
    let outcome = Outcome { policy: Some(Box::new(known)), ..Outcome::of(End::Succeeded) };
    shard.end_with(shard.current(id), outcome);
    assert_eq!((shard.state(id), shard.scans.len()), (State::Quarantined, 0));
    assert!(shard.job(id).states.iter().all(|entry| entry.state != State::Succeeded));
}

// FEATURES: D3
#[test]
fn a_redacted_copy_takes_the_place_of_the_result() {
    for hold in [false, true] {
        for keep in [false, true] {
            let mut shard = scanning(hold, FailMode::Open);
            let id = done(&mut shard);
            let original = shard.job(id).result;
            shard.input(Input::Scanned { job: id, attempt: Attempt(1), scan: redaction(keep) });
            let job = shard.job(id);
            assert_eq!((job.state, job.result), (State::Succeeded, Some(Json::of(&"[redacted]"))));
            assert_eq!(job.original.map(|kept| kept.result), keep.then_some(original));
            let read = shard.request(|request| Input::ReadOriginal { request, job: id, by: Some("eve".into()) });
            assert_eq!(matches!(read, Answer::Job(_)), keep);
            let seen = shard.records.audit().iter().any(|entry| entry.action == Action::OriginalRead);
            assert_eq!(seen, keep, "access to the original is in the audit log");
        }
    }
}

#[test]
fn a_result_that_cannot_be_redacted_is_quarantined() {
    let mut shard = scanning(true, FailMode::Open);
    let id = done(&mut shard);
    scanned(&mut shard, id, OutputVerdict::Redact);
    assert_eq!(shard.state(id), State::Quarantined);
}

#[test]
fn an_operator_releases_a_quarantined_result() {
    let mut shard = scanning(true, FailMode::Open);
    let id = done(&mut shard);
    scanned(&mut shard, id, OutputVerdict::Quarantine);
    assert!(shard.records.dead_letter(id).is_some());
    let released = shard.request(|request| Input::Release { request, job: id, by: Some("ada".into()) });
    assert!(matches!(released, Answer::Job(job) if job.state == State::Succeeded));
    assert!(shard.records.dead_letter(id).is_none());
    let last = shard.records.audit().pop().unwrap();
    assert_eq!((last.action, last.by.as_deref(), last.job), (Action::Released, Some("ada"), Some(id)));
    let again = shard.request(|request| Input::Release { request, job: id, by: None });
    assert!(matches!(again, Answer::Refused(Refusal::WrongState { state: State::Succeeded, .. })));
}

#[test]
fn a_removed_job_is_not_scanned() {
    let mut shard = scanning(false, FailMode::Open);
    let id = done(&mut shard);
    shard.exact_counters = false;
    shard.request(|request| Input::Remove { request, job: id, by: None });
    assert_eq!(shard.records.table(Keyspace::Scans).count(), 0);
    scanned(&mut shard, id, OutputVerdict::Deny);
    shard.crash();
    assert_eq!(shard.scans, [id]);
}

/// Duplicate answers, and answers about earlier attempts, are ignored.
#[test]
fn only_the_first_scan_of_an_attempts_result_counts() {
    let mut shard = scanning(false, FailMode::Open);
    let id = done(&mut shard);
    let original = shard.job(id).result;
    for keep in [true, false] {
        shard.input(Input::Scanned { job: id, attempt: Attempt(1), scan: redaction(keep) });
        assert_eq!(
            shard.job(id).original.and_then(|kept| kept.result),
            original,
            "the second answer does not delete the original"
        );
    }
    assert_eq!(shard.job(id).output_decisions().len(), 1);
    let id = shard.submit(&echo());
    shard.run_attempt(id, End::Fatal);
    shard.retry(id).unwrap();
    shard.run_attempt(id, End::Succeeded);
    shard.input(Input::Scanned { job: id, attempt: Attempt(1), scan: redaction(false) });
    assert_eq!(shard.job(id).output_decisions().len(), 0);
    shard.crash();
    assert_eq!(shard.scans.last(), Some(&id), "the scan of the current attempt is still awaited");
}

/// After a failed scan a later scan counts.
#[test]
fn a_late_scan_replaces_a_failed_one() {
    let mut shard = scanning(false, FailMode::Open);
    let id = done(&mut shard);
    for _ in 0..2 {
        shard.input(Input::ScanFailed { job: id, attempt: Attempt(1), message: "it took too long".to_owned() });
    }
    assert_eq!((shard.state(id), shard.job(id).output_decisions().len()), (State::Succeeded, 1));
    scanned(&mut shard, id, OutputVerdict::Quarantine);
    assert_eq!(shard.state(id), State::Quarantined);
}

#[test]
fn a_result_to_redact_is_not_shown_when_its_scan_fails() {
    let mut shard = scanning(false, FailMode::Open);
    let id = shard.submit(&echo());
    shard.start(shard.current(id));
    let mut known = scan(OutputVerdict::Redact).decision;
    known.phase = Phase::Metadata;
    let outcome = Outcome { policy: Some(Box::new(known)), ..Outcome::of(End::Succeeded) };
    shard.end_with(shard.current(id), outcome);
    assert_eq!(shard.state(id), State::Scanning);
    shard.input(Input::ScanFailed { job: id, attempt: Attempt(1), message: "no".to_owned() });
    assert_eq!(shard.state(id), State::Quarantined);
}
