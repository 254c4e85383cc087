//! Connection settings and limits of the client.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::breaker::Settings;
use crate::clock::{Clock, SystemClock};
use crate::error::Error;
use crate::limits;

/// [`Options::new`] sets all fields but the address to their defaults.
#[derive(Debug, Clone)]
pub struct Options {
    /// `host:port`, `http://host:port` or `https://host:port`. Without a scheme: https if `tls` is set.
    pub address: String,

    /// Time limit of one call, from connecting to the answer. 1 ms to 10 minutes. Before that, a call waits for
    /// admission for at most the same time.
    pub timeout: Duration,

    pub tls: Option<Tls>,

    /// Refuses connections without TLS.
    pub require_tls: bool,

    /// Concurrent calls. At least 1.
    pub in_flight_max: usize,

    /// Calls that may wait for admission; more are rejected.
    pub waiting_max: usize,

    /// The largest job, in JSON, that is sent to the policy service. A larger one is denied unchecked. With a larger
    /// limit the service must accept messages of that size.
    pub job_bytes_max: usize,

    /// Settings of both breakers: one for checks of jobs, one for checks of results.
    pub breaker: Settings,

    /// Clock of the breakers.
    pub clock: Arc<dyn Clock>,
}

/// TLS settings of the connection.
#[derive(Debug, Clone)]
pub struct Tls {
    /// PEM file with the trusted CAs. No others are trusted.
    pub ca: PathBuf,
    /// Host name in the server certificate. Default: the host of the address.
    pub domain: Option<String>,
    /// Client certificate, for services that require one.
    pub identity: Option<Identity>,
}

/// PEM files of a certificate and its key.
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
        // A tokio semaphore panics above `usize::MAX / 8` permits.
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
    fn by_default_a_call_may_take_two_seconds_and_256_may_be_in_flight() {
        let options = Options::new("policy:7080");
        assert_eq!(options.timeout, Duration::from_secs(2));
        assert_eq!(options.in_flight_max, 256);
        assert_eq!(options.breaker, Settings::default());
        assert!(options.check().is_ok());
    }

    #[test]
    fn options_at_their_bounds_are_accepted_and_those_beyond_are_rejected() {
        let with = |timeout, in_flight_max| Options { timeout, in_flight_max, ..Options::new("policy:7080") }.check();
        let second = Duration::from_secs(1);
        assert!(with(Duration::from_millis(1), 1).is_ok());
        assert!(with(limits::TIMEOUT_MAX, limits::IN_FLIGHT_MAX_MAX).is_ok());
        assert!(with(Duration::from_micros(999), 1).is_err());
        assert!(with(limits::TIMEOUT_MAX + Duration::from_nanos(1), 1).is_err());
        assert!(with(second, 0).is_err());
        assert!(with(second, limits::IN_FLIGHT_MAX_MAX + 1).is_err());
    }
}
