//! The gate on the way in.

use engine::{Answer, PolicyMode, Refusal};
use model::id::JobId;
use model::job::End;
use model::spec::Digest;
use model::state::State;
use model::time::Millis;
use model::verdict::{Approval, Constraints, Verdict};

use crate::common::{Fixture, RUNNER, SECOND, START, config_of, echo, room};

/// Longer than any patience with a policy that does not answer.
const LONG: u64 = 130 * SECOND;

fn gated() -> Fixture {
    let mut config = config_of(0, 1);
    config.policy = PolicyMode::Ask;
    let mut shard = Fixture::with(config);
    shard.runner(RUNNER, room(10));
    shard
}

fn approval(shard: &Fixture, id: JobId, approved: bool) -> Approval {
    let digest = shard.job(id).digest;
    Approval { at: shard.now, by: "someone".to_owned(), approved, comment: None, digest, rule: "a rule".to_owned() }
}

#[test]
fn nothing_starts_before_the_policy_has_spoken() {
    for (number, shards) in [(0, 1), (3, 4)] {
        let mut config = config_of(number, shards);
        config.policy = PolicyMode::Ask;
        let mut shard = Fixture::with(config);
        shard.runner(RUNNER, room(1));
        let id = shard.submit(&echo());
        shard.pass(10 * SECOND);
        assert_eq!((shard.state(id), shard.asked.as_slice()), (State::Pending, &[id][..]));
        shard.verdict(id, Verdict::Allow);
        assert_eq!(shard.state(id), State::Dispatched);
        shard.verdict(id, Verdict::Deny);
        assert_eq!(shard.state(id), State::Dispatched, "the first verdict counts");
    }
}

#[test]
fn a_denied_job_never_starts() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    shard.verdict(id, Verdict::Deny);
    assert_eq!(shard.state(id), State::Denied);
    shard.verdict(id, Verdict::Allow);
    assert!(matches!(shard.retry(id), Err(Refusal::WrongState { .. })));
    shard.pass(LONG);
    assert_eq!((shard.state(id), shard.runs.len()), (State::Denied, 0));
}

#[test]
fn an_approval_is_needed_and_good_for_this_very_content() {
    for restart in [false, true] {
        let mut shard = gated();
        let id = shard.submit(&echo());
        shard.verdict(id, Verdict::RequireApproval);
        assert_eq!(shard.state(id), State::ApprovalRequired);
        let other = Approval { digest: Digest([1; 16]), ..approval(&shard, id, true) };
        assert_eq!(shard.approve(id, other), Answer::Refused(Refusal::OtherContent));
        shard.pass(LONG);
        assert_eq!(shard.state(id), State::ApprovalRequired);
        shard.asked.clear();
        let word = approval(&shard, id, true);
        assert!(matches!(shard.approve(id, word.clone()), Answer::Job(_)));
        if restart {
            shard.crash();
        }
        assert!(shard.asked.contains(&id), "the policy is asked again");
        shard.verdict(id, Verdict::RequireApproval);
        assert_eq!(shard.state(id), State::Dispatched, "it has what it asks for");
        assert!(matches!(shard.approve(id, word), Answer::Refused(Refusal::WrongState { .. })));
    }
}

#[test]
fn a_rejected_job_is_denied() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    shard.verdict(id, Verdict::RequireApproval);
    let word = approval(&shard, id, false);
    shard.approve(id, word);
    assert_eq!((shard.state(id), shard.runs.len()), (State::Denied, 0));
}

#[test]
fn a_throttled_job_is_asked_about_again_at_its_time() {
    for restart in [false, true] {
        let mut shard = gated();
        let id = shard.submit(&echo());
        shard.asked.clear();
        shard.verdict(id, Verdict::Throttle(START + Millis(5 * SECOND)));
        assert_eq!(shard.asked, [], "not at once");
        if restart {
            shard.crash();
        }
        shard.pass(5 * SECOND - 1);
        assert_eq!(shard.asked, [], "not early");
        shard.pass(1);
        assert_eq!(shard.asked, [id]);
        shard.verdict(id, Verdict::Allow);
        assert_eq!(shard.state(id), State::Dispatched);
        assert_eq!((shard.job(id).retries, shard.job(id).infrastructure_failures), (0, 0));
    }
}

#[test]
fn a_policy_that_does_not_answer_is_asked_again_and_again() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    for asked in 2..6 {
        shard.pass(LONG);
        assert_eq!(shard.asked.len(), asked);
    }
    shard.verdict(id, Verdict::Throttle(shard.now + Millis(SECOND)));
    shard.asked.clear();
    shard.pass(LONG);
    shard.pass(LONG);
    assert!(shard.asked.len() >= 2, "also after a throttle: {:?}", shard.asked);
    shard.verdict(id, Verdict::Allow);
    shard.asked.clear();
    shard.pass(LONG);
    assert_eq!(shard.asked, [], "once it has answered there is nothing to ask");
}

#[test]
fn constraints_narrow_what_a_job_asked_for() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    let constraints = Constraints { max_runtime: Some(Millis(SECOND)), max_retries: Some(0) };
    shard.verdict(id, Verdict::AllowWith(constraints));
    shard.start(shard.current(id));
    shard.pass(SECOND);
    shard.end(shard.current(id), End::Stopped);
    assert_eq!(shard.state(id), State::TimedOut);
    assert_eq!(shard.retry(id), Err(Refusal::RetriesUsedUp { max: 0 }));
}

#[test]
fn a_retry_passes_the_gate_again() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    shard.verdict(id, Verdict::Allow);
    shard.play(id, End::Fatal);
    shard.asked.clear();
    assert_eq!(shard.retry(id), Ok(State::Pending));
    assert_eq!(shard.asked, [id]);
    shard.verdict(id, Verdict::Deny);
    assert_eq!(shard.state(id), State::Denied);
}

/// The server was restarted without a policy: nobody is left who would lift the throttle.
#[test]
fn without_a_policy_waiting_jobs_go_on() {
    let mut shard = gated();
    let (throttled, unanswered) = (shard.submit(&echo()), shard.submit(&echo()));
    shard.verdict(throttled, Verdict::Throttle(START + Millis(LONG)));
    shard.config.policy = PolicyMode::AllowAll;
    shard.crash();
    shard.finish_all();
    assert_eq!(shard.state(throttled), State::Succeeded);
    assert_eq!(shard.state(unanswered), State::Succeeded);
}

#[test]
fn a_waiting_job_can_be_cancelled_at_every_gate() {
    let mut shard = gated();
    let (pending, asked) = (shard.submit(&echo()), shard.submit(&echo()));
    shard.verdict(asked, Verdict::RequireApproval);
    for id in [pending, asked] {
        assert_eq!(shard.cancel(id), State::Cancelled);
        shard.verdict(id, Verdict::Allow);
    }
    shard.pass(LONG);
    assert_eq!(shard.runs.len(), 0);
}
