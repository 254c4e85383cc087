//! Retention of the audit log: a shortened chain verifies, and changes to it are reported.

use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::audit::{Action, AuditEntry, Head, Link, SignedCheckpoint};
use model::batch::{Batch, Keyspace};
use model::codec;
use model::id::{NodeId, ShardId};
use model::key;
use model::time::Millis;
use serde_json::Value;
use store::{Embedded, Order, Range, ShardOwner, Store};
use tempfile::TempDir;

use crate::audit::{busy_server, read_pages};
use crate::http::DEADLINE;
use crate::support::{Server, echo, text, with};

/// A server with some entries in three chains, restarted with a tiny retention: the sweep runs at the start.
async fn shortened_server() -> (Server, TempDir) {
    let (mut server, rules, _) = busy_server().await;
    server.stop().await;
    server.change_options(|options| options.audit_retention_ms = 1);
    server.start_again().await;
    let is_shortened = |report: &Value| shards(report).iter().all(|shard| shard["checkpoint"].is_object());
    server.seen("/v1/audit/verify", is_shortened).await;
    (server, rules)
}

fn shards(report: &Value) -> Vec<Value> {
    report["shards"].as_array().unwrap().clone()
}

async fn verify(server: &Server) -> Value {
    server.get("/v1/audit/verify").await.expect(200)
}

/// Changes the records of the first shard while the server is stopped.
async fn tamper(server: &mut Server, change: impl FnOnce(&dyn Store, &mut Batch)) {
    server.stop().await;
    let store = Embedded::open(server.directory(), store::Options::default()).unwrap();
    let mut token = store.take_over(ShardId(0), ShardOwner { node: NodeId(1), nonce: 1 }).unwrap();
    let mut batch = Batch::new();
    change(&store, &mut batch);
    store.commit(&mut token, &batch).unwrap();
    store.close().unwrap();
    server.start_again().await;
}

fn checkpoint(store: &dyn Store) -> SignedCheckpoint {
    let stored = store.get(ShardId(0), Keyspace::Meta, key::META_AUDIT_START).unwrap();
    codec::decode(&stored.expect("a checkpoint")).unwrap()
}

fn put_checkpoint(batch: &mut Batch, signed: &SignedCheckpoint) {
    batch.put_with(Keyspace::Meta, key::META_AUDIT_START, |buffer| codec::encode_into(signed, buffer));
}

#[tokio::test]
async fn a_shortened_log_verifies_from_its_checkpoint() {
    let (mut server, _rules) = shortened_server().await;
    let report = verify(&server).await;
    assert_eq!(report["ok"], true, "{report}");
    for shard in shards(&report) {
        let checkpoint = &shard["checkpoint"];
        assert_eq!((&checkpoint["valid"], &checkpoint["public_key"]), (&true.into(), &report["public_key"]), "{shard}");
        let removed = checkpoint["number"].as_u64().unwrap();
        assert_eq!(shard["first"], removed + 1);
        assert_eq!(shard["last"], removed + shard["entries"].as_u64().unwrap());
    }
    let entries = read_pages(&server, "", 2).await;
    assert!(entries.iter().all(|entry| entry["action"] == "audit_shortened"), "{entries:?}");
    let message = text(&read_pages(&server, "&shard=0&after=0", 10).await[0]["message"]);
    let first = &shards(&report)[0]["checkpoint"];
    assert!(message.contains(&format!("to {} removed", first["number"])), "{message}");
    assert!(message.contains(first["link"].as_str().unwrap()), "{message}");

    server.restart().await;
    server.run(&with(echo(1), serde_json::json!({"topic": "mining"}))).await;
    let report = verify(&server).await;
    assert_eq!(report["ok"], true, "{report}");
}

#[tokio::test]
async fn an_export_of_a_shortened_log_begins_with_the_checkpoint() {
    let (server, _rules) = shortened_server().await;
    let report = verify(&server).await;
    let export = server.get("/v1/audit/export").await.text();
    let lines: Vec<Value> = export.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for shard in shards(&report) {
        let own: Vec<&Value> = lines.iter().filter(|line| line["shard"] == shard["shard"]).collect();
        assert_eq!(own[0]["checkpoint"]["signature"], shard["checkpoint"]["signature"], "{own:?}");
        assert_eq!(own[1]["number"], shard["first"]);
        assert_eq!(own.last().unwrap()["head"]["number"], shard["last"]);
    }
}

#[tokio::test]
async fn a_changed_checkpoint_is_reported_and_never_signed_again() {
    let (mut server, _rules) = shortened_server().await;
    let mut original = None;
    tamper(&mut server, |store, batch| {
        let mut signed = checkpoint(store);
        original = Some(signed);
        signed.checkpoint.at.0 += 1;
        put_checkpoint(batch, &signed);
    })
    .await;
    // New entries expire at once. They must not be removed: a new signature would hide the change.
    for _ in 0..20 {
        server.run(&with(echo(1), serde_json::json!({"topic": "mining"}))).await;
    }
    let removed = |report: &Value| shards(report)[1]["checkpoint"]["number"].as_u64();
    let before = removed(&verify(&server).await);
    server.restart().await;
    let report = server.seen("/v1/audit/verify", |report| removed(report) > before).await;
    let shard = &shards(&report)[0];
    assert_eq!(
        (&report["ok"], &shard["ok"], &shard["checkpoint"]["valid"]),
        (&false.into(), &false.into(), &false.into())
    );
    assert!(text(&shard["broken"]["message"]).contains("signature of the checkpoint is invalid"), "{shard}");
    assert!(shards(&report)[1]["ok"] == true, "other shards are not concerned: {report}");
    tamper(&mut server, |_, batch| put_checkpoint(batch, &original.expect("it was read"))).await;
    let report = verify(&server).await;
    assert_eq!(report["ok"], true, "{report}");
}

