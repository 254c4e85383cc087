//! Nodes, events, health, metrics and the documentation itself.

use serde_json::json;

use super::{Builder, EVENTS, JSON, Routes, text};
use crate::{
    ChangeKind, ChangeView, CordonNode, CreateJoinToken, DrainNode, HealthView, JoinTokenView, MoveSession,
    NewJoinTokenView, NodeView, SessionMove, SessionView,
};

impl Builder<'_> {
    fn moves_session(mut self) {
        let schema = self.routes.components.reference::<SessionMove>();
        for parameter in &mut self.operation().parameters {
            if parameter.name == "move" {
                parameter.schema = schema.clone();
            }
        }
        self.description(
            "Sessions only move forward; anything else is refused with `session_state`. `drain`: no new work, running \
             work ends. `pause`: no new work. `abandon` and `sunset`, from every earlier state: the attempts on the node \
             are ended at once. Their jobs run elsewhere and use no retry; without another node they end as `abandoned`.",
        )
        .acted()
        .optional_body::<MoveSession>()
        .responds::<SessionView>(200, "The session.");
    }

    fn subscribes(self) -> Self {
        let kinds = ChangeKind::ALL.map(|kind| format!("`{}`", kind.as_str()));
        self.query("since", "A cursor, `now` (the default) or `start`.")
            .query("kind", &format!("Only changes of this kind: {}.", kinds.join(", ")))
            .query("job", "Only changes of this job.")
            .query("queue", "Only changes of this queue, its jobs and its workflows.")
            .query("workflow", "Only changes of this workflow and its tasks.")
            .query("node", "Only changes of this node.")
    }
}

/// Sessions of this node and of others.
fn sessions(routes: &mut Routes) {
    let own = routes.get("/v1/session", "get_own_session", "Get the session of this node.");
    own.responds::<SessionView>(200, "The session.");
    let other = routes.get("/v1/nodes/{id}/session", "get_session", "Get the session of a node.");
    other.responds::<SessionView>(200, "The session.");
    let own = routes.post("/v1/session/{move}", "move_own_session", "Move the session of this node.");
    own.moves_session();
    let other = routes.post("/v1/nodes/{id}/session/{move}", "move_session", "Move the session of a node.");
    other.moves_session();
}

pub(super) fn add(routes: &mut Routes) {
    routes.tag("nodes");
    let list = routes.get("/v1/nodes", "list_nodes", "List nodes with their capacity and protections.");
    list.responds_page::<NodeView>("All nodes.");
    routes.get("/v1/nodes/{id}", "get_node", "Get a node.").responds::<NodeView>(200, "The node.");
    let cordon = routes.post("/v1/nodes/{id}/cordon", "cordon_node", "Give a node no new work.");
    cordon.acted().optional_body::<CordonNode>().responds::<NodeView>(200, "The node.");
    let uncordon = routes.post("/v1/nodes/{id}/uncordon", "uncordon_node", "End the cordon or drain of a node.");
    uncordon.acted().empty_body().responds::<NodeView>(200, "The node.");
    let drain = routes.post("/v1/nodes/{id}/drain", "drain_node", "Give a node no new work and let its work end.");
    drain.acted().optional_body::<DrainNode>().responds::<NodeView>(200, "The node.");
    let remove = routes.delete("/v1/nodes/{id}", "remove_node", "Remove a runner node from the cluster.");
    remove
        .description("Its certificate is not accepted any more, and its work is given to other nodes.")
        .acted()
        .responds_empty(204, "Removed.");
    sessions(routes);
    let create = routes.post("/v1/join-tokens", "create_join_token", "Create a token with which a node can join.");
    create.acted().optional_body::<CreateJoinToken>().responds::<NewJoinTokenView>(201, "The token.");
    let tokens = routes.get("/v1/join-tokens", "list_join_tokens", "List join tokens, without their secrets.");
    tokens.responds_page::<JoinTokenView>("All tokens.");
    let revoke = routes.delete("/v1/join-tokens/{id}", "revoke_join_token", "Revoke a join token.");
    revoke.acted().responds_empty(204, "Revoked. Nodes that have joined with it stay.");

    routes.tag("events");
    routes.components.reference::<ChangeView>();
    let stream = routes.get("/v1/events", "stream_events", "Subscribe to changes as server-sent events.");
    stream
        .description("Reconnecting with the last cursor resumes without a gap.")
        .subscribes()
        .header("Last-Event-ID", "Cursor of the last received event; overrides `since`.")
        .responds_as(200, "A stream of `Change`.", vec![(EVENTS, text())]);
    let socket = routes.get("/v1/ws", "open_event_socket", "Subscribe to changes over WebSocket.");
    socket.subscribes().responds_empty(101, "Switched to WebSocket. Each message is a `Change`.");

    routes.tag("system");
    let alive = routes.get("/healthz", "get_health", "Check whether the server is alive.");
    alive.responds::<HealthView>(200, "The server is alive.");
    let ready = routes.get("/readyz", "get_readiness", "Check whether the server is ready.");
    ready.responds::<HealthView>(200, "The server is ready.");
    let metrics = routes.get("/metrics", "get_metrics", "Get metrics for Prometheus.");
    metrics.responds_as(200, "OpenMetrics text.", vec![("application/openmetrics-text", text())]);
    let document = routes.get("/openapi.json", "get_openapi", "Get this document.");
    document.responds_as(200, "OpenAPI 3.1.", vec![(JSON, json!({"type": "object"}))]);
    let page = routes.get("/docs", "get_docs", "Get this document as a page.");
    page.responds_as(200, "HTML.", vec![("text/html", text())]).without_problems();
    let front = routes.get("/", "get_root", "Redirect to /docs.");
    front.responds_empty(307, "To /docs.").without_problems();
}
