//! The gRPC service of one connection.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use model::id::{Incarnation, NodeId};
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming, async_trait};

use super::asks::Part;
use super::{Action, Core, JoinRequest, Peer, now};
use crate::bytes_stream::{ByteStream, ChunkStream, INCOMPLETE, to_chunk_stream};
use crate::hello::{Hello, ProcessNonce};
use crate::limits::{ADDRESSES_MAX, NAME_BYTES_MAX, TEXT_BYTES_MAX, VERSION_BYTES_MAX};
use crate::link::Opening;
use crate::proto::answer_part::Part as AnswerPart;
use crate::proto::put_object_part::Part as PutPart;
use crate::proto::{self, transport_server::Transport};
use crate::refusal::{Refusal, RefusalKind};
use crate::token::{Secret, TokenId};
use crate::wire::Wire;
use crate::{NodeIdentity, authority};

pub(super) struct Handler {
    core: Arc<Core>,
    peer: Option<NodeIdentity>,
    address: SocketAddr,
    wire: Wire,
}

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Handler {
    pub(super) fn new(core: Arc<Core>, peer: Option<NodeIdentity>, address: SocketAddr, wire: Wire) -> Self {
        Self { core, peer, address, wire }
    }

    /// The member behind this connection, if it may do this.
    fn member(&self, action: Action) -> Result<NodeIdentity, Status> {
        let peer = self.peer.ok_or_else(|| {
            Refusal::new(RefusalKind::NoCertificate, "this needs a certificate of the cluster: join first").to_status()
        })?;
        self.core.service.authorize(&peer, action).map_err(|refusal| refusal.to_status())?;
        Ok(peer)
    }

    async fn admit(&self, request: proto::JoinRequest) -> Result<proto::JoinResponse, Refusal> {
        self.core.joins.take(self.address.ip(), Instant::now())?;
        let request_invalid = |what: &str| Refusal::invalid(format!("invalid join request: {what}"));
        let texts = request.addresses.iter().chain([&request.name]);
        if texts.into_iter().any(|text| text.len() > TEXT_BYTES_MAX) || request.addresses.len() > ADDRESSES_MAX {
            return Err(request_invalid("a name or address is too long, or there are too many addresses"));
        }
        if request.software_version.len() > VERSION_BYTES_MAX {
            return Err(request_invalid("the software version is too long"));
        }
        let secret = request.token_secret.as_ref().try_into().map_err(|_| request_invalid("the token"))?;
        let _place = self.core.joins.place().await;
        let key =
            authority::requested_key(&request.signing_request).map_err(|error| Refusal::invalid(error.to_string()))?;
        let node = NodeId(request.node_id);
        let join = JoinRequest {
            token: TokenId(request.token_id),
            secret: Secret::from_bytes(secret),
            node,
            key,
            name: request.name,
            software_version: request.software_version,
            addresses: request.addresses,
            from: self.address,
        };
        let role = self.core.service.join(join).await?;
        let authority = &self.core.authority;
        let identity = NodeIdentity { cluster: authority.cluster(), node, role };
        let certificate = self.issue(&request.signing_request, identity)?;
        Ok(proto::JoinResponse {
            certificate,
            authority: Bytes::copy_from_slice(authority.certificate()),
            cluster_id: Bytes::copy_from_slice(authority.cluster().as_bytes()),
            cluster_key: Bytes::copy_from_slice(authority.cluster_key().as_bytes()),
        })
    }

    fn issue(&self, signing_request: &[u8], identity: NodeIdentity) -> Result<Bytes, Refusal> {
        let issued = self.core.authority.issue(signing_request, identity, now());
        issued
            .map(|certificate| Bytes::copy_from_slice(&certificate))
            .map_err(|error| Refusal::invalid(error.to_string()))
    }
}

#[async_trait]
impl Transport for Handler {
    type ConnectStream = ResponseStream<proto::Frame>;
    type GetObjectStream = ChunkStream;
    type CallStream = ChunkStream;
    type AsksStream = ResponseStream<proto::Ask>;

