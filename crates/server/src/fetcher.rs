//! Answers what shards ask for that is not in their memory, on a thread of its own.

use std::sync::Arc;
use std::sync::mpsc;

use engine::{Fetch, Fetched};
use model::batch::Keyspace;
use model::codec;
use model::id::{JobId, ShardId};
use model::key::{self, Day, KeyEntry};
use model::spec::KeyHash;
use store::{Order, Range, Store};

use crate::error::Error;
use crate::inbox::{Inbox, Message};
use crate::reads;

/// The way to the fetcher.
#[derive(Clone)]
pub(crate) struct Fetches {
    sender: mpsc::Sender<(ShardId, Fetch)>,
}

impl Fetches {
    pub fn new() -> (Self, mpsc::Receiver<(ShardId, Fetch)>) {
        let (sender, receiver) = mpsc::channel();
        (Self { sender }, receiver)
    }

    pub fn ask(&self, shard: ShardId, fetch: Fetch) {
        // When the fetcher is gone the node is stopping; the question is asked again after the restart.
        let _ = self.sender.send((shard, fetch));
    }
}

/// Answers until nobody can ask any more. A read that fails ends the node: an answer cannot be made up.
pub(crate) fn run(
    questions: &mpsc::Receiver<(ShardId, Fetch)>,
    store: &Arc<dyn Store>,
    inboxes: &[Inbox],
) -> Result<(), Error> {
    while let Ok((shard, fetch)) = questions.recv() {
        let fetched = answer(store.as_ref(), shard, fetch)?;
        if let Some(inbox) = inboxes.get(usize::from(shard.0)) {
            let _ = inbox.post(Message::Fetched(fetched));
        }
    }
    Ok(())
}

fn answer(store: &dyn Store, shard: ShardId, fetch: Fetch) -> Result<Fetched, Error> {
    match fetch {
        Fetch::Job { id } => {
            let job = reads::done(store, shard, id)?.map(Box::new);
            Ok(Fetched::Job { id, job })
        }
        Fetch::Keys { keys, days } => {
            let entries = keys.into_iter().map(|key| Ok((key, find_key(store, shard, key, days)?)));
            Ok(Fetched::Keys { entries: entries.collect::<Result<_, Error>>()? })
        }
        Fetch::Finished { after, limit } => finished(store, shard, after, limit),
        Fetch::OldKeys { before, limit } => {
            let end = store::Key::new(&before.0.to_be_bytes());
            let found = store.scan(shard, Keyspace::Keys, Range::all().before(&end), Order::Ascending, limit)?;
            let more = found.len() == limit;
            Ok(Fetched::OldKeys { keys: found.into_iter().map(|(key, _)| key.to_vec()).collect(), more })
        }
    }
}

fn find_key(store: &dyn Store, shard: ShardId, key: KeyHash, days: [Day; 2]) -> Result<Option<KeyEntry>, Error> {
    for day in days {
        if let Some(value) = store.get(shard, Keyspace::Keys, &key::idempotency(day, key))? {
            let entry = codec::decode(&value).map_err(|source| Error::Record { shard: shard.0, source })?;
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

fn finished(store: &dyn Store, shard: ShardId, after: JobId, limit: usize) -> Result<Fetched, Error> {
    let range = Range::all().after(&store::Key::new(&after.key()));
    let found = store.scan(shard, Keyspace::Done, range, Order::Ascending, limit)?;
    let more = found.len() == limit;
    let jobs = found.iter().map(|(_, value)| reads::decode(shard, value)).collect::<Result<_, _>>()?;
    Ok(Fetched::Finished { jobs, more })
}
