//! Both ends in a conversation over a network that loses, repeats, delays and reorders.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use link::{Action, InFlight, RunnerEnd, ShardEnd};
use model::id::{Attempt, Epoch, Incarnation, JobId, RunnerId};
use model::job::{End, Outcome};
use model::message::{AttemptRef, Capacity, FromRunner, RunnerFrame, RunnerMessage, Session, ShardMessage, ToRunner};
use model::spec::ExecutorKind;
use model::time::Millis;
use proptest::prelude::*;

const IDENTITY: (RunnerId, Incarnation) = (RunnerId(7), Incarnation(1));
const CAPACITY: Capacity = Capacity { process: 4, echo: 4, wasm: 4 };
const ROUND: Millis = Millis(100);

fn attempt_ref(job: u64) -> AttemptRef {
    AttemptRef { job: JobId(job), attempt: Attempt(1) }
}

fn run(job: u64) -> ShardMessage {
    let spec = Bytes::from_static(b"spec");
    ShardMessage::Run { attempt_ref: attempt_ref(job), valid_for: Millis(10_000), spec, constraints: None, lease: None }
}

/// A dispatch of an exclusive job, with a lease of five seconds.
fn run_exclusive(job: u64) -> ShardMessage {
    let spec = Bytes::from_static(b"spec");
    let (valid_for, lease) = (Millis(10_000), Some(Millis(5_000)));
    ShardMessage::Run { attempt_ref: attempt_ref(job), valid_for, spec, constraints: None, lease }
}

fn session(epoch: u64, number: u64) -> Session {
    Session { epoch: Epoch(epoch), number }
}

fn runner_end(now: Millis) -> RunnerEnd<()> {
    RunnerEnd::new(now, IDENTITY, CAPACITY, Arc::default(), [])
}

/// A runner with one shard, and the number of messages that the shard has committed.
struct Pair {
    now: Millis,
    shard: ShardEnd,
    runner: RunnerEnd<()>,
    committed: u64,
    actions: Vec<Action>,
    messages: Vec<RunnerMessage>,
}

impl Pair {
    fn new() -> Self {
        let now = Millis(1_000);
        let mut pair = Self {
            now,
            shard: ShardEnd::new(now, session(1, 1)),
            runner: runner_end(now),
            committed: 0,
            actions: Vec::new(),
            messages: Vec::new(),
        };
        pair.exchange();
        pair
    }

    fn send(&mut self, message: ShardMessage) -> ToRunner {
        self.shard.send(self.now, message)
    }

    fn deliver_to_runner(&mut self, message: ToRunner) {
        self.runner.receive(self.now, message);
        while let Some(action) = self.runner.next_action(self.now) {
            self.actions.push(action);
        }
    }

    /// Like [`Pair::deliver_to_runner`], for a runner that accepts and stops attempts at once.
    fn deliver_and_carry_out(&mut self, messages: impl IntoIterator<Item = ToRunner>) {
        for message in messages {
            self.runner.receive(self.now, message);
        }
        while let Some(action) = self.runner.next_action(self.now) {
            match &action {
                Action::Run { attempt_ref, lease, .. } => {
                    self.runner.add(*attempt_ref, InFlight::new(ExecutorKind::Echo, ()));
                    if let Some(lease) = lease {
                        self.runner.hold_lease(*attempt_ref, *lease);
                    }
                }
                Action::Stop { attempt_ref } => {
                    self.runner.send_ended(self.now, *attempt_ref, Outcome::of(End::Stopped));
                }
                Action::Committed { .. } | Action::Renewed { .. } => {}
            }
            self.actions.push(action);
        }
    }

    /// The shard applies a message if it is the next one, as the engine does, and acknowledges it.
    fn deliver_to_shard(&mut self, frame: RunnerFrame) -> ToRunner {
        self.shard.receive(self.now, &frame.header);
        for FromRunner { sequence, message, .. } in frame.messages {
            if sequence == self.committed + 1 {
                self.committed = sequence;
                self.messages.push(message);
            }
        }
        self.shard.acknowledge(self.committed)
    }

    /// Delivers everything that is due, without faults.
    fn exchange(&mut self) {
        while let Some(frame) = self.runner.poll(self.now) {
            let acknowledgement = self.deliver_to_shard(frame);
            self.deliver_to_runner(acknowledgement);
        }
    }

