//! Clients: they submit jobs, cancel and operate on jobs of any client, and resend requests without an answer.

use std::collections::BTreeMap;

use engine::{Actor, Answer, ApprovalDecision, Input, NewQueue, RequestId, Submission};
use model::audit::Action;
use model::dead_letter::is_dead;
use model::id::JobId;
use model::queue::QueueRef;
use model::state::State;

use crate::coverage::Fault;
use crate::failover::CommitFate;
use crate::invariants::{self, Checked};
use crate::scenario::{SECOND, Time};
use crate::workflow_clients::WorkflowOperation;
use crate::world::{Event, Inbound, World, trace};

/// Timeout after which a client resends a request.
const REQUEST_TIMEOUT: Time = 4 * SECOND;
/// Limit of resends while faults occur. Afterwards clients resend until there is an answer.
const TRIES_MAX: u32 = 8;

/// A client's request.
#[derive(Debug, Clone)]
pub enum Operation {
    Submit { jobs: Vec<Submission> },
    Cancel { job: JobId },
    Retract { job: JobId },
    Retry { job: JobId },
    Remove { job: JobId },
    Release { job: JobId },
    Approve { job: JobId, decision: Box<ApprovalDecision> },
    Purge { job: JobId },
    ReadOriginal { job: JobId },
    CreateQueue { queue: Box<NewQueue> },
    DrainQueue { queue: QueueRef },
    CancelQueue { queue: QueueRef },
    RemoveQueue { queue: QueueRef },
    Workflow(Box<WorkflowOperation>),
}

impl Operation {
    pub fn input(self, request: RequestId) -> Input {
        let by = || -> Actor { Some("an operator".into()) };
        match self {
            Self::Submit { jobs } => Input::Submit { request, jobs },
            Self::Cancel { job } => Input::Cancel { request, job, by: by() },
            Self::Retract { job } => Input::Retract { request, job, by: by() },
            Self::Retry { job } => Input::Retry { request, job, by: by() },
            Self::Remove { job } => Input::Remove { request, job, by: by() },
            Self::Release { job } => Input::Release { request, job, by: by() },
            Self::Approve { job, decision } => Input::Approve { request, job, decision },
            Self::Purge { job } => Input::Purge { request, job, by: by() },
            Self::ReadOriginal { job } => Input::ReadOriginal { request, job, by: by() },
            Self::CreateQueue { queue } => Input::CreateQueue { request, queue },
            Self::DrainQueue { queue } => Input::DrainQueue { request, queue, by: by() },
            Self::CancelQueue { queue } => Input::CancelQueue { request, queue, by: by() },
            Self::RemoveQueue { queue } => Input::RemoveQueue { request, queue, by: by() },
            Self::Workflow(operation) => operation.input(request),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Submit { .. } => "submit",
            Self::Cancel { .. } => "cancel",
            Self::Retract { .. } => "retract",
            Self::Retry { .. } => "retry",
            Self::Remove { .. } => "remove",
            Self::Release { .. } => "release",
            Self::Approve { .. } => "approve",
            Self::Purge { .. } => "purge",
            Self::ReadOriginal { .. } => "read original",
            Self::CreateQueue { .. } => "create queue",
            Self::DrainQueue { .. } => "drain queue",
            Self::CancelQueue { .. } => "cancel queue",
            Self::RemoveQueue { .. } => "remove queue",
            Self::Workflow(operation) => operation.name(),
        }
    }

    fn job(&self) -> Option<JobId> {
        match self {
            Self::Cancel { job }
            | Self::Retract { job }
            | Self::Retry { job }
            | Self::Remove { job }
            | Self::Release { job }
            | Self::Purge { job }
            | Self::ReadOriginal { job }
            | Self::Approve { job, .. } => Some(*job),
            Self::Submit { .. }
            | Self::CreateQueue { .. }
            | Self::DrainQueue { .. }
            | Self::CancelQueue { .. }
            | Self::RemoveQueue { .. }
            | Self::Workflow(_) => None,
        }
    }
}