    async fn join(&self, request: Request<proto::JoinRequest>) -> Result<Response<proto::JoinResponse>, Status> {
        self.admit(request.into_inner()).await.map(Response::new).map_err(|refusal| refusal.to_status())
    }

    async fn renew(&self, request: Request<proto::RenewRequest>) -> Result<Response<proto::RenewResponse>, Status> {
        let peer = self.member(Action::Renew)?;
        let certificate =
            self.issue(&request.get_ref().signing_request, peer).map_err(|refusal| refusal.to_status())?;
        Ok(Response::new(proto::RenewResponse { certificate }))
    }

    async fn connect(
        &self,
        request: Request<Streaming<proto::Frame>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let identity = self.member(Action::Connect)?;
        let mut incoming = request.into_inner();
        let first = timeout(self.core.options.handshake_timeout, incoming.message()).await;
        let refuse = |text: &str| Refusal::invalid(text).to_status();
        let frame = first.map_err(|_| refuse("no hello in time"))??.ok_or_else(|| refuse("no hello"))?;
        let hello = frame.hello.ok_or_else(|| refuse("the first frame has no hello"))?;
        if !frame.envelopes.is_empty() {
            return Err(refuse("envelopes in the frame of the hello"));
        }
        let own = &self.core.hello;
        let agreed = Hello::from_proto(hello).and_then(|hello| Ok((hello.agree(own, &identity)?, hello)));
        let (protocol, hello) = agreed.map_err(|refusal| refusal.to_status())?;
        let (opening, outgoing) = Opening::new(own, self.core.options.queue_bytes_max, self.wire.clone());
        let (sender, receiver) = opening.finish(incoming);
        let requests = self.core.asks.connect(identity.node, hello.process, sender.clone());
        let peer = Peer { identity, hello, protocol, address: self.address, sender, receiver, requests };
        self.core.service.connected(peer).await.map_err(|refusal| refusal.to_status())?;
        Ok(Response::new(Box::pin(outgoing.map(Ok))))
    }

    async fn get_object(
        &self,
        request: Request<proto::GetObjectRequest>,
    ) -> Result<Response<Self::GetObjectStream>, Status> {
        let peer = self.member(Action::Request)?;
        let proto::GetObjectRequest { kind, id, offset } = request.into_inner();
        check_name(&kind, &id)?;
        let content = self.core.service.get_object(peer, &kind, id, offset).await;
        content.map(|content| Response::new(to_chunk_stream(content))).map_err(|refusal| refusal.to_status())
    }

    async fn put_object(
        &self,
        request: Request<Streaming<proto::PutObjectPart>>,
    ) -> Result<Response<proto::PutObjectResponse>, Status> {
        let peer = self.member(Action::Request)?;
        let mut parts = request.into_inner();
        let first = parts.message().await?.and_then(|part| part.part);
        let Some(PutPart::Header(proto::PutObjectHeader { kind, id })) = first else {
            return Err(Refusal::invalid("the first message is not the header of an object").to_status());
        };
        check_name(&kind, &id)?;
        let stored = self.core.service.put_object(peer, &kind, id, object_content(parts)).await;
        stored.map(|result| Response::new(proto::PutObjectResponse { result })).map_err(|refusal| refusal.to_status())
    }

    async fn call(&self, request: Request<proto::CallRequest>) -> Result<Response<Self::CallStream>, Status> {
        let peer = self.member(Action::Request)?;
        let proto::CallRequest { method, body } = request.into_inner();
        check_name(&method, &[])?;
        let content = self.core.service.call(peer, &method, body).await;
        content.map(|content| Response::new(to_chunk_stream(content))).map_err(|refusal| refusal.to_status())
    }

