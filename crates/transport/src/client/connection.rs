//! One TLS connection with HTTP/2.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use super::error::ConnectError;
use crate::limits::{HEADER_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::proto::transport_client::TransportClient;
use crate::refusal::Refusal;
use crate::wire::{self, End, KeepAlive, MEMBER_WINDOWS, Wire, WireIo};
use crate::{NodeIdentity, certificate};

/// Time between the failure of a request and the end of its connection, if that is the cause.
const CAUSE_TIMEOUT: Duration = Duration::from_millis(200);

/// An open connection. Clones share it; it closes when the last one and all requests are gone.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    send: SendRequest<Body>,
    wire: Wire,
    peer: Option<NodeIdentity>,
}

pub(super) type GrpcClient = TransportClient<Dispatch>;

impl Connection {
    pub(super) async fn open(
        address: &str,
        tls: Arc<ClientConfig>,
        step_timeout: Duration,
        keep_alive: KeepAlive,
    ) -> Result<Self, ConnectError> {
        let too_slow = |_| ConnectError::timeout(address);
        let unreachable = |error: std::io::Error| ConnectError::unreachable(address, error);
        let stream =
            timeout(step_timeout, TcpStream::connect(address)).await.map_err(too_slow)?.map_err(unreachable)?;
        wire::prepare(&stream).map_err(unreachable)?;
        // Host names do not matter, and are not sent.
        let name = ServerName::from(std::net::Ipv4Addr::UNSPECIFIED);
        let handshake = TlsConnector::from(tls).connect(name, stream);
        let stream = timeout(step_timeout, handshake)
            .await
            .map_err(too_slow)?
            .map_err(|error| ConnectError::handshake(address, &error))?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let peer = certificate.and_then(|certificate| certificate::identity(certificate).ok());
        let (io, wire) = WireIo::new(stream, keep_alive.timeout);
        let windows = MEMBER_WINDOWS;
        let (send, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(windows.stream_bytes)
            .initial_connection_window_size(windows.connection_bytes)
            .max_frame_size(windows.frame_bytes)
            .max_send_buf_size(windows.send_buffer_bytes)
            .max_header_list_size(HEADER_BYTES_MAX)
            .keep_alive_interval(keep_alive.interval)
            .keep_alive_timeout(keep_alive.timeout)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|error| ConnectError::unreachable(address, error))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
        });
        Ok(Self { send, wire, peer })
    }

    pub(super) fn client(&self) -> GrpcClient {
        let origin = http::Uri::from_static("https://outlast");
        TransportClient::with_origin(Dispatch { send: self.send.clone() }, origin)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub(super) fn wire(&self) -> &Wire {
        &self.wire
    }

    pub(super) fn is_closed(&self) -> bool {
        self.send.is_closed()
    }

    /// Who the server is, by its verified certificate.
    pub(super) fn peer(&self, address: &str) -> Result<NodeIdentity, ConnectError> {
        self.peer.ok_or_else(|| ConnectError::protocol(address, "its certificate names no node"))
    }

    /// Why a first request failed.
    pub(super) async fn connect_error(&self, address: &str, status: &Status) -> ConnectError {
        if let Some(refusal) = Refusal::from_status(status) {
            return ConnectError::Refused(refusal);
        }
        match timeout(CAUSE_TIMEOUT, self.wire.ended()).await {
            Ok(End::Broken(fault)) => ConnectError::broken(address, fault),
            Ok(End::KeepAliveTimeout) => ConnectError::timeout(address),
            Ok(End::Orderly | End::Local) => ConnectError::unreachable(address, "the connection was closed"),
            Err(_) => ConnectError::protocol(address, status.message()),
        }
    }
}

/// Sends requests on one connection. It never reconnects.
#[derive(Debug, Clone)]
pub(super) struct Dispatch {
    send: SendRequest<Body>,
}

impl Service<http::Request<Body>> for Dispatch {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.send.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.send.send_request(request))
    }
}
