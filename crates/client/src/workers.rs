//! Workers: registered bundles of executables.

use api::{Page, WorkerDetailView, WorkerView};
use model::blob::WorkerId;
use serde::Serialize;

use crate::client::{Client, to_json};
use crate::error::Error;
use crate::query::Query;
use crate::request::{ApiRequest, Repeat};

impl Client {
    pub async fn workers(&self, limit: Option<usize>, cursor: Option<&str>) -> Result<Page<WorkerView>, Error> {
        self.get(Query::default().with("limit", limit).with("cursor", cursor).append_to("/v1/workers")).await
    }

    pub async fn worker(&self, id: WorkerId) -> Result<WorkerDetailView, Error> {
        self.get(format!("/v1/workers/{id}")).await
    }

    /// Registers a worker by its manifest. Its blobs must have been uploaded: see [`Client::missing`] and
    /// [`Client::upload`].
    pub async fn register_worker(&self, manifest: &impl Serialize) -> Result<WorkerView, Error> {
        // The id of a worker is the hash of its manifest.
        self.request_json(&ApiRequest::post("/v1/workers", Repeat::Idempotent).json(to_json(manifest)?)).await
    }

    pub async fn remove_worker(&self, id: WorkerId) -> Result<(), Error> {
        self.delete(format!("/v1/workers/{id}")).await
    }
}
