//! Retention of the audit log: old entries are removed oldest first, each chunk with its signed checkpoint.

use engine::{Config, Effect, Fetch, Fetched, Input, OldAuditEntry, Step};
use model::audit::{Action, AuditEntry, Checkpoint, Link};
use model::batch::Keyspace;
use model::id::ShardId;
use model::time::Millis;

use crate::support::{DAY, Fixture, HOUR, config_of, echo, signature, signed};

const CHUNK: usize = 10;

fn config() -> Config {
    Config { audit_retention: Some(Millis(DAY)), sweep_chunk: CHUNK, retention: Millis(1000 * DAY), ..config_of(0, 1) }
}

fn fixture() -> Fixture {
    let mut shard = Fixture::with(config());
    shard.exact_counters = false;
    shard
}

/// Appends entries to the log.
fn log(shard: &mut Fixture, count: usize) {
    for _ in 0..count {
        let job = shard.submit(&echo());
        shard.cancel(job);
    }
}

fn numbers(entries: &[AuditEntry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.number).collect()
}

/// Numbers of the entries that are not about the log itself.
fn operations(shard: &Fixture) -> Vec<u64> {
    let entries = shard.records.audit().into_iter().filter(|entry| entry.action != Action::AuditShortened);
    numbers(&entries.collect::<Vec<_>>())
}

#[test]
fn entries_are_removed_after_their_retention_and_not_before() {
    let mut shard = fixture();
    log(&mut shard, 3);
    let third = shard.records.audit()[2].clone();
    shard.advance(DAY / 2);
    log(&mut shard, 2);
    shard.advance(DAY / 2);
    assert_eq!(numbers(&shard.records.audit()), [1, 2, 3, 4, 5]);
    assert_eq!(shard.records.audit_start(), None);
    shard.advance(2 * shard.config.sweep_interval.0);
    assert_eq!(numbers(&shard.records.audit()), [4, 5, 6]);
    let start = shard.records.audit_start().expect("a checkpoint");
    assert_eq!((start.checkpoint.shard, start.checkpoint.number), (ShardId(0), third.number));
    let last = shard.records.audit().pop().unwrap();
    assert_eq!((last.action, last.by), (Action::AuditShortened, None));
    assert_eq!(last.message, Some(format!("entries 1 to 3 removed; link {}", start.checkpoint.link)));
    shard.crash();
    shard.advance(DAY / 2);
    assert_eq!(numbers(&shard.records.audit()), [6, 7]);
    let previous = shard.signatures.last().expect("a request").previous;
    assert_eq!(previous, Some(start), "the signer sees the checkpoint before");
}

#[test]
fn without_a_retention_nothing_is_removed() {
    let mut shard = Fixture::with(Config { audit_retention: None, ..config() });
    shard.exact_counters = false;
    log(&mut shard, 3);
    shard.advance(5 * DAY);
    assert_eq!(numbers(&shard.records.audit()), [1, 2, 3]);
    assert_eq!(shard.signatures, []);
}

#[test]
fn many_old_entries_are_removed_in_chunks() {
    let mut shard = fixture();
    log(&mut shard, 5 * CHUNK + 3);
    shard.advance(DAY);
    log(&mut shard, 1);
    let before = shard.commits;
    shard.largest_commit = 0;
    shard.advance(2 * shard.config.sweep_interval.0);
    assert_eq!(operations(&shard), [5 * CHUNK as u64 + 4], "all of them go with one sweep");
    let shortened = shard.records.audit().into_iter().filter(|entry| entry.action == Action::AuditShortened);
    assert_eq!(shortened.count(), 6);
    assert!(shard.commits > before + 6, "one commit per chunk");
    assert!(shard.largest_commit < 1_000, "{} bytes in one commit", shard.largest_commit);
}

#[test]
fn a_crash_at_any_commit_loses_nothing_and_removes_nothing_twice() {
    for crash_at in 1.. {
        let mut shard = Fixture::with(Config { audit_retention: Some(Millis(HOUR)), ..config() });
        shard.exact_counters = false;
        log(&mut shard, 2 * CHUNK + 5);
        shard.advance(HOUR);
        log(&mut shard, 1);
        let (before, young) = (shard.commits, 2 * CHUNK as u64 + 6);
        shard.crash_at = Some(before + crash_at);
        for _ in 0..4 {
            shard.advance(shard.config.sweep_interval.0);
            // Verifies the chain from the checkpoint to the head.
            let entries = shard.records.audit();
            let first = shard.records.audit_start().map_or(1, |start| start.checkpoint.number + 1);
            assert_eq!(numbers(&entries), (first..first + entries.len() as u64).collect::<Vec<_>>());
        }
        assert_eq!(operations(&shard), [young], "crash after commit {crash_at}");
        if shard.commits < before + crash_at {
            return assert!(crash_at > 6, "all commits were covered");
        }
    }
}

