//! Fair sharing between tenants by stride scheduling.
//!
//! Each tenant has a pass, which grows by one with every dispatched job. The tenant with the smallest pass is next. A
//! tenant that returns after an idle time starts at the smallest pass of the others: unused shares are not saved up.

use std::collections::BTreeSet;

use crate::anomaly::{Anomalies, Anomaly};
use crate::leases::{LimitKind, Scope};
use crate::settings::{Settings, TenantLimits};
use crate::shard::Map;

/// Interned tenant name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TenantNumber(pub u32);

/// Position of a tenant in stride scheduling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct StridePass(pub u64);

#[derive(Debug)]
struct Tenant {
    name: String,
    pass: StridePass,
    /// Number of priority classes with eligible runners in which it has waiting jobs.
    contends: u32,
    /// Its jobs on runners.
    on_runner: u32,
    /// Its jobs in wait queues.
    waiting: u32,
    /// Its queues on this shard.
    queues: u32,
    limits: TenantLimits,
    scopes: Scopes,
}

/// The lease scopes of a tenant's limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scopes {
    pub running: Scope,
    pub live: Scope,
    pub submits: Scope,
}

impl Scopes {
    fn of(name: &str) -> Self {
        Self {
            running: Scope::of_tenant(LimitKind::Running, name),
            live: Scope::of_tenant(LimitKind::Live, name),
            submits: Scope::of_tenant(LimitKind::Submits, name),
        }
    }
}

/// All tenants with a queue on this shard.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    tenants: Vec<Tenant>,
    /// Numbers of tenants without queues, to be used again.
    free: Vec<TenantNumber>,
    by_name: Map<String, TenantNumber>,
    contending: BTreeSet<(StridePass, TenantNumber)>,
    /// Smallest pass of the tenants that contended last.
    floor: StridePass,
    anomalies: Anomalies,
}

impl Tenants {
    pub fn anomalies(&mut self) -> &mut Anomalies {
        &mut self.anomalies
    }

    #[track_caller]
    pub fn note_missing(&mut self, number: TenantNumber, during: &'static str) {
        self.anomalies.note(Anomaly::MissingTenant(number.0), during);
    }

    /// Adds a queue of a tenant, new or known. Returns the tenant's number.
    pub fn add_queue(&mut self, name: &str, settings: &Settings) -> TenantNumber {
        if let Some(number) = self.by_name.get(name).copied() {
            match self.tenants.get_mut(number.0 as usize) {
                Some(tenant) => tenant.queues += 1,
                None => self.note_missing(number, "add a queue"),
            }
            return number;
        }
        let (limits, scopes) = (settings.tenant(name), Scopes::of(name));
        let (pass, name) = (self.floor, name.to_owned());
        let tenant =
            Tenant { name: name.clone(), pass, contends: 0, on_runner: 0, waiting: 0, queues: 1, limits, scopes };
        let number = match self.free.pop() {
            Some(number) => {
                self.tenants[number.0 as usize] = tenant;
                number
            }
            None => {
                self.tenants.push(tenant);
                TenantNumber(self.tenants.len() as u32 - 1)
            }
        };
        self.by_name.insert(name, number);
        number
    }

    /// Removes a queue of a tenant, and the tenant with its last one: names must not accumulate.
    pub fn remove_queue(&mut self, number: TenantNumber) {
        let Some(tenant) = self.tenants.get_mut(number.0 as usize) else {
            return self.note_missing(number, "remove a queue");
        };
        tenant.queues = tenant.queues.saturating_sub(1);
        if tenant.queues == 0 {
            debug_assert!(tenant.waiting == 0 && tenant.on_runner == 0, "{} has jobs without a queue", tenant.name);
            self.by_name.remove(&tenant.name);
            (tenant.name, tenant.limits) = (String::new(), TenantLimits::default());
            self.free.push(number);
        }
    }

    pub fn pass(&self, number: TenantNumber) -> StridePass {
        self.tenants.get(number.0 as usize).map_or(StridePass(0), |tenant| tenant.pass)
    }

    pub fn on_runner(&self, number: TenantNumber) -> u32 {
        self.tenants.get(number.0 as usize).map_or(0, |tenant| tenant.on_runner)
    }

    pub fn max_running(&self, number: TenantNumber) -> Option<u32> {
        self.limits(number).max_running
    }

