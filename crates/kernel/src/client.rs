//! Asks the kernel.
//!
//! One call goes so: where the breaker is open, it ends at once. Else it waits in line for a place, gets a ticket from
//! the breaker, asks, and reports what came of it. What counts as a failure:
//!
//! | what happens | for the breaker | for the caller |
//! |---|---|---|
//! | no connection, no TLS, a connection that breaks, bytes that are not gRPC | failure | [`Unavailable`] |
//! | no answer in time | failure | [`Unavailable`] |
//! | an error status | failure | [`Unavailable`] |
//! | the status `INVALID_ARGUMENT`: the kernel lives, and cannot judge this job | success | denied |
//! | an answer that makes no sense | success | denied |
//! | the caller stops waiting | nothing | |
//!
//! `INVALID_ARGUMENT` and nonsense deny rather than count as "unavailable", since otherwise a job that confuses the
//! kernel would slip through where the operator has chosen to fail open.

use std::sync::Arc;
use std::time::Duration;

use model::id::Attempt;
use model::time::Timestamp;
use model::verdict::{Decision, OutputDecision, OutputVerdict, PolicyVersion, Verdict};
use parking_lot::Mutex;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::answer::{
    Checked, CheckedOutput, Explained, JobVerdict, Nonsense, POLICY_ERROR, Ruling, read_check, read_output, read_trace,
    read_version,
};
use crate::breaker::{Open, Outcome, Settings, State};
use crate::clock::{Clock, millis};
use crate::connection::{Connection, chain};
use crate::error::{Error, Unavailable, Why};
use crate::facts::{CheckFacts, OutputFacts};
use crate::gate::Gate;
use crate::limits::ANSWER_BYTES_MAX;
use crate::line::{Line, TurnedAway};
use crate::options::Options;
use crate::proto::policy_kernel_client::PolicyKernelClient;
use crate::proto::{CheckResponse, ExplainResponse};
use crate::status::KernelStatus;

/// Cheap to clone; all clones share one connection, one line and the breakers.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    connection: Connection,
    timeout: Duration,
    job_bytes_max: usize,
    line: Line,
    input: Gate,
    output: Gate,
    clock: Arc<dyn Clock>,
    /// As the kernel last said it.
    version: Mutex<Option<String>>,
}

/// The kernel's word on a question, once it has one.
enum Answer<A> {
    Given(A),
    /// INVALID_ARGUMENT, with its message.
    Refused(String),
}

/// What the kernel is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Question {
    Job,
    /// A kernel need not know this one.
    Why,
    Output,
}

/// What came of an answer: a ruling, or why there is none.
struct Judged<V> {
    ruling: Result<Ruling<V>, String>,
    /// Of this very answer; the last one known where it does not say.
    version: String,
}

