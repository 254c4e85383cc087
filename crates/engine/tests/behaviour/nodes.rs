//! Nodes that are cordoned, drained, or not heard after a restart.

use engine::{Answer, Input, RunnerVerdict};
use model::id::{Epoch, Incarnation, RunnerId};
use model::job::End;
use model::message::{RunnerHeader, Session};
use model::reason::ReasonCode;
use model::state::State;

use crate::support::{Fixture, RUNNER, echo, process, room};

const OTHER: RunnerId = RunnerId(2);

fn cordon(shard: &mut Fixture, runners: &[RunnerId]) {
    shard.change_settings(|settings| settings.cordoned = runners.iter().copied().collect());
}

// FEATURES: C2
#[test]
fn a_cordoned_runner_gets_no_new_attempts_and_finishes_its_own() {
    let mut shard = Fixture::with_runner(2);
    let running = shard.submit(&echo());
    let attempt_ref = shard.current(running);
    shard.start(attempt_ref);
    cordon(&mut shard, &[RUNNER]);
    let waiting = shard.submit(&echo());
    shard.advance(600_000);
    assert_eq!(shard.state(waiting), State::Scheduled);
    assert_eq!(shard.job(waiting).dispatch_tries, 0, "the job only waits: it has an eligible runner");
    let answer = shard.request(|request| Input::Explain { request, job: waiting });
    let Answer::Why(why) = answer else { panic!("{answer:?}") };
    assert_eq!((why.counts.cordoned, &why.runners[0].verdict), (1, &RunnerVerdict::Cordoned));
    shard.end(attempt_ref, End::Succeeded);
    assert_eq!((shard.state(running), shard.state(waiting)), (State::Succeeded, State::Scheduled));
    cordon(&mut shard, &[]);
    shard.advance(1);
    assert_eq!(shard.state(waiting), State::Dispatched);
}

// FEATURES: B6
#[test]
fn a_drained_runner_gives_its_attempts_back_and_no_retry_is_used() {
    let mut shard = Fixture::with_runner(3);
    let jobs = shard.submit_some(3);
    let attempts: Vec<_> = jobs.iter().map(|job| shard.current(*job)).collect();
    attempts[..2].iter().for_each(|attempt_ref| shard.start(*attempt_ref));
    assert_eq!(shard.cancel(jobs[1]), State::Cancelling);
    cordon(&mut shard, &[RUNNER]);
    shard.runner(OTHER, room(3));
    for _ in 0..2 {
        shard.input(Input::RetractAll { runner: RUNNER });
    }
    assert!(shard.job(jobs[0]).retracting && shard.job(jobs[2]).retracting);
    for attempt_ref in attempts {
        shard.end(attempt_ref, End::Stopped);
    }
    shard.advance(1);
    for job in [jobs[0], jobs[2]] {
        let record = shard.job(job);
        assert_eq!((record.state, record.runner().map(|(runner, _)| runner)), (State::Dispatched, Some(OTHER)));
        assert_eq!((record.retries, record.infrastructure_failures), (0, 0));
    }
    assert_eq!(shard.state(jobs[1]), State::Cancelled, "a cancelled job stays cancelled");
}

// FEATURES: B6
#[test]
fn a_runner_that_is_not_heard_after_a_restart_is_lost_after_the_grace_period() {
    let mut shard = Fixture::with_runner(1);
    let job = shard.submit(&process());
    let attempt_ref = shard.current(job);
    shard.start(attempt_ref);
    shard.runners.remove(&RUNNER);
    shard.crash();
    let grace = shard.config.runner_grace.0;
    shard.advance(grace - 10_000);
    assert_eq!(shard.state(job), State::Running);
    shard.advance(20_000);
    let record = shard.job(job);
    assert_eq!((record.state, record.infrastructure_failures), (State::Scheduled, 1));
}

// FEATURES: D4
#[test]
fn after_the_first_loss_of_a_runner_a_job_is_placed_again_at_once() {
    let mut shard = Fixture::with_runner(1);
    let job = shard.submit(&process());
    let attempt_ref = shard.current(job);
    shard.start(attempt_ref);
    shard.runner(OTHER, room(1));
    shard.lose(RUNNER, 1);
    assert_eq!(shard.state(job), State::Dispatched);
    let attempt_ref = shard.current(job);
    shard.start(attempt_ref);
    shard.lose(OTHER, 1);
    shard.runner(RunnerId(77), room(1));
    assert_eq!(shard.state(job), State::Scheduled, "a second loss may be the job's fault: it waits");
    shard.advance(60_000);
    assert_eq!(shard.state(job), State::Dispatched);
}