    fn runs(&self) -> Vec<AttemptRef> {
        let run = |action: &Action| match action {
            Action::Run { attempt_ref, .. } => Some(*attempt_ref),
            Action::Stop { .. } | Action::Committed { .. } | Action::Renewed { .. } => None,
        };
        self.actions.iter().filter_map(run).collect()
    }
}

#[test]
fn the_first_message_registers() {
    let pair = Pair::new();
    assert!(matches!(&pair.messages[..], [RunnerMessage::Register { request: 0, oldest_kept: 1, .. }]));
}

#[test]
fn a_dispatch_that_arrives_twice_runs_once_even_after_its_end() {
    let mut pair = Pair::new();
    let dispatch = pair.send(run(1));
    pair.deliver_to_runner(dispatch.clone());
    pair.deliver_to_runner(dispatch.clone());
    pair.runner.add(attempt_ref(1), InFlight::new(ExecutorKind::Echo, ()));
    pair.runner.send_started(pair.now, attempt_ref(1), Millis(0));
    pair.runner.send_ended(pair.now, attempt_ref(1), Outcome::of(End::Succeeded));
    pair.exchange();
    assert_eq!(pair.actions.last(), Some(&Action::Committed { attempts: vec![attempt_ref(1)] }));
    assert!(!pair.runner.is_known(attempt_ref(1)), "the runner has forgotten the attempt");
    pair.deliver_to_runner(dispatch);
    assert_eq!(pair.runs(), [attempt_ref(1)]);
}

#[test]
fn messages_are_obeyed_in_order() {
    let mut pair = Pair::new();
    let (first, second, third) = (pair.send(run(1)), pair.send(run(2)), pair.send(run(3)));
    for message in [second.clone(), third.clone()] {
        pair.deliver_to_runner(message);
    }
    assert_eq!(pair.runs(), [], "they wait for the first one");
    for message in [first, third, second] {
        pair.deliver_to_runner(message);
    }
    assert_eq!(pair.runs(), [attempt_ref(1), attempt_ref(2), attempt_ref(3)]);
    pair.exchange();
    assert_eq!((pair.shard.unacknowledged(), pair.shard.retransmit_at()), (0, None));
}

/// The simulation found it: the inventory was taken before the attempts that arrived with it were in flight.
#[test]
fn an_inventory_lists_the_attempts_that_arrived_with_its_request() {
    let mut pair = Pair::new();
    let first = pair.send(run(1));
    let rest = [pair.send(run(2)), pair.send(ShardMessage::Inventory { request: 9 })];
    pair.deliver_and_carry_out(rest);
    pair.deliver_and_carry_out([first]);
    let frame = pair.runner.poll(pair.now).unwrap();
    let Some(FromRunner { message: RunnerMessage::Register { in_flight, request: 9, .. }, .. }) = frame.messages.last()
    else {
        panic!("{frame:?}")
    };
    let listed: Vec<AttemptRef> = in_flight.iter().map(|reported| reported.attempt_ref).collect();
    assert_eq!(listed, [attempt_ref(1), attempt_ref(2)]);
}

#[test]
fn a_stop_that_arrives_with_its_dispatch_stops_the_attempt() {
    let mut pair = Pair::new();
    let messages = [pair.send(run(1)), pair.send(ShardMessage::Stop { attempt_ref: attempt_ref(1) })];
    pair.deliver_and_carry_out(messages);
    assert_eq!(pair.actions.last(), Some(&Action::Stop { attempt_ref: attempt_ref(1) }));
    assert!(!pair.runner.is_in_flight(attempt_ref(1)));
}

#[test]
fn a_lease_runs_out_when_the_shard_stops_hearing_the_runner() {
    let mut pair = Pair::new();
    let dispatch = pair.send(run_exclusive(1));
    pair.deliver_and_carry_out([dispatch]);
    assert_eq!(pair.runner.next_expiry(), Some(Millis(6_000)), "it counts from what the shard has heard");
    // The shard hears the runner and says so: the answer arrives late, which does not make the lease longer.
    pair.now = Millis(4_000);
    pair.exchange();
    let renewal = pair.shard.renew().unwrap();
    pair.now = Millis(5_500);
    pair.deliver_and_carry_out([renewal.clone()]);
    assert_eq!(pair.runner.next_expiry(), Some(Millis(9_000)));
    assert_eq!(pair.shard.heard_at(), Millis(4_000));
    // A repeated renewal changes nothing.
    pair.deliver_and_carry_out([renewal]);
    assert_eq!(pair.runner.take_expired(Millis(8_999)), []);
    assert_eq!(pair.runner.take_expired(Millis(9_000)), [attempt_ref(1)]);
    assert_eq!(pair.runner.take_expired(Millis(9_000)), [], "each attempt is killed once");
    assert!(pair.runner.is_in_flight(attempt_ref(1)), "until its end is sent");
}

