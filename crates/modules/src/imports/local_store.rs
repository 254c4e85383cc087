//! `local-store`: reads through to the durable state, writes into the invocation's effects.

use bytes::Bytes;

use crate::bindings::outlast::module::local_store::{Change, Host, StoreError};
use crate::failure::StateUnavailable;
use crate::guest::Guest;
use crate::limits::{LIST_NAMES_MAX, NAME_BYTES_MAX};

impl Host for Guest {
    fn get(&mut self, name: String) -> wasmtime::Result<Option<Vec<u8>>> {
        Ok(self.value(&name)?.map(Into::into))
    }

    fn set(&mut self, name: String, value: Vec<u8>) -> wasmtime::Result<Result<(), StoreError>> {
        self.apply_all(vec![Change { name, value: Some(value) }])
    }

    fn delete(&mut self, name: String) -> wasmtime::Result<()> {
        // A name that cannot be stored is not there.
        self.apply_all(vec![Change { name, value: None }]).map(drop)
    }

    fn list(&mut self, prefix: String, after: Option<String>, limit: u32) -> wasmtime::Result<Vec<String>> {
        let limit = limit.min(LIST_NAMES_MAX);
        let changes = &self.effects_so_far().changes;
        // As many stored names may be deleted by this invocation as it has changed.
        let changed = u32::try_from(changes.len()).unwrap_or(u32::MAX);
        let invocation = self.invocation()?;
        let stored = invocation.state.list(&invocation.key, &prefix, after.as_deref(), limit.saturating_add(changed));
        let mut names = stored.map_err(StateUnavailable)?;
        names.retain(|name| !matches!(changes.get(name), Some(None)));
        let is_listed = |name: &str| name.starts_with(&prefix) && after.as_deref().is_none_or(|after| name > after);
        let set = changes.iter().filter(|(name, value)| value.is_some() && is_listed(name));
        names.extend(set.map(|(name, _)| name.clone()));
        names.sort_unstable();
        names.dedup();
        names.truncate(limit as usize);
        Ok(names)
    }

    fn apply(&mut self, changes: Vec<Change>) -> wasmtime::Result<Result<(), StoreError>> {
        self.apply_all(changes)
    }
}

impl Guest {
    /// The value as this invocation sees it.
    fn value(&self, name: &str) -> wasmtime::Result<Option<Bytes>> {
        if let Some(changed) = self.changed(name) {
            return Ok(changed.clone());
        }
        let invocation = self.invocation()?;
        Ok(invocation.state.get(&invocation.key, name).map_err(StateUnavailable)?)
    }

    fn apply_all(&mut self, changes: Vec<Change>) -> wasmtime::Result<Result<(), StoreError>> {
        let mut growth = self.effects()?.state_growth;
        let before = self.invocation()?.state.bytes();
        let mut accepted = Vec::with_capacity(changes.len());
        for Change { name, value } in changes {
            if let Err(refused) = self.check(&name, value.as_deref()) {
                return Ok(Err(refused));
            }
            let earlier = accepted.iter().rev().find(|(earlier, _): &&(String, Option<Bytes>)| *earlier == name);
            let old = match earlier {
                Some((_, value)) => value.clone(),
                None => self.value(&name)?,
            };
            let value = value.map(Bytes::from);
            growth += size(&name, value.as_ref()) - size(&name, old.as_ref());
            accepted.push((name, value));
        }
        let after = i128::from(before) + i128::from(growth);
        if growth > 0 && after > i128::from(self.limits.state_bytes) {
            return Ok(Err(StoreError::StateFull(self.limits.state_bytes)));
        }
        for (name, value) in accepted {
            self.charge(name.len() + value.as_ref().map_or(0, Bytes::len))?;
            self.effects()?.changes.insert(name, value);
        }
        self.effects()?.state_growth = growth;
        Ok(Ok(()))
    }

    fn check(&self, name: &str, value: Option<&[u8]>) -> Result<(), StoreError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(StoreError::InvalidName);
        }
        if value.is_some_and(|value| value.len() > self.limits.value_bytes) {
            return Err(StoreError::ValueTooLarge(self.limits.value_bytes as u64));
        }
        Ok(())
    }
}

/// Share of a name and its value in the state's size.
fn size(name: &str, value: Option<&Bytes>) -> i64 {
    value.map_or(0, |value| i64::try_from(name.len() + value.len()).unwrap_or(i64::MAX))
}
