//! Tasks of a runner that act on time and on the machine's state.

use std::sync::{Arc, Weak};
use std::time::Duration;

use model::message::Load;

use super::Inner;
use crate::admission::DISK_REASON;
use crate::load::LoadMeter;
use crate::pressure::{self, Pressure};

/// Interval of checks of memory and disk.
const PRESSURE_INTERVAL: Duration = Duration::from_secs(1);
/// With less room on the disk of the workspaces than this, nothing new is started. The spawner stops programs at half of it.
const DISK_RESERVE_BYTES: u64 = 2 * spawner::DISK_RESERVE_BYTES;
/// Interval at which leases are checked. Not a timer per lease: timers stand still while the machine is suspended.
const LEASE_INTERVAL: Duration = Duration::from_millis(200);
/// Interval of load reports.
const LOAD_INTERVAL: Duration = Duration::from_secs(1);

pub(super) fn spawn_all(inner: &Arc<Inner>) {
    tokio::spawn(run_delays(inner.clone()));
    tokio::spawn(watch_memory(Arc::downgrade(inner)));
    tokio::spawn(watch_disk(Arc::downgrade(inner)));
    tokio::spawn(watch_load(Arc::downgrade(inner)));
    tokio::spawn(poll_links(Arc::downgrade(inner)));
    tokio::spawn(watch_leases(Arc::downgrade(inner)));
}

/// Ends echo jobs after their delay, until the runner stops.
async fn run_delays(inner: Arc<Inner>) {
    loop {
        let changed = inner.delays_changed.notified();
        let (next, stopping) = {
            let state = inner.state.lock();
            (state.delays.next(), state.admission.is_stopping())
        };
        match next {
            None if stopping => return,
            Some(due) => tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                () = changed => {}
            },
            None => changed.await,
        }
        let due = inner.state.lock().delays.take_due(tokio::time::Instant::now());
        for (shard, outcomes) in due {
            inner.end(shard, outcomes);
        }
    }
}

/// Registers without slots for processes and components while the machine is short of memory.
async fn watch_memory(inner: Weak<Inner>) {
    let Some(mut pressure) = inner.upgrade().map(|inner| Pressure::new(inner.options.memory_reserve_bytes)) else {
        return;
    };
    let mut was_high = false;
    loop {
        tokio::time::sleep(PRESSURE_INTERVAL).await;
        let Some(inner) = inner.upgrade() else { return };
        let high = pressure.is_high(pressure::available_memory());
        if high == was_high {
            continue;
        }
        was_high = high;
        if high {
            tracing::warn!("the machine is short of memory: no new processes and components until more is available");
        }
        inner.change_admission(|admission| admission.set_short_of_memory(high));
    }
}

/// Registers without slots for processes and components while the disk is almost full.
async fn watch_disk(inner: Weak<Inner>) {
    let (mut pressure, mut was_high) = (Pressure::new(DISK_RESERVE_BYTES), false);
    loop {
        let Some(runner) = inner.upgrade() else { return };
        let high = pressure.is_high(pressure::available_disk(&runner.options.scratch));
        if high != was_high {
            was_high = high;
            match high {
                true => tracing::warn!("{DISK_REASON}"),
                false => tracing::info!("the disk of the node has room again"),
            }
            runner.change_admission(|admission| admission.set_short_of_disk(high));
        }
        drop(runner);
        tokio::time::sleep(PRESSURE_INTERVAL).await;
    }
}

/// Sends load reports when the load has changed.
async fn watch_load(inner: Weak<Inner>) {
    let mut meter = LoadMeter::default();
    let mut last_sent = Load::default();
    loop {
        tokio::time::sleep(LOAD_INTERVAL).await;
        let Some(inner) = inner.upgrade() else { return };
        let load = meter.measure();
        if load != last_sent {
            last_sent = load;
            inner.uplink.load(inner.options.incarnation, load);
        }
    }
}

/// Sends heartbeats, and again what a shard has not acknowledged.
async fn poll_links(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(Duration::from_millis(link::HEARTBEAT.0)).await;
        let Some(inner) = inner.upgrade() else { return };
        inner.state.lock().deliver(inner.uplink.as_ref());
    }
}

/// Stops attempts whose lease has run out.
async fn watch_leases(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(LEASE_INTERVAL).await;
        let Some(inner) = inner.upgrade() else { return };
        inner.expire_leases();
    }
}