#[test]
fn a_dispatch_whose_lease_has_run_out_is_declined() {
    let mut pair = Pair::new();
    let dispatch = pair.send(run_exclusive(1));
    pair.now = Millis(6_000);
    pair.deliver_and_carry_out([dispatch]);
    assert_eq!(pair.runs(), []);
    assert!(!pair.runner.is_in_flight(attempt_ref(1)));
}

#[test]
fn a_superseded_owner_renews_no_lease() {
    let mut pair = Pair::new();
    let dispatch = pair.send(run_exclusive(1));
    pair.deliver_and_carry_out([dispatch]);
    pair.now = Millis(3_000);
    pair.exchange();
    let old = pair.shard.renew().unwrap();
    let mut next = ShardEnd::new(pair.now, session(2, 1));
    let inventory = next.send(pair.now, ShardMessage::Inventory { request: 1 });
    pair.deliver_and_carry_out([inventory, old]);
    assert_eq!(pair.runner.next_expiry(), Some(Millis(6_000)));
}

#[test]
fn lost_messages_are_retransmitted_and_too_early_ones_are_not_kept() {
    let mut pair = Pair::new();
    let messages: Vec<ToRunner> = (1..=1_100).map(|job| pair.send(run(job))).collect();
    for message in &messages[1..] {
        pair.deliver_to_runner(message.clone());
    }
    pair.exchange();
    assert_eq!((pair.runs(), pair.shard.unacknowledged()), (vec![], 1_100));
    pair.deliver_to_runner(messages[0].clone());
    assert_eq!(pair.runs().len(), 1_024);
    pair.exchange();
    pair.now = pair.shard.retransmit_at().unwrap();
    for message in pair.shard.retransmit(pair.now) {
        pair.deliver_to_runner(message);
    }
    assert_eq!(pair.runs(), (1..=1_100).map(attempt_ref).collect::<Vec<_>>());
}

#[test]
fn messages_of_an_older_session_are_ignored() {
    let mut pair = Pair::new();
    let late = pair.send(run(1));
    pair.shard.restart(session(1, 2));
    let inventory = pair.send(ShardMessage::Inventory { request: 5 });
    pair.deliver_to_runner(inventory);
    pair.deliver_to_runner(late);
    assert_eq!(pair.runs(), []);
    let (old_number, old_epoch) = (session(1, 1), session(0, 9));
    for session in [old_number, old_epoch] {
        pair.deliver_to_runner(ToRunner::Committed { session, sequence: 2 });
    }
    let frame = pair.runner.poll(pair.now).unwrap();
    assert!(matches!(&frame.messages[..], [FromRunner { message: RunnerMessage::Register { request: 5, .. }, .. }]));
    assert_eq!((frame.header.session, frame.header.received), (session(1, 2), 1));
}

#[test]
fn a_dispatch_that_arrives_too_late_is_declined() {
    let mut pair = Pair::new();
    let (in_time, late) = (pair.send(run(1)), pair.send(run(2)));
    pair.now = pair.now + Millis(10_000);
    pair.deliver_to_runner(in_time);
    pair.now = pair.now + Millis(1);
    pair.deliver_to_runner(late);
    assert_eq!(pair.runs(), [attempt_ref(1)]);
    pair.exchange();
    let declined = |message: &RunnerMessage| {
        matches!(message, RunnerMessage::Ended { attempt_ref: of, outcome }
            if *of == attempt_ref(2) && outcome.end == End::Busy)
    };
    assert!(pair.messages.iter().any(declined), "{:?}", pair.messages);
}

