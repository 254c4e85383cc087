//! Interruption of a guest by a stop or its deadline.
//!
//! A computing guest is checked at every tick. A waiting guest waits in this module's `wasi:io/poll`, which replaces
//! WASI's own: that one does not return on a stop.

use std::pin::pin;
use std::time::Instant;

use wasmtime::component::{HasData, Linker, Resource, ResourceTable};
use wasmtime_wasi::p2::DynPollable;
use wasmtime_wasi::p2::bindings::{io, sync};
use wasmtime_wasi::runtime::in_tokio;

use crate::stop::Stop;

/// Reason for interrupting a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Interrupt {
    #[error("stopped")]
    Stopped,
    #[error("the time limit was reached")]
    TimedOut,
}

/// Conditions that end a guest.
#[derive(Debug)]
pub struct StopConditions {
    pub stop: Stop,
    pub deadline: Option<Instant>,
}

impl StopConditions {
    pub fn check(&self) -> Result<(), Interrupt> {
        if self.stop.is_stopped() {
            return Err(Interrupt::Stopped);
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Interrupt::TimedOut);
        }
        Ok(())
    }

    /// Awaits `work` for the guest, unless interrupted.
    fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T, Interrupt> {
        in_tokio(async {
            tokio::select! {
                biased;
                done = work => Ok(done),
                () = self.stop.stopped() => Err(Interrupt::Stopped),
                () = self.deadline_passed() => Err(Interrupt::TimedOut),
            }
        })
    }

    async fn deadline_passed(&self) {
        match self.deadline {
            Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
            None => std::future::pending().await,
        }
    }
}

/// Replaces WASI's `wasi:io/poll` by an interruptible one.
pub fn link<T: 'static>(linker: &mut Linker<T>, access: fn(&mut T) -> PollHost<'_>) -> wasmtime::Result<()> {
    sync::io::poll::add_to_linker::<T, HasPollHost>(linker, access)
}

struct HasPollHost;

impl HasData for HasPollHost {
    type Data<'a> = PollHost<'a>;
}

/// What polling needs of a guest.
pub struct PollHost<'a> {
    pub table: &'a mut ResourceTable,
    pub stop_conditions: &'a StopConditions,
}

impl sync::io::poll::Host for PollHost<'_> {
    fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> wasmtime::Result<Vec<u32>> {
        let ready = io::poll::Host::poll(self.table, pollables);
        self.stop_conditions.wait(pin!(ready))?
    }
}

impl sync::io::poll::HostPollable for PollHost<'_> {
    fn ready(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<bool> {
        let ready = io::poll::HostPollable::ready(self.table, pollable);
        self.stop_conditions.wait(pin!(ready))?
    }

    fn block(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        let ready = io::poll::HostPollable::block(self.table, pollable);
        self.stop_conditions.wait(pin!(ready))?
    }

    fn drop(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        io::poll::HostPollable::drop(self.table, pollable)
    }
}
