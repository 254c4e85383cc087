//! The nodes that run jobs.

use model::view::{NodeView, Page};

use crate::client::Client;
use crate::error::Error;

impl Client {
    pub async fn nodes(&self) -> Result<Page<NodeView>, Error> {
        self.get("/v1/nodes".to_owned()).await
    }
}
