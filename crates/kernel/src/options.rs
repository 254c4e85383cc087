//! Where the kernel is, and how much it is trusted with.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::breaker::Settings;
use crate::clock::{Clock, SystemClock};
use crate::error::Error;
use crate::limits;

/// Made by [`Options::new`]; every other field has a sensible default.
#[derive(Debug, Clone)]
pub struct Options {
    /// `host:port`, `http://host:port` or `https://host:port`. Without a scheme, it is https if `tls` is there.
    pub address: String,

    /// How long one call may take, from the connection to the answer. 1 ms to 10 minutes. A call that has to wait in
    /// line does so for at most the same time before that.
    pub timeout: Duration,

    pub tls: Option<Tls>,

    /// Refuses to talk without TLS.
    pub require_tls: bool,

    /// How many calls the kernel is given at once. At least 1.
    pub in_flight_max: usize,

    /// How many more may wait in line; those beyond are turned away.
    pub waiting_max: usize,

    /// The largest job in JSON that the kernel is asked about. A larger one is denied: nobody has looked at it. A
    /// kernel that is to see more must take messages of that size.
    pub job_bytes_max: usize,

    /// The checks of jobs and those of results have a breaker each, both with these settings.
    pub breaker: Settings,

    /// The time that the breakers go by.
    pub clock: Arc<dyn Clock>,
}

/// TLS to the kernel.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The file with the certificates, in PEM, of those who may vouch for the kernel. No others are trusted.
    pub ca: PathBuf,
    /// The name in the kernel's certificate; the host of the address if not said.
    pub domain: Option<String>,
    /// What this side shows the kernel, where it asks.
    pub identity: Option<Identity>,
}

/// A certificate and its key, in PEM.
#[derive(Debug, Clone)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Options {
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            timeout: limits::TIMEOUT_DEFAULT,
            tls: None,
            require_tls: false,
            in_flight_max: limits::IN_FLIGHT_MAX_DEFAULT,
            waiting_max: limits::WAITING_MAX_DEFAULT,
            job_bytes_max: limits::JOB_BYTES_MAX_DEFAULT,
            breaker: Settings::default(),
            clock: Arc::new(SystemClock::default()),
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.timeout < Duration::from_millis(1) || self.timeout > limits::TIMEOUT_MAX {
            return Err(Error::OutOfBounds { name: "timeout", bounds: "between 1 ms and 10 minutes" });
        }
        // A semaphore takes no more than an eighth of all numbers; nobody has so many connections.
        if self.in_flight_max == 0 || self.in_flight_max > limits::IN_FLIGHT_MAX_MAX {
            return Err(Error::OutOfBounds { name: "in_flight_max", bounds: "between 1 and 65,536" });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // FEATURES: D9
    #[test]
    fn a_call_may_take_two_seconds_and_256_may_be_under_way_unless_told_otherwise() {
        let options = Options::new("kernel:7080");
        assert_eq!(options.timeout, Duration::from_secs(2));
        assert_eq!(options.in_flight_max, 256);
        assert_eq!(options.breaker, Settings::default());
        assert!(options.check().is_ok());
    }

    #[test]
    fn options_at_their_bounds_are_taken_and_those_beyond_are_not() {
        let with = |timeout, in_flight_max| Options { timeout, in_flight_max, ..Options::new("kernel:7080") }.check();
        let second = Duration::from_secs(1);
        assert!(with(Duration::from_millis(1), 1).is_ok());
        assert!(with(limits::TIMEOUT_MAX, limits::IN_FLIGHT_MAX_MAX).is_ok());
        assert!(with(Duration::from_micros(999), 1).is_err());
        assert!(with(limits::TIMEOUT_MAX + Duration::from_nanos(1), 1).is_err());
        assert!(with(second, 0).is_err());
        assert!(with(second, limits::IN_FLIGHT_MAX_MAX + 1).is_err());
    }
}
