//! Fair shares: whose turn it is, over everything that waits.
//!
//! Each tenant has a pass, which grows by one with every job that a runner gets. The smallest pass goes first. A tenant
//! that comes back when it has had nothing to run starts no lower than the smallest of the others: what it did not use
//! is not owed to it.

use std::collections::BTreeSet;

use crate::leases::{Kind, Scope};
use crate::setup::{Setup, TenantLimits};

/// Tenants by number: cheaper to pass around than by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TenantNumber(pub u32);

/// How far a tenant has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Pass(pub u64);

#[derive(Debug)]
struct Tenant {
    name: String,
    pass: Pass,
    /// In how many places it stands in line for runners that there are.
    contends: u32,
    /// Its jobs with runners.
    on_runner: u32,
    /// Its jobs in line for one.
    waiting: u32,
    limits: TenantLimits,
    scopes: Scopes,
}

/// The names of a tenant's limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scopes {
    pub running: Scope,
    pub live: Scope,
    pub submits: Scope,
}

impl Scopes {
    fn of(name: &str) -> Self {
        Self {
            running: Scope::of_tenant(Kind::Running, name),
            live: Scope::of_tenant(Kind::Live, name),
            submits: Scope::of_tenant(Kind::Submits, name),
        }
    }
}

/// All tenants that have ever had a queue here.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    tenants: Vec<Tenant>,
    contending: BTreeSet<(Pass, TenantNumber)>,
    /// The smallest pass of those who contended last.
    floor: Pass,
}

impl Tenants {
    pub fn introduce(&mut self, number: TenantNumber, name: &str, setup: &Setup) {
        if number.0 as usize == self.tenants.len() {
            let (limits, scopes) = (setup.tenant(name), Scopes::of(name));
            let (pass, name) = (self.floor, name.to_owned());
            self.tenants.push(Tenant { name, pass, contends: 0, on_runner: 0, waiting: 0, limits, scopes });
        }
    }

    pub fn pass(&self, number: TenantNumber) -> Pass {
        self.tenants.get(number.0 as usize).map_or(Pass(0), |tenant| tenant.pass)
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

    /// One more of its jobs is in line, or one less.
    pub fn shift_waiting(&mut self, number: TenantNumber, joins: bool) {
        let Some(tenant) = self.tenants.get_mut(number.0 as usize) else { return };
        tenant.waiting = if joins { tenant.waiting + 1 } else { tenant.waiting.saturating_sub(1) };
    }

    pub fn count(&self) -> u32 {
        self.tenants.len() as u32
    }

    pub fn shift_running(&mut self, number: TenantNumber, starts: bool) {
        let Some(tenant) = self.tenants.get_mut(number.0 as usize) else { return };
        tenant.on_runner = if starts { tenant.on_runner + 1 } else { tenant.on_runner.saturating_sub(1) };
    }

    /// Takes the limits of a new setup; returns the tenants whose limit has changed.
    pub fn refresh(&mut self, setup: &Setup) -> Vec<TenantNumber> {
        let mut changed = Vec::new();
        for (number, tenant) in self.tenants.iter_mut().enumerate() {
            let limits = setup.tenant(&tenant.name);
            if tenant.limits != limits {
                tenant.limits = limits;
                changed.push(TenantNumber(number as u32));
            }
        }
        changed
    }

    /// It stands in line in one more place where there are runners.
    pub fn contend(&mut self, number: TenantNumber) {
        let floor = self.contending.first().map_or(self.floor, |(pass, _)| *pass);
        let Some(tenant) = self.tenants.get_mut(number.0 as usize) else { return };
        if tenant.contends == 0 {
            tenant.pass = tenant.pass.max(floor);
            self.contending.insert((tenant.pass, number));
        }
        tenant.contends += 1;
    }

    pub fn yields(&mut self, number: TenantNumber) {
        let Some(tenant) = self.tenants.get_mut(number.0 as usize) else { return };
        tenant.contends = tenant.contends.saturating_sub(1);
        if tenant.contends == 0 {
            self.contending.remove(&(tenant.pass, number));
        }
    }

    /// One of its jobs goes to a runner.
    pub fn charge(&mut self, number: TenantNumber) {
        if let Some((pass, _)) = self.contending.first() {
            self.floor = self.floor.max(*pass);
        }
        let Some(tenant) = self.tenants.get_mut(number.0 as usize) else { return };
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
    fn who_comes_back_owes_nothing_and_is_owed_nothing() {
        let (first, second) = (TenantNumber(0), TenantNumber(1));
        let mut tenants = Tenants::default();
        tenants.introduce(first, "first", &Setup::default());
        tenants.introduce(second, "second", &Setup::default());
        tenants.contend(first);
        for _ in 0..1_000 {
            tenants.charge(first);
        }
        tenants.contend(second);
        assert_eq!(tenants.pass(second), Pass(1_000));
        tenants.yields(first);
        tenants.charge(second);
        tenants.yields(second);
        // Nobody is there: the next one to come starts where the last ones were.
        tenants.contend(first);
        assert_eq!(tenants.pass(first), Pass(1_000));
        assert_eq!(tenants.pass(second), Pass(1_001));
    }
}
