//! A node's monotonic clock: its own origin and its own speed.

use model::time::Millis;

#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    origin: u64,
    /// Parts per million by which the clock is fast.
    drift_ppm: i64,
}

impl Clock {
    pub fn new(origin: u64, drift_ppm: i64) -> Self {
        Self { origin, drift_ppm }
    }

    /// What the clock shows at the true time.
    pub fn read(&self, time: Millis) -> Millis {
        let elapsed = i128::from(time.0) * i128::from(1_000_000 + self.drift_ppm) / 1_000_000;
        Millis(self.origin + elapsed as u64)
    }

    /// The first true time at which the clock shows `reading`.
    pub fn time_of(&self, reading: Millis) -> Millis {
        let elapsed = i128::from(reading.0.saturating_sub(self.origin));
        let mut time = Millis((elapsed * 1_000_000 / i128::from(1_000_000 + self.drift_ppm)) as u64);
        while self.read(time) < reading {
            time.0 += 1;
        }
        time
    }
}
