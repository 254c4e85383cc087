//! Counters of a shard, for operators. The engine makes no decision by them.
//!
//! Plain numbers in arrays: counting is on the hot path, and the shell copies all of them after every round.

use std::sync::Arc;

use model::job::Job;
use model::machine::Ignored;
use model::reason::ReasonCode;
use model::state::State;
use model::time::Millis;
use model::verdict::{Decision, OutputDecision, OutputVerdict, Verdict};

use crate::placement::Ready;
use crate::placement::requirement::RequirementId;
use crate::shard::Map;
use crate::workflows::WorkflowStats;

/// Maximum number of topics counted by name. Beyond it the topic without jobs that was used least recently loses its
/// name; without such a topic new ones are counted as [`OTHER_TOPICS`].
pub const TOPICS_NAMED_MAX: usize = 64;

/// Name of the shared counters of all further topics. A topic with this name is counted there too.
pub const OTHER_TOPICS: &str = "other";

/// Upper bounds of the histogram buckets, inclusive. One more bucket counts longer durations.
pub const DURATION_BOUNDS: [Millis; 16] = [
    Millis(1),
    Millis(5),
    Millis(10),
    Millis(25),
    Millis(50),
    Millis(100),
    Millis(250),
    Millis(500),
    Millis(1_000),
    Millis(2_500),
    Millis(5_000),
    Millis(10_000),
    Millis(60_000),
    Millis(600_000),
    Millis(3_600_000),
    Millis(86_400_000),
];

/// Number of reasons to ignore an event.
const IGNORED_COUNT: usize = Ignored::ALL.len();

/// Reasons why no runner is eligible, in the order of [`Stats::unplaced_by`].
pub const UNPLACED_REASONS: [ReasonCode; 3] =
    [ReasonCode::NoPoolMapping, ReasonCode::NoWorkers, ReasonCode::PoolOverloaded];

/// Verdicts on jobs, in the order of [`Stats::decided`].
pub const VERDICTS: [&str; 5] = ["allow", "allow_with_constraints", "require_approval", "deny", "throttle"];

/// Verdicts on results, in the order of [`Stats::outputs`].
pub const OUTPUT_VERDICTS: [OutputVerdict; 4] =
    [OutputVerdict::Allow, OutputVerdict::Quarantine, OutputVerdict::Deny, OutputVerdict::Redact];

/// Counters of a shard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    pub submitted: u64,
    pub deduplicated: u64,
    pub refused: u64,
    pub dispatched: u64,
    /// Attempts adopted by a newer incarnation of their runner.
    pub adopted: u64,
    /// Infrastructure failures that were refunded because their node was found to be at fault.
    pub refunded_failures: u64,
    /// Jobs that have not ended, by current state.
    pub states: [u64; State::ALL.len()],
    pub ended: [u64; State::ALL.len()],
    /// Time from acceptance of a job to its end.
    pub durations: DurationHistogram,
    pub ignored: [u64; IGNORED_COUNT],
    pub duplicate_messages: u64,
    pub gaps: u64,
    /// Messages that were sent to a runner again.
    pub retransmitted: u64,
    /// Unexpected states, see [`crate::Anomaly`].
    pub anomalies: u64,
    /// Decisions of the policy, in the order of [`VERDICTS`].
    pub decided: [u64; VERDICTS.len()],
    pub failed_open: u64,
    pub policy_unavailable: u64,
    /// Jobs checked again because the policy had changed.
    pub rechecked: u64,
    /// Policy checks and scans that were repeated because there was no answer.
    pub replayed: u64,
    /// Decisions about checked results, in the order of [`OUTPUT_VERDICTS`].
    pub outputs: [u64; OUTPUT_VERDICTS.len()],
    /// Results that passed although they could not be checked.
    pub outputs_skipped: u64,
    pub scans_failed: u64,
    /// Dispatch tries without an eligible runner.
    pub unplaced: u64,
    /// The same by reason, in the order of [`UNPLACED_REASONS`].
    pub unplaced_by: [u64; UNPLACED_REASONS.len()],
    pub approvals_expired: u64,
    pub dead_letters: u64,
    /// Messages of runners beyond the limits.
    pub rejected_messages: u64,
    pub workflows: WorkflowStats,
}

