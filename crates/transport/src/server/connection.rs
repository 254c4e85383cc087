//! Serves gRPC on one TLS connection.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tower_service::Service as _;

use super::handler::Handler;
use super::{Core, is_shut_down};
use crate::limits::{HEADER_BYTES_MAX, JOIN_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::proto::transport_server::TransportServer;
use crate::wire::{JOINING_WINDOWS, KeepAlive, MEMBER_WINDOWS, WireIo};
use crate::{NodeIdentity, tls};

/// Requests of a client without a certificate.
const JOINING_STREAMS_MAX: u32 = 4;
/// Time for goodbyes at shutdown.
const GOODBYE_TIMEOUT: Duration = Duration::from_millis(200);

pub(super) async fn serve(
    core: &Arc<Core>,
    stream: TlsStream<TcpStream>,
    peer: Option<NodeIdentity>,
    address: SocketAddr,
) {
    let is_bulk = stream.get_ref().1.alpn_protocol() == Some(tls::BULK);
    let keep_alive = if is_bulk { KeepAlive::BULK } else { core.options.keep_alive };
    let (io, wire) = WireIo::new(stream, keep_alive.timeout);
    let handler = Handler::new(core.clone(), peer, address, wire);
    let message_bytes_max = if peer.is_some() { MESSAGE_BYTES_MAX } else { JOIN_BYTES_MAX };
    let service = TransportServer::new(handler).max_decoding_message_size(message_bytes_max);
    let service = service_fn(move |request: http::Request<Incoming>| service.clone().call(request));
    let builder = builder(core, peer.is_some(), keep_alive);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service));
    let served = async {
        tokio::select! {
            result = connection.as_mut() => result,
            () = is_shut_down(&core.shutdown) => {
                connection.as_mut().graceful_shutdown();
                timeout(GOODBYE_TIMEOUT, connection).await.unwrap_or(Ok(()))
            }
        }
    };
    let result = match peer {
        Some(_) => served.await,
        None => timeout(core.options.join_timeout, served).await.unwrap_or(Ok(())),
    };
    if let Err(error) = result {
        tracing::debug!(%address, %error, "connection ended");
    }
}

fn builder(core: &Core, is_member: bool, keep_alive: KeepAlive) -> http2::Builder<TokioExecutor> {
    let windows = if is_member { MEMBER_WINDOWS } else { JOINING_WINDOWS };
    let streams_max = if is_member { core.options.streams_per_connection_max } else { JOINING_STREAMS_MAX };
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(windows.stream_bytes)
        .initial_connection_window_size(windows.connection_bytes)
        .max_frame_size(windows.frame_bytes)
        .max_send_buf_size(windows.send_buffer_bytes)
        .max_header_list_size(HEADER_BYTES_MAX)
        .max_concurrent_streams(streams_max)
        .keep_alive_interval(keep_alive.interval)
        .keep_alive_timeout(keep_alive.timeout);
    builder
}
