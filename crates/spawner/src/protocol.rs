//! Messages between a server and its spawner.
//!
//! A spawner survives an upgrade of its server, so each side reads the other's messages one version back: fields are
//! numbered, unknown fields are ignored, and missing fields have a default.

use minicbor::{Decode, Encode};

/// Newest protocol version this program supports.
pub const VERSION: u32 = 4;
/// First version with [`Event::Started`].
pub const STARTED_VERSION: u32 = 2;
/// First version with [`Command::HoldTether`].
pub const TETHER_VERSION: u32 = 3;
/// First version with leases: [`Launch::lease_until`] and [`Command::Renew`].
pub const LEASE_VERSION: u32 = 4;
/// Oldest protocol version this program supports.
pub const OLDEST_VERSION: u32 = 1;

/// Job and attempt number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct AttemptKey {
    #[n(0)]
    pub job: u64,
    #[n(1)]
    pub attempt: u32,
}

/// Isolation of an attempt from its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(index_only)]
pub enum Profile {
    /// Own namespaces, including a network namespace of its own.
    #[n(0)]
    Strict,
    /// As `Strict`, but attempts share one network namespace without any connection to the outside.
    #[default]
    #[n(1)]
    Standard,
    /// No sandbox: the program has the server's own privileges.
    #[n(2)]
    None,
}

/// Resource limits of an attempt. Absent: unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Bounds {
    /// Sum of the CPU time of all its processes.
    #[n(0)]
    pub cpu_ms: Option<u64>,
    #[n(1)]
    pub memory_bytes: Option<u64>,
    #[n(2)]
    pub processes: Option<u64>,
    #[n(3)]
    pub open_files: Option<u64>,
    /// Total size of its `outputs/` directory.
    #[n(4)]
    pub output_bytes: Option<u64>,
    /// Bytes of its log file from the beginning of its output; stdout and stderr together, with the chunks' headers.
    #[cbor(n(5), default)]
    pub log_head_bytes: u64,
    /// The same from the end of its output.
    #[cbor(n(6), default)]
    pub log_tail_bytes: u64,
    /// Size of its private /tmp.
    #[n(7)]
    pub tmp_bytes: Option<u64>,
}

/// Program to run. Two descriptors accompany it: the log file and standard input.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct Launch {
    #[n(0)]
    pub command: Vec<String>,
    #[n(1)]
    pub environment: Vec<(String, String)>,
    #[cbor(n(2), default)]
    pub profile: Profile,
    /// Access to the host's network.
    #[cbor(n(3), default)]
    pub network: bool,
    /// Name of its directory under the scratch directory, if any.
    #[n(4)]
    pub scratch: Option<String>,
    /// Name of its worker's directory under the workers directory.
    #[n(5)]
    pub worker: Option<String>,
    #[cbor(n(6), default)]
    pub bounds: Bounds,
    /// Opaque data of the server, returned to the next server.
    #[cbor(n(7), with = "minicbor::bytes", default)]
    pub note: Vec<u8>,
    /// The attempt is killed at this time of [`crate::steady_clock`], with or without a server. Since version 4.
    #[n(8)]
    pub lease_until: Option<u64>,
}

/// Message from a server to its spawner.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Command {
    /// First message of a server, with its protocol version.
    #[n(0)]
    Hello {
        #[n(0)]
        version: u32,
    },
    /// Idempotent.
    #[n(1)]
    Start {
        #[n(0)]
        key: AttemptKey,
        #[n(1)]
        launch: Box<Launch>,
    },
    #[n(2)]
    Stop {
        #[n(0)]
        key: AttemptKey,
        /// Time between SIGTERM and SIGKILL.
        #[n(1)]
        grace_ms: u32,
    },
    /// Drops the record of an ended attempt: its outcome is committed.
    #[n(3)]
    Forget {
        #[n(0)]
        key: AttemptKey,
    },
    /// Requests the current resource usage of all attempts.
    #[n(4)]
    Sample,
    /// Stops all attempts and the spawner.
    #[n(5)]
    Quit,
    /// Keeps a tether open as long as the spawner lives. One descriptor accompanies it: the connection. Since version 3.
    #[n(6)]
    HoldTether,
    /// Moves the time at which an attempt with a lease is killed. It is never moved back. Since version 4.
    #[n(7)]
    Renew {
        #[n(0)]
        key: AttemptKey,
        #[n(1)]
        lease_until: u64,
    },
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum ExitStatus {
    #[n(0)]
    Exited {
        #[n(0)]
        code: i32,
    },
    #[n(1)]
    Signalled {
        #[n(0)]
        signal: i32,
    },
    /// The program does not exist or is not executable.
    #[n(2)]
    ExecFailed {
        #[n(0)]
        errno: i32,
    },
    /// Not started: this host cannot enforce what the attempt requires.
    #[n(3)]
    Refused {
        #[n(0)]
        reason: String,
    },
    /// Setting up the sandbox or the process failed.
    #[n(4)]
    SetupFailed {
        #[n(0)]
        step: String,
        #[n(1)]
        errno: i32,
    },
    /// Killed for exceeding a limit.
    #[n(5)]
    OverLimit {
        #[n(0)]
        limit: Limit,
    },
    /// Outcome unknown.
    #[n(6)]
    Lost {
        #[n(0)]
        reason: String,
    },
}

