//! Result spill: a large result of a workflow task is stored as a blob before the end of its attempt is recorded, so
//! that records stay small.

use model::job::{End, Job, Outcome, SpilledResult};
use model::json::Json;

/// The result of an attempt, if it is too large for its task.
pub(crate) fn too_large<'a>(job: &Job, outcome: &'a Outcome, bytes_max: usize) -> Option<&'a Json> {
    let is_task_result =
        job.origin.as_deref().is_some_and(|origin| !origin.compensation) && outcome.end == End::Succeeded;
    let is_large = |result: &&Json| result.as_bytes().len() > bytes_max;
    outcome.result.as_ref().filter(|_| is_task_result && outcome.spilled.is_none()).filter(is_large)
}

/// Replaces a large result by a reference. A result that could not be stored fails the attempt.
pub(crate) fn replace(outcome: &mut Outcome, spilled: Result<SpilledResult, String>) {
    match spilled {
        Ok(spilled) => {
            outcome.result = Some(Json::of(&spilled));
            outcome.spilled = Some(Box::new(spilled));
        }
        Err(error) => {
            outcome.end = End::Infrastructure;
            outcome.message = Some(format!("cannot store the result: {error}"));
            outcome.result = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use model::blob::BlobId;

    use super::*;

    #[test]
    fn a_spilled_result_is_a_typed_reference() {
        let mut outcome = Outcome { result: Some(Json::of(&"large")), ..Outcome::of(End::Succeeded) };
        let spilled = SpilledResult { blob: BlobId::of(b"large"), bytes: 7 };
        replace(&mut outcome, Ok(spilled));
        assert_eq!(outcome.spilled.as_deref(), Some(&spilled));
        assert_eq!(outcome.result, Some(Json::of(&spilled)));
    }

    #[test]
    fn a_result_that_could_not_be_stored_fails_the_attempt() {
        let mut outcome = Outcome { result: Some(Json::of(&"large")), ..Outcome::of(End::Succeeded) };
        replace(&mut outcome, Err("no space left".to_owned()));
        assert_eq!((outcome.end, outcome.result), (End::Infrastructure, None));
        assert!(outcome.message.unwrap().contains("no space left"));
    }
}
