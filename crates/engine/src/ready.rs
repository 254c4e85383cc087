//! Jobs that wait for a runner, and which of them is next.
//!
//! The order is that of [`crate::placement::line`], over all jobs that the same runners are fit for. A queue, a tenant
//! or a group of jobs that has all the runners it may have is set aside until one is free, and holds up nobody.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::id::{JobId, QueueId};
use model::job::Job;
use model::spec::{Lane, Priority, Wants, decode_wants};
use model::time::Millis;

use crate::leases::{Kind, Leases, Scope};
use crate::placement::ask::{AskId, Asks, Group, concurrency_rule};
use crate::placement::crew::Crews;
use crate::placement::fit::{Fit, FitId, FitKey, Rank};
use crate::placement::line::{LineKey, Waiting, place, ready_since};
use crate::placement::roster::Member;
use crate::placement::staff::{Found, RunnerIndex};
pub(crate) use crate::placement::tenants::TenantNumber;
use crate::placement::tenants::{Pass, Tenants};
use crate::setup::Setup;
use crate::shard::Map;

/// What may be at its limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Gate {
    Queue(QueueId),
    Tenant(TenantNumber),
    Group(TenantNumber, Box<str>),
}

/// What was set aside: a line, or all lines of the tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Spot {
    fit: FitId,
    class: usize,
    line: Option<LineKey>,
}

/// The job that is next: the first of this line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Next {
    pub fit: FitId,
    pub class: usize,
    pub line: LineKey,
}

/// All jobs that wait for a runner, and all runners as far as they are fit for something.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) setup: Arc<Setup>,
    pub(crate) asks: Asks,
    pub(crate) fits: Vec<Option<Fit>>,
    pub(crate) unused_fits: Vec<u32>,
    pub(crate) fit_by_key: Map<Arc<FitKey>, FitId>,
    pub(crate) fits_by: Found<FitId>,
    pub(crate) runners_by: Found<RunnerIndex>,
    pub(crate) crews: Crews,
    pub(crate) staff: Vec<Member>,
    /// Runners that are here.
    pub(crate) connected: u32,
    /// What they all have in hand.
    pub(crate) held: [u32; Lane::ALL.len()],
    pub(crate) tenants: Tenants,
    /// What tenants and rules limit, over all shards.
    pub(crate) leases: Leases,
    /// What is set aside until there is a slot of these, and how many there are in all.
    awaited: Map<Scope, (Gate, u32)>,
    pub(crate) fit_generation: u32,
    /// The fit that is asked next whether it is still needed.
    pub(crate) fit_hand: usize,
    /// Fits with jobs that no runner there is can take, which must be told when to look again.
    pub(crate) arming: BTreeSet<FitId>,
    tenant_of: Map<QueueId, TenantNumber>,
    /// How many jobs of a tenant that a rule has allowed are with runners.
    groups: Map<(TenantNumber, Box<str>), u32>,
    parked: Map<Gate, BTreeSet<Spot>>,
    /// Fits with jobs and with room, the most urgent first. A rank that is stale is too urgent, and set right when it
    /// comes up.
    hot: BTreeSet<(Rank, FitId)>,
    waiting: [usize; Lane::ALL.len()],
    ages_after: [Millis; 3],
}

impl Ready {
    pub fn new(setup: Arc<Setup>, leases: Leases, interactive_ages_after: Millis, batch_ages_after: Millis) -> Self {
        Self {
            setup,
            asks: Asks::default(),
            fits: Vec::new(),
            unused_fits: Vec::new(),
            fit_by_key: Map::default(),
            fits_by: Found::default(),
            runners_by: Found::default(),
            crews: Crews::default(),
            staff: Vec::new(),
            connected: 0,
            held: [0; Lane::ALL.len()],
            tenants: Tenants::default(),
            leases,
            awaited: Map::default(),
            fit_generation: 0,
            fit_hand: 0,
            arming: BTreeSet::new(),
            tenant_of: Map::default(),
            groups: Map::default(),
            parked: Map::default(),
            hot: BTreeSet::new(),
            waiting: [0; Lane::ALL.len()],
            ages_after: [Millis(u64::MAX), interactive_ages_after, batch_ages_after],
        }
    }