/// The shard may have given the job to nobody else yet. Then the result of the runner that had it is taken.
#[test]
fn a_late_result_is_taken_from_the_runner_that_had_the_attempt_only() {
    let mut shard = Fixture::with_runner(1);
    let job = shard.submit(&process());
    let attempt_ref = shard.current(job);
    shard.start(attempt_ref);
    let late = shard.messages(RUNNER, |runner| runner.end(attempt_ref, End::Succeeded));
    shard.lose(RUNNER, 1);
    assert_eq!(shard.state(job), State::Scheduled);
    shard.runner(OTHER, room(0));
    let forged = shard.messages(OTHER, |runner| runner.end(attempt_ref, End::Succeeded));
    shard.deliver(forged);
    assert_eq!(shard.state(job), State::Scheduled);
    shard.deliver(late);
    assert_eq!(shard.state(job), State::Succeeded);
}

#[test]
fn a_disconnected_runner_gets_no_new_attempts_until_it_is_heard_again() {
    let mut shard = Fixture::with_runner(2);
    let running = shard.submit(&echo());
    let attempt_ref = shard.current(running);
    shard.start(attempt_ref);
    shard.input(Input::RunnerDisconnected { runner: RUNNER, incarnation: Incarnation(1) });
    let waiting = shard.submit(&echo());
    assert_eq!((shard.state(running), shard.state(waiting)), (State::Running, State::Scheduled));
    let answer = shard.request(|request| Input::Explain { request, job: waiting });
    let Answer::Why(why) = answer else { panic!("{answer:?}") };
    assert_eq!((why.counts.disconnected, &why.runners[0].verdict), (1, &RunnerVerdict::Disconnected));
    shard.end(attempt_ref, End::Succeeded);
    shard.advance(1);
    assert_eq!((shard.state(running), shard.state(waiting)), (State::Succeeded, State::Dispatched));
}

// FEATURES: C2
#[test]
fn jobs_of_an_abandoned_runner_end_at_once_if_there_is_no_other() {
    let mut shard = Fixture::with_runner(3);
    let jobs = shard.submit_some(3);
    let attempts: Vec<_> = jobs.iter().map(|job| shard.current(*job)).collect();
    attempts[..2].iter().for_each(|attempt_ref| shard.start(*attempt_ref));
    assert_eq!(shard.cancel(jobs[1]), State::Cancelling);
    cordon(&mut shard, &[RUNNER]);
    let waiting = shard.submit(&echo());
    for _ in 0..2 {
        shard.input(Input::AbandonAll { runner: RUNNER });
    }
    for job in [jobs[0], jobs[2]] {
        let record = shard.job(job);
        assert_eq!((record.state, record.retries, record.infrastructure_failures), (State::Abandoned, 0, 0));
        assert_eq!(record.reason.as_ref().map(|reason| reason.code), Some(ReasonCode::NodeAbandoned));
    }
    assert_eq!(shard.state(jobs[1]), State::Cancelling, "a cancelled job ends as cancelled");
    assert_eq!(shard.state(waiting), State::Scheduled, "a job without an attempt waits for another session");
    for attempt_ref in attempts {
        shard.end(attempt_ref, End::Stopped);
    }
    assert_eq!(shard.state(jobs[0]), State::Abandoned, "the end of its process changes nothing");
    cordon(&mut shard, &[]);
    shard.advance(1);
    assert_eq!(shard.state(waiting), State::Dispatched, "the slots are free again");
}

#[test]
fn a_restarted_runner_has_its_attempts_before_it_registers() {
    let mut shard = Fixture::with_runner(3);
    let jobs = shard.submit_some(2);
    let attempts: Vec<_> = jobs.iter().map(|job| shard.current(*job)).collect();
    attempts.iter().for_each(|attempt_ref| shard.start(*attempt_ref));
    let count = |shard: &Fixture| shard.shard.in_flight().map(|(_, counts)| counts.iter().sum::<u32>()).sum::<u32>();
    assert_eq!(count(&shard), 2);
    // The first frame of the next incarnation has no registration.
    let session = Session { epoch: Epoch(0), number: 0 };
    let header =
        RunnerHeader { runner: RUNNER, incarnation: Incarnation(2), session, received: 0, at: model::time::Millis(1) };
    shard.input(Input::RunnerHeader(header));
    assert_eq!(count(&shard), 2);
}
