//! Current resource usage of running processes, sampled every few seconds and on request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::message::AttemptRef;
use parking_lot::Mutex;
use spawner::protocol::{Command, Sample};

use crate::process::Env;
use crate::spawner_client::{SpawnerClient, attempt_of};

/// Interval of periodic samples.
const INTERVAL: Duration = Duration::from_secs(5);
/// Time to wait for a requested sample.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Minimum time between two samples: over less, a CPU percentage is meaningless.
const SPAN_MIN: Duration = Duration::from_millis(20);

/// Resource usage of an attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurrentUsage {
    pub cpu: Duration,
    /// Percentage of one CPU since the previous sample; absent in the first.
    pub cpu_percent: Option<f64>,
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Measurement {
    at: Instant,
    usage: CurrentUsage,
}

/// The newest samples.
#[derive(Debug)]
pub struct Sampling {
    spawner: SpawnerClient,
    newest: Arc<Mutex<BTreeMap<AttemptRef, Measurement>>>,
}

impl Sampling {
    pub(crate) fn new(env: &Env) -> Self {
        let newest = Arc::<Mutex<BTreeMap<AttemptRef, Measurement>>>::default();
        let spawner = env.spawner.clone();
        tokio::spawn(sample_periodically(spawner.clone(), newest.clone()));
        Self { spawner, newest }
    }

    /// The newest sample of an attempt.
    pub fn of(&self, attempt_ref: AttemptRef) -> Option<CurrentUsage> {
        self.newest.lock().get(&attempt_ref).map(|measured| measured.usage)
    }

    /// The newest samples of all attempts.
    pub fn all(&self) -> Vec<(AttemptRef, CurrentUsage)> {
        self.newest.lock().iter().map(|(attempt_ref, measured)| (*attempt_ref, measured.usage)).collect()
    }

    /// Requests new samples and waits for them, up to a timeout.
    pub async fn refresh(&self) {
        let mut samples = self.spawner.samples();
        samples.mark_unchanged();
        self.spawner.send(Command::Sample, Vec::new());
        if let Ok(Ok(())) = tokio::time::timeout(TIMEOUT, samples.changed()).await {
            update(&mut self.newest.lock(), &samples.borrow());
        }
    }
}

async fn sample_periodically(spawner: SpawnerClient, newest: Arc<Mutex<BTreeMap<AttemptRef, Measurement>>>) {
    let mut samples = spawner.samples();
    loop {
        tokio::time::sleep(INTERVAL).await;
        if !spawner.is_busy() {
            newest.lock().clear();
            continue;
        }
        samples.mark_unchanged();
        spawner.send(Command::Sample, Vec::new());
        match tokio::time::timeout(TIMEOUT, samples.changed()).await {
            Ok(Ok(())) => update(&mut newest.lock(), &samples.borrow()),
            Ok(Err(_)) => return,
            Err(_) => {}
        }
    }
}

fn update(newest: &mut BTreeMap<AttemptRef, Measurement>, samples: &[Sample]) {
    let at = Instant::now();
    let old = std::mem::take(newest);
    for sample in samples {
        let attempt_ref = attempt_of(sample.key);
        let cpu = Duration::from_micros(sample.cpu_us);
        let before = old.get(&attempt_ref).copied();
        let measured = match before {
            // Too close to the previous sample: keep that.
            Some(before) if at - before.at < SPAN_MIN => before,
            before => {
                let share = |before: Measurement| {
                    let spent = cpu.saturating_sub(before.usage.cpu).as_secs_f64();
                    100.0 * spent / (at - before.at).as_secs_f64()
                };
                let usage = CurrentUsage { cpu, cpu_percent: before.map(share), memory_bytes: sample.memory_bytes };
                Measurement { at, usage }
            }
        };
        newest.insert(attempt_ref, measured);
    }
}
