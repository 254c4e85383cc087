//! How often what happened: a simulation in which nothing goes wrong proves nothing.

use std::collections::BTreeMap;

use model::state::State;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// Everything that is made to go wrong.
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
    MessageSlow = "message overtaken";
    RequestLost = "request lost";
    ReplyLost = "reply lost";
    RequestResent = "request sent again";
    CommitRefused = "commit refused";
    CommitLandsButErrors = "commit lands but errors";
    CommitTornLanded = "commit torn, landed";
    CommitTornLost = "commit torn, lost";
    CrashBeforeCommit = "crash before commit";
    CrashAfterCommit = "crash after commit";
    CrashDuringEffects = "crash between effects";
    ShardTakenOver = "shard taken over from a live owner";
    StaleCommitRefused = "stale commit refused";
    RunnerCrashed = "runner crashed";
    SpawnerSurvived = "attempts outlived a runner's crash";
    SpawnerDied = "attempts died with their runner";
    EndedUnattended = "attempt ended while its runner was down";
    RoomChanged = "runner's room changed";
    RunnerCutOff = "runner cut off";
    RunnerDeclaredLost = "runner declared lost";
    RunnerWorkedOn = "cut-off runner ended work declared lost";
    RunnerBusy = "runner busy";
    RunnerHung = "attempt hung";
    ClockForward = "clock jumped forward";
    ClockBackward = "clock jumped backward";
    PolicyAnswerLost = "policy answer lost";
    PolicyAnswerDuplicated = "policy answer duplicated";
    PolicyAnswerOfOtherRules = "policy answer of other rules than those in force";
    PolicyChanged = "policy changed";
    PolicyCameBack = "earlier policy came back";
    PolicySwitchedOff = "policy switched off";
    PolicyAway = "policy away for a while";
    PolicyUnavailable = "policy could not be asked";
    PolicyFailedOpen = "job let through while the policy was away";
    OldDecisionAttached = "submit with a decision of other rules";
    OutputRulesChanged = "rules for results changed";
    ApprovalOfOtherContent = "approval of other content";
    ApprovalOfOtherRule = "approval of other rule";
    ApprovalTwice = "approval said twice";
    ApprovalTooLate = "approval after it had expired";
    ScanUnanswered = "scan never answered";
    ScanSlow = "scan answered late";
    ScanFailed = "scan failed";
    ScanUnasked = "scan that nobody asked for";
}

/// What else must have happened for the invariants to have something to look at.
const REQUIRED: &[&str] = &[
    "verdicts of rules that are not in force",
    "words of operators overtaken by newer ones",
    "attempts begun on the policy's word",
    "attempts begun after the rules had changed",
    "attempts begun with an approval",
    "attempts begun with an approval under earlier rules",
    "attempts begun with limits",
    "jobs sent back to the gate",
    "decisions attached",
    "results decided about at once",
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
    "workflows run again",
    "workflows that took too long",
    "workflows that go on later with what they may do",
    "rollbacks of everything",
    "partial rollbacks",
    "steps undone after all",
    "compensations done",
    "compensations failed",
    "tasks sleeping",
    "tasks listening",
    "tasks merged",
    "tasks skipped",
    "tasks cancelled",
    "items ended",
    "switches that chose",
    "epochs reached",
    "signals heard at once",
    "signals kept",
    "results quarantined late",
    "results redacted late",
    "results released late",
    "crashes while workflows run",
    "crashes while items begin",
    "crashes while workflows are stopped",
    "crashes while workflows are undone",
    "slots of schedules left out",
    "templates that could not be read",
    "answered: workflow exists",
    "answered: workflow removed",
    "answered: progressed",
    "workflow_cancelled",
    "workflow_resumed",
    "workflow_rerun",
    "schedule_paused",
    "schedule_resumed",
    "schedule_triggered",
];

/// Counts over one run or many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    faults: BTreeMap<Fault, u64>,
    /// Pairs of states, as committed.
    transitions: BTreeMap<(Option<State>, State), u64>,
    /// Anything else worth a number.
    other: BTreeMap<&'static str, u64>,
}

impl Coverage {
    pub fn fault(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    pub fn transition(&mut self, from: Option<State>, to: State) {
        *self.transitions.entry((from, to)).or_default() += 1;
    }

    pub fn note(&mut self, what: &'static str) {
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

    pub fn noted(&self, what: &str) -> u64 {
        self.other.get(what).copied().unwrap_or(0)
    }

    /// Faults that never happened and ends that no job has met.
    pub fn missing(&self) -> Vec<String> {
        let faults = Fault::ALL.iter().filter(|fault| self.times(**fault) == 0).map(|fault| fault.as_str().to_owned());
        let states = State::ALL.into_iter().filter(|state| is_reachable(*state) && self.entered(*state) == 0);
        let other = REQUIRED.iter().filter(|what| self.noted(what) == 0).map(|what| (*what).to_owned());
        faults.chain(states.map(|state| format!("a job that is {state}"))).chain(other).collect()
    }

    /// One line for each count.
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

/// No input of the engine abandons a job yet.
fn is_reachable(state: State) -> bool {
    match state {
        State::Abandoned => false,
        State::Pending
        | State::Blocked
        | State::ApprovalRequired
        | State::Scheduled
        | State::Dispatched
        | State::Running
        | State::Scanning
        | State::Cancelling
        | State::Succeeded
        | State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Denied
        | State::Quarantined => true,
    }
}
