//! Fetcher: a thread that reads records from the store for shards that do not have them in memory.

use std::sync::mpsc;

use engine::{Fetch, Input};
use model::id::{Epoch, ShardId};
use store::Store;

use crate::inbox::{Inbox, Message};
use crate::plans::Plans;

/// A read request of an owner of a shard.
type FetchRequest = (ShardId, Epoch, Fetch);

/// Sender of requests to the fetcher.
#[derive(Clone)]
pub(crate) struct FetchSender {
    sender: mpsc::Sender<FetchRequest>,
}

impl FetchSender {
    pub fn new() -> (Self, mpsc::Receiver<FetchRequest>) {
        let (sender, receiver) = mpsc::channel();
        (Self { sender }, receiver)
    }

    pub fn request(&self, shard: ShardId, epoch: Epoch, fetch: Fetch) {
        // Without a fetcher the node is stopping; the shard repeats the request after the restart.
        let _ = self.sender.send((shard, epoch, fetch));
    }
}

/// Serves requests until all senders are gone. A failed read restarts the shard that requested it.
pub(crate) fn run(requests: &mpsc::Receiver<FetchRequest>, store: &dyn Store, plans: &Plans, inboxes: &[Inbox]) {
    while let Ok((shard, epoch, fetch)) = requests.recv() {
        let Some(inbox) = inboxes.get(usize::from(shard.0)) else { continue };
        // A panic is a bug. It must not leave other shards without answers.
        let answer = || shard::answer(store, plans, shard, fetch);
        let failed = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(answer)) {
            Ok(Ok(answers)) => {
                for fetched in answers {
                    let _ = inbox.post(Message::Reply { epoch, input: Box::new(Input::Fetched(fetched)) });
                }
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the fetcher panicked".to_owned(),
        };
        let _ = inbox.post(Message::ReadFailed { epoch, reason: failed });
    }
}
