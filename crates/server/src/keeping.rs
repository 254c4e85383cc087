//! Large results of tasks: tasks hand on small values, so a large one becomes a blob, and what is handed on names it.

use blobs::Blobs;
use bytes::Bytes;
use model::blob::BlobId;
use model::job::{End, Job, Outcome};
use model::json::Json;
use model::limits;
use model::workflow::Origin;
use serde::{Deserialize, Serialize};

use crate::inbox::{Inbox, Message};

/// What is handed on instead of a large result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kept {
    pub blob: BlobId,
    /// Of the JSON in it.
    pub bytes: u64,
}

/// `{"blob":"blob:…","bytes":…}` is no longer than this.
const KEPT_BYTES_MAX: usize = 128;

impl Kept {
    /// What the result of a job stands for, if it was too large to be handed on.
    pub fn of(origin: Option<&Origin>, result: Option<&Json>) -> Option<Self> {
        let result = result.filter(|result| result.as_bytes().len() <= KEPT_BYTES_MAX)?;
        origin.filter(|origin| !origin.compensation)?;
        let kept: Self = serde_json::from_slice(result.as_bytes()).ok()?;
        // A program may print such a thing itself. What was really too large has a size between these.
        let sizes = limits::TASK_RESULT_BYTES_MAX as u64 + 1..=limits::RESULT_BYTES_MAX as u64;
        sizes.contains(&kept.bytes).then_some(kept)
    }
}

/// The result of an attempt, if it is too large for the task that its job does.
pub(crate) fn too_large<'a>(job: &Job, outcome: &'a Outcome) -> Option<&'a Json> {
    let hands_on = job.origin.as_deref().is_some_and(|origin| !origin.compensation) && outcome.end == End::Succeeded;
    outcome.result.as_ref().filter(|result| hands_on && result.as_bytes().len() > limits::TASK_RESULT_BYTES_MAX)
}

/// Stores large results away from the thread of the shard, which goes on with everything else meanwhile.
pub(crate) struct Keeper {
    pub blobs: Blobs,
    pub tasks: tokio::runtime::Handle,
    /// The shard's own.
    pub inbox: Inbox,
}

impl Keeper {
    /// Tells the shard when it is done.
    pub fn keep(&self, result: &Json) {
        let content = Bytes::copy_from_slice(result.as_bytes());
        let (blobs, inbox) = (self.blobs.clone(), self.inbox.clone());
        self.tasks.spawn(async move {
            let bytes = content.len() as u64;
            let kept = blobs.put(content).await.map(|blob| Kept { blob, bytes });
            // A shard that has stopped hears of the attempt again after the next start.
            let _ = inbox.post(Message::Kept(kept.map_err(|error| error.to_string())));
        });
    }
}

/// Puts the name of what was kept in the place of a large result. What could not be kept is no success.
pub(crate) fn replace(outcome: &mut Outcome, kept: Result<Kept, String>) {
    match kept {
        Ok(kept) => outcome.result = Some(Json::of(&kept)),
        Err(error) => {
            outcome.end = End::Infrastructure;
            outcome.message = Some(format!("its result cannot be kept: {error}"));
            outcome.result = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use model::id::WorkflowId;
    use model::workflow::Place;

    use super::*;

    fn origin(compensation: bool) -> Origin {
        Origin { workflow: WorkflowId(1), place: Place::of(0), compensation }
    }

    #[test]
    fn what_was_kept_is_recognised_and_nothing_else() {
        let blob = BlobId::of(b"x");
        let kept = |bytes: usize| Kept { blob, bytes: bytes as u64 };
        let task = origin(false);
        for bytes in [limits::TASK_RESULT_BYTES_MAX + 1, limits::RESULT_BYTES_MAX] {
            let result = Json::of(&kept(bytes));
            assert!(result.as_bytes().len() <= KEPT_BYTES_MAX);
            assert_eq!(Kept::of(Some(&task), Some(&result)), Some(kept(bytes)));
            assert_eq!(Kept::of(None, Some(&result)), None, "of no workflow");
            assert_eq!(Kept::of(Some(&origin(true)), Some(&result)), None, "a compensation hands nothing on");
        }
        for bytes in [limits::TASK_RESULT_BYTES_MAX, limits::RESULT_BYTES_MAX + 1] {
            assert_eq!(Kept::of(Some(&task), Some(&Json::of(&kept(bytes)))), None);
        }
        assert_eq!(Kept::of(Some(&task), Some(&Json::of(&"x"))), None);
        assert_eq!(Kept::of(Some(&task), None), None);
    }

    #[test]
    fn what_could_not_be_kept_is_tried_again() {
        let mut outcome = Outcome { result: Some(Json::of(&"large")), ..Outcome::of(End::Succeeded) };
        replace(&mut outcome, Err("no space".to_owned()));
        assert_eq!((outcome.end, &outcome.result), (End::Infrastructure, &None));
        assert!(outcome.message.is_some_and(|message| message.contains("no space")));
    }
}
