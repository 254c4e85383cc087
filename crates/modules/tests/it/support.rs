//! Fixture: a host, and a container whose state is in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use model::blob::BlobId;
use model::time::Millis;
use modules::{
    CallError, Capabilities, Code, Effects, Event, Failure, Host, Instance, Invocation, Limits, Options, Source, State,
};
use parking_lot::Mutex;
use tempfile::TempDir;
use wasm::{Metering, PrepareError, Stop};

pub struct Fixture {
    pub host: Host,
    _directory: TempDir,
}

impl Fixture {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options = Options::new(directory.path().join("cache"));
        options.instances_max = 8;
        options.memory_bytes_max = 16 << 20;
        Self { host: Host::new(options).unwrap(), _directory: directory }
    }

    pub fn code(&self, component: &[u8], metering: Metering) -> Result<Code, PrepareError> {
        self.host.code(BlobId::of(component), metering, || Ok(component.to_vec()))
    }

    pub fn container(&self, component: &[u8], limits: Limits) -> Container {
        let metering = if limits.fuel.is_some() { Metering::Fuel } else { Metering::Off };
        let code = self.code(component, metering).unwrap();
        Container { code, limits, capabilities: Capabilities::NONE, state: Arc::default(), instance: None, calls: 0 }
    }
}

/// State in memory, by key and name.
#[derive(Default)]
pub struct MemoryState(Mutex<BTreeMap<(String, String), Bytes>>);

impl State for MemoryState {
    fn get(&self, key: &str, name: &str) -> Result<Option<Bytes>, String> {
        Ok(self.0.lock().get(&(key.to_owned(), name.to_owned())).cloned())
    }

    fn list(&self, key: &str, prefix: &str, after: Option<&str>, limit: u32) -> Result<Vec<String>, String> {
        let state = self.0.lock();
        let names = state.keys().filter(|(owner, _)| owner == key).map(|(_, name)| name);
        let names = names.filter(|name| name.starts_with(prefix) && after.is_none_or(|after| name.as_str() > after));
        Ok(names.take(limit as usize).cloned().collect())
    }

    fn bytes(&self) -> u64 {
        self.0.lock().iter().map(|((_, name), value)| (name.len() + value.len()) as u64).sum()
    }
}

impl MemoryState {
    pub fn value(&self, key: &str, name: &str) -> Option<Bytes> {
        self.get(key, name).unwrap()
    }

    fn commit(&self, key: &str, effects: &Effects) {
        let mut state = self.0.lock();
        for (name, value) in &effects.changes {
            let entry = (key.to_owned(), name.clone());
            match value {
                Some(value) => state.insert(entry, value.clone()),
                None => state.remove(&entry),
            };
        }
    }
}

/// A container as its owner runs it: effects are committed after each invocation, a failed instance is replaced.
pub struct Container {
    code: Code,
    limits: Limits,
    pub capabilities: Capabilities,
    pub state: Arc<MemoryState>,
    instance: Option<Instance>,
    calls: u64,
}

impl Container {
    pub fn call(&mut self, key: &str, method: &str, body: &[u8]) -> Result<Result<Bytes, CallError>, Failure> {
        self.call_with_effects(key, method, body).map(|(reply, _)| reply)
    }

    pub fn call_with_effects(
        &mut self,
        key: &str,
        method: &str,
        body: &[u8],
    ) -> Result<(Result<Bytes, CallError>, Effects), Failure> {
        let invocation = self.invocation(key, false);
        let body = Bytes::copy_from_slice(body);
        self.invoke(key, |instance| instance.handle(invocation, method, body))
    }

    pub fn query(&mut self, key: &str, method: &str) -> Result<Result<Bytes, CallError>, Failure> {
        let invocation = self.invocation(key, true);
        self.invoke(key, |instance| instance.handle(invocation, method, Bytes::new())).map(|(reply, _)| reply)
    }

    pub fn event(&mut self, key: &str, body: &[u8]) -> Result<Result<(), String>, Failure> {
        let event = Event { sequence: 1, source: Source::Api, body: Bytes::copy_from_slice(body), failures: 0 };
        let invocation = self.invocation(key, false);
        self.invoke(key, |instance| instance.on_event(invocation, event)).map(|(outcome, _)| outcome)
    }

    /// The count in the reply of a method.
    pub fn count(&mut self, key: &str, method: &str) -> i64 {
        let reply = self.call(key, method, b"").unwrap().unwrap();
        i64::from_le_bytes(reply.as_ref().try_into().unwrap())
    }

    pub fn invoke<T>(
        &mut self,
        key: &str,
        invoke: impl FnOnce(&mut Instance) -> Result<(T, Effects), Failure>,
    ) -> Result<(T, Effects), Failure> {
        let mut instance = match self.instance.take() {
            Some(instance) => instance,
            None => self.start()?,
        };
        let (returned, effects) = invoke(&mut instance)?;
        self.state.commit(key, &effects);
        self.instance = Some(instance);
        Ok((returned, effects))
    }

    fn start(&mut self) -> Result<Instance, Failure> {
        let mut instance = Instance::new(&self.code, self.limits, self.capabilities.clone(), Stop::new())?;
        instance.init(self.invocation("", false), &[("name".to_owned(), "value".to_owned())])?;
        Ok(instance)
    }

    pub fn invocation(&mut self, key: &str, is_query: bool) -> Invocation {
        self.calls += 1;
        Invocation {
            key: key.to_owned(),
            id: format!("counter/0/{}", self.calls),
            now: Millis(1_700_000_000_000),
            state: self.state.clone(),
            is_query,
        }
    }
}
