//! Request bodies: media type, size and parsing, with helpful errors.

use axum::body::HttpBody;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use model::{json, limits};
use serde::Deserialize;

use super::problem::{ProblemKind, Refused};

/// Limit of bodies that are only a few fields.
pub(crate) const SMALL_BODY_BYTES_MAX: usize = 16 * 1024;

/// Media types of bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Media {
    Json,
    Ndjson,
}

/// Media type of binary content.
pub(crate) const OCTETS: &str = "application/octet-stream";

/// Fields of the API that this version does not support yet.
const UNSUPPORTED: [&str; 1] = ["compensation"];

/// The declared content type, with and without its parameters.
fn declared(headers: &HeaderMap) -> (&str, &str) {
    let declared = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    (declared, declared.split(';').next().unwrap_or_default().trim())
}

/// The media type of a body. Forms and undeclared types are refused: web pages can send them.
pub(crate) fn media(headers: &HeaderMap) -> Result<Media, Refused> {
    let (declared, kind) = declared(headers);
    if kind.eq_ignore_ascii_case("application/json") {
        Ok(Media::Json)
    } else if kind.eq_ignore_ascii_case("application/x-ndjson") {
        Ok(Media::Ndjson)
    } else {
        let detail = format!("the content type is `{declared}`: send `application/json`");
        Err(Refused::detailed(ProblemKind::UnsupportedMediaType, detail))
    }
}

/// Whether the content type is YAML.
pub(crate) fn is_yaml(headers: &HeaderMap) -> bool {
    let (_, kind) = declared(headers);
    ["application/yaml", "application/x-yaml", "text/yaml"].iter().any(|known| kind.eq_ignore_ascii_case(known))
}

/// Like [`media`] for routes that take JSON only.
pub(crate) fn expect_json(headers: &HeaderMap) -> Result<(), Refused> {
    match media(headers)? {
        Media::Json => Ok(()),
        Media::Ndjson => Err(Refused::detailed(ProblemKind::UnsupportedMediaType, "send `application/json`")),
    }
}

/// For routes that take binary content.
pub(crate) fn expect_octets(headers: &HeaderMap) -> Result<(), Refused> {
    let (declared, kind) = declared(headers);
    if kind.eq_ignore_ascii_case(OCTETS) {
        return Ok(());
    }
    let detail = format!("the content type is `{declared}`: send `{OCTETS}`");
    Err(Refused::detailed(ProblemKind::UnsupportedMediaType, detail))
}

/// Reads a body of at most `max` bytes. A declared length beyond that is refused before anything is read.
pub(crate) async fn read(body: Body, max: usize) -> Result<Bytes, Refused> {
    if body.size_hint().lower() > max as u64 {
        return Err(too_large(max));
    }
    match Limited::new(body, max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large(max)),
        Err(error) => Err(Refused::detailed(ProblemKind::InvalidJson, format!("the body ended early: {error}"))),
    }
}

/// Reads an optional JSON body of at most [`SMALL_BODY_BYTES_MAX`]. Without one, the default.
pub(crate) async fn read_optional<T: Default + for<'de> Deserialize<'de>>(
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Refused> {
    let bytes = read(body, SMALL_BODY_BYTES_MAX).await?;
    if headers.contains_key(header::CONTENT_TYPE) || !bytes.is_empty() {
        expect_json(headers)?;
    }
    if bytes.is_empty() { Ok(T::default()) } else { parse(&bytes) }
}

pub(crate) fn too_large(max: usize) -> Refused {
    Refused::detailed(ProblemKind::BodyTooLarge, format!("at most {max} bytes; nothing was accepted"))
}

/// Parses the JSON of a job. Only after a failure a slower parser finds the field at fault.
pub(crate) fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Refused> {
    if bytes.len() > limits::JOB_BODY_BYTES_MAX {
        return Err(too_large(limits::JOB_BODY_BYTES_MAX));
    }
    parse_large(bytes)
}

/// Parses JSON whose size was already limited.
pub(crate) fn parse_large<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Refused> {
    if json::depth(bytes) > json::DEPTH_MAX {
        let detail = format!("values are nested more than {} levels deep", json::DEPTH_MAX);
        return Err(Refused::detailed(ProblemKind::InvalidJson, detail));
    }
    serde_json::from_slice(bytes).map_err(|_| explain::<T>(bytes))
}

/// Describes a parse error with its field and a suggestion.
fn explain<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Refused {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let error = match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        Ok(_) => return Refused::detailed(ProblemKind::InvalidJson, "there is more text after the JSON value"),
        Err(error) => error,
    };
    let path = error.path().to_string();
    let message = error.inner().to_string();
    let refused = match unknown_name(&message) {
        Some(name) if UNSUPPORTED.contains(&name) => {
            let detail = format!("`{name}` is part of the API, but this version does not support it yet: leave it out");
            Refused::detailed(ProblemKind::UnsupportedField, detail)
        }
        Some(name) => {
            let hint = suggestion(name, &message).map(|best| format!(" Did you mean `{best}`?")).unwrap_or_default();
            Refused::detailed(ProblemKind::UnknownField, format!("`{name}` is unknown.{hint} ({message})"))
        }
        None => Refused::detailed(ProblemKind::InvalidJson, message),
    };
    if path == "." { refused } else { refused.at(path) }
}

