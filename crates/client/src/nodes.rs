//! Nodes of the cluster.

use api::{
    CordonNode, CreateJoinToken, DrainNode, JoinTokenView, MoveSession, NewJoinTokenView, NodeView, Page, SessionMove,
    SessionView,
};
use model::id::NodeId;

use crate::client::{Client, to_json};
use crate::error::Error;
use crate::query::segment;
use crate::request::{ApiRequest, Repeat};

fn session_path(id: Option<NodeId>) -> String {
    id.map_or_else(|| "/v1/session".to_owned(), |id| format!("/v1/nodes/{id}/session"))
}

impl Client {
    pub async fn nodes(&self) -> Result<Page<NodeView>, Error> {
        self.get("/v1/nodes".to_owned()).await
    }

    pub async fn node(&self, id: NodeId) -> Result<NodeView, Error> {
        self.get(format!("/v1/nodes/{id}")).await
    }

    /// Gives a node no new work.
    pub async fn cordon_node(&self, id: NodeId, request: &CordonNode) -> Result<NodeView, Error> {
        let path = format!("/v1/nodes/{id}/cordon");
        self.request_json(&ApiRequest::post(path, Repeat::Idempotent).json(to_json(request)?)).await
    }

    /// Ends the cordon or drain of a node.
    pub async fn uncordon_node(&self, id: NodeId) -> Result<NodeView, Error> {
        self.act(format!("/v1/nodes/{id}/uncordon"), Repeat::Idempotent).await
    }

    /// Gives a node no new work and lets its work end.
    pub async fn drain_node(&self, id: NodeId, request: &DrainNode) -> Result<NodeView, Error> {
        let path = format!("/v1/nodes/{id}/drain");
        self.request_json(&ApiRequest::post(path, Repeat::Idempotent).json(to_json(request)?)).await
    }

    /// The session of a node, or of the server's own.
    pub async fn session(&self, id: Option<NodeId>) -> Result<SessionView, Error> {
        self.get(session_path(id)).await
    }

    /// Moves the session of a node, or of the server's own.
    pub async fn move_session(
        &self,
        id: Option<NodeId>,
        what: SessionMove,
        request: &MoveSession,
    ) -> Result<SessionView, Error> {
        let path = session_path(id);
        let repeat = Repeat::once(&path);
        let request = ApiRequest::post(format!("{path}/{}", what.as_str()), repeat).json(to_json(request)?);
        self.request_json(&request).await
    }

    /// Removes a runner node from the cluster.
    pub async fn remove_node(&self, id: NodeId) -> Result<(), Error> {
        self.delete(format!("/v1/nodes/{id}")).await
    }

    /// Creates a token with which a node can join.
    pub async fn create_join_token(&self, request: &CreateJoinToken) -> Result<NewJoinTokenView, Error> {
        // Repeating it may create a second token, which expires unused.
        self.request_json(&ApiRequest::post("/v1/join-tokens", Repeat::Idempotent).json(to_json(request)?)).await
    }

    pub async fn join_tokens(&self) -> Result<Page<JoinTokenView>, Error> {
        self.get("/v1/join-tokens".to_owned()).await
    }

    pub async fn revoke_join_token(&self, id: &str) -> Result<(), Error> {
        self.delete(format!("/v1/join-tokens/{}", segment(id))).await
    }
}
