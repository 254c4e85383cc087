//! Answers kept for resent requests: bounded in time, number and bytes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::api::headers::ANSWERS_KEPT_SECS;
use axum::body::Bytes;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use hashbrown::HashMap;
use model::spec::Digest;
use parking_lot::Mutex;
use tokio::sync::watch;

/// A larger answer is not kept.
pub(super) const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Requests in progress and kept answers.
const REQUESTS_MAX: usize = 100_000;
const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Memory of a kept answer besides its body.
const OVERHEAD_BYTES: usize = 256;

const INTERRUPTED: &str = "the server failed while it executed the request: read the state";

/// A client's name of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RequestId(pub u128);

/// An answer that can be sent again.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub status: StatusCode,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Bytes,
}

/// How a request ended.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    Answer(Answer),
    /// It was executed, or may have been, and there is no answer to send again. The text says why.
    Lost(&'static str),
}

impl Outcome {
    fn bytes(&self) -> usize {
        match self {
            Self::Answer(answer) => OVERHEAD_BYTES + answer.body.len(),
            Self::Lost(_) => OVERHEAD_BYTES,
        }
    }
}

/// Limits of the memory.
#[derive(Debug, Clone, Copy)]
struct Limits {
    requests: usize,
    bytes: usize,
    kept_for: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { requests: REQUESTS_MAX, bytes: KEPT_BYTES_MAX, kept_for: Duration::from_secs(ANSWERS_KEPT_SECS) }
    }
}

/// Requests in progress and kept answers, by id. Beyond the limits the oldest answers go.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    limits: Limits,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    requests: HashMap<RequestId, Entry>,
    /// Ended requests with the time of their end, oldest first.
    ended: VecDeque<(Instant, RequestId)>,
    /// Size of all outcomes.
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    fingerprint: Digest,
    progress: Progress,
}

#[derive(Debug)]
enum Progress {
    Running(watch::Receiver<Option<Outcome>>),
    Ended(Outcome),
}

/// Why a request with an id cannot be taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rejected {
    /// The id belongs to another request.
    Conflict,
    /// The limit of requests in progress is reached.
    Full,
}

/// What to do with a request.
#[derive(Debug)]
pub(super) enum Begun {
    /// It is new: execute it.
    First(Execution),
    /// It was sent before.
    Resent(Resent),
}

impl Replays {
    pub(super) fn begin(self: &Arc<Self>, id: RequestId, fingerprint: Digest, now: Instant) -> Result<Begun, Rejected> {
        let mut kept = self.kept.lock();
        kept.expire(now, self.limits.kept_for);
        if let Some(entry) = kept.requests.get(&id) {
            if entry.fingerprint != fingerprint {
                return Err(Rejected::Conflict);
            }
            return Ok(Begun::Resent(match &entry.progress {
                Progress::Running(outcome) => Resent::Running(outcome.clone()),
                Progress::Ended(outcome) => Resent::Ended(outcome.clone()),
            }));
        }
        while kept.requests.len() >= self.limits.requests {
            if !kept.forget_oldest() {
                return Err(Rejected::Full);
            }
        }
        let (sender, outcome) = watch::channel(None);
        kept.requests.insert(id, Entry { fingerprint, progress: Progress::Running(outcome) });
        Ok(Begun::First(Execution { replays: self.clone(), id, sender: Some(sender) }))
    }

    fn keep(&self, id: RequestId, outcome: Outcome, now: Instant) {
        let mut kept = self.kept.lock();
        let Some(entry) = kept.requests.get_mut(&id) else { return };
        let bytes = outcome.bytes();
        entry.progress = Progress::Ended(outcome);
        kept.ended.push_back((now, id));
        kept.bytes += bytes;
        while kept.bytes > self.limits.bytes && kept.forget_oldest() {}
    }

    fn forget(&self, id: RequestId) {
        self.kept.lock().requests.remove(&id);
    }
}

impl Kept {
    fn expire(&mut self, now: Instant, kept_for: Duration) {
        while self.ended.front().is_some_and(|(at, _)| now.duration_since(*at) >= kept_for) {
            self.forget_oldest();
        }
    }

    /// False if there is none.
    fn forget_oldest(&mut self) -> bool {
        let Some((_, id)) = self.ended.pop_front() else { return false };
        if let Some(Entry { progress: Progress::Ended(outcome), .. }) = self.requests.remove(&id) {
            self.bytes -= outcome.bytes();
        }
        true
    }
}

/// The execution of a request. Dropped without an outcome, the request counts as lost.
#[derive(Debug)]
pub(super) struct Execution {
    replays: Arc<Replays>,
    id: RequestId,
    /// Taken with the outcome.
    sender: Option<watch::Sender<Option<Outcome>>>,
}

impl Execution {
    /// The outcome is that of every resend.
    pub(super) fn keep(mut self, outcome: Outcome) {
        self.end(outcome);
    }

    /// The request had no effect: those who wait get the answer, and a later resend is executed.
    pub(super) fn forget(mut self, answer: Answer) {
        if let Some(sender) = self.sender.take() {
            self.replays.forget(self.id);
            sender.send_replace(Some(Outcome::Answer(answer)));
        }
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some(sender) = self.sender.take() {
            self.replays.keep(self.id, outcome.clone(), Instant::now());
            sender.send_replace(Some(outcome));
        }
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        self.end(Outcome::Lost(INTERRUPTED));
    }
}

/// A request that was sent before.
#[derive(Debug)]
pub(super) enum Resent {
    Running(watch::Receiver<Option<Outcome>>),
    Ended(Outcome),
}

