//! The node's doubt about itself (Lifeguard): a slow node stretches its timers before it accuses others.

use model::id::NodeId;
use model::time::Millis;

/// The highest score: probes take nine times as long.
const SCORE_MAX: u32 = 8;

/// A suspicion takes at most three times as long. The score may fall before it ends, and the cluster waits for its end.
const SUSPICION_SCORE_MAX: u32 = 2;

/// How slow this node seems to be, from its own timers and probes. 0 is healthy.
#[derive(Debug, Default)]
pub(crate) struct Health {
    score: u32,
    /// Target of the last probe, if it failed.
    failed: Option<NodeId>,
}

impl Health {
    pub fn score(&self) -> u32 {
        self.score
    }

    /// The wait for the answer to a probe on a node as slow as this one.
    pub fn stretch_probe(&self, wait: Millis) -> Millis {
        Millis(wait.0.saturating_mul(u64::from(1 + self.score)))
    }

    /// The wait for a refutation on a node as slow as this one.
    pub fn stretch_suspicion(&self, wait: Millis) -> Millis {
        Millis(wait.0.saturating_mul(u64::from(1 + self.score.min(SUSPICION_SCORE_MAX))))
    }

    /// A probe was answered directly and in time.
    pub fn probe_answered(&mut self) {
        self.failed = None;
        self.score = self.score.saturating_sub(1);
    }

    /// Neither the member nor any helper answered. One dead member is no reason for doubt; two different ones in a row are.
    pub fn probe_failed(&mut self, target: NodeId) {
        if self.failed.is_some_and(|failed| failed != target) {
            self.worsen(1);
        }
        self.failed = Some(target);
    }

    /// Others suspect this node.
    pub fn suspected(&mut self) {
        self.worsen(1);
    }

    /// A timer fired late. `tolerance` is what a probe can wait.
    pub fn timer_fired(&mut self, late: Millis, tolerance: Millis) {
        if late.0 > tolerance.0 / 4 {
            self.worsen(1);
        }
    }

    fn worsen(&mut self, by: u32) {
        self.score = (self.score + by).min(SCORE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // FEATURES: A5
    #[test]
    fn one_dead_member_is_no_reason_for_doubt_but_two_in_a_row_are() {
        let mut health = Health::default();
        for _ in 0..9 {
            health.probe_failed(NodeId(1));
        }
        assert_eq!(health.stretch_probe(Millis(80)), Millis(80));
        health.probe_failed(NodeId(2));
        assert_eq!(health.stretch_probe(Millis(80)), Millis(160));
        health.probe_answered();
        assert_eq!(health.stretch_probe(Millis(80)), Millis(80));
    }

    #[test]
    fn late_timers_stretch_later_ones_up_to_a_limit() {
        let mut health = Health::default();
        health.timer_fired(Millis(20), Millis(80));
        assert_eq!(health.score(), 0);
        for _ in 0..99 {
            health.timer_fired(Millis(21), Millis(80));
        }
        assert_eq!(health.stretch_probe(Millis(80)), Millis(720));
        assert_eq!(health.stretch_suspicion(Millis(1_000)), Millis(3_000));
    }
}