    /// Makes a queue known; its jobs take turns with those of the tenant's other queues.
    pub fn introduce(&mut self, queue: QueueId, tenant: TenantNumber, name: &str) {
        self.tenants.introduce(tenant, name, &self.setup);
        self.tenant_of.insert(queue, tenant);
    }

    pub fn forget(&mut self, queue: QueueId) {
        self.tenant_of.remove(&queue);
    }

    pub fn tenant_of(&self, queue: QueueId) -> TenantNumber {
        self.tenant_of.get(&queue).copied().unwrap_or(TenantNumber(0))
    }

    pub fn len(&self, lane: Lane) -> usize {
        self.waiting[lane as usize]
    }

    pub fn is_empty(&self, lane: Lane) -> bool {
        self.waiting[lane as usize] == 0
    }

    /// A job is here to stay until it has ended: what it asks for is kept until then.
    pub fn join_ask(&mut self, lane: Lane, wants: Wants) -> AskId {
        self.asks.join(lane, wants)
    }

    pub fn leave_ask(&mut self, ask: AskId) {
        self.asks.leave(ask);
    }

    /// What a job asks for, with what the policy has said of it since it was accepted.
    pub fn ask_of(&mut self, job: &Job, known: Option<AskId>) -> AskId {
        let rule = concurrency_rule(job);
        if let Some(id) = known
            && let Some(ask) = self.asks.get(id)
        {
            let same = match (&ask.key.group, rule) {
                (None, None) => true,
                (Some(group), Some((rule, limit))) => *group.rule == *rule && group.limit == limit,
                (Some(_), None) | (None, Some(_)) => false,
            };
            if same {
                return id;
            }
            let mut key = (*ask.key).clone();
            key.group = self.group(job, rule);
            let new = self.asks.join_key(key);
            self.asks.leave(id);
            return new;
        }
        // It was written by this very code, or checked when it was read.
        let wants = decode_wants(&job.spec).unwrap_or_default();
        let mut key = crate::placement::ask::AskKey::new(job.lane, wants);
        key.group = self.group(job, rule);
        self.asks.join_key(key)
    }

    fn group(&self, job: &Job, rule: Option<(&str, u32)>) -> Option<Group> {
        let (rule, limit) = rule?;
        let tenant = self.tenant_of(job.queue);
        let scope = Scope::of_rule(Kind::Running, self.tenants.name(tenant), rule);
        Some(Group { tenant, rule: rule.into(), limit, scope })
    }

    /// Puts a job in line. Its ask must be the one that [`Ready::ask_of`] says.
    pub fn insert(&mut self, job: &Job, ask: AskId) {
        let Some(fit_id) = self.fit_of(ask) else { return };
        let waiting = Waiting { tenant: self.tenant_of(job.queue), place: place(job), since: ready_since(job) };
        self.put(fit_id, job.priority as usize, LineKey { ask, queue: job.queue }, waiting);
        self.waiting[job.lane as usize] += 1;
        self.tenants.shift_waiting(waiting.tenant, true);
        if let Some(ask) = self.asks.get_mut(ask) {
            ask.waiting += 1;
        }
    }

    pub(crate) fn put(&mut self, fit_id: FitId, class: usize, line: LineKey, waiting: Waiting) {
        let Some(fit) = self.fits.get_mut(fit_id.0 as usize).and_then(Option::as_mut) else { return };
        let ages = class != Priority::Critical as usize;
        fit.classes[class].insert(line, waiting, ages, &mut self.tenants);
        fit.waiting += 1;
        self.heat(fit_id);
    }

