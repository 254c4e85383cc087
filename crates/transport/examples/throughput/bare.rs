//! A stream of bare tonic that echoes messages, with TLS on ring.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use futures_util::{Stream, stream};
use rcgen::{CertificateParams, KeyPair};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::server::{NamedService, StreamingService};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::{Result, Times, envelope};

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
    type Future = Ready<std::result::Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        ready(Ok(Response::new(request.into_inner())))
    }
}

impl tower_service::Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = std::result::Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async { Ok(tonic::server::Grpc::new(Codec::default()).streaming(Echo, request).await) })
    }
}

pub struct Bare {
    sender: mpsc::UnboundedSender<Bytes>,
    receiver: Streaming<Bytes>,
}

impl Bare {
    pub async fn start() -> Result<Self> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?.pem();
        let identity = Identity::from_pem(&certificate, key.serialize_pem());
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let incoming = stream::unfold(listener, |listener| async move {
            let accepted = listener.accept().await.and_then(|(stream, _)| {
                stream.set_nodelay(true)?;
                Ok(stream)
            });
            Some((accepted, listener))
        });
        let router = Server::builder().tls_config(ServerTlsConfig::new().identity(identity))?.add_service(Echo);
        tokio::spawn(router.serve_with_incoming(Box::pin(incoming)));
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(certificate)).domain_name("localhost");
        let endpoint = Endpoint::from_shared(format!("https://{address}"))?.tls_config(tls)?.tcp_nodelay(true);
        let mut client = tonic::client::Grpc::new(endpoint.connect().await?);
        client.ready().await?;
        let (sender, messages) = mpsc::unbounded_channel();
        let path = http::uri::PathAndQuery::from_static(PATH);
        let response = client.streaming(Request::new(received(messages)), path, Codec::default()).await?;
        Ok(Self { sender, receiver: response.into_inner() })
    }

    pub async fn echo(&mut self, in_flight: usize, count: usize) -> Result<Times> {
        let (mut sent_at, mut each) = (VecDeque::new(), Vec::with_capacity(count));
        let started = Instant::now();
        while each.len() < count {
            while sent_at.len() < in_flight {
                sent_at.push_back(Instant::now());
                self.sender.send(envelope())?;
            }
            self.receiver.message().await?;
            each.extend(sent_at.pop_front().map(|sent_at| sent_at.elapsed()));
        }
        let all = started.elapsed();
        for _ in sent_at {
            self.receiver.message().await?;
        }
        Ok(Times { each, all })
    }
}

fn received(mut messages: mpsc::UnboundedReceiver<Bytes>) -> impl Stream<Item = Bytes> {
    stream::poll_fn(move |cx| messages.poll_recv(cx))
}