impl Stats {
    /// Counts a job that enters a state that is not terminal.
    pub(crate) fn enter(&mut self, state: State) {
        self.states[usize::from(state.code())] += 1;
    }

    pub(crate) fn count_decision(&mut self, decision: &Decision) {
        let index = match &decision.verdict {
            Verdict::Allow => 0,
            Verdict::AllowWith(_) => 1,
            Verdict::RequireApproval => 2,
            Verdict::Deny => 3,
            Verdict::Throttle(_) => 4,
        };
        self.decided[index] += 1;
    }

    /// Counts a decision about a result. `checked`: the result could be read.
    pub(crate) fn count_output(&mut self, decision: &OutputDecision, checked: bool) {
        let index = match decision.verdict {
            OutputVerdict::Allow => 0,
            OutputVerdict::Quarantine => 1,
            OutputVerdict::Deny => 2,
            OutputVerdict::Redact => 3,
        };
        if checked {
            self.outputs[index] += 1;
        } else {
            self.outputs_skipped += u64::from(decision.verdict.lets_pass());
        }
    }

    pub(crate) fn count_unplaced(&mut self, code: ReasonCode) {
        self.unplaced += 1;
        if let Some(index) = UNPLACED_REASONS.iter().position(|reason| *reason == code) {
            self.unplaced_by[index] += 1;
        }
    }
}

/// Counts a job's transition from a state to its current one.
pub(crate) fn count_transition(
    stats: &mut Stats,
    ready: &mut Ready,
    job: &Job,
    requirement: Option<RequirementId>,
    from: State,
    now: Millis,
) {
    let to = job.state;
    // The scan of a result that is already shown is not a second end.
    if from == to {
        return;
    }
    if !from.is_terminal() {
        stats.states[usize::from(from.code())] -= 1;
    }
    if !to.is_terminal() {
        return stats.enter(to);
    }
    stats.ended[usize::from(to.code())] += 1;
    if !from.is_terminal() {
        stats.durations.add(now.saturating_sub(job.created_at));
    }
    ready.count_end(requirement, job, to);
}

/// A histogram of durations with the buckets of [`DURATION_BOUNDS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DurationHistogram {
    /// Counts per bucket, not cumulative. The last bucket is beyond all bounds.
    pub counts: [u64; DURATION_BOUNDS.len() + 1],
    pub sum: Millis,
}

impl DurationHistogram {
    pub fn add(&mut self, duration: Millis) {
        let bucket = DURATION_BOUNDS.iter().position(|bound| duration <= *bound).unwrap_or(DURATION_BOUNDS.len());
        self.counts[bucket] += 1;
        self.sum = Millis(self.sum.0.saturating_add(duration.0));
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum = Millis(self.sum.0.saturating_add(other.sum.0));
    }
}

/// Counters of a topic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TopicCounts {
    /// Accepted jobs.
    pub received: u64,
    /// Attempts dispatched to runners.
    pub dispatched: u64,
    /// Ended jobs by state.
    pub ended: [u64; State::ALL.len()],
    /// Time that ready jobs waited for a runner.
    pub waits: DurationHistogram,
}

impl TopicCounts {
    /// Adds the counts of the same topic on another shard.
    pub fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.dispatched += other.dispatched;
        for (count, more) in self.ended.iter_mut().zip(other.ended) {
            *count += more;
        }
        self.waits.merge(&other.waits);
    }
}

/// Counters of all topics. `clone_from` into an older copy allocates nothing unless a topic was added.
#[derive(Debug, PartialEq, Eq)]
pub struct TopicStats {
    names: Arc<Vec<Box<str>>>,
    counts: Vec<TopicCounts>,
}

impl Default for TopicStats {
    fn default() -> Self {
        Self { names: Arc::new(vec![OTHER_TOPICS.into()]), counts: vec![TopicCounts::default()] }
    }
}

impl Clone for TopicStats {
    fn clone(&self) -> Self {
        Self { names: self.names.clone(), counts: self.counts.clone() }
    }

    fn clone_from(&mut self, source: &Self) {
        if !Arc::ptr_eq(&self.names, &source.names) {
            self.names = source.names.clone();
        }
        self.counts.clone_from(&source.counts);
    }
}

