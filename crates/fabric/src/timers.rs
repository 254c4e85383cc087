//! Timers in the order of their time, at most one for each purpose.

use std::collections::BTreeMap;

use foca::Timer;
use hashbrown::HashMap;
use model::id::NodeId;
use model::time::Millis;

use crate::identity::Identity;

type Hasher = foldhash::fast::FixedState;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    Foca(Timer<Identity>),
    Join,
    Sweep,
}

/// What a timer is for. A newer timer replaces the older one: foca ignores the older one or has handled it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Purpose {
    Probe,
    IndirectProbe,
    Suspicion(NodeId),
    Announce,
    AnnounceToDead,
    Gossip,
    Remove(NodeId),
    Join,
    Sweep,
}

impl Alarm {
    fn purpose(&self) -> Purpose {
        match self {
            Self::Foca(Timer::ProbeRandomMember(_)) => Purpose::Probe,
            Self::Foca(Timer::SendIndirectProbe { .. }) => Purpose::IndirectProbe,
            Self::Foca(Timer::ChangeSuspectToDown { member_id, .. }) => Purpose::Suspicion(member_id.node),
            Self::Foca(Timer::PeriodicAnnounce(_)) => Purpose::Announce,
            Self::Foca(Timer::PeriodicAnnounceDown(_)) => Purpose::AnnounceToDead,
            Self::Foca(Timer::PeriodicGossip(_)) => Purpose::Gossip,
            Self::Foca(Timer::RemoveDown(identity)) => Purpose::Remove(identity.node),
            Self::Join => Purpose::Join,
            Self::Sweep => Purpose::Sweep,
        }
    }
}

/// Time and order of setting.
type Key = (Millis, u64);

#[derive(Debug, Default)]
pub(crate) struct Timers {
    alarms: BTreeMap<Key, Alarm>,
    keys: HashMap<Purpose, Key, Hasher>,
    set: u64,
}

impl Timers {
    pub fn next_at(&self) -> Option<Millis> {
        self.alarms.first_key_value().map(|((at, _), _)| *at)
    }

    pub fn set(&mut self, at: Millis, alarm: Alarm) {
        let purpose = alarm.purpose();
        if let Some(key) = self.keys.get(&purpose) {
            // Each failed probe of a suspect sets its timer again. The first one counts.
            if matches!(purpose, Purpose::Suspicion(_)) && self.alarms.get(key) == Some(&alarm) && key.0 <= at {
                return;
            }
            self.alarms.remove(key);
        }
        self.set += 1;
        self.keys.insert(purpose, (at, self.set));
        self.alarms.insert((at, self.set), alarm);
    }

    /// Removes the first timer up to `now`.
    pub fn take_due(&mut self, now: Millis) -> Option<(Millis, Alarm)> {
        let entry = self.alarms.first_entry()?;
        if entry.key().0 > now {
            return None;
        }
        let ((at, _), alarm) = entry.remove_entry();
        self.keys.remove(&alarm.purpose());
        Some((at, alarm))
    }

    /// All timers fire later by `delay`.
    pub fn delay(&mut self, delay: Millis) {
        self.alarms = std::mem::take(&mut self.alarms)
            .into_iter()
            .map(|((at, order), alarm)| ((at + delay, order), alarm))
            .collect();
        for key in self.keys.values_mut() {
            key.0 = key.0 + delay;
        }
    }

    pub fn clear(&mut self) {
        self.alarms.clear();
        self.keys.clear();
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.alarms.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suspicion(node: u64, incarnation: u16) -> Alarm {
        let mut member_id = Identity::unknown(([127, 0, 0, 1], 1).into());
        member_id.node = NodeId(node);
        Alarm::Foca(Timer::ChangeSuspectToDown { member_id, incarnation, token: 0 })
    }

    #[test]
    fn a_timer_replaces_the_older_one_for_the_same_purpose() {
        let mut timers = Timers::default();
        for token in 0..9 {
            timers.set(Millis(u64::from(token)), Alarm::Foca(Timer::ProbeRandomMember(token)));
            timers.set(Millis(5), Alarm::Join);
        }
        assert_eq!(timers.len(), 2);
        assert_eq!(timers.next_at(), Some(Millis(5)));
        assert_eq!(timers.take_due(Millis(4)), None);
        assert_eq!(timers.take_due(Millis(8)), Some((Millis(5), Alarm::Join)));
        assert_eq!(timers.take_due(Millis(8)), Some((Millis(8), Alarm::Foca(Timer::ProbeRandomMember(8)))));
        assert_eq!(timers.take_due(Millis(8)), None);
    }

    #[test]
    fn the_first_timer_of_a_suspicion_counts() {
        let mut timers = Timers::default();
        timers.set(Millis(10), suspicion(1, 0));
        timers.set(Millis(20), suspicion(1, 0));
        timers.set(Millis(20), suspicion(2, 0));
        assert_eq!((timers.next_at(), timers.len()), (Some(Millis(10)), 2));
        timers.set(Millis(30), suspicion(1, 1));
        assert_eq!((timers.next_at(), timers.len()), (Some(Millis(20)), 2));
    }

    #[test]
    fn a_delay_keeps_the_order() {
        let mut timers = Timers::default();
        timers.set(Millis(10), Alarm::Join);
        timers.set(Millis(20), Alarm::Sweep);
        timers.delay(Millis(100));
        timers.set(Millis(200), Alarm::Sweep);
        assert_eq!(timers.take_due(Millis(999)), Some((Millis(110), Alarm::Join)));
        assert_eq!(timers.take_due(Millis(999)), Some((Millis(200), Alarm::Sweep)));
        assert_eq!(timers.len(), 0);
    }
}
