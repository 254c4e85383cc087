//! A store that has lost acknowledged commits: the shard goes back, its runners and clients do not.

use engine::Input;
use model::id::RunnerId;
use model::job::End;
use model::state::State;

use crate::support::{Fixture, RUNNER, SECOND, process, room};

/// Longer than the interval of inventory requests to a runner that is not registered.
const NEXT_INVENTORY: u64 = 6 * SECOND;

/// The shard's last applied sequence goes back, while the runner has dropped acknowledged messages.
#[test]
fn an_inventory_closes_the_gap_and_no_kept_message_is_skipped() {
    let mut shard = Fixture::with_runner(2);
    let (ended, ending) = (shard.submit(&process()), shard.submit(&process()));
    for id in [ended, ending] {
        shard.start(shard.current(id));
    }
    let kept = shard.records.clone();
    shard.end(shard.current(ended), End::Succeeded);
    assert_eq!(shard.state(ended), State::Succeeded);
    let current = shard.current(ending);
    let _under_way = shard.messages(RUNNER, |runner| runner.end(current, End::Succeeded));

    shard.fail_over(kept);
    shard.advance(NEXT_INVENTORY);
    assert_eq!(shard.state(ending), State::Succeeded, "the runner still has its end");
    assert_eq!(shard.job(ending).attempts.len(), 1);
    let backoff = shard.job(ended).eligible_at.saturating_sub(shard.clocks().wall);
    shard.advance(backoff.0);
    let again = shard.current(ended);
    assert_eq!(again.attempt.0, 2, "its end is gone, so it runs again");
    shard.start(again);
    shard.end(again, End::Succeeded);
    assert_eq!(shard.state(ended), State::Succeeded);
}

#[test]
fn an_attempt_that_nobody_knows_is_stopped() {
    let mut shard = Fixture::with_runner(1);
    let kept = shard.records.clone();
    let id = shard.submit(&process());
    let unknown = shard.current(id);
    shard.start(unknown);
    shard.stops.clear();
    shard.fail_over(kept);
    shard.advance(NEXT_INVENTORY);
    assert_eq!(shard.stops, [unknown]);
    assert!(shard.messages(RUNNER, |runner| runner.to_stop.contains(&unknown)));
    shard.end(unknown, End::Stopped);
    let next = shard.submit(&process());
    assert_eq!(shard.state(next), State::Dispatched, "the slot is free again");
}

/// The number of an attempt whose dispatch is lost is used again, perhaps on another runner.
#[test]
fn only_the_runner_of_an_attempt_ends_it() {
    const OTHER: RunnerId = RunnerId(2);
    let mut shard = Fixture::new();
    let id = shard.submit(&process());
    let kept = shard.records.clone();
    shard.runner(RUNNER, room(1));
    let current = shard.current(id);
    shard.start(current);
    let late = shard.messages(RUNNER, |runner| runner.end(current, End::Stopped));

    shard.fail_over(kept);
    shard.runner(OTHER, room(1));
    assert_eq!((shard.current(id), shard.runs.last()), (current, Some(&(OTHER, current))));
    shard.deliver(late);
    shard.advance(NEXT_INVENTORY);
    assert_eq!(shard.state(id), State::Dispatched, "the end of the lost dispatch is ignored");
    let now = shard.now;
    let started = shard.messages(OTHER, |runner| runner.start(current, now));
    let ended = shard.messages(OTHER, |runner| runner.end(current, End::Succeeded));
    shard.input_together(vec![Input::Runner(started), Input::Runner(ended)]);
    assert_eq!(shard.state(id), State::Succeeded);
    assert_eq!(shard.job(id).attempts[0].runner, OTHER);
}

#[test]
fn the_id_of_a_lost_job_is_not_issued_again() {
    for behind in [0, 3_600_000] {
        let mut shard = Fixture::new();
        shard.submit(&process());
        let kept = shard.records.clone();
        shard.wall_offset -= behind;
        let lost = shard.submit(&process());
        for _ in 0..3 {
            shard.fail_over(kept.clone());
            assert_ne!(shard.submit(&process()), lost);
        }
    }
}
