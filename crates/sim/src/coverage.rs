//! Coverage counters: faults, state transitions and other events of runs.

use std::collections::BTreeMap;

use model::state::State;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// Injected faults.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $($(#[$doc])* $name,)*
        }

        impl Fault {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

faults! {
    MessageLost = "message lost";
    MessageDuplicated = "message duplicated";
    MessageSlow = "message delayed";
    FrameSplit = "messages of a frame delivered one by one";
    RequestLost = "request lost";
    ReplyLost = "reply lost";
    RequestResent = "request sent again";
    CommitRefused = "commit refused";
    CommitLandsButErrors = "commit landed, error returned";
    CommitTornLanded = "commit torn, landed";
    CommitTornLost = "commit torn, lost";
    CommitLate = "commit given up, still under way";
    LateCommitLanded = "late commit landed";
    LateCommitRefused = "late commit refused";
    StoreFailedOver = "store failed over";
    CommitLost = "acknowledged commit lost by a failover";
    CommitLostBeforeEffects = "commit lost before its effects";
    CommitsLostWithCrash = "commits lost together with a crash";
    EarlierOwnerRefused = "owner from before a failover refused";
    ReadFailed = "read failed";
    RehydrationFailed = "rehydration failed";
    SpillFailed = "large result could not be stored";
    StaleReply = "reply to an earlier owner dropped";
    CrashBeforeCommit = "crash before commit";
    CrashAfterCommit = "crash after commit";
    CrashDuringEffects = "crash during effects";
    ShardTakenOver = "shard taken over from a live owner";
    StaleCommitRefused = "stale commit refused";
    StaleAnswerPrevented = "superseded owner kept from answering";
    RunnerCrashed = "runner crashed";
    SpawnerSurvived = "attempts survived the crash of their runner";
    SpawnerDied = "attempts died with their runner";
    EndedUnattended = "attempt ended while its runner was down";
    CapacityChanged = "capacity of a runner changed";
    RunnerPartitioned = "runner partitioned";
    RunnerCutOneWay = "runner and shards cut in one direction";
    ShardsCut = "shards cut from each other";
    MessageCut = "message lost on a cut link";
    RunnerDeclaredLost = "runner declared lost";
    RunnerWorkedOn = "partitioned runner ended an attempt declared lost";
    LeaseExpired = "lease of an exclusive attempt ran out";
    LeaseExpiredUnattended = "lease of an exclusive attempt ran out while its runner was down";
    RunnerBusy = "runner busy";
    RunnerHung = "attempt hung";
    ClockForward = "clock jumped forward";
    ClockBackward = "clock jumped backward";
    PolicyAnswerLost = "policy answer lost";
    PolicyAnswerDuplicated = "policy answer duplicated";
    PolicyAnswerOfWrongVersion = "policy answer of another version than the one in force";
    PolicyChanged = "policy changed";
    PolicyCameBack = "earlier policy version restored";
    PolicySwitchedOff = "policy switched off";
    PolicyOutage = "policy outage";
    PolicyUnavailable = "policy unavailable";
    PolicyFailedOpen = "job allowed while the policy was unavailable";
    OldDecisionAttached = "submit with a decision of an old policy version";
    RunnerCordoned = "runner cordoned";
    RunnerDrained = "attempts of a runner taken back";
    RunnerAbandoned = "attempts of a runner abandoned";
    OutputRulesChanged = "output rules changed";
    ApprovalOfOtherContent = "approval of other content";
    ApprovalOfOtherRule = "approval for another rule";
    ApprovalTwice = "approval sent twice";
    ApprovalTooLate = "approval after its expiry";
    ScanUnanswered = "scan never answered";
    ScanSlow = "scan answered late";
    ScanFailed = "scan failed";
    ScanUnrequested = "scan without a request";
    SignatureLost = "signature of an audit checkpoint lost";
    PacketLost = "packet of the membership lost";
    PacketDuplicated = "packet of the membership duplicated";
    PacketReordered = "packet of the membership overtaken";
    StreamStalled = "stream stalled by loss";
    StreamReset = "stream reset";
    ServerRestarted = "server process of a node restarted";
    NodeKilled = "all processes of a node killed";
    NodePowerLost = "machine of a node lost power";
    NodePaused = "server process of a node paused";
    NodeLeft = "node left";
    NodesFailedTogether = "many nodes failed at once";
    NodesPartitioned = "nodes partitioned from the others";
    NodeCutOneWay = "node cut off in one direction";
    NodePairsCut = "pairs of nodes cut from each other";
    ControlRestarted = "control node restarted";
    ControlPaused = "control node paused";
    SignatureDuplicated = "signature of an audit checkpoint duplicated";
}

/// Other events that must occur for the invariants to be exercised.
const REQUIRED: &[&str] = &[
    "verdicts of a policy version not in force",
    "settings overtaken by newer ones",
    "attempts started under a policy",
    "attempts started after a policy change",
    "attempts started with an approval",
    "attempts started with an approval from an earlier policy",
    "attempts started with constraints",
    "jobs rechecked by the policy",
    "decisions attached to a submit",
    "metadata decisions on results",
    "refused: other rule",
    "refused: other content",
    "refused: approval expired",
    "refused: already decided",
    "failed_open",
    "throttled",
    "approved",
    "rejected",
    "approval_expired",
    "output_allowed",
    "output_quarantined",
    "output_denied",
    "output_redacted",
    "output_unchecked",
    "released",
    "cancelled",
    "retracted",
    "retried",
    "removed",
    "letter_purged",
    "original_read",
    "policy_changed",
    "workflows started",
    "sub-workflows started",
    "workflows started by schedules",
    "workflows succeeded",
    "workflows failed",
    "workflows cancelled",
    "workflows paused",
    "workflows rerun",
    "workflows timed out",
    "workflows continued in a later step",
    "complete rollbacks",
    "partial rollbacks",
    "rollbacks completed by a retry",
    "compensations done",
    "compensations failed",
    "tasks sleeping",
    "tasks listening",
    "tasks merged",
    "tasks skipped",
    "tasks cancelled",
    "items ended",
    "switches decided",
    "epochs reached",
    "signals delivered at once",
    "signals stored",
    "results quarantined late",
    "results redacted late",
    "results released late",
    "crashes while workflows run",
    "crashes while items start",
    "crashes while workflows stop",
    "crashes while workflows roll back",
    "schedule slots skipped",
    "template errors",
    "answered: workflow exists",
    "answered: workflow removed",
    "answered: progressed",
    "jobs read",
    "lost jobs submitted again",
    "attempts whose dispatch was lost started again",
    "jobs read: unknown",
    "lists read",
    "jobs that ended or were retried while listed",
    "large results stored",
    "runs with 16 shards and 32 runners",
    "workflow_cancelled",
    "workflow_resumed",
    "workflow_rerun",
    "schedule_paused",
    "schedule_resumed",
    "schedule_triggered",
    "audit_shortened",
    "audit log shortened again",
    "exclusive attempts started after another",
    "audit checkpoints rehydrated",
    "runners disconnected",
    "dead nodes found within the bound",
    "nodes that returned after they were lost",
    "networks that lose 30 % of the packets",
    "late results of attempts given elsewhere",
];

/// Counters of one or more runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    faults: BTreeMap<Fault, u64>,
    /// Committed pairs of states.
    transitions: BTreeMap<(Option<State>, State), u64>,
    /// Other counters.
    other: BTreeMap<&'static str, u64>,
}

