//! Whether a server lives, serves, and which version it is.

use hyper::Method;

use crate::client::Client;
use crate::error::Error;
use crate::transport::Ask;

/// What a server says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Absent where the server does not tell.
    pub version: Option<String>,
}

impl Client {
    /// The server is alive.
    pub async fn health(&self) -> Result<Health, Error> {
        let answer = self.transport.ask(&Ask::new(Method::GET, "/healthz")).await?;
        let body: Option<serde_json::Value> = serde_json::from_slice(&answer.body).ok();
        let from_body = body.as_ref().and_then(|body| body.get("version")?.as_str());
        let header = answer.head.headers.get("server").and_then(|value| value.to_str().ok());
        let from_header = header.and_then(|value| value.strip_prefix("outlast/"));
        Ok(Health { version: from_body.or(from_header).map(str::to_owned) })
    }

    /// The server has taken up its work and takes requests. Refused while it has not.
    pub async fn ready(&self) -> Result<(), Error> {
        self.transport.ask(&Ask::new(Method::GET, "/readyz")).await.map(drop)
    }
}
