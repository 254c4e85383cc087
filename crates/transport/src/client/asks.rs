//! Answers requests of the control node, for as long as the link is open.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::Answers;
use super::connection::GrpcClient;
use super::requests::Requests;
use crate::limits::ASKS_MAX;
use crate::link::Sender;
use crate::proto;

pub(super) async fn run(
    mut client: GrpcClient,
    request: proto::AsksRequest,
    answers: Arc<dyn Answers>,
    requests: Requests,
    link: Sender,
) {
    let serve = async {
        let mut asks = client.asks(request).await?.into_inner();
        let places = Arc::new(Semaphore::new(ASKS_MAX));
        while let Some(ask) = asks.message().await? {
            let Ok(place) = places.clone().acquire_owned().await else { break };
            let (answers, requests) = (answers.clone(), requests.clone());
            tokio::spawn(async move {
                let answer = answers.answer(&ask.method, ask.body).await;
                if let Err(error) = requests.answer(ask.id, answer).await {
                    tracing::debug!(method = ask.method, %error, "the control node did not take an answer");
                }
                drop(place);
            });
        }
        Ok::<_, tonic::Status>(())
    };
    tokio::select! {
        result = serve => match result {
            Ok(()) => {}
            Err(status) => tracing::debug!(%status, "requests of the control node are not answered any more"),
        },
        _ = link.closed() => {}
    }
}
