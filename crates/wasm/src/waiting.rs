//! How long a guest may go on: until it is stopped, or its time is up.
//!
//! A guest that computes is asked at every tick. One that waits, for a timer, waits here: WASI's own
//! `poll` would sleep through a stop, so this one takes its place.

use std::pin::pin;
use std::time::Instant;

use wasmtime::component::{HasData, Linker, Resource, ResourceTable};
use wasmtime_wasi::p2::DynPollable;
use wasmtime_wasi::p2::bindings::{io, sync};
use wasmtime_wasi::runtime::in_tokio;

use crate::guest::Guest;
use crate::stop::Stop;

/// Why a guest was made to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Interrupt {
    #[error("stopped")]
    Stopped,
    #[error("its time is up")]
    TimedOut,
}

/// What ends a guest.
#[derive(Debug)]
pub(crate) struct Bounds {
    pub stop: Stop,
    pub deadline: Option<Instant>,
}

impl Bounds {
    pub fn check(&self) -> Result<(), Interrupt> {
        if self.stop.is_stopped() {
            return Err(Interrupt::Stopped);
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Interrupt::TimedOut);
        }
        Ok(())
    }

    /// Waits for something on the guest's behalf.
    fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T, Interrupt> {
        in_tokio(async {
            tokio::select! {
                biased;
                done = work => Ok(done),
                () = self.stop.stopped() => Err(Interrupt::Stopped),
                () = self.time_up() => Err(Interrupt::TimedOut),
            }
        })
    }

    async fn time_up(&self) {
        match self.deadline {
            Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
            None => std::future::pending().await,
        }
    }
}

/// Puts this `wasi:io/poll` in the place of the one that cannot be interrupted.
pub(crate) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    sync::io::poll::add_to_linker::<Guest, HasWaiting>(linker, |guest| Waiting {
        table: &mut guest.table,
        bounds: &guest.bounds,
    })
}

struct HasWaiting;

impl HasData for HasWaiting {
    type Data<'a> = Waiting<'a>;
}

struct Waiting<'a> {
    table: &'a mut ResourceTable,
    bounds: &'a Bounds,
}

impl sync::io::poll::Host for Waiting<'_> {
    fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> wasmtime::Result<Vec<u32>> {
        let ready = io::poll::Host::poll(self.table, pollables);
        self.bounds.wait(pin!(ready))?
    }
}

impl sync::io::poll::HostPollable for Waiting<'_> {
    fn ready(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<bool> {
        let ready = io::poll::HostPollable::ready(self.table, pollable);
        self.bounds.wait(pin!(ready))?
    }

    fn block(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        let ready = io::poll::HostPollable::block(self.table, pollable);
        self.bounds.wait(pin!(ready))?
    }

    fn drop(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        io::poll::HostPollable::drop(self.table, pollable)
    }
}
