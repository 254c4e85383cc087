//! Keeps a tether open: the spawner holds it, so the control node can tell a restarted server from a dead node.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use model::id::Incarnation;
use tokio::sync::Notify;
use transport::{Requests, Sender, tether};

/// Each step of opening a tether.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Wait after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Opens a tether to the control node while the link is open. Opens another one whenever the spawner is replaced, and when
/// the control node has lost the last one.
pub(super) async fn keep(
    runner: runner::Handle,
    incarnation: Incarnation,
    link: Sender,
    requests: Requests,
    address: String,
    lost: &Notify,
) {
    let keep = async {
        let mut spawners = runner.spawner_generation();
        loop {
            spawners.mark_unchanged();
            match open(&requests, incarnation, &address).await {
                Ok(connection) => {
                    if !runner.hold_tether(connection) {
                        return;
                    }
                    tokio::select! {
                        changed = spawners.changed() => {
                            if changed.is_err() {
                                return;
                            }
                        }
                        () = lost.notified() => tokio::time::sleep(RETRY_INTERVAL).await,
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the tether to the control node could not be opened yet");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
    };
    tokio::select! {
        () = keep => {}
        _ = link.closed() => {}
    }
}

async fn open(requests: &Requests, incarnation: Incarnation, address: &str) -> io::Result<OwnedFd> {
    let proof = requests.prepare_tether(incarnation).await.map_err(io::Error::other)?;
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host(address).await?.collect();
    let opened = tokio::task::spawn_blocking(move || {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match tether::dial(address, &proof, TIMEOUT) {
                Ok(connection) => return Ok(OwnedFd::from(connection)),
                Err(error) => last = error,
            }
        }
        Err(last)
    });
    opened.await.map_err(io::Error::other)?
}