    async fn asks(&self, request: Request<proto::AsksRequest>) -> Result<Response<Self::AsksStream>, Status> {
        let peer = self.member(Action::Request)?;
        let nonce = request.get_ref().process_nonce.as_ref().try_into();
        let nonce = nonce.map_err(|_| Refusal::invalid("a nonce of other than 16 bytes").to_status())?;
        let opened = self.core.asks.open(peer.node, ProcessNonce(nonce));
        let asks = opened.map_err(|refusal| refusal.to_status())?;
        let asks = stream::unfold(asks, |mut asks| async move { asks.recv().await.map(|ask| (Ok(ask), asks)) });
        Ok(Response::new(Box::pin(asks)))
    }

    async fn answer(
        &self,
        request: Request<Streaming<proto::AnswerPart>>,
    ) -> Result<Response<proto::AnswerResponse>, Status> {
        let peer = self.member(Action::Request)?;
        let mut parts = request.into_inner();
        let first = parts.message().await?.and_then(|part| part.part);
        let Some(AnswerPart::AskId(ask)) = first else {
            return Err(Refusal::invalid("the first message does not name a request").to_status());
        };
        let gone = || Refusal::new(RefusalKind::NotFound, "nobody waits for this answer").to_status();
        let answer = self.core.asks.answer(peer.node, ask).ok_or_else(gone)?;
        loop {
            let next = tokio::select! {
                next = parts.message() => next?,
                () = answer.closed() => return Err(gone()),
            };
            let (part, is_last) = match next.map(|part| part.part) {
                Some(Some(AnswerPart::Data(data))) => (Part::Data(data), false),
                Some(Some(AnswerPart::Refusal(refusal))) => (Part::Refused(Refusal::from_proto(refusal)), true),
                Some(Some(AnswerPart::AskId(_)) | None) => {
                    return Err(Refusal::invalid("a part of an answer without data").to_status());
                }
                Some(Some(AnswerPart::End(_))) => (Part::End, true),
                None => return Err(Refusal::invalid(INCOMPLETE).to_status()),
            };
            answer.send(part).await.map_err(|_| gone())?;
            if is_last {
                return Ok(Response::new(proto::AnswerResponse {}));
            }
        }
    }

    async fn prepare_tether(
        &self,
        request: Request<proto::PrepareTetherRequest>,
    ) -> Result<Response<proto::PrepareTetherResponse>, Status> {
        let peer = self.member(Action::Request)?;
        let incarnation = Incarnation(request.get_ref().incarnation);
        let issued = self.core.tethers.issue(peer.node, incarnation, Instant::now());
        let proof = issued.map_err(|error| Refusal::new(RefusalKind::Failed, error.to_string()).to_status())?;
        Ok(Response::new(proto::PrepareTetherResponse {
            challenge: Bytes::copy_from_slice(&proof.challenge),
            secret: Bytes::copy_from_slice(&proof.secret),
        }))
    }
}

/// The content of an object. It ends with an error if it is incomplete.
fn object_content(parts: Streaming<proto::PutObjectPart>) -> ByteStream {
    let failed = |text: &str| Refusal::new(RefusalKind::Failed, text);
    stream::unfold(Some(parts), move |parts| async move {
        let mut parts = parts?;
        match parts.message().await.map(|part| part.map(|part| part.part)) {
            Ok(Some(Some(PutPart::Data(data)))) => Some((Ok(data), Some(parts))),
            Ok(Some(Some(PutPart::End(_)))) => None,
            Ok(Some(Some(PutPart::Header(_)) | None)) => Some((Err(failed("a part of an object without data")), None)),
            Ok(None) => Some((Err(failed(INCOMPLETE)), None)),
            Err(status) => Some((Err(failed(status.message())), None)),
        }
    })
    .boxed()
}

fn check_name(name: &str, id: &[u8]) -> Result<(), Status> {
    match name.len().max(id.len()) <= NAME_BYTES_MAX {
        true => Ok(()),
        false => Err(Refusal::invalid("a name or id of more than 1,024 bytes").to_status()),
    }
}