impl TopicStats {
    /// [`OTHER_TOPICS`] first, then the named topics in order of first use.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TopicCounts)> {
        self.names.iter().map(AsRef::as_ref).zip(&self.counts)
    }
}

/// Index of a topic's counters. Looked up once per requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TopicNumber(u8);

impl TopicNumber {
    pub const OTHER: Self = Self(0);
}

/// Use of a topic's name.
#[derive(Debug, Clone, Copy)]
struct TopicUse {
    number: TopicNumber,
    /// Requirements that refer to the number.
    requirements: u32,
    last_use: u64,
}

/// Counters of all topics, with the index of each topic name.
#[derive(Debug, Default)]
pub(crate) struct TopicCounters {
    names: Map<Box<str>, TopicUse>,
    uses: u64,
    topics: TopicStats,
}

impl TopicCounters {
    pub fn topics(&self) -> &TopicStats {
        &self.topics
    }

    /// The counters of a topic; new or known.
    pub fn number(&mut self, name: &str) -> TopicNumber {
        self.uses += 1;
        if let Some(known) = self.names.get_mut(name) {
            known.last_use = self.uses;
            return known.number;
        }
        if name == OTHER_TOPICS {
            return TopicNumber::OTHER;
        }
        let number = if self.names.len() < TOPICS_NAMED_MAX {
            self.topics.counts.push(TopicCounts::default());
            Arc::make_mut(&mut self.topics.names).push(name.into());
            TopicNumber(self.topics.counts.len() as u8 - 1)
        } else {
            let Some(number) = self.take_idle() else { return TopicNumber::OTHER };
            Arc::make_mut(&mut self.topics.names)[usize::from(number.0)] = name.into();
            number
        };
        self.names.insert(name.into(), TopicUse { number, requirements: 0, last_use: self.uses });
        number
    }

    /// Frees the number of the topic without jobs that was used least recently. Its counts become those of
    /// [`OTHER_TOPICS`], so that sums over all topics do not shrink.
    fn take_idle(&mut self) -> Option<TopicNumber> {
        let idle = self.names.iter().filter(|(_, topic)| topic.requirements == 0);
        let (name, topic) = idle.min_by_key(|(_, topic)| topic.last_use)?;
        let (name, number) = (name.clone(), topic.number);
        self.names.remove(&name);
        let counts = std::mem::take(self.counts(number));
        self.counts(TopicNumber::OTHER).merge(&counts);
        Some(number)
    }

    /// The counters of a topic for a new requirement. They keep their name until [`TopicCounters::release`].
    pub fn acquire(&mut self, name: &str) -> TopicNumber {
        let number = self.number(name);
        if let Some(topic) = self.names.get_mut(name) {
            topic.requirements += 1;
        }
        number
    }

    /// A requirement of the topic is gone.
    pub fn release(&mut self, name: &str, number: TopicNumber) {
        // A requirement may be older than the name of its topic: then it is counted as another.
        if let Some(topic) = self.names.get_mut(name).filter(|topic| topic.number == number) {
            topic.requirements = topic.requirements.saturating_sub(1);
        }
    }

    fn counts(&mut self, number: TopicNumber) -> &mut TopicCounts {
        &mut self.topics.counts[usize::from(number.0)]
    }

    pub fn count_received(&mut self, topic: TopicNumber) {
        self.counts(topic).received += 1;
    }

    /// Counts a dispatched attempt and its waiting time.
    pub fn count_dispatched(&mut self, topic: TopicNumber, waited: Millis) {
        let counts = self.counts(topic);
        counts.dispatched += 1;
        counts.waits.add(waited);
    }

    pub fn count_end(&mut self, topic: TopicNumber, state: State) {
        self.counts(topic).ended[usize::from(state.code())] += 1;
    }

