//! Leases of attempts: the spawner kills an attempt whose lease has run out, with or without a server.

use std::os::fd::AsFd;
use std::time::Duration;

use super::{Attempt, Spawner};
use crate::protocol::AttemptKey;
use crate::{steady_clock, sys};

/// Time for an attempt's init to kill it. Then the init itself is killed.
const INIT_KILL_MS: u64 = 1_000;

/// Longest wait while there are leases: timers do not count the time while the machine is suspended.
const WAIT_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    pub until: u64,
    /// When its init was told to kill it.
    killed_at: Option<u64>,
}

impl Lease {
    pub fn new(until: u64) -> Self {
        Self { until, killed_at: None }
    }

    pub fn has_expired(&self) -> bool {
        self.killed_at.is_some()
    }

    /// When something is to be done about it.
    fn next(&self) -> u64 {
        self.killed_at.map_or(self.until, |at| at + INIT_KILL_MS)
    }
}

fn is_running(attempt: &Attempt) -> bool {
    attempt.pidfd.is_some() && attempt.exit.is_none()
}

impl Spawner {
    pub(super) fn renew(&mut self, key: AttemptKey, lease_until: u64) {
        let lease = self.attempts.get_mut(&key).and_then(|attempt| attempt.lease.as_mut());
        if let Some(lease) = lease.filter(|lease| !lease.has_expired()) {
            lease.until = lease.until.max(lease_until);
        }
    }

    /// The longest wait until the next lease needs attention.
    pub(super) fn wait_for_leases(&self) -> Option<Duration> {
        let running = self.attempts.values().filter(|attempt| is_running(attempt));
        let next = running.filter_map(|attempt| attempt.lease).map(|lease| lease.next()).min()?;
        Some(Duration::from_millis(next.saturating_sub(steady_clock::now_ms())).min(WAIT_MAX))
    }

    /// Kills the attempts whose lease has run out.
    pub(super) fn expire_leases(&mut self) {
        let now = steady_clock::now_ms();
        for attempt in self.attempts.values_mut().filter(|attempt| is_running(attempt)) {
            let (Some(lease), Some(pidfd)) = (&mut attempt.lease, &attempt.pidfd) else { continue };
            if lease.next() > now {
                continue;
            }
            // Both fail if the attempt has just ended; its report is on the way.
            let _ = match lease.killed_at {
                None => sys::send_signal(pidfd.as_fd(), sys::STOP, 0),
                Some(_) => sys::send_signal(pidfd.as_fd(), libc::SIGKILL, 0),
            };
            lease.killed_at = Some(now);
        }
    }
}
