//! The gate on the way in.

use std::sync::Arc;

use engine::{Answer, Gate, Input, Refusal, Setup};
use model::id::JobId;
use model::job::End;
use model::reason::ReasonCode;
use model::spec::Digest;
use model::state::State;
use model::time::Millis;
use model::verdict::{Approval, Constraints, Decision, PolicyVersion, Verdict};

use crate::common::{Fixture, POLICY, RUNNER, SECOND, START, config_of, decision, echo, room};

/// Longer than any patience with a policy that does not answer.
const LONG: u64 = 130 * SECOND;

/// Rules that come after [`POLICY`].
const NEWER: PolicyVersion = PolicyVersion([8; 16]);

fn shard_decision(verdict: Verdict) -> Decision {
    decision(POLICY, verdict)
}

fn asking() -> Setup {
    Setup { gate: Gate::Policy(POLICY), ..Setup::default() }
}

fn gated() -> Fixture {
    let mut shard = Fixture::governed(config_of(0, 1), asking());
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
        let mut shard = Fixture::governed(config_of(number, shards), asking());
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

// FEATURES: D1
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

// FEATURES: D2
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
        let again = Refusal::AlreadyDecided { approved: true, by: "someone".to_owned() };
        assert_eq!(shard.approve(id, word), Answer::Refused(again));
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
    let constraints = Constraints { max_runtime: Some(Millis(SECOND)), max_retries: Some(0), ..Constraints::default() };
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
    shard.setup = Arc::default();
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

/// An answer that was on its way when the rules changed counts for nothing.
#[test]
fn the_word_of_rules_that_are_no_longer_in_force_leads_to_another_question() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    shard.change_policy(NEWER);
    shard.verdict(id, Verdict::Allow);
    assert_eq!((shard.state(id), shard.runs.len(), shard.asked.len()), (State::Pending, 0, 2));
    shard.verdict_of(id, NEWER, Verdict::Deny);
    assert_eq!(shard.state(id), State::Denied);
}

// FEATURES: D1
#[test]
fn a_job_that_waited_while_the_rules_changed_is_checked_again_before_it_starts() {
    for restart in [false, true] {
        let mut shard = Fixture::governed(config_of(0, 1), asking());
        let id = shard.submit(&echo());
        shard.verdict(id, Verdict::Allow);
        assert_eq!(shard.state(id), State::Scheduled, "nobody is there to run it");
        shard.change_policy(NEWER);
        if restart {
            shard.crash();
        }
        shard.asked.clear();
        shard.runner(RUNNER, room(1));
        assert_eq!((shard.runs.len(), shard.asked.as_slice()), (0, &[id][..]));
        assert_eq!(shard.job(id).reason.unwrap().code, ReasonCode::PolicyChanged);
        shard.verdict_of(id, NEWER, Verdict::Deny);
        assert_eq!((shard.state(id), shard.runs.len()), (State::Denied, 0));
    }
}

/// The approval stands if the same rule asks again, and does not if another one does.
#[test]
fn an_approval_outlives_the_rules_if_the_same_rule_asks_again() {
    let mut shard = Fixture::governed(config_of(0, 1), asking());
    let id = shard.submit(&echo());
    shard.verdict(id, Verdict::RequireApproval);
    let word = approval(&shard, id, true);
    shard.approve(id, word);
    shard.verdict(id, Verdict::RequireApproval);
    assert_eq!(shard.state(id), State::Scheduled);
    shard.change_policy(NEWER);
    shard.runner(RUNNER, room(1));
    shard.verdict_of(id, NEWER, Verdict::RequireApproval);
    assert_eq!(shard.state(id), State::Dispatched);

    let id = shard.submit(&echo());
    shard.verdict_of(id, NEWER, Verdict::RequireApproval);
    let other = Approval { rule: "another rule".to_owned(), ..approval(&shard, id, true) };
    assert_eq!(shard.approve(id, other), Answer::Refused(Refusal::OtherRule));
    assert_eq!(shard.state(id), State::ApprovalRequired);
}

#[test]
fn what_an_approval_was_asked_for_is_limited_by_the_other_rules_all_the_same() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    let limits = Constraints { max_runtime: Some(Millis(7)), ..Constraints::default() };
    let asks = || Decision { constraints: Some(Box::new(limits.clone())), ..shard_decision(Verdict::RequireApproval) };
    shard.decide(id, asks());
    let word = approval(&shard, id, true);
    shard.approve(id, word);
    shard.decide(id, asks());
    assert_eq!((shard.state(id), shard.job(id).runtime_limit()), (State::Dispatched, Some(Millis(7))));
}

