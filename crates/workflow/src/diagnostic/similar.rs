//! Names that are nearly the one that was written.

/// How many names are compared at most: a mistake in a definition of 100,000 tasks must not cost seconds.
const COMPARED_MAX: usize = 5_000;

/// The name nearest to what was written, if it is near enough to be meant.
pub(crate) fn closest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let tolerance = match written.chars().count() {
        0 | 1 => return None,
        2..=4 => 1,
        5..=8 => 2,
        _ => 3,
    };
    names
        .into_iter()
        .take(COMPARED_MAX)
        .filter(|name| name.len().abs_diff(written.len()) <= 4 * tolerance)
        .map(|name| (distance(written, name), name))
        .filter(|(distance, _)| *distance <= tolerance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// How many letters must be put in, left out, changed or swapped with their neighbour to make one of the other.
fn distance(a: &str, b: &str) -> usize {
    let lower = |text: &str| text.chars().take(64).flat_map(char::to_lowercase).collect::<Vec<_>>();
    let (a, b) = (lower(a), lower(b));
    let mut before_last: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for (j, to) in b.iter().enumerate() {
            let changed = last[j] + usize::from(from != to);
            let mut best = changed.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i - 1] == *to && *from == b[j - 1] {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_understood() {
        let names = ["build", "test", "publish"];
        assert_eq!(closest("biuld", names), Some("build"));
        assert_eq!(closest("publsh", names), Some("publish"));
        assert_eq!(closest("Test", names), Some("test"));
        assert_eq!(closest("deploy", names), None);
        assert_eq!(closest("x", names), None);
    }

    #[test]
    fn distances_are_counted_in_letters() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("größe", "grösse"), 2);
    }
}
