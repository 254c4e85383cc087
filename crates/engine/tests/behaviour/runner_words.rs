//! What runners say: at least once, in any order, from any incarnation; applied once and in order.

use engine::Input;
use model::batch::Keyspace;
use model::id::{Incarnation, RunnerId};
use model::job::{End, Outcome};
use model::json::Json;
use model::message::{FromRunner, RunnerWord};
use model::state::State;
use model::time::Millis;

use crate::common::{Fixture, RUNNER, SECOND, config_of, echo, process, room, ticket};

// FEATURES: B4, D16
#[test]
fn a_word_said_twice_counts_once() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    let current = shard.current(id);
    let now = shard.now;
    let started = shard.words(RUNNER, |runner| runner.start(current, now));
    let ended = shard.words(RUNNER, |runner| runner.end(current, now, End::Succeeded));
    for word in [&started, &started, &ended, &started, &ended] {
        shard.say(word.clone());
    }
    let record = shard.job(id);
    assert_eq!(record.state, State::Succeeded);
    assert_eq!(record.states.len(), 5, "{:?}", record.states);
    assert_eq!(shard.shard.stats().duplicate_words, 3);
}

#[test]
fn a_gap_is_asked_about_and_filled() {
    for (number, shards) in [(0, 1), (3, 4)] {
        let mut shard = Fixture::with(config_of(number, shards));
        shard.runner(RUNNER, room(1));
        let id = shard.submit(&echo());
        let current = shard.current(id);
        let now = shard.now;
        let _lost = shard.words(RUNNER, |runner| runner.start(current, now));
        let ended = shard.words(RUNNER, |runner| runner.end(current, now, End::Succeeded));
        shard.say(ended);
        assert_eq!(shard.state(id), State::Succeeded, "the inventory brought everything again");
        assert_eq!(shard.job(id).states.iter().filter(|entry| entry.state == State::Running).count(), 1);
        assert_eq!(shard.shard.stats().gaps, 1);
    }
}

/// What a runner has in hand is said after everything before it; it must not overtake an end that is on its way.
#[test]
fn an_inventory_does_not_overtake_words_that_can_still_come() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&process());
    let current = shard.current(id);
    let now = shard.now;
    shard.deaf_runners = true;
    let started = shard.words(RUNNER, |runner| runner.start(current, now));
    let ended = shard.words(RUNNER, |runner| runner.end(current, now, End::Succeeded));
    let here = shard.words(RUNNER, |runner| runner.here(0));
    let RunnerWord::Here { oldest_kept, .. } = here.word else { panic!("an inventory") };
    assert_eq!(oldest_kept, started.sequence);
    for word in [here, started, ended] {
        shard.say(word);
    }
    assert_eq!(shard.job(id).result, Some(Json::of(&1)), "the result was not lost");
}

// FEATURES: B5
#[test]
fn what_a_runner_can_no_longer_say_is_not_waited_for() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&process());
    let current = shard.current(id);
    shard.start(current);
    let word = RunnerWord::Here {
        capacity: room(1),
        profile: Default::default(),
        holding: vec![current],
        question: 0,
        oldest_kept: 9,
    };
    shard.say(FromRunner { runner: RUNNER, incarnation: Incarnation(1), sequence: 9, word });
    let end = RunnerWord::Ended {
        ticket: current,
        at: Millis(0),
        outcome: Box::new(model::job::Outcome::of(End::Succeeded)),
    };
    shard.say(FromRunner { runner: RUNNER, incarnation: Incarnation(1), sequence: 10, word: end });
    assert_eq!(shard.state(id), State::Succeeded);
}

// FEATURES: D16
#[test]
fn a_late_result_of_an_ended_job_is_ignored() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    let current = shard.current(id);
    shard.start(current);
    shard.cancel(id);
    shard.pass(shard.config.stop_timeout.0);
    assert_eq!(shard.state(id), State::Cancelled);
    let before = shard.job(id);
    shard.end(current, End::Succeeded);
    assert_eq!(shard.job(id), before);
}