#[test]
fn heartbeats_keep_dispatches_valid() {
    let mut pair = Pair::new();
    for _ in 0..100 {
        pair.now = pair.runner.poll_at();
        pair.exchange();
    }
    let dispatch = pair.send(run(1));
    pair.deliver_to_runner(dispatch);
    assert_eq!(pair.runs(), [attempt_ref(1)]);
}

#[test]
fn a_stop_of_an_unknown_attempt_is_confirmed_once() {
    let mut pair = Pair::new();
    for _ in 0..3 {
        let stop = pair.send(ShardMessage::Stop { attempt_ref: attempt_ref(1) });
        pair.deliver_to_runner(stop);
    }
    let frame = pair.runner.poll(pair.now).unwrap();
    assert_eq!(frame.messages.len(), 1);
    assert_eq!(pair.actions, []);
}

#[test]
fn registrations_do_not_accumulate_while_the_shard_is_unreachable() {
    let mut pair = Pair::new();
    for round in 0..50 {
        let capacity = Capacity { process: round, ..CAPACITY };
        pair.runner.set_capacity(pair.now, capacity);
        pair.now = pair.now + ROUND;
        let _lost = pair.runner.poll(pair.now);
    }
    // The shard has seen an earlier one under the same sequence.
    pair.committed = 2;
    let acknowledgement = pair.shard.acknowledge(2);
    pair.deliver_to_runner(acknowledgement);
    pair.exchange();
    let Some(RunnerMessage::Register { capacity, .. }) = pair.messages.last() else { panic!() };
    assert_eq!(capacity.process, 49);
    assert_eq!(pair.messages.len(), 2);
}

#[test]
fn a_replaced_answer_to_an_inventory_request_still_answers_it() {
    let mut pair = Pair::new();
    let inventory = pair.send(ShardMessage::Inventory { request: 7 });
    pair.deliver_to_runner(inventory);
    pair.runner.set_capacity(pair.now, Capacity::default());
    pair.exchange();
    let answers = |message: &RunnerMessage| matches!(message, RunnerMessage::Register { request: 7, .. });
    assert!(pair.messages.iter().any(answers), "{:?}", pair.messages);
}

/// The shard has seen the registration that was replaced, under the same sequence.
#[test]
fn an_answer_that_replaced_a_delivered_registration_is_sent_again() {
    let mut pair = Pair::new();
    pair.runner.set_capacity(pair.now, Capacity::default());
    let frame = pair.runner.poll(pair.now).unwrap();
    let inventory = pair.send(ShardMessage::Inventory { request: 7 });
    pair.deliver_to_runner(inventory);
    let acknowledgement = pair.deliver_to_shard(frame);
    pair.deliver_to_runner(acknowledgement);
    pair.exchange();
    let Some(RunnerMessage::Register { request, .. }) = pair.messages.last() else { panic!("{:?}", pair.messages) };
    assert_eq!(*request, 7);
}

#[test]
fn an_inventory_reports_how_long_attempts_have_been_running() {
    let mut pair = Pair::new();
    for job in [2, 1] {
        pair.runner.add(attempt_ref(job), InFlight::new(ExecutorKind::Process, ()));
    }
    pair.runner.send_started(pair.now, attempt_ref(2), Millis(0));
    pair.now = pair.now + Millis(700);
    let inventory = pair.send(ShardMessage::Inventory { request: 1 });
    pair.deliver_to_runner(inventory);
    pair.exchange();
    let Some(RunnerMessage::Register { in_flight, .. }) = pair.messages.last() else { panic!() };
    let reported: Vec<_> = in_flight.iter().map(|it| (it.attempt_ref, it.running_for)).collect();
    assert_eq!(reported, [(attempt_ref(1), None), (attempt_ref(2), Some(Millis(700)))]);
}

/// What the network does to a message.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Lose,
    /// Delivered after so many rounds.
    Delay(u64),
    Duplicate(u64, u64),
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        2 => Just(Fate::Lose),
        5 => (0u64..30).prop_map(Fate::Delay),
        2 => (0u64..30, 0u64..60).prop_map(|(first, second)| Fate::Duplicate(first, second)),
    ]
}

/// A network with a drawn fate for each message, and none once these are used up.
struct Network<M> {
    fates: Vec<Fate>,
    under_way: BTreeMap<(u64, u64), M>,
    sent: u64,
}

impl<M: Clone> Network<M> {
    fn new(fates: Vec<Fate>) -> Self {
        Self { fates, under_way: BTreeMap::new(), sent: 0 }
    }