/// The name in serde's "unknown field `x`, expected …" or "unknown variant `x`, …".
fn unknown_name(message: &str) -> Option<&str> {
    let rest = message.strip_prefix("unknown field `").or_else(|| message.strip_prefix("unknown variant `"))?;
    rest.split('`').next()
}

/// The expected name closest to the unknown one, if any is close.
fn suggestion<'a>(name: &str, message: &'a str) -> Option<&'a str> {
    let expected = message.split_once("expected")?.1;
    let names = expected.split('`').skip(1).step_by(2);
    let (distance, best) = names.map(|other| (strsim::levenshtein(name, other), other)).min()?;
    (distance <= 2.max(name.chars().count() / 3)).then_some(best)
}

#[cfg(test)]
mod tests {
    use model::spec::JobSpec;

    use super::*;

    fn refused(text: &str) -> ::api::Problem {
        parse::<JobSpec>(text.as_bytes()).unwrap_err().problem()
    }

    #[test]
    fn a_misspelt_field_gets_a_suggestion() {
        let problem = refused(r#"{"run":{"echo":{}},"tpoic":"x"}"#);
        assert_eq!(problem.code, "unknown_field");
        assert!(problem.detail.contains("Did you mean `topic`?"), "{}", problem.detail);
        assert_eq!(problem.field.as_deref(), Some("tpoic"));
    }

    #[test]
    fn unsupported_fields_are_reported_as_such() {
        for name in UNSUPPORTED {
            let text = format!(r#"{{"run":{{"echo":{{}}}},"{name}":null}}"#);
            assert_eq!(refused(&text).code, "unsupported_field", "{text}");
        }
    }

    #[test]
    fn invalid_values_are_reported_with_their_path() {
        for (text, field) in [
            (r#"{"run":{"echo":{"delay_ms":-5}}}"#, "run.echo.delay_ms"),
            (r#"{"run":{"echo":{}},"timeout_ms":1e99}"#, "timeout_ms"),
            (r#"{"run":{"echo":{}},"deadline":"soon"}"#, "deadline"),
            (r#"{"run":{"echo":{}},"queue":"job_0000000000000"}"#, "queue"),
            (r#"{"run":{"echo":{}},"priority":"urgent"}"#, "priority"),
            (r#"{"run":{"wasm":{"component":"blob:1"}}}"#, "run.wasm.component"),
            (r#"{"run":{"process":{"worker":"x"}}}"#, "run.process.worker"),
            (r#"{"run":{"process":{}},"inputs":{"a":"b"}}"#, "inputs.a"),
            (r#"{"run":{"process":{}},"limits":{"pids":-1}}"#, "limits.pids"),
        ] {
            assert_eq!(refused(text).field.as_deref(), Some(field), "{text}: {:?}", refused(text));
        }
    }

    #[test]
    fn malformed_json_is_reported_as_such() {
        for text in ["", "{", "[]", r#"{"run":{"echo":{}}} x"#, "null"] {
            assert_eq!(refused(text).code, "invalid_json", "{text}");
        }
    }

    #[test]
    fn a_suggestion_is_within_two_edits_or_a_third_of_the_name() {
        let is_close = |name: &str, known: &str| suggestion(name, &format!("expected `{known}`")).is_some();
        assert!(is_close("tpoic", "topic") && is_close("same", "same") && is_close("timout_mss", "timeout_ms"));
        assert!(!is_close("abc", "xyz") && !is_close("", "abc"));
    }

    proptest::proptest! {
        #[test]
        fn parsing_any_body_does_not_panic(bytes: Vec<u8>) {
            let _ = parse::<JobSpec>(&bytes);
        }
    }
}
