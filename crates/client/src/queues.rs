//! Queues: create, inspect, drain, cancel.

use api::{Page, QueueSpec, QueueView};
use hyper::Method;
use model::queue::QueueRef;

use crate::client::{Client, JSON, to_json};
use crate::error::Error;
use crate::query::Query;
use crate::transport::ApiRequest;

impl Client {
    /// Creates a queue. Only this response contains the queue's token.
    pub async fn create_queue(&self, spec: &QueueSpec) -> Result<QueueView, Error> {
        self.request_json(&ApiRequest::new(Method::POST, "/v1/queues").body(JSON, to_json(spec)?)).await
    }

    pub async fn queues(&self, limit: Option<usize>, cursor: Option<&str>) -> Result<Page<QueueView>, Error> {
        self.get(Query::default().with("limit", limit).with("cursor", cursor).append_to("/v1/queues")).await
    }

    pub async fn queue(&self, queue: QueueRef) -> Result<QueueView, Error> {
        self.get(format!("/v1/queues/{queue}")).await
    }

    /// Closes the queue for new jobs and lets its jobs finish.
    pub async fn drain_queue(&self, queue: QueueRef) -> Result<QueueView, Error> {
        self.post(format!("/v1/queues/{queue}/drain")).await
    }

    /// Closes the queue for new jobs and cancels its jobs.
    pub async fn cancel_queue(&self, queue: QueueRef) -> Result<QueueView, Error> {
        self.post(format!("/v1/queues/{queue}/cancel")).await
    }

    pub async fn remove_queue(&self, queue: QueueRef) -> Result<(), Error> {
        self.delete(format!("/v1/queues/{queue}")).await
    }
}
