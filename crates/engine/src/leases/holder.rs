//! The holder's side of a scope: slots granted by the home, their use, and requests for more.

use model::id::Epoch;
use model::time::Millis;

use crate::leases::message::{Grant, LeaseRequest, Message, Recall};
use crate::leases::{Context, FlushResult, LINGER, Outbox, REFRESH, RETRY};

const UNLIMITED: u32 = u32::MAX;

/// A scope on a shard that is not its home.
///
/// `granted` bounds the use. Only a [`Grant`] in answer to the newest request raises it. It is lowered together with
/// the request that reports so. Therefore the home's record is never below it, whichever messages are lost.
#[derive(Debug)]
pub(super) struct Holder {
    used: u32,
    waiting: u32,
    granted: u32,
    cap: u32,
    limit: Option<u32>,
    /// The limit in the newest request, and the newest limit that the home has acknowledged.
    limit_sent: Option<u32>,
    limit_acknowledged: Option<u32>,
    want_sent: u32,
    /// Number of the newest request; 0 before the first.
    seq: u64,
    requested_at: Millis,
    unanswered: bool,
    /// A request is due even without a change: the home has asked for a report.
    report: bool,
    /// Maximum use since the last check for unused slots.
    peak: u32,
    lingers_until: Option<Millis>,
}

impl Holder {
    pub fn new() -> Self {
        Self {
            used: 0,
            waiting: 0,
            granted: 0,
            cap: UNLIMITED,
            limit: None,
            limit_sent: None,
            limit_acknowledged: None,
            want_sent: 0,
            seq: 0,
            requested_at: Millis(0),
            unanswered: false,
            report: false,
            peak: 0,
            lingers_until: None,
        }
    }

    /// Restores the use after a restart. An earlier epoch was granted at least that.
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
        self.would_take(self.limit.unwrap_or(UNLIMITED))
    }

    /// Whether [`Holder::take`] would succeed under this limit.
    pub fn would_take(&self, limit: u32) -> bool {
        self.used < self.granted.min(self.cap).min(limit)
    }

    /// Whether a waiting job can get a slot.
    pub fn can_serve(&self) -> bool {
        self.waiting > 0 && self.has_room()
    }

    /// Returns whether the limit has changed.
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
        debug_assert!(self.used > 0, "a slot is given back that was not taken");
        self.used = self.used.saturating_sub(1);
    }

    /// Returns whether the number has changed.
    pub fn set_waiting(&mut self, waiting: u32) -> bool {
        std::mem::replace(&mut self.waiting, waiting) != waiting
    }

    pub fn receive_grant(&mut self, grant: &Grant) {
        if grant.seq == self.seq {
            // The home only raises the total in answers to one request, so the larger answer is the newer.
            self.granted = self.granted.max(grant.total);
            self.cap = grant.cap.unwrap_or(UNLIMITED);
            self.unanswered = false;
            self.limit_acknowledged = self.limit_sent.or(self.limit_acknowledged);
        }
    }

    /// Ignored while a request is unanswered: the request itself reports to the home.
    pub fn receive_recall(&mut self, recall: &Recall, epoch: Epoch) {
        if self.unanswered {
            return;
        }
        if recall.epoch == epoch && recall.seq == self.seq {
            self.cap = recall.cap.unwrap_or(UNLIMITED);
        }
        self.report = true;
    }

    /// How many granted slots to keep. Unused slots are returned at once when others wait for them, else after a delay,
    /// so that the next job needs no request. Each check keeps the maximum use since the last check.
    fn slots_to_keep(&mut self, now: Millis) -> u32 {
        let mut keep = self.granted.min(self.cap).min(self.limit.unwrap_or(UNLIMITED));
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

    /// Sends a request if one is due.
    pub fn flush(&mut self, context: &mut Context<'_>, outbox: &mut Outbox) -> FlushResult {
        let now = context.now;
        if !self.unanswered || self.requested_at + RETRY <= now {
            let held = self.slots_to_keep(now);
            let want = self.used.saturating_add(self.waiting);
            let wants_more = want > self.granted && (want > self.want_sent || self.requested_at + REFRESH <= now);
            let withdraws = self.want_sent > want.max(self.granted);
            let sends_limit = self.limit.is_some() && self.limit != self.limit_acknowledged && (want > 0 || held > 0);
            let gives_back = held < self.granted;
            if self.unanswered || self.report || gives_back || wants_more || withdraws || sends_limit {
                self.request(held, want, sends_limit, context, outbox);
            }
        }
        let lingers = self.lingers_until.filter(|_| !self.unanswered);
        let request_at = if self.unanswered {
            Some(self.requested_at + RETRY)
        } else {
            (self.used.saturating_add(self.waiting) > self.granted).then_some(self.requested_at + REFRESH)
        };
        FlushResult { wake_at: request_at.into_iter().chain(lingers).min(), is_idle: self.is_idle() }
    }

    fn request(&mut self, held: u32, want: u32, sends_limit: bool, context: &mut Context<'_>, outbox: &mut Outbox) {
        let limit = self.limit.filter(|_| sends_limit || self.waiting > 0);
        self.seq = context.next_seq();
        self.granted = held;
        self.want_sent = want;
        self.limit_sent = limit;
        self.requested_at = context.now;
        self.unanswered = true;
        self.report = false;
        let request = LeaseRequest { scope: context.scope, epoch: context.epoch, seq: self.seq, held, want, limit };
        outbox.messages.push((context.home, Message::Request(request)));
    }

    /// No slots held, none wanted, and the home knows it.
    fn is_idle(&self) -> bool {
        let nothing = self.used == 0 && self.waiting == 0 && self.granted == 0 && self.want_sent == 0;
        nothing && !self.unanswered && !self.report
    }
}
