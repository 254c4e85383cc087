//! What a server and its spawner say to each other.
//!
//! A spawner stays alive across an upgrade of its server, so both read each other's words one version back: fields are
//! numbered, unknown ones are passed over, and missing ones have a default.

use minicbor::{Decode, Encode};

/// The newest form of the protocol that this program speaks.
pub const VERSION: u32 = 1;
/// The oldest form that it still understands.
pub const OLDEST_VERSION: u32 = 1;

/// A job and one try at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Key {
    #[n(0)]
    pub job: u64,
    #[n(1)]
    pub attempt: u32,
}

/// How far an attempt is kept from its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(index_only)]
pub enum Profile {
    /// Everything of its own, also the network.
    #[n(0)]
    Strict,
    /// The same, in a network that attempts share and that leads nowhere.
    #[default]
    #[n(1)]
    Standard,
    /// A program with the server's own rights.
    #[n(2)]
    None,
}

/// What an attempt may use. Absent: as much as there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Bounds {
    /// Processor time of all its processes together.
    #[n(0)]
    pub cpu_ms: Option<u64>,
    #[n(1)]
    pub memory_bytes: Option<u64>,
    #[n(2)]
    pub processes: Option<u64>,
    #[n(3)]
    pub open_files: Option<u64>,
    /// What it may leave in its outputs.
    #[n(4)]
    pub output_bytes: Option<u64>,
    /// Of its output streams together, so much is kept of the beginning, and so much of the end.
    #[cbor(n(5), default)]
    pub log_head_bytes: u64,
    #[cbor(n(6), default)]
    pub log_tail_bytes: u64,
    /// The size of its private /tmp.
    #[n(7)]
    pub tmp_bytes: Option<u64>,
}

/// A program to be run. Two descriptors come along: the log file, and what the program reads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct Launch {
    #[n(0)]
    pub command: Vec<String>,
    #[n(1)]
    pub environment: Vec<(String, String)>,
    #[cbor(n(2), default)]
    pub profile: Profile,
    /// May reach what the host can reach.
    #[cbor(n(3), default)]
    pub network: bool,
    /// The name of its directory under the scratch directory, if it has one.
    #[n(4)]
    pub scratch: Option<String>,
    /// The name of its worker's directory under the directory of workers.
    #[n(5)]
    pub worker: Option<String>,
    #[cbor(n(6), default)]
    pub bounds: Bounds,
    /// The server's own, given back to whichever takes over.
    #[cbor(n(7), with = "minicbor::bytes", default)]
    pub note: Vec<u8>,
}

/// From a server to its spawner.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Order {
    /// The first word: who is there, and which version it speaks.
    #[n(0)]
    Hello {
        #[n(0)]
        version: u32,
    },
    /// Said again, it changes nothing.
    #[n(1)]
    Start {
        #[n(0)]
        key: Key,
        #[n(1)]
        launch: Box<Launch>,
    },
    #[n(2)]
    Stop {
        #[n(0)]
        key: Key,
        /// Between asking and making.
        #[n(1)]
        grace_ms: u32,
    },
    /// Its end is known and safe elsewhere.
    #[n(3)]
    Forget {
        #[n(0)]
        key: Key,
    },
    /// What do they use right now?
    #[n(4)]
    Sample,
    /// End everything, and yourself.
    #[n(5)]
    Quit,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Verdict {
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
    /// The program itself could not be started: it is not there, or is none.
    #[n(2)]
    NoProgram {
        #[n(0)]
        errno: i32,
    },
    /// It was not started, because this host cannot give what it asked for.
    #[n(3)]
    Refused {
        #[n(0)]
        why: String,
    },
    /// The host could not make its place.
    #[n(4)]
    NoPlace {
        #[n(0)]
        step: String,
        #[n(1)]
        errno: i32,
    },
    /// It went over one of its limits and was ended.
    #[n(5)]
    OverLimit {
        #[n(0)]
        limit: Limit,
    },
    /// What became of it is not known.
    #[n(6)]
    Lost {
        #[n(0)]
        why: String,
    },
}