/// Limit whose violation ends an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Limit {
    #[n(0)]
    Cpu,
    #[n(1)]
    Memory,
    #[n(2)]
    Output,
    /// Not a limit of the attempt: the node's disk is almost full.
    #[n(3)]
    Disk,
}

/// End of an attempt with its resource usage.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Exit {
    #[n(0)]
    pub status: ExitStatus,
    /// A stop was requested before the end.
    #[n(1)]
    pub stopped: bool,
    #[n(2)]
    pub cpu_us: u64,
    #[n(3)]
    pub memory_peak_bytes: u64,
    /// Milliseconds since 1970.
    #[n(4)]
    pub ended_at: u64,
    /// Error of writing its log, if any.
    #[n(5)]
    pub log_errno: Option<i32>,
    /// Killed, or not started, because its lease had run out. Absent before version 4.
    #[cbor(n(6), default)]
    pub lease_expired: bool,
}

impl Exit {
    /// An end without a program's own exit.
    pub fn without_usage(status: ExitStatus, ended_at: u64) -> Self {
        Self {
            status,
            stopped: false,
            cpu_us: 0,
            memory_peak_bytes: 0,
            ended_at,
            log_errno: None,
            lease_expired: false,
        }
    }
}

/// Current resource usage of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Sample {
    #[n(0)]
    pub key: AttemptKey,
    #[n(1)]
    pub cpu_us: u64,
    #[n(2)]
    pub memory_bytes: u64,
}

/// Enforcement of a limit or protection on this host.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Enforcement {
    #[n(0)]
    Active {
        #[n(0)]
        mechanism: String,
    },
    #[n(1)]
    Missing {
        #[n(0)]
        reason: String,
    },
}

/// Protections of this host's attempts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct Protections {
    /// By name, in display order.
    #[n(0)]
    pub entries: Vec<(String, Enforcement)>,
}

impl Protections {
    pub fn get(&self, name: &str) -> Option<&Enforcement> {
        self.entries.iter().find(|(other, _)| other == name).map(|(_, enforcement)| enforcement)
    }
}

/// Message from a spawner to its server.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Event {
    /// Answer to `Hello`; the attempts in flight follow, then `Ready`.
    #[n(0)]
    Welcome {
        #[n(0)]
        version: u32,
        #[n(1)]
        pid: u32,
        #[n(2)]
        protections: Protections,
    },
    /// Attempt of an earlier server, running or ended.
    #[n(1)]
    InFlight {
        #[n(0)]
        key: AttemptKey,
        #[n(1)]
        exit: Option<Exit>,
        #[cbor(n(2), with = "minicbor::bytes")]
        note: Vec<u8>,
        /// Its program was started. Absent before version 2.
        #[cbor(n(3), default)]
        started: bool,
        /// When its lease runs out. Absent before version 4.
        #[n(4)]
        lease_until: Option<u64>,
    },
    #[n(2)]
    Ready,
    #[n(3)]
    Ended {
        #[n(0)]
        key: AttemptKey,
        #[n(1)]
        exit: Exit,
    },
    #[n(4)]
    Samples {
        #[n(0)]
        samples: Vec<Sample>,
    },
    /// The server's protocol version is not supported.
    #[n(5)]
    Mismatch {
        #[n(0)]
        newest: u32,
        #[n(1)]
        oldest: u32,
    },
    /// The program of an attempt was started. Since version 2.
    #[n(6)]
    Started {
        #[n(0)]
        key: AttemptKey,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_decodes_to_what_was_encoded() {
        let launch = Launch { command: vec!["true".to_owned()], network: true, ..Launch::default() };
        let command = Command::Start { key: AttemptKey { job: 1, attempt: 2 }, launch: Box::new(launch) };
        assert_eq!(minicbor::decode::<Command>(&minicbor::to_vec(&command).unwrap()).unwrap(), command);
    }

    #[test]
    fn an_unknown_field_is_ignored_and_a_missing_field_has_its_default() {
        #[derive(Encode)]
        struct Older {
            #[n(0)]
            version: u32,
        }
        #[derive(Encode)]
        struct Newer {
            #[n(0)]
            key: AttemptKey,
            #[n(1)]
            cpu_us: u64,
            #[n(2)]
            memory_bytes: u64,
            #[n(3)]
            added_later: Option<String>,
        }
        let bounds: Bounds = minicbor::decode(&minicbor::to_vec(Older { version: 5 }).unwrap()).unwrap();
        assert_eq!(bounds, Bounds { cpu_ms: Some(5), ..Bounds::default() });
        let key = AttemptKey { job: 1, attempt: 2 };
        let newer = Newer { key, cpu_us: 3, memory_bytes: 4, added_later: Some("x".to_owned()) };
        let sample: Sample = minicbor::decode(&minicbor::to_vec(newer).unwrap()).unwrap();
        assert_eq!(sample, Sample { key, cpu_us: 3, memory_bytes: 4 });
    }

    proptest::proptest! {
        #[test]
        fn decoding_arbitrary_bytes_does_not_panic(bytes: Vec<u8>) {
            let _ = minicbor::decode::<Command>(&bytes);
            let _ = minicbor::decode::<Event>(&bytes);
        }
    }
}
