//! Separates code from comments and literals.

/// Source text with comments and literals replaced by spaces, so that brackets in the rest match.
pub struct Masked {
    /// Same length as the source, same line breaks.
    pub code: Vec<char>,
    pub comments: Vec<Comment>,
}

/// A comment with its slashes. Each line of a block comment is a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// Counted from 1.
    pub line: usize,
    pub text: String,
}

pub fn mask(source: &str) -> Masked {
    let source: Vec<char> = source.chars().collect();
    let mut masked = Masked { code: source.clone(), comments: Vec::new() };
    let mut line = 1;
    let mut at = 0;
    while at < source.len() {
        let end = if let Some(end) = comment_end(&source, at) {
            let text: String = source[at..end].iter().collect();
            let lines = text.lines().enumerate();
            masked.comments.extend(lines.map(|(below, text)| Comment { line: line + below, text: text.to_owned() }));
            end
        } else if let Some(end) = literal_end(&source, at) {
            end
        } else {
            line += usize::from(source[at] == '\n');
            at += 1;
            continue;
        };
        for character in &mut masked.code[at..end] {
            if *character == '\n' {
                line += 1;
            } else {
                *character = ' ';
            }
        }
        at = end;
    }
    masked
}

/// End of the comment that starts at `start`, if there is one.
fn comment_end(source: &[char], start: usize) -> Option<usize> {
    match source[start..] {
        ['/', '/', ..] => Some(
            source[start..].iter().position(|character| *character == '\n').map_or(source.len(), |len| start + len),
        ),
        ['/', '*', ..] => {
            let (mut at, mut depth) = (start, 0);
            while at < source.len() {
                match source[at..] {
                    ['/', '*', ..] => (at, depth) = (at + 2, depth + 1),
                    ['*', '/', ..] => (at, depth) = (at + 2, depth - 1),
                    _ => at += 1,
                }
                if depth == 0 {
                    break;
                }
            }
            Some(at)
        }
        _ => None,
    }
}

/// End of the string or character literal that starts at `start`, if there is one.
fn literal_end(source: &[char], start: usize) -> Option<usize> {
    match source[start..] {
        ['"', ..] => Some(quoted_end(source, start + 1, '"')),
        ['\'', '\\', ..] => Some(quoted_end(source, start + 1, '\'')),
        // Anything else after a quote is a lifetime.
        ['\'', _, '\'', ..] => Some(start + 3),
        ['r', ..] if starts_word(source, start) => raw_string_end(source, start + 1),
        _ => None,
    }
}

/// End of the raw string with its hashes at `hashes_at`, if there is one. `r#match` is not a string.
fn raw_string_end(source: &[char], hashes_at: usize) -> Option<usize> {
    let hashes = source[hashes_at..].iter().take_while(|character| **character == '#').count();
    if source.get(hashes_at + hashes) != Some(&'"') {
        return None;
    }
    let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let content = hashes_at + hashes + 1;
    let length = source[content..].windows(closing.len()).position(|window| window == closing);
    Some(length.map_or(source.len(), |length| content + length + closing.len()))
}

fn quoted_end(source: &[char], mut at: usize, quote: char) -> usize {
    while at < source.len() {
        match source[at] {
            '\\' => at += 2,
            character if character == quote => return at + 1,
            _ => at += 1,
        }
    }
    source.len()
}

/// Whether `at` is not inside an identifier. The prefixes `b` and `c` of byte and C strings are ignored.
fn starts_word(source: &[char], at: usize) -> bool {
    let before = |distance: usize| at.checked_sub(distance).map(|index| source[index]);
    match before(1) {
        Some('b' | 'c') => !before(2).is_some_and(is_word),
        Some(character) => !is_word(character),
        None => true,
    }
}

pub fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> String {
        mask(source).code.into_iter().collect()
    }

    #[test]
    fn strings_and_comments_are_blanked_in_place() {
        assert_eq!(code("a(\"{\\\"\"); // }\nb"), "a(     );     \nb");
        assert_eq!(code("a /* { /* } */ \n */ b"), "a              \n    b");
        assert_eq!(code("r#\"a\" {\"# + br\"{\""), "          + b    ");
    }

    #[test]
    fn lifetimes_are_not_characters() {
        assert_eq!(code("fn f<'a>(x: &'a str, y: '{') { '\\'' }"), "fn f<'a>(x: &'a str, y:    ) {      }");
    }

    #[test]
    fn raw_identifiers_are_not_strings() {
        assert_eq!(code("r#match + \"x\""), "r#match +    ");
    }

    #[test]
    fn comments_have_line_numbers() {
        let comments = mask("a\n// one\n/* two\nthree */\nb // four").comments;
        let seen: Vec<_> = comments.iter().map(|comment| (comment.line, comment.text.as_str())).collect();
        assert_eq!(seen, [(2, "// one"), (3, "/* two"), (4, "three */"), (5, "// four")]);
    }
}