/// A limit that ends an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Limit {
    #[n(0)]
    Cpu,
    #[n(1)]
    Memory,
    #[n(2)]
    Output,
    /// Not its own: the node's disk is almost full.
    #[n(3)]
    Disk,
}

/// Everything about an attempt's end.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Exit {
    #[n(0)]
    pub verdict: Verdict,
    /// It had been asked to stop.
    #[n(1)]
    pub stopped: bool,
    #[n(2)]
    pub cpu_us: u64,
    #[n(3)]
    pub memory_peak_bytes: u64,
    /// Milliseconds since 1970.
    #[n(4)]
    pub ended_at: u64,
    /// Why its output could not be kept, if it could not.
    #[n(5)]
    pub log_errno: Option<i32>,
}

/// What an attempt uses right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Sample {
    #[n(0)]
    pub key: Key,
    #[n(1)]
    pub cpu_us: u64,
    #[n(2)]
    pub memory_bytes: u64,
}

/// How a limit or a protection is kept on this host.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Kept {
    /// In full, and by what.
    #[n(0)]
    By {
        #[n(0)]
        means: String,
    },
    /// Not at all, and why.
    #[n(1)]
    Missing {
        #[n(0)]
        why: String,
    },
}

/// What this host's attempts are protected by.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct Protections {
    /// By name, in the order in which they are shown.
    #[n(0)]
    pub kept: Vec<(String, Kept)>,
}

impl Protections {
    pub fn get(&self, name: &str) -> Option<&Kept> {
        self.kept.iter().find(|(other, _)| other == name).map(|(_, kept)| kept)
    }
}

/// From a spawner to its server.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Word {
    /// The answer to `Hello`; what it holds follows, then `Ready`.
    #[n(0)]
    Welcome {
        #[n(0)]
        version: u32,
        #[n(1)]
        pid: u32,
        #[n(2)]
        protections: Protections,
    },
    /// An attempt of an earlier server, running or with its end.
    #[n(1)]
    Holding {
        #[n(0)]
        key: Key,
        #[n(1)]
        exit: Option<Exit>,
        #[cbor(n(2), with = "minicbor::bytes")]
        note: Vec<u8>,
    },
    #[n(2)]
    Ready,
    #[n(3)]
    Ended {
        #[n(0)]
        key: Key,
        #[n(1)]
        exit: Exit,
    },
    #[n(4)]
    Samples {
        #[n(0)]
        samples: Vec<Sample>,
    },
    /// It does not speak this version.
    #[n(5)]
    Mismatch {
        #[n(0)]
        newest: u32,
        #[n(1)]
        oldest: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        let launch = Launch { command: vec!["true".to_owned()], network: true, ..Launch::default() };
        let order = Order::Start { key: Key { job: 1, attempt: 2 }, launch: Box::new(launch) };
        assert_eq!(minicbor::decode::<Order>(&minicbor::to_vec(&order).unwrap()).unwrap(), order);
    }

    #[test]
    fn a_field_of_a_newer_version_is_passed_over_and_a_missing_one_has_its_default() {
        #[derive(Encode)]
        struct Older {
            #[n(0)]
            version: u32,
        }
        #[derive(Encode)]
        struct Newer {
            #[n(0)]
            key: Key,
            #[n(1)]
            cpu_us: u64,
            #[n(2)]
            memory_bytes: u64,
            #[n(3)]
            unheard_of: Option<String>,
        }
        let bounds: Bounds = minicbor::decode(&minicbor::to_vec(Older { version: 5 }).unwrap()).unwrap();
        assert_eq!(bounds, Bounds { cpu_ms: Some(5), ..Bounds::default() });
        let key = Key { job: 1, attempt: 2 };
        let newer = Newer { key, cpu_us: 3, memory_bytes: 4, unheard_of: Some("x".to_owned()) };
        let sample: Sample = minicbor::decode(&minicbor::to_vec(newer).unwrap()).unwrap();
        assert_eq!(sample, Sample { key, cpu_us: 3, memory_bytes: 4 });
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_as_a_word_end_without_a_panic(bytes: Vec<u8>) {
            let _ = minicbor::decode::<Order>(&bytes);
            let _ = minicbor::decode::<Word>(&bytes);
        }
    }
}
