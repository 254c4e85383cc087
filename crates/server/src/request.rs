//! Requests to a shard, each with the type of its answer.

use engine::{
    Accepted, Actor, Answer, ApprovalDecision, Input, NewQueue, NewSchedule, NewWorkflow, Refusal, RequestId,
    Submission, Why,
};
use model::id::{JobId, QueueId, ScheduleId, WorkflowId};
use model::job::Job;
use model::queue::{Queue, QueueRef};
use model::workflow::{Schedule, Signal, Workflow};

use crate::inbox::Unanswered;

/// A request to a shard.
pub(crate) trait Request {
    type Answer;

    /// The request as an input of the engine.
    fn input(self, request: RequestId) -> Input;

    /// The expected answer; none if the engine gave another.
    fn answer(answer: Answer) -> Option<Self::Answer>;
}

/// A request without the answer it was made for.
#[derive(Debug, Clone)]
pub(crate) enum RequestError {
    /// The shard refused it.
    Refused(Refusal),
    Unanswered(Unanswered),
    /// The engine gave an answer of another request. A bug.
    Mismatch,
}

impl From<Unanswered> for RequestError {
    fn from(unanswered: Unanswered) -> Self {
        Self::Unanswered(unanswered)
    }
}

/// Checks an answer of the engine against its request.
pub(crate) fn check<R: Request>(answer: Answer) -> Result<R::Answer, RequestError> {
    match answer {
        Answer::Refused(refusal) => Err(RequestError::Refused(refusal)),
        answer => R::answer(answer).ok_or_else(|| {
            tracing::error!(request = std::any::type_name::<R>(), "the engine gave the answer of another request");
            RequestError::Mismatch
        }),
    }
}

/// Defines requests by the input of the same name, their fields and their answer.
macro_rules! requests {
    ($($name:ident { $($field:ident: $type:ty),* } -> $answer:ty { $($pattern:pat => $value:expr),* })*) => {$(
        #[derive(Debug)]
        pub(crate) struct $name {
            $(pub $field: $type,)*
        }

        impl Request for $name {
            type Answer = $answer;

            fn input(self, request: RequestId) -> Input {
                let Self { $($field),* } = self;
                Input::$name { request, $($field),* }
            }

            fn answer(answer: Answer) -> Option<$answer> {
                match answer {
                    $($pattern => Some($value),)*
                    _ => None,
                }
            }
        }
    )*};
}

requests! {
    Submit { jobs: Vec<Submission> } -> Vec<Result<Accepted, Refusal>> { Answer::Submitted(results) => results }
    Cancel { job: JobId, by: Actor } -> Box<Job> { Answer::Job(job) => job }
    Retract { job: JobId, by: Actor } -> Box<Job> { Answer::Job(job) => job }
    Retry { job: JobId, by: Actor } -> Box<Job> { Answer::Job(job) => job }
    Release { job: JobId, by: Actor } -> Box<Job> { Answer::Job(job) => job }
    Remove { job: JobId, by: Actor } -> () { Answer::Removed => () }
    Purge { job: JobId, by: Actor } -> () { Answer::Removed => () }
    Approve { job: JobId, decision: Box<ApprovalDecision> } -> Box<Job> { Answer::Job(job) => job }
    ReadOriginal { job: JobId, by: Actor } -> Box<Job> { Answer::Job(job) => job }
    Explain { job: JobId } -> Box<Why> { Answer::Why(why) => why }
    Progress { job: JobId, percent: u8, message: Option<String> } -> () { Answer::Progressed => () }

    CreateQueue { queue: Box<NewQueue> } -> CreatedQueue {
        Answer::Queue(queue) => CreatedQueue::Queue(queue),
        Answer::QueueExists(id) => CreatedQueue::Exists(id)
    }
    DrainQueue { queue: QueueRef, by: Actor } -> Box<Queue> { Answer::Queue(queue) => queue }
    CancelQueue { queue: QueueRef, by: Actor } -> Box<Queue> { Answer::Queue(queue) => queue }
    RemoveQueue { queue: QueueRef, by: Actor } -> () { Answer::QueueRemoved => () }

    StartWorkflow { workflow: Box<NewWorkflow> } -> StartedWorkflow {
        Answer::Workflow(workflow) => StartedWorkflow::Started(workflow),
        Answer::WorkflowExists(id) => StartedWorkflow::Exists(id)
    }
    CancelWorkflow { workflow: WorkflowId, by: Actor, compensate: bool } -> Box<Workflow> {
        Answer::Workflow(workflow) => workflow
    }
    PauseWorkflow { workflow: WorkflowId, by: Actor } -> Box<Workflow> { Answer::Workflow(workflow) => workflow }
    ResumeWorkflow { workflow: WorkflowId, by: Actor } -> Box<Workflow> { Answer::Workflow(workflow) => workflow }
    RerunWorkflow { workflow: WorkflowId, from: Option<String>, by: Actor } -> Box<Workflow> {
        Answer::Workflow(workflow) => workflow
    }
    SignalWorkflow { workflow: WorkflowId, signal: Box<Signal> } -> Box<Workflow> {
        Answer::Workflow(workflow) => workflow
    }
    RetryCompensation { workflow: WorkflowId, letter: JobId, by: Actor } -> Box<Job> { Answer::Job(job) => job }
    PurgeCompensation { workflow: WorkflowId, letter: JobId, by: Actor } -> () { Answer::Removed => () }
    RemoveWorkflow { workflow: WorkflowId, by: Actor } -> () { Answer::WorkflowRemoved => () }

    CreateSchedule { schedule: Box<NewSchedule> } -> Box<Schedule> { Answer::Schedule(schedule) => schedule }
    PauseSchedule { schedule: ScheduleId, paused: bool, by: Actor } -> Box<Schedule> {
        Answer::Schedule(schedule) => schedule
    }
    RemoveSchedule { schedule: ScheduleId, by: Actor } -> () { Answer::ScheduleRemoved => () }
    TriggerSchedule { schedule: ScheduleId, by: Actor } -> Box<Workflow> { Answer::Workflow(workflow) => workflow }
}

/// A new queue, or the id of one created before under the same idempotency key. That one may have been removed.
#[derive(Debug)]
pub(crate) enum CreatedQueue {
    Queue(Box<Queue>),
    Exists(QueueId),
}

/// A new workflow, or the id of one started before under the same idempotency key. That one may have been removed.
#[derive(Debug)]
pub(crate) enum StartedWorkflow {
    Started(Box<Workflow>),
    Exists(WorkflowId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_another_request_is_a_mismatch() {
        assert!(matches!(check::<Remove>(Answer::Removed), Ok(())));
        assert!(matches!(check::<Remove>(Answer::QueueRemoved), Err(RequestError::Mismatch)));
        let refused = check::<Remove>(Answer::Refused(Refusal::NothingToRerun));
        assert!(matches!(refused, Err(RequestError::Refused(Refusal::NothingToRerun))));
    }
}
