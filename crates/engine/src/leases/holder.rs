//! A shard that uses slots granted by another: what it has, what it uses, and when it says so.

use model::id::Epoch;
use model::time::Millis;

use crate::leases::message::{Ask, Grant, Message, Recall};
use crate::leases::{Context, LINGER, Outbox, REFRESH, RETRY, Settled};

/// No cap.
const ALL: u32 = u32::MAX;

/// One scope as seen by a shard that is not its home.
///
/// What it may use is bounded by `granted`, which only a [`Grant`] in answer to its newest ask raises, and which is
/// lowered with the ask that says so. So the home's record is never below it, whatever becomes of the messages.
#[derive(Debug)]
pub(super) struct Holder {
    used: u32,
    waiting: u32,
    granted: u32,
    cap: u32,
    limit: Option<u32>,
    /// What the newest ask said of the limit, and what the home is known to have heard.
    limit_asked: Option<u32>,
    limit_told: Option<u32>,
    want_told: u32,
    /// The newest ask; 0 before the first.
    seq: u64,
    asked_at: Millis,
    unanswered: bool,
    /// The home is to be told how things stand, though nothing has changed here.
    report: bool,
    /// The most that was in use since the last look at what is unused.
    peak: u32,
    lingers_until: Option<Millis>,
}

impl Holder {
    pub fn new() -> Self {
        Self {
            used: 0,
            waiting: 0,
            granted: 0,
            cap: ALL,
            limit: None,
            limit_asked: None,
            limit_told: None,
            want_told: 0,
            seq: 0,
            asked_at: Millis(0),
            unanswered: false,
            report: false,
            peak: 0,
            lingers_until: None,
        }
    }

    /// After a restart. An earlier epoch was granted at least what the records say is in use.
    pub fn restore(&mut self, used: u32) {
        self.used = used;
        self.granted = used;
        self.report = true;
    }

    pub fn used(&self) -> u32 {
        self.used
    }

    pub fn granted(&self) -> u32 {
        self.granted
    }

    fn has_room(&self) -> bool {
        self.would_take(self.limit.unwrap_or(ALL))
    }

    /// Whether [`Holder::take`] would say yes under this limit.
    pub fn would_take(&self, limit: u32) -> bool {
        self.used < self.granted.min(self.cap).min(limit)
    }

    /// Something can be taken that somebody waits for.
    pub fn can_serve(&self) -> bool {
        self.waiting > 0 && self.has_room()
    }

    /// Whether the limit is another than it was.
    pub fn learn_limit(&mut self, limit: u32) -> bool {
        self.limit.replace(limit) != Some(limit)
    }

    pub fn take(&mut self) -> bool {
        let has_room = self.has_room();
        if has_room {
            self.used += 1;
            self.peak = self.peak.max(self.used);
        }
        has_room
    }

    pub fn give_back(&mut self) {
        debug_assert!(self.used > 0, "a slot was taken before it is given back");
        self.used = self.used.saturating_sub(1);
    }

    /// Whether that is another number than before.
    pub fn set_waiting(&mut self, waiting: u32) -> bool {
        std::mem::replace(&mut self.waiting, waiting) != waiting
    }

    pub fn hear_grant(&mut self, grant: &Grant) {
        if grant.seq == self.seq {
            // The home only raises what it has granted in answer to an ask, so of two answers the larger is the newer.
            self.granted = self.granted.max(grant.total);
            self.cap = grant.cap.unwrap_or(ALL);
            self.unanswered = false;
            self.limit_told = self.limit_asked.or(self.limit_told);
        }
    }

    /// While an ask of ours is on the way, the home will hear how things stand, and answer.
    pub fn hear_recall(&mut self, recall: &Recall, epoch: Epoch) {
        if self.unanswered {
            return;
        }
        if recall.epoch == epoch && recall.seq == self.seq {
            self.cap = recall.cap.unwrap_or(ALL);
        }
        self.report = true;
    }

    /// What of the granted is kept. Unused slots go back at once when others wait for them, else after a while: a job
    /// that comes soon finds a slot without asking. Each look keeps as many as were in use at once since the last.
    fn keep(&mut self, now: Millis) -> u32 {
        let mut keep = self.granted.min(self.cap).min(self.limit.unwrap_or(ALL));
        if self.granted == self.used || self.waiting > 0 {
            self.lingers_until = None;
        } else if let Some(until) = self.lingers_until {
            if until <= now {
                keep = keep.min(self.peak);
                self.peak = self.used;
                self.lingers_until = Some(now + LINGER);
            }
        } else {
            self.peak = self.used;
            self.lingers_until = Some(now + LINGER);
        }
        keep.max(self.used)
    }

    /// Says what there is to say.
    pub fn settle(&mut self, context: &mut Context<'_>, outbox: &mut Outbox) -> Settled {
        let now = context.now;
        if !self.unanswered || self.asked_at + RETRY <= now {
            let held = self.keep(now);
            let want = self.used.saturating_add(self.waiting);
            let wants_more = want > self.granted && (want > self.want_told || self.asked_at + REFRESH <= now);
            let withdraws = self.want_told > want.max(self.granted);
            let tells_limit = self.limit.is_some() && self.limit != self.limit_told && (want > 0 || held > 0);
            let gives_back = held < self.granted;
            if self.unanswered || self.report || gives_back || wants_more || withdraws || tells_limit {
                self.ask(held, want, tells_limit, context, outbox);
            }
        }
        let lingers = self.lingers_until.filter(|_| !self.unanswered);
        let asks = if self.unanswered {
            Some(self.asked_at + RETRY)
        } else {
            (self.used.saturating_add(self.waiting) > self.granted).then_some(self.asked_at + REFRESH)
        };
        Settled { wake_at: asks.into_iter().chain(lingers).min(), is_idle: self.is_idle() }
    }

    fn ask(&mut self, held: u32, want: u32, tells_limit: bool, context: &mut Context<'_>, outbox: &mut Outbox) {
        let limit = self.limit.filter(|_| tells_limit || self.waiting > 0);
        self.seq = context.next_seq();
        self.granted = held;
        self.want_told = want;
        self.limit_asked = limit;
        self.asked_at = context.now;
        self.unanswered = true;
        self.report = false;
        let ask = Ask { scope: context.scope, epoch: context.epoch, seq: self.seq, held, want, limit };
        outbox.messages.push((context.home, Message::Ask(ask)));
    }

    /// Nothing is held, and the home knows that nothing is wanted.
    fn is_idle(&self) -> bool {
        let nothing = self.used == 0 && self.waiting == 0 && self.granted == 0 && self.want_told == 0;
        nothing && !self.unanswered && !self.report
    }
}