    /// Takes out a job that was put in, wherever ageing has moved it.
    pub fn remove(&mut self, job: &Job, ask: Option<AskId>) {
        let Some(ask) = ask else { return };
        let Some(fit_id) = self.fit_of(ask) else { return };
        let Some(fit) = self.fits.get_mut(fit_id.0 as usize).and_then(Option::as_mut) else { return };
        let (line, place) = (LineKey { ask, queue: job.queue }, place(job));
        let own = fit.classes[job.priority as usize].remove(line, place, &mut self.tenants);
        if own.is_none() {
            fit.classes[Priority::Critical as usize].remove(line, place, &mut self.tenants);
        }
        fit.waiting -= 1;
        self.count_out(ask);
        self.leave_line(self.tenant_of(job.queue));
    }

    /// One job less of a tenant is in line; it may wait for a slot no more.
    fn leave_line(&mut self, tenant: TenantNumber) {
        self.tenants.shift_waiting(tenant, false);
        if self.tenants.waiting(tenant) == 0 {
            self.unpark(&Gate::Tenant(tenant));
        }
    }

    fn count_out(&mut self, ask: AskId) {
        if let Some(ask) = self.asks.get_mut(ask) {
            ask.waiting -= 1;
            self.waiting[ask.key.lane as usize] -= 1;
        }
    }

    /// There is something to do if there are jobs and room.
    pub(crate) fn heat(&mut self, id: FitId) {
        let Some(fit) = self.fits.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        if fit.waiting > 0 && !fit.roomy.is_empty() {
            self.rank(id, Some((0, Pass(0))));
        }
    }

    /// A fit is about to go: nothing is to be done there.
    pub(crate) fn cool(&mut self, id: FitId) {
        self.rank(id, None);
    }

    fn rank(&mut self, id: FitId, rank: Option<Rank>) {
        let Some(fit) = self.fits.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        if fit.hot == rank {
            return;
        }
        if let Some(old) = std::mem::replace(&mut fit.hot, rank) {
            self.hot.remove(&(old, id));
        }
        if let Some(new) = rank {
            self.hot.insert((new, id));
        }
    }

    pub fn is_idle(&self) -> bool {
        self.hot.is_empty()
    }

    /// The next job for which there is room. Whatever is at a limit is set aside on the way.
    pub fn next(&mut self, now: Millis, queue_has_room: impl Fn(QueueId) -> bool) -> Option<Next> {
        while let Some((rank, fit_id)) = self.hot.first().copied() {
            let fit = self.fits.get(fit_id.0 as usize).and_then(Option::as_ref);
            let head = match fit.is_some_and(|fit| fit.waiting > 0 && !fit.roomy.is_empty()) {
                true => self.head(fit_id, now, &queue_has_room),
                false => None,
            };
            match head {
                None => self.rank(fit_id, None),
                Some((true_rank, next)) if true_rank == rank => return Some(next),
                Some((true_rank, _)) => self.rank(fit_id, Some(true_rank)),
            }
        }
        None
    }

    fn head(&mut self, id: FitId, now: Millis, queue_has_room: &impl Fn(QueueId) -> bool) -> Option<(Rank, Next)> {
        self.age(id, now);
        for class in 0..self.ages_after.len() {
            loop {
                let fit = self.fits.get_mut(id.0 as usize)?.as_mut()?;
                let Some((pass, tenant, line)) = fit.classes[class].first(&self.tenants) else { break };
                match self.shut_gate(tenant, line, queue_has_room) {
                    None => return Some(((class as u8, pass), Next { fit: id, class, line })),
                    Some(gate) => self.park(gate, id, class, line),
                }
            }
        }
        None
    }

