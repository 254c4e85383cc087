//! Join tokens and the nodes that have joined: one document, so that a token's use and the node it admits are one change.

use std::collections::BTreeMap;

use minicbor::{Decode, Encode};
use model::envelope::NodeReport;
use model::id::{Incarnation, NodeId};
use model::time::Millis;
use transport::token::{TokenId, TokenRecord, check};
use transport::{JoinRequest, Refusal, RefusalKind};

/// Runner nodes of one cluster.
pub(crate) const NODES_MAX: usize = 1_000;
/// Tokens on record. Used and expired ones make room.
pub(crate) const TOKENS_MAX: usize = 500;

/// The document.
#[derive(Debug, Clone, Default, Encode, Decode)]
pub(crate) struct ClusterRecord {
    #[n(0)]
    pub tokens: Vec<TokenRecord>,
    #[n(1)]
    pub nodes: BTreeMap<NodeId, JoinedNode>,
}

/// A runner node that has joined.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(crate) struct JoinedNode {
    #[n(0)]
    pub name: String,
    /// Fingerprint of the key with which it joined. A repeated request has the same one.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub key: [u8; 32],
    #[n(2)]
    pub joined_at: Millis,
    /// The newest start of the node that was connected.
    #[n(3)]
    pub newest: Option<NodeStart>,
}

/// One start of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub(crate) struct NodeStart {
    #[n(0)]
    pub incarnation: Incarnation,
    /// Tells two processes with the same incarnation apart: one of them has a copied data directory.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub process: [u8; 16],
}

impl ClusterRecord {
    /// Admits a node and counts the use of its token. A node that repeats its request, because it missed the answer, is
    /// admitted again.
    pub fn admit(&mut self, request: &JoinRequest, now: Millis) -> Result<(), Refusal> {
        let record = self.tokens.iter_mut().find(|record| record.id == request.token);
        let is_repeated = self.nodes.get(&request.node).is_some_and(|node| node.key == request.key.0);
        match check(record.as_deref(), &request.secret, now) {
            Ok(()) => {}
            Err(transport::token::TokenRefusal::Used) if is_repeated => return Ok(()),
            Err(refusal) => return Err(refusal.into()),
        }
        if is_repeated {
            return Ok(());
        }
        if self.nodes.contains_key(&request.node) {
            let text = format!(
                "another node has the id {}: remove it with `outlast nodes rm`, or join with a new data directory",
                request.node
            );
            return Err(Refusal::new(RefusalKind::NodeIdTaken, text));
        }
        if self.nodes.len() >= NODES_MAX {
            let text = format!("the cluster has {NODES_MAX} nodes, its maximum: remove some with `outlast nodes rm`");
            return Err(Refusal::new(RefusalKind::Busy, text));
        }
        if let Some(record) = record {
            record.used_count += 1;
        }
        let node = JoinedNode { name: request.name.clone(), key: request.key.0, joined_at: now, newest: None };
        self.nodes.insert(request.node, node);
        Ok(())
    }

    /// Notes a start of a node that has connected. An older start than the newest one is refused: shards ignore what it
    /// says. So is another process with the same incarnation, since its messages would count as repeated ones.
    pub fn begin(&mut self, id: NodeId, start: NodeStart) -> Result<(), Refusal> {
        let refused = |text: &str| Err(Refusal::new(RefusalKind::NodeIdTaken, format!("{id}: {text}")));
        let Some(node) = self.nodes.get_mut(&id) else { return refused("this node was removed from the cluster") };
        match node.newest {
            Some(newest) if newest == start => {}
            Some(newest) if newest.incarnation == start.incarnation => {
                return refused(
                    "another process has used the same identity: a data directory was copied. \
                     Stop the copy, and start this node again",
                );
            }
            Some(newest) if newest.incarnation > start.incarnation => {
                return refused(
                    "a later start of this node was connected: a data directory was copied. \
                     Stop the copy, and start this node again, or remove it and join with a new data directory",
                );
            }
            Some(_) | None => node.newest = Some(start),
        }
        Ok(())
    }

    /// Adds a token. Tokens that cannot be used any more make room for it. False: there is none.
    pub fn add_token(&mut self, token: TokenRecord, now: Millis) -> bool {
        if self.tokens.len() >= TOKENS_MAX {
            self.tokens.retain(|token| is_usable(token, now));
        }
        let has_room = self.tokens.len() < TOKENS_MAX;
        if has_room {
            self.tokens.push(token);
        }
        has_room
    }

    /// False: there is no such token.
    pub fn revoke_token(&mut self, id: TokenId) -> bool {
        let token = self.tokens.iter_mut().find(|token| token.id == id);
        token.map(|token| token.revoked = true).is_some()
    }
}

/// Whether a node can still join with the token.
pub(crate) fn is_usable(token: &TokenRecord, now: Millis) -> bool {
    let is_used = token.uses == transport::token::Uses::Single && token.used_count > 0;
    !token.revoked && !is_used && token.expires_at.is_none_or(|at| at > now)
}

/// The last reports of nodes, for the time after a restart until they report again.
#[derive(Debug, Clone, Default, Encode, Decode)]
pub(crate) struct ReportSnapshot {
    #[n(0)]
    pub reports: BTreeMap<NodeId, NodeReport>,
}

