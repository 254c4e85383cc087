//! What foca wants done, collected during one call.

use std::time::Duration;

use foca::{Message, Notification, Runtime, Timer};
use model::id::NodeId;

use crate::identity::Identity;

#[derive(Debug)]
pub(crate) enum Notice {
    /// This node probes `target`.
    ProbeStarted { target: Identity, number: u8 },
    /// Nobody got an answer from the target until the end of the period.
    ProbeFailed(NodeId),
    /// No other member is active. Foca's timers have stopped.
    ProbeStopped,
    /// Others declared this node dead. It has a new identity.
    Rejoined,
}

/// Foca's runtime. Collects; the membership acts afterwards.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub packets: Vec<(Identity, Vec<u8>)>,
    pub timers: Vec<(Timer<Identity>, Duration)>,
    pub notices: Vec<Notice>,
    /// Members that may have changed.
    pub touched: Vec<NodeId>,
    /// This node's own SWIM incarnation, as in the last packet.
    pub own_incarnation: u16,
}

impl Runtime<Identity> for Effects {
    fn notify(&mut self, notification: Notification<'_, Identity>) {
        match notification {
            Notification::MemberUp(identity)
            | Notification::MemberDown(identity)
            | Notification::Rename(_, identity) => {
                self.touched.push(identity.node);
            }
            Notification::ProbeFailed(_, identity) => {
                self.touched.push(identity.node);
                self.notices.push(Notice::ProbeFailed(identity.node));
            }
            Notification::DataSent(header) => {
                self.own_incarnation = header.src_incarnation;
                if let Message::Ping(number) = header.message {
                    self.notices.push(Notice::ProbeStarted { target: header.dst, number });
                }
            }
            Notification::Rejoin(_) => self.notices.push(Notice::Rejoined),
            Notification::Idle => self.notices.push(Notice::ProbeStopped),
            Notification::Active | Notification::Defunct | Notification::DataReceived(_) => {}
        }
    }

    fn send_to(&mut self, to: Identity, data: &[u8]) {
        self.packets.push((to, data.to_vec()));
    }

    fn submit_after(&mut self, event: Timer<Identity>, after: Duration) {
        self.timers.push((event, after));
    }
}
