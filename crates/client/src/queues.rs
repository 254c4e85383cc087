//! Queues: making them, looking at them, ending them.

use hyper::Method;
use model::queue::QueueRef;
use model::view::{Page, QueueSpec, QueueView};

use crate::client::{Client, JSON, to_json};
use crate::error::Error;
use crate::query::Query;
use crate::transport::Ask;

impl Client {
    /// The answer has the queue's token, which is shown this once.
    pub async fn create_queue(&self, spec: &QueueSpec) -> Result<QueueView, Error> {
        self.answer(&Ask::new(Method::POST, "/v1/queues").body(JSON, to_json(spec)?)).await
    }

    pub async fn queues(&self, limit: Option<usize>, cursor: Option<&str>) -> Result<Page<QueueView>, Error> {
        self.get(Query::default().with("limit", limit).with("cursor", cursor).after("/v1/queues")).await
    }

    pub async fn queue(&self, queue: QueueRef) -> Result<QueueView, Error> {
        self.get(format!("/v1/queues/{queue}")).await
    }

    /// No new jobs; those it has are finished.
    pub async fn drain_queue(&self, queue: QueueRef) -> Result<QueueView, Error> {
        self.post(format!("/v1/queues/{queue}/drain")).await
    }

    /// No new jobs; those it has are cancelled.
    pub async fn cancel_queue(&self, queue: QueueRef) -> Result<QueueView, Error> {
        self.post(format!("/v1/queues/{queue}/cancel")).await
    }

    pub async fn remove_queue(&self, queue: QueueRef) -> Result<(), Error> {
        self.delete(format!("/v1/queues/{queue}")).await
    }
}
