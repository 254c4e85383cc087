//! The runner itself: one task that takes messages, starts attempts and passes on what they say.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use model::id::{Incarnation, NodeId, RunnerId, ShardId};
use model::job::{End, Outcome};
use model::message::{Capacity, FromRunner, ShardFace, Ticket, ToRunner};
use model::spec::{Run, decode_run};
use model::time::Millis;
use tokio::sync::{mpsc, oneshot};

use crate::link::{Held, Link};
use crate::process::{self, Place};
use crate::{echo, logs};

/// How many messages one round takes.
const ROUND_MAX: usize = 1024;

/// A runner's settings.
#[derive(Debug, Clone)]
pub struct Options {
    pub id: RunnerId,
    pub incarnation: Incarnation,
    pub node: NodeId,
    /// What each shard may give it at once.
    pub capacity: Capacity,
    pub shards: Vec<ShardId>,
    /// Where the output of processes is kept.
    pub logs: PathBuf,
    /// Where processes have their working directories.
    pub scratch: PathBuf,
    /// Between asking a process to stop and making it.
    pub stop_grace: std::time::Duration,
    /// Of each stream of an attempt this much is kept.
    pub log_bytes_max: u64,
    /// The wall clock.
    pub now: fn() -> Millis,
}

/// The way from a runner to its shards.
pub trait Uplink: Send + Sync + 'static {
    fn deliver(&self, shard: ShardId, words: Vec<FromRunner>);
}

enum Post {
    Messages(ShardFace, Vec<ToRunner>),
    /// Stop everything, say so, then answer.
    Stop(oneshot::Sender<()>),
}

/// The way to a runner.
#[derive(Clone)]
pub struct Handle {
    posts: mpsc::UnboundedSender<Post>,
    incarnation: Incarnation,
}

impl Handle {
    /// Words for another incarnation are void: what they are about died with it.
    pub fn send(&self, face: ShardFace, incarnation: Incarnation, messages: Vec<ToRunner>) {
        if incarnation == self.incarnation {
            // A runner that is gone hears nothing; its node is going down.
            let _ = self.posts.send(Post::Messages(face, messages));
        }
    }

    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Stops every attempt and returns when all of them have ended and their shards have been told.
    pub async fn stop(&self) {
        let (done, stopped) = oneshot::channel();
        if self.posts.send(Post::Stop(done)).is_ok() {
            let _ = stopped.await;
        }
    }
}

/// Starts a runner on the current tokio runtime.
pub fn start(options: Options, uplink: Arc<dyn Uplink>) -> Handle {
    let (posts, inbox) = mpsc::unbounded_channel();
    let (finished, endings) = mpsc::unbounded_channel();
    let incarnation = options.incarnation;
    let links = options
        .shards
        .iter()
        .map(|shard| (*shard, Link::new(options.id, options.incarnation, options.capacity)))
        .collect();
    let actor = Actor { options: Arc::new(options), uplink, links, finished, stopping: None };
    tokio::spawn(actor.run(inbox, endings));
    Handle { posts, incarnation }
}

/// How an attempt that ran on its own has ended.
struct Ending {
    shard: ShardId,
    ticket: Ticket,
    outcome: Outcome,
}

struct Actor {
    options: Arc<Options>,
    uplink: Arc<dyn Uplink>,
    links: BTreeMap<ShardId, Link>,
    finished: mpsc::UnboundedSender<Ending>,
    stopping: Option<oneshot::Sender<()>>,
}

