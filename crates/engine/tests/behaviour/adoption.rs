//! Processes that outlive their server: a restarted runner names what it finds alive, and that goes on.

use engine::Input;
use model::id::{Incarnation, JobId, RunnerId};
use model::job::End;
use model::json::Json;
use model::message::{FromRunner, RunnerWord, Ticket};
use model::reason::ReasonCode;
use model::spec::Lane;
use model::state::State;

use crate::common::{Fixture, RUNNER, SECOND, at, config_of, echo, process, room, ticket};

/// Jobs with their attempt given out, and started if so.
fn processes(shard: &mut Fixture, count: usize, started: bool) -> Vec<Ticket> {
    let specs = vec![process(); count];
    let jobs: Vec<JobId> =
        shard.try_submit(&specs).into_iter().map(|result| result.expect("the job is accepted").id).collect();
    shard.pass(500);
    let tickets: Vec<Ticket> = jobs.iter().map(|job| shard.current(*job)).collect();
    for ticket in tickets.iter().filter(|_| started) {
        shard.start(*ticket);
    }
    tickets
}

#[track_caller]
fn expect_adopted(shard: &Fixture, ticket: Ticket, state: State, incarnation: u64) {
    let record = shard.job(ticket.job);
    assert_eq!((record.state, record.attempt), (state, ticket.attempt));
    assert_eq!(record.runner(), Some((RUNNER, Incarnation(incarnation))));
    assert_eq!((record.retries, record.infrastructure_failures), (0, 0));
}

/// Steps so small that what follows from a restart takes many of them.
fn in_small_steps() -> Fixture {
    let mut config = config_of(0, 1);
    config.step_bytes_max = 4_000;
    let mut shard = Fixture::with(config);
    shard.runner(RUNNER, room(1_000));
    shard
}

#[test]
fn what_a_restarted_runner_finds_alive_goes_on_as_the_same_attempt() {
    let mut shard = Fixture::with_runner(3);
    let running = processes(&mut shard, 1, true)[0];
    let dispatched = processes(&mut shard, 1, false)[0];
    let gone = processes(&mut shard, 1, true)[0];
    shard.restart(RUNNER, room(3), &[running, dispatched]);
    expect_adopted(&shard, running, State::Running, 2);
    expect_adopted(&shard, dispatched, State::Dispatched, 2);
    assert_eq!(shard.stops, []);
    let lost = shard.job(gone.job);
    assert_eq!((lost.state, lost.infrastructure_failures), (State::Scheduled, 1));
    shard.end(running, End::Succeeded);
    let record = shard.job(running.job);
    assert_eq!((record.state, record.result), (State::Succeeded, Some(Json::of(&1))));
    assert_eq!(record.states.iter().filter(|entry| entry.state == State::Running).count(), 1);
    shard.start(dispatched);
    assert_eq!(shard.state(dispatched.job), State::Running);
    assert_eq!(shard.shard.stats().adopted, 2);
}

#[test]
fn an_attempt_is_adopted_again_and_again() {
    let mut shard = Fixture::with_runner(1);
    let running = processes(&mut shard, 1, true)[0];
    for incarnation in 2..8 {
        shard.restart(RUNNER, room(1), &[running]);
        expect_adopted(&shard, running, State::Running, incarnation);
    }
    shard.end(running, End::Succeeded);
    assert_eq!(shard.job(running.job).attempts.len(), 1);
}

/// What lives inside the server is started again and costs nothing.
#[test]
fn echo_jobs_are_not_found_again_and_use_no_budget() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    shard.start(shard.current(id));
    shard.restart(RUNNER, room(1), &[]);
    let record = shard.job(id);
    assert_eq!((record.state, record.attempt.0, record.infrastructure_failures), (State::Dispatched, 2, 0));
}

#[test]
fn adopted_attempts_take_their_slots_also_beyond_the_room() {
    let mut shard = Fixture::with_runner(3);
    let alive = processes(&mut shard, 3, true);
    let next = shard.submit(&process());
    shard.restart(RUNNER, room(1), &alive);
    assert_eq!(shard.shard.load(Lane::Process), (1, 3));
    for ticket in &alive[..2] {
        shard.end(*ticket, End::Succeeded);
        assert_eq!(shard.state(next), State::Scheduled);
    }
    shard.end(alive[2], End::Succeeded);
    assert_eq!(shard.state(next), State::Dispatched);
}

