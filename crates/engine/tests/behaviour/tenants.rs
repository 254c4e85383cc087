//! Tenant limits, in one shard and across shards.

use engine::{Answer, Input, Refusal, Settings, TenantLimits};
use model::id::{JobId, RunnerId, ShardId};
use model::job::End;
use model::spec::JobSpec;
use model::state::State;
use model::verdict::OutputVerdict;

use crate::support::{Fixture, RUNNER, SECOND, config_of, job, room, scan};

fn limited(limits: TenantLimits) -> Settings {
    Settings { tenants: [("red".to_owned(), limits)].into(), ..Settings::default() }
}

fn of(tenant: &str) -> JobSpec {
    job(|spec| spec.tenant = tenant.to_owned())
}

fn with(limits: TenantLimits) -> Fixture {
    let mut shard = Fixture::governed(config_of(0, 1), limited(limits));
    shard.runner(RUNNER, room(10));
    shard
}

fn on_runner(shard: &Fixture, jobs: &[JobId]) -> usize {
    jobs.iter().filter(|id| shard.state(**id).is_on_runner()).count()
}

// FEATURES: D13
#[test]
fn a_tenants_running_jobs_are_limited_and_others_are_not_held_up() {
    for restart in [false, true] {
        let mut shard = with(TenantLimits { max_running: Some(2), ..TenantLimits::default() });
        let red: Vec<JobId> = (0..5).map(|_| shard.submit(&of("red"))).collect();
        let blue = shard.submit(&of("blue"));
        assert_eq!((on_runner(&shard, &red), shard.state(blue)), (2, State::Dispatched));
        if restart {
            shard.crash();
            assert_eq!(on_runner(&shard, &red), 2);
        }
        shard.run_attempt(red[0], End::Succeeded);
        assert_eq!(on_runner(&shard, &red), 2, "one has ended, so another runs");
        shard.finish_all();
        assert!(red.iter().all(|id| shard.state(*id) == State::Succeeded));
    }
}

/// The simulation found it: the operation before the retry makes it possible, and both wait for one fetch.
#[test]
fn a_retry_after_another_operation_takes_a_slot_too() {
    let mut shard = with(TenantLimits { max_live: Some(1), ..TenantLimits::default() });
    let job = shard.submit(&of("red"));
    shard.run_attempt(job, End::Succeeded);
    shard.hold_fetches = true;
    let attempt = shard.job(job).attempt;
    shard.input(Input::Scanned { job, attempt, scan: scan(OutputVerdict::Quarantine) });
    let request = shard.next_request();
    shard.input(Input::Retry { request, job, by: None });
    shard.answer_fetches();
    assert!(matches!(shard.answer(request), Some(Answer::Job(_))));
    assert!(shard.state(job).is_on_runner());
    let refused = shard.try_submit(&[of("red")]);
    assert!(matches!(refused[0], Err(Refusal::TenantFull { max: 1, .. })), "{refused:?}");
}

// FEATURES: D13
#[test]
fn a_tenants_live_jobs_are_limited() {
    for restart in [false, true] {
        let mut shard = with(TenantLimits { max_live: Some(2), ..TenantLimits::default() });
        let results = shard.try_submit(&[of("red"), of("red"), of("red"), of("blue")]);
        assert!(matches!(results[2], Err(Refusal::TenantFull { max: 2, .. })), "{results:?}");
        assert!(results[3].is_ok());
        if restart {
            shard.crash();
        }
        let first = results[0].as_ref().unwrap().id;
        assert!(shard.try_submit(&[of("red")])[0].is_err());
        shard.run_attempt(first, End::Fatal);
        let next = shard.submit(&of("red"));
        assert!(matches!(shard.retry(first), Err(Refusal::TenantFull { .. })), "a retry needs room as well");
        shard.cancel(next);
        shard.finish_all();
        assert!(shard.retry(first).is_ok());
    }
}

// FEATURES: D13
#[test]
fn a_tenants_submit_rate_is_limited() {
    let mut shard = with(TenantLimits { submits_per_second: Some(3), ..TenantLimits::default() });
    shard.advance(2 * SECOND);
    let all = [(); 5].map(|()| of("red"));
    let accepted = |shard: &mut Fixture| shard.try_submit(&all).iter().filter(|result| result.is_ok()).count();
    assert_eq!(accepted(&mut shard), 3);
    assert_eq!(accepted(&mut shard), 0);
    assert!(matches!(shard.try_submit(&[of("red")])[0], Err(Refusal::TenantTooFast { max: 3, .. })));
    shard.advance(SECOND + 1);
    assert_eq!(accepted(&mut shard), 3);
}

