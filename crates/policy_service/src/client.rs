//! Client of the policy service.
//!
//! One call: if the breaker is open, it is rejected at once. Otherwise it waits for admission, takes a permit from the
//! breaker, sends the request, and reports the outcome. Outcomes:
//!
//! | event | for the breaker | for the caller |
//! |---|---|---|
//! | no connection, no TLS, a broken connection, bytes that are not gRPC | failure | [`Unavailable`] |
//! | timeout | failure | [`Unavailable`] |
//! | an error status | failure | [`Unavailable`] |
//! | the status `INVALID_ARGUMENT`: the service works, but cannot decide about this job | success | denied |
//! | an invalid answer | success | denied |
//! | the caller stops waiting | ignored | |
//!
//! `INVALID_ARGUMENT` and invalid answers deny instead of counting as "unavailable". Otherwise, under fail mode `open`,
//! a job that confuses the service would be allowed.

use std::sync::Arc;
use std::time::Duration;

use model::id::Attempt;
use model::time::Timestamp;
use model::verdict::{Decision, OutputDecision, OutputVerdict, PolicyVersion, Verdict};
use parking_lot::Mutex;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::admission::{AdmissionQueue, Rejected};
use crate::answer::{
    CheckResult, ExplainResult, InvalidAnswer, JobVerdict, OutputCheckResult, POLICY_ERROR, ValidAnswer, parse_check,
    parse_output, parse_version, truncate_trace,
};
use crate::breaker::{CircuitOpen, Outcome, Settings, State};
use crate::circuit::Circuit;
use crate::clock::{Clock, millis};
use crate::connection::{Connection, chain};
use crate::error::{Error, Unavailable, UnavailableReason};
use crate::facts::{CheckFacts, OutputFacts};
use crate::limits::ANSWER_BYTES_MAX;
use crate::options::Options;
use crate::proto::policy_kernel_client::PolicyKernelClient;
use crate::proto::{CheckResponse, ExplainResponse};
use crate::status::PolicyServiceStatus;

/// Cheap to clone. All clones share one connection, one admission queue and the breakers.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    connection: Connection,
    timeout: Duration,
    job_bytes_max: usize,
    queue: AdmissionQueue,
    input: Circuit,
    output: Circuit,
    clock: Arc<dyn Clock>,
    /// The `policy_version` of the last answer.
    version: Mutex<Option<String>>,
}

