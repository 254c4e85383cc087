//! Lexer of expressions.

use std::borrow::Cow;

use serde_json::Number;

use super::Operator;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token<'a> {
    Name(&'a str),
    Number(Number),
    Text(Cow<'a, str>),
    Operator(Operator),
    Not,
    Open,
    Close,
    OpenList,
    CloseList,
    Comma,
    Dot,
    Question,
    Colon,
    End,
}

impl Token<'_> {
    /// For messages.
    pub fn describe(&self) -> String {
        match self {
            Self::Name(name) => format!("`{name}`"),
            Self::Number(number) => format!("`{number}`"),
            Self::Text(text) => format!("the string \"{text}\""),
            Self::Operator(operator) => format!("`{}`", operator.as_str()),
            Self::Not => "`!`".to_owned(),
            Self::Open => "`(`".to_owned(),
            Self::Close => "`)`".to_owned(),
            Self::OpenList => "`[`".to_owned(),
            Self::CloseList => "`]`".to_owned(),
            Self::Comma => "`,`".to_owned(),
            Self::Dot => "`.`".to_owned(),
            Self::Question => "`?`".to_owned(),
            Self::Colon => "`:`".to_owned(),
            Self::End => "the end".to_owned(),
        }
    }
}

pub(super) struct Lexer<'a> {
    pub rest: &'a str,
}

impl<'a> Lexer<'a> {
    pub fn next(&mut self) -> Result<Token<'a>, String> {
        self.rest = self.rest.trim_start();
        let Some(first) = self.rest.chars().next() else {
            return Ok(Token::End);
        };
        match first {
            '"' | '\'' => self.text(first),
            '0'..='9' => self.number(),
            first if first.is_ascii_alphabetic() || first == '_' => Ok(self.name()),
            _ => self.symbol(first),
        }
    }

    /// A dash directly before a letter or digit is part of the name, because task names often look like `build-all`.
    fn name(&mut self) -> Token<'a> {
        let bytes = self.rest.as_bytes();
        let belongs = |at: usize| bytes.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        let mut end = 1;
        while belongs(end) || bytes.get(end) == Some(&b'-') && belongs(end + 1) {
            end += 1;
        }
        Token::Name(self.take(end))
    }

    fn number(&mut self) -> Result<Token<'a>, String> {
        let bytes = self.rest.as_bytes();
        let digits = |mut at: usize| {
            while bytes.get(at).is_some_and(u8::is_ascii_digit) {
                at += 1;
            }
            at
        };
        let mut end = digits(0);
        if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
            end = digits(end + 1);
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let symbol = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            if bytes.get(end + 1 + symbol).is_some_and(u8::is_ascii_digit) {
                end = digits(end + 1 + symbol);
            }
        }
        let text = self.take(end);
        if self.rest.starts_with(|next: char| next.is_alphanumeric() || next == '_') {
            return Err(format!("a letter follows the number `{text}`"));
        }
        serde_json::from_str(text).map(Token::Number).map_err(|_| format!("`{text}` is not a valid number"))
    }

    fn text(&mut self, quote: char) -> Result<Token<'a>, String> {
        let body = &self.rest[1..];
        let mut owned: Option<String> = None;
        let mut characters = body.char_indices();
        while let Some((at, character)) = characters.next() {
            if character == quote {
                self.rest = &body[at + 1..];
                return Ok(Token::Text(owned.map_or(Cow::Borrowed(&body[..at]), Cow::Owned)));
            }
            if character != '\\' {
                if let Some(owned) = &mut owned {
                    owned.push(character);
                }
                continue;
            }
            let escaped = match characters.next().map(|(_, escaped)| escaped) {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some(same @ ('\\' | '"' | '\'' | '/' | '$')) => same,
                Some('u') => unicode(&mut characters)?,
                Some(other) => return Err(format!("unknown escape `\\{other}`: write `\\\\` for a backslash")),
                None => break,
            };
            owned.get_or_insert_with(|| body[..at].to_owned()).push(escaped);
        }
        Err(format!("the closing {quote} of a string is missing"))
    }

    fn symbol(&mut self, first: char) -> Result<Token<'a>, String> {
        const SYMBOLS: [(&str, Token<'static>); 25] = [
            ("<=", Token::Operator(Operator::LessOrEqual)),
            (">=", Token::Operator(Operator::GreaterOrEqual)),
            ("==", Token::Operator(Operator::Equal)),
            ("!=", Token::Operator(Operator::NotEqual)),
            ("&&", Token::Operator(Operator::And)),
            ("||", Token::Operator(Operator::Or)),
            ("??", Token::Operator(Operator::Coalesce)),
            ("<", Token::Operator(Operator::Less)),
            (">", Token::Operator(Operator::Greater)),
            ("*", Token::Operator(Operator::Multiply)),
            ("/", Token::Operator(Operator::Divide)),
            ("%", Token::Operator(Operator::Remainder)),
            ("+", Token::Operator(Operator::Add)),
            ("-", Token::Operator(Operator::Subtract)),
            ("!", Token::Not),
            ("(", Token::Open),
            (")", Token::Close),
            ("[", Token::OpenList),
            ("]", Token::CloseList),
            (",", Token::Comma),
            (".", Token::Dot),
            ("?", Token::Question),
            (":", Token::Colon),
            // Operators of other languages, refused below with the right one. Their token is never returned.
            ("=", Token::End),
            ("&", Token::End),
        ];
        for (symbol, token) in SYMBOLS {
            if self.rest.starts_with(symbol) {
                match symbol {
                    "=" => return Err("`=` is not an operator: write `==`".to_owned()),
                    "&" => return Err("`&` is not an operator: write `&&`".to_owned()),
                    _ => {}
                }
                self.take(symbol.len());
                return Ok(token);
            }
        }
        Err(match first {
            '|' => "`|` is not an operator: write `||`, or call a function such as `json(x)`".to_owned(),
            '$' | '{' | '}' => format!("`{first}` is not allowed inside `${{…}}`"),
            other => format!("unexpected character `{other}`"),
        })
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }
}

fn unicode(characters: &mut std::str::CharIndices<'_>) -> Result<char, String> {
    let mut code = 0;
    for _ in 0..4 {
        let digit = characters.next().and_then(|(_, digit)| digit.to_digit(16));
        code = code * 16 + digit.ok_or("`\\u` needs four hexadecimal digits")?;
    }
    char::from_u32(code).ok_or_else(|| format!("`\\u{code:04x}` is not a character"))
}