// FEATURES: D2
#[test]
fn an_approval_that_nobody_gives_expires() {
    for restart in [false, true] {
        let mut shard = gated();
        shard.config.approval_expiry = Millis(10 * SECOND);
        shard.crash();
        shard.runner(RUNNER, room(1));
        let id = shard.submit(&echo());
        shard.verdict(id, Verdict::RequireApproval);
        shard.pass(10 * SECOND - 1);
        assert_eq!(shard.state(id), State::ApprovalRequired);
        if restart {
            shard.crash();
        }
        shard.pass(1);
        assert_eq!(shard.state(id), State::Denied);
        assert_eq!(shard.records.dead_letter(id).unwrap().reason, Some(ReasonCode::ApprovalExpired));
        let word = approval(&shard, id, true);
        assert_eq!(shard.approve(id, word), Answer::Refused(Refusal::ApprovalExpired));
    }
}

#[test]
fn approving_what_does_not_wait_is_refused_precisely() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    let word = approval(&shard, id, true);
    let refused = shard.approve(id, word.clone());
    assert!(matches!(refused, Answer::Refused(Refusal::WrongState { state: State::Pending, .. })), "{refused:?}");
    assert!(matches!(shard.approve(JobId(99), word.clone()), Answer::Refused(Refusal::UnknownJob(_))));
    shard.verdict(id, Verdict::RequireApproval);
    shard.approve(id, Approval { approved: false, ..word.clone() });
    let rejected = Refusal::AlreadyDecided { approved: false, by: "someone".to_owned() };
    assert_eq!(shard.approve(id, word), Answer::Refused(rejected), "also when it has ended and is on disk only");
}

#[test]
fn who_has_said_no_name_is_somebody_all_the_same() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    shard.verdict(id, Verdict::RequireApproval);
    let word = Approval { by: String::new(), ..approval(&shard, id, true) };
    shard.approve(id, word.clone());
    let Answer::Refused(refusal) = shard.approve(id, word) else { panic!("it is decided already") };
    assert_eq!(refusal.to_string(), "somebody has approved the job already");
}

// FEATURES: D9
#[test]
fn while_the_policy_cannot_be_asked_a_job_waits_and_nothing_is_held_against_it() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    let mut waited = Vec::new();
    for _ in 0..8 {
        shard.asked.clear();
        shard.give(Input::PolicyUnavailable { job: id, message: "it is away".to_owned() });
        let from = shard.now;
        while shard.asked.is_empty() {
            shard.pass(100);
        }
        waited.push(shard.now.saturating_sub(from).0);
    }
    assert!(waited.windows(2).all(|pair| pair[0] <= pair[1]), "longer each time: {waited:?}");
    assert!((1_000..1_700).contains(&waited[0]) && waited[7] <= 30_100, "{waited:?}");
    let job = shard.job(id);
    assert_eq!((job.retries, job.dispatch_tries, job.infrastructure_failures), (0, 0, 0));
    assert_eq!(job.reason.unwrap().code, ReasonCode::PolicyUnavailable);
    shard.verdict(id, Verdict::Allow);
    assert_eq!(shard.state(id), State::Dispatched);
}

#[test]
fn a_decision_that_comes_with_the_job_counts_if_its_rules_are_in_force() {
    let mut shard = gated();
    let id = shard.submit_decided(&echo(), shard_decision(Verdict::Allow));
    assert_eq!((shard.state(id), shard.asked.len()), (State::Dispatched, 0));
    let denied = shard.submit_decided(&echo(), shard_decision(Verdict::Deny));
    assert_eq!(shard.state(denied), State::Denied);
    let stale = Decision { policy: Some(NEWER), ..shard_decision(Verdict::Allow) };
    let id = shard.submit_decided(&echo(), stale);
    assert_eq!((shard.state(id), shard.asked.as_slice()), (State::Pending, &[id][..]));
}

/// A queue lends nobody its tenant's name, nor a tenant its queue.
#[test]
fn a_job_is_of_the_tenant_of_its_queue() {
    let mut shard = gated();
    let queue = shard.create_queue(|new| new.tenant = "red".to_owned()).id;
    let into = |tenant: &str| {
        let mut spec = echo();
        spec.queue = Some(model::queue::QueueRef::Id(queue));
        spec.tenant = tenant.to_owned();
        spec
    };
    let results = shard.try_submit(&[into("blue"), into("red")]);
    assert_eq!(results[0], Err(Refusal::OtherTenant { tenant: "red".to_owned() }));
    assert!(results[1].is_ok());
}

/// A policy that is switched off and on again finds its limits where it left them.
#[test]
fn limits_outlive_a_time_without_a_policy() {
    let mut shard = Fixture::governed(config_of(0, 1), asking());
    let id = shard.submit(&echo());
    let limits = Constraints { max_runtime: Some(Millis(7)), ..Constraints::default() };
    shard.verdict(id, Verdict::AllowWith(limits));
    shard.change_setup(|setup| setup.gate = Gate::Open);
    shard.crash();
    shard.change_policy(POLICY);
    shard.runner(RUNNER, room(1));
    assert_eq!((shard.state(id), shard.job(id).runtime_limit()), (State::Dispatched, Some(Millis(7))));
}