#[test]
fn a_new_incarnation_has_nothing_in_hand() {
    let mut shard = Fixture::with_runner(2);
    let (running, dispatched) = (shard.submit(&process()), shard.submit(&process()));
    let current = shard.current(running);
    shard.start(current);
    let now = shard.now;
    let late = shard.words(RUNNER, |runner| runner.end(current, now, End::Succeeded));
    shard.runner(RUNNER, room(2));
    for id in [running, dispatched] {
        assert_eq!((shard.state(id), shard.job(id).infrastructure_failures), (State::Scheduled, 1));
    }
    shard.say(late);
    assert_eq!(shard.state(running), State::Scheduled, "words of the old incarnation are void");
    shard.finish_all();
    assert_eq!(shard.job(running).result, Some(Json::of(&2)));
}

#[test]
fn a_lost_runner_gets_nothing_until_it_speaks_again() {
    let (first, second) = (RunnerId(1), RunnerId(2));
    let mut shard = Fixture::new();
    shard.runner(first, room(1));
    let id = shard.submit(&echo());
    shard.start(shard.current(id));
    shard.lose(first, 1);
    assert_eq!(shard.state(id), State::Scheduled);
    shard.runner(second, room(1));
    assert_eq!(shard.job(id).runner().unwrap().0, second);
    let waiting = shard.submit(&echo());
    assert_eq!(shard.state(waiting), State::Scheduled);
    shard.stops.clear();
    shard.resize(first, room(2));
    assert_eq!(shard.stops, [ticket(id, 1)], "what it held on to is no longer its own");
    assert_eq!(shard.state(waiting), State::Dispatched, "it was only cut off");
}

#[test]
fn an_old_loss_does_not_hit_a_new_incarnation() {
    let mut shard = Fixture::with_runner(1);
    shard.runner(RUNNER, room(1));
    let id = shard.submit(&process());
    shard.lose(RUNNER, 1);
    assert_eq!((shard.state(id), shard.job(id).infrastructure_failures), (State::Dispatched, 0));
}

// FEATURES: B3
#[test]
fn after_a_restart_the_inventory_says_what_became_of_attempts() {
    let mut shard = Fixture::with_runner(4);
    let jobs = shard.submit_some(4);
    shard.start(shard.current(jobs[1]));
    shard.start(shard.current(jobs[2]));
    let now = shard.now;
    let (in_hand, ended, vanished) = (shard.current(jobs[1]), shard.current(jobs[2]), shard.current(jobs[3]));
    let _lost_word = shard.words(RUNNER, |runner| runner.end(ended, now, End::Succeeded));
    shard.words(RUNNER, |runner| runner.in_hand.remove(&vanished));
    shard.runs.clear();
    shard.crash();
    assert_eq!(shard.state(jobs[1]), State::Running, "what is in hand stays there");
    assert!(shard.words(RUNNER, |runner| runner.in_hand.contains(&in_hand)));
    assert_eq!(shard.state(jobs[2]), State::Succeeded, "the outbox had it");
    assert_eq!(shard.state(jobs[0]), State::Dispatched);
    // Said again after the crash, and heard this time.
    assert_eq!((shard.state(jobs[3]), shard.job(jobs[3]).attempt.0), (State::Dispatched, 1));
}

#[test]
fn what_a_runner_does_not_have_is_given_out_again() {
    let mut shard = Fixture::with_runner(2);
    shard.deaf_runners = true;
    let never_heard = shard.submit(&process());
    shard.deaf_runners = false;
    // A gap makes the shard ask.
    let now = shard.now;
    let _lost = shard.words(RUNNER, |runner| runner.here(0));
    let other = shard.words(RUNNER, |runner| runner.here(0));
    shard.say(other);
    let record = shard.job(never_heard);
    assert_eq!((record.state, record.attempt.0), (State::Dispatched, 2));
    assert_eq!(record.infrastructure_failures, 0, "it never began");
    assert_eq!(shard.now, now);
}

