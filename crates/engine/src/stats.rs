//! What a shard counts, for operators to look at. Nothing is decided by these numbers.
//!
//! All of it is plain numbers in arrays: counting happens in the middle of the work, and the shell copies them after
//! every round.

use std::sync::Arc;

use model::job::Job;
use model::machine::Ignored;
use model::reason::ReasonCode;
use model::state::State;
use model::time::Millis;
use model::verdict::{Decision, OutputDecision, OutputVerdict, Verdict};

use crate::flows::FlowStats;
use crate::placement::ask::Asks;
use crate::shard::{Entry, Map};

/// So many topics are counted by their names; the rest are counted together, under [`OTHER_TOPICS`].
pub const TOPICS_NAMED_MAX: usize = 64;

/// The name of all topics that are not counted by theirs. A topic that is called so is one of them.
pub const OTHER_TOPICS: &str = "other";

/// Up to which length spans of time are counted together; those that are longer than the last have a place of their own.
pub const SPAN_BOUNDS: [Millis; 16] = [
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

/// How many reasons an event can be ignored for.
const IGNORED_COUNT: usize = Ignored::ALL.len();

/// Why no runner could take a job, as [`Stats::unplaced_by`] counts it.
pub const UNPLACED_REASONS: [ReasonCode; 3] =
    [ReasonCode::NoPoolMapping, ReasonCode::NoWorkers, ReasonCode::PoolOverloaded];

/// The verdicts on jobs, as [`Stats::decided`] counts them.
pub const VERDICTS: [&str; 5] = ["allow", "allow_with_constraints", "require_approval", "deny", "throttle"];

/// The verdicts on results, as [`Stats::outputs`] counts them.
pub const OUTPUT_VERDICTS: [OutputVerdict; 4] =
    [OutputVerdict::Allow, OutputVerdict::Quarantine, OutputVerdict::Deny, OutputVerdict::Redact];

/// Counts of things that are no errors but worth knowing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    pub submitted: u64,
    pub deduplicated: u64,
    pub refused: u64,
    pub dispatched: u64,
    /// Attempts that outlived their runner and were found again by its next incarnation.
    pub adopted: u64,
    /// Jobs that have not ended, by the state they are in now.
    pub states: [u64; State::ALL.len()],
    pub ended: [u64; State::ALL.len()],
    /// How long jobs took from being accepted to their end.
    pub durations: Spans,
    pub ignored: [u64; IGNORED_COUNT],
    pub duplicate_words: u64,
    pub gaps: u64,
    /// Decisions of the policy, in the order of [`VERDICTS`].
    pub decided: [u64; VERDICTS.len()],
    pub failed_open: u64,
    pub policy_unavailable: u64,
    /// Jobs that went back to the gate because the policy had changed.
    pub rechecked: u64,
    /// Questions that were asked again because nobody had answered.
    pub replayed: u64,
    /// Decisions about results that were looked at, in the order of [`OUTPUT_VERDICTS`].
    pub outputs: [u64; OUTPUT_VERDICTS.len()],
    /// Results that were let through though they could not be looked at.
    pub outputs_skipped: u64,
    pub scans_failed: u64,
    /// Looks for a runner when there was none fit.
    pub unplaced: u64,
    /// The same by their reasons, in the order of [`UNPLACED_REASONS`].
    pub unplaced_by: [u64; UNPLACED_REASONS.len()],
    pub approvals_expired: u64,
    pub dead_letters: u64,
    /// Words of runners that could not be taken.
    pub parked_words: u64,
    pub flows: FlowStats,
}

impl Stats {
    /// A job has come into memory, in a state that is not its end.
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

    /// What was decided about a result, and whether that was looked at.
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

/// A job has gone from a state to the one it is in now.
pub(crate) fn count_transition(stats: &mut Stats, asks: &mut Asks, entry: &Entry, from: State, now: Millis) {
    let to = entry.job.state;
    // A look at a result that was already shown is no second end.
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
        stats.durations.add(now.saturating_sub(entry.job.created_at));
    }
    let topic = asks.topic_of(entry.ask, &entry.job);
    asks.topics.count_end(topic, to);
}

/// Lengths of time, counted by [`SPAN_BOUNDS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spans {
    /// Those that are no longer than the bound of the same place and longer than the one before; the last are longer
    /// than all bounds.
    pub counts: [u64; SPAN_BOUNDS.len() + 1],
    pub sum: Millis,
}

impl Spans {
    pub fn add(&mut self, span: Millis) {
        let place = SPAN_BOUNDS.iter().position(|bound| span <= *bound).unwrap_or(SPAN_BOUNDS.len());
        self.counts[place] += 1;
        self.sum = Millis(self.sum.0.saturating_add(span.0));
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum = Millis(self.sum.0.saturating_add(other.sum.0));
    }
}

/// What is counted of each topic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TopicCounts {
    /// Jobs that were accepted.
    pub received: u64,
    /// Attempts that were given to runners.
    pub dispatched: u64,
    /// Jobs that have ended, by state.
    pub ended: [u64; State::ALL.len()],
    /// How long jobs that could run waited for a runner.
    pub waits: Spans,
}

