//! The plan of a cluster run: its size, its network and its faults. Each seed draws its own.

use fabric::Profile;
use model::time::Millis;

use crate::rng::{Rate, Rng};
use crate::scenario::{MINUTE, SECOND, Time};

/// Rates of faults, relative to each other.
#[derive(Debug, Clone, Copy, Default)]
pub struct FaultWeights {
    pub restart_server: u64,
    pub kill_node: u64,
    pub power_off: u64,
    pub pause: u64,
    pub leave: u64,
    pub partition: u64,
    pub cut_one_way: u64,
    pub cut_pairs: u64,
    pub reset_stream: u64,
    pub fail_together: u64,
    pub restart_control: u64,
    pub pause_control: u64,
    pub change_loss: u64,
}

/// The largest loss of packets.
pub const LOSS_MAX: Rate = Rate(3_000);

/// All parameters of a cluster.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Number of runner nodes; 0: no cluster.
    pub runners: usize,
    pub profile: Profile,
    pub adopt_grace: Millis,
    pub delay_max: Time,
    /// Share of packets that are lost. Streams send them again.
    pub loss: Rate,
    /// Largest share after a change.
    pub loss_max: Rate,
    pub duplicate: Rate,
    /// Share of packets that others overtake.
    pub reorder: Rate,
    pub first_fault: Time,
    /// Time between faults.
    pub fault_every: (Time, Time),
    pub weights: FaultWeights,
    /// Share of dead nodes that never come back.
    pub stays_dead: Rate,
    /// Until the faults end.
    pub fault_phase: Time,
    /// Shards, store and policy have no faults either.
    pub is_calm: bool,
}

impl Plan {
    pub fn none() -> Self {
        Self {
            runners: 0,
            profile: Profile::default(),
            adopt_grace: Millis(0),
            delay_max: 1,
            loss: Rate::NEVER,
            loss_max: Rate::NEVER,
            duplicate: Rate::NEVER,
            reorder: Rate::NEVER,
            first_fault: 0,
            fault_every: (SECOND, SECOND),
            weights: FaultWeights::default(),
            stays_dead: Rate::NEVER,
            fault_phase: MINUTE,
            is_calm: false,
        }
    }

    /// A small cluster with faults of all kinds.
    pub fn draw(rng: &mut Rng) -> Self {
        let is_lossy = rng.one_in(2);
        let is_large = rng.one_in(50);
        let loss_max = if rng.one_in(2) { LOSS_MAX } else { Rate(1_000) };
        let loss = if rng.one_in(2) { loss_max } else { Rate(rng.between(1, u64::from(loss_max.0)) as u32) };
        let mut weight = |most: u64| if rng.one_in(4) { 0 } else { rng.between(1, most) };
        let weights = FaultWeights {
            restart_server: weight(4) + 1,
            kill_node: weight(3),
            power_off: weight(3) + 1,
            pause: weight(3),
            leave: weight(1),
            partition: weight(2),
            cut_one_way: weight(2),
            cut_pairs: weight(2),
            reset_stream: weight(2),
            fail_together: weight(1),
            restart_control: weight(1),
            pause_control: weight(1),
            change_loss: if is_lossy { 3 } else { 0 },
        };
        let slow = !rng.one_in(3);
        Self {
            runners: (if is_large { rng.between(20, 40) } else { rng.between(2, 8) }) as usize,
            profile: Profile::default(),
            adopt_grace: Millis(rng.between(5 * SECOND, 30 * SECOND)),
            delay_max: rng.between(1, 5),
            loss: if is_lossy { loss } else { Rate::NEVER },
            loss_max,
            duplicate: Rate(rng.between(0, 1_000) as u32),
            reorder: Rate(rng.between(0, 3_000) as u32),
            first_fault: rng.between(10 * SECOND, 25 * SECOND),
            fault_every: if slow { (15 * SECOND, 45 * SECOND) } else { (SECOND, 15 * SECOND) },
            weights,
            stays_dead: Rate(if rng.one_in(2) { 3_000 } else { 0 }),
            fault_phase: if is_large { MINUTE } else { rng.between(MINUTE, 3 * MINUTE) },
            is_calm: is_large || rng.one_in(4),
        }
    }

    /// A cluster of a given size. Single nodes die one after the other; now and then many at once.
    pub fn measured(runners: usize, loss: Rate) -> Self {
        let weights = FaultWeights {
            restart_server: 2,
            kill_node: 3,
            power_off: 6,
            pause: 4,
            fail_together: 1,
            ..FaultWeights::default()
        };
        Self {
            runners,
            adopt_grace: Millis(30 * SECOND),
            delay_max: 2,
            loss,
            loss_max: loss,
            duplicate: Rate(100),
            reorder: Rate(100),
            first_fault: 30 * SECOND,
            fault_every: (26 * SECOND, 28 * SECOND),
            fault_phase: 6 * MINUTE,
            is_calm: true,
            weights,
            ..Self::none()
        }
    }

    /// A cluster without faults of its own.
    pub fn quiet(runners: usize) -> Self {
        let adopt_grace = Millis(30 * SECOND);
        Self { runners, adopt_grace, first_fault: u64::MAX / 2, delay_max: 2, is_calm: true, ..Self::none() }
    }
}