/// It was given out after the question: that the answer does not name it means nothing.
#[test]
fn an_attempt_given_out_after_the_question_is_not_missed() {
    let mut shard = Fixture::with_runner(2);
    shard.deaf_runners = true;
    let _gap = shard.words(RUNNER, |runner| runner.here(0));
    let after_gap = shard.words(RUNNER, |runner| runner.here(0));
    shard.say(after_gap);
    let id = shard.submit(&process());
    let question = (1 << 24) + 1;
    let resent = shard.words(RUNNER, |runner| runner.hear(model::message::ToRunner::Inventory { question }, Millis(0)));
    for word in resent {
        shard.say(word);
    }
    assert_eq!((shard.state(id), shard.job(id).attempt.0), (State::Dispatched, 1));
}

/// A question to a runner nobody knew yet, answered late, is no answer to the next one.
#[test]
fn questions_to_an_unknown_runner_have_their_own_number() {
    let mut shard = Fixture::new();
    let here = |question| RunnerWord::Here {
        capacity: room(1),
        profile: Default::default(),
        holding: Vec::new(),
        question,
        oldest_kept: 1,
    };
    let say = |shard: &mut Fixture, sequence, word| {
        shard.say(FromRunner { runner: RUNNER, incarnation: Incarnation(1), sequence, word });
    };
    say(&mut shard, 3, here(0));
    let first = shard.questions[0];
    say(&mut shard, 1, here(0));
    let id = shard.submit(&process());
    shard.pass(2 * SECOND);
    say(&mut shard, 4, here(0));
    assert_eq!(shard.questions.len(), 2, "each gap is asked about");
    // The runner said this before the job was given to it.
    say(&mut shard, 2, here(first));
    assert_eq!((shard.state(id), shard.job(id).attempt.0), (State::Dispatched, 1));
}

/// Each question makes a runner say everything again: asked for every word, words would beget words.
#[test]
fn a_runner_is_asked_about_a_gap_once_in_a_while() {
    for known in [false, true] {
        let mut shard = Fixture::new();
        shard.deaf_runners = true;
        if known {
            shard.runner(RUNNER, room(1));
        }
        let here = || RunnerWord::Here {
            capacity: room(1),
            profile: Default::default(),
            holding: Vec::new(),
            question: 0,
            oldest_kept: 1,
        };
        for sequence in 3..30 {
            shard.say(FromRunner { runner: RUNNER, incarnation: Incarnation(1), sequence, word: here() });
        }
        assert_eq!(shard.questions.len(), 1, "known: {known}");
        shard.pass(SECOND);
        shard.say(FromRunner { runner: RUNNER, incarnation: Incarnation(1), sequence: 3, word: here() });
        assert_eq!(shard.questions.len(), 2, "known: {known}");
    }
}

#[test]
fn a_slot_is_taken_until_its_runner_lets_go() {
    let mut shard = Fixture::with_runner(1);
    let mut spec = process();
    spec.timeout_ms = Some(SECOND);
    let id = shard.submit(&spec);
    let current = shard.current(id);
    shard.start(current);
    shard.pass(SECOND);
    assert_eq!(shard.state(id), State::Cancelling);
    let next = shard.submit(&process());
    assert_eq!(shard.state(next), State::Scheduled, "the process may still be there");
    shard.end(current, End::Stopped);
    assert_eq!((shard.state(id), shard.state(next)), (State::TimedOut, State::Dispatched));
}

/// Neither the order to run nor the one to stop arrived: the runner will never speak of it by itself.
#[test]
fn a_slot_that_nobody_holds_is_found_and_freed() {
    let mut shard = Fixture::with_runner(1);
    shard.deaf_runners = true;
    let id = shard.submit(&process());
    shard.pass(shard.config.dispatch_timeout.0);
    shard.deaf_runners = false;
    assert_eq!(shard.job(id).infrastructure_failures, 1);
    let next = shard.submit(&process());
    shard.pass(shard.config.stop_timeout.0 - 1);
    assert_eq!(shard.state(next), State::Scheduled);
    shard.pass(1);
    assert_eq!(shard.shard.load(model::spec::Lane::Process).1, 1);
    shard.finish_all();
    assert_eq!((shard.state(id), shard.state(next)), (State::Succeeded, State::Succeeded));
}

