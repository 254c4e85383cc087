//! Finds the feature markers of one module and their tests.

use super::rows;
use crate::rust::mask::Comment;
use crate::rust::outline::{Function, Outline, outline};

const MARKER: &str = "FEATURES:";

/// A row and a test that covers it.
#[derive(Debug, PartialEq, Eq)]
pub struct RowTest {
    pub row: String,
    pub test: String,
}

#[derive(Debug, PartialEq, Eq)]
pub struct MarkerError {
    pub line: usize,
    pub message: String,
}

/// All markers of the source file of module `path`.
pub fn scan(source: &str, path: &[String]) -> Vec<Result<RowTest, MarkerError>> {
    let outline = outline(source);
    let mut found = Vec::new();
    for (index, comment) in outline.comments.iter().enumerate() {
        let Some(marker) = Marker::read(comment) else { continue };
        let error = |message: String| Err(MarkerError { line: comment.line, message });
        let test = if marker.in_documentation {
            doc_test_name(&outline, index)
        } else {
            test_at(&outline, comment.line)
                .map(|test| [test.modules.as_slice(), std::slice::from_ref(&test.name)].concat())
        };
        let Some(test) = test else {
            found.push(error("the marker belongs to no test".into()));
            continue;
        };
        if marker.ids.is_empty() {
            found.push(error("the marker names no row".into()));
        }
        for id in marker.ids {
            found.push(if rows::exists(&id) {
                Ok(RowTest { row: id, test: [path, &test].concat().join("::") })
            } else {
                error(format!("there is no row {id:?}"))
            });
        }
    }
    found
}

struct Marker {
    ids: Vec<String>,
    /// The marker is in the code block of a doc comment: `/// // FEATURES: …`.
    in_documentation: bool,
}

impl Marker {
    fn read(comment: &Comment) -> Option<Self> {
        let strip = |text: &str| text.trim_start_matches(['/', '*', '!']).trim().to_owned();
        let text = strip(&comment.text);
        let in_documentation = text.starts_with("//") && is_documentation(comment);
        let text = if in_documentation { strip(&text) } else { text };
        let list = text.strip_prefix(MARKER)?;
        // A remark in parentheses is ignored: `A5 (refutation)`.
        let list = list.split('(').next().unwrap_or_default();
        let ids = list.split([',', ' ']).map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned);
        Some(Self { ids: ids.collect(), in_documentation })
    }
}

/// The test that contains the marker, or the function directly after the marker if it is a test.
fn test_at(outline: &Outline, line: usize) -> Option<&Function> {
    let tests = outline.functions.iter().filter(|function| function.is_test);
    let mut around = tests.filter(|test| (test.first_line..=test.last_line).contains(&line));
    let after = || outline.functions.iter().find(|function| function.first_line >= line);
    around.next().or_else(|| after().filter(|function| function.is_test))
}

/// A doc test is named after the documented item.
fn doc_test_name(outline: &Outline, marker: usize) -> Option<Vec<String>> {
    let comment = &outline.comments[marker];
    let before = outline.comments[..marker].iter().rev();
    let block = before.zip(1..).take_while(|(above, distance)| above.line + distance == comment.line);
    let fences = block.map(|(above, _)| above).filter(|above| is_documentation(above) && above.text.contains("```"));
    let fences: Vec<_> = fences.collect();
    // Inside a code block the number of fences above is odd and the nearest one opens the block. Some blocks do not run.
    let opening = fences.first().filter(|_| fences.len() % 2 == 1)?;
    if ["ignore", "text", "no_run", "compile_fail", "console", "sh"].iter().any(|word| opening.text.contains(word)) {
        return None;
    }
    let mut name = if comment.text.starts_with("//!") {
        Vec::new()
    } else {
        let item = outline.items.iter().find(|item| item.line > comment.line)?;
        [item.modules.as_slice(), std::slice::from_ref(&item.name)].concat()
    };
    name.push("doctest".into());
    Some(name)
}

fn is_documentation(comment: &Comment) -> bool {
    comment.text.starts_with("///") || comment.text.starts_with("//!")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(source: &str) -> Vec<String> {
        let path = ["fabric".to_owned(), "swim".to_owned()];
        let show = |found: Result<RowTest, MarkerError>| match found {
            Ok(row_test) => format!("{} {}", row_test.row, row_test.test),
            Err(error) => format!("{}: {}", error.line, error.message),
        };
        scan(source, &path).into_iter().map(show).collect()
    }

    #[test]
    fn a_marker_belongs_to_the_test_after_it() {
        let source = "mod tests {\n// FEATURES: A5, B2 (refutation)\n#[test]\nfn refutes() {}\n}";
        assert_eq!(scanned(source), ["A5 fabric::swim::tests::refutes", "B2 fabric::swim::tests::refutes"]);
        assert_eq!(scanned("#[tokio::test]\n/// FEATURES: C1\nasync fn runs() {}"), ["C1 fabric::swim::runs"]);
        assert_eq!(scanned("proptest! {\n// FEATURES: C1\n#[test]\nfn p(x in 0..1) {}\n}"), ["C1 fabric::swim::p"]);
    }

    #[test]
    fn a_marker_belongs_to_the_test_around_it() {
        let source = "#[test]\nfn a() {\n    // FEATURES: E8\n    x();\n}\n#[test]\nfn b() {}";
        assert_eq!(scanned(source), ["E8 fabric::swim::a"]);
        assert_eq!(scanned("#[test]\nfn a() {} // FEATURES: E8\n#[test]\nfn b() {}"), ["E8 fabric::swim::a"]);
    }

    #[test]
    fn two_markers_at_one_test_both_count() {
        assert_eq!(scanned("// FEATURES: A1\n// FEATURES: A2\n#[test]\nfn a() {}").len(), 2);
    }

    #[test]
    fn a_marker_without_a_test_is_an_error() {
        assert_eq!(
            scanned("// FEATURES: A5\nfn helper() {}\n#[test]\nfn a() {}"),
            ["1: the marker belongs to no test"]
        );
        assert_eq!(scanned("#[test]\nfn a() {}\n// FEATURES: A5\n"), ["3: the marker belongs to no test"]);
    }

    #[test]
    fn unknown_rows_are_errors() {
        assert_eq!(scanned("// FEATURES: A99\n#[test]\nfn a() {}"), ["1: there is no row \"A99\""]);
        assert_eq!(scanned("// FEATURES: A1-A3\n#[test]\nfn a() {}"), ["1: there is no row \"A1-A3\""]);
        assert_eq!(scanned("// FEATURES:\n#[test]\nfn a() {}"), ["1: the marker names no row"]);
    }

    #[test]
    fn markers_in_strings_are_not_markers() {
        assert!(scanned("fn a() { \"// FEATURES: A5\" }").is_empty());
    }

    #[test]
    fn doc_tests_are_named_after_the_documented_item() {
        let source = "/// Text.\n/// ```\n/// // FEATURES: B1\n/// ```\npub struct Graph;";
        assert_eq!(scanned(source), ["B1 fabric::swim::Graph::doctest"]);
        assert_eq!(scanned("//! ```\n//! // FEATURES: B1\n//! ```"), ["B1 fabric::swim::doctest"]);
        assert_eq!(
            scanned("/// ```text\n/// // FEATURES: B1\n/// ```\nfn f() {}"),
            ["2: the marker belongs to no test"]
        );
    }
}
