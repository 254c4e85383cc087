//! Slot leases under crashes and lost messages: never beyond the limit, fully used on demand, and no leaks.

use model::time::Millis;
use proptest::prelude::*;

use crate::world::{Crash, World};

/// Demand above any limit.
const MANY: u32 = 1_000;

/// An event: kind, shard, and two amounts.
type Event = (u8, u8, u8, u8);

fn crash_of(number: u8) -> Crash {
    match number % 16 {
        0 => Crash::BeforeCommit,
        1 => Crash::BeforeMessages,
        2 => Crash::AfterMessages,
        _ => Crash::Never,
    }
}

fn apply(world: &mut World, (kind, target, amount, more): Event, limits_change: bool) {
    let shard = usize::from(target) % world.count();
    let message = usize::from(amount);
    match kind % 12 {
        0..=5 => {
            let delivered: Vec<usize> = (0..usize::from(more % 5)).map(|index| index * 7 + message).collect();
            let arrivals = if amount % 3 == 0 { u32::from(amount / 16) } else { 0 };
            let keeps = if amount % 7 == 0 { 0 } else { MANY };
            world.step(shard, &delivered, u32::from(more / 16 % 4), arrivals, keeps, crash_of(amount ^ more));
        }
        6 | 7 => {
            let passed = [1, 10, 100, 500, 1_000, 1_000, 2_000, 5_000, 16_000, 61_000];
            world.now = world.now + Millis(passed[message % passed.len()]);
        }
        8 if !world.network.is_empty() => {
            world.network.remove(message % world.network.len());
        }
        9 if !world.network.is_empty() => {
            let copy = world.network[message % world.network.len()];
            world.network.push(copy);
        }
        10 => world.crash(shard),
        11 if limits_change => world.set_limit(u32::from(amount % 13)),
        _ => {}
    }
    world.invariants();
}

/// Checks recovery once the faults have stopped.
fn check_recovery(world: &mut World) {
    // Jobs end until no shard is above a lowered limit, and every shard has demand for all slots.
    for _ in 0..10 {
        world.now = world.now + Millis(700);
        world.round(1, 20, MANY);
    }
    for _ in 0..60 {
        world.now = world.now + Millis(500);
        world.round(1, 0, MANY);
    }
    let limit = world.limit;
    assert!(
        world.settle(Millis(30_000), MANY, |world| world.used_in_all() == world.limit),
        "{:?} of {limit}",
        world.used()
    );
    let fair = limit / world.count() as u32;
    assert!(world.used().iter().all(|used| *used >= fair), "{:?} are not fair shares of {limit}", world.used());
    assert!(world.settle(Millis(30_000), MANY, |world| world.network.is_empty()));
    // The demand ends.
    world.now = world.now + Millis(1);
    world.round(MANY, 0, 0);
    assert!(world.settle(Millis(130_000), 0, World::is_empty), "slots or records have leaked");
    assert_eq!(world.next_event(), None, "no tick is due when idle");
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(any::<Event>(), 0..100)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    // FEATURES: D13
    #[test]
    fn a_limit_holds_exactly_despite_any_fault(
        shards in 2u16..=5,
        tenant in 0u8..8,
        limit in 0u32..12,
        limits_change: bool,
        events in events(),
    ) {
        let mut world = World::new(shards, &format!("tenant {tenant}"), limit);
        for event in events {
            apply(&mut world, event, limits_change);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    // FEATURES: D13
    #[test]
    fn after_any_faults_every_slot_is_used_fairly_and_none_leaks(
        shards in 2u16..=5,
        tenant in 0u8..8,
        limit in 0u32..12,
        limits_change: bool,
        events in events(),
    ) {
        let mut world = World::new(shards, &format!("tenant {tenant}"), limit);
        for event in events {
            apply(&mut world, event, limits_change);
        }
        check_recovery(&mut world);
    }
}
