//! Limits on nesting and expression length, checked on the text before parsing. The parser and the interpreter are
//! recursive, so deeper rules could overflow the stack.

use crate::error::LoadError;
use crate::limits;

/// Rejects a text with brackets nested too deeply or an expression that is too long.
pub(crate) fn check(file: &str, text: &str) -> Result<(), LoadError> {
    let mut scanner = Scanner { levels: vec![Level { kind: b'{', links: 0 }], last: b'\n', ended: false };
    let mut bytes = text.bytes().enumerate().peekable();
    while let Some((offset, byte)) = bytes.next() {
        match byte {
            b'#' => while bytes.next_if(|(_, byte)| *byte != b'\n').is_some() {},
            b'"' | b'`' => {
                skip_string(byte, &mut bytes);
                scanner.last = b'"';
            }
            _ => scanner.read(byte).map_err(|exceeded| {
                let before = &text.as_bytes()[..offset];
                let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
                let column = 1 + before.iter().rev().take_while(|byte| **byte != b'\n').count();
                let message = match exceeded {
                    Exceeded::Depth => format!("more than {} nested brackets", limits::BRACKET_DEPTH_MAX),
                    Exceeded::Links => format!(
                        "an expression with more than {} operators, dots and brackets in a row",
                        limits::EXPRESSION_LINKS_MAX
                    ),
                };
                LoadError::At {
                    file: file.to_owned(),
                    line,
                    column,
                    message: format!("{message}: split it into named parts"),
                }
            })?,
        }
    }
    Ok(())
}

fn skip_string(quote: u8, bytes: &mut impl Iterator<Item = (usize, u8)>) {
    while let Some((_, byte)) = bytes.next() {
        if byte == quote {
            return;
        }
        if byte == b'\\' && quote == b'"' {
            bytes.next();
        }
    }
}

enum Exceeded {
    Depth,
    Links,
}

/// The inside of one pair of brackets, or the top level of the file.
struct Level {
    kind: u8,
    links: usize,
}

struct Scanner {
    levels: Vec<Level>,
    /// Last byte that was not white space.
    last: u8,
    /// Whether a line end since then may have ended a statement.
    ended: bool,
}

impl Scanner {
    fn read(&mut self, byte: u8) -> Result<(), Exceeded> {
        let depth = self.levels.len();
        let level = &mut self.levels[depth - 1];
        // At statement level a line end ends the statement, unless an operator precedes or follows it.
        if byte == b'\n' {
            self.ended |= level.kind == b'{' && !is_operator(self.last);
        } else if !byte.is_ascii_whitespace() && std::mem::take(&mut self.ended) && !is_operator(byte) {
            level.links = 0;
        }
        match byte {
            b'(' | b'[' | b'{' => {
                if depth > limits::BRACKET_DEPTH_MAX {
                    return Err(Exceeded::Depth);
                }
                level.link()?;
                self.levels.push(Level { kind: byte, links: 0 });
            }
            b')' | b']' | b'}' if depth > 1 => {
                self.levels.pop();
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
    fn link(&mut self) -> Result<(), Exceeded> {
        self.links += 1;
        if self.links > limits::EXPRESSION_LINKS_MAX { Err(Exceeded::Links) } else { Ok(()) }
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
    fn nested_brackets_are_limited() {
        let nested = |depth: usize| format!("x := {}1{}", "[".repeat(depth), "]".repeat(depth));
        check("a.rego", &nested(limits::BRACKET_DEPTH_MAX)).unwrap();
        assert!(error(&nested(limits::BRACKET_DEPTH_MAX + 1)).starts_with("a.rego:1:30: more than 24 nested brackets"));
    }

    #[test]
    fn expressions_are_limited_in_length() {
        for (first, more) in [("a", ".b"), ("1", " +\n 1"), ("a", "[0]"), ("f", "()"), ("x", "\n.y")] {
            check("a.rego", &format!("{first}{}", more.repeat(limits::EXPRESSION_LINKS_MAX))).unwrap();
            let text = format!("{first}{}", more.repeat(limits::EXPRESSION_LINKS_MAX + 1));
            assert!(error(&text).contains("in a row"), "{text}");
        }
    }

    #[test]
    fn many_short_expressions_are_accepted() {
        check("a.rego", &"a := input.b.c + 1\n".repeat(100)).unwrap();
        check("a.rego", &format!("a := [{}]", "b.c, ".repeat(100))).unwrap();
        check("a.rego", &format!("a := \"{}\"", "[.+\\\"".repeat(100))).unwrap();
        check("a.rego", &format!("# {}\na := `{}`", "[.+".repeat(100), "[.+".repeat(100))).unwrap();
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".{0,300}") {
            let _ = check("a.rego", &text);
        }
    }
}
