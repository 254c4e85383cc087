//! The attempts of one request: which server is next, after which pause, and when to give up.
//!
//! No I/O: the transport reports how an attempt failed.

use std::error::Error as StdError;
use std::time::{Duration, Instant};

use api::{Problem, ProblemKind};
use hyper::StatusCode;
use hyper::header::HeaderValue;

use crate::backoff::Backoff;
use crate::client::Options;
use crate::error::{Error, innermost, seconds};
use crate::random;
use crate::request::{ApiRequest, Repeat};
use crate::servers::{Generation, ServerIndex, Servers};

/// A request that has failed for this long is reported to the user of the client.
const REPORTED_AFTER: Duration = Duration::from_secs(1);
/// Least time of an attempt that starts shortly before the limit.
const LAST_ATTEMPT: Duration = Duration::from_secs(5);

/// Type of a refusal that is not a problem document.
pub(crate) const FOREIGN: &str = "about:blank";

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing was sent.
    Unsent(Box<dyn StdError + Send + Sync>),
    /// The connection broke or was silent for too long: the request may have been executed.
    Unanswered(Box<dyn StdError + Send + Sync>),
    Refused(Box<Problem>),
    /// Another attempt would fail in the same way.
    Final(Error),
}

/// What a failure means for the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// The server was not reached, or is not ready: nothing was executed.
    Unexecuted,
    InDoubt,
    /// The server is not the one that is thought to have executed the request.
    OtherGeneration,
    Final,
}

impl Failure {
    fn meaning(&self) -> Meaning {
        match self {
            Self::Unsent(_) => Meaning::Unexecuted,
            Self::Unanswered(_) => Meaning::InDoubt,
            Self::Refused(problem) => match problem.code.as_str() {
                code if code == ProblemKind::NotReady.code() => Meaning::Unexecuted,
                code if code == ProblemKind::Stopping.code() => Meaning::InDoubt,
                code if code == ProblemKind::OtherGeneration.code() => Meaning::OtherGeneration,
                _ => Meaning::Final,
            },
            Self::Final(_) => Meaning::Final,
        }
    }

    /// Whether something between client and server has refused the request.
    fn is_foreign(&self) -> bool {
        match self {
            Self::Refused(problem) => problem.kind == FOREIGN,
            Self::Unsent(_) | Self::Unanswered(_) | Self::Final(_) => false,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Unsent(source) | Self::Unanswered(source) => innermost(source.as_ref()).to_string(),
            Self::Refused(problem) => problem.detail.clone(),
            Self::Final(error) => error.to_string(),
        }
    }
}

/// One attempt, to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub server: ServerIndex,
    pub request_id: Option<HeaderValue>,
    /// Only a server of this generation may execute it.
    pub generation: Option<HeaderValue>,
    pub timeout: Duration,
}

