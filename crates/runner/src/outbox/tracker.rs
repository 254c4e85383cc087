//! What of the links' unacknowledged ends is stored, and what is to be stored next.

use std::collections::{BTreeMap, VecDeque};

use link::RunnerEnd;
use minicbor::bytes::ByteVec;
use model::id::ShardId;
use model::job::End;
use model::message::AttemptRef;

use super::record::{Batch, encode_end};

/// Encoded ends of one chunk; a larger end has one of its own. Bounds the time that the links are locked.
const CHUNK_BYTES_MAX: usize = 512 << 10;
/// Acknowledgements of one chunk.
const CHUNK_ACKNOWLEDGEMENTS_MAX: usize = 16_384;

/// Stored ends that their shards have not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutboxUsage {
    pub ends: u64,
    /// Encoded size.
    pub bytes: u64,
}

/// Ends are identified by shard and sequence, not by attempt: an attempt may be declined, dispatched again and end, and
/// a late acknowledgement of the first must not count for the second.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    shards: BTreeMap<ShardId, Tracked>,
    usage: OutboxUsage,
}

#[derive(Debug, Default)]
struct Tracked {
    /// Ends up to this sequence have waited long enough.
    due: u64,
    /// Ends up to this sequence are stored or need not be.
    scanned: u64,
    /// Stored ends that were unacknowledged when they were last looked at, oldest first.
    stored: VecDeque<Stored>,
}

#[derive(Debug)]
struct Stored {
    sequence: u64,
    attempt_ref: AttemptRef,
    bytes: u64,
}

/// What is written at once.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    /// The oldest stored ends of these shards are acknowledged.
    acknowledged: Vec<(ShardId, AttemptRef)>,
    ends: Vec<NewEnd>,
    /// Encodings of `ends`.
    encoded: Vec<ByteVec>,
    /// How far the ends of each shard were looked at.
    scanned: Vec<(ShardId, u64)>,
}

#[derive(Debug)]
struct NewEnd {
    shard: ShardId,
    sequence: u64,
    attempt_ref: AttemptRef,
    bytes: u64,
}

impl Chunk {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.acknowledged.is_empty() && self.ends.is_empty()
    }

    /// The entry to write.
    pub fn take_batch(&mut self) -> Batch {
        let acknowledged = self.acknowledged.iter().map(|(_, attempt_ref)| *attempt_ref).collect();
        Batch { acknowledged, ends: std::mem::take(&mut self.encoded), obsolete: None }
    }
}

impl Tracker {
    pub fn usage(&self) -> OutboxUsage {
        self.usage
    }

    /// Notes an end of an earlier incarnation, which is stored and was just sent again.
    pub fn note_replayed(&mut self, shard: ShardId, sequence: u64, attempt_ref: AttemptRef, bytes: u64) {
        let tracked = self.shards.entry(shard).or_default();
        (tracked.due, tracked.scanned) = (sequence, sequence);
        tracked.stored.push_back(Stored { sequence, attempt_ref, bytes });
        self.usage.ends += 1;
        self.usage.bytes += bytes;
    }

    /// All messages sent so far are due at the next call of [`Tracker::collect`].
    pub fn mark_due<T>(&mut self, links: &BTreeMap<ShardId, RunnerEnd<T>>) {
        for (shard, link) in links {
            self.shards.entry(*shard).or_default().due = link.last_sequence();
        }
    }

    /// Nothing counts as stored any more: what is unacknowledged is due again.
    pub fn restart(&mut self) {
        for tracked in self.shards.values_mut() {
            tracked.scanned = 0;
            tracked.stored.clear();
        }
        self.usage = OutboxUsage::default();
    }

    /// Collects due ends and new acknowledgements. Must be written and then applied before the next call.
    pub fn collect<T>(&self, links: &BTreeMap<ShardId, RunnerEnd<T>>) -> Chunk {
        let mut chunk = Chunk::default();
        let mut bytes = 0;
        for (shard, tracked) in &self.shards {
            let Some(link) = links.get(shard) else { continue };
            let oldest = link.oldest_unacknowledged();
            let acknowledged = tracked.stored.iter().take_while(|stored| stored.sequence < oldest);
            let room = CHUNK_ACKNOWLEDGEMENTS_MAX - chunk.acknowledged.len();
            chunk.acknowledged.extend(acknowledged.take(room).map(|stored| (*shard, stored.attempt_ref)));
            let mut scanned = tracked.due;
            for (sequence, attempt_ref, outcome) in link.unacknowledged_ends(tracked.scanned) {
                if sequence > tracked.due {
                    break;
                }
                // A declined attempt has no result to lose.
                if outcome.end == End::Busy {
                    continue;
                }
                if bytes >= CHUNK_BYTES_MAX {
                    scanned = sequence - 1;
                    break;
                }
                let encoded = encode_end(*shard, attempt_ref, outcome);
                bytes += encoded.len();
                chunk.ends.push(NewEnd { shard: *shard, sequence, attempt_ref, bytes: encoded.len() as u64 });
                chunk.encoded.push(encoded.into());
            }
            chunk.scanned.push((*shard, scanned.max(tracked.scanned)));
        }
        chunk
    }