#[test]
fn what_is_to_stop_is_told_again_after_a_restart() {
    let mut shard = Fixture::with_runner(4);
    let mut spec = process();
    spec.timeout_ms = Some(SECOND);
    let timed_out = shard.submit(&spec);
    let alive = processes(&mut shard, 3, true);
    let timed_out = shard.current(timed_out);
    shard.start(timed_out);
    shard.deaf_runners = true;
    shard.cancel(alive[0].job);
    shard.retract(alive[1].job);
    shard.pass(SECOND);
    shard.deaf_runners = false;
    shard.stops.clear();
    let all = [timed_out, alive[0], alive[1], alive[2]];
    shard.restart(RUNNER, room(4), &all);
    let mut stops = shard.stops.clone();
    stops.sort_unstable();
    let mut expected = [timed_out, alive[0], alive[1]];
    expected.sort_unstable();
    assert_eq!(stops, expected);
    expect_adopted(&shard, alive[1], State::Running, 2);
    for ticket in expected {
        shard.end(ticket, End::Stopped);
    }
    assert_eq!((shard.state(timed_out.job), shard.state(alive[0].job)), (State::TimedOut, State::Cancelled));
    assert_eq!(shard.job(alive[1].job).attempt.0, 2);
}

#[test]
fn what_is_held_but_not_wanted_is_stopped_and_takes_its_slot_until_then() {
    let mut shard = Fixture::with_runner(3);
    let done = processes(&mut shard, 1, true)[0];
    let superseded = processes(&mut shard, 1, true)[0];
    shard.end(done, End::Succeeded);
    shard.lose(RUNNER, 1);
    shard.restart(RUNNER, room(3), &[done, superseded]);
    let mut stops = shard.stops.clone();
    stops.sort_unstable();
    assert_eq!(stops, [done, superseded]);
    assert_eq!(shard.shard.load(Lane::Process).1, 2);
    assert_eq!(shard.job(superseded.job).infrastructure_failures, 1);
    shard.pass(10 * SECOND);
    let again = shard.current(superseded.job);
    assert_eq!(again.attempt.0, 2, "there is one slot left for its next attempt");
    for ticket in [done, superseded] {
        shard.end(ticket, End::Stopped);
    }
    assert_eq!(shard.shard.load(Lane::Process).1, 1);
    assert_eq!(shard.current(superseded.job), again);
}

#[test]
fn the_time_of_an_adopted_attempt_goes_on() {
    let mut shard = Fixture::with_runner(3);
    let mut limited = process();
    limited.timeout_ms = Some(10 * SECOND);
    let mut urgent = process();
    urgent.deadline = at(20 * SECOND);
    let jobs = [limited, urgent, process()].map(|spec| shard.submit(&spec));
    let tickets = jobs.map(|job| shard.current(job));
    shard.start(tickets[0]);
    shard.start(tickets[1]);
    shard.pass(6 * SECOND);
    shard.restart(RUNNER, room(3), &tickets);
    shard.pass(3 * SECOND);
    assert_eq!(shard.state(jobs[0]), State::Running);
    shard.pass(SECOND);
    assert_eq!((shard.state(jobs[0]), shard.reason(jobs[0])), (State::Cancelling, Some(ReasonCode::AttemptTimedOut)));
    shard.pass(10 * SECOND);
    assert_eq!((shard.state(jobs[1]), shard.reason(jobs[1])), (State::Cancelling, Some(ReasonCode::DeadlinePassed)));
    shard.pass(shard.config.dispatch_timeout.0 - 21 * SECOND);
    assert_eq!(shard.state(jobs[2]), State::Dispatched);
    shard.pass(SECOND);
    assert_eq!(shard.reason(jobs[2]), Some(ReasonCode::DispatchTimedOut));
    assert!(shard.stops.contains(&tickets[2]));
}

#[test]
fn many_are_adopted_a_few_at_a_time_and_all_their_slots_count_at_once() {
    let mut shard = in_small_steps();
    let alive = processes(&mut shard, 200, true);
    shard.largest_commit = 0;
    shard.restart(RUNNER, room(1_000), &alive);
    let behind = |shard: &Fixture| {
        let adopted = |ticket: &&Ticket| shard.job(ticket.job).runner() == Some((RUNNER, Incarnation(2)));
        alive.len() - alive.iter().filter(adopted).count()
    };
    assert!(behind(&shard) > 100, "all of them were adopted in one step");
    assert_eq!(shard.shard.load(Lane::Process).1, 200);
    shard.pass(500);
    assert_eq!(behind(&shard), 0);
    assert!(shard.largest_commit < 6_000, "{} bytes in one commit", shard.largest_commit);
}

