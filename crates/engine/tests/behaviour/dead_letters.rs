//! Dead letters and the audit log: written in the commit they describe.

use engine::{Answer, Input, PolicyMode, Refusal, Settings};
use model::audit::Action;
use model::job::End;
use model::reason::ReasonCode;
use model::state::State;
use model::time::Millis;
use model::verdict::Verdict;

use crate::support::{DAY, Fixture, POLICY, RUNNER, config_of, echo, job, room};

fn gated() -> Fixture {
    let settings = Settings { policy: PolicyMode::Enforced(POLICY), ..Settings::default() };
    let mut shard = Fixture::governed(config_of(0, 1), settings);
    shard.runner(RUNNER, room(4));
    shard
}

fn fails() -> Fixture {
    Fixture::with_runner(4)
}

// FEATURES: D8
#[test]
fn a_failed_job_leaves_a_dead_letter_with_its_reason() {
    let mut shard = fails();
    let spec = job(|spec| (spec.topic, spec.tenant) = ("build".to_owned(), "red".to_owned()));
    let failed = shard.submit(&spec);
    shard.run_attempt(failed, End::Fatal);
    let letter = shard.records.dead_letter(failed).unwrap();
    assert_eq!((letter.state, letter.reason), (State::Failed, Some(ReasonCode::Fatal)));
    assert_eq!((letter.topic.as_str(), letter.tenant.as_str()), ("build", "red"));
    let fine = shard.submit(&echo());
    shard.run_attempt(fine, End::Succeeded);
    let unwanted = shard.submit(&echo());
    shard.cancel(unwanted);
    shard.finish_all();
    for id in [fine, unwanted] {
        assert_eq!(shard.records.dead_letter(id), None);
    }
}

// FEATURES: D8
#[test]
fn a_dead_letter_is_deleted_when_its_job_is_retried() {
    let mut shard = fails();
    let id = shard.submit(&echo());
    shard.run_attempt(id, End::Fatal);
    assert_eq!(shard.retry(id), Ok(State::Dispatched));
    assert_eq!(shard.records.dead_letter(id), None);
    shard.run_attempt(id, End::Succeeded);
    assert_eq!((shard.state(id), shard.records.dead_letter(id)), (State::Succeeded, None));
}

// FEATURES: D8
#[test]
fn purging_a_dead_letter_removes_its_job() {
    let mut shard = fails();
    let (dead, fine) = (shard.submit(&echo()), shard.submit(&echo()));
    shard.run_attempt(dead, End::Fatal);
    shard.run_attempt(fine, End::Succeeded);
    shard.exact_counters = false;
    let purge = |job| move |request| Input::Purge { request, job, by: Some("ada".into()) };
    assert_eq!(shard.request(purge(dead)), Answer::Removed);
    assert_eq!((shard.records.dead_letter(dead), shard.records.job(dead)), (None, None));
    assert_eq!(shard.request(purge(fine)), Answer::Refused(Refusal::NoDeadLetter(State::Succeeded)));
    assert_eq!(shard.request(purge(dead)), Answer::Refused(Refusal::UnknownJob(dead)));
    let purged = shard.records.audit().into_iter().filter(|entry| entry.action == Action::DeadLetterPurged);
    assert_eq!(purged.map(|entry| entry.job).collect::<Vec<_>>(), [Some(dead)]);
}

#[test]
fn a_job_with_a_dead_letter_outlives_its_retention() {
    let mut config = config_of(0, 1);
    (config.retention, config.dead_letter_retention) = (Millis(DAY), Millis(3 * DAY));
    let mut shard = Fixture::with(config);
    shard.runner(RUNNER, room(4));
    let (dead, fine) = (shard.submit(&echo()), shard.submit(&echo()));
    shard.run_attempt(dead, End::Fatal);
    shard.run_attempt(fine, End::Succeeded);
    shard.exact_counters = false;
    shard.advance(2 * DAY);
    assert!(shard.records.job(fine).is_none() && shard.records.job(dead).is_some());
    shard.advance(2 * DAY);
    assert_eq!((shard.records.job(dead), shard.records.dead_letter(dead)), (None, None));
}

/// All decisions and operations, in order, in one chain across restarts.
#[test]
fn the_audit_log_records_decisions_and_operations_with_their_actors() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    shard.verdict(id, Verdict::RequireApproval);
    shard.crash();
    let decision = engine::ApprovalDecision {
        by: Some("ada".into()),
        approved: true,
        comment: Some("it is fine".to_owned()),
        digest: None,
        rule: None,
    };
    shard.request(|request| Input::Approve { request, job: id, decision: Box::new(decision) });
    shard.verdict(id, Verdict::RequireApproval);
    shard.crash();
    shard.runner(RUNNER, room(4));
    shard.request(|request| Input::Cancel { request, job: id, by: Some("bob".into()) });
    shard.request(|request| Input::Cancel { request, job: id, by: Some("bob".into()) });
    let recorded: Vec<_> =
        shard.records.audit().into_iter().map(|entry| (entry.action, entry.by, entry.rule)).collect();
    let (ada, bob, rule) = (Some("ada".to_owned()), Some("bob".to_owned()), Some("a rule".to_owned()));
    let expected = [
        (Action::ApprovalAsked, None, rule.clone()),
        (Action::Approved, ada, None),
        (Action::ApprovalAsked, None, rule),
        (Action::Cancelled, bob, None),
    ];
    assert_eq!(recorded, expected, "an operation without effect is not recorded");
    assert_eq!(shard.records.audit()[1].message.as_deref(), Some("it is fine"));
}