    /// The chunk is written.
    pub fn apply(&mut self, chunk: Chunk) {
        for (shard, _) in chunk.acknowledged {
            let oldest = self.shards.get_mut(&shard).and_then(|tracked| tracked.stored.pop_front());
            if let Some(stored) = oldest {
                self.usage.ends -= 1;
                self.usage.bytes -= stored.bytes;
            }
        }
        for NewEnd { shard, sequence, attempt_ref, bytes } in chunk.ends {
            self.shards.entry(shard).or_default().stored.push_back(Stored { sequence, attempt_ref, bytes });
            self.usage.ends += 1;
            self.usage.bytes += bytes;
        }
        for (shard, scanned) in chunk.scanned {
            self.shards.entry(shard).or_default().scanned = scanned;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::id::{Attempt, Epoch, Incarnation, JobId, RunnerId};
    use model::job::Outcome;
    use model::json::Json;
    use model::message::{Capacity, Session, ToRunner};
    use model::time::Millis;

    use super::*;

    type Links = BTreeMap<ShardId, RunnerEnd<()>>;

    const NOW: Millis = Millis(0);

    fn attempt_ref(job: u64) -> AttemptRef {
        AttemptRef { job: JobId(job), attempt: Attempt(1) }
    }

    fn links() -> Links {
        let link = || RunnerEnd::new(NOW, (RunnerId(1), Incarnation(1)), Capacity::default(), Arc::default(), []);
        [ShardId(0), ShardId(1)].into_iter().map(|shard| (shard, link())).collect()
    }

    fn end(links: &mut Links, shard: u16, job: u64, end: End) {
        links.get_mut(&ShardId(shard)).unwrap().send_ended(NOW, attempt_ref(job), Outcome::of(end));
    }

    /// The shard has committed everything up to the newest message.
    fn acknowledge(links: &mut Links, shard: u16) {
        let link = links.get_mut(&ShardId(shard)).unwrap();
        let (session, sequence) = (Session { epoch: Epoch(1), number: 1 }, link.last_sequence());
        link.receive(NOW, ToRunner::Committed { session, sequence });
    }

    /// Writes and applies all that is due; returns the acknowledged and the stored jobs.
    fn write(tracker: &mut Tracker, links: &Links) -> (Vec<u64>, Vec<u64>) {
        let (mut acknowledged, mut ends) = (Vec::new(), Vec::new());
        loop {
            let chunk = tracker.collect(links);
            let is_last = chunk.is_empty();
            acknowledged.extend(chunk.acknowledged.iter().map(|(_, attempt_ref)| attempt_ref.job.0));
            ends.extend(chunk.ends.iter().map(|end| end.attempt_ref.job.0));
            tracker.apply(chunk);
            if is_last {
                return (acknowledged, ends);
            }
        }
    }

    #[test]
    fn ends_are_stored_once_they_are_due_and_acknowledged_once() {
        let (mut tracker, mut links) = (Tracker::default(), links());
        end(&mut links, 0, 1, End::Succeeded);
        assert_eq!(write(&mut tracker, &links), (vec![], vec![]), "not due yet");
        tracker.mark_due(&links);
        end(&mut links, 1, 2, End::Succeeded);
        assert_eq!(write(&mut tracker, &links), (vec![], vec![1]));
        assert_eq!(write(&mut tracker, &links), (vec![], vec![]));
        acknowledge(&mut links, 0);
        tracker.mark_due(&links);
        assert_eq!(write(&mut tracker, &links), (vec![1], vec![2]));
        acknowledge(&mut links, 1);
        assert_eq!(write(&mut tracker, &links), (vec![2], vec![]));
        assert_eq!(tracker.usage(), OutboxUsage::default());
    }

    #[test]
    fn an_end_acknowledged_in_time_and_a_declined_attempt_are_not_stored() {
        let (mut tracker, mut links) = (Tracker::default(), links());
        end(&mut links, 0, 1, End::Succeeded);
        tracker.mark_due(&links);
        acknowledge(&mut links, 0);
        end(&mut links, 0, 2, End::Busy);
        tracker.mark_due(&links);
        assert_eq!(write(&mut tracker, &links), (vec![], vec![]));
    }

    #[test]
    fn a_late_acknowledgement_of_a_declined_attempt_is_not_one_of_its_result() {
        let (mut tracker, mut links) = (Tracker::default(), links());
        end(&mut links, 0, 1, End::Busy);
        let declined = links[&ShardId(0)].last_sequence();
        end(&mut links, 0, 1, End::Succeeded);
        tracker.mark_due(&links);
        assert_eq!(write(&mut tracker, &links), (vec![], vec![1]));
        let session = Session { epoch: Epoch(1), number: 1 };
        links.get_mut(&ShardId(0)).unwrap().receive(NOW, ToRunner::Committed { session, sequence: declined });
        assert_eq!(write(&mut tracker, &links), (vec![], vec![]));
        assert_eq!(tracker.usage().ends, 1);
    }

    #[test]
    fn after_a_restart_all_unacknowledged_ends_are_stored_again() {
        let (mut tracker, mut links) = (Tracker::default(), links());
        for job in 1..=3 {
            end(&mut links, 0, job, End::Succeeded);
        }
        tracker.mark_due(&links);
        write(&mut tracker, &links);
        let before = tracker.usage();
        tracker.restart();
        assert_eq!(write(&mut tracker, &links), (vec![], vec![1, 2, 3]));
        assert_eq!(tracker.usage(), before);
    }

    #[test]
    fn chunks_are_bounded_and_complete() {
        let (mut tracker, mut links) = (Tracker::default(), links());
        let result = Json::of(&"x".repeat(CHUNK_BYTES_MAX / 4));
        for job in 1..=10 {
            let outcome = Outcome { result: Some(result.clone()), ..Outcome::of(End::Succeeded) };
            links.get_mut(&ShardId(0)).unwrap().send_ended(NOW, attempt_ref(job), outcome);
        }
        tracker.mark_due(&links);
        let mut sizes = Vec::new();
        loop {
            let chunk = tracker.collect(&links);
            if chunk.is_empty() {
                break;
            }
            sizes.push(chunk.ends.len());
            tracker.apply(chunk);
        }
        assert_eq!(sizes, [4, 4, 2]);
        assert_eq!(tracker.usage().ends, 10);
    }
}