impl Coverage {
    pub fn count_fault(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    pub fn count_faults(&mut self, fault: Fault, number: u64) {
        if number > 0 {
            *self.faults.entry(fault).or_default() += number;
        }
    }

    pub fn count_transition(&mut self, from: Option<State>, to: State) {
        *self.transitions.entry((from, to)).or_default() += 1;
    }

    pub fn count(&mut self, what: &'static str) {
        self.add(what, 1);
    }

    pub fn add(&mut self, what: &'static str, count: u64) {
        *self.other.entry(what).or_default() += count;
    }

    pub fn merge(&mut self, other: &Self) {
        for (fault, count) in &other.faults {
            *self.faults.entry(*fault).or_default() += count;
        }
        for (pair, count) in &other.transitions {
            *self.transitions.entry(*pair).or_default() += count;
        }
        for (what, count) in &other.other {
            self.add(what, *count);
        }
    }

    pub fn times(&self, fault: Fault) -> u64 {
        self.faults.get(&fault).copied().unwrap_or(0)
    }

    pub fn entered(&self, state: State) -> u64 {
        self.transitions.iter().filter(|((_, to), _)| *to == state).map(|(_, count)| count).sum()
    }

    pub fn counted(&self, what: &str) -> u64 {
        self.other.get(what).copied().unwrap_or(0)
    }

    /// Faults, states and required events that never occurred.
    pub fn missing(&self) -> Vec<String> {
        let faults = Fault::ALL.iter().filter(|fault| self.times(**fault) == 0).map(|fault| fault.as_str().to_owned());
        let states = State::ALL.into_iter().filter(|state| self.entered(*state) == 0);
        let other = REQUIRED.iter().filter(|what| self.counted(what) == 0).map(|what| (*what).to_owned());
        faults.chain(states.map(|state| format!("a job in state {state}"))).chain(other).collect()
    }

    /// One line per counter.
    pub fn lines(&self) -> Vec<String> {
        let faults = Fault::ALL.iter().map(|fault| format!("{:>9}  {}", self.times(*fault), fault.as_str()));
        let transitions = self.transitions.iter().map(|((from, to), count)| {
            let from = from.map_or("(new)", State::as_str);
            format!("{count:>9}  {from} → {to}")
        });
        let other = self.other.iter().map(|(what, count)| format!("{count:>9}  {what}"));
        faults.chain(transitions).chain(other).collect()
    }
}
