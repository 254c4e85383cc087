//! What running processes use right now, sampled every few seconds and on request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::message::Ticket;
use parking_lot::Mutex;
use spawner::protocol::{Order, Sample};

use crate::process::Env;
use crate::spawning::{Spawning, ticket_of};

/// How often running processes are sampled.
const INTERVAL: Duration = Duration::from_secs(5);
/// How long a sample that was asked for is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// A share of a processor over less time than this says nothing.
const SPAN_MIN: Duration = Duration::from_millis(20);

/// What an attempt uses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Current {
    pub cpu: Duration,
    /// Of one processor, since the sample before; absent with the first.
    pub cpu_percent: Option<f64>,
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    at: Instant,
    current: Current,
}

/// The newest samples.
#[derive(Debug)]
pub struct Sampling {
    spawning: Spawning,
    seen: Arc<Mutex<BTreeMap<Ticket, Seen>>>,
}

impl Sampling {
    pub(crate) fn new(env: &Env) -> Self {
        let seen = Arc::<Mutex<BTreeMap<Ticket, Seen>>>::default();
        let spawning = env.spawning.clone();
        tokio::spawn(keep_sampling(spawning.clone(), seen.clone()));
        Self { spawning, seen }
    }

    /// The newest sample of an attempt.
    pub fn of(&self, ticket: Ticket) -> Option<Current> {
        self.seen.lock().get(&ticket).map(|seen| seen.current)
    }

    /// Asks for new samples and waits for them, for a moment.
    pub async fn refresh(&self) {
        let mut samples = self.spawning.samples();
        samples.mark_unchanged();
        self.spawning.order(Order::Sample, Vec::new());
        if let Ok(Ok(())) = tokio::time::timeout(PATIENCE, samples.changed()).await {
            take(&mut self.seen.lock(), &samples.borrow());
        }
    }
}

async fn keep_sampling(spawning: Spawning, seen: Arc<Mutex<BTreeMap<Ticket, Seen>>>) {
    let mut samples = spawning.samples();
    loop {
        tokio::time::sleep(INTERVAL).await;
        if !spawning.is_busy() {
            seen.lock().clear();
            continue;
        }
        samples.mark_unchanged();
        spawning.order(Order::Sample, Vec::new());
        match tokio::time::timeout(PATIENCE, samples.changed()).await {
            Ok(Ok(())) => take(&mut seen.lock(), &samples.borrow()),
            Ok(Err(_)) => return,
            Err(_) => {}
        }
    }
}

fn take(seen: &mut BTreeMap<Ticket, Seen>, samples: &[Sample]) {
    let at = Instant::now();
    let old = std::mem::take(seen);
    for sample in samples {
        let ticket = ticket_of(sample.key);
        let cpu = Duration::from_micros(sample.cpu_us);
        let before = old.get(&ticket).copied();
        let next = match before {
            // Two that come at nearly the same time are one.
            Some(before) if at - before.at < SPAN_MIN => before,
            before => {
                let share = |before: Seen| {
                    let spent = cpu.saturating_sub(before.current.cpu).as_secs_f64();
                    100.0 * spent / (at - before.at).as_secs_f64()
                };
                let current = Current { cpu, cpu_percent: before.map(share), memory_bytes: sample.memory_bytes };
                Seen { at, current }
            }
        };
        seen.insert(ticket, next);
    }
}
