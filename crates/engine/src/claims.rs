//! Claims of idempotency keys: one key makes one thing, however many shards there are.
//!
//! The digest of a keyed request includes its queue, so requests with the same key and digest meet in one shard, and that
//! shard's own key entry, written together with what it creates, makes them one. Requests with the same key and another
//! queue may be for another shard. Therefore a shard creates nothing under a key before the key's **home** (the owner of
//! the key's slot) has recorded which digest the key belongs to. The record is durable before the home answers. After a
//! crash of either side the request is sent again, and the claim is repeated with the same outcome.

use std::collections::BTreeSet;

use minicbor::{Decode, Encode};
use model::id::{Epoch, ShardId};
use model::queue::QueueRef;
use model::spec::{Digest, KeyHash};
use model::time::Millis;

use crate::input::{Answer, Effect, Refusal};
use crate::keys::KeyWaiter;
use crate::peers::PeerMessage;
use crate::shard::{Map, Shard};
use crate::step::Step;

/// An unanswered claim is repeated after this time.
const RETRY: Millis = Millis::from_secs(1);
/// The requests behind an unanswered claim are refused after this time.
const GIVE_UP: Millis = Millis::from_secs(10);

/// Identifies a claim of a shard, so that a late answer to an earlier one does not answer it: the home may have forgotten
/// the earlier one meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ClaimId {
    #[n(0)]
    epoch: Epoch,
    #[n(1)]
    number: u64,
}

/// Claims that their homes have not answered.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// Number of the last claim.
    last: u64,
    open: Map<KeyHash, OpenClaim>,
    /// When each claim is repeated or given up, on the steady clock.
    due: BTreeSet<(Millis, KeyHash)>,
}

#[derive(Debug)]
struct OpenClaim {
    id: ClaimId,
    digest: Digest,
    /// Requests with this key, in order.
    waiters: Vec<KeyWaiter>,
    due: Millis,
    give_up_at: Millis,
}

impl Claims {
    /// When the next claim is due, on the steady clock.
    pub fn next(&self) -> Option<Millis> {
        self.due.first().map(|(at, _)| *at)
    }

    fn insert(&mut self, key: KeyHash, claim: OpenClaim) {
        self.due.insert((claim.due, key));
        self.open.insert(key, claim);
    }

    fn remove(&mut self, key: KeyHash) -> Option<OpenClaim> {
        let claim = self.open.remove(&key)?;
        self.due.remove(&(claim.due, key));
        Some(claim)
    }

    fn pop_due(&mut self, now: Millis) -> Option<(KeyHash, OpenClaim)> {
        let (_, key) = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        Some((key, self.remove(key)?))
    }
}

impl Shard {
    /// The shard that keeps the claims of a key.
    fn home_of(&self, key: KeyHash) -> ShardId {
        self.config.shards.owner(key.slot())
    }

    pub(crate) fn is_home_of(&self, key: KeyHash) -> bool {
        self.home_of(key) == self.config.shard
    }

    /// A request waits for the look-up of its key, or for the answer to the claim of its key. Never for both: a look-up
    /// could miss what is created when the claim is answered.
    pub(crate) fn wait_for_key(&mut self, key: KeyHash, waiter: KeyWaiter) {
        match self.claims.open.get_mut(&key) {
            Some(claim) => claim.waiters.push(waiter),
            None => self.keys.wait_for(key, waiter),
        }
    }

    /// Claims a key for the first of these requests that can be accepted. Those that cannot are refused at once.
    pub(crate) fn claim(&mut self, key: KeyHash, waiters: Vec<KeyWaiter>, step: &mut Step) {
        let mut accepted = Vec::with_capacity(waiters.len());
        let mut digest = None;
        for waiter in waiters {
            match self.check_claim(&waiter) {
                Ok(own) => {
                    digest = digest.or(Some(own));
                    accepted.push(waiter);
                }
                Err(refusal) => self.refuse(waiter, refusal, step),
            }
        }
        let Some(digest) = digest else { return };
        let due = self.steady + RETRY;
        self.claims.last += 1;
        let id = ClaimId { epoch: self.epoch, number: self.claims.last };
        let claim = OpenClaim { id, digest, waiters: accepted, due, give_up_at: self.steady + GIVE_UP };
        self.claims.insert(key, claim);
        self.send_claim(key, digest, id, step);
    }

