//! Schedules.

use std::sync::Arc;

use engine::{Answer, Input, NewSchedule, Refusal};
use model::batch::Keyspace;
use model::id::ScheduleId;
use model::json::Json;
use model::time::Millis;
use model::workflow::{CatchUp, Overlap, Schedule, ScheduleSpec, WorkflowState};
use workflow::cron::Cron;

use crate::support::workflows::plan;
use crate::support::{Fixture, START};

const MINUTE: u64 = 60_000;

fn schedule(yaml: &str, change: impl FnOnce(&mut NewSchedule)) -> Box<NewSchedule> {
    let plan = plan(yaml);
    let spec = ScheduleSpec {
        cron: "* * * * *".to_owned(),
        zone: "UTC".to_owned(),
        catch_up: CatchUp::Once,
        overlap: Overlap::Allow,
        jitter: Millis(0),
        digest: plan.digest,
        definition: Vec::new(),
        inputs: Json::of(&serde_json::json!({})),
    };
    let cron = Arc::new(Cron::parse(&spec.cron, &spec.zone).expect("an expression"));
    let mut new = NewSchedule {
        name: "every minute".to_owned(),
        tenant: "default".to_owned(),
        queue: None,
        spec,
        plan,
        cron,
        submitter: None,
        paused: false,
    };
    change(&mut new);
    Box::new(new)
}

const QUICK: &str = "name: quick\ntasks: {a: {run: {echo: {value: \"${schedule.time}\"}}}}\noutputs: ${tasks.a.result}";
const SLOW: &str = "name: slow\ntasks: {a: {delay: 90s}}";

fn create(fixture: &mut Fixture, new: Box<NewSchedule>) -> ScheduleId {
    match fixture.request(|request| Input::CreateSchedule { request, schedule: new }) {
        Answer::Schedule(schedule) => schedule.id,
        other => panic!("{other:?}"),
    }
}

fn stored(fixture: &Fixture, id: ScheduleId) -> Schedule {
    let bytes = fixture.records.get(Keyspace::Schedules, &id.key()).expect("a record of the schedule");
    model::codec::decode(bytes).expect("schedules can be read")
}

/// Slots of the started workflows in order, in minutes after the start.
fn slots(fixture: &Fixture) -> Vec<u64> {
    let live = fixture.records.workflows(Keyspace::Workflows);
    let mut all = fixture.records.workflows(Keyspace::WorkflowsDone);
    all.extend(live);
    all.sort_by_key(|record| record.id);
    all.iter().map(|record| (record.schedule.expect("a schedule started it").slot.0 - START.0) / MINUTE).collect()
}

fn minutes(fixture: &mut Fixture, count: u64) {
    for _ in 0..count {
        fixture.advance(MINUTE);
        fixture.settle();
    }
}

// FEATURES: D11
#[test]
fn every_slot_starts_one_workflow_even_after_a_crash() {
    let mut fixture = Fixture::with_runner(5);
    create(&mut fixture, schedule(QUICK, |_| {}));
    minutes(&mut fixture, 2);
    fixture.crash();
    fixture.settle();
    minutes(&mut fixture, 1);
    assert_eq!(slots(&fixture), [1, 2, 3]);
    let first = &fixture.records.workflows(Keyspace::WorkflowsDone)[0];
    assert_eq!(first.result.as_ref().unwrap().as_str(), "\"2026-01-01T00:01:00.000Z\"");
}