impl Operation {
    /// The audit action, if the operation is on a job.
    fn action(&self) -> Option<Action> {
        match self {
            Self::Cancel { .. } => Some(Action::Cancelled),
            Self::Retract { .. } => Some(Action::Retracted),
            Self::Retry { .. } => Some(Action::Retried),
            Self::Remove { .. } => Some(Action::Removed),
            Self::Release { .. } => Some(Action::Released),
            Self::Approve { decision, .. } if decision.approved => Some(Action::Approved),
            Self::Approve { .. } => Some(Action::Rejected),
            Self::Purge { .. } => Some(Action::DeadLetterPurged),
            Self::ReadOriginal { .. } => Some(Action::OriginalRead),
            Self::Submit { .. }
            | Self::CreateQueue { .. }
            | Self::DrainQueue { .. }
            | Self::CancelQueue { .. }
            | Self::RemoveQueue { .. }
            | Self::Workflow(_) => None,
        }
    }
}

/// A request without an answer.
#[derive(Debug)]
struct OpenRequest {
    shard: usize,
    operation: Operation,
    /// Whether a resend is safe: it has an idempotency key, or the operation is idempotent.
    repeatable: bool,
    tries: u32,
    /// Number of commits before it was sent.
    since: u64,
}

#[derive(Debug)]
pub struct Clients {
    /// Remaining operations of each client.
    operations_left: Vec<u64>,
    requests: u64,
    open: BTreeMap<RequestId, OpenRequest>,
    /// Jobs that were acknowledged.
    pub jobs: Vec<JobId>,
    /// What was submitted, to submit it again.
    submitted: BTreeMap<JobId, (usize, Submission)>,
    /// Queues with their tenants.
    pub queues: Vec<(QueueRef, String)>,
    pub keys: u64,
}

impl Clients {
    pub fn new(clients: usize, operations: u64) -> Self {
        let operations_left = vec![operations.div_ceil(clients as u64); clients];
        let keys = operations / 4 + 1;
        Self {
            operations_left,
            requests: 0,
            open: BTreeMap::new(),
            jobs: Vec::new(),
            submitted: BTreeMap::new(),
            queues: Vec::new(),
            keys,
        }
    }

    fn note_submitted(&mut self, open: &OpenRequest, results: &[Result<engine::Accepted, engine::Refusal>]) {
        let Operation::Submit { jobs } = &open.operation else { return };
        for (job, result) in jobs.iter().zip(results) {
            if let Ok(accepted) = result {
                self.submitted.insert(accepted.id, (open.shard, job.clone()));
            }
        }
    }

    pub fn unanswered(&self) -> Vec<String> {
        self.open
            .values()
            .map(|open| format!("request `{}` to shard {} has no answer", open.operation.name(), open.shard))
            .collect()
    }
}

impl World {
    pub(crate) fn client_acts(&mut self, client: usize) {
        if self.is_healed() || self.clients.operations_left[client] == 0 {
            return;
        }
        self.clients.operations_left[client] -= 1;
        self.choose_operation();
        // All operations are sent shortly before faults stop.
        let interval =
            self.scenario.fault_phase / (self.scenario.operations.div_ceil(self.scenario.clients as u64) + 1);
        let delay = self.rng.below(2 * interval.max(1));
        self.after(delay, Event::ClientActs { client });
    }

    fn choose_operation(&mut self) {
        if self.choose_workflow_operation() {
            return;
        }
        if self.rng.chance(self.scenario.outputs.unrequested) {
            self.scan_some_result();
        }
        self.begin_reads(None);
        match self.rng.below(100) {
            0..=44 => self.submit_one(),
            45..=54 => self.submit_many(),
            55..=62 => self.operate_on(|_| true, |job| Operation::Cancel { job }),
            63..=70 => self.operate_on(State::is_on_runner, |job| Operation::Retract { job }),
            71..=78 => self.operate_on(is_retriable, |job| Operation::Retry { job }),
            79..=81 => self.operate_on(State::is_terminal, |job| Operation::Remove { job }),
            82..=83 => self.operate_on(is_dead, |job| Operation::Purge { job }),
            84..=86 => self.operate_on(|state| state == State::Quarantined, |job| Operation::Release { job }),
            87 => self.operate_on(|state| state == State::Succeeded, |job| Operation::ReadOriginal { job }),
            88..=93 => self.create_queue(),
            94..=95 => self.operate_on_queue(|queue| Operation::DrainQueue { queue }),
            96..=97 => self.operate_on_queue(|queue| Operation::CancelQueue { queue }),
            _ => self.operate_on_queue(|queue| Operation::RemoveQueue { queue }),
        }
    }

