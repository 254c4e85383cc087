//! Instances of a module and their invocations.

use std::time::Instant;

use bytes::Bytes;
use wasm::host::StopConditions;
use wasm::{Metering, Stop};
use wasmtime::{Store, UpdateDeadline};

use crate::bindings::Module;
use crate::bindings::outlast::module::types;
use crate::code::Code;
use crate::effects::Effects;
use crate::failure::{Failure, FailureKind};
use crate::guest::Guest;
use crate::invocation::{Capabilities, Event, Invocation, Source};
use crate::limits::{HANDLES_MAX, Limits};

/// A call that the module refused. Nothing is changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("there is no such method")]
    UnknownMethod,
    #[error("{0}")]
    Refused(String),
}

/// What an invocation returned, with its effects.
pub type Invoked<T> = Result<(T, Effects), Failure>;

/// An instance of a module. After a [`Failure`] it is spent: further invocations fail.
pub struct Instance {
    code: Code,
    store: Store<Guest>,
    exports: Exports,
    stop: Stop,
}

/// Functions of an instance.
struct Exports {
    instance: wasmtime::component::Instance,
    /// Those that every module has.
    module: Module,
}

impl Instance {
    /// Makes an instance. Its [`Instance::init`] is yet to be called.
    pub fn new(code: &Code, limits: Limits, capabilities: Capabilities, stop: Stop) -> Result<Self, Failure> {
        if limits.fuel.is_some() && code.metering() == Metering::Off {
            return Err(Failure::new(FailureKind::Host, "the code was compiled without fuel metering"));
        }
        let mut store = Store::new(code.engine(), Guest::new(limits, capabilities));
        store.limiter(|guest| &mut guest.memory);
        store.set_hostcall_fuel(usize::try_from(limits.memory_bytes).unwrap_or(usize::MAX));
        store.set_max_component_handles(HANDLES_MAX);
        store.epoch_deadline_callback(|store| {
            store.data().stop_conditions.check()?;
            Ok(UpdateDeadline::Continue(1))
        });
        let _running = code.ticker().running();
        set_budget(&mut store).map_err(|error| Failure::new(FailureKind::Host, format!("{error:#}")))?;
        store.data_mut().stop_conditions = conditions(limits, &stop);
        let exports = code.instantiate(&mut store);
        let (instance, module) = exports.map_err(|error| Failure::of(&error, &store.data().memory))?;
        Ok(Self { code: code.clone(), store, exports: Exports { instance, module }, stop })
    }

    /// Initialises the instance.
    pub fn init(&mut self, invocation: Invocation, config: &[(String, String)]) -> Result<Effects, Failure> {
        let (outcome, effects) = self.invoke(invocation, |exports, store| exports.module.call_init(store, config))?;
        match outcome {
            Ok(()) => Ok(effects),
            Err(why) => Err(Failure::new(FailureKind::Init, format!("`init` failed: {why}"))),
        }
    }

    /// Tells the instance that it replaces a failed one, if it wants to know.
    pub fn on_restart(&mut self, invocation: Invocation, reason: &str, failures: u32) -> Result<Effects, Failure> {
        let Some(index) = self.code.optional().on_restart else { return Ok(Effects::default()) };
        let call = |exports: &Exports, store: &mut Store<Guest>| {
            let function = exports.instance.get_typed_func::<(&str, u32), ()>(&mut *store, index)?;
            function.call(store, (reason, failures))
        };
        Ok(self.invoke(invocation, call)?.1)
    }

    /// Delivers an event. An error of the module means that nothing is changed.
    pub fn on_event(&mut self, invocation: Invocation, event: Event) -> Invoked<Result<(), String>> {
        let event = types::Event {
            sequence: event.sequence,
            key: invocation.key.clone(),
            source: source(event.source),
            body: event.body.into(),
            failures: event.failures,
        };
        self.invoke(invocation, |exports, store| exports.module.call_on_event(store, &event)).map(discard_refused)
    }

    /// Calls a method.
    pub fn handle(&mut self, invocation: Invocation, method: &str, body: Bytes) -> Invoked<Result<Bytes, CallError>> {
        let call = types::Call { key: invocation.key.clone(), method: method.to_owned(), body: body.into() };
        let (reply, effects) = self.invoke(invocation, |exports, store| exports.module.call_handle(store, &call))?;
        let reply = reply.map(Bytes::from).map_err(|refused| match refused {
            types::CallError::UnknownMethod => CallError::UnknownMethod,
            types::CallError::Refused(why) => CallError::Refused(why),
        });
        self.check_reply(reply.as_ref().map_or(0, Bytes::len))?;
        Ok(discard_refused((reply, effects)))
    }