/// Words about an attempt do not wait until its record has been told who has it in hand.
#[test]
fn words_about_what_is_still_to_be_adopted_count() {
    let mut shard = in_small_steps();
    let alive = processes(&mut shard, 200, false);
    let [.., starts, ends, cancelled] = alive.as_slice() else { panic!("there are many") };
    let now = shard.now;
    let here = shard.restart_silently(RUNNER, room(1_000), &alive);
    let started = shard.words(RUNNER, |runner| runner.start(*starts, now));
    let ended = shard.words(RUNNER, |runner| runner.end(*ends, now, End::Succeeded));
    shard.give_together(vec![Input::Runner(here), Input::Runner(started), Input::Runner(ended)]);
    expect_adopted(&shard, *starts, State::Running, 2);
    let record = shard.job(ends.job);
    assert_eq!((record.state, record.attempts[0].incarnation), (State::Succeeded, Incarnation(2)));
    assert_eq!(shard.shard.load(Lane::Process).1, 199);
    shard.stops.clear();
    shard.cancel(cancelled.job);
    assert_eq!(shard.stops, [*cancelled]);
    assert!(shard.words(RUNNER, |runner| runner.to_stop.contains(cancelled)), "the one that has it was told");
    shard.finish_all();
    assert!(alive.iter().all(|ticket| shard.job(ticket.job).attempt == ticket.attempt));
}

#[test]
fn a_crash_while_they_are_adopted_loses_none() {
    for inventory_is_lost in [false, true] {
        let mut shard = in_small_steps();
        let alive = processes(&mut shard, 200, true);
        shard.restart(RUNNER, room(1_000), &alive[1..]);
        shard.deaf_runners = inventory_is_lost;
        shard.crash();
        shard.deaf_runners = false;
        shard.pass(30 * SECOND);
        for ticket in &alive[1..] {
            expect_adopted(&shard, *ticket, State::Running, 2);
        }
        assert_eq!(shard.job(alive[0].job).infrastructure_failures, 1, "the one it did not name");
        shard.finish_all();
    }
}

#[test]
fn a_second_restart_before_all_are_adopted_decides_anew() {
    let mut shard = in_small_steps();
    let alive = processes(&mut shard, 200, true);
    shard.restart(RUNNER, room(1_000), &alive);
    shard.restart(RUNNER, room(1_000), &alive[..150]);
    assert_eq!(shard.shard.load(Lane::Process).1, 150);
    shard.pass(500);
    for ticket in &alive[..150] {
        expect_adopted(&shard, *ticket, State::Running, 3);
    }
    for ticket in &alive[150..] {
        assert_eq!(shard.job(ticket.job).infrastructure_failures, 1);
    }
    shard.finish_all();
}

#[test]
fn a_runner_lost_before_all_are_adopted_is_lost_with_all_of_them() {
    let mut shard = in_small_steps();
    let alive = processes(&mut shard, 200, true);
    shard.restart(RUNNER, room(1_000), &alive);
    shard.lose(RUNNER, 2);
    shard.pass(500);
    assert!(alive.iter().all(|ticket| shard.job(ticket.job).infrastructure_failures == 1));
    assert_eq!(shard.shard.load(Lane::Process).1, 0);
    shard.restart(RUNNER, room(1_000), &[]);
    shard.finish_all();
}

/// Whoever said that it was gone was wrong, or meant the incarnation before.
#[test]
fn what_a_runner_has_in_hand_is_not_lost_with_an_earlier_incarnation() {
    let mut shard = in_small_steps();
    let alive = processes(&mut shard, 200, true);
    shard.lose(RUNNER, 1);
    let still = |shard: &Fixture| {
        let mine = |ticket: &Ticket| shard.job(ticket.job).state == State::Running;
        alive.iter().copied().filter(mine).collect::<Vec<_>>()
    };
    let left = still(&shard);
    assert!(left.len() > 100, "all of them were lost in one step");
    shard.restart(RUNNER, room(1_000), &alive);
    shard.lose(RUNNER, 1);
    shard.pass(500);
    for ticket in &still(&shard) {
        expect_adopted(&shard, *ticket, State::Running, 2);
    }
    assert!(still(&shard).len() > 80);
    shard.finish_all();
    assert!(alive.iter().all(|ticket| shard.state(ticket.job) == State::Succeeded));
}