    /// Operates on a job in a fitting state, sometimes on any job.
    fn operate_on(&mut self, fits: impl Fn(State) -> bool, operation: impl Fn(JobId) -> Operation) {
        let known = &self.ledger.jobs;
        let fitting: Vec<JobId> =
            known.values().filter(|known| fits(known.record.state)).map(|known| known.record.id).collect();
        let anything = self.rng.one_in(5);
        let from = if anything { &self.clients.jobs } else { &fitting };
        if let Some(job) = self.rng.pick(from).copied() {
            self.send_job_operation(operation(job));
        }
    }

    fn operate_on_queue(&mut self, operation: impl Fn(QueueRef) -> Operation) {
        if let Some(queue) = self.rng.pick(&self.clients.queues).map(|(queue, _)| *queue) {
            let shard = usize::from(self.scenario.shards.owner(queue.slot()).0);
            self.send(shard, operation(queue), true, 0);
        }
    }

    /// Sends an operation on a job to the owning shard.
    pub(crate) fn send_job_operation(&mut self, operation: Operation) {
        let Some(job) = operation.job() else { return };
        if let Some(action) = operation.action() {
            self.ledger.record_request(job, action);
        }
        self.begin_reads(Some(job));
        let shard = usize::from(self.scenario.shards.owner(job.slot()).0);
        self.send(shard, operation, false, 0);
    }

    pub(crate) fn send(&mut self, shard: usize, operation: Operation, repeatable: bool, tries: u32) {
        self.clients.requests += 1;
        let request = RequestId(self.clients.requests);
        trace!(self, "request {}: {} {:?} to shard {shard}", request.0, operation.name(), operation.job());
        self.coverage.count(operation.name());
        if self.rng.chance(self.scenario.lose_request) {
            self.coverage.count_fault(Fault::RequestLost);
        } else {
            let delay = self.rng.between(1, 20);
            let operation = operation.clone();
            self.after(delay, Event::Deliver { shard, inbound: Inbound::Request { request, operation } });
        }
        let since = self.store.commits();
        self.clients.open.insert(request, OpenRequest { shard, operation, repeatable, tries, since });
        let timeout = REQUEST_TIMEOUT + self.rng.below(SECOND);
        self.after(timeout, Event::RequestTimesOut { request });
    }

    pub(crate) fn request_times_out(&mut self, request: RequestId) {
        let Some(open) = self.clients.open.remove(&request) else { return };
        if open.repeatable && (open.tries < TRIES_MAX || self.is_healed()) {
            self.coverage.count_fault(Fault::RequestResent);
            self.send(open.shard, open.operation, true, open.tries + 1);
        }
    }

    /// A shard's answer. It may be lost on the network.
    pub(crate) fn answer(&mut self, request: RequestId, answer: Answer) -> Checked {
        let ledger = &self.ledger;
        let known_job = |id| ledger.jobs.get(&id).map(|known| &known.record);
        let known_workflow = |id| ledger.workflows.known.contains_key(&id);
        let known_queue = |id| ledger.has_queue(id);
        // An answer to a lost commit was true when it was committed.
        if self.commit_fate != CommitFate::Lost {
            invariants::invariant_answers_follow_commits(&answer, known_job, known_queue, known_workflow)?;
            if let (Answer::Job(job), Some(open)) = (&answer, self.clients.open.get(&request)) {
                self.check_answered(job, open.since.max(self.answered_after()))?;
            }
        }
        if self.rng.chance(self.scenario.lose_request) {
            self.coverage.count_fault(Fault::ReplyLost);
        } else {
            let delay = self.rng.between(1, 20);
            self.after(delay, Event::Reply { request, answer });
        }
        Ok(())
    }

