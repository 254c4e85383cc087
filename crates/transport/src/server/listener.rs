//! Accepts connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;

use super::admission::Ticket;
use super::{Core, connection, is_shut_down, tethers};
use crate::{NodeIdentity, certificate, wire};

/// First byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;
/// Pause after a failed accept, as when the process has no free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn run(listener: TcpListener, core: Arc<Core>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = is_shut_down(&core.shutdown) => return,
        };
        match accepted {
            Ok((stream, address)) => match core.admission.enter(address.ip()) {
                Some(ticket) => {
                    tokio::spawn(serve(core.clone(), stream, address, ticket));
                }
                None => tracing::debug!(%address, "connection refused: too many connections"),
            },
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

enum Accepted {
    Tls(Box<TlsStream<TcpStream>>, Option<NodeIdentity>),
    Tether(TcpStream, tethers::Accepted),
}

async fn serve(core: Arc<Core>, stream: TcpStream, address: SocketAddr, mut ticket: Ticket) {
    let accepted = tokio::select! {
        accepted = timeout(core.options.handshake_timeout, accept(&core, stream)) => accepted,
        () = is_shut_down(&core.shutdown) => return,
    };
    match accepted {
        Ok(Ok(Accepted::Tls(stream, peer))) => {
            if peer.is_some() {
                ticket.authenticate();
            }
            connection::serve(&core, *stream, peer, address).await;
        }
        Ok(Ok(Accepted::Tether(stream, tether))) => {
            ticket.authenticate();
            tethers::watch(&core, stream, tether).await;
        }
        Ok(Err(reason)) => tracing::debug!(%address, reason, "connection refused"),
        Err(_) => tracing::debug!(%address, "connection refused: the handshake took too long"),
    }
}

async fn accept(core: &Core, stream: TcpStream) -> Result<Accepted, String> {
    wire::prepare(&stream).map_err(|error| error.to_string())?;
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1) if first[0] == TLS_HANDSHAKE => {}
        Ok(1) => return tethers::accept(core, stream).await.map(|(stream, hello)| Accepted::Tether(stream, hello)),
        Ok(_) => return Err("closed before the first byte".to_owned()),
        Err(error) => return Err(error.to_string()),
    }
    let stream = core.acceptor.accept(stream).await.map_err(|error| error.to_string())?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let peer = certificate.map(certificate::identity).transpose().map_err(|error| error.to_string())?;
    match peer {
        Some(peer) if peer.cluster != core.identity.node().cluster => Err("a node of another cluster".to_owned()),
        Some(_) | None => Ok(Accepted::Tls(Box::new(stream), peer)),
    }
}