    pub fn limits(&self, number: TenantNumber) -> TenantLimits {
        self.tenants.get(number.0 as usize).map_or(TenantLimits::default(), |tenant| tenant.limits)
    }

    pub fn scopes(&self, number: TenantNumber) -> Option<Scopes> {
        self.tenants.get(number.0 as usize).map(|tenant| tenant.scopes)
    }

    pub fn name(&self, number: TenantNumber) -> &str {
        self.tenants.get(number.0 as usize).map_or("", |tenant| &tenant.name)
    }

    pub fn waiting(&self, number: TenantNumber) -> u32 {
        self.tenants.get(number.0 as usize).map_or(0, |tenant| tenant.waiting)
    }

    /// Counts a job that joins or leaves a wait queue.
    pub fn shift_waiting(&mut self, number: TenantNumber, joins: bool) {
        let Some(tenant) = self.tenants.get_mut(number.0 as usize) else {
            return self.note_missing(number, "shift waiting");
        };
        tenant.waiting = if joins { tenant.waiting + 1 } else { tenant.waiting.saturating_sub(1) };
    }

    pub fn count(&self) -> u32 {
        self.tenants.len() as u32
    }

    pub fn shift_running(&mut self, number: TenantNumber, starts: bool) {
        let Some(tenant) = self.tenants.get_mut(number.0 as usize) else {
            return self.note_missing(number, "shift running");
        };
        tenant.on_runner = if starts { tenant.on_runner + 1 } else { tenant.on_runner.saturating_sub(1) };
    }

    /// Applies the limits of new settings; returns the tenants whose limits have changed.
    pub fn refresh(&mut self, settings: &Settings) -> Vec<TenantNumber> {
        let mut changed = Vec::new();
        let named = self.tenants.iter_mut().enumerate().filter(|(_, tenant)| tenant.queues > 0);
        for (number, tenant) in named {
            let limits = settings.tenant(&tenant.name);
            if tenant.limits != limits {
                tenant.limits = limits;
                changed.push(TenantNumber(number as u32));
            }
        }
        changed
    }

    /// The tenant has waiting jobs in one more priority class with eligible runners.
    pub fn contend(&mut self, number: TenantNumber) {
        let floor = self.contending.first().map_or(self.floor, |(pass, _)| *pass);
        let Some(tenant) = self.tenants.get_mut(number.0 as usize) else {
            return self.note_missing(number, "contend");
        };
        if tenant.contends == 0 {
            tenant.pass = tenant.pass.max(floor);
            self.contending.insert((tenant.pass, number));
        }
        tenant.contends += 1;
    }

    /// Reverses one [`Tenants::contend`].
    pub fn withdraw(&mut self, number: TenantNumber) {
        let Some(tenant) = self.tenants.get_mut(number.0 as usize) else {
            return self.note_missing(number, "withdraw");
        };
        tenant.contends = tenant.contends.saturating_sub(1);
        if tenant.contends == 0 {
            self.contending.remove(&(tenant.pass, number));
        }
    }

    /// Advances the pass of a tenant whose job was dispatched.
    pub fn charge(&mut self, number: TenantNumber) {
        if let Some((pass, _)) = self.contending.first() {
            self.floor = self.floor.max(*pass);
        }
        let Some(tenant) = self.tenants.get_mut(number.0 as usize) else {
            return self.note_missing(number, "charge");
        };
        let contends = self.contending.remove(&(tenant.pass, number));
        tenant.pass.0 += 1;
        if contends {
            self.contending.insert((tenant.pass, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returning_tenant_starts_at_the_smallest_pass() {
        let mut tenants = Tenants::default();
        let first = tenants.add_queue("first", &Settings::default());
        let second = tenants.add_queue("second", &Settings::default());
        tenants.contend(first);
        for _ in 0..1_000 {
            tenants.charge(first);
        }
        tenants.contend(second);
        assert_eq!(tenants.pass(second), StridePass(1_000));
        tenants.withdraw(first);
        tenants.charge(second);
        tenants.withdraw(second);
        // No tenant contends: the next one starts at the last smallest pass.
        tenants.contend(first);
        assert_eq!(tenants.pass(first), StridePass(1_000));
        assert_eq!(tenants.pass(second), StridePass(1_001));
    }
}