/// Answer to one call.
enum Answer<A> {
    Message(A),
    /// INVALID_ARGUMENT, with its message.
    Refused(String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Check,
    /// Optional: a service need not implement it.
    Explain,
    CheckOutput,
}

/// A validated answer, or the reason why it cannot be used.
struct Validated<V> {
    answer: Result<ValidAnswer<V>, String>,
    /// Version of this answer, or the last known one if it has no valid version.
    version: String,
}

impl Client {
    /// Connects with the first call. Must be called within a tokio runtime.
    pub fn connect_lazy(options: Options) -> Result<Self, Error> {
        options.check()?;
        let connection = Connection::prepare(&options)?;
        let longest_call = millis(options.timeout) + millis(options.timeout);
        let settings = Settings { probe_timeout: options.breaker.probe_timeout.max(longest_call), ..options.breaker };
        let inner = Inner {
            connection,
            timeout: options.timeout,
            job_bytes_max: options.job_bytes_max,
            queue: AdmissionQueue::new(options.in_flight_max, options.waiting_max),
            input: Circuit::new("jobs", settings),
            output: Circuit::new("results", settings),
            clock: options.clock,
            version: Mutex::new(None),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Checks whether a job may be scheduled.
    pub async fn check(&self, facts: &CheckFacts) -> Result<CheckResult, Unavailable> {
        let inner = &*self.inner;
        if let Some(denied) = inner.too_large(facts) {
            return Ok(denied);
        }
        let request = facts.request();
        let answer = inner.call(Method::Check, async |mut service| service.check(request).await).await?;
        Ok(inner.check_result(answer))
    }

    /// Explains the answer of [`Client::check`]. Counts for the breaker like a check, except that a service need not
    /// implement this call.
    pub async fn explain(&self, facts: &CheckFacts) -> Result<ExplainResult, Unavailable> {
        let inner = &*self.inner;
        if let Some(check) = inner.too_large(facts) {
            return Ok(ExplainResult { check, trace: Vec::new() });
        }
        let request = facts.request();
        let answer = inner.call(Method::Explain, async |mut service| service.explain(request).await).await?;
        let (answer, trace) = match answer {
            Answer::Message(ExplainResponse { answer, trace }) => (Answer::Message(answer.unwrap_or_default()), trace),
            Answer::Refused(message) => (Answer::Refused(message), Vec::new()),
        };
        Ok(ExplainResult { check: inner.check_result(answer), trace: truncate_trace(trace) })
    }

    /// Checks whether a result may be shown.
    pub async fn check_output(&self, facts: &OutputFacts) -> Result<OutputCheckResult, Unavailable> {
        let inner = &*self.inner;
        let request = facts.request();
        let answer = inner.call(Method::CheckOutput, async |mut service| service.check_output(request).await).await?;
        let validated = inner.validate(&inner.output, answer, |answer| &answer.policy_version, parse_output);
        let policy = inner.policy_of(&validated.version);
        let error = validated.answer.is_err();
        let answer =
            validated.answer.unwrap_or_else(|message| policy_error((OutputVerdict::Quarantine, false), message));
        let (verdict, keep_original) = answer.verdict;
        let decision = OutputDecision {
            at: inner.clock.now(),
            phase: facts.phase,
            verdict,
            rule: answer.rule,
            message: answer.message,
            policy: Some(policy),
            findings: facts.finding_counts(),
            attempt: Attempt::default(),
        };
        Ok(OutputCheckResult { decision, keep_original, service_version: validated.version, error })
    }

    /// Policy version, as recorded with decisions. Absent until the service has answered once.
    pub fn policy_version(&self) -> Option<PolicyVersion> {
        self.inner.version.lock().as_deref().map(|version| self.inner.policy_of(version))
    }

    pub fn status(&self) -> PolicyServiceStatus {
        let inner = &*self.inner;
        let now = inner.clock.now();
        PolicyServiceStatus {
            address: inner.connection.authority().to_owned(),
            tls: inner.connection.encrypted(),
            policy_version: self.policy_version(),
            service_version: inner.version.lock().clone(),
            in_flight: inner.queue.in_flight(),
            waiting: inner.queue.waiting(),
            input: inner.input.status(now),
            output: inner.output.status(now),
        }
    }
}

impl Inner {
    async fn call<A>(
        &self,
        method: Method,
        send: impl AsyncFnOnce(PolicyKernelClient<Channel>) -> Result<Response<A>, Status>,
    ) -> Result<Answer<A>, Unavailable> {
        let circuit = match method {
            Method::Check | Method::Explain => &self.input,
            Method::CheckOutput => &self.output,
        };
        if let Some(open) = circuit.is_open(self.clock.now()) {
            return Err(self.rejected_open(circuit, open));
        }
        let _admission =
            self.queue.acquire(self.timeout).await.map_err(|rejected| self.rejected_busy(circuit, rejected))?;
        let permit = circuit.admit(&*self.clock).map_err(|open| self.rejected_open(circuit, open))?;
        circuit.counters.calls.add();
        let service = PolicyKernelClient::new(self.connection.channel()).max_decoding_message_size(ANSWER_BYTES_MAX);
        let (outcome, answer) = match tokio::time::timeout(self.timeout, send(service)).await {
            Ok(Ok(answer)) => (Outcome::Succeeded, Ok(Answer::Message(answer.into_inner()))),
            Ok(Err(status)) => self.error_status(method, &status),
            Err(_) => {
                circuit.counters.timeouts.add();
                let authority = self.connection.authority();
                let message = format!("the policy service at {authority} has not answered within {:?}", self.timeout);
                (Outcome::Failed, Err((UnavailableReason::TimedOut, message)))
            }
        };
        self.state_changed(circuit, permit.report(outcome));
        answer.map_err(|(reason, message)| {
            let message = model::reason::cut(message);
            circuit.counters.failures.add();
            circuit.record_error(self.clock.now(), &message);
            Unavailable { reason, message, retry_at: None }
        })
    }

    /// Meaning of an error status for the breaker and for the caller.
    fn error_status<A>(
        &self,
        method: Method,
        status: &Status,
    ) -> (Outcome, Result<Answer<A>, (UnavailableReason, String)>) {
        if status.code() == Code::InvalidArgument {
            return (Outcome::Succeeded, Ok(Answer::Refused(status.message().to_owned())));
        }
        let authority = self.connection.authority();
        if status.code() == Code::Unimplemented && method == Method::Explain {
            let message = format!("the policy service at {authority} does not implement Explain");
            return (Outcome::Abandoned, Err((UnavailableReason::Failed, message)));
        }
        let cause = match std::error::Error::source(status) {
            Some(source) => chain(source),
            None => format!("{} ({:?})", status.message(), status.code()),
        };
        let message = format!("the call to the policy service at {authority} failed: {cause}");
        (Outcome::Failed, Err((UnavailableReason::Failed, message)))
    }

    fn state_changed(&self, circuit: &Circuit, state: Option<State>) {
        let service = self.connection.authority();
        match state {
            Some(State::Open) => {
                self.connection.renew();
                tracing::warn!(service, checks = circuit.name, "the circuit breaker of the policy service is open");
            }
            Some(State::Closed) => {
                tracing::info!(service, checks = circuit.name, "the circuit breaker of the policy service is closed");
            }
            Some(State::HalfOpen) | None => {}
        }
    }

    fn rejected_open(&self, circuit: &Circuit, open: CircuitOpen) -> Unavailable {
        circuit.counters.open_rejections.add();
        let until = Timestamp(open.retry_at);
        let message = match open.state {
            State::Open | State::Closed => format!("the circuit breaker of the policy service is open until {until}"),
            State::HalfOpen => {
                "the circuit breaker of the policy service is half-open: all probes are in flight".to_owned()
            }
        };
        Unavailable { reason: UnavailableReason::CircuitOpen, message, retry_at: Some(open.retry_at) }
    }

    fn rejected_busy(&self, circuit: &Circuit, rejected: Rejected) -> Unavailable {
        circuit.counters.busy_rejections.add();
        let message = match rejected {
            Rejected::Full => "too many calls wait for the policy service".to_owned(),
            Rejected::TimedOut => format!("the call waited {:?} for the policy service to finish others", self.timeout),
        };
        Unavailable { reason: UnavailableReason::Busy, message, retry_at: None }
    }

    fn too_large(&self, facts: &CheckFacts) -> Option<CheckResult> {
        let (bytes, bytes_max) = (facts.job_json.len(), self.job_bytes_max);
        if bytes <= bytes_max {
            return None;
        }
        self.input.counters.denied_too_large.add();
        let message = format!("the job has {bytes} bytes in JSON; the policy service checks at most {bytes_max}");
        Some(self.finish(Validated { answer: Err(message), version: self.last_version() }))
    }

    fn check_result(&self, answer: Answer<CheckResponse>) -> CheckResult {
        self.finish(self.validate(&self.input, answer, |answer| &answer.policy_version, parse_check))
    }

    fn validate<A, V>(
        &self,
        circuit: &Circuit,
        answer: Answer<A>,
        version: impl FnOnce(&A) -> &str,
        parse: impl FnOnce(A) -> Result<ValidAnswer<V>, InvalidAnswer>,
    ) -> Validated<V> {
        let answer = match answer {
            Answer::Message(answer) => answer,
            Answer::Refused(message) => {
                return Validated { answer: Err(self.refused(circuit, &message)), version: self.last_version() };
            }
        };
        let (version, answer) = match parse_version(version(&answer)) {
            Ok(version) => (self.store_version(version), parse(answer)),
            Err(invalid) => (self.last_version(), Err(invalid)),
        };
        Validated { answer: answer.map_err(|invalid| self.invalid(circuit, &invalid)), version }
    }

    fn finish(&self, validated: Validated<JobVerdict>) -> CheckResult {
        let policy = self.policy_of(&validated.version);
        let error = validated.answer.is_err();
        let answer = validated.answer.unwrap_or_else(|message| policy_error((Verdict::Deny, None), message));
        let (verdict, constraints) = answer.verdict;
        let now = self.clock.now();
        // The answer has a duration, the record a point in time.
        let verdict = match verdict {
            Verdict::Throttle(time) => Verdict::Throttle(now + time),
            other => other,
        };
        let (rule, message) = (answer.rule, answer.message);
        let decision = Decision { at: now, verdict, rule, message, policy: Some(policy), constraints };
        CheckResult { decision, service_version: validated.version, error }
    }

    fn invalid(&self, circuit: &Circuit, invalid: &InvalidAnswer) -> String {
        circuit.counters.denied_invalid.add();
        let message = format!("invalid answer of the policy service: {invalid}");
        circuit.record_error(self.clock.now(), &message);
        message
    }

    fn refused(&self, circuit: &Circuit, message: &str) -> String {
        circuit.counters.denied_refused.add();
        let message = format!("the policy service answered INVALID_ARGUMENT: {message}");
        circuit.record_error(self.clock.now(), &message);
        message
    }

    fn store_version(&self, version: &str) -> String {
        let mut last = self.version.lock();
        if last.as_deref() != Some(version) {
            *last = Some(version.to_owned());
        }
        version.to_owned()
    }

    /// Empty before the first answer.
    fn last_version(&self) -> String {
        self.version.lock().clone().unwrap_or_default()
    }

    /// The address is part of the version: two services with the same `policy_version` may have different rules. The
    /// result is recorded with decisions, so the hashed text must not change.
    fn policy_of(&self, version: &str) -> PolicyVersion {
        PolicyVersion::of(format!("kernel\0{}\0{version}", self.connection.authority()).as_bytes())
    }
}

fn policy_error<V>(verdict: V, message: String) -> ValidAnswer<V> {
    ValidAnswer { verdict, rule: POLICY_ERROR.to_owned(), message: Some(model::reason::cut(message)) }
}
