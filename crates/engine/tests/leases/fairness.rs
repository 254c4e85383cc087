//! Fairness between shards with excess demand: equal shares, turns if there are fewer slots than shards, no idle slots.

use model::time::Millis;
use proptest::prelude::*;

use crate::world::{Crash, World};

const MANY: u32 = 1_000_000;

// FEATURES: D13
#[test]
fn a_new_shard_gets_its_share_as_jobs_end() {
    for late in 0..3 {
        let mut world = World::new(3, "acme", 12);
        for shard in (0..3).filter(|shard| *shard != late) {
            world.step(shard, &[], 0, 100, MANY, Crash::Never);
        }
        assert!(world.settle(Millis(5_000), MANY, |world| world.used_in_all() == 12));
        assert_eq!(world.used()[late], 0);
        world.step(late, &[], 0, 100, MANY, Crash::Never);
        assert!(!world.settle(Millis(2_000), MANY, |world| world.used()[late] > 0), "running jobs keep their slots");
        for _ in 0..10 {
            world.now = world.now + Millis(50);
            world.round(1, 0, MANY);
        }
        assert!(world.settle(Millis(1_000), MANY, |world| world.used() == [4, 4, 4]), "{:?}", world.used());
    }
}

#[test]
fn small_demands_are_met_in_full_and_the_rest_is_shared() {
    let mut world = World::new(3, "acme", 12);
    let (home, other) = (world.home(), world.other());
    for shard in 0..3 {
        world.step(shard, &[], 0, if shard == other { 2 } else { 100 }, MANY, Crash::Never);
    }
    for _ in 0..20 {
        world.now = world.now + Millis(50);
        for shard in (0..3).filter(|shard| *shard != other) {
            let delivered = vec![0; world.network.len()];
            world.step(shard, &delivered, 2, 0, MANY, Crash::Never);
        }
        let delivered = vec![0; world.network.len()];
        world.step(other, &delivered, 0, 0, MANY, Crash::Never);
    }
    assert!(world.settle(Millis(1_000), MANY, |world| world.used_in_all() == 12));
    assert_eq!((world.used()[home], world.used()[other]), (5, 2));
}

// FEATURES: D13
#[test]
fn with_fewer_slots_than_shards_every_shard_gets_turns() {
    for (shards, limit) in [(2, 1), (5, 1), (5, 3), (16, 1)] {
        let mut world = World::new(shards, "acme", limit);
        for shard in 0..world.count() {
            world.step(shard, &[], 0, MANY, MANY, Crash::Never);
        }
        // A turn lasts a second; a message round trip takes two rounds.
        let turns = 3;
        for _ in 0..(turns * world.count() as u64 * 12) {
            world.now = world.now + Millis(100);
            world.round(1, 0, MANY);
        }
        let started: Vec<u64> = (0..world.count()).map(|shard| world.started(shard)).collect();
        let most = started.iter().copied().max().unwrap();
        assert!(started.iter().all(|number| *number > 0 && number * 3 >= most), "{started:?} with {limit} slots");
    }
}

#[test]
fn slots_are_not_idle_while_they_move_between_shards() {
    let mut world = World::new(4, "acme", 8);
    for shard in 0..4 {
        world.step(shard, &[], 0, MANY, MANY, Crash::Never);
    }
    assert!(world.settle(Millis(5_000), MANY, |world| world.used_in_all() == 8));
    for _ in 0..50 {
        world.now = world.now + Millis(50);
        world.round(8, 0, MANY);
    }
    let messages = world.network.len();
    for _ in 0..50 {
        world.now = world.now + Millis(10);
        world.round(8, 0, MANY);
        assert_eq!(world.used_in_all(), 8, "an ended job's slot is reused in its shard");
    }
    assert_eq!(world.network.len(), messages, "without messages");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn shares_become_equal_from_any_start(
        limit in 1u32..40,
        first in prop::collection::vec(0u32..30, 2..6),
    ) {
        let mut world = World::new(first.len() as u16, "acme", limit);
        for (shard, arrivals) in first.iter().enumerate() {
            world.step(shard, &[], 0, *arrivals, MANY, Crash::Never);
        }
        world.settle(Millis(3_000), MANY, |world| world.used_in_all() == limit);
        for shard in 0..world.count() {
            world.step(shard, &[], 0, MANY, MANY, Crash::Never);
        }
        for _ in 0..100 {
            world.now = world.now + Millis(50);
            world.round(1, 0, MANY);
        }
        prop_assert!(world.settle(Millis(3_000), MANY, |world| world.used_in_all() == limit), "{:?}", world.used());
        let fair = limit / first.len() as u32;
        prop_assert!(world.used().iter().all(|used| *used == fair || *used == fair + 1), "{:?}", world.used());
    }
}
