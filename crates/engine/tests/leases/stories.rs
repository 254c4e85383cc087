//! Single faults and their consequences.

use engine::leases::{CHECK, CHECK_CONTENDED, LINGER, Leases, Message, Outbox, RETRY, Scope};
use engine::leases::{LimitKind, WAKES_PER_TICK_MAX};
use model::id::{Epoch, ShardId, Shards};
use model::time::Millis;

use crate::world::{Crash, World};

const ALL: u32 = 1_000;
const SECOND: Millis = Millis::from_secs(1);

/// Two shards; the one that is not the home uses `used` of `limit` slots.
fn lent(limit: u32, used: u32) -> World {
    let mut world = World::new(2, "acme", limit);
    world.step(world.other(), &[], 0, used, ALL, Crash::Never);
    let other = world.other();
    assert!(world.settle(SECOND, ALL, |world| world.used()[other] == used && world.network.is_empty()));
    world
}

fn receive_all(world: &mut World, shard: usize) {
    let delivered = vec![0; world.network.len()];
    world.step(shard, &delivered, 0, 0, ALL, Crash::Never);
}

#[test]
fn a_single_shard_sends_no_messages() {
    let shards = Shards::new(1).unwrap();
    let scope = Scope::of_tenant(LimitKind::Live, "acme");
    let mut leases = Leases::new(ShardId(0), shards, Epoch(1));
    leases.tick(Millis(5));
    assert_eq!([(); 3].map(|()| leases.take(scope, 2)), [true, true, false]);
    leases.set_waiting(scope, 2, 1);
    assert_eq!(leases.freed(), []);
    leases.give_back(scope);
    assert_eq!(leases.freed(), [scope]);
    assert!(leases.take(scope, 2));
    leases.set_waiting(scope, 2, 0);
    let mut outbox = Outbox::default();
    leases.flush(&mut outbox);
    assert!(outbox.writes.is_empty() && outbox.messages.is_empty());
    assert_eq!((leases.next_tick(), leases.scopes()), (None, 1));
    leases.give_back(scope);
    leases.give_back(scope);
    leases.flush(&mut outbox);
    assert_eq!(leases.scopes(), 0);
}

#[test]
fn a_raised_limit_is_used_at_once_and_a_lowered_one_as_jobs_end() {
    let mut world = lent(3, 3);
    world.set_limit(5);
    world.step(world.home(), &[], 0, 4, ALL, Crash::Never);
    assert_eq!(world.used_in_all(), 5);
    world.set_limit(2);
    for left in (2..5).rev() {
        world.now = world.now + Millis(10);
        let ending = if world.used()[world.home()] > 0 { world.home() } else { world.other() };
        world.step(ending, &[], 1, 0, ALL, Crash::Never);
        world.settle(Millis(100), ALL, |world| world.network.is_empty());
        assert_eq!(world.used_in_all(), left, "no job starts above the limit");
    }
}

#[test]
fn a_limit_of_nothing_grants_nothing() {
    let mut world = World::new(2, "acme", 0);
    for shard in 0..2 {
        world.step(shard, &[], 0, 5, ALL, Crash::Never);
    }
    assert!(!world.settle(Millis(20_000), ALL, |world| world.used_in_all() > 0));
}

#[test]
fn a_lost_request_is_repeated() {
    let mut world = World::new(2, "acme", 3);
    let (home, other) = (world.home(), world.other());
    world.step(other, &[], 0, 1, ALL, Crash::Never);
    assert_eq!(world.network.len(), 1);
    world.network.clear();
    world.now = world.now + RETRY - Millis(1);
    receive_all(&mut world, other);
    assert_eq!(world.network.len(), 0, "not early");
    world.now = world.now + Millis(1);
    receive_all(&mut world, other);
    receive_all(&mut world, home);
    receive_all(&mut world, other);
    assert_eq!(world.used()[other], 1);
}

#[test]
fn unused_slots_are_returned_after_a_while() {
    let mut world = lent(3, 2);
    let other = world.other();
    world.step(other, &[], 2, 0, ALL, Crash::Never);
    world.now = world.now + Millis(LINGER.0 - 1);
    world.step(other, &[], 0, 2, ALL, Crash::Never);
    assert_eq!((world.used()[other], world.network.len()), (2, 0), "the next jobs start without a request");
    world.step(other, &[], 2, 0, ALL, Crash::Never);
    let since = world.now;
    assert!(world.settle(LINGER + LINGER + Millis(5), ALL, World::is_empty));
    assert!(world.now >= since + LINGER);
}

#[test]
fn unused_slots_are_returned_at_once_when_others_wait() {
    let mut world = lent(3, 3);
    let (home, other) = (world.home(), world.other());
    world.step(other, &[], 3, 0, ALL, Crash::Never);
    world.step(home, &[], 0, 3, ALL, Crash::Never);
    let since = world.now;
    assert!(world.settle(Millis(10), ALL, |world| world.used()[home] == 3), "{:?}", world.used());
    assert!(world.now < since + LINGER);
}

