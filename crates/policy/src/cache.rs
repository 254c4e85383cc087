//! Answers that were given before, by what the rules had read of the job.

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::key::Key;
use crate::limits;
use crate::weigh::JobAnswer;

/// Parts with a lock each, so that those who ask at the same time seldom meet.
const PARTS: usize = 16;

/// A bounded number of answers. Each part has a young and an old half; when the young one is full, it becomes the old
/// one, and what nobody has asked for since the last time is gone.
pub struct Cache {
    parts: Vec<Mutex<Part>>,
    /// Answers in one half of one part.
    half: usize,
}

type Answers = HashMap<Key, JobAnswer, foldhash::fast::FixedState>;

#[derive(Default)]
struct Part {
    young: Answers,
    old: Answers,
}

impl Cache {
    /// A cache for about so many answers, and never for more.
    pub fn new(capacity: usize) -> Self {
        let half = capacity / PARTS / 2;
        Self { parts: (0..PARTS).map(|_| Mutex::default()).collect(), half }
    }

    /// How many answers it holds.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock()).map(|part| part.young.len() + part.old.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.parts.iter().for_each(|part| *part.lock() = Part::default());
    }

    pub(crate) fn get(&self, key: &Key) -> Option<JobAnswer> {
        let mut part = self.parts[key.part(PARTS)].lock();
        if let Some(answer) = part.young.get(key) {
            return Some(answer.clone());
        }
        let answer = part.old.remove(key)?;
        part.put(*key, answer.clone(), self.half);
        Some(answer)
    }

    pub(crate) fn put(&self, key: Key, answer: JobAnswer) {
        if self.half > 0 {
            self.parts[key.part(PARTS)].lock().put(key, answer, self.half);
        }
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::new(limits::CACHED_DECISIONS_DEFAULT)
    }
}

impl Part {
    fn put(&mut self, key: Key, answer: JobAnswer, half: usize) {
        if self.young.len() >= half {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, answer);
    }
}

#[cfg(test)]
mod tests {
    use model::verdict::Verdict;

    use super::*;
    use crate::reads::Reads;
    use crate::weigh::Weighed;

    fn key(number: usize) -> Key {
        let mut reads = Reads::default();
        reads.add([]);
        Key::of(b"", &number, reads.extent()).unwrap()
    }

    fn answer(number: usize) -> JobAnswer {
        (Weighed { verdict: Verdict::Allow, rule: format!("rule{number}"), message: None }, None)
    }

    #[test]
    fn it_never_holds_more_than_it_may() {
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
    fn what_is_asked_for_stays() {
        let cache = Cache::new(320);
        cache.put(key(0), answer(0));
        for number in 1..10_000 {
            cache.put(key(number), answer(number));
            assert_eq!(cache.get(&key(0)), Some(answer(0)), "after {number}");
        }
    }

    #[test]
    fn without_room_it_keeps_nothing() {
        let cache = Cache::new(0);
        cache.put(key(0), answer(0));
        assert_eq!(cache.get(&key(0)), None);
    }
}
