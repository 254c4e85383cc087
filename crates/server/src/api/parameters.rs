//! Query parameters.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use ::api::routes::{PAGE_DEFAULT, PAGE_MAX, WAIT_MS_MAX};
use axum::extract::{FromRequestParts, MatchedPath};
use axum::http::request::Parts;
use model::id::{JobId, QueueId};
use model::queue::QueueRef;

use super::problem::{ProblemKind, Refused};
use super::{Core, docs};

/// Query parameters of a request. Unknown ones are refused: a misspelt filter must not list everything.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    values: BTreeMap<String, String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Parameters {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        let query = parts.uri.query().unwrap_or_default();
        if query.is_empty() {
            return Ok(Self::default());
        }
        expect_known(parts)?;
        let axum::extract::Query(values) =
            axum::extract::Query::<BTreeMap<String, String>>::try_from_uri(&parts.uri)
                .map_err(|error| Refused::detailed(ProblemKind::InvalidParameter, error.to_string()))?;
        Ok(Self { values })
    }
}

fn expect_known(parts: &Parts) -> Result<(), Refused> {
    let Some(path) = parts.extensions.get::<MatchedPath>() else { return Ok(()) };
    let pairs = parts.uri.query().unwrap_or_default().split('&');
    for name in pairs.filter_map(|pair| pair.split('=').next()).filter(|name| !name.is_empty()) {
        if !docs::has_parameter(path.as_str(), parts.method.as_str(), name) {
            let detail = format!("`{name}` is not a parameter of this route; /docs lists them");
            return Err(Refused::detailed(ProblemKind::InvalidParameter, detail).at(name));
        }
    }
    Ok(())
}

impl Parameters {
    /// A parameter; empty ones count as absent.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), value.to_owned());
    }

    pub fn flag(&self, name: &'static str) -> Result<bool, Refused> {
        match self.text(name) {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1") => Ok(true),
            Some(other) => Err(Refused::parameter(name, format!("`{other}` is neither true nor false"))),
        }
    }

    pub fn number(&self, name: &'static str, max: u64) -> Result<Option<u64>, Refused> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse::<u64>() {
            Ok(number) if number <= max => Ok(Some(number)),
            Ok(_) => Err(Refused::parameter(name, format!("{text} is too large: at most {max}"))),
            Err(_) => Err(Refused::parameter(name, format!("`{text}` is not a non-negative integer"))),
        }
    }

    /// How long to wait for the end of a job or workflow.
    pub fn wait(&self) -> Result<Option<Duration>, Refused> {
        Ok(self.number("wait_ms", WAIT_MS_MAX)?.map(Duration::from_millis))
    }

    pub fn limit(&self) -> Result<usize, Refused> {
        match self.number("limit", PAGE_MAX)? {
            Some(0) => Err(Refused::parameter("limit", "the limit must be at least 1")),
            Some(limit) => Ok(limit as usize),
            None => Ok(PAGE_DEFAULT as usize),
        }
    }

    pub fn queue(&self) -> Result<Option<QueueRef>, Refused> {
        self.text("queue").map(super::queues::parse_ref).transpose()
    }

    pub fn job(&self) -> Result<Option<JobId>, Refused> {
        self.text("job").map(super::jobs::parse_id).transpose()
    }

    /// States separated by commas.
    pub fn states<S: FromStr<Err: Display>>(&self) -> Result<Option<Vec<S>>, Refused> {
        let Some(text) = self.text("state") else { return Ok(None) };
        let states: Result<Vec<S>, _> = text.split(',').map(str::parse).collect();
        states.map(Some).map_err(|error| Refused::parameter("state", error.to_string()))
    }

    /// The id of the queue in `queue`. The jobs of an expired queue can still be listed by its id. Blocks on the
    /// store if the queue is given by its token.
    pub fn queue_id(&self, core: &Core) -> Result<Option<QueueId>, Refused> {
        match self.queue()? {
            Some(reference) => Ok(Some(super::queues::id_of(core, reference)?)),
            None => Ok(None),
        }
    }
}
