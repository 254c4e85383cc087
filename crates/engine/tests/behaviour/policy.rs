//! Input policy: decisions before a job is scheduled.

use std::sync::Arc;

use engine::{Answer, Input, PolicyMode, Refusal, Settings};
use model::id::JobId;
use model::job::End;
use model::reason::ReasonCode;
use model::spec::Digest;
use model::state::State;
use model::time::Millis;
use model::verdict::{Approval, Constraints, Decision, PolicyVersion, Verdict};

use crate::support::{Fixture, POLICY, RUNNER, SECOND, START, config_of, decision, echo, room};

/// Longer than any timeout of a policy check.
const LONG: u64 = 130 * SECOND;

/// The policy version after [`POLICY`].
const NEWER: PolicyVersion = PolicyVersion([8; 16]);

fn shard_decision(verdict: Verdict) -> Decision {
    decision(POLICY, verdict)
}

fn asking() -> Settings {
    Settings { policy: PolicyMode::Enforced(POLICY), ..Settings::default() }
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
fn no_job_starts_before_the_policy_decision() {
    for (number, shards) in [(0, 1), (3, 4)] {
        let mut shard = Fixture::governed(config_of(number, shards), asking());
        shard.runner(RUNNER, room(1));
        let id = shard.submit(&echo());
        shard.advance(10 * SECOND);
        assert_eq!((shard.state(id), shard.policy_requests.as_slice()), (State::Pending, &[id][..]));
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
    shard.advance(LONG);
    assert_eq!((shard.state(id), shard.runs.len()), (State::Denied, 0));
}

// FEATURES: D2
#[test]
fn an_approval_is_bound_to_the_jobs_content() {
    for restart in [false, true] {
        let mut shard = gated();
        let id = shard.submit(&echo());
        shard.verdict(id, Verdict::RequireApproval);
        assert_eq!(shard.state(id), State::ApprovalRequired);
        let other = Approval { digest: Digest([1; 16]), ..approval(&shard, id, true) };
        assert_eq!(shard.approve(id, other), Answer::Refused(Refusal::OtherContent));
        shard.advance(LONG);
        assert_eq!(shard.state(id), State::ApprovalRequired);
        shard.policy_requests.clear();
        let decision = approval(&shard, id, true);
        assert!(matches!(shard.approve(id, decision.clone()), Answer::Job(_)));
        if restart {
            shard.crash();
        }
        assert!(shard.policy_requests.contains(&id), "the policy check is repeated");
        shard.verdict(id, Verdict::RequireApproval);
        assert_eq!(shard.state(id), State::Dispatched, "the approval is there already");
        let again = Refusal::AlreadyDecided { approved: true, by: "someone".to_owned() };
        assert_eq!(shard.approve(id, decision), Answer::Refused(again));
    }
}

#[test]
fn a_rejected_job_is_denied() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    shard.verdict(id, Verdict::RequireApproval);
    let decision = approval(&shard, id, false);
    shard.approve(id, decision);
    assert_eq!((shard.state(id), shard.runs.len()), (State::Denied, 0));
}

#[test]
fn a_throttled_job_is_checked_again_at_its_time() {
    for restart in [false, true] {
        let mut shard = gated();
        let id = shard.submit(&echo());
        shard.policy_requests.clear();
        shard.verdict(id, Verdict::Throttle(START + Millis(5 * SECOND)));
        assert_eq!(shard.policy_requests, [], "not at once");
        if restart {
            shard.crash();
        }
        shard.advance(5 * SECOND - 1);
        assert_eq!(shard.policy_requests, [], "not early");
        shard.advance(1);
        assert_eq!(shard.policy_requests, [id]);
        shard.verdict(id, Verdict::Allow);
        assert_eq!(shard.state(id), State::Dispatched);
        assert_eq!((shard.job(id).retries, shard.job(id).infrastructure_failures), (0, 0));
    }
}

#[test]
fn an_unanswered_policy_check_is_repeated() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    for asked in 2..6 {
        shard.advance(LONG);
        assert_eq!(shard.policy_requests.len(), asked);
    }
    shard.verdict(id, Verdict::Throttle(shard.now + Millis(SECOND)));
    shard.policy_requests.clear();
    shard.advance(LONG);
    shard.advance(LONG);
    assert!(shard.policy_requests.len() >= 2, "also after a throttle: {:?}", shard.policy_requests);
    shard.verdict(id, Verdict::Allow);
    shard.policy_requests.clear();
    shard.advance(LONG);
    assert_eq!(shard.policy_requests, [], "an answered check is not repeated");
}