impl Client {
    /// Connects when the first question is asked. Must be called within a tokio runtime.
    pub fn connect_lazy(options: Options) -> Result<Self, Error> {
        options.check()?;
        let connection = Connection::prepare(&options)?;
        let longest_call = millis(options.timeout) + millis(options.timeout);
        let settings = Settings { probe_patience: options.breaker.probe_patience.max(longest_call), ..options.breaker };
        let inner = Inner {
            connection,
            timeout: options.timeout,
            job_bytes_max: options.job_bytes_max,
            line: Line::new(options.in_flight_max, options.waiting_max),
            input: Gate::new("jobs", settings),
            output: Gate::new("results", settings),
            clock: options.clock,
            version: Mutex::new(None),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// May this job be scheduled?
    pub async fn check(&self, facts: &CheckFacts) -> Result<Checked, Unavailable> {
        let inner = &*self.inner;
        if let Some(denied) = inner.too_large(facts) {
            return Ok(denied);
        }
        let request = facts.request();
        let answer = inner.call(Question::Job, async |mut kernel| kernel.check(request).await).await?;
        Ok(inner.checked(answer))
    }

    /// What would [`Client::check`] say, and why? Counts for the breaker as a check does, save that a kernel need not
    /// know this question.
    pub async fn explain(&self, facts: &CheckFacts) -> Result<Explained, Unavailable> {
        let inner = &*self.inner;
        if let Some(checked) = inner.too_large(facts) {
            return Ok(Explained { checked, trace: Vec::new() });
        }
        let request = facts.request();
        let answer = inner.call(Question::Why, async |mut kernel| kernel.explain(request).await).await?;
        let (answer, trace) = match answer {
            Answer::Given(ExplainResponse { answer, trace }) => (Answer::Given(answer.unwrap_or_default()), trace),
            Answer::Refused(message) => (Answer::Refused(message), Vec::new()),
        };
        Ok(Explained { checked: inner.checked(answer), trace: read_trace(trace) })
    }

    /// May this result be seen?
    pub async fn check_output(&self, facts: &OutputFacts) -> Result<CheckedOutput, Unavailable> {
        let inner = &*self.inner;
        let request = facts.request();
        let answer = inner.call(Question::Output, async |mut kernel| kernel.check_output(request).await).await?;
        let judged = inner.judge(&inner.output, answer, |answer| &answer.policy_version, read_output);
        let policy = inner.policy_of(&judged.version);
        let error = judged.ruling.is_err();
        let ruling = judged.ruling.unwrap_or_else(|message| policy_error((OutputVerdict::Quarantine, false), message));
        let (verdict, keep_original) = ruling.verdict;
        let decision = OutputDecision {
            at: inner.clock.now(),
            phase: facts.phase,
            verdict,
            rule: ruling.rule,
            message: ruling.message,
            policy: Some(policy),
            findings: facts.finding_counts(),
            attempt: Attempt::default(),
        };
        Ok(CheckedOutput { decision, keep_original, kernel_version: judged.version, error })
    }

    /// Which rules answer. Absent until the kernel has answered once.
    pub fn policy_version(&self) -> Option<PolicyVersion> {
        self.inner.version.lock().as_deref().map(|version| self.inner.policy_of(version))
    }

    pub fn status(&self) -> KernelStatus {
        let inner = &*self.inner;
        let now = inner.clock.now();
        KernelStatus {
            address: inner.connection.authority().to_owned(),
            tls: inner.connection.encrypted(),
            policy_version: self.policy_version(),
            kernel_version: inner.version.lock().clone(),
            in_flight: inner.line.in_flight(),
            waiting: inner.line.waiting(),
            input: inner.input.status(now),
            output: inner.output.status(now),
        }
    }
}

impl Inner {
    async fn call<A>(
        &self,
        question: Question,
        ask: impl AsyncFnOnce(PolicyKernelClient<Channel>) -> Result<Response<A>, Status>,
    ) -> Result<Answer<A>, Unavailable> {
        let gate = match question {
            Question::Job | Question::Why => &self.input,
            Question::Output => &self.output,
        };
        if let Some(open) = gate.is_open(self.clock.now()) {
            return Err(self.turned_away(gate, open));
        }
        let _place = self.line.place(self.timeout).await.map_err(|why| self.busy(gate, why))?;
        let pass = gate.enter(&*self.clock).map_err(|open| self.turned_away(gate, open))?;
        gate.counts.calls.add();
        let kernel = PolicyKernelClient::new(self.connection.channel()).max_decoding_message_size(ANSWER_BYTES_MAX);
        let (outcome, answer) = match tokio::time::timeout(self.timeout, ask(kernel)).await {
            Ok(Ok(answer)) => (Outcome::Succeeded, Ok(Answer::Given(answer.into_inner()))),
            Ok(Err(status)) => self.error_status(question, &status),
            Err(_) => {
                gate.counts.timeouts.add();
                let message = format!("the policy kernel has not answered within {:?}", self.timeout);
                (Outcome::Failed, Err((Why::TimedOut, message)))
            }
        };
        self.changed(gate, pass.report(outcome));
        answer.map_err(|(why, message)| {
            let message = model::reason::cut(message);
            gate.counts.failures.add();
            gate.note_error(self.clock.now(), &message);
            Unavailable { why, message, retry_at: None }
        })
    }

    /// What an error status means, for the breaker and for the caller.
    fn error_status<A>(&self, question: Question, status: &Status) -> (Outcome, Result<Answer<A>, (Why, String)>) {
        if status.code() == Code::InvalidArgument {
            return (Outcome::Succeeded, Ok(Answer::Refused(status.message().to_owned())));
        }
        let kernel = self.connection.authority();
        if status.code() == Code::Unimplemented && question == Question::Why {
            return (Outcome::Abandoned, Err((Why::Failed, format!("the policy kernel at {kernel} explains nothing"))));
        }
        let message = match std::error::Error::source(status) {
            Some(source) => chain(source),
            None => format!("{} ({:?})", status.message(), status.code()),
        };
        (Outcome::Failed, Err((Why::Failed, format!("the policy kernel at {kernel} fails: {message}"))))
    }

    fn changed(&self, gate: &Gate, state: Option<State>) {
        match state {
            Some(State::Open) => {
                self.connection.renew();
                tracing::warn!(kernel = self.connection.authority(), checks = gate.name, "policy circuit open");
            }
            Some(State::Closed) => {
                tracing::info!(kernel = self.connection.authority(), checks = gate.name, "policy circuit closed");
            }
            Some(State::HalfOpen) | None => {}
        }
    }

    fn turned_away(&self, gate: &Gate, open: Open) -> Unavailable {
        gate.counts.open_rejections.add();
        let until = Timestamp(open.until);
        let message = match open.state {
            State::Open | State::Closed => format!("policy circuit open until {until}"),
            State::HalfOpen => "policy circuit half-open: enough probes are under way".to_owned(),
        };
        Unavailable { why: Why::CircuitOpen, message, retry_at: Some(open.until) }
    }

    fn busy(&self, gate: &Gate, why: TurnedAway) -> Unavailable {
        gate.counts.busy_rejections.add();
        let message = match why {
            TurnedAway::Full => "too many wait for the policy kernel".to_owned(),
            TurnedAway::TooLong => format!("the policy kernel was busy with others for {:?}", self.timeout),
        };
        Unavailable { why: Why::Busy, message, retry_at: None }
    }

    fn too_large(&self, facts: &CheckFacts) -> Option<Checked> {
        let (bytes, bytes_max) = (facts.job_json.len(), self.job_bytes_max);
        if bytes <= bytes_max {
            return None;
        }
        self.input.counts.denied_too_large.add();
        let message =
            format!("the job has {bytes} bytes in JSON; the policy kernel is asked about {bytes_max} at most");
        Some(self.decided(Judged { ruling: Err(message), version: self.last_version() }))
    }

    fn checked(&self, answer: Answer<CheckResponse>) -> Checked {
        self.decided(self.judge(&self.input, answer, |answer| &answer.policy_version, read_check))
    }

    fn judge<A, V>(
        &self,
        gate: &Gate,
        answer: Answer<A>,
        version: impl FnOnce(&A) -> &str,
        read: impl FnOnce(A) -> Result<Ruling<V>, Nonsense>,
    ) -> Judged<V> {
        let answer = match answer {
            Answer::Given(answer) => answer,
            Answer::Refused(message) => {
                return Judged { ruling: Err(self.refused(gate, &message)), version: self.last_version() };
            }
        };
        let (version, ruling) = match read_version(version(&answer)) {
            Ok(version) => (self.note_version(version), read(answer)),
            Err(nonsense) => (self.last_version(), Err(nonsense)),
        };
        Judged { ruling: ruling.map_err(|nonsense| self.nonsense(gate, &nonsense)), version }
    }

    fn decided(&self, judged: Judged<JobVerdict>) -> Checked {
        let policy = self.policy_of(&judged.version);
        let error = judged.ruling.is_err();
        let ruling = judged.ruling.unwrap_or_else(|message| policy_error((Verdict::Deny, None), message));
        let (verdict, constraints) = ruling.verdict;
        let now = self.clock.now();
        // The kernel says for how long; a record says until when.
        let verdict = match verdict {
            Verdict::Throttle(time) => Verdict::Throttle(now + time),
            other => other,
        };
        let (rule, message) = (ruling.rule, ruling.message);
        let decision = Decision { at: now, verdict, rule, message, policy: Some(policy), constraints };
        Checked { decision, kernel_version: judged.version, error }
    }

    fn nonsense(&self, gate: &Gate, nonsense: &Nonsense) -> String {
        gate.counts.denied_nonsense.add();
        let message = format!("the policy kernel's answer makes no sense: {nonsense}");
        gate.note_error(self.clock.now(), &message);
        message
    }

    fn refused(&self, gate: &Gate, message: &str) -> String {
        gate.counts.denied_refused.add();
        let message = format!("the policy kernel cannot judge this: {message}");
        gate.note_error(self.clock.now(), &message);
        message
    }

    /// Remembers what the kernel calls its rules.
    fn note_version(&self, said: &str) -> String {
        let mut last = self.version.lock();
        if last.as_deref() != Some(said) {
            *last = Some(said.to_owned());
        }
        said.to_owned()
    }

    /// Empty if it has not said yet.
    fn last_version(&self) -> String {
        self.version.lock().clone().unwrap_or_default()
    }

    /// Two kernels that call their rules the same need not have the same rules.
    fn policy_of(&self, version: &str) -> PolicyVersion {
        PolicyVersion::of(format!("kernel\0{}\0{version}", self.connection.authority()).as_bytes())
    }
}

fn policy_error<V>(verdict: V, message: String) -> Ruling<V> {
    Ruling { verdict, rule: POLICY_ERROR.to_owned(), message: Some(model::reason::cut(message)) }
}
