//! Owners on a store that loses acknowledged commits.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

use std::sync::Arc;

use engine::{Config, Effect, Input, RequestId, Settings, Submission};
use model::id::{JobId, NodeId, ShardId, Shards};
use model::job::{Job, Outcome};
use model::json::Json;
use model::message::AttemptRef;
use model::spec::{Digest, EchoRun, JobSpec, Run};
use model::time::{Millis, Now};
use shard::{Error, Options, Outcomes, Owner, PlanCache};
use store::{Lost, ModelStore, ShardOwner};
use workflow::Plan;

const SHARD: ShardId = ShardId(0);
const START: Millis = Millis(1_767_225_600_000);

struct NoPlans;

impl PlanCache for NoPlans {
    fn find(&self, _: Digest) -> Option<Arc<Plan>> {
        None
    }

    fn insert(&self, _: Digest, plan: Arc<Plan>) -> Arc<Plan> {
        plan
    }
}

struct NoOutcomes;

impl Outcomes for NoOutcomes {
    fn check_metadata(&mut self, _: &Job, _: AttemptRef, _: &mut Outcome) {}

    fn spill(&mut self, _: model::id::Epoch, _: AttemptRef, _: &Json) {}
}

/// An owner that is resumed.
fn open(store: &ModelStore, nonce: u64) -> Owner {
    let options = Options {
        owner: ShardOwner { node: NodeId(1), nonce },
        config: Config::new(SHARD, Shards::new(1).unwrap()),
        settings: Arc::new(Settings::default()),
        round_bytes_max: 1 << 20,
        result_bytes_max: 1 << 20,
    };
    let mut owner = Owner::open(store, &NoPlans, options, Now::both(START)).unwrap();
    while owner.is_resuming() {
        round(store, &mut owner, START, None).unwrap();
    }
    owner
}

/// One round with at most one input. Returns the effects.
fn round(store: &ModelStore, owner: &mut Owner, at: Millis, input: Option<Input>) -> Result<Vec<Effect>, Error> {
    let now = Now::both(at);
    owner.begin_round(now, &mut NoOutcomes);
    if let Some(input) = input {
        owner.handle(now, input);
    }
    owner.flush();
    owner.commit(store)?;
    let effects = std::mem::take(&mut owner.step().effects);
    owner.end_round();
    Ok(effects)
}

fn submit() -> Input {
    let spec = JobSpec::new(Run::Echo(EchoRun::default()));
    Input::Submit { request: RequestId(1), jobs: vec![Submission::new(spec.pack(), None)] }
}

/// Has nothing to write.
fn explain() -> Input {
    Input::Explain { request: RequestId(2), job: JobId(1) }
}

#[test]
fn an_owner_whose_commit_is_lost_says_nothing_more_and_its_successor_starts_before_it() {
    let store = ModelStore::lossy();
    for (nonce, next) in [(1, submit()), (2, explain())] {
        let mut owner = open(&store, nonce);
        let before = owner.shard().live_jobs();
        round(&store, &mut owner, START, Some(submit())).unwrap();
        assert_eq!(owner.shard().live_jobs(), before + 1);
        store.lose_suffix(Lost::Shard(SHARD), 1);
        let refused = round(&store, &mut owner, START, Some(next)).unwrap_err();
        assert!(matches!(refused, Error::Store(store::Error::Diverged { .. })), "{refused}");
        assert!(refused.is_transient(), "another owner may go on");
        let successor = open(&store, 10 + nonce);
        assert_eq!(successor.shard().live_jobs(), before, "the lost job is unknown");
        assert!(successor.epoch() > owner.epoch());
        assert_eq!(successor.epoch().generation(), nonce);
    }
}

#[test]
fn a_lost_opening_ends_both_owners_and_its_epoch_is_not_issued_again() {
    let store = ModelStore::lossy();
    let mut first = open(&store, 1);
    round(&store, &mut first, START, Some(submit())).unwrap();
    let mut second = open(&store, 2);
    round(&store, &mut second, START, Some(submit())).unwrap();
    store.lose_suffix(Lost::All, 2);
    let refused = round(&store, &mut second, START, Some(explain())).unwrap_err();
    assert!(matches!(refused, Error::Store(store::Error::Fenced { .. })), "{refused}");
    // It has lost nothing, but runners know the epoch of the second.
    let refused = round(&store, &mut first, START, Some(explain())).unwrap_err();
    assert!(matches!(refused, Error::Store(store::Error::FailedOver { .. })), "{refused}");
    let third = open(&store, 3);
    assert!(third.epoch() > second.epoch());
    assert_eq!(third.shard().live_jobs(), 1, "the job of the first owner");
}

#[test]
fn an_idle_owner_notices_a_failover() {
    let store = ModelStore::lossy();
    let mut owner = open(&store, 1);
    round(&store, &mut owner, START, None).unwrap();
    let idle = owner.idle_for(Now::both(START));
    assert!(idle <= Millis::from_secs(5), "{idle:?}");
    assert!(round(&store, &mut owner, START, None).unwrap().is_empty());
    store.lose_suffix(Lost::All, 0);
    let refused = round(&store, &mut owner, START + Millis::from_secs(5), None).unwrap_err();
    assert!(matches!(refused, Error::Store(store::Error::FailedOver { .. })), "{refused}");
}