#[test]
fn constraints_narrow_a_jobs_spec() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    let constraints = Constraints { max_runtime: Some(Millis(SECOND)), max_retries: Some(0), ..Constraints::default() };
    shard.verdict(id, Verdict::AllowWith(constraints));
    shard.start(shard.current(id));
    shard.advance(SECOND);
    shard.end(shard.current(id), End::Stopped);
    assert_eq!(shard.state(id), State::TimedOut);
    assert_eq!(shard.retry(id), Err(Refusal::RetriesUsedUp { max: 0 }));
}

#[test]
fn a_retry_is_checked_by_the_policy_again() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    shard.verdict(id, Verdict::Allow);
    shard.run_attempt(id, End::Fatal);
    shard.policy_requests.clear();
    assert_eq!(shard.retry(id), Ok(State::Pending));
    assert_eq!(shard.policy_requests, [id]);
    shard.verdict(id, Verdict::Deny);
    assert_eq!(shard.state(id), State::Denied);
}

/// Restarted without a policy, nothing else would lift the throttle.
#[test]
fn waiting_jobs_continue_when_the_policy_is_switched_off() {
    let mut shard = gated();
    let (throttled, unanswered) = (shard.submit(&echo()), shard.submit(&echo()));
    shard.verdict(throttled, Verdict::Throttle(START + Millis(LONG)));
    shard.settings = Arc::default();
    shard.crash();
    shard.finish_all();
    assert_eq!(shard.state(throttled), State::Succeeded);
    assert_eq!(shard.state(unanswered), State::Succeeded);
}

#[test]
fn a_job_can_be_cancelled_in_every_waiting_state() {
    let mut shard = gated();
    let (pending, asked) = (shard.submit(&echo()), shard.submit(&echo()));
    shard.verdict(asked, Verdict::RequireApproval);
    for id in [pending, asked] {
        assert_eq!(shard.cancel(id), State::Cancelled);
        shard.verdict(id, Verdict::Allow);
    }
    shard.advance(LONG);
    assert_eq!(shard.runs.len(), 0);
}

/// A decision in transit during a policy change is ignored.
#[test]
fn a_decision_of_an_outdated_policy_version_leads_to_another_check() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    shard.change_policy(NEWER);
    shard.verdict(id, Verdict::Allow);
    assert_eq!((shard.state(id), shard.runs.len(), shard.policy_requests.len()), (State::Pending, 0, 2));
    shard.verdict_of(id, NEWER, Verdict::Deny);
    assert_eq!(shard.state(id), State::Denied);
}

// FEATURES: D1
#[test]
fn a_job_that_waited_while_the_policy_changed_is_checked_again_before_it_starts() {
    for restart in [false, true] {
        let mut shard = Fixture::governed(config_of(0, 1), asking());
        let id = shard.submit(&echo());
        shard.verdict(id, Verdict::Allow);
        assert_eq!(shard.state(id), State::Scheduled, "no runner is registered");
        shard.change_policy(NEWER);
        if restart {
            shard.crash();
        }
        shard.policy_requests.clear();
        shard.runner(RUNNER, room(1));
        assert_eq!((shard.runs.len(), shard.policy_requests.as_slice()), (0, &[id][..]));
        assert_eq!(shard.job(id).reason.unwrap().code, ReasonCode::PolicyChanged);
        shard.verdict_of(id, NEWER, Verdict::Deny);
        assert_eq!((shard.state(id), shard.runs.len()), (State::Denied, 0));
    }
}

/// The approval remains valid for the same rule, not for another.
#[test]
fn an_approval_survives_a_policy_change_if_the_same_rule_requires_it() {
    let mut shard = Fixture::governed(config_of(0, 1), asking());
    let id = shard.submit(&echo());
    shard.verdict(id, Verdict::RequireApproval);
    let decision = approval(&shard, id, true);
    shard.approve(id, decision);
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
fn constraints_of_other_rules_apply_to_approved_jobs() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    let limits = Constraints { max_runtime: Some(Millis(7)), ..Constraints::default() };
    let asks = || Decision { constraints: Some(Box::new(limits.clone())), ..shard_decision(Verdict::RequireApproval) };
    shard.decide(id, asks());
    let decision = approval(&shard, id, true);
    shard.approve(id, decision);
    shard.decide(id, asks());
    assert_eq!((shard.state(id), shard.job(id).runtime_limit()), (State::Dispatched, Some(Millis(7))));
}

