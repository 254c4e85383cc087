//! Leases of exclusive attempts. The spawner kills processes; attempts in this process are stopped here.

use link::Lease;
use model::id::ShardId;
use model::job::{End, Outcome};
use model::message::AttemptRef;
use spawner::protocol::Command;

use super::{Inner, State};
use crate::in_flight::InFlight;
use crate::process::LEASE_EXPIRED;
use crate::spawner_client::key_of;
use crate::steady_clock;

impl State {
    /// An attempt that was started has this lease.
    pub(super) fn hold_lease(&mut self, shard: ShardId, attempt_ref: AttemptRef, lease: Option<Lease>) {
        if let (Some(lease), Some(link)) = (lease, self.links.get_mut(&shard))
            && link.is_in_flight(attempt_ref)
        {
            link.hold_lease(attempt_ref, lease);
        }
    }

    /// The outcome of an attempt, which may have been stopped because of its lease.
    pub(super) fn note_expired(&mut self, attempt_ref: AttemptRef, outcome: Outcome) -> Outcome {
        match self.expired.remove(&attempt_ref) && outcome.end == End::Stopped {
            true => Outcome { end: End::LeaseExpired, message: Some(LEASE_EXPIRED.to_owned()), ..outcome },
            false => outcome,
        }
    }
}

impl Inner {
    /// Passes renewed leases of processes to the spawner.
    pub(super) fn renew(&self, state: &mut State, shard: ShardId, leases: &[(AttemptRef, Lease)]) {
        let Some(link) = state.links.get_mut(&shard) else { return };
        for (attempt_ref, lease) in leases {
            if let Some(InFlight::Process { lease: Some(shared), .. }) = link.get_mut(*attempt_ref) {
                shared.renew(lease.until);
                let renew = Command::Renew { key: key_of(*attempt_ref), lease_until: lease.until.0 };
                self.env.spawner.send(renew, Vec::new());
            }
        }
    }

    /// Stops the attempts in this process whose lease has run out. Processes are left to the spawner, which kills them even
    /// if this process hangs; one that is still being set up is refused by it.
    pub(super) fn expire_leases(&self) {
        let now = steady_clock::now();
        let mut state = self.state.lock();
        let expired: Vec<(ShardId, AttemptRef)> = state
            .links
            .iter_mut()
            .flat_map(|(shard, link)| link.take_expired(now).into_iter().map(|attempt_ref| (*shard, attempt_ref)))
            .collect();
        if expired.is_empty() {
            return;
        }
        for (shard, attempt_ref) in expired {
            let Some(link) = state.links.get_mut(&shard) else { continue };
            tracing::warn!(job = %attempt_ref.job, attempt = %attempt_ref.attempt, "the lease of an exclusive job ran out");
            match link.get_mut(attempt_ref) {
                Some(InFlight::Echo { due }) => {
                    let due = *due;
                    state.delays.remove(due, shard, attempt_ref);
                    let outcome = Outcome { message: Some(LEASE_EXPIRED.to_owned()), ..Outcome::of(End::LeaseExpired) };
                    state.end(shard, attempt_ref, outcome);
                    self.ended.notify_waiters();
                }
                Some(InFlight::Wasm { stop }) => {
                    stop.stop();
                    state.expired.insert(attempt_ref);
                }
                Some(InFlight::Process { .. } | InFlight::Ended) | None => {}
            }
        }
        state.deliver(self.uplink.as_ref());
    }
}
