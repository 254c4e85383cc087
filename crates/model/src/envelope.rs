//! What a control node and a runner node send each other over their stream: messages of shards and runners, and reports
//! about the node.
//!
//! Fields are numbered, so that nodes of neighbouring versions understand each other. An envelope of an unknown kind is
//! counted and skipped.

use std::collections::BTreeMap;

use minicbor::{Decode, Encode};

use crate::id::{ShardId, Shards};
use crate::message::{AttemptRef, Capacity, Load, Profile, RunnerFrame, ToRunner};
use crate::time::Millis;

/// From a runner node to its control node.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum FromNode {
    #[n(0)]
    Frame {
        #[n(0)]
        shard: ShardId,
        #[n(1)]
        frame: RunnerFrame,
    },
    /// Sent when the load has changed, at most every second.
    #[n(1)]
    Load {
        #[n(0)]
        load: Load,
    },
    /// Progress that a running program has printed.
    #[n(2)]
    Progress {
        #[n(0)]
        attempt_ref: AttemptRef,
        #[n(1)]
        percent: u8,
        #[n(2)]
        message: Option<String>,
    },
    /// Sent after connecting and when it has changed.
    #[n(3)]
    Report(#[n(0)] Box<NodeReport>),
    /// Current usage of the running processes.
    #[n(4)]
    Usage(#[n(0)] Vec<AttemptUsage>),
    /// The node stops. Its processes go on without it if `keeps_processes`, and its next start adopts them.
    #[n(5)]
    Leaving {
        #[n(0)]
        keeps_processes: bool,
    },
}

/// From a control node to a runner node.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum ToNode {
    /// The first envelope of every stream.
    #[n(0)]
    Welcome(#[n(0)] Welcome),
    #[n(1)]
    Messages {
        #[n(0)]
        shard: ShardId,
        #[n(1)]
        messages: Vec<ToRunner>,
    },
    /// The tether of the node ended although its link is open: it opens another one.
    #[n(2)]
    OpenTether,
}

/// What a runner node needs to know of its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Welcome {
    /// Number of shards of the cluster.
    #[n(0)]
    pub shards: u16,
}

impl Welcome {
    pub fn new(shards: Shards) -> Self {
        Self { shards: shards.count() }
    }

    /// Absent if the number is not valid.
    pub fn shards(&self) -> Option<Shards> {
        Shards::new(self.shards)
    }
}

/// What a node is and has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct NodeReport {
    /// For people; not unique.
    #[n(0)]
    pub name: String,
    #[n(1)]
    pub version: String,
    /// Slots of the whole node.
    #[n(2)]
    pub capacity: Capacity,
    #[n(3)]
    pub profile: Profile,
    #[n(4)]
    pub cores: u32,
    #[n(5)]
    pub memory_bytes: u64,
    #[n(6)]
    pub memory_available_bytes: Option<u64>,
    /// Of the file system with its data directory.
    #[n(7)]
    pub disk_bytes: u64,
    #[n(8)]
    pub disk_available_bytes: u64,
    /// Number of GPUs by model.
    #[cbor(n(9), default)]
    pub gpus: BTreeMap<String, u32>,
    #[cbor(n(10), default)]
    pub protections: Vec<ReportedProtection>,
    /// Why it takes no new work at present, in its own judgement.
    #[n(11)]
    pub refuses_work: Option<String>,
}

/// A sandbox mechanism or limit of a node.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReportedProtection {
    #[n(0)]
    pub name: String,
    #[n(1)]
    pub in_force: bool,
    /// The mechanism in use, or the reason why there is none.
    #[n(2)]
    pub how: String,
}

