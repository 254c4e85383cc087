//! Rehydration: work lost in a crash is resumed from the records.

use engine::{Answer, Config, Input, PolicyMode, RequestId, Settings};
use model::id::{JobId, RunnerId};
use model::job::End;
use model::queue::QueueRef;
use model::spec::{JobSpec, KeyHash};
use model::state::State;
use model::verdict::Verdict;

use crate::support::{Fixture, POLICY, RUNNER, SECOND, at, config_of, echo, job, keyed, process, room, submission};

/// A client that repeats unanswered submits under the same key.
struct Client {
    specs: Vec<JobSpec>,
    jobs: Vec<Option<JobId>>,
    open: Vec<(usize, RequestId)>,
}

impl Client {
    fn new(specs: Vec<JobSpec>) -> Self {
        let jobs = vec![None; specs.len()];
        Self { specs, jobs, open: Vec::new() }
    }

    fn send_missing(&mut self, shard: &mut Fixture) {
        self.open.clear();
        for (index, spec) in self.specs.iter().enumerate().filter(|(index, _)| self.jobs[*index].is_none()) {
            let request = shard.next_request();
            shard.input(Input::Submit { request, jobs: vec![submission(spec)] });
            self.open.push((index, request));
        }
        for (index, request) in &self.open {
            if let Some(Answer::Submitted(results)) = shard.answer(*request) {
                self.jobs[*index] = Some(results[0].as_ref().expect("accepted").id);
            }
        }
    }

    fn submit_all(&mut self, shard: &mut Fixture) -> Vec<JobId> {
        for _ in 0..3 {
            self.send_missing(shard);
        }
        self.jobs.iter().map(|job| job.expect("every submit is answered")).collect()
    }
}

/// Jobs with keys whose home is this shard.
fn specs(config: &Config) -> Vec<JobSpec> {
    let is_home = |key: &String| config.shards.owner(KeyHash::of("default", key).slot()) == config.shard;
    let keys = (0..).map(|number| format!("key {number}")).filter(is_home);
    let mut specs: Vec<JobSpec> = keys.take(6).map(|key| keyed(&key)).collect();
    specs[1].not_before = at(5 * SECOND);
    specs[2].run = process().run;
    specs[2].sandbox = process().sandbox;
    specs[3].timeout_ms = Some(3_600 * SECOND);
    specs
}

/// A scenario with submit, cancel, retract, delay and several runners; returns the jobs.
fn scenario(shard: &mut Fixture) -> Vec<JobId> {
    shard.runner(RUNNER, room(2));
    let jobs = Client::new(specs(&shard.config)).submit_all(shard);
    for id in &jobs[..2] {
        let _ = shard.request_maybe(|request| Input::Cancel { request, job: *id, by: None });
    }
    let _ = shard.request_maybe(|request| Input::Retract { request, job: jobs[2], by: None });
    shard.runner(RunnerId(2), room(1));
    shard.finish_all();
    jobs
}

impl Fixture {
    /// Sends a request whose answer a crash may lose.
    fn request_maybe(&mut self, input: impl FnOnce(RequestId) -> Input) -> Option<Answer> {
        let request = self.next_request();
        self.input(input(request));
        self.answer(request)
    }
}

// FEATURES: B3
#[test]
fn a_crash_after_any_commit_loses_nothing() {
    for (number, shards) in [(0, 1), (3, 4)] {
        let mut untroubled = Fixture::with(config_of(number, shards));
        scenario(&mut untroubled);
        let commits = untroubled.commits;
        assert!(commits > 25, "only {commits} commits to crash after");
        for crash_at in 1..=commits {
            let mut shard = Fixture::with(config_of(number, shards));
            shard.crash_at = Some(crash_at);
            let jobs = scenario(&mut shard);
            let mut distinct = jobs.clone();
            distinct.dedup();
            assert_eq!(distinct.len(), jobs.len(), "crash after commit {crash_at}");
            for id in jobs {
                let record = shard.job(id);
                assert!(record.state.is_terminal(), "crash after commit {crash_at}: {record:?}");
                assert_eq!((record.retries, record.state == State::Failed), (0, false), "crash after {crash_at}");
            }
        }
    }
}

// FEATURES: B3
#[test]
fn a_crash_after_every_single_commit_loses_nothing() {
    let mut shard = Fixture::with_runner(2);
    let jobs = shard.submit_some(6);
    for id in &jobs {
        for _ in 0..10 {
            shard.crash();
            let record = shard.job(*id);
            match record.state {
                State::Dispatched => shard.start(shard.current(*id)),
                State::Running => shard.end(shard.current(*id), End::Succeeded),
                _ => {}
            }
        }
        assert_eq!((shard.state(*id), shard.job(*id).attempt.0), (State::Succeeded, 1));
    }
}

#[test]
fn a_pending_policy_check_is_repeated_after_a_restart() {
    let settings = Settings { policy: PolicyMode::Enforced(POLICY), ..Settings::default() };
    let mut shard = Fixture::governed(config_of(0, 1), settings);
    let id = shard.submit(&echo());
    assert_eq!(shard.policy_requests, [id]);
    shard.crash();
    assert_eq!(shard.policy_requests, [id, id]);
    shard.verdict(id, Verdict::Allow);
    assert_eq!(shard.state(id), State::Scheduled);
}

#[test]
fn a_stop_message_is_repeated_after_a_restart() {
    let mut shard = Fixture::with_runner(2);
    let jobs = shard.submit_some(2);
    let attempt_refs = [shard.current(jobs[0]), shard.current(jobs[1])];
    for attempt_ref in attempt_refs {
        shard.start(attempt_ref);
    }
    shard.drop_runner_messages = true;
    shard.cancel(jobs[0]);
    shard.retract(jobs[1]);
    shard.drop_runner_messages = false;
    shard.crash();
    shard.finish_all();
    assert_eq!(shard.state(jobs[0]), State::Cancelled);
    assert_eq!((shard.state(jobs[1]), shard.job(jobs[1]).attempt.0), (State::Succeeded, 2));
}

#[test]
fn a_restart_changes_no_record() {
    let mut shard = Fixture::with_runner(2);
    // The first owner writes that all names are indexed.
    shard.crash();
    let queue = shard.create_queue(|new| new.max_running = Some(1)).id;
    for _ in 0..3 {
        shard.submit(&job(|spec| spec.queue = Some(QueueRef::Id(queue))));
    }
    shard.submit(&keyed("k"));
    shard.start(shard.current(shard.runs[0].1.job));
    let before = shard.records.clone();
    shard.drop_runner_messages = true;
    shard.crash();
    for keyspace in model::batch::Keyspace::ALL {
        let same = before.table(keyspace).eq(shard.records.table(keyspace));
        assert!(same, "{}", keyspace.name());
    }
}