#[test]
fn a_lost_signature_is_requested_again() {
    let mut shard = fixture();
    log(&mut shard, 2);
    shard.lose_signatures = true;
    shard.advance(DAY + 5 * shard.config.sweep_interval.0);
    assert_eq!(numbers(&shard.records.audit()), [1, 2], "nothing is removed without a signature");
    assert!(shard.signatures.len() > 2, "{:?}", shard.signatures);
    let first = shard.signatures[0];
    assert!(shard.signatures.iter().all(|request| *request == first), "the first answer still counts");
    let answer = signed(first.checkpoint);
    shard.input(signature(answer));
    assert_eq!(numbers(&shard.records.audit()), [3]);
    // A duplicate, and the late answer to an earlier request.
    shard.input(signature(answer));
    shard.crash();
    shard.input(signature(answer));
    assert_eq!(numbers(&shard.records.audit()), [3]);
}

#[test]
fn a_signature_of_another_checkpoint_is_ignored() {
    let mut shard = fixture();
    log(&mut shard, 3);
    shard.lose_signatures = true;
    shard.advance(DAY + 2 * shard.config.sweep_interval.0);
    let checkpoint = shard.signatures[0].checkpoint;
    for other in [
        Checkpoint { number: 2, ..checkpoint },
        Checkpoint { link: Link([7; 32]), ..checkpoint },
        Checkpoint { shard: ShardId(1), ..checkpoint },
        Checkpoint { at: checkpoint.at + Millis(1), ..checkpoint },
    ] {
        shard.input(signature(signed(other)));
        assert_eq!(numbers(&shard.records.audit()), [1, 2, 3], "{other:?}");
    }
    shard.input(signature(signed(checkpoint)));
    assert_eq!(numbers(&shard.records.audit()), [4]);
}

/// The clock of an earlier owner was ahead: its entries are the younger ones.
#[test]
fn entries_behind_a_younger_one_stay() {
    let mut shard = fixture();
    log(&mut shard, 2);
    shard.wall_offset = HOUR as i64;
    log(&mut shard, 1);
    shard.wall_offset = 0;
    shard.crash();
    log(&mut shard, 1);
    let ages: Vec<Millis> = shard.records.audit().iter().map(|entry| entry.at).collect();
    assert!(ages[3] < ages[2], "{ages:?}");
    shard.advance(DAY + 2 * shard.config.sweep_interval.0);
    assert_eq!(operations(&shard), [3, 4]);
    shard.advance(HOUR);
    assert_eq!(operations(&shard), [0; 0]);
}

#[test]
fn an_idle_shard_does_not_remove_the_entries_about_removals() {
    let mut shard = fixture();
    log(&mut shard, 2);
    shard.advance(2 * DAY);
    let (entries, requests) = (shard.records.audit(), shard.signatures.len());
    assert_eq!((entries.len(), entries[0].action), (1, Action::AuditShortened));
    shard.advance(5 * DAY);
    assert_eq!(shard.records.audit(), entries);
    assert_eq!(shard.signatures.len(), requests);
    log(&mut shard, 1);
    shard.advance(2 * DAY);
    assert_eq!(operations(&shard), [0; 0]);
    assert_eq!(shard.records.audit().len(), 1, "they go together with later entries");
}

/// A whole chunk of them must not stop the sweep.
#[test]
fn many_entries_about_removals_are_removed_in_the_end() {
    let mut shard = Fixture::with(Config { sweep_chunk: 2, ..config() });
    shard.exact_counters = false;
    log(&mut shard, 40);
    shard.advance(2 * DAY);
    assert_eq!(operations(&shard), [0; 0]);
    shard.advance(5 * DAY);
    assert!(shard.records.audit().len() <= 2, "{:?}", shard.records.audit());
    assert!(shard.records.len(Keyspace::Audit) > 0);
}

#[test]
fn an_answer_with_a_gap_or_young_entries_is_used_up_to_there() {
    let mut shard = fixture();
    log(&mut shard, 4);
    shard.hold_fetches = true;
    shard.now = shard.now + Millis(2 * DAY);
    shard.input(Input::Tick);
    let fetch = shard.fetches.iter().find(|fetch| matches!(fetch, Fetch::OldAudit { .. })).cloned();
    let Fetched::OldAudit { entries, .. } = shard.records.answer(&fetch.expect("a request")) else { panic!() };
    let young = OldAuditEntry { at: shard.now, ..entries[2] };
    for (answer, last) in [
        (vec![entries[0], entries[1], entries[3]], Some(2)),
        (vec![entries[0], young, entries[2]], Some(1)),
        (vec![entries[1], entries[2]], None),
        (vec![entries[0], entries[0]], Some(1)),
    ] {
        let mut restored =
            shard.records.restore(shard.config, shard.settings.clone(), shard.shard.epoch(), shard.clocks());
        let mut step = Step::new();
        while !restored.resume(shard.clocks(), &mut step) {}
        step.clear();
        restored.handle(shard.clocks(), Input::Fetched(Fetched::OldAudit { entries: answer, more: false }), &mut step);
        let requested = step.effects.iter().find_map(|effect| match effect {
            Effect::SignAudit(request) => Some(request.checkpoint.number),
            _ => None,
        });
        assert_eq!(requested, last);
    }
}