    fn send(&mut self, round: u64, message: M) {
        let arrivals = match self.fates.pop() {
            None => vec![round],
            Some(Fate::Lose) => vec![],
            Some(Fate::Delay(rounds)) => vec![round + rounds],
            Some(Fate::Duplicate(first, second)) => vec![round + first, round + second],
        };
        for arrival in arrivals {
            self.sent += 1;
            self.under_way.insert((arrival, self.sent), message.clone());
        }
    }

    fn arrived(&mut self, round: u64) -> Vec<M> {
        let later = self.under_way.split_off(&(round + 1, 0));
        std::mem::replace(&mut self.under_way, later).into_values().collect()
    }
}

#[test]
fn ends_are_listed_until_they_are_acknowledged() {
    let mut runner = runner_end(Millis(0));
    for job in 1..=3 {
        runner.send_started(Millis(0), attempt_ref(job), Millis(0));
        runner.send_ended(Millis(0), attempt_ref(job), Outcome::of(End::Succeeded));
    }
    let listed = |runner: &RunnerEnd<()>, after| -> Vec<(u64, AttemptRef)> {
        runner.unacknowledged_ends(after).map(|(sequence, attempt_ref, _)| (sequence, attempt_ref)).collect()
    };
    // The registration is 1, each attempt has two messages.
    assert_eq!(listed(&runner, 0), [(3, attempt_ref(1)), (5, attempt_ref(2)), (7, attempt_ref(3))]);
    assert_eq!(listed(&runner, 3), [(5, attempt_ref(2)), (7, attempt_ref(3))]);
    runner.receive(Millis(0), ToRunner::Committed { session: session(1, 1), sequence: 5 });
    assert_eq!(listed(&runner, 0), [(7, attempt_ref(3))]);
    assert_eq!((runner.oldest_unacknowledged(), runner.last_sequence()), (6, 7));
}

proptest! {
    /// However messages are lost, repeated, delayed and reordered: each dispatch runs at most once and in order, each
    /// one is answered, and in the end both outboxes are empty.
    #[test]
    fn the_ends_agree_over_a_faulty_network(
        to_runner in proptest::collection::vec(fate(), 0..60),
        to_shard in proptest::collection::vec(fate(), 0..60),
        jobs in 1u64..12,
    ) {
        let mut pair = Pair::new();
        let (mut down, mut up) = (Network::new(to_runner), Network::new(to_shard));
        for round in 0..4_000u64 {
            pair.now = pair.now + ROUND;
            if round < jobs {
                let message = pair.send(run(round + 1));
                down.send(round, message);
            }
            for message in pair.shard.retransmit(pair.now) {
                down.send(round, message);
            }
            let seen = pair.actions.len();
            for message in down.arrived(round) {
                pair.deliver_to_runner(message);
            }
            for action in pair.actions[seen..].iter() {
                if let Action::Run { attempt_ref, .. } = action {
                    pair.runner.add(*attempt_ref, InFlight::new(ExecutorKind::Echo, ()));
                    pair.runner.send_started(pair.now, *attempt_ref, Millis(0));
                    pair.runner.send_ended(pair.now, *attempt_ref, Outcome::of(End::Succeeded));
                }
            }
            while let Some(frame) = pair.runner.poll(pair.now) {
                for message in frame.messages {
                    up.send(round, RunnerFrame { header: frame.header, messages: vec![message] });
                }
                up.send(round, RunnerFrame { header: frame.header, messages: Vec::new() });
            }
            for frame in up.arrived(round) {
                let acknowledgement = pair.deliver_to_shard(frame);
                down.send(round, acknowledgement);
            }
        }
        prop_assert_eq!(pair.shard.unacknowledged(), 0);
        prop_assert_eq!((pair.runner.in_flight().count(), pair.runner.ended().count()), (0, 0));
        let runs = pair.runs();
        prop_assert!(runs.is_sorted(), "{runs:?}");
        prop_assert!(runs.windows(2).all(|two| two[0] != two[1]), "{runs:?}");
        let ended = pair.messages.iter().filter(|message| matches!(message, RunnerMessage::Ended { .. })).count();
        prop_assert_eq!(ended as u64, jobs, "each dispatch is answered once: {:?}", pair.messages);
    }
}
