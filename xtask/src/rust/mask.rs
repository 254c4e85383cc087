//! Telling code from comments and literals.

/// Source text in which every comment and literal is blanked out, so that what is left can be read by its brackets.
pub struct Masked {
    /// As many characters as the source had, line breaks in the same places.
    pub code: Vec<char>,
    pub comments: Vec<Comment>,
}

/// A comment, with its slashes. Each line of a block comment is one of its own.
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

/// Where the comment that starts here ends, if one starts here.
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

/// Where the string or character that starts here ends, if one starts here.
fn literal_end(source: &[char], start: usize) -> Option<usize> {
    match source[start..] {
        ['"', ..] => Some(quoted_end(source, start + 1, '"')),
        ['\'', '\\', ..] => Some(quoted_end(source, start + 1, '\'')),
        // Anything else behind a quote is a lifetime.
        ['\'', _, '\'', ..] => Some(start + 3),
        ['r', ..] if starts_word(source, start) => raw_string_end(source, start + 1),
        _ => None,
    }
}

/// The end of a raw string whose hashes and quote follow, if they do. `r#match` is no string.
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

/// Whether no identifier runs into this place; the `b` and `c` of byte and C strings do not count.
fn starts_word(source: &[char], at: usize) -> bool {
    let before = |distance: usize| at.checked_sub(distance).map(|place| source[place]);
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
    fn comments_know_their_lines() {
        let comments = mask("a\n// one\n/* two\nthree */\nb // four").comments;
        let seen: Vec<_> = comments.iter().map(|comment| (comment.line, comment.text.as_str())).collect();
        assert_eq!(seen, [(2, "// one"), (3, "/* two"), (4, "three */"), (5, "// four")]);
    }
}
