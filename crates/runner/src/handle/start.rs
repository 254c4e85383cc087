//! Start of a runner: takes over the spawner's attempts and the results of the previous start.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use hashbrown::HashSet;
use link::Lease;
use model::id::ShardId;
use model::message::{AttemptRef, Profile};
use model::spec::ExecutorKind;
use model::time::Millis;
use parking_lot::Mutex;
use spawner::ClaimedSpawner;
use spawner::protocol::Command;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Notify, mpsc, oneshot};

use super::{Handle, Inner, Link, State, results, watch};
use crate::admission::Admission;
use crate::echo::Delays;
use crate::in_flight::{InFlight, SharedLease};
use crate::options::{Options, Uplink};
use crate::outbox::{FoundEnd, Outbox, OutboxOptions};
use crate::process::{Env, Note};
use crate::sampling::Sampling;
use crate::spawner_client::{InheritedAttempt, SpawnerClient, key_of};
use crate::{kill_orphans, steady_clock, workspace};

type Adopted = BTreeMap<ShardId, Vec<(AttemptRef, link::InFlight<InFlight>)>>;

/// Starts a runner on the current tokio runtime. It registers with its shards immediately.
pub async fn start(options: Options, uplink: Arc<dyn Uplink>) -> io::Result<Handle> {
    let (mut outbox, found) = match options.outbox.clone() {
        Some(settings) => open_outbox(settings).await?,
        None => (None, Vec::new()),
    };
    let claimed = claim_spawner(&options).await?;
    let keeps_leases = claimed.keeps_leases;
    if !keeps_leases {
        tracing::warn!(
            "the running spawner is of an older version: until it is replaced, this node takes no exclusive jobs"
        );
    }
    let profile = Profile { keeps_leases, ..Profile::clone(&options.profile) };
    let options = Options { profile: Arc::new(profile), ..options };
    let (spawner, inherited) = SpawnerClient::new(options.spawner.clone(), (options.node, options.home), claimed);
    let env = Arc::new(Env {
        node: options.node,
        home: options.home,
        logs: options.logs.clone(),
        scratch: options.scratch.clone(),
        stop_grace: options.stop_grace,
        defaults: options.defaults.clone(),
        blobs: options.blobs.clone(),
        spawner,
        uplink: uplink.clone(),
    });
    let executor = wasm::Executor::new(options.wasm.clone()).map_err(io::Error::other)?;
    let ended: HashSet<AttemptRef> = found.iter().map(|found| found.end.attempt_ref).collect();
    let inherited = without_ended(inherited, &ended, &env);
    let in_flight = inherited.iter().map(|attempt| attempt.attempt_ref).chain(ended.iter().copied());
    let in_use: Vec<String> = in_flight.map(workspace::directory_name).collect();
    // Listed before the first new attempt creates its own, removed in the background.
    let stale = workspace::stale_directories(&options.scratch, &in_use);
    tokio::task::spawn_blocking(move || workspace::remove_all(&stale));

    let mut adopted = Adopted::new();
    for found in &found {
        let in_flight = link::InFlight::new(ExecutorKind::Echo, InFlight::Ended);
        adopted.entry(found.end.shard).or_default().push((found.end.attempt_ref, in_flight));
    }
    let (mut inherited_attempts, mut leases) = (Vec::new(), Vec::new());
    for attempt in inherited {
        let shard = options.shards.owner(attempt.attempt_ref.job.slot());
        let (stop, stopped) = oneshot::channel();
        adopted.entry(shard).or_default().push((attempt.attempt_ref, inherited_in_flight(&attempt, stop)));
        leases.extend(inherited_lease(&attempt).map(|lease| (shard, attempt.attempt_ref, lease)));
        inherited_attempts.push((shard, attempt, stopped));
    }
    let mut admission = Admission::default();
    admission.set_outbox_refusal(outbox.as_ref().and_then(Outbox::refusal));
    let mut links = links(&options, admission.capacity(options.capacity), adopted);
    if let Some(outbox) = &mut outbox {
        send_again(&mut links, found, outbox);
    }
    let mut state = State {
        links,
        expired: HashSet::default(),
        delays: Delays::default(),
        with_files: ended.into_iter().collect(),
        admission,
        outbox_usage: outbox.as_ref().map(Outbox::usage),
        wasm_runs: Vec::new(),
        committed: Vec::new(),
    };
    for (shard, attempt_ref, lease) in leases {
        state.hold_lease(shard, attempt_ref, Some(lease));
    }
    let (flushes, flush_requests) = mpsc::unbounded_channel();
    let inner = Arc::new(Inner {
        sampling: Sampling::new(&env),
        options,
        env,
        wasm: executor,
        uplink,
        tasks: tokio::runtime::Handle::current(),
        state: Mutex::new(state),
        delays_changed: Notify::new(),
        ended: Notify::new(),
        flushes: outbox.is_some().then_some(flushes),
    });
    inner.state.lock().deliver(inner.uplink.as_ref());
    for (shard, attempt, stopped) in inherited_attempts {
        inner.adopt(shard, attempt, stopped);
    }
    watch::spawn_all(&inner);
    if let Some(outbox) = outbox {
        tokio::spawn(results::store(Arc::downgrade(&inner), outbox, flush_requests));
    }
    Ok(Handle(inner))
}

