//! The client itself: where the server is and how patient to be.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::address::Address;
use crate::error::Error;
use crate::transport::{Ask, Transport};

/// How a client behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// Sent as `Authorization: Bearer …`.
    pub token: Option<String>,
    /// On whose behalf it asks: kept with what is done, and not believed.
    pub actor: Option<String>,
    /// How long an answer may take, beyond what the server was asked to wait.
    pub timeout: Duration,
    /// How often a connection that cannot be made is tried again.
    pub retries: u32,
    /// The pause before the first retry; it doubles with each.
    pub retry_pause: Duration,
    /// How often in a row a broken stream of events is taken up again.
    pub reconnects: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            token: None,
            actor: None,
            timeout: Duration::from_secs(30),
            retries: 2,
            retry_pause: Duration::from_millis(100),
            reconnects: 10,
        }
    }
}

/// A client of one server. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) transport: Arc<Transport>,
}

impl Client {
    pub fn new(base_url: &str) -> Result<Self, Error> {
        Self::with_options(base_url, Options::default())
    }

    pub fn with_options(base_url: &str, options: Options) -> Result<Self, Error> {
        let address: Address = base_url.parse()?;
        Ok(Self { transport: Arc::new(Transport::new(address, options)) })
    }

    pub fn address(&self) -> &Address {
        self.transport.address()
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: String) -> Result<T, Error> {
        self.answer(&Ask::new(Method::GET, path)).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, path: String) -> Result<T, Error> {
        self.answer(&Ask::new(Method::POST, path)).await
    }

    pub(crate) async fn delete(&self, path: String) -> Result<(), Error> {
        self.transport.ask(&Ask::new(Method::DELETE, path)).await.map(drop)
    }

    /// Asks, and reads the answer as JSON.
    pub(crate) async fn answer<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T, Error> {
        let answer = self.transport.ask(ask).await?;
        serde_json::from_slice(&answer.body)
            .map_err(|error| Error::Protocol(format!("{} {}: {error}", ask.method, ask.path)))
    }
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const NDJSON: &str = "application/x-ndjson";

pub(crate) fn to_json(value: &impl Serialize) -> Result<Bytes, Error> {
    let body = serde_json::to_vec(value);
    body.map(Bytes::from).map_err(|error| Error::Protocol(format!("the request cannot be written as JSON: {error}")))
}
