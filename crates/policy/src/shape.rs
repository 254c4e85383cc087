//! A first look at the text of a file, before a parser walks into it: nothing in it may be so deep or so long that
//! walking over its tree could use up the stack.

use crate::error::LoadError;
use crate::limits;

/// Refuses a text with too many brackets within brackets, or with an expression that goes on for too long.
pub(crate) fn check(file: &str, text: &str) -> Result<(), LoadError> {
    let mut scan = Scan { open: vec![Level { kind: b'{', links: 0 }], last: b'\n', ended: false };
    let mut bytes = text.bytes().enumerate().peekable();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'#' => while bytes.next_if(|(_, byte)| *byte != b'\n').is_some() {},
            b'"' | b'`' => {
                skip_text(byte, &mut bytes);
                scan.last = b'"';
            }
            _ => scan.take(byte).map_err(|what| {
                let before = &text.as_bytes()[..at];
                let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
                let column = 1 + before.iter().rev().take_while(|byte| **byte != b'\n').count();
                let message = match what {
                    TooMuch::Depth => format!("more than {} brackets within brackets", limits::BRACKET_DEPTH_MAX),
                    TooMuch::Links => format!(
                        "an expression with more than {} operators, dots and brackets in a row",
                        limits::EXPRESSION_LINKS_MAX
                    ),
                };
                LoadError::At {
                    file: file.to_owned(),
                    line,
                    column,
                    message: format!("{message}: give parts of it a name of their own"),
                }
            })?,
        }
    }
    Ok(())
}

fn skip_text(quote: u8, bytes: &mut impl Iterator<Item = (usize, u8)>) {
    while let Some((_, byte)) = bytes.next() {
        if byte == quote {
            return;
        }
        if byte == b'\\' && quote == b'"' {
            bytes.next();
        }
    }
}

enum TooMuch {
    Depth,
    Links,
}

/// The inside of one pair of brackets, or of the file.
struct Level {
    kind: u8,
    links: usize,
}

struct Scan {
    open: Vec<Level>,
    /// The last byte that was not white space.
    last: u8,
    /// Whether a line has ended since, in a place where that may end a statement.
    ended: bool,
}

impl Scan {
    fn take(&mut self, byte: u8) -> Result<(), TooMuch> {
        let depth = self.open.len();
        let level = &mut self.open[depth - 1];
        // Where statements stand, a line ends one, unless something was still to come or comes.
        if byte == b'\n' {
            self.ended |= level.kind == b'{' && !is_operator(self.last);
        } else if !byte.is_ascii_whitespace() && std::mem::take(&mut self.ended) && !is_operator(byte) {
            level.links = 0;
        }
        match byte {
            b'(' | b'[' | b'{' => {
                if depth > limits::BRACKET_DEPTH_MAX {
                    return Err(TooMuch::Depth);
                }
                level.link()?;
                self.open.push(Level { kind: byte, links: 0 });
            }
            b')' | b']' | b'}' if depth > 1 => {
                self.open.pop();
            }
            b',' | b';' => level.links = 0,
            _ if is_operator(byte) => level.link()?,
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            self.last = byte;
        }
        Ok(())
    }
}

impl Level {
    fn link(&mut self) -> Result<(), TooMuch> {
        self.links += 1;
        if self.links > limits::EXPRESSION_LINKS_MAX { Err(TooMuch::Links) } else { Ok(()) }
    }
}

fn is_operator(byte: u8) -> bool {
    matches!(byte, b'.' | b'+' | b'-' | b'*' | b'/' | b'%' | b'&' | b'|' | b'=' | b'<' | b'>' | b'!')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        check("a.rego", text).unwrap_err().to_string()
    }

    #[test]
    fn brackets_are_counted_at_the_limit() {
        let nested = |depth: usize| format!("x := {}1{}", "[".repeat(depth), "]".repeat(depth));
        check("a.rego", &nested(limits::BRACKET_DEPTH_MAX)).unwrap();
        assert!(error(&nested(limits::BRACKET_DEPTH_MAX + 1)).starts_with("a.rego:1:30: more than 24 brackets"));
    }

    #[test]
    fn an_expression_is_measured_at_the_limit_however_it_goes_on() {
        for (first, more) in [("a", ".b"), ("1", " +\n 1"), ("a", "[0]"), ("f", "()"), ("x", "\n.y")] {
            check("a.rego", &format!("{first}{}", more.repeat(limits::EXPRESSION_LINKS_MAX))).unwrap();
            let text = format!("{first}{}", more.repeat(limits::EXPRESSION_LINKS_MAX + 1));
            assert!(error(&text).contains("in a row"), "{text}");
        }
    }

    #[test]
    fn what_is_short_may_be_repeated() {
        check("a.rego", &"a := input.b.c + 1\n".repeat(100)).unwrap();
        check("a.rego", &format!("a := [{}]", "b.c, ".repeat(100))).unwrap();
        check("a.rego", &format!("a := \"{}\"", "[.+\\\"".repeat(100))).unwrap();
        check("a.rego", &format!("# {}\na := `{}`", "[.+".repeat(100), "[.+".repeat(100))).unwrap();
    }

    proptest::proptest! {
        #[test]
        fn any_text_ends_without_a_panic(text in ".{0,300}") {
            let _ = check("a.rego", &text);
        }
    }
}