/// It was only cut off, and speaks again before all that it had is lost: that does not save it, so it must stop.
#[test]
fn what_is_being_lost_is_stopped_when_its_runner_speaks_again() {
    let mut shard = in_small_steps();
    let alive = processes(&mut shard, 200, true);
    shard.lose(RUNNER, 1);
    shard.resize(RUNNER, room(1_000));
    shard.pass(500);
    let mut stops = shard.stops.clone();
    stops.sort_unstable();
    stops.dedup();
    assert_eq!(stops, alive);
    assert!(alive.iter().all(|ticket| shard.job(ticket.job).infrastructure_failures == 1));
    for ticket in &alive {
        shard.end(*ticket, End::Stopped);
    }
    shard.finish_all();
}

/// Named again after its job is gone from memory, it still takes the slot of its kind and no other.
#[test]
fn what_is_not_wanted_takes_one_slot_however_often_it_is_named() {
    let mut shard = Fixture::with_runner(2);
    let id = shard.submit(&echo());
    let current = shard.current(id);
    shard.start(current);
    shard.lose(RUNNER, 1);
    shard.resize(RUNNER, room(2));
    assert_eq!(shard.shard.load(Lane::Echo).1, 2, "the old attempt and the new one");
    shard.cancel(id);
    shard.end(ticket(id, 2), End::Stopped);
    assert_eq!(shard.state(id), State::Cancelled);
    shard.resize(RUNNER, room(2));
    assert_eq!((shard.shard.load(Lane::Echo).1, shard.shard.load(Lane::Process).1), (1, 0));
    shard.end(current, End::Stopped);
    assert_eq!((shard.shard.load(Lane::Echo).1, shard.shard.load(Lane::Process).1), (0, 0));
}

/// The first word of an incarnation says what it has. Should it not, nothing is decided without one that does.
#[test]
fn nothing_is_lost_before_the_runner_has_said_what_it_has() {
    let mut shard = Fixture::with_runner(2);
    let alive = processes(&mut shard, 2, true);
    let now = shard.now;
    let ended = shard.words(RUNNER, |runner| {
        *runner = runner.restarted(room(2), &alive);
        runner.end(alive[0], now, End::Succeeded)
    });
    shard.deaf_runners = true;
    shard.say(ended);
    assert_eq!(shard.state(alive[0].job), State::Succeeded);
    shard.pass(20 * SECOND);
    assert_eq!((shard.state(alive[1].job), shard.job(alive[1].job).infrastructure_failures), (State::Running, 0));
    assert!(shard.questions.len() > 1, "it is asked, and asked again");
    shard.deaf_runners = false;
    shard.pass(6 * SECOND);
    expect_adopted(&shard, alive[1], State::Running, 2);
}

#[test]
fn a_word_of_the_earlier_incarnation_is_void_after_an_adoption() {
    let mut shard = Fixture::with_runner(1);
    let running = processes(&mut shard, 1, true)[0];
    let word =
        RunnerWord::Ended { ticket: running, at: shard.now, outcome: Box::new(model::job::Outcome::of(End::Fatal)) };
    let late = FromRunner { runner: RUNNER, incarnation: Incarnation(1), sequence: 3, word };
    shard.restart(RUNNER, room(1), &[running]);
    shard.say(late);
    expect_adopted(&shard, running, State::Running, 2);
}

/// An inventory that does not name it any more means the same as for any other attempt.
#[test]
fn an_adopted_attempt_that_vanishes_is_lost() {
    let mut shard = Fixture::with_runner(1);
    let running = processes(&mut shard, 1, true)[0];
    shard.restart(RUNNER, room(1), &[running]);
    shard.words(RUNNER, |runner| runner.in_hand.remove(&running));
    // A gap makes the shard ask.
    let _lost = shard.words(RUNNER, |runner| runner.here(0));
    let after_gap = shard.words(RUNNER, |runner| runner.here(0));
    shard.say(after_gap);
    assert_eq!(shard.job(running.job).infrastructure_failures, 1);
    assert_eq!(shard.shard.load(Lane::Process).1, 0);
}

#[test]
fn only_its_own_runner_adopts_an_attempt() {
    let other = RunnerId(2);
    let mut shard = Fixture::with_runner(1);
    let running = processes(&mut shard, 1, true)[0];
    shard.runner(other, room(1));
    shard.stops.clear();
    shard.restart(other, room(1), &[running]);
    assert_eq!(shard.stops, [running]);
    assert_eq!(shard.job(running.job).runner(), Some((RUNNER, Incarnation(1))));
    assert_eq!(shard.current(running.job), ticket(running.job, 1));
}