/// A stop that overtook its order to run: the runner confirms the one and then obeys the other.
#[test]
fn an_attempt_that_starts_after_it_was_given_up_is_stopped() {
    let mut shard = Fixture::with_runner(2);
    let id = shard.submit(&process());
    let old = shard.current(id);
    shard.pass(shard.config.dispatch_timeout.0);
    shard.stops.clear();
    shard.start(old);
    assert_eq!(shard.stops, [old]);
}

#[test]
fn more_room_is_used_at_once_and_less_is_respected() {
    let mut shard = Fixture::with_runner(1);
    let jobs = shard.submit_some(4);
    shard.resize(RUNNER, room(3));
    assert_eq!(shard.take_runs(), jobs[..3]);
    shard.resize(RUNNER, room(1));
    shard.play(jobs[0], End::Succeeded);
    shard.play(jobs[1], End::Succeeded);
    assert_eq!(shard.take_runs(), []);
    shard.play(jobs[2], End::Succeeded);
    assert_eq!(shard.take_runs(), [jobs[3]]);
}

#[test]
fn a_runner_is_told_how_far_its_words_are_committed() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    shard.play(id, End::Succeeded);
    let here = shard.words(RUNNER, |runner| runner.here(0));
    let RunnerWord::Here { oldest_kept, .. } = here.word else { panic!("an inventory") };
    assert_eq!(oldest_kept, here.sequence, "it has forgotten everything before");
}

#[test]
fn words_about_unknown_jobs_change_nothing() {
    let mut shard = Fixture::with_runner(1);
    let nobody = ticket(model::id::JobId(5), 1);
    let now = shard.now;
    let word = shard.words(RUNNER, |runner| runner.end(nobody, now, End::Succeeded));
    shard.give(Input::Runner(word));
    assert_eq!(shard.shard.live_jobs(), 0);
}

// FEATURES: B5
#[test]
fn a_word_that_cannot_be_taken_is_parked_and_the_stream_goes_on() {
    let mut shard = Fixture::with_runner(2);
    let (bad, good) = (shard.submit(&echo()), shard.submit(&echo()));
    let result = Some(model::json::Json::of(&"x".repeat(model::limits::RESULT_BYTES_MAX)));
    let ticket = shard.current(bad);
    shard.start(ticket);
    shard.end_with(ticket, Outcome { result, ..Outcome::of(End::Succeeded) });
    assert_eq!(shard.state(bad), State::Failed, "trying again would give the same");
    assert!(shard.job(bad).reason.unwrap().message.unwrap().contains("could not be taken"));
    assert_eq!(shard.records.len(Keyspace::Parked), 1);
    assert_eq!(shard.shard.stats().parked_words, 1);
    shard.play(good, End::Succeeded);
    assert_eq!(shard.state(good), State::Succeeded);
    shard.crash();
    assert_eq!(shard.records.len(Keyspace::Parked), 1);
}

// FEATURES: B5
#[test]
fn of_parked_words_the_newest_are_kept() {
    let config = engine::Config { parked_words_max: 4, ..config_of(0, 1) };
    let mut shard = Fixture::with(config);
    shard.runner(RUNNER, room(1));
    let result = Some(model::json::Json::of(&"x".repeat(model::limits::RESULT_BYTES_MAX)));
    for round in 0..9 {
        let job = shard.submit(&echo());
        let ticket = shard.current(job);
        shard.start(ticket);
        shard.end_with(ticket, Outcome { result: result.clone(), ..Outcome::of(End::Succeeded) });
        if round == 6 {
            shard.crash();
        }
    }
    assert_eq!(shard.records.len(Keyspace::Parked), 4);
    let first = shard.records.table(Keyspace::Parked).next().unwrap().0.to_vec();
    assert_eq!(first, 6_u64.to_be_bytes());
}
