//! Requests to a control node, on the connection for transfers.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, stream};
use model::id::Incarnation;
use rustls::pki_types::CertificateDer;
use tokio::sync::{Mutex, oneshot};
use tonic::Status;

use super::Client;
use super::connection::{Connection, GrpcClient};
use super::error::RequestError;
use crate::bytes_stream::{ByteStream, chunks, received};
use crate::proto::answer_part::Part as AnswerPart;
use crate::proto::put_object_part::Part as PutPart;
use crate::refusal::Refusal;
use crate::tether::Proof;
use crate::{PendingKey, proto};

/// Content that is received. An incomplete one ends with an error.
pub type Content = BoxStream<'static, Result<Bytes, RequestError>>;

/// Sends requests. Clones share one connection, which is opened on first use and again after it broke.
#[derive(Clone)]
pub struct Requests {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    address: String,
    connection: Mutex<Option<Connection>>,
}

impl Requests {
    pub(super) fn new(client: Client, address: String) -> Self {
        Self { shared: Arc::new(Shared { client, address, connection: Mutex::new(None) }) }
    }

    /// Boxed: the compiler cannot prove that a future with the borrowed connection can be sent.
    fn client(&self) -> BoxFuture<'static, Result<GrpcClient, RequestError>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            let mut current = shared.connection.lock().await;
            if let Some(connection) = current.as_ref().filter(|connection| !connection.is_closed()) {
                return Ok(connection.client());
            }
            let connection = shared.client.open_bulk(&shared.address).await.map_err(RequestError::Connect)?;
            let client = connection.client();
            *current = Some(connection);
            Ok(client)
        })
    }

    /// Reads an object from an offset.
    pub async fn get_object(&self, kind: &str, id: Bytes, offset: u64) -> Result<Content, RequestError> {
        let request = proto::GetObjectRequest { kind: kind.to_owned(), id, offset };
        let response = self.client().await?.get_object(request).await.map_err(failure)?;
        Ok(received(response.into_inner(), failure))
    }

    /// Writes an object. An error in the content cancels the request.
    pub fn put_object(
        &self,
        kind: &str,
        id: Bytes,
        content: ByteStream,
    ) -> BoxFuture<'static, Result<Bytes, RequestError>> {
        let header = PutPart::Header(proto::PutObjectHeader { kind: kind.to_owned(), id });
        let (error, failed) = oneshot::channel();
        let data = until_error(chunks(content).boxed(), error).map(PutPart::Data);
        let parts = stream::once(async { header }).chain(data).chain(stream::once(async { PutPart::End(true) }));
        let parts = parts.map(|part| proto::PutObjectPart { part: Some(part) }).boxed();
        let (client, parts) = (self.client(), PutParts(parts));
        Box::pin(async move { put(client.await?, parts, failed).await })
    }

    /// Calls a method. The answer is streamed.
    pub async fn call(&self, method: &str, body: Bytes) -> Result<Content, RequestError> {
        let request = proto::CallRequest { method: method.to_owned(), body };
        let response = self.client().await?.call(request).await.map_err(failure)?;
        Ok(received(response.into_inner(), failure))
    }

    /// Renews the certificate of this node, with a new key. Connections in use are not affected.
    pub async fn renew(&self) -> Result<(), RequestError> {
        let invalid = |error: crate::Error| RequestError::Invalid(error.to_string());
        let key = PendingKey::generate().map_err(invalid)?;
        let request = proto::RenewRequest { signing_request: Bytes::copy_from_slice(key.signing_request()) };
        let response = self.client().await?.renew(request).await.map_err(failure)?;
        let certificate = CertificateDer::from(response.into_inner().certificate.to_vec());
        let identity = self.shared.client.identity().clone();
        // Writes a file durably.
        let renewed = tokio::task::spawn_blocking(move || identity.renew(key, certificate)).await;
        renewed.map_err(|error| RequestError::Invalid(error.to_string()))?.map_err(invalid)
    }

    /// Gets the right to open one tether.
    pub async fn prepare_tether(&self, incarnation: Incarnation) -> Result<Proof, RequestError> {
        let request = proto::PrepareTetherRequest { incarnation: incarnation.0 };
        let response = self.client().await?.prepare_tether(request).await.map_err(failure)?.into_inner();
        let invalid = |_| RequestError::Invalid("a challenge or secret of the wrong size".to_owned());
        Ok(Proof {
            node: self.shared.client.identity().node().node,
            incarnation,
            challenge: response.challenge.as_ref().try_into().map_err(invalid)?,
            secret: response.secret.as_ref().try_into().map_err(invalid)?,
        })
    }

    /// Sends the answer to an ask.
    pub(super) async fn answer(&self, ask: u64, answer: Result<ByteStream, Refusal>) -> Result<(), RequestError> {
        let content = answer.unwrap_or_else(|refusal| stream::once(async { Err(refusal) }).boxed());
        let content = chunks(content).map(|part| match part {
            Ok(data) => AnswerPart::Data(data),
            Err(refusal) => AnswerPart::Refusal(refusal.to_proto()),
        });
        let end = stream::once(async { AnswerPart::End(true) });
        let parts = stream::once(async move { AnswerPart::AskId(ask) }).chain(content).chain(end);
        let parts = parts.map(|part| proto::AnswerPart { part: Some(part) });
        self.client().await?.answer(parts).await.map(|_| ()).map_err(failure)
    }
}

/// The content until its first error, which is reported. The stream then never ends: its request is to be cancelled.
fn until_error(content: ByteStream, error: oneshot::Sender<Refusal>) -> BoxStream<'static, Bytes> {
    stream::unfold((content, Some(error)), |(mut content, mut error)| async move {
        match content.next().await? {
            Ok(data) => Some((data, (content, error))),
            Err(refusal) => {
                let _ = error.take().map(|error| error.send(refusal));
                std::future::pending().await
            }
        }
    })
    .boxed()
}

/// The messages of an upload. A type of its own: the compiler cannot prove that a future with the bare stream can be sent.
struct PutParts(BoxStream<'static, proto::PutObjectPart>);

impl Stream for PutParts {
    type Item = proto::PutObjectPart;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

/// Sends an object until it is taken or its content has failed.
async fn put(
    mut client: GrpcClient,
    parts: PutParts,
    failed: oneshot::Receiver<Refusal>,
) -> Result<Bytes, RequestError> {
    let result = tokio::select! {
        result = client.put_object(parts) => result.map_err(failure),
        Ok(refusal) = failed => Err(RequestError::Refused(refusal)),
    };
    result.map(|response| response.into_inner().result)
}

fn failure(status: Status) -> RequestError {
    match Refusal::from_status(&status) {
        Some(refusal) => RequestError::Refused(refusal),
        None => RequestError::Interrupted(status.message().to_owned()),
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("address", &self.shared.address).finish_non_exhaustive()
    }
}