/// A home has no tokens in its first second; submits wait for them.
#[test]
fn a_submit_right_after_a_start_waits_for_tokens() {
    let mut shard = with(TenantLimits { submits_per_second: Some(3), ..TenantLimits::default() });
    let request = shard.submit_request(&[of("red")]);
    assert_eq!(shard.answer(request), None);
    shard.advance(SECOND + 1);
    assert!(matches!(shard.answer(request), Some(Answer::Submitted(results)) if results[0].is_ok()));
}

#[test]
fn a_limit_that_is_set_later_counts_jobs_already_running() {
    let mut shard = with(TenantLimits::default());
    let jobs: Vec<JobId> = (0..4).map(|_| shard.submit(&of("red"))).collect();
    assert_eq!(on_runner(&shard, &jobs), 4);
    shard.change_settings(|settings| {
        let limits = TenantLimits { max_running: Some(1), max_live: Some(4), ..TenantLimits::default() };
        settings.tenants.insert("red".to_owned(), limits);
    });
    assert!(shard.try_submit(&[of("red")])[0].is_err());
    for id in &jobs[..3] {
        shard.run_attempt(*id, End::Succeeded);
    }
    let next = shard.submit(&of("red"));
    assert_eq!(shard.state(next), State::Scheduled, "one of the old ones still runs");
    shard.run_attempt(jobs[3], End::Succeeded);
    assert_eq!(shard.state(next), State::Dispatched);
}

/// Two shards that share a tenant.
struct Pair([Fixture; 2]);

impl Pair {
    fn new(limits: TenantLimits) -> Self {
        let shard = |number: u16| {
            let mut shard = Fixture::governed(config_of(number, 2), limited(limits));
            shard.runner(RunnerId(u64::from(number) + 1), room(20));
            shard
        };
        Self([shard(0), shard(1)])
    }

    /// Delivers the messages between the shards and advances the time.
    fn talk(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for from in 0..2 {
                for (to, message) in std::mem::take(&mut self.0[from].shard_messages) {
                    let from = ShardId(from as u16);
                    self.0[usize::from(to.0)].input(Input::FromShard { from, message });
                }
            }
            for shard in &mut self.0 {
                shard.advance(100);
            }
        }
    }

    fn running(&self) -> [usize; 2] {
        let of = |shard: &Fixture| {
            let jobs = shard.records.jobs(model::batch::Keyspace::Live);
            jobs.iter().filter(|job| job.state.is_on_runner()).count()
        };
        [of(&self.0[0]), of(&self.0[1])]
    }
}

// FEATURES: D13
#[test]
fn two_shards_share_a_tenants_limit() {
    let mut pair = Pair::new(TenantLimits { max_running: Some(4), ..TenantLimits::default() });
    for shard in &mut pair.0 {
        for _ in 0..10 {
            shard.submit(&of("red"));
        }
    }
    let mut seen = [0; 2];
    for round in 0..200 {
        pair.talk(1);
        let running = pair.running();
        assert!(running.iter().sum::<usize>() <= 4, "{running:?}");
        seen = [seen[0].max(running[0]), seen[1].max(running[1])];
        if round == 60 {
            pair.0[0].crash();
            pair.0[1].crash();
        }
        if round % 10 == 9 {
            for shard in &mut pair.0 {
                let live = shard.records.jobs(model::batch::Keyspace::Live);
                if let Some(job) = live.iter().find(|job| job.state == State::Dispatched) {
                    shard.run_attempt(job.id, End::Succeeded);
                }
            }
        }
    }
    assert!(seen[0] >= 2 && seen[1] >= 2, "each had its share: {seen:?}");
    for _ in 0..300 {
        pair.talk(1);
        pair.0.iter_mut().for_each(Fixture::finish_all);
    }
    assert_eq!(pair.running(), [0, 0]);
    assert!(pair.0.iter().all(|shard| shard.records.jobs(model::batch::Keyspace::Live).is_empty()));
}

#[test]
fn a_submit_waits_for_the_answer_of_the_home_shard() {
    let mut pair = Pair::new(TenantLimits { max_live: Some(3), ..TenantLimits::default() });
    let request = [0, 1].map(|at| pair.0[at].submit_request(&[of("red"), of("red")]));
    pair.talk(30);
    let accepted: Vec<usize> = [0, 1]
        .map(|at| match pair.0[at].answer(request[at]) {
            Some(Answer::Submitted(results)) => results.iter().filter(|result| result.is_ok()).count(),
            other => panic!("{other:?}"),
        })
        .to_vec();
    assert_eq!(accepted.iter().sum::<usize>(), 3, "exactly the limit: {accepted:?}");
}