// FEATURES: D13
#[test]
fn slots_granted_to_a_dead_epoch_are_recovered() {
    for (waits, within) in [(true, CHECK_CONTENDED + RETRY), (false, CHECK + RETRY + LINGER)] {
        let mut world = lent(3, 3);
        let (home, other) = (world.home(), world.other());
        world.step(other, &[], 3, 0, ALL, Crash::Never);
        world.crash(other);
        assert_eq!(world.recorded(other), 3);
        if waits {
            world.step(home, &[], 0, 3, ALL, Crash::Never);
            assert!(world.settle(within, ALL, |world| world.used()[home] == 3));
        } else {
            assert!(world.settle(within, ALL, World::is_empty));
        }
    }
}

#[test]
fn a_late_message_changes_nothing_even_after_a_restart_of_the_home() {
    let mut world = lent(5, 1);
    let (home, other) = (world.home(), world.other());
    world.step(other, &[], 0, 1, ALL, Crash::Never);
    let late = world.network.pop().unwrap();
    assert!(matches!(late.2, Message::Request(request) if request.held == 1));
    world.now = world.now + RETRY;
    world.step(other, &[], 0, 0, ALL, Crash::Never);
    assert!(world.settle(SECOND, ALL, |world| world.used()[other] == 2));
    world.crash(home);
    world.network.push(late);
    receive_all(&mut world, home);
    assert_eq!(world.recorded(other), 2);
    world.step(home, &[], 0, 5, ALL, Crash::Never);
    world.invariants();
    assert_eq!(world.used_in_all(), 5);
}

#[test]
fn a_late_message_about_returned_slots_grants_nothing_and_is_corrected() {
    let mut world = lent(3, 1);
    let (home, other) = (world.home(), world.other());
    world.step(other, &[], 0, 1, ALL, Crash::Never);
    let late = world.network[0];
    assert!(matches!(late.2, Message::Request(request) if request.held == 1 && request.want == 2));
    assert!(world.settle(SECOND, ALL, |world| world.used()[other] == 2));
    world.step(other, &[], 2, 0, ALL, Crash::Never);
    assert!(world.settle(Millis(5_000), ALL, World::is_empty));
    world.crash(home);
    world.network.push(late);
    receive_all(&mut world, home);
    assert_eq!(world.recorded(other), 2, "a restarted home accepts the late message");
    world.step(home, &[], 0, 3, ALL, Crash::Never);
    assert!(world.settle(CHECK_CONTENDED + RETRY, ALL, |world| world.used()[home] == 3));
    assert_eq!((world.recorded(other), world.used()[other]), (0, 0));
}

#[test]
fn messages_for_another_shard_change_nothing() {
    let mut world = lent(3, 1);
    let (home, other) = (world.home(), world.other());
    world.step(other, &[], 0, 1, ALL, Crash::Never);
    let (_, _, request) = world.network.pop().unwrap();
    world.network.extend([(home, other, request), (home, home, request), (7, home, request)]);
    receive_all(&mut world, other);
    receive_all(&mut world, home);
    assert_eq!(world.recorded(other), 1);
    assert_eq!(world.network.len(), 0);
}

#[test]
fn a_tick_wakes_a_bounded_number_of_scopes() {
    let shards = Shards::new(2).unwrap();
    let scopes = (0..).map(|number| Scope::of_tenant(LimitKind::Running, &format!("tenant {number}")));
    let elsewhere = scopes.filter(|scope| scope.home(shards) == ShardId(0));
    let mut leases = Leases::new(ShardId(1), shards, Epoch(2));
    elsewhere.take(WAKES_PER_TICK_MAX + 1).for_each(|scope| leases.restore_use(scope, 1));
    let mut counts = Vec::new();
    for _ in 0..2 {
        let mut outbox = Outbox::default();
        assert!(leases.next_tick().is_some_and(|at| at <= Millis(7)), "the rest is due at once");
        leases.tick(Millis(7));
        leases.flush(&mut outbox);
        counts.push(outbox.messages.len());
    }
    assert_eq!(counts, [WAKES_PER_TICK_MAX, 1]);
    assert_eq!(leases.next_tick(), Some(Millis(7) + RETRY));
}

#[test]
fn records_of_another_shard_are_refused() {
    let shards = Shards::new(2).unwrap();
    let scope = Scope::of_tenant(LimitKind::Running, "acme");
    let home = scope.home(shards);
    let key = scope.ledger_key(ShardId(1 - home.0));
    let mut leases = Leases::new(ShardId(1 - home.0), shards, Epoch(1));
    assert!(leases.restore_ledger(&key, &[]).is_err());
    assert!(leases.restore_ledger(&key[1..], &[]).is_err());
}
