//! A text taken apart at its `${…}`.

use crate::diagnostic::code;
use crate::expression::Wrong;
use crate::limits;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Text(&'a str),
    /// What stands between the braces.
    Expression(&'a str),
}

/// Whether a text is more than itself.
pub(crate) fn has_templates(text: &str) -> bool {
    text.contains("${")
}

/// Splits a text. `$${` writes `${`.
pub(crate) fn pieces(text: &str) -> Result<Vec<Piece<'_>>, Wrong> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut templates = 0;
    while let Some(at) = rest.find("${") {
        templates += 1;
        if templates > limits::TEXT_EXPRESSIONS_MAX {
            let message = format!("more than {} templates are in one text", limits::TEXT_EXPRESSIONS_MAX);
            return Err(Wrong { code: code::TOO_LARGE, ..Wrong::new(message) });
        }
        if rest[..at].ends_with('$') {
            if at > 1 {
                pieces.push(Piece::Text(&rest[..at - 1]));
            }
            pieces.push(Piece::Text("${"));
            rest = &rest[at + 2..];
            continue;
        }
        if at > 0 {
            pieces.push(Piece::Text(&rest[..at]));
        }
        let body = &rest[at + 2..];
        let Some(end) = end(body) else {
            let message = "a `${` is not closed by `}`";
            return Err(Wrong::advise(message, Some("to write `${` itself, write `$${`".to_owned())));
        };
        pieces.push(Piece::Expression(&body[..end]));
        rest = &body[end + 1..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

/// The closing brace: the first one that is not inside of a quoted text.
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

    fn split(text: &str) -> Vec<Piece<'_>> {
        pieces(text).unwrap()
    }

    #[test]
    fn a_text_is_taken_apart() {
        use Piece::{Expression, Text};
        assert_eq!(split("plain $5 {x}"), [Text("plain $5 {x}")]);
        assert_eq!(split("${a}"), [Expression("a")]);
        assert_eq!(split("x ${a} y ${ b }"), [Text("x "), Expression("a"), Text(" y "), Expression(" b ")]);
        assert_eq!(split("$${a} ${b}"), [Text("${"), Text("a} "), Expression("b")]);
        assert_eq!(split("x$${a}"), [Text("x"), Text("${"), Text("a}")]);
        assert_eq!(split(""), []);
    }

    #[test]
    fn a_brace_in_quotes_closes_nothing() {
        assert_eq!(split(r#"${a + "}" + '}' + "\"}"}x"#)[0], Piece::Expression(r#"a + "}" + '}' + "\"}""#));
        assert!(pieces("${a").is_err());
        assert!(pieces(r#"${"a}"#).is_err());
    }
}
