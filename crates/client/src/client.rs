//! [`Client`] and its options.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::address::Address;
use crate::error::Error;
use crate::request::{ApiRequest, Repeat};
use crate::transport::Transport;

/// Options of a client.
#[derive(Debug, Clone)]
pub struct Options {
    /// Sent as `Authorization: Bearer …`.
    pub token: Option<String>,
    /// Person on whose behalf requests are made. Recorded in the audit log, not authenticated.
    pub actor: Option<String>,
    /// Timeout of an attempt, in addition to the time the server was asked to wait.
    pub timeout: Duration,
    /// For how long a request that got no answer is sent again, from its first attempt, in addition to the time the
    /// server was asked to wait. Also the longest outage that an event stream or upload tolerates. Zero: each server is
    /// tried once.
    pub resend_for: Duration,
    /// For how long a client that has not reached any server yet tries to connect.
    pub connect_wait: Duration,
    /// Called with a message for the user when a request has failed for a second and is sent again; once per request.
    pub on_outage: Option<fn(&str)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            token: None,
            actor: None,
            timeout: Duration::from_secs(30),
            resend_for: Duration::from_secs(60),
            connect_wait: Duration::from_secs(30),
            on_outage: None,
        }
    }
}

/// Client of one or more servers with the same data. Clones share connections.
///
/// The server that answered last is used first. The others are tried in turn if it cannot be reached, starts or stops.
/// A request that got no answer is sent again, so that it survives the restart of a server:
///
/// - Requests that read are simply repeated, as are those that are idempotent: cancel, retract, drain, delete, …
/// - A submitted job, a started workflow and a created queue have an idempotency key; without one, the client generates
///   it.
/// - Everything else has an id, under which its server gives the first answer again. If the server has restarted in
///   between, the error is [`Error::OutcomeUnknown`].
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) transport: Arc<Transport>,
}

impl Client {
    /// `servers`: one or more URLs, separated by commas.
    pub fn new(servers: &str) -> Result<Self, Error> {
        Self::with_options(servers, Options::default())
    }

    /// `servers`: one or more URLs, separated by commas.
    pub fn with_options(servers: &str, options: Options) -> Result<Self, Error> {
        Ok(Self { transport: Arc::new(Transport::new(Address::parse_list(servers)?, options)) })
    }

    /// The same client, connections included, with another [`Options::resend_for`].
    pub fn resending_for(&self, limit: Duration) -> Self {
        let options = Options { resend_for: limit, ..self.options().clone() };
        Self { transport: Arc::new(self.transport.with_options(options)) }
    }

    pub fn options(&self) -> &Options {
        self.transport.options()
    }

    /// Address of the server that answered last.
    pub fn address(&self) -> &Address {
        self.transport.address()
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: String) -> Result<T, Error> {
        self.request_json(&ApiRequest::get(path)).await
    }

    /// An action without a body.
    pub(crate) async fn act<T: DeserializeOwned>(&self, path: String, repeat: Repeat) -> Result<T, Error> {
        self.request_json(&ApiRequest::post(path, repeat)).await
    }

    pub(crate) async fn delete(&self, path: String) -> Result<(), Error> {
        self.transport.send(&ApiRequest::new(Method::DELETE, path, Repeat::Deletion)).await.map(drop)
    }

    /// Sends a request and decodes the JSON response.
    pub(crate) async fn request_json<T: DeserializeOwned>(&self, request: &ApiRequest) -> Result<T, Error> {
        let response = self.transport.send(request).await?;
        serde_json::from_slice(&response.body)
            .map_err(|error| Error::Protocol(format!("{} {}: {error}", request.method, request.path)))
    }
}

pub(crate) fn to_json(value: &impl Serialize) -> Result<Bytes, Error> {
    let body = serde_json::to_vec(value);
    body.map(Bytes::from).map_err(|error| Error::Protocol(format!("cannot encode the request as JSON: {error}")))
}
