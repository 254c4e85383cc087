//! Join tokens: created, listed and revoked.

use std::sync::Arc;

use ::api::{CreateJoinToken, JoinTokenView, NewJoinTokenView, Page};
use axum::Json as JsonBody;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode};
use model::limits;
use model::time::{Millis, Timestamp};
use transport::token::{TokenId, TokenRecord, Uses};

use super::actor::actor;
use super::parameters::Parameters;
use super::path::Path;
use super::problem::{ProblemKind, Refused};
use super::{App, body};
use crate::clock;
use crate::cluster::{NAME_BYTES_MAX, NewToken, is_usable};
use crate::error::Error;

/// Lifetime of a token without one of its own.
const LIFETIME_DEFAULT: Millis = Millis::from_secs(3600);

pub(crate) async fn create(
    Shared(app): Shared<Arc<App>>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<(StatusCode, JsonBody<NewJoinTokenView>), Refused> {
    let CreateJoinToken { reusable, expires_in_ms, note } = body::read_optional(&headers, request_body).await?;
    let (core, by) = (app.core()?, actor(&headers)?);
    let note = note.unwrap_or_default();
    if note.len() > NAME_BYTES_MAX {
        let detail = format!("the note has more than {NAME_BYTES_MAX} bytes");
        return Err(Refused::detailed(ProblemKind::InvalidField, detail).at("note"));
    }
    let lifetime = expires_in_ms.map_or(LIFETIME_DEFAULT, Millis);
    if lifetime.0 == 0 || lifetime > limits::DURATION_MAX {
        let detail = format!("the lifetime must be between 1 and {} ms", limits::DURATION_MAX.0);
        return Err(Refused::detailed(ProblemKind::InvalidField, detail).at("expires_in_ms"));
    }
    let uses = if reusable { Uses::Reusable } else { Uses::Single };
    let created = core.cluster.create_token(uses, Some(clock::now() + lifetime), note).await;
    let NewToken { token, record, address } = created.map_err(|error| match error {
        Error::ClusterListen { .. } | Error::Membership(_) => {
            Refused::detailed(ProblemKind::ClusterUnavailable, error.to_string())
        }
        Error::TooManyTokens => Refused::new(ProblemKind::TooManyTokens),
        error => error.into(),
    })?;
    tracing::info!(token = %token.id(), by = by.as_deref(), "a join token was created");
    let view = NewJoinTokenView {
        id: token.id().to_string(),
        token: token.to_string(),
        address: address.to_string(),
        expires_at: record.expires_at.map(Timestamp),
        reusable,
    };
    Ok((StatusCode::CREATED, JsonBody(view)))
}

pub(crate) async fn list(
    Shared(app): Shared<Arc<App>>,
    _: Parameters,
) -> Result<JsonBody<Page<JoinTokenView>>, Refused> {
    let now = clock::now();
    let tokens = app.core()?.read(|core| Ok(core.cluster.tokens()?)).await?;
    Ok(JsonBody(Page::whole(tokens.into_iter().map(|token| view(token, now)).collect())))
}

pub(crate) async fn revoke(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<StatusCode, Refused> {
    let unknown = || Refused::detailed(ProblemKind::UnknownToken, format!("there is no join token `{id}`")).at("id");
    let token = TokenId(u64::from_str_radix(&id, 16).map_err(|_| unknown())?);
    let by = actor(&headers)?;
    match app.core()?.read(move |core| Ok(core.cluster.revoke_token(token)?)).await? {
        true => {
            tracing::info!(%token, by = by.as_deref(), "a join token was revoked");
            Ok(StatusCode::NO_CONTENT)
        }
        false => Err(unknown()),
    }
}

fn view(token: TokenRecord, now: Millis) -> JoinTokenView {
    let state = match () {
        () if token.revoked => "revoked",
        () if is_usable(&token, now) => "usable",
        () if token.expires_at.is_some_and(|at| at <= now) => "expired",
        () => "used",
    };
    JoinTokenView {
        id: token.id.to_string(),
        created_at: Timestamp(token.created_at),
        expires_at: token.expires_at.map(Timestamp),
        reusable: token.uses == Uses::Reusable,
        used: token.used_count,
        state: state.to_owned(),
        note: Some(token.note).filter(|note| !note.is_empty()),
    }
}