// FEATURES: D2
#[test]
fn an_approval_request_expires() {
    for restart in [false, true] {
        let mut shard = gated();
        shard.config.approval_expiry = Millis(10 * SECOND);
        shard.crash();
        shard.runner(RUNNER, room(1));
        let id = shard.submit(&echo());
        shard.verdict(id, Verdict::RequireApproval);
        shard.advance(10 * SECOND - 1);
        assert_eq!(shard.state(id), State::ApprovalRequired);
        if restart {
            shard.crash();
        }
        shard.advance(1);
        assert_eq!(shard.state(id), State::Denied);
        assert_eq!(shard.records.dead_letter(id).unwrap().reason, Some(ReasonCode::ApprovalExpired));
        let decision = approval(&shard, id, true);
        assert_eq!(shard.approve(id, decision), Answer::Refused(Refusal::ApprovalExpired));
    }
}

#[test]
fn approving_a_job_that_requires_no_approval_is_refused() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    let decision = approval(&shard, id, true);
    let refused = shard.approve(id, decision.clone());
    assert!(matches!(refused, Answer::Refused(Refusal::WrongState { state: State::Pending, .. })), "{refused:?}");
    assert!(matches!(shard.approve(JobId(99), decision.clone()), Answer::Refused(Refusal::UnknownJob(_))));
    shard.verdict(id, Verdict::RequireApproval);
    shard.approve(id, Approval { approved: false, ..decision.clone() });
    let rejected = Refusal::AlreadyDecided { approved: false, by: "someone".to_owned() };
    assert_eq!(shard.approve(id, decision), Answer::Refused(rejected), "the same for a finished job on disk");
}

#[test]
fn an_approver_without_a_name_is_called_somebody() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    shard.verdict(id, Verdict::RequireApproval);
    let decision = Approval { by: String::new(), ..approval(&shard, id, true) };
    shard.approve(id, decision.clone());
    let Answer::Refused(refusal) = shard.approve(id, decision) else {
        panic!("the approval is refused: already decided")
    };
    assert_eq!(refusal.to_string(), "somebody has already approved the job");
}

// FEATURES: D9
#[test]
fn jobs_wait_while_the_policy_is_unavailable_without_using_retries() {
    let mut shard = gated();
    let id = shard.submit(&echo());
    let mut waited = Vec::new();
    for _ in 0..8 {
        shard.policy_requests.clear();
        shard.input(Input::PolicyUnavailable { job: id, message: "it is away".to_owned() });
        let from = shard.now;
        while shard.policy_requests.is_empty() {
            shard.advance(100);
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
fn a_decision_submitted_with_the_job_counts_if_its_policy_version_is_in_force() {
    let mut shard = gated();
    let id = shard.submit_decided(&echo(), shard_decision(Verdict::Allow));
    assert_eq!((shard.state(id), shard.policy_requests.len()), (State::Dispatched, 0));
    let denied = shard.submit_decided(&echo(), shard_decision(Verdict::Deny));
    assert_eq!(shard.state(denied), State::Denied);
    let stale = Decision { policy: Some(NEWER), ..shard_decision(Verdict::Allow) };
    let id = shard.submit_decided(&echo(), stale);
    assert_eq!((shard.state(id), shard.policy_requests.as_slice()), (State::Pending, &[id][..]));
}

/// Jobs of other tenants are refused by a queue.
#[test]
fn a_job_must_have_the_tenant_of_its_queue() {
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

/// Limits remain when the policy is switched off and on again.
#[test]
fn limits_survive_a_period_without_a_policy() {
    let mut shard = Fixture::governed(config_of(0, 1), asking());
    let id = shard.submit(&echo());
    let limits = Constraints { max_runtime: Some(Millis(7)), ..Constraints::default() };
    shard.verdict(id, Verdict::AllowWith(limits));
    shard.change_settings(|settings| settings.policy = PolicyMode::Disabled);
    shard.crash();
    shard.change_policy(POLICY);
    shard.runner(RUNNER, room(1));
    assert_eq!((shard.state(id), shard.job(id).runtime_limit()), (State::Dispatched, Some(Millis(7))));
}
