//! Runs modules: WebAssembly components with durable state by key.
//!
//! A module implements the world `outlast:module/module` (see `wit/module.wit`). A [`Host`] compiles a component once
//! into [`Code`]; an [`Instance`] of it is *invoked* with events and calls. An invocation reads state through [`State`]
//! and changes nothing: what it wants to change is returned as [`Effects`], which the caller makes durable in one
//! commit, or discards.
//!
//! A module is untrusted. Its memory, time, fuel and effects are limited ([`Limits`]). A trap ends the instance and
//! never affects the host ([`Failure`]); a new instance costs some tens of microseconds.

mod bindings;
mod code;
mod effects;
mod failure;
mod guest;
mod host;
mod imports;
mod instance;
mod invocation;
mod limits;
mod ticker;

pub use code::Code;
pub use effects::{Effects, LogLevel, LogLine, TimerChange};
pub use failure::{Failure, FailureKind};
pub use host::{Host, Options};
pub use imports::http::{HttpError, HttpRequest, HttpResponse, Outgoing};
pub use instance::{CallError, Instance};
pub use invocation::{Capabilities, Event, Invocation, Jobs, Source, State};
pub use limits::Limits;
