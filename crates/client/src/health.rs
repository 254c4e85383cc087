//! Liveness, readiness and version of a server.

use crate::client::Client;
use crate::error::Error;
use crate::request::ApiRequest;

/// Response to a liveness check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// `None` if the server does not report it.
    pub version: Option<String>,
}

impl Client {
    /// Liveness check. Not repeated: fails at once if no server is alive.
    pub async fn health(&self) -> Result<Health, Error> {
        let response = self.transport.send(&probe("/healthz")).await?;
        let body: Option<serde_json::Value> = serde_json::from_slice(&response.body).ok();
        let from_body = body.as_ref().and_then(|body| body.get("version")?.as_str());
        let header = response.head.headers.get("server").and_then(|value| value.to_str().ok());
        let from_header = header.and_then(|value| value.strip_prefix("outlast/"));
        Ok(Health { version: from_body.or(from_header).map(str::to_owned) })
    }

    /// Readiness check. Not repeated: fails until a server accepts requests.
    pub async fn ready(&self) -> Result<(), Error> {
        self.transport.send(&probe("/readyz")).await.map(drop)
    }
}

fn probe(path: &str) -> ApiRequest {
    ApiRequest { single: true, ..ApiRequest::get(path) }
}
