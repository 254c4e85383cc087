//! Queues: create, inspect, drain, cancel.

use api::{Page, QueueSpec, QueueView};
use model::queue::QueueRef;

use crate::client::{Client, to_json};
use crate::error::Error;
use crate::query::Query;
use crate::random;
use crate::request::{ApiRequest, Repeat};

impl Client {
    /// Creates a queue. Only this response contains the queue's token.
    pub async fn create_queue(&self, spec: &QueueSpec) -> Result<QueueView, Error> {
        let request = ApiRequest::post("/v1/queues", Repeat::Harmless).json(to_json(spec)?);
        let idempotency_key = Some(random::idempotency_key()?);
        let queue: QueueView = self.request_json(&ApiRequest { idempotency_key, ..request }).await?;
        // A generated key is new: only this call can have used it before.
        Ok(QueueView { deduplicated: false, ..queue })
    }

    pub async fn queues(&self, limit: Option<usize>, cursor: Option<&str>) -> Result<Page<QueueView>, Error> {
        self.get(Query::default().with("limit", limit).with("cursor", cursor).append_to("/v1/queues")).await
    }

    pub async fn queue(&self, queue: QueueRef) -> Result<QueueView, Error> {
        self.get(format!("/v1/queues/{queue}")).await
    }

    /// Closes the queue for new jobs and lets its jobs finish.
    pub async fn drain_queue(&self, queue: QueueRef) -> Result<QueueView, Error> {
        self.act(format!("/v1/queues/{queue}/drain"), Repeat::Idempotent).await
    }

    /// Closes the queue for new jobs and cancels its jobs.
    pub async fn cancel_queue(&self, queue: QueueRef) -> Result<QueueView, Error> {
        self.act(format!("/v1/queues/{queue}/cancel"), Repeat::Idempotent).await
    }

    pub async fn remove_queue(&self, queue: QueueRef) -> Result<(), Error> {
        self.delete(format!("/v1/queues/{queue}")).await
    }
}
