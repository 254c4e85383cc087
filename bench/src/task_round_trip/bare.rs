//! The reference: a stream of bare tonic that echoes messages, with TLS and certificates on both sides.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tonic::body::Body;
use tonic::server::{NamedService, StreamingService};
use tonic::transport::{Endpoint, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::{Certificates, Times, on_thread};

type Codec = ProstCodec<Bytes, Bytes>;
const PATH: &str = "/echo.Echo/Echo";

#[derive(Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "echo.Echo";
}

impl StreamingService<Bytes> for Echo {
    type Response = Bytes;
    type ResponseStream = Streaming<Bytes>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        ready(Ok(Response::new(request.into_inner())))
    }
}

impl tower_service::Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async { Ok(tonic::server::Grpc::new(Codec::default()).streaming(Echo, request).await) })
    }
}

async fn serve(tls: ServerTlsConfig, started: oneshot::Sender<SocketAddr>) -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let _ = started.send(listener.local_addr()?);
    let incoming = stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.and_then(|(stream, _)| {
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        Some((accepted, listener))
    });
    let router = Server::builder().tls_config(tls)?.add_service(Echo);
    Ok(router.serve_with_incoming(Box::pin(incoming)).await?)
}

pub struct Bare {
    sender: mpsc::UnboundedSender<Bytes>,
    receiver: Streaming<Bytes>,
    message: Bytes,
}

impl Bare {
    /// Starts both sides, with messages of this size.
    pub async fn start(message_bytes: usize) -> anyhow::Result<Self> {
        let certificates = Certificates::new()?;
        let tls = certificates.tonic_server();
        let address = on_thread(move |started| serve(tls, started)).await?;
        let endpoint = Endpoint::from_shared(format!("https://{address}"))?;
        let endpoint = endpoint.tls_config(certificates.tonic_client())?.tcp_nodelay(true);
        let mut client = tonic::client::Grpc::new(endpoint.connect().await?);
        client.ready().await?;
        let (sender, messages) = mpsc::unbounded_channel();
        let path = http::uri::PathAndQuery::from_static(PATH);
        let response = client.streaming(Request::new(received(messages)), path, Codec::default()).await?;
        Ok(Self { sender, receiver: response.into_inner(), message: Bytes::from(vec![7; message_bytes]) })
    }

    /// Sends messages, so many in flight, and receives them again.
    pub async fn echo(&mut self, in_flight: usize, count: u64) -> anyhow::Result<Times> {
        let count = count as usize;
        let (mut sent_at, mut each, mut sent) = (VecDeque::new(), Vec::with_capacity(count), 0);
        let started = Instant::now();
        while each.len() < count {
            while sent_at.len() < in_flight && sent < count {
                sent_at.push_back(Instant::now());
                self.sender.send(self.message.clone())?;
                sent += 1;
            }
            self.receiver.message().await?;
            each.extend(sent_at.pop_front().map(|sent_at| sent_at.elapsed()));
        }
        Ok(Times { each, all: started.elapsed() })
    }
}

fn received(mut messages: mpsc::UnboundedReceiver<Bytes>) -> impl Stream<Item = Bytes> {
    stream::poll_fn(move |cx| messages.poll_recv(cx))
}