impl ReportSnapshot {
    /// As many reports as fit into a document. Protections are left out: nodes report them again when they connect.
    pub fn of(reports: &BTreeMap<NodeId, NodeReport>) -> Self {
        let (mut snapshot, mut bytes) = (Self::default(), 0);
        for (node, report) in reports {
            let report = NodeReport { protections: Vec::new(), ..report.clone() };
            bytes += model::codec::encode(&report).len() + 16;
            if bytes > store::DOCUMENT_BYTES_MAX - 1024 {
                break;
            }
            snapshot.reports.insert(*node, report);
        }
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use transport::Fingerprint;
    use transport::token::{Token, Uses};

    use super::*;

    const NOW: Millis = Millis(1_000);

    fn request(token: &Token, node: u64, key: u8) -> JoinRequest {
        JoinRequest {
            token: token.id(),
            secret: token.secret().clone(),
            node: NodeId(node),
            key: Fingerprint([key; 32]),
            name: "build-1".to_owned(),
            software_version: "1".to_owned(),
            addresses: Vec::new(),
            from: ([127, 0, 0, 1], 1).into(),
        }
    }

    fn with_token(uses: Uses) -> (ClusterRecord, Token) {
        let token = Token::generate(Fingerprint([1; 32])).unwrap();
        let mut record = ClusterRecord::default();
        assert!(record.add_token(token.record(NOW, Some(Millis(5_000)), uses, String::new()), NOW));
        (record, token)
    }

    fn refusal(result: Result<(), Refusal>) -> RefusalKind {
        result.expect_err("refused").kind()
    }

    // FEATURES: B9
    #[test]
    fn a_single_use_token_admits_one_node_also_if_it_asks_twice() {
        let (mut record, token) = with_token(Uses::Single);
        record.admit(&request(&token, 7, 1), NOW).unwrap();
        record.admit(&request(&token, 7, 1), NOW).unwrap();
        assert_eq!(refusal(record.admit(&request(&token, 8, 2), NOW)), RefusalKind::TokenUsed);
        assert_eq!(refusal(record.admit(&request(&token, 7, 2), NOW)), RefusalKind::TokenUsed);
        assert_eq!((record.nodes.len(), record.tokens[0].used_count), (1, 1));
    }

    #[test]
    fn a_reusable_token_admits_nodes_until_it_expires_or_is_revoked() {
        let (mut record, token) = with_token(Uses::Reusable);
        record.admit(&request(&token, 7, 1), NOW).unwrap();
        record.admit(&request(&token, 8, 2), NOW).unwrap();
        assert_eq!(refusal(record.admit(&request(&token, 8, 3), NOW)), RefusalKind::NodeIdTaken);
        assert_eq!(refusal(record.admit(&request(&token, 9, 3), Millis(5_000))), RefusalKind::TokenExpired);
        let other = Token::generate(Fingerprint([1; 32])).unwrap();
        assert_eq!(refusal(record.admit(&request(&other, 9, 3), NOW)), RefusalKind::TokenUnknown);
        assert!(record.revoke_token(token.id()) && !record.revoke_token(other.id()));
        assert_eq!(refusal(record.admit(&request(&token, 9, 3), NOW)), RefusalKind::TokenRevoked);
    }

    #[test]
    fn an_older_start_and_a_second_process_of_a_start_are_refused() {
        let (mut record, token) = with_token(Uses::Single);
        record.admit(&request(&token, 7, 1), NOW).unwrap();
        let mut begin = |incarnation, process| {
            let start = NodeStart { incarnation: Incarnation(incarnation), process: [process; 16] };
            record.begin(NodeId(7), start).map_err(|refusal| refusal.kind())
        };
        assert_eq!([begin(1, 1), begin(1, 1), begin(3, 2), begin(3, 2)], [Ok(()); 4]);
        assert_eq!([begin(3, 9), begin(2, 1)], [Err(RefusalKind::NodeIdTaken); 2]);
        assert_eq!(begin(4, 9), Ok(()));
        let unknown = NodeStart { incarnation: Incarnation(1), process: [1; 16] };
        assert!(record.begin(NodeId(8), unknown).is_err());
    }

    #[test]
    fn tokens_that_cannot_be_used_make_room_for_new_ones() {
        let (mut record, token) = with_token(Uses::Single);
        let template = record.tokens[0].clone();
        record.tokens = vec![template; TOKENS_MAX];
        let new = || token.record(NOW, None, Uses::Single, String::new());
        assert!(!record.add_token(new(), NOW), "all can be used");
        record.tokens[3].revoked = true;
        assert!(record.add_token(new(), NOW));
        assert!(record.add_token(new(), Millis(5_000)), "the others have expired");
        assert_eq!(record.tokens.len(), 2);
    }

    #[test]
    fn the_largest_record_fits_into_a_document() {
        let (mut record, token) = with_token(Uses::Single);
        let note = "x".repeat(200);
        record.tokens = vec![token.record(NOW, Some(NOW), Uses::Single, note); TOKENS_MAX];
        let newest = Some(NodeStart { incarnation: Incarnation(u64::MAX), process: [255; 16] });
        let node = JoinedNode { name: "x".repeat(200), key: [1; 32], joined_at: NOW, newest };
        record.nodes = (0..NODES_MAX as u64).map(|id| (NodeId(u64::MAX - id), node.clone())).collect();
        assert!(model::codec::encode(&record).len() < store::DOCUMENT_BYTES_MAX);
        let report = NodeReport { name: "x".repeat(1_000), ..NodeReport::default() };
        let reports = (0..2_000).map(|id| (NodeId(u64::MAX - id), report.clone())).collect();
        let snapshot = ReportSnapshot::of(&reports);
        assert!(snapshot.reports.len() > 900);
        assert!(model::codec::encode(&snapshot).len() < store::DOCUMENT_BYTES_MAX);
    }
}
