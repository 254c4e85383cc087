//! Splits a string at its `${…}`.

use crate::diagnostic::code;
use crate::expression::TemplateError;
use crate::limits;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment<'a> {
    Text(&'a str),
    /// Text between the braces.
    Expression(&'a str),
}

/// Whether a string contains templates.
pub(crate) fn has_templates(text: &str) -> bool {
    text.contains("${")
}

/// Splits a string. `$${` is an escaped `${`.
pub(crate) fn segments(text: &str) -> Result<Vec<Segment<'_>>, TemplateError> {
    let mut segments = Vec::new();
    let mut rest = text;
    let mut templates = 0;
    while let Some(at) = rest.find("${") {
        templates += 1;
        if templates > limits::TEXT_EXPRESSIONS_MAX {
            let message = format!("the string has more than {} templates", limits::TEXT_EXPRESSIONS_MAX);
            return Err(TemplateError { code: code::TOO_LARGE, ..TemplateError::new(message) });
        }
        if rest[..at].ends_with('$') {
            if at > 1 {
                segments.push(Segment::Text(&rest[..at - 1]));
            }
            segments.push(Segment::Text("${"));
            rest = &rest[at + 2..];
            continue;
        }
        if at > 0 {
            segments.push(Segment::Text(&rest[..at]));
        }
        let body = &rest[at + 2..];
        let Some(end) = end(body) else {
            let message = "the closing `}` of a `${` is missing";
            return Err(TemplateError::with_suggestion(message, Some("for a literal `${` write `$${`".to_owned())));
        };
        segments.push(Segment::Expression(&body[..end]));
        rest = &body[end + 1..];
    }
    if !rest.is_empty() {
        segments.push(Segment::Text(rest));
    }
    Ok(segments)
}

/// Offset of the closing brace, the first one outside of quotes.
fn end(body: &str) -> Option<usize> {
    let mut quote = None;
    let mut bytes = body.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match (quote, byte) {
            (Some(_), b'\\') => {
                bytes.next();
            }
            (Some(open), byte) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'}') => return Some(at),
            (None, _) => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<Segment<'_>> {
        segments(text).unwrap()
    }

    #[test]
    fn a_string_is_split_at_its_templates() {
        use Segment::{Expression, Text};
        assert_eq!(split("plain $5 {x}"), [Text("plain $5 {x}")]);
        assert_eq!(split("${a}"), [Expression("a")]);
        assert_eq!(split("x ${a} y ${ b }"), [Text("x "), Expression("a"), Text(" y "), Expression(" b ")]);
        assert_eq!(split("$${a} ${b}"), [Text("${"), Text("a} "), Expression("b")]);
        assert_eq!(split("x$${a}"), [Text("x"), Text("${"), Text("a}")]);
        assert_eq!(split(""), []);
    }

    #[test]
    fn a_brace_in_quotes_does_not_close_a_template() {
        assert_eq!(split(r#"${a + "}" + '}' + "\"}"}x"#)[0], Segment::Expression(r#"a + "}" + '}' + "\"}""#));
        assert!(segments("${a").is_err());
        assert!(segments(r#"${"a}"#).is_err());
    }
}