    /// What keeps the jobs of a line from runners, if anything does.
    pub fn shut_gate(
        &self,
        tenant: TenantNumber,
        line: LineKey,
        queue_has_room: &impl Fn(QueueId) -> bool,
    ) -> Option<Gate> {
        if let Some(max) = self.tenants.max_running(tenant)
            && let Some(scopes) = self.tenants.scopes(tenant)
            && !self.leases.can_take(scopes.running, max)
        {
            return Some(Gate::Tenant(tenant));
        }
        if !queue_has_room(line.queue) {
            return Some(Gate::Queue(line.queue));
        }
        let group = self.asks.get(line.ask)?.key.group.as_ref()?;
        let shut = !self.leases.can_take(group.scope, group.limit);
        shut.then(|| Gate::Group(group.tenant, group.rule.clone()))
    }

    fn park(&mut self, gate: Gate, fit_id: FitId, class: usize, line: LineKey) {
        let Some(fit) = self.fits.get_mut(fit_id.0 as usize).and_then(Option::as_mut) else { return };
        let line = match gate {
            Gate::Tenant(tenant) => {
                fit.classes[class].park_tenant(tenant, &mut self.tenants);
                None
            }
            Gate::Queue(_) | Gate::Group(..) => {
                fit.classes[class].park_line(line, &mut self.tenants);
                Some(line)
            }
        };
        self.await_slot(&gate, line);
        self.parked.entry(gate).or_default().insert(Spot { fit: fit_id, class, line });
    }

    /// Says how many wait for a slot of what is at its limit.
    fn await_slot(&mut self, gate: &Gate, line: Option<LineKey>) {
        let (scope, limit, waiting) = match gate {
            Gate::Queue(_) => return,
            Gate::Tenant(tenant) => {
                let limits = self.tenants.max_running(*tenant).zip(self.tenants.scopes(*tenant));
                let Some((limit, scopes)) = limits else { return };
                (scopes.running, limit, self.tenants.waiting(*tenant))
            }
            Gate::Group(..) => {
                let ask = line.and_then(|line| self.asks.get(line.ask));
                let Some((ask, group)) = ask.and_then(|ask| Some((ask, ask.key.group.as_ref()?))) else { return };
                (group.scope, group.limit, ask.waiting)
            }
        };
        self.leases.set_waiting(scope, limit, waiting);
        self.awaited.insert(scope, (gate.clone(), limit));
    }

    /// Slots have come, or come back: whoever waits for them may try again. Returns the limits of other kinds.
    pub fn serve_freed(&mut self) -> Vec<Scope> {
        let mut others = Vec::new();
        for scope in self.leases.freed() {
            match self.awaited.get(&scope).map(|(gate, _)| gate.clone()) {
                Some(gate) => self.unpark(&gate),
                None => others.push(scope),
            }
        }
        others
    }

    /// There may be room again where there was none.
    pub fn unpark(&mut self, gate: &Gate) {
        let Some(spots) = self.parked.remove(gate) else { return };
        self.stop_awaiting(gate);
        for Spot { fit: id, class, line } in spots {
            let Some(fit) = self.fits.get_mut(id.0 as usize).and_then(Option::as_mut) else { continue };
            match (gate, line) {
                (Gate::Tenant(tenant), _) => fit.classes[class].unpark_tenant(*tenant, &mut self.tenants),
                (Gate::Queue(_) | Gate::Group(..), Some(line)) => {
                    fit.classes[class].unpark_line(line, &mut self.tenants)
                }
                (Gate::Queue(_) | Gate::Group(..), None) => false,
            };
            self.heat(id);
        }
    }

    fn stop_awaiting(&mut self, gate: &Gate) {
        let scope = match gate {
            Gate::Queue(_) => return,
            Gate::Tenant(tenant) => self.tenants.scopes(*tenant).map(|scopes| scopes.running),
            Gate::Group(tenant, rule) => Some(Scope::of_rule(Kind::Running, self.tenants.name(*tenant), rule)),
        };
        if let Some(scope) = scope
            && let Some((_, limit)) = self.awaited.remove(&scope)
        {
            self.leases.set_waiting(scope, limit, 0);
        }
    }

