//! Rate tokens: never more than twice the limit in any second, despite delays, duplicates, losses and restarts.

use engine::leases::tokens::TOKEN_RETRY;
use engine::leases::{Leases, LimitKind, Message, Outbox, Scope};
use model::id::{Epoch, ShardId, Shards};
use model::time::Millis;
use proptest::prelude::*;

const SECOND: u64 = 1_000;

/// A few shards with submits, and messages with delays.
struct World {
    scope: Scope,
    shards: Shards,
    limit: u32,
    now: Millis,
    leases: Vec<Leases>,
    epoch: u64,
    waiting: Vec<u32>,
    network: Vec<(Millis, usize, usize, Message)>,
    /// Time and shard of each used token.
    uses: Vec<(Millis, usize)>,
}

impl World {
    fn new(shards: u16, limit: u32) -> Self {
        let shards = Shards::new(shards).expect("a number of shards");
        let scope = Scope::of_tenant(LimitKind::Submits, "acme");
        let leases = shards.all().map(|shard| Leases::new(shard, shards, Epoch(1))).collect();
        let waiting = vec![0; usize::from(shards.count())];
        let (network, uses) = (Vec::new(), Vec::new());
        Self { scope, shards, limit, now: Millis(5_000), leases, epoch: 1, waiting, network, uses }
    }

    fn home(&self) -> usize {
        usize::from(self.scope.home(self.shards).0)
    }

    fn restart(&mut self, shard: usize) {
        self.epoch += 1;
        self.leases[shard] = Leases::new(ShardId(shard as u16), self.shards, Epoch(self.epoch));
        self.leases[shard].tick(self.now);
        self.leases[shard].set_waiting(self.scope, self.limit, self.waiting[shard]);
    }

    /// A step of a shard: receives arrived messages and gets `arrivals` submits. Its messages take `delay`.
    fn step(&mut self, shard: usize, arrivals: u32, delay: u64) {
        let (now, scope, limit) = (self.now, self.scope, self.limit);
        let leases = &mut self.leases[shard];
        leases.tick(now);
        for (_, from, _, message) in self.network.extract_if(.., |(at, _, to, _)| *at <= now && *to == shard) {
            leases.handle(ShardId(from as u16), &message);
        }
        self.waiting[shard] += arrivals;
        if leases.freed().contains(&scope) || arrivals > 0 {
            while self.waiting[shard] > 0 && leases.take(scope, limit) {
                self.waiting[shard] -= 1;
                self.uses.push((now, shard));
            }
        }
        leases.set_waiting(scope, limit, self.waiting[shard]);
        let mut outbox = Outbox::default();
        leases.flush(&mut outbox);
        assert!(outbox.writes.is_empty(), "tokens have no records");
        let messages =
            outbox.messages.into_iter().map(|(to, message)| (now + Millis(delay), shard, usize::from(to.0), message));
        self.network.extend(messages);
    }

    /// The most tokens used in any second.
    fn most_in_a_second(&self) -> usize {
        let within =
            |from: Millis| self.uses.iter().filter(|(at, _)| *at >= from && *at < from + Millis(SECOND)).count();
        self.uses.iter().map(|(from, _)| within(*from)).max().unwrap_or(0)
    }

    fn used_by(&self, shard: usize) -> usize {
        self.uses.iter().filter(|(_, by)| *by == shard).count()
    }

    /// All shards step every 10 ms.
    fn run(&mut self, millis: u64, delay: u64) {
        for _ in 0..millis / 10 {
            self.now = self.now + Millis(10);
            (0..self.leases.len()).for_each(|shard| self.step(shard, 0, delay));
        }
    }
}

#[test]
fn a_home_starts_without_tokens_and_has_the_full_limit_after_a_second() {
    let mut world = World::new(1, 5);
    world.step(0, 20, 0);
    world.run(SECOND - 10, 0);
    assert_eq!(world.uses.len(), 0);
    world.run(10, 0);
    assert_eq!(world.uses.len(), 5, "all at once");
    world.run(SECOND - 10, 0);
    assert_eq!(world.uses.len(), 5);
    world.run(10, 0);
    assert_eq!(world.uses.len(), 10);
}

// FEATURES: D13
#[test]
fn many_shards_share_the_limit_equally() {
    for (shards, limit) in [(1, 100), (3, 100), (5, 1_000), (5, 2)] {
        let mut world = World::new(shards, limit);
        for shard in 0..world.leases.len() {
            world.step(shard, 1_000_000, 5);
        }
        world.run(21 * SECOND, 5);
        let used = world.uses.len();
        let whole = 20 * limit as usize;
        assert!(used <= whole + limit as usize && used * 10 >= whole * 9, "{used} of {whole} for {shards} shards");
        let parts: Vec<usize> = (0..world.leases.len()).map(|shard| world.used_by(shard)).collect();
        let fair = whole / world.leases.len();
        assert!(parts.iter().all(|part| part * 4 >= fair * 3), "{parts:?}");
        assert!(world.most_in_a_second() <= 2 * limit as usize);
    }
}

#[test]
fn tokens_of_a_stopped_shard_expire() {
    let mut world = World::new(2, 10);
    let home = world.home();
    let other = 1 - home;
    world.run(2 * SECOND, 0);
    world.step(other, 10, 0);
    world.step(home, 0, 0);
    world.waiting[other] = 0;
    world.now = world.now + Millis(SECOND);
    world.step(other, 0, 0);
    world.step(other, 10, 0);
    assert_eq!(world.uses.len(), 0, "tokens expire after a second");
}

#[test]
fn unused_tokens_leave_no_state() {
    let mut world = World::new(3, 10);
    world.run(2 * SECOND, 0);
    (0..3).for_each(|shard| world.step(shard, 3, 0));
    world.run(2 * SECOND + TOKEN_RETRY.0, 0);
    assert_eq!(world.uses.len(), 9);
    assert!(world.leases.iter().all(|leases| leases.scopes() == 0 && leases.next_tick().is_none()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    // FEATURES: D13
    #[test]
    fn no_second_has_more_than_twice_the_limit(
        shards in 1u16..=4,
        limit in 1u32..12,
        events in prop::collection::vec((0u8..10, any::<u8>(), 0u32..9, 0u64..1_500), 0..150),
    ) {
        let mut world = World::new(shards, limit);
        for (kind, place, arrivals, delay) in events {
            let shard = usize::from(place) % world.leases.len();
            let message = usize::from(place);
            match kind {
                0..=5 => world.step(shard, arrivals, if kind < 3 { delay / 100 } else { delay }),
                6 | 7 => world.now = world.now + Millis(delay / 4),
                8 if !world.network.is_empty() => {
                    let copy = world.network[message % world.network.len()];
                    world.network.push(copy);
                }
                9 if arrivals == 0 => world.restart(shard),
                9 if !world.network.is_empty() => {
                    world.network.swap_remove(message % world.network.len());
                }
                _ => {}
            }
        }
        prop_assert!(world.most_in_a_second() <= 2 * limit as usize);
        if shards == 1 {
            prop_assert!(world.most_in_a_second() <= limit as usize);
        }
        // It recovers once the faults have stopped.
        let before = world.uses.len();
        (0..world.leases.len()).for_each(|shard| world.step(shard, 100, 5));
        world.run(4 * SECOND, 5);
        prop_assert!(world.uses.len() - before >= limit as usize, "{} of {limit}", world.uses.len() - before);
        prop_assert!(world.most_in_a_second() <= 2 * limit as usize);
    }
}
