//! A process that owns a shard: the production shell, with a record of what happened in its round.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use engine::{Effect, Input, Settings};
use model::id::Epoch;
use model::job::{Job, Outcome};
use model::json::Json;
use model::message::{AttemptRef, ShardMessage};
use model::time::Now;
use shard::{Outcomes, Owner};

use crate::coverage::Coverage;
use crate::invariants::DispatchSnapshot;
use crate::scanner::Scanner;
use crate::scenario::Time;
use crate::world::{Inbound, Reply};

/// A process that owns or owned a shard.
#[derive(Debug)]
pub struct Process {
    pub number: u64,
    pub owner: Owner,
    pub(super) inbox: VecDeque<Inbound>,
    /// Time of the next round.
    pub(super) next_round: Option<Time>,
    /// Number of the newest settings it received.
    pub(super) settings_number: usize,
    /// Settings in force during this round, in order.
    pub(super) settings: Vec<Arc<Settings>>,
    /// Attempts dispatched in this round.
    pub(super) dispatched: BTreeMap<AttemptRef, DispatchSnapshot>,
    /// Number of effects of this round already inspected.
    effects_seen: usize,
}

/// The parts of a node that take the outcomes of attempts.
pub(super) struct Node<'a> {
    pub scanner: &'a Scanner,
    pub coverage: &'a mut Coverage,
    /// Results to be stored.
    pub spills: Vec<(Epoch, AttemptRef, Json)>,
}

impl Outcomes for Node<'_> {
    fn check_metadata(&mut self, _: &Job, attempt_ref: AttemptRef, outcome: &mut Outcome) {
        outcome.policy = self.scanner.metadata_decision(attempt_ref).map(Box::new);
        if outcome.policy.is_some() {
            self.coverage.count("metadata decisions on results");
        }
    }

    fn spill(&mut self, epoch: Epoch, attempt_ref: AttemptRef, result: &Json) {
        self.coverage.count("large results stored");
        self.spills.push((epoch, attempt_ref, result.clone()));
    }
}

impl Process {
    pub(super) fn new(number: u64, owner: Owner, settings_number: usize) -> Self {
        Self {
            number,
            settings: vec![owner.shard().settings().clone()],
            owner,
            inbox: VecDeque::new(),
            next_round: None,
            settings_number,
            dispatched: BTreeMap::new(),
            effects_seen: 0,
        }
    }

    pub(super) fn begin_round(&mut self, now: Now, node: &mut Node<'_>) {
        self.owner.begin_round(now, node);
        self.inspect_effects();
    }

    pub(super) fn handle(&mut self, now: Now, inbound: Inbound, node: &mut Node<'_>) {
        match inbound {
            Inbound::Request { request, operation } => self.owner.handle(now, operation.input(request)),
            Inbound::RunnerFrame(frame) => self.owner.receive(now, frame, node),
            Inbound::Reply { epoch, reply } => self.handle_reply(now, epoch, reply, node),
            // Overtaken by newer settings.
            Inbound::Settings { number, .. } if number <= self.settings_number => {}
            Inbound::Settings { number, settings } => {
                self.settings_number = number;
                self.settings.push(settings.clone());
                self.owner.handle(now, Input::Settings(settings));
            }
            Inbound::FromShard { from, message } => self.owner.handle(now, Input::FromShard { from, message }),
            Inbound::RunnerLost { runner, incarnation } => {
                self.owner.handle(now, Input::RunnerLost { runner, incarnation });
            }
            Inbound::RunnerDisconnected { runner, incarnation } => {
                self.owner.handle(now, Input::RunnerDisconnected { runner, incarnation });
            }
            Inbound::RetractAll { runner } => self.owner.handle(now, Input::RetractAll { runner }),
            Inbound::AbandonAll { runner } => self.owner.handle(now, Input::AbandonAll { runner }),
        }
        self.inspect_effects();
    }

    fn handle_reply(&mut self, now: Now, epoch: Epoch, reply: Reply, node: &mut Node<'_>) {
        let input = match reply {
            Reply::Verdict { job, decision } => Input::Verdict { job, decision },
            Reply::PolicyUnavailable { job } => Input::PolicyUnavailable { job, message: "no service".to_owned() },
            Reply::Scanned { attempt_ref: AttemptRef { job, attempt }, scan } => Input::Scanned { job, attempt, scan },
            Reply::ScanFailed { attempt_ref: AttemptRef { job, attempt } } => {
                Input::ScanFailed { job, attempt, message: "disk unavailable".to_owned() }
            }
            Reply::AuditSigned(signed) => Input::AuditSigned { signed },
            Reply::Fetched(fetched) => Input::Fetched(fetched),
            Reply::ReadFailed => return self.owner.fail_read(epoch, "injected".to_owned()),
            Reply::Spilled { attempt_ref, spilled } => {
                return self.owner.finish_spill(now, epoch, attempt_ref, spilled, node);
            }
        };
        self.owner.reply(now, epoch, input);
    }

    /// Notes the attempts that the last input has dispatched.
    fn inspect_effects(&mut self) {
        let policy = self.owner.shard().settings().policy;
        let seen = std::mem::replace(&mut self.effects_seen, self.owner.step().effects.len());
        let run = |effect: &Effect| match effect {
            Effect::Send { message, .. } => match message.message() {
                Some(ShardMessage::Run { attempt_ref, .. }) => Some(*attempt_ref),
                Some(_) | None => None,
            },
            _ => None,
        };
        let dispatched: Vec<AttemptRef> = self.owner.step().effects[seen..].iter().filter_map(run).collect();
        for attempt_ref in dispatched {
            if let Some(job) = self.owner.shard().job(attempt_ref.job) {
                self.dispatched.insert(attempt_ref, DispatchSnapshot::new(policy, job));
            }
        }
    }

    /// Ends the round. The last settings stay in force.
    pub(super) fn end_round(&mut self) {
        self.owner.end_round();
        self.settings.drain(..self.settings.len() - 1);
        self.dispatched.clear();
        self.effects_seen = 0;
    }

    /// Settings in force during this round.
    pub fn settings(&self) -> &[Arc<Settings>] {
        &self.settings
    }
}
