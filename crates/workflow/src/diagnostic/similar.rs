//! Suggestions for misspelt names.

/// Maximum number of compared names: a misspelling in a definition of 100,000 tasks must not cost seconds.
const COMPARED_MAX: usize = 5_000;
/// Compared prefix of a name, in characters: the cost of a comparison is quadratic.
const CHARACTERS_MAX: usize = 64;

/// The most similar name, if it is within the tolerance for the length of the written one. Case is ignored.
pub(crate) fn closest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let tolerance = match written.chars().count() {
        0 | 1 => return None,
        2..=4 => 1,
        5..=8 => 2,
        _ => 3,
    };
    let normalised = normalise(written);
    names
        .into_iter()
        .take(COMPARED_MAX)
        .filter(|name| name.len().abs_diff(written.len()) <= 4 * tolerance)
        .map(|name| (strsim::osa_distance(&normalised, &normalise(name)), name))
        .filter(|(distance, _)| *distance <= tolerance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

fn normalise(name: &str) -> String {
    name.chars().take(CHARACTERS_MAX).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_recognised() {
        let names = ["build", "test", "publish"];
        assert_eq!(closest("biuld", names), Some("build"));
        assert_eq!(closest("publsh", names), Some("publish"));
        assert_eq!(closest("Test", names), Some("test"));
        assert_eq!(closest("deploy", names), None);
        assert_eq!(closest("x", names), None);
    }

    #[test]
    fn the_tolerance_is_counted_in_characters() {
        let is_close = |written: &str, name: &str| closest(written, [name]).is_some();
        // Swapped neighbours are one edit.
        assert!(is_close("ab", "ba"));
        assert!(!is_close("kitten", "sitting"));
        assert!(is_close("größe", "grösse"));
        assert!(!is_close("größe", "grosser"));
        assert!(is_close("big-kitten", "big-sitting"));
    }
}