    /// Combines replies of several containers.
    pub fn aggregate(
        &mut self,
        invocation: Invocation,
        method: &str,
        replies: &[Vec<u8>],
    ) -> Result<Result<Bytes, String>, Failure> {
        let Some(index) = self.code.optional().aggregate else {
            return Ok(Err("the module does not combine replies: it has no `aggregate`".into()));
        };
        let call = |exports: &Exports, store: &mut Store<Guest>| {
            type Combined = (Result<Vec<u8>, String>,);
            let function = exports.instance.get_typed_func::<(&str, &[Vec<u8>]), Combined>(&mut *store, index)?;
            function.call(store, (method, replies))
        };
        let ((combined,), _) = self.invoke(invocation, call)?;
        self.check_reply(combined.as_ref().map_or(0, Vec::len))?;
        Ok(combined.map(Bytes::from))
    }

    /// Brings the state of a key to this version.
    pub fn upgrade(&mut self, invocation: Invocation, from_version: &str) -> Invoked<Result<(), String>> {
        let Some(index) = self.code.optional().upgrade else { return Ok((Ok(()), Effects::default())) };
        let key = invocation.key.clone();
        let call = |exports: &Exports, store: &mut Store<Guest>| {
            type Upgraded = (Result<(), String>,);
            let function = exports.instance.get_typed_func::<(&str, &str), Upgraded>(&mut *store, index)?;
            function.call(store, (key.as_str(), from_version))
        };
        let ((outcome,), effects) = self.invoke(invocation, call)?;
        Ok(discard_refused((outcome, effects)))
    }

    /// Peak memory of the instance so far.
    pub fn memory_peak_bytes(&self) -> u64 {
        self.store.data().memory.peak_bytes()
    }

    fn invoke<T>(
        &mut self,
        invocation: Invocation,
        call: impl FnOnce(&Exports, &mut Store<Guest>) -> wasmtime::Result<T>,
    ) -> Invoked<T> {
        let _running = self.code.ticker().running();
        let guest = self.store.data_mut();
        guest.stop_conditions = conditions(guest.limits, &self.stop);
        guest.begin(invocation);
        let outcome = set_budget(&mut self.store).and_then(|()| call(&self.exports, &mut self.store));
        let guest = self.store.data_mut();
        let effects = guest.end();
        match outcome {
            Ok(returned) => Ok((returned, effects)),
            Err(error) => Err(Failure::of(&error, &guest.memory)),
        }
    }

    fn check_reply(&self, bytes: usize) -> Result<(), Failure> {
        let bytes_max = self.store.data().limits.reply_bytes;
        if bytes > bytes_max {
            let text = format!("the reply has {bytes} bytes; the limit is {bytes_max} bytes");
            return Err(Failure::new(FailureKind::TooLarge, text));
        }
        Ok(())
    }
}

/// Deadline of the next invocation. A duration beyond the clock's range means no limit.
fn conditions(limits: Limits, stop: &Stop) -> StopConditions {
    StopConditions { stop: stop.clone(), deadline: Instant::now().checked_add(limits.deadline) }
}

/// Fuel and ticks of the next invocation.
fn set_budget(store: &mut Store<Guest>) -> wasmtime::Result<()> {
    store.set_epoch_deadline(1);
    match store.data().limits.fuel {
        Some(fuel) => store.set_fuel(fuel),
        None => Ok(()),
    }
}

/// With an error of the module nothing is changed; what it logged stays.
fn discard_refused<T, E>((outcome, effects): (Result<T, E>, Effects)) -> (Result<T, E>, Effects) {
    match outcome {
        Ok(_) => (outcome, effects),
        Err(_) => {
            let Effects { log, log_bytes_dropped, .. } = effects;
            (outcome, Effects { log, log_bytes_dropped, ..Effects::default() })
        }
    }
}

fn source(source: Source) -> types::Source {
    match source {
        Source::Timer(name) => types::Source::Timer(name),
        Source::Cron(name) => types::Source::Cron(name),
        Source::Job(id) => types::Source::Job(id),
        Source::Webhook(path) => types::Source::Webhook(path),
        Source::Module(name) => types::Source::Module(name),
        Source::Api => types::Source::Api,
    }
}
