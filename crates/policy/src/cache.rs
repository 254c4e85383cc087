//! Cache of answers, by the parts of a job that the rules read.

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::combine::JobAnswer;
use crate::key::Key;
use crate::limits;

/// Separately locked segments, against lock contention.
const SEGMENTS: usize = 16;

/// Bounded cache with two generations per segment. When the young one is full it replaces the old one, and with it all
/// answers that were not used since.
pub struct Cache {
    segments: Vec<Mutex<Segment>>,
    /// Capacity of one generation of one segment.
    generation_max: usize,
}

type Answers = HashMap<Key, JobAnswer, foldhash::fast::FixedState>;

#[derive(Default)]
struct Segment {
    young: Answers,
    old: Answers,
}

impl Cache {
    /// Holds at most `capacity` answers.
    pub fn new(capacity: usize) -> Self {
        let generation_max = capacity / SEGMENTS / 2;
        Self { segments: (0..SEGMENTS).map(|_| Mutex::default()).collect(), generation_max }
    }

    /// Number of cached answers.
    pub fn len(&self) -> usize {
        self.segments.iter().map(|segment| segment.lock()).map(|segment| segment.young.len() + segment.old.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn clear(&self) {
        self.segments.iter().for_each(|segment| *segment.lock() = Segment::default());
    }

    pub(crate) fn get(&self, key: &Key) -> Option<JobAnswer> {
        let mut segment = self.segments[key.segment(SEGMENTS)].lock();
        if let Some(answer) = segment.young.get(key) {
            return Some(answer.clone());
        }
        let answer = segment.old.remove(key)?;
        segment.put(*key, answer.clone(), self.generation_max);
        Some(answer)
    }

    pub(crate) fn put(&self, key: Key, answer: JobAnswer) {
        if self.generation_max > 0 {
            self.segments[key.segment(SEGMENTS)].lock().put(key, answer, self.generation_max);
        }
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::new(limits::CACHED_DECISIONS_DEFAULT)
    }
}

impl Segment {
    fn put(&mut self, key: Key, answer: JobAnswer, generation_max: usize) {
        if self.young.len() >= generation_max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, answer);
    }
}

#[cfg(test)]
mod tests {
    use model::verdict::Verdict;

    use super::*;
    use crate::combine::Answer;
    use crate::read_set::ReadSet;

    fn key(number: usize) -> Key {
        let mut reads = ReadSet::default();
        reads.add([]);
        Key::of(b"", &number, reads.extent()).unwrap()
    }

    fn answer(number: usize) -> JobAnswer {
        (Answer { verdict: Verdict::Allow, rule: format!("rule{number}"), message: None }, None)
    }

    #[test]
    fn it_never_exceeds_its_capacity() {
        let cache = Cache::new(320);
        for number in 0..10_000 {
            cache.put(key(number), answer(number));
            assert_eq!(cache.get(&key(number)), Some(answer(number)));
            assert!(cache.len() <= 320);
        }
        assert!(cache.len() > 100);
        cache.clear();
        assert!(cache.is_empty());
    }

    #[test]
    fn used_answers_stay() {
        let cache = Cache::new(320);
        cache.put(key(0), answer(0));
        for number in 1..10_000 {
            cache.put(key(number), answer(number));
            assert_eq!(cache.get(&key(0)), Some(answer(0)), "after {number}");
        }
    }

    #[test]
    fn a_capacity_of_zero_disables_the_cache() {
        let cache = Cache::new(0);
        cache.put(key(0), answer(0));
        assert_eq!(cache.get(&key(0)), None);
    }
}
