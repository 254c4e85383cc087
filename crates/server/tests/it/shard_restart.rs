//! A shard that fails restarts from its records; the node and its other shards go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use model::batch::Batch;
use model::id::{Epoch, ShardId};
use serde_json::json;
use server::StoreWrapper;
use store::{Error, FencingToken, Position, ShardOwner, Store, Wrapper};

use crate::support::{Server, echo, shell, text, with};

/// What happens to the next commits of shard 0.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Fault {
    None = 0,
    /// The commit is refused.
    Refuse = 1,
    /// The commit lands, and the shard gets an error.
    Unknown = 2,
    Panic = 3,
    /// The shard can neither commit nor restart until the fault is cleared.
    RefuseAll = 4,
}

/// A store whose commits to shard 0 fail on request.
struct FaultyStore {
    inner: Arc<dyn Store>,
    fault: Arc<AtomicU8>,
}

impl FaultyStore {
    fn take_fault(&self, shard: ShardId) -> u8 {
        let fault = if shard == ShardId(0) { self.fault.load(Ordering::SeqCst) } else { Fault::None as u8 };
        if fault != Fault::None as u8 && fault != Fault::RefuseAll as u8 {
            self.fault.store(Fault::None as u8, Ordering::SeqCst);
        }
        fault
    }
}

impl Wrapper for FaultyStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn open_shard(&self, shard: ShardId, owner: ShardOwner, expected: Epoch) -> Result<FencingToken, Error> {
        if shard == ShardId(0) && self.fault.load(Ordering::SeqCst) == Fault::RefuseAll as u8 {
            return Err(Error::Failed { reason: "injected".to_owned() });
        }
        self.inner.open_shard(shard, owner, expected)
    }

    fn commit(&self, token: &mut FencingToken, batch: &Batch) -> Result<Position, Error> {
        let failed = || Error::Failed { reason: "injected".to_owned() };
        match self.take_fault(token.shard) {
            fault if fault == Fault::Refuse as u8 || fault == Fault::RefuseAll as u8 => Err(failed()),
            fault if fault == Fault::Unknown as u8 => {
                self.inner.commit(token, batch)?;
                Err(failed())
            }
            fault if fault == Fault::Panic as u8 => panic!("injected"),
            _ => self.inner.commit(token, batch),
        }
    }
}

async fn faulty_server(shards: u16) -> (Server, Arc<AtomicU8>) {
    let fault = Arc::new(AtomicU8::new(Fault::None as u8));
    let shared = fault.clone();
    let wrap = move |inner| Arc::new(FaultyStore { inner, fault: shared.clone() }) as Arc<dyn Store>;
    let server = Server::with(|options| {
        options.shards = shards;
        options.store_wrapper = Some(StoreWrapper::new(wrap));
    })
    .await;
    (server, fault)
}

#[tokio::test]
async fn a_shard_goes_on_after_failed_commits_and_panics() {
    let (server, fault) = faulty_server(1).await;
    let running = server.submit(&shell("while [ ! -e /job/outputs/go ]; do sleep 0.05; done; echo done")).await;
    server.job_in(&running, "running").await;
    let mut accepted = 1;
    for injected in [Fault::Refuse, Fault::Unknown, Fault::Panic] {
        // Another commit than that of the submission may meet the fault.
        let job = loop {
            accepted += 1;
            assert!(accepted < 50, "no submission met the fault");
            let job = with(echo(accepted), json!({"idempotency_key": format!("key-{accepted}")}));
            fault.store(injected as u8, Ordering::SeqCst);
            let reply = server.post("/v1/jobs", &job).await;
            if reply.status != 201 {
                reply.refused(503, "answer_lost");
                break job;
            }
        };
        // Whether the commit landed or not, the same request gives one job.
        let again = server.post("/v1/jobs", &job).await;
        let again = again.expect(again.status);
        let id = text(&again["id"]);
        assert_eq!(server.ended(&id).await["state"], "succeeded");
    }
    assert!(server.metric("outlast_shard_restarts_total").await >= 3);
    server.metric_when("outlast_shards_down", 0).await;
    // The process that ran all the time goes on as the same attempt.
    server.act(&format!("/v1/jobs/{running}/cancel")).await;
    let ended = server.ended(&running).await;
    assert_eq!((text(&ended["state"]), ended["attempt"].clone()), ("cancelled".to_owned(), json!(1)));
    assert_eq!(server.listed("/v1/jobs", 10).await.len(), accepted);
}

#[tokio::test]
async fn other_shards_serve_while_one_is_down() {
    let (server, fault) = faulty_server(2).await;
    let mut of_shard: [Option<String>; 2] = [None, None];
    for _ in 0..16 {
        let queue = server.create_queue(&json!({})).await;
        let id: model::id::QueueId = text(&queue["id"]).parse().unwrap();
        let shard = model::id::Shards::new(2).unwrap().owner(id.slot());
        of_shard[usize::from(shard.0)] = Some(id.to_string());
    }
    let [Some(failing), Some(healthy)] = of_shard else { panic!("both shards have a queue") };
    fault.store(Fault::RefuseAll as u8, Ordering::SeqCst);
    let lost = server.post("/v1/jobs", &with(echo(1), json!({"queue": failing}))).await;
    lost.refused(503, "answer_lost");
    server.metric_when("outlast_shards_down", 1).await;
    let problem = server.get("/readyz").await.refused(503, "not_ready");
    assert!(text(&problem["detail"]).contains("shard 0 restarts"), "{problem}");
    assert_eq!(server.run(&with(echo(2), json!({"queue": healthy}))).await["state"], "succeeded");
    fault.store(Fault::None as u8, Ordering::SeqCst);
    server.metric_when("outlast_shards_down", 0).await;
    server.get("/readyz").await.expect(200);
    assert_eq!(server.run(&with(echo(3), json!({"queue": failing}))).await["state"], "succeeded");
}