    pub(crate) fn client_receives(&mut self, request: RequestId, answer: Answer) {
        let Some(open) = self.clients.open.remove(&request) else { return };
        match answer {
            Answer::Submitted(results) => {
                self.clients.note_submitted(&open, &results);
                for result in results {
                    match result {
                        Ok(accepted) if accepted.deduplicated => self.coverage.count("deduplicated"),
                        Ok(accepted) => self.clients.jobs.push(accepted.id),
                        Err(refusal) => self.coverage.count(refusal_name(&refusal)),
                    }
                }
            }
            Answer::Queue(queue) => {
                let names = [Some(QueueRef::Id(queue.id)), queue.token.map(QueueRef::Token)];
                let named = names.into_iter().flatten().map(|name| (name, queue.tenant.clone()));
                self.clients.queues.extend(named);
            }
            Answer::Refused(refusal) => {
                self.coverage.count(refusal_name(&refusal));
                if let engine::Refusal::UnknownJob(job) = refusal {
                    self.submit_again(job);
                }
            }
            Answer::Removed => self.coverage.count("answered: removed"),
            Answer::QueueRemoved => self.coverage.count("answered: queue removed"),
            Answer::QueueExists(_) => self.coverage.count("answered: queue exists"),
            Answer::WorkflowExists(_) => self.coverage.count("answered: workflow exists"),
            Answer::WorkflowRemoved => self.coverage.count("answered: workflow removed"),
            Answer::ScheduleRemoved => self.coverage.count("answered: schedule removed"),
            Answer::Progressed => self.coverage.count("answered: progressed"),
            Answer::Workflow(_) | Answer::Schedule(_) => {}
            Answer::Job(_) | Answer::Why(_) => {}
        }
    }

    /// A client that finds a job lost by a failover submits it again, once.
    fn submit_again(&mut self, job: JobId) {
        if self.ledger.losses.jobs.contains(&job)
            && let Some((shard, submission)) = self.clients.submitted.remove(&job)
        {
            self.coverage.count("lost jobs submitted again");
            self.send(shard, Operation::Submit { jobs: vec![submission] }, false, 0);
        }
    }

    /// Ends new operations. Open requests are still resent.
    pub(crate) fn heal_clients(&mut self) {
        self.clients.operations_left.fill(0);
    }
}

fn is_retriable(state: State) -> bool {
    matches!(state, State::Failed | State::TimedOut | State::Quarantined)
}

fn refusal_name(refusal: &engine::Refusal) -> &'static str {
    use engine::Refusal;
    match refusal {
        Refusal::UnknownJob(_) => "refused: unknown job",
        Refusal::UnknownQueue(_) => "refused: unknown queue",
        Refusal::QueueClosed(_) => "refused: queue closed",
        Refusal::QueueNotEmpty(_) => "refused: queue not empty",
        Refusal::QueueImplicit => "refused: queue implicit",
        Refusal::WrongState { .. } => "refused: wrong state",
        Refusal::RetriesUsedUp { .. } => "refused: retries used up",
        Refusal::KeyConflict => "refused: key conflict",
        Refusal::KeyHomeSilent { .. } => "refused: key home silent",
        Refusal::TooManyKeys { .. } => "refused: too many keys",
        Refusal::Full { .. } => "refused: full",
        Refusal::TooManyQueues { .. } => "refused: too many queues",
        Refusal::OtherContent => "refused: other content",
        Refusal::OtherRule => "refused: other rule",
        Refusal::AlreadyDecided { .. } => "refused: already decided",
        Refusal::ApprovalExpired => "refused: approval expired",
        Refusal::OtherTenant { .. } => "refused: other tenant",
        Refusal::NoDeadLetter(_) => "refused: no dead letter",
        Refusal::UnknownDeadLetter(_) => "refused: unknown dead letter",
        Refusal::CompensationUnreadable { .. } => "refused: compensation unreadable",
        Refusal::NoOriginal => "refused: no original",
        Refusal::TenantFull { .. } => "refused: tenant full",
        Refusal::TenantTooFast { .. } => "refused: tenant too fast",
        Refusal::Unreadable => "refused: unreadable",
        Refusal::UnknownWorkflow(_) => "refused: unknown workflow",
        Refusal::WorkflowSuspended(_) => "refused: workflow suspended",
        Refusal::WorkflowState { .. } => "refused: state of the workflow",
        Refusal::UnknownTask { .. } => "refused: unknown task",
        Refusal::NothingToRerun => "refused: nothing to rerun",
        Refusal::PartOfWorkflow(_) => "refused: part of a workflow",
        Refusal::JobOfWorkflow(_) => "refused: job of a workflow",
        Refusal::TooManySignals { .. } => "refused: too many signals",
        Refusal::UnknownSchedule(_) => "refused: unknown schedule",
        Refusal::ScheduleNameTaken { .. } => "refused: schedule name taken",
        Refusal::TooManySchedules { .. } => "refused: too many schedules",
        Refusal::NoProgress => "refused: no progress",
    }
}