    /// A job has gone to a runner, or has left one.
    pub fn shift_running(&mut self, job: &Job, starts: bool) {
        self.count_running(job, starts);
        let tenant = self.tenant_of(job.queue);
        if let Some((limit, scopes)) = self.tenants.max_running(tenant).zip(self.tenants.scopes(tenant)) {
            self.shift_lease(scopes.running, limit, starts);
            if !starts {
                self.unpark(&Gate::Tenant(tenant));
            }
        }
        if let Some((rule, limit)) = concurrency_rule(job) {
            let scope = Scope::of_rule(Kind::Running, self.tenants.name(tenant), rule);
            self.shift_lease(scope, limit, starts);
            if !starts {
                self.unpark(&Gate::Group(tenant, rule.into()));
            }
        }
    }

    /// Counts a job that goes to a runner, or leaves one, or was found with one after a start.
    pub fn count_running(&mut self, job: &Job, starts: bool) {
        let tenant = self.tenant_of(job.queue);
        self.tenants.shift_running(tenant, starts);
        if let Some((rule, _)) = concurrency_rule(job) {
            let running = self.groups.entry((tenant, rule.into())).or_default();
            *running = if starts { *running + 1 } else { running.saturating_sub(1) };
            if *running == 0 {
                self.groups.remove(&(tenant, Box::from(rule)));
            }
        }
    }

    fn shift_lease(&mut self, scope: Scope, limit: u32, starts: bool) {
        if starts {
            let taken = self.leases.take(scope, limit);
            debug_assert!(taken, "a gate was passed that was shut");
        } else {
            self.leases.give_back(scope);
        }
    }

    /// What the records say is in use: after a start, and where a tenant has got a limit that had none.
    pub fn restore_leases(&mut self, tenant: TenantNumber, live: u32) {
        let Some(scopes) = self.tenants.scopes(tenant) else { return };
        let limits = self.tenants.limits(tenant);
        if limits.max_running.is_some() {
            self.leases.restore_use(scopes.running, self.tenants.on_runner(tenant));
        }
        if limits.max_live.is_some() {
            self.leases.restore_use(scopes.live, live);
        }
    }

    /// The same for what rules limit.
    pub fn restore_group_leases(&mut self) {
        for ((tenant, rule), running) in &self.groups {
            let scope = Scope::of_rule(Kind::Running, self.tenants.name(*tenant), rule);
            self.leases.restore_use(scope, *running);
        }
    }

    /// Takes out the job that [`Ready::next`] named, and passes the turn on.
    pub fn take(&mut self, next: Next) -> Option<JobId> {
        let fit = self.fits.get_mut(next.fit.0 as usize)?.as_mut()?;
        let tenant = fit.classes[next.class].line(next.line)?.tenant;
        let id = fit.classes[next.class].take(next.line, &mut self.tenants)?;
        fit.waiting -= 1;
        self.tenants.charge(tenant);
        self.count_out(next.line.ask);
        self.leave_line(tenant);
        Some(id)
    }

    /// The job that [`Ready::take`] would take out.
    pub fn look_at(&self, next: Next) -> Option<JobId> {
        let line = self.fit(next.fit)?.classes[next.class].line(next.line)?;
        line.places.first_key_value().map(|(place, _)| place.1)
    }

    /// Moves what has waited for too long to the first class; each job is moved once at most.
    fn age(&mut self, id: FitId, now: Millis) {
        let Some(fit) = self.fits.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let [critical, rest @ ..] = &mut fit.classes;
        for (class, after) in rest.iter_mut().zip(&self.ages_after[1..]) {
            while let Some((line, waiting)) = class.pop_aged(now, *after, &mut self.tenants) {
                critical.insert(line, waiting, false, &mut self.tenants);
            }
        }
    }

    pub fn fit(&self, id: FitId) -> Option<&Fit> {
        self.fits.get(id.0 as usize)?.as_ref()
    }
}