#[tokio::test]
async fn a_removed_checkpoint_is_reported() {
    let (mut server, _rules) = shortened_server().await;
    tamper(&mut server, |_, batch| batch.delete(Keyspace::Meta, key::META_AUDIT_START)).await;
    let shard = &shards(&verify(&server).await)[0];
    assert!(text(&shard["broken"]["message"]).contains("entry 1 is missing"), "{shard}");
}

#[tokio::test]
async fn a_checkpoint_of_another_key_is_reported() {
    let (mut server, _rules) = shortened_server().await;
    let before = verify(&server).await;
    server.stop().await;
    std::fs::remove_file(server.directory().join("audit.key")).unwrap();
    server.start_again().await;
    let report = verify(&server).await;
    assert_ne!(report["public_key"], before["public_key"]);
    for shard in shards(&report) {
        assert_eq!((&shard["ok"], &shard["checkpoint"]["valid"]), (&false.into(), &false.into()), "{shard}");
        assert!(text(&shard["broken"]["message"]).contains("signed with another key"), "{shard}");
    }
}

/// Number of the last exported entry. Entries follow each other or a checkpoint, whose link the next one continues.
fn follow_export(export: &str) -> u64 {
    let mut at = Head::START;
    for line in export.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["checkpoint"].is_object() {
            let number = line["checkpoint"]["number"].as_u64().unwrap();
            assert!(number > at.number, "{line}");
            at = Head { number, link: text(&line["checkpoint"]["link"]).parse().unwrap() };
        } else if line["head"].is_object() {
            assert_eq!(line["head"]["number"], at.number, "{line}");
        } else {
            let link: Link = text(&line["link"]).parse().unwrap();
            let stored = [link.0.to_vec(), STANDARD.decode(text(&line["encoded"])).unwrap()].concat();
            at.follow(&stored).unwrap_or_else(|broken| panic!("{broken}: {line}"));
        }
    }
    at.number
}

#[tokio::test]
async fn a_log_that_is_being_shortened_verifies_and_exports_without_gaps() {
    const ENTRIES: u64 = 20_000;
    let mut server = Server::with(|options| options.audit_retention_ms = 1).await;
    tamper(&mut server, |_, batch| {
        let mut head = Head::START;
        for number in 1..=ENTRIES {
            let mut entry = AuditEntry { at: Millis(number), ..AuditEntry::of(Action::Allowed) };
            batch.put_with(Keyspace::Audit, &key::audit(number), |buffer| head.append(&mut entry, buffer));
        }
        batch.put_with(Keyspace::Meta, key::META_AUDIT, |buffer| codec::encode_into(&head, buffer));
    })
    .await;
    let since = Instant::now();
    loop {
        let report = verify(&server).await;
        assert_eq!(report["ok"], true, "{report}");
        let last = follow_export(&server.get("/v1/audit/export").await.text());
        assert!(last >= shards(&report)[0]["last"].as_u64().unwrap(), "{last}: {report}");
        if shards(&report)[0]["first"].as_u64() > Some(ENTRIES) {
            return;
        }
        assert!(since.elapsed() < DEADLINE, "{report}");
    }
}

/// Its removal would hide the change.
#[tokio::test]
async fn a_changed_entry_is_reported_and_stays() {
    let (mut server, _rules, _) = busy_server().await;
    server.change_options(|options| options.audit_retention_ms = 1);
    let mut removable = 0;
    tamper(&mut server, |store, batch| {
        let entries = store.scan(ShardId(0), Keyspace::Audit, Range::all(), Order::Ascending, 2).unwrap();
        let mut head = Head::START;
        removable = entries.len() as u64 - 1;
        entries[..removable as usize].iter().for_each(|(_, stored)| drop(head.follow(stored).unwrap()));
        let (changed_key, stored) = entries.last().expect("an entry");
        let mut changed = stored.to_vec();
        *changed.last_mut().expect("bytes") ^= 1;
        batch.put(Keyspace::Audit, changed_key, &changed);
    })
    .await;
    let is_shortened = |report: &Value| shards(report)[1..].iter().all(|shard| shard["checkpoint"].is_object());
    let report = server.seen("/v1/audit/verify", is_shortened).await;
    let shard = &shards(&report)[0];
    assert_eq!((&report["ok"], &shard["ok"]), (&false.into(), &false.into()), "{report}");
    assert_eq!(shard["broken"]["number"], removable + 1, "{shard}");
}