impl TopicCounts {
    /// Adds what another shard has counted of the same topic.
    pub fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.dispatched += other.dispatched;
        for (count, more) in self.ended.iter_mut().zip(other.ended) {
            *count += more;
        }
        self.waits.merge(&other.waits);
    }
}

/// The counts of all topics. To copy them again into a copy from before costs no memory, unless a topic was added.
#[derive(Debug, PartialEq, Eq)]
pub struct Topics {
    names: Arc<Vec<Box<str>>>,
    counts: Vec<TopicCounts>,
}

impl Default for Topics {
    fn default() -> Self {
        Self { names: Arc::new(vec![OTHER_TOPICS.into()]), counts: vec![TopicCounts::default()] }
    }
}

impl Clone for Topics {
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

impl Topics {
    /// Those that are counted together come first, the others in the order in which they came up.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TopicCounts)> {
        self.names.iter().map(AsRef::as_ref).zip(&self.counts)
    }
}

/// A topic by number: jobs that ask for the same look it up once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TopicNumber(u8);

impl TopicNumber {
    pub const OTHER: Self = Self(0);
}

/// The counts of all topics, and where each is counted.
#[derive(Debug, Default)]
pub(crate) struct TopicBook {
    numbers: Map<Box<str>, TopicNumber>,
    topics: Topics,
}

impl TopicBook {
    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// Where a topic is counted from now on.
    pub fn number(&mut self, name: &str) -> TopicNumber {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        if name == OTHER_TOPICS || self.numbers.len() >= TOPICS_NAMED_MAX {
            return TopicNumber::OTHER;
        }
        let number = TopicNumber(self.topics.counts.len() as u8);
        self.topics.counts.push(TopicCounts::default());
        Arc::make_mut(&mut self.topics.names).push(name.into());
        self.numbers.insert(name.into(), number);
        number
    }

    fn counts(&mut self, number: TopicNumber) -> &mut TopicCounts {
        &mut self.topics.counts[usize::from(number.0)]
    }

    pub fn count_received(&mut self, topic: TopicNumber) {
        self.counts(topic).received += 1;
    }

    /// An attempt goes to a runner after a wait.
    pub fn count_dispatched(&mut self, topic: TopicNumber, waited: Millis) {
        let counts = self.counts(topic);
        counts.dispatched += 1;
        counts.waits.add(waited);
    }

    fn count_end(&mut self, topic: TopicNumber, state: State) {
        self.counts(topic).ended[usize::from(state.code())] += 1;
    }

    /// The topic of a job that does not share its ask with others now.
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
    fn a_span_is_counted_at_the_first_bound_that_it_does_not_exceed() {
        let mut spans = Spans::default();
        for span in [0, 1, 2, 86_400_000, 86_400_001, u64::MAX] {
            spans.add(Millis(span));
        }
        assert_eq!((spans.counts[0], spans.counts[1]), (2, 1));
        assert_eq!(spans.counts[SPAN_BOUNDS.len() - 1..], [1, 2]);
        assert_eq!(spans.counts.iter().sum::<u64>(), 6);
        assert_eq!(spans.sum, Millis(u64::MAX), "as much as there can be");
        assert!(SPAN_BOUNDS.is_sorted());
    }

    #[test]
    fn topics_beyond_the_limit_are_counted_together() {
        let mut book = TopicBook::default();
        for topic in 0..TOPICS_NAMED_MAX + 3 {
            for _ in 0..2 {
                let number = book.number(&format!("topic {topic}"));
                book.count_received(number);
            }
        }
        let counted: Vec<(&str, u64)> = book.topics().iter().map(|(name, counts)| (name, counts.received)).collect();
        assert_eq!(counted.len(), TOPICS_NAMED_MAX + 1);
        assert_eq!(
            (counted[0], counted[1], counted[TOPICS_NAMED_MAX]),
            (("other", 6), ("topic 0", 2), ("topic 63", 2))
        );
    }

    #[test]
    fn a_topic_that_is_called_like_the_others_is_one_of_them() {
        let mut book = TopicBook::default();
        assert_eq!(book.number(OTHER_TOPICS), TopicNumber::OTHER);
        assert_ne!(book.number("a topic"), TopicNumber::OTHER);
        assert_eq!(book.topics().iter().count(), 2);
    }

    #[test]
    fn a_copy_of_the_topics_is_brought_up_to_date_in_place() {
        let mut book = TopicBook::default();
        let first = book.number("first");
        book.count_received(first);
        let mut copy = book.topics().clone();
        let place = copy.counts.as_ptr();
        book.count_dispatched(first, Millis(3));
        copy.clone_from(book.topics());
        assert_eq!((&copy, copy.counts.as_ptr()), (book.topics(), place));
        book.number("second");
        copy.clone_from(book.topics());
        assert_eq!(copy.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["other", "first", "second"]);
    }

    #[test]
    fn what_shards_have_counted_adds_up() {
        let mut book = TopicBook::default();
        let topic = book.number("a topic");
        book.count_received(topic);
        book.count_dispatched(topic, Millis(7));
        book.count_end(topic, State::Failed);
        let one = *book.counts(topic);
        let mut both = one;
        both.merge(&one);
        assert_eq!((both.received, both.dispatched, both.ended[usize::from(State::Failed.code())]), (2, 2, 2));
        assert_eq!((both.waits.counts[2], both.waits.sum), (2, Millis(14)));
    }
}