/// Current usage of a running process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct AttemptUsage {
    #[n(0)]
    pub attempt_ref: AttemptRef,
    #[n(1)]
    pub cpu: Millis,
    /// Share of one CPU since the sample before, in tenths of a per cent.
    #[n(2)]
    pub cpu_per_mille: Option<u32>,
    #[n(3)]
    pub memory_bytes: u64,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::codec;
    use crate::id::{Attempt, Epoch, Incarnation, JobId, RunnerId};
    use crate::job::{End, Outcome};
    use crate::json::Json;
    use crate::message::{FromRunner, ReportedAttempt, RunnerHeader, RunnerMessage, Session, ShardMessage};
    use crate::verdict::Constraints;

    const SESSION: Session = Session { epoch: Epoch(3), number: 7 };

    fn attempt_ref() -> AttemptRef {
        AttemptRef { job: JobId(42), attempt: Attempt(2) }
    }

    fn check_to(envelope: &ToNode) {
        assert_eq!(codec::decode::<ToNode>(&codec::encode(envelope)).as_ref(), Ok(envelope));
    }

    fn check_from(envelope: &FromNode) {
        assert_eq!(codec::decode::<FromNode>(&codec::encode(envelope)).as_ref(), Ok(envelope));
    }

    #[test]
    fn messages_to_a_runner_survive_the_network() {
        let run = ShardMessage::Run {
            attempt_ref: attempt_ref(),
            valid_for: Millis(45_000),
            spec: Bytes::from_static(b"spec"),
            constraints: Some(Box::new(Constraints { max_retries: Some(3), ..Constraints::default() })),
            lease: Some(Millis(15_000)),
        };
        let stop = ShardMessage::Stop { attempt_ref: attempt_ref() };
        let messages = [run, stop, ShardMessage::Inventory { request: 9 }].map(|message| ToRunner::Message {
            session: SESSION,
            sequence: 5,
            heard: Millis(8),
            message,
        });
        let mut messages = Vec::from(messages);
        messages.push(ToRunner::Committed { session: SESSION, sequence: 4 });
        messages.push(ToRunner::Renewed { session: SESSION, heard: Millis(9) });
        check_to(&ToNode::Messages { shard: ShardId(1), messages });
        check_to(&ToNode::Welcome(Welcome { shards: 16 }));
        check_to(&ToNode::OpenTether);
    }

    #[test]
    fn messages_of_a_runner_survive_the_network() {
        let profile = Profile {
            pools: ["gpu".to_owned()].into(),
            capabilities: ["cuda".to_owned()].into(),
            labels: [("zone".to_owned(), "z1".to_owned())].into(),
            keeps_leases: true,
        };
        let register = RunnerMessage::Register {
            capacity: Capacity { process: 4, echo: 100, wasm: 8 },
            profile: Arc::new(profile),
            in_flight: vec![ReportedAttempt { attempt_ref: attempt_ref(), running_for: Some(Millis(7)) }],
            request: 3,
            oldest_kept: 1,
        };
        let outcome = Outcome { result: Some(Json::of(&"text")), exit_code: Some(0), ..Outcome::of(End::Succeeded) };
        let ended = RunnerMessage::Ended { attempt_ref: attempt_ref(), outcome: Box::new(outcome) };
        let accepted = RunnerMessage::Accepted { attempt_ref: attempt_ref() };
        let started = RunnerMessage::Started { attempt_ref: attempt_ref(), at: Millis(1) };
        let (runner, incarnation) = (RunnerId(6), Incarnation(2));
        let messages = [register, accepted, started, ended];
        let messages = messages.map(|message| FromRunner { runner, incarnation, sequence: 11, message });
        let header = RunnerHeader { runner, incarnation, session: SESSION, received: 4, at: Millis(99) };
        check_from(&FromNode::Frame { shard: ShardId(0), frame: RunnerFrame { header, messages: messages.into() } });
    }

    #[test]
    fn reports_survive_the_network() {
        let protection = ReportedProtection { name: "seccomp".to_owned(), in_force: true, how: "filter".to_owned() };
        let report = NodeReport {
            name: "build-7".to_owned(),
            gpus: [("A100".to_owned(), 8)].into(),
            protections: vec![protection],
            refuses_work: Some("the disk is full".to_owned()),
            ..NodeReport::default()
        };
        let usage = AttemptUsage {
            attempt_ref: attempt_ref(),
            cpu: Millis(5),
            cpu_per_mille: Some(500),
            memory_bytes: 1 << 20,
        };
        for envelope in [
            FromNode::Report(Box::new(report)),
            FromNode::Usage(vec![usage]),
            FromNode::Load { load: Load { cpu_percent: 3, gpu_percent: 0 } },
            FromNode::Progress { attempt_ref: attempt_ref(), percent: 40, message: Some("compiling".to_owned()) },
            FromNode::Leaving { keeps_processes: true },
        ] {
            check_from(&envelope);
        }
    }

    proptest::proptest! {
        #[test]
        fn decoding_any_bytes_as_an_envelope_does_not_panic(bytes: Vec<u8>) {
            let _ = codec::decode::<FromNode>(&bytes);
            let _ = codec::decode::<ToNode>(&bytes);
        }
    }
}