    /// The topic of a job without a known requirement, decoded from its spec.
    pub fn number_of(&mut self, job: &Job) -> TopicNumber {
        match model::spec::decode_topic(&job.spec) {
            Ok(topic) => self.number(topic),
            Err(_) => TopicNumber::OTHER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let mut histogram = DurationHistogram::default();
        for duration in [0, 1, 2, 86_400_000, 86_400_001, u64::MAX] {
            histogram.add(Millis(duration));
        }
        assert_eq!((histogram.counts[0], histogram.counts[1]), (2, 1));
        assert_eq!(histogram.counts[DURATION_BOUNDS.len() - 1..], [1, 2]);
        assert_eq!(histogram.counts.iter().sum::<u64>(), 6);
        assert_eq!(histogram.sum, Millis(u64::MAX), "the sum saturates");
        assert!(DURATION_BOUNDS.is_sorted());
    }

    fn received(counters: &TopicCounters) -> Vec<(&str, u64)> {
        counters.topics().iter().map(|(name, counts)| (name, counts.received)).collect()
    }

    #[test]
    fn topics_with_jobs_beyond_the_limit_are_counted_together() {
        let mut counters = TopicCounters::default();
        for topic in 0..TOPICS_NAMED_MAX + 3 {
            for _ in 0..2 {
                let number = counters.acquire(&format!("topic {topic}"));
                counters.count_received(number);
            }
        }
        let counted = received(&counters);
        assert_eq!(counted.len(), TOPICS_NAMED_MAX + 1);
        assert_eq!(
            (counted[0], counted[1], counted[TOPICS_NAMED_MAX]),
            (("other", 6), ("topic 0", 2), ("topic 63", 2))
        );
    }

    #[test]
    fn a_topic_without_jobs_gives_its_name_up_and_no_count_is_lost() {
        let mut counters = TopicCounters::default();
        let numbers: Vec<TopicNumber> = (0..TOPICS_NAMED_MAX)
            .map(|topic| {
                let number = counters.acquire(&format!("topic {topic}"));
                counters.count_received(number);
                number
            })
            .collect();
        assert_eq!(counters.acquire("new"), TopicNumber::OTHER, "all names are in use");
        counters.release("new", TopicNumber::OTHER);
        for idle in [7, 3] {
            counters.release(&format!("topic {idle}"), numbers[idle]);
        }
        // Used again later than topic 3.
        counters.number("topic 7");
        let new = counters.acquire("new");
        assert_eq!(new, numbers[3], "the one used least recently");
        counters.count_received(new);
        let counted = received(&counters);
        assert!(counted.contains(&("new", 1)) && counted.contains(&("topic 7", 1)) && counted[0] == ("other", 1));
        assert_eq!(counted.iter().map(|(_, count)| count).sum::<u64>(), TOPICS_NAMED_MAX as u64 + 1);
        assert_eq!(counters.acquire("topic 3"), numbers[7], "a name that comes back takes the next idle one");
    }

    #[test]
    fn a_topic_named_other_is_counted_with_the_further_topics() {
        let mut counters = TopicCounters::default();
        assert_eq!(counters.number(OTHER_TOPICS), TopicNumber::OTHER);
        assert_ne!(counters.number("a topic"), TopicNumber::OTHER);
        assert_eq!(counters.topics().iter().count(), 2);
    }

    #[test]
    fn clone_from_updates_a_copy_of_the_topics_in_place() {
        let mut counters = TopicCounters::default();
        let first = counters.number("first");
        counters.count_received(first);
        let mut copy = counters.topics().clone();
        let address = copy.counts.as_ptr();
        counters.count_dispatched(first, Millis(3));
        copy.clone_from(counters.topics());
        assert_eq!((&copy, copy.counts.as_ptr()), (counters.topics(), address));
        counters.number("second");
        copy.clone_from(counters.topics());
        assert_eq!(copy.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["other", "first", "second"]);
    }

    #[test]
    fn counts_of_shards_are_merged() {
        let mut counters = TopicCounters::default();
        let topic = counters.number("a topic");
        counters.count_received(topic);
        counters.count_dispatched(topic, Millis(7));
        counters.count_end(topic, State::Failed);
        let one = *counters.counts(topic);
        let mut both = one;
        both.merge(&one);
        assert_eq!((both.received, both.dispatched, both.ended[usize::from(State::Failed.code())]), (2, 2, 2));
        assert_eq!((both.waits.counts[2], both.waits.sum), (2, Millis(14)));
    }
}
