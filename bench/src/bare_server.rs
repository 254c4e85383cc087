//! Reference of the HTTP figures: an axum server that parses and returns the same JSON and does nothing else.

use api::AcceptedView;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use model::id::JobId;
use model::spec::JobSpec;
use model::state::State;
use model::time::{Millis, Timestamp};

pub fn serve() -> anyhow::Result<()> {
    let listen = std::env::var("BENCH_LISTEN")?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        use axum::serve::ListenerExt;
        let listener = tokio::net::TcpListener::bind(listen).await?.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let router = Router::new().route("/v1/jobs", post(accept)).route("/readyz", get(|| async {}));
        axum::serve(listener, router).await?;
        Ok(())
    })
}

async fn accept(body: Bytes) -> Result<(StatusCode, Json<AcceptedView>), StatusCode> {
    let spec: JobSpec = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let id = JobId(spec.topic.len() as u64);
    let created_at = Timestamp(Millis(1_800_000_000_000));
    let view = AcceptedView { id, seq: 1, state: State::Dispatched, created_at, deduplicated: false };
    Ok((StatusCode::CREATED, Json(view)))
}