impl Resent {
    /// The outcome, once there is one.
    pub(super) async fn outcome(self) -> Outcome {
        match self {
            Self::Ended(outcome) => outcome,
            Self::Running(mut outcome) => match outcome.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(outcome)) => outcome.clone(),
                Ok(None) | Err(_) => Outcome::Lost(INTERRUPTED),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replays(requests: usize, bytes: usize) -> Arc<Replays> {
        let limits = Limits { requests, bytes, ..Limits::default() };
        Arc::new(Replays { limits, kept: Mutex::default() })
    }

    fn answer(text: &str) -> Answer {
        Answer { status: StatusCode::OK, headers: Vec::new(), body: Bytes::copy_from_slice(text.as_bytes()) }
    }

    fn begin(replays: &Arc<Replays>, id: u128, now: Instant) -> Result<Begun, Rejected> {
        replays.begin(RequestId(id), Digest([1; 16]), now)
    }

    #[track_caller]
    fn first(replays: &Arc<Replays>, id: u128, now: Instant) -> Execution {
        match begin(replays, id, now) {
            Ok(Begun::First(execution)) => execution,
            other => panic!("{other:?}"),
        }
    }

    fn execute(replays: &Arc<Replays>, id: u128, text: &str) {
        first(replays, id, Instant::now()).keep(Outcome::Answer(answer(text)));
    }

    /// The answer to a resend; `None` if the request is not known.
    async fn resent(replays: &Arc<Replays>, id: u128) -> Option<String> {
        match begin(replays, id, Instant::now()).unwrap() {
            Begun::First(execution) => {
                execution.forget(answer(""));
                None
            }
            Begun::Resent(resent) => Some(match resent.outcome().await {
                Outcome::Answer(answer) => String::from_utf8(answer.body.to_vec()).unwrap(),
                Outcome::Lost(why) => why.to_owned(),
            }),
        }
    }

    // FEATURES: A14
    #[tokio::test]
    async fn a_resend_gets_the_first_answer_and_another_request_a_conflict() {
        let replays = replays(10, 10_000);
        execute(&replays, 1, "one");
        assert_eq!(resent(&replays, 1).await.as_deref(), Some("one"));
        let other = replays.begin(RequestId(1), Digest([2; 16]), Instant::now());
        assert_eq!(other.unwrap_err(), Rejected::Conflict);
        assert_eq!(resent(&replays, 2).await, None);
    }

    // FEATURES: A14
    #[tokio::test]
    async fn a_resend_waits_for_the_execution() {
        let replays = replays(10, 10_000);
        let execution = first(&replays, 1, Instant::now());
        let waiting = tokio::spawn({
            let replays = replays.clone();
            async move { resent(&replays, 1).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        execution.keep(Outcome::Answer(answer("one")));
        assert_eq!(waiting.await.unwrap().as_deref(), Some("one"));
    }

    #[tokio::test]
    async fn a_request_without_effect_is_executed_again() {
        let replays = replays(10, 10_000);
        let execution = first(&replays, 1, Instant::now());
        let Begun::Resent(waiting) = begin(&replays, 1, Instant::now()).unwrap() else { panic!("it was sent before") };
        execution.forget(answer("busy"));
        assert!(matches!(waiting.outcome().await, Outcome::Answer(answer) if &answer.body[..] == b"busy"));
        assert_eq!(resent(&replays, 1).await, None);
    }

    #[tokio::test]
    async fn a_failed_execution_is_not_repeated() {
        let replays = replays(10, 10_000);
        drop(first(&replays, 1, Instant::now()));
        assert_eq!(resent(&replays, 1).await.as_deref(), Some(INTERRUPTED));
    }

    // FEATURES: A14
    #[tokio::test]
    async fn the_oldest_answers_go_first() {
        let by_number = replays(3, 10_000);
        for id in 1..=4 {
            execute(&by_number, id, "text");
        }
        assert_eq!(resent(&by_number, 4).await.as_deref(), Some("text"));
        assert_eq!(resent(&by_number, 2).await.as_deref(), Some("text"));
        // This one takes the place of another one.
        assert_eq!(resent(&by_number, 1).await, None);
        assert_eq!(resent(&by_number, 2).await, None);

        let by_bytes = replays(10, 2 * (OVERHEAD_BYTES + 100));
        for id in 1..=3 {
            execute(&by_bytes, id, &"x".repeat(100));
        }
        assert_eq!(by_bytes.kept.lock().bytes, 2 * (OVERHEAD_BYTES + 100));
        assert_eq!(resent(&by_bytes, 1).await, None);
        assert!(resent(&by_bytes, 2).await.is_some() && resent(&by_bytes, 3).await.is_some());
    }

    #[tokio::test]
    async fn requests_in_progress_are_not_forgotten() {
        let replays = replays(2, 10_000);
        let _executions = [first(&replays, 1, Instant::now()), first(&replays, 2, Instant::now())];
        assert_eq!(begin(&replays, 3, Instant::now()).unwrap_err(), Rejected::Full);
    }

    // FEATURES: A14
    #[tokio::test]
    async fn answers_expire() {
        let replays = replays(10, 10_000);
        execute(&replays, 1, "one");
        let soon = Instant::now() + Duration::from_secs(ANSWERS_KEPT_SECS - 10);
        assert!(matches!(begin(&replays, 1, soon), Ok(Begun::Resent(_))));
        let late = Instant::now() + Duration::from_secs(ANSWERS_KEPT_SECS);
        assert!(matches!(begin(&replays, 1, late), Ok(Begun::First(_))));
        assert_eq!(replays.kept.lock().requests.len(), 1, "the one of the last request");
    }
}
