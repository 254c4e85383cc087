//! Bodies: their type, their size, and what they say, with errors that help.

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use model::limits;
use serde::Deserialize;

use super::problem::{Fault, Refused};

/// The types that routes take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Media {
    Json,
    Ndjson,
}

/// The type of content that is only bytes.
pub(crate) const OCTETS: &str = "application/octet-stream";

/// Parts of the contract that this version does not have yet.
const UNSUPPORTED: [&str; 2] = ["compensation", "exclusive"];

/// What the client says its body is, with its parameters and without.
fn declared(headers: &HeaderMap) -> (&str, &str) {
    let declared = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    (declared, declared.split(';').next().unwrap_or_default().trim())
}

/// The declared type of a body. None, or a form's, is refused: such a body may come from a web page.
pub(crate) fn media(headers: &HeaderMap) -> Result<Media, Refused> {
    let (declared, kind) = declared(headers);
    if kind.eq_ignore_ascii_case("application/json") {
        Ok(Media::Json)
    } else if kind.eq_ignore_ascii_case("application/x-ndjson") {
        Ok(Media::Ndjson)
    } else {
        let detail = format!("the content type is `{declared}`: send `application/json`");
        Err(Refused::saying(Fault::UnsupportedMediaType, detail))
    }
}

/// Whether a body is said to be YAML.
pub(crate) fn is_yaml(headers: &HeaderMap) -> bool {
    let (_, kind) = declared(headers);
    ["application/yaml", "application/x-yaml", "text/yaml"].iter().any(|known| kind.eq_ignore_ascii_case(known))
}

/// Like [`media`] for routes that take JSON only.
pub(crate) fn expect_json(headers: &HeaderMap) -> Result<(), Refused> {
    match media(headers)? {
        Media::Json => Ok(()),
        Media::Ndjson => Err(Refused::saying(Fault::UnsupportedMediaType, "send `application/json`")),
    }
}

/// For routes that take content as it is.
pub(crate) fn expect_octets(headers: &HeaderMap) -> Result<(), Refused> {
    let (declared, kind) = declared(headers);
    if kind.eq_ignore_ascii_case(OCTETS) {
        return Ok(());
    }
    let detail = format!("the content type is `{declared}`: send `{OCTETS}`");
    Err(Refused::saying(Fault::UnsupportedMediaType, detail))
}

/// Reads a body of at most `max` bytes.
pub(crate) async fn read(body: Body, max: usize) -> Result<Bytes, Refused> {
    match Limited::new(body, max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large(max)),
        Err(error) => Err(Refused::saying(Fault::InvalidJson, format!("the body broke off: {error}"))),
    }
}

pub(crate) fn too_large(max: usize) -> Refused {
    Refused::saying(Fault::BodyTooLarge, format!("at most {max} bytes; nothing of it was accepted"))
}

/// Reads one job's worth of JSON. The fast way first; only a failure is looked into.
pub(crate) fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Refused> {
    if bytes.len() > limits::JOB_BODY_BYTES_MAX {
        return Err(too_large(limits::JOB_BODY_BYTES_MAX));
    }
    parse_large(bytes)
}

/// Reads JSON whose size was limited before.
pub(crate) fn parse_large<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Refused> {
    serde_json::from_slice(bytes).map_err(|_| explain::<T>(bytes))
}

/// Says what is wrong, where, and what was probably meant.
fn explain<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Refused {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let error = match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        Ok(_) => return Refused::saying(Fault::InvalidJson, "there is something behind the JSON value"),
        Err(error) => error,
    };
    let path = error.path().to_string();
    let message = error.inner().to_string();
    let refused = match unknown_name(&message) {
        Some(name) if UNSUPPORTED.contains(&name) => {
            let detail = format!("`{name}` is part of the API, but this version does not do it yet: leave it out");
            Refused::saying(Fault::UnsupportedField, detail)
        }
        Some(name) => {
            let hint = suggestion(name, &message).map(|best| format!(" Did you mean `{best}`?")).unwrap_or_default();
            Refused::saying(Fault::UnknownField, format!("`{name}` is not known here.{hint} ({message})"))
        }
        None => Refused::saying(Fault::InvalidJson, message),
    };
    if path == "." { refused } else { refused.at(path) }
}

/// The name in serde's "unknown field `x`, expected …" or "unknown variant `x`, …".
fn unknown_name(message: &str) -> Option<&str> {
    let rest = message.strip_prefix("unknown field `").or_else(|| message.strip_prefix("unknown variant `"))?;
    rest.split('`').next()
}

/// The expected name that is nearest to the unknown one, if any is near.
fn suggestion<'a>(name: &str, message: &'a str) -> Option<&'a str> {
    let expected = message.split_once("expected")?.1;
    let names = expected.split('`').skip(1).step_by(2);
    let (distance, best) = names.map(|other| (distance(name, other), other)).min()?;
    (distance <= 2.max(name.chars().count() / 3)).then_some(best)
}

/// How many letters have to be changed, added or left out to get from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use model::spec::JobSpec;

    use super::*;

    fn refused(text: &str) -> model::view::Problem {
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
    fn what_this_version_lacks_is_said_to_be_absent() {
        for name in UNSUPPORTED {
            let text = format!(r#"{{"run":{{"echo":{{}}}},"{name}":null}}"#);
            assert_eq!(refused(&text).code, "unsupported_field", "{text}");
        }
    }

    #[test]
    fn wrong_values_are_named_by_their_path() {
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
    fn broken_json_is_called_so() {
        for text in ["", "{", "[]", r#"{"run":{"echo":{}}} x"#, "null"] {
            assert_eq!(refused(text).code, "invalid_json", "{text}");
        }
    }

    #[test]
    fn distances_count_letters() {
        assert_eq!(distance("tpoic", "topic"), 2);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("same", "same"), 0);
    }

    proptest::proptest! {
        #[test]
        fn any_body_is_read_or_refused(bytes: Vec<u8>) {
            let _ = parse::<JobSpec>(&bytes);
        }
    }
}
