//! [`Client`] and its options.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::address::Address;
use crate::error::Error;
use crate::transport::{ApiRequest, Transport};

/// Options of a client.
#[derive(Debug, Clone)]
pub struct Options {
    /// Sent as `Authorization: Bearer …`.
    pub token: Option<String>,
    /// Person on whose behalf requests are made. Recorded in the audit log, not authenticated.
    pub actor: Option<String>,
    /// Request timeout, in addition to the time the server was asked to wait.
    pub timeout: Duration,
    /// Retries of a failed connection attempt.
    pub retries: u32,
    /// Delay before the first retry; doubles with each retry.
    pub retry_pause: Duration,
    /// Consecutive reconnects of a broken event stream or upload.
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

/// Client of one server. Clones share connections.
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
        self.request_json(&ApiRequest::new(Method::GET, path)).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, path: String) -> Result<T, Error> {
        self.request_json(&ApiRequest::new(Method::POST, path)).await
    }

    pub(crate) async fn delete(&self, path: String) -> Result<(), Error> {
        self.transport.send(&ApiRequest::new(Method::DELETE, path)).await.map(drop)
    }

    /// Sends a request and decodes the JSON response.
    pub(crate) async fn request_json<T: DeserializeOwned>(&self, request: &ApiRequest) -> Result<T, Error> {
        let response = self.transport.send(request).await?;
        serde_json::from_slice(&response.body)
            .map_err(|error| Error::Protocol(format!("{} {}: {error}", request.method, request.path)))
    }
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const NDJSON: &str = "application/x-ndjson";

pub(crate) fn to_json(value: &impl Serialize) -> Result<Bytes, Error> {
    let body = serde_json::to_vec(value);
    body.map(Bytes::from).map_err(|error| Error::Protocol(format!("cannot encode the request as JSON: {error}")))
}