#[derive(Debug)]
pub(crate) struct Attempts<'a> {
    request: &'a ApiRequest,
    servers: &'a Servers,
    options: &'a Options,
    request_id: Option<HeaderValue>,
    started: Instant,
    server: ServerIndex,
    is_first: bool,
    /// Servers tried since the last pause.
    tried: usize,
    backoff: Backoff,
    /// Whether an earlier attempt may have been executed.
    in_doubt: bool,
    /// Generation of the server that may have executed it. Only for [`Repeat::Once`].
    executed_by: Option<HeaderValue>,
    reported: bool,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(
        request: &'a ApiRequest,
        servers: &'a Servers,
        options: &'a Options,
        now: Instant,
    ) -> Result<Self, Error> {
        let request_id = if request.is_covered_by_id() { Some(random::request_id()?) } else { None };
        Ok(Self {
            request,
            servers,
            options,
            request_id: request_id.and_then(|id| HeaderValue::from_str(&id).ok()),
            started: now,
            server: servers.current(),
            is_first: true,
            tried: 0,
            backoff: Backoff::default(),
            in_doubt: false,
            executed_by: None,
            reported: false,
        })
    }

    /// The server whose generation must be known before the next attempt.
    pub(crate) fn needs_generation(&self) -> Option<ServerIndex> {
        let needed = self.is_once() && self.request_id.is_some() && self.executed_by.is_none();
        (needed && self.servers.generation(self.server) == Generation::Unknown).then_some(self.server)
    }

    pub(crate) fn next(&self, now: Instant) -> Attempt {
        let generation = match self.servers.generation(self.server) {
            Generation::Named(named) if self.is_once() && self.request_id.is_some() => {
                Some(self.executed_by.clone().unwrap_or(named))
            }
            Generation::Named(_) | Generation::Unnamed | Generation::Unknown => None,
        };
        let mut timeout = self.options.timeout + self.request.extra_timeout;
        if !self.is_first {
            let left = self.limit(Meaning::InDoubt).saturating_sub(now.duration_since(self.started));
            timeout = timeout.min(left.max(LAST_ATTEMPT));
        }
        Attempt { server: self.server, request_id: self.request_id.clone(), generation, timeout }
    }

    /// Takes the failure of an attempt. Returns the pause before the next one.
    pub(crate) fn failed(&mut self, attempt: &Attempt, failure: Failure, now: Instant) -> Result<Duration, Error> {
        self.is_first = false;
        let meaning = failure.meaning();
        if meaning == Meaning::Final {
            if self.executed_by.is_some() && failure.is_foreign() {
                return Err(self.outcome_unknown(&failure, "the answer is not the server's own"));
            }
            self.servers.set_current(attempt.server);
            return Err(self.given_up(failure, Duration::ZERO));
        }
        if meaning == Meaning::InDoubt {
            self.in_doubt = true;
            if let Repeat::Once { .. } = self.request.repeat {
                match &attempt.generation {
                    Some(generation) => self.executed_by = Some(generation.clone()),
                    None => return Err(self.outcome_unknown(&failure, "the server keeps no answer to it")),
                }
            }
        }
        if meaning == Meaning::OtherGeneration && self.executed_by.is_some() {
            return Err(self.outcome_unknown(&failure, "the server has restarted since"));
        }
        self.tried += 1;
        // Only the server that may have executed the request can answer it again.
        if self.executed_by.is_none() && meaning != Meaning::OtherGeneration {
            self.server = self.servers.after(self.server);
            if self.tried < self.servers.count() {
                return Ok(Duration::ZERO);
            }
        }
        self.tried = 0;
        let pause = self.backoff.pause();
        let tried_for = now.duration_since(self.started);
        if tried_for + pause > self.limit(meaning) {
            return Err(self.given_up(failure, tried_for));
        }
        self.report(&failure, tried_for, meaning);
        Ok(pause)
    }

    /// Whether the error is that of a repeated deletion whose first attempt was executed.
    pub(crate) fn has_deleted(&self, error: &Error) -> bool {
        self.request.repeat == Repeat::Deletion
            && self.in_doubt
            && error.status() == Some(StatusCode::NOT_FOUND.as_u16())
    }

    fn is_once(&self) -> bool {
        matches!(self.request.repeat, Repeat::Once { .. })
    }

    /// How long the request is tried, from its first attempt.
    fn limit(&self, meaning: Meaning) -> Duration {
        let is_connecting = meaning == Meaning::Unexecuted && !self.servers.is_reached();
        if self.request.single {
            Duration::ZERO
        } else if is_connecting {
            self.options.connect_wait
        } else if self.options.resend_for.is_zero() {
            Duration::ZERO
        } else {
            self.options.resend_for + self.request.extra_timeout
        }
    }

    /// Tells the user once that the request takes longer.
    fn report(&mut self, failure: &Failure, tried_for: Duration, meaning: Meaning) {
        let Some(report) = self.options.on_outage else { return };
        if !self.reported && tried_for >= REPORTED_AFTER {
            self.reported = true;
            let left = seconds(self.limit(meaning).saturating_sub(tried_for));
            report(&format!("no answer from {}: {}; trying again for up to {left}", self.servers, failure.text()));
        }
    }

    fn given_up(&self, failure: Failure, tried_for: Duration) -> Error {
        let is_refusal = failure.meaning() == Meaning::Final;
        if self.executed_by.is_some() && !is_refusal {
            return self.outcome_unknown(&failure, &format!("it gave no answer within {}", seconds(tried_for)));
        }
        match failure {
            Failure::Final(error) => error,
            Failure::Unsent(source) | Failure::Unanswered(source) => {
                Error::Unreachable { servers: self.servers.to_string(), tried_for, source }
            }
            Failure::Refused(mut problem) => {
                if tried_for >= REPORTED_AFTER {
                    let tried = format!("{} for {}", self.servers, seconds(tried_for));
                    problem.detail = format!("{} (tried {tried})", problem.detail);
                }
                Error::Refused(problem)
            }
        }
    }

    fn outcome_unknown(&self, failure: &Failure, why: &str) -> Error {
        let check = match &self.request.repeat {
            Repeat::Once { check } => check.clone(),
            Repeat::Harmless | Repeat::Idempotent | Repeat::Deletion => format!("GET {}", self.request.path),
        };
        Error::OutcomeUnknown {
            request: format!("{} {}", self.request.method, self.request.path),
            server: self.servers.address(self.server).to_string(),
            why: format!("{}, and {why}", failure.text()),
            check,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;

    fn options() -> Options {
        Options { resend_for: Duration::from_secs(60), connect_wait: Duration::from_secs(30), ..Options::default() }
    }

    /// Lets all attempts fail in the same way, in virtual time. Returns the number of attempts and the time.
    fn give_up(request: &ApiRequest, servers: &Servers, failure: fn() -> Failure) -> (usize, Duration, Error) {
        let (options, started) = (options(), Instant::now());
        let mut attempts = Attempts::new(request, servers, &options, started).unwrap();
        let mut now = started;
        for number in 1.. {
            let attempt = attempts.next(now);
            match attempts.failed(&attempt, failure(), now) {
                Ok(pause) => now += pause,
                Err(error) => return (number, now - started, error),
            }
        }
        unreachable!("the loop ends with an error")
    }

    fn servers(list: &str) -> Servers {
        Servers::new(Address::parse_list(list).unwrap())
    }

    fn unsent() -> Failure {
        Failure::Unsent("refused".into())
    }

    fn unanswered() -> Failure {
        Failure::Unanswered("reset".into())
    }

    // FEATURES: A14
    #[test]
    fn a_server_that_was_never_reached_is_given_up_earlier() {
        let (fresh, known) = (servers("a:1"), servers("a:1"));
        known.set_reached();
        let request = ApiRequest::get("/v1/jobs");
        let (_, unreached, error) = give_up(&request, &fresh, unsent);
        assert!(unreached <= Duration::from_secs(30) && unreached > Duration::from_secs(25), "{unreached:?}");
        assert!(error.to_string().starts_with("cannot reach the server at http://a:1: refused (tried for "), "{error}");
        let (attempts, reached, _) = give_up(&request, &known, unsent);
        assert!(reached <= Duration::from_secs(60) && reached > Duration::from_secs(55), "{reached:?}");
        assert!(attempts > 30, "{attempts}");
    }

    // FEATURES: A14
    #[test]
    fn the_time_that_the_server_was_asked_to_wait_is_added_to_the_limit() {
        let known = servers("a:1");
        known.set_reached();
        let request = ApiRequest { extra_timeout: Duration::from_secs(300), ..ApiRequest::get("/v1/jobs") };
        let (_, tried_for, _) = give_up(&request, &known, unanswered);
        assert!(tried_for <= Duration::from_secs(360) && tried_for > Duration::from_secs(355), "{tried_for:?}");
    }

    #[test]
    fn a_single_request_is_tried_once_with_each_server() {
        let request = ApiRequest { single: true, ..ApiRequest::get("/readyz") };
        let (attempts, tried_for, error) = give_up(&request, &servers("a:1,b:2,c:3"), unsent);
        assert_eq!((attempts, tried_for), (3, Duration::ZERO));
        let expected = "cannot reach any of the servers http://a:1, http://b:2, http://c:3: refused";
        assert_eq!(error.to_string(), expected);
    }

    // FEATURES: A14
    #[test]
    fn an_unsafe_request_in_doubt_stays_with_its_server() {
        let servers = servers("a:1,b:2");
        servers.set_reached();
        let generation = HeaderValue::from_static("node_1.1");
        servers.record_generation(servers.current(), Some(&generation));
        let request = ApiRequest::post("/v1/jobs/1/retry", Repeat::once("/v1/jobs/1"));
        let options = options();
        let now = Instant::now();
        let mut attempts = Attempts::new(&request, &servers, &options, now).unwrap();
        let first = attempts.next(now);
        assert_eq!((first.server, first.generation.as_ref()), (servers.current(), Some(&generation)));
        assert!(attempts.failed(&first, unanswered(), now).unwrap() > Duration::ZERO);
        // The server has restarted, which another request has found out.
        servers.record_generation(servers.current(), Some(&HeaderValue::from_static("node_1.2")));
        let second = attempts.next(now);
        assert_eq!(
            (second.server, second.generation, &second.request_id),
            (first.server, first.generation, &first.request_id)
        );
        let proxy = Problem { kind: FOREIGN.to_owned(), ..ProblemKind::Internal.problem(None) };
        let error = attempts.failed(&attempts.next(now), Failure::Refused(Box::new(proxy)), now).unwrap_err();
        assert!(matches!(&error, Error::OutcomeUnknown { .. }), "{error}");
        let problem = ProblemKind::OtherGeneration.problem(None);
        let error = attempts.failed(&attempts.next(now), Failure::Refused(Box::new(problem)), now).unwrap_err();
        assert!(matches!(&error, Error::OutcomeUnknown { check, .. } if check == "GET /v1/jobs/1"), "{error}");
    }
}