    fn send_claim(&self, key: KeyHash, digest: Digest, claim: ClaimId, step: &mut Step) {
        let message = PeerMessage::Claim { key, digest, claim };
        step.effects.push(Effect::ToShard { shard: self.home_of(key), message });
    }

    /// The digest of a request that has a chance: a claim lasts, so it is not made for a request that is refused anyway.
    fn check_claim(&self, waiter: &KeyWaiter) -> Result<Digest, Refusal> {
        if self.jobs.len() >= self.config.live_jobs_max {
            return Err(Refusal::Full { retry_after: self.config.retry_after });
        }
        let queue_is_open = |queue: Option<QueueRef>, tenant: &str| match queue {
            Some(reference) => self.find_open_queue(reference, tenant).map(|_| ()),
            None => Ok(()),
        };
        match waiter {
            KeyWaiter::Job { submission, .. } => {
                queue_is_open(submission.queue, &submission.spec.tenant)?;
                self.keyed_digest(submission)
            }
            KeyWaiter::Workflow { workflow, .. } => {
                queue_is_open(workflow.queue, &workflow.tenant)?;
                workflow.key.map(|(_, digest)| digest).ok_or(Refusal::KeyConflict)
            }
            KeyWaiter::Queue { queue, .. } => queue.key.map(|(_, digest)| digest).ok_or(Refusal::KeyConflict),
            KeyWaiter::Claim { digest, .. } => Ok(*digest),
        }
    }

    /// Answers a request that waited for its key.
    pub(crate) fn refuse(&mut self, waiter: KeyWaiter, refusal: Refusal, step: &mut Step) {
        match waiter {
            KeyWaiter::Job { request, index, .. } => {
                self.stats.refused += 1;
                self.complete_submission(request, index, Err(refusal), step);
            }
            KeyWaiter::Queue { request, .. } | KeyWaiter::Workflow { request, .. } => {
                step.answer(request, Answer::Refused(refusal));
            }
            // The other shard repeats it.
            KeyWaiter::Claim { .. } => {}
        }
    }

    /// The home has answered: requests with this digest are carried out, others conflict.
    pub(crate) fn claimed(&mut self, key: KeyHash, digest: Digest, of: ClaimId, step: &mut Step) {
        // Otherwise the answer is a duplicate, or one to an earlier claim or owner of the shard.
        if self.claims.open.get(&key).is_none_or(|claim| claim.id != of) {
            return;
        }
        let Some(claim) = self.claims.remove(key) else { return };
        let mut known = None;
        for waiter in claim.waiters {
            match self.check_claim(&waiter) {
                Ok(own) if own == digest => known = self.serve_key_waiter(key, waiter, known, step),
                Ok(_) => self.refuse(waiter, Refusal::KeyConflict, step),
                Err(refusal) => self.refuse(waiter, refusal, step),
            }
        }
    }

    /// Another shard claims a key of which this shard is the home.
    pub(crate) fn receive_claim(
        &mut self,
        from: ShardId,
        key: KeyHash,
        digest: Digest,
        claim: ClaimId,
        step: &mut Step,
    ) {
        match self.known_key(key) {
            Some(entry) => self.answer_claim(from, key, entry.digest, claim, step),
            None => self.wait_for_key(key, KeyWaiter::Claim { from, digest, claim }),
        }
    }

    /// Effects follow the commit, so the record of the claim is durable before the answer is sent.
    pub(crate) fn answer_claim(&self, to: ShardId, key: KeyHash, digest: Digest, claim: ClaimId, step: &mut Step) {
        step.effects.push(Effect::ToShard { shard: to, message: PeerMessage::Claimed { key, digest, claim } });
    }

    /// Repeats claims without an answer, and gives up on those whose time is over, a bounded number of them.
    pub(crate) fn check_claims(&mut self, step: &mut Step) {
        for _ in 0..self.config.timers_per_step {
            let Some((key, claim)) = self.claims.pop_due(self.steady) else { break };
            if claim.give_up_at <= self.steady {
                for waiter in claim.waiters {
                    let refusal = Refusal::KeyHomeSilent { retry_after: self.config.retry_after };
                    self.refuse(waiter, refusal, step);
                }
            } else {
                self.send_claim(key, claim.digest, claim.id, step);
                self.claims.insert(key, OpenClaim { due: self.steady + RETRY, ..claim });
            }
        }
    }
}