#[test]
fn missed_slots_follow_the_catch_up_policy() {
    for (catch_up, expected) in [
        (CatchUp::Skip, vec![1, 11]),
        (CatchUp::Once, vec![1, 10, 11]),
        (CatchUp::All, vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    ] {
        let mut fixture = Fixture::with_runner(5);
        create(&mut fixture, schedule(QUICK, |new| new.spec.catch_up = catch_up));
        minutes(&mut fixture, 1);
        // The shard is down for more than nine minutes.
        fixture.now = START + Millis(10 * MINUTE + 59_000);
        fixture.crash();
        fixture.settle();
        minutes(&mut fixture, 1);
        let seen = slots(&fixture);
        // The tenth slot is less than a minute late and counts as on time.
        let expected: Vec<u64> = if catch_up == CatchUp::Skip { vec![1, 10, 11] } else { expected };
        assert_eq!(seen, expected, "{catch_up:?}");
    }
}

#[test]
fn the_overlap_policy_allows_skips_or_replaces() {
    for (overlap, expected) in
        [(Overlap::Allow, vec![1, 2, 3, 4]), (Overlap::Forbid, vec![1, 3]), (Overlap::Replace, vec![1, 2, 3, 4])]
    {
        let mut fixture = Fixture::with_runner(5);
        let id = create(&mut fixture, schedule(SLOW, |new| new.spec.overlap = overlap));
        minutes(&mut fixture, 4);
        assert_eq!(slots(&fixture), expected, "{overlap:?}");
        let live = fixture.shard.live_workflows();
        assert_eq!(live, if overlap == Overlap::Allow { 2 } else { 1 }, "{overlap:?}");
        assert_eq!(stored(&fixture, id).started, expected.len() as u64);
    }
}

/// A workflow of an echo job that is still running when the next slot is due.
#[test]
fn a_waiting_slot_is_not_started_early_after_the_clock_was_set_back() {
    let mut fixture = Fixture::with_runner(5);
    create(&mut fixture, schedule(QUICK, |new| new.spec.overlap = Overlap::Replace));
    fixture.advance(MINUTE);
    let [(_, attempt_ref)] = fixture.runs[..] else { panic!("{:?}", fixture.runs) };
    fixture.start(attempt_ref);
    fixture.advance(MINUTE);
    assert_eq!(slots(&fixture), [1], "the second slot waits until the first workflow has stopped");
    fixture.now = fixture.now - Millis(MINUTE / 2);
    fixture.crash();
    fixture.end(attempt_ref, model::job::End::Stopped);
    fixture.input(Input::Tick);
    assert_eq!(slots(&fixture), [1]);
    fixture.advance(MINUTE / 2);
    assert_eq!(slots(&fixture), [1, 2]);
}

#[test]
fn catch_up_of_all_slots_without_overlap_runs_one_after_the_other() {
    let mut fixture = Fixture::with_runner(5);
    create(
        &mut fixture,
        schedule(SLOW, |new| {
            new.spec.overlap = Overlap::Forbid;
            new.spec.catch_up = CatchUp::All;
        }),
    );
    minutes(&mut fixture, 10);
    assert_eq!(slots(&fixture), [1, 2, 3, 4, 5, 6, 7]);
    fixture.crash();
    minutes(&mut fixture, 3);
    assert_eq!(slots(&fixture), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn a_paused_schedule_starts_nothing_and_does_not_catch_up() {
    let mut fixture = Fixture::with_runner(5);
    let id = create(&mut fixture, schedule(QUICK, |new| new.spec.catch_up = CatchUp::All));
    fixture.request(|request| Input::PauseSchedule { request, schedule: id, paused: true, by: None });
    minutes(&mut fixture, 3);
    assert_eq!(slots(&fixture), [0; 0]);
    fixture.request(|request| Input::PauseSchedule { request, schedule: id, paused: false, by: None });
    minutes(&mut fixture, 1);
    assert_eq!(slots(&fixture), [4]);
    fixture.request(|request| Input::RemoveSchedule { request, schedule: id, by: None });
    minutes(&mut fixture, 2);
    assert_eq!(slots(&fixture), [4]);
    assert_eq!(fixture.records.len(Keyspace::Schedules), 0);
}

#[test]
fn jitter_delays_starts_and_never_makes_them_early() {
    let mut fixture = Fixture::with_runner(5);
    create(&mut fixture, schedule(QUICK, |new| new.spec.jitter = Millis(30_000)));
    minutes(&mut fixture, 21);
    let records = fixture.records.workflows(Keyspace::WorkflowsDone);
    let delays: Vec<u64> = records.iter().map(|record| record.created_at.0 - record.schedule.unwrap().slot.0).collect();
    assert!(delays.len() >= 20);
    assert!(delays.iter().all(|delay| *delay < 31_000), "{delays:?}");
    assert!(delays.iter().any(|delay| *delay > 1_000), "{delays:?}");
}

#[test]
fn a_schedule_name_is_unique_and_a_trigger_starts_immediately() {
    let mut fixture = Fixture::with_runner(5);
    let id = create(&mut fixture, schedule(QUICK, |_| {}));
    let again = fixture.request(|request| Input::CreateSchedule { request, schedule: schedule(QUICK, |_| {}) });
    assert!(matches!(again, Answer::Refused(Refusal::ScheduleNameTaken { .. })));
    let triggered = fixture.request(|request| Input::TriggerSchedule { request, schedule: id, by: None });
    let Answer::Workflow(record) = triggered else { panic!("{triggered:?}") };
    assert_eq!(fixture.run_to_end(record.id), WorkflowState::Succeeded);
}

#[test]
fn a_closed_queue_does_not_hold_up_due_slots() {
    let mut fixture = Fixture::with_runner(5);
    let queue = fixture.create_queue(|_| {}).id;
    let reference = model::queue::QueueRef::Id(queue);
    create(&mut fixture, schedule(QUICK, |new| new.queue = Some(reference)));
    fixture.cancel_queue(queue);
    minutes(&mut fixture, 2);
    assert_eq!(slots(&fixture), [1, 2]);
    assert_eq!(fixture.shard.live_workflows(), 0);
}

#[test]
fn jitter_longer_than_the_interval_loses_no_slot() {
    for catch_up in [CatchUp::Skip, CatchUp::Once, CatchUp::All] {
        let mut fixture = Fixture::with_runner(5);
        create(
            &mut fixture,
            schedule(QUICK, |new| {
                new.spec.jitter = Millis(10 * MINUTE);
                new.spec.catch_up = catch_up;
            }),
        );
        for _ in 0..15 * 60 {
            fixture.advance(1_000);
        }
        fixture.settle();
        let seen = slots(&fixture);
        assert!(seen.len() >= 13 && seen.windows(2).all(|pair| pair[1] == pair[0] + 1), "{catch_up:?}: {seen:?}");
    }
}

#[test]
fn a_waiting_slot_is_not_started_while_its_schedule_is_paused() {
    let mut fixture = Fixture::with_runner(5);
    let id = create(&mut fixture, schedule(QUICK, |new| new.spec.overlap = Overlap::Replace));
    fixture.advance(MINUTE);
    let first = fixture.records.workflows(Keyspace::Workflows)[0].id;
    let attempt_ref = fixture.current(fixture.task_job(first, "a"));
    fixture.start(attempt_ref);
    fixture.advance(MINUTE);
    assert_eq!(stored(&fixture, id).waiting_slot, Some(START + Millis(2 * MINUTE)));
    fixture.request(|request| Input::PauseSchedule { request, schedule: id, paused: true, by: None });
    fixture.end(attempt_ref, model::job::End::Stopped);
    fixture.settle();
    assert_eq!(slots(&fixture), [1]);
    assert_eq!(stored(&fixture, id).waiting_slot, None);
}

#[test]
fn catch_up_of_very_many_slots_takes_steps_of_bounded_size() {
    let mut fixture = Fixture::with_runner(50);
    fixture.config.step_bytes_max = 20_000;
    fixture.crash();
    create(&mut fixture, schedule(QUICK, |new| new.spec.catch_up = CatchUp::All));
    fixture.now = START + Millis(300 * MINUTE);
    fixture.largest_commit = 0;
    fixture.crash();
    fixture.settle();
    minutes(&mut fixture, 1);
    assert_eq!(slots(&fixture).len(), 301);
    assert!(fixture.largest_commit < 60_000, "{}", fixture.largest_commit);
}