async fn open_outbox(settings: OutboxOptions) -> io::Result<(Option<Outbox>, Vec<FoundEnd>)> {
    let opened = tokio::task::spawn_blocking(move || Outbox::open(settings));
    let (outbox, found) = opened.await.map_err(io::Error::other)?;
    if !found.is_empty() {
        tracing::info!(results = found.len(), "sending results that the previous start could not deliver");
    }
    Ok((Some(outbox), found))
}

async fn claim_spawner(options: &Options) -> io::Result<ClaimedSpawner> {
    let settings = options.spawner.clone();
    let claimed = tokio::task::spawn_blocking(move || settings.claim()).await.map_err(io::Error::other)??;
    if claimed.child.is_some() {
        // The previous spawner is dead. Its unsandboxed attempts may have left processes behind.
        let (node, home) = (options.node, options.home);
        let killed = tokio::task::spawn_blocking(move || kill_orphans(node, home)).await.unwrap_or(0);
        if killed > 0 {
            tracing::warn!(killed, "killed processes left over from an earlier start");
        }
    }
    Ok(claimed)
}

/// Leaves out the attempts whose end is stored: it counts. The spawner forgets them when it is committed.
fn without_ended(inherited: Vec<InheritedAttempt>, ended: &HashSet<AttemptRef>, env: &Env) -> Vec<InheritedAttempt> {
    let mut kept = Vec::new();
    for mut attempt in inherited {
        if !ended.contains(&attempt.attempt_ref) {
            kept.push(attempt);
        } else if matches!(attempt.progress.exit.try_recv(), Err(TryRecvError::Empty)) {
            // It was given up without being stopped.
            env.spawner.send(Command::Stop { key: key_of(attempt.attempt_ref), grace_ms: 0 }, Vec::new());
        }
    }
    kept
}

fn inherited_in_flight(attempt: &InheritedAttempt, stop: oneshot::Sender<()>) -> link::InFlight<InFlight> {
    let in_flight = InFlight::Process { stop: Some(stop), lease: inherited_lease(attempt).map(SharedLease::new) };
    match Note::decode(&attempt.note).launched_at {
        Some(at) => link::InFlight::started(ExecutorKind::Process, Millis(at), in_flight),
        None => link::InFlight::new(ExecutorKind::Process, in_flight),
    }
}

/// The lease of an attempt that an earlier server started.
fn inherited_lease(attempt: &InheritedAttempt) -> Option<Lease> {
    let duration = Note::decode(&attempt.note).lease_ms.map(Millis)?;
    attempt.lease_until.map(|until| Lease { duration, until: Millis(until) })
}

fn links(options: &Options, capacity: model::message::Capacity, mut adopted: Adopted) -> BTreeMap<ShardId, Link> {
    let new_link = |shard: ShardId| {
        let adopted = adopted.remove(&shard).unwrap_or_default();
        let identity = (options.id, options.incarnation);
        (shard, Link::new(steady_clock::now(), identity, capacity, options.profile.clone(), adopted))
    };
    (0..options.shards.count()).map(ShardId).map(new_link).collect()
}

/// Sends the stored ends. Their attempts are registered as in flight.
fn send_again(links: &mut BTreeMap<ShardId, Link>, found: Vec<FoundEnd>, outbox: &mut Outbox) {
    for FoundEnd { end, bytes } in found {
        let Some(link) = links.get_mut(&end.shard) else {
            tracing::warn!(shard = %end.shard, job = %end.attempt_ref.job, "a stored result is for an unknown shard");
            outbox.note_undeliverable();
            continue;
        };
        link.send_ended(steady_clock::now(), end.attempt_ref, end.outcome);
        outbox.note_replayed(end.shard, link.last_sequence(), end.attempt_ref, bytes);
    }
}