impl Actor {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Post>, mut endings: mpsc::UnboundedReceiver<Ending>) {
        let mut posts = Vec::new();
        let mut ends = Vec::new();
        self.deliver();
        loop {
            tokio::select! {
                received = inbox.recv_many(&mut posts, ROUND_MAX) => {
                    if received == 0 {
                        return;
                    }
                    for post in posts.drain(..) {
                        self.take(post);
                    }
                }
                _ = endings.recv_many(&mut ends, ROUND_MAX) => {
                    for Ending { shard, ticket, outcome } in ends.drain(..) {
                        let now = (self.options.now)();
                        if let Some(link) = self.links.get_mut(&shard) {
                            link.say_ended(ticket, now, outcome);
                        }
                    }
                }
            }
            self.deliver();
            if self.links.values().all(Link::is_idle)
                && let Some(done) = self.stopping.take()
            {
                let _ = done.send(());
            }
        }
    }

    fn take(&mut self, post: Post) {
        match post {
            Post::Messages(face, messages) => {
                let accepted = self.links.get_mut(&face.shard).is_some_and(|link| link.accepts(face.epoch));
                if accepted {
                    for message in messages {
                        self.obey(face.shard, message);
                    }
                }
            }
            Post::Stop(done) => {
                self.stopping = Some(done);
                // Without room nothing new comes in while the rest goes out.
                self.links.values_mut().for_each(Link::close);
                let held = self.links.values_mut().flat_map(Link::all_held_mut);
                for stop in held.filter_map(|held| held.stop.take()) {
                    let _ = stop.send(());
                }
            }
        }
    }

    fn obey(&mut self, shard: ShardId, message: ToRunner) {
        let now = (self.options.now)();
        let Some(link) = self.links.get_mut(&shard) else { return };
        match message {
            ToRunner::Run { ticket, .. } if link.knows(ticket) => {}
            ToRunner::Run { ticket, .. } if self.stopping.is_some() => {
                link.say_ended(ticket, now, Outcome::of(End::Stopped));
            }
            ToRunner::Run { ticket, spec } => match decode_run(&spec) {
                Ok(run) => self.begin(shard, ticket, run, now),
                Err(error) => {
                    let message = Some(format!("this node cannot read the job: {error}"));
                    link.say_ended(ticket, now, Outcome { message, ..Outcome::of(End::Infrastructure) });
                }
            },
            ToRunner::Stop { ticket } => {
                if let Some(held) = link.held_mut(ticket) {
                    if let Some(stop) = held.stop.take() {
                        // An attempt that has just ended does not hear it; its end is on the way.
                        let _ = stop.send(());
                    }
                } else if !link.knows(ticket) {
                    link.say_ended(ticket, now, Outcome::of(End::Stopped));
                }
            }
            ToRunner::Committed { sequence } => link.forget(sequence),
            ToRunner::Inventory { question } => {
                link.repeat();
                link.say_here(question);
            }
        }
    }

    fn begin(&mut self, shard: ShardId, ticket: Ticket, run: Run, now: Millis) {
        let Some(link) = self.links.get_mut(&shard) else { return };
        let lane = run.lane();
        if !link.has_room(lane) {
            return link.say_ended(ticket, now, Outcome::of(End::Busy));
        }
        link.say_started(ticket, now);
        let (stop, stopped) = oneshot::channel();
        match run {
            Run::Echo(echo) if echo.delay_ms == 0 => link.say_ended(ticket, now, echo::outcome(echo)),
            Run::Echo(echo) => {
                link.hold(ticket, Held { lane, stop: Some(stop) });
                self.spawn(shard, ticket, echo::run(echo, stopped));
            }
            Run::Process(process) => {
                link.hold(ticket, Held { lane, stop: Some(stop) });
                let place = Place {
                    ticket,
                    node: self.options.node,
                    log: logs::path(&self.options.logs, ticket),
                    scratch: self.options.scratch.join(format!("{}.{}", ticket.job, ticket.attempt)),
                    log_bytes_max: self.options.log_bytes_max,
                    stop_grace: self.options.stop_grace,
                    now: self.options.now,
                };
                self.spawn(shard, ticket, process::run(process, place, stopped));
            }
        }
    }

    fn spawn(&self, shard: ShardId, ticket: Ticket, attempt: impl Future<Output = Outcome> + Send + 'static) {
        let finished = self.finished.clone();
        tokio::spawn(async move {
            let outcome = attempt.await;
            // Without a listener the node is going down, and what it had in hand is lost with it.
            let _ = finished.send(Ending { shard, ticket, outcome });
        });
    }

    fn deliver(&mut self) {
        for (shard, link) in &mut self.links {
            if !link.unsent.is_empty() {
                self.uplink.deliver(*shard, std::mem::take(&mut link.unsent));
            }
        }
    }
}
