//! Nodes of the cluster.

use api::{NodeView, Page};
use model::id::NodeId;

use crate::client::Client;
use crate::error::Error;

impl Client {
    pub async fn nodes(&self) -> Result<Page<NodeView>, Error> {
        self.get("/v1/nodes".to_owned()).await
    }

    pub async fn node(&self, id: NodeId) -> Result<NodeView, Error> {
        self.get(format!("/v1/nodes/{id}")).await
    }
}
