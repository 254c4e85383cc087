//! The rows of the feature list.

/// One line per row, in order: the id, a tab, a short title.
const LIST: &str = include_str!("../../features.txt");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub id: &'static str,
    pub title: &'static str,
}

pub fn all() -> impl Iterator<Item = Row> {
    LIST.lines().filter_map(|line| line.split_once('\t')).map(|(id, title)| Row { id, title })
}

pub fn exists(id: &str) -> bool {
    all().any(|row| row.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TITLE_CHARS_MAX: usize = 70;

    #[test]
    fn every_line_is_a_row_and_the_rows_are_numbered_consecutively() {
        let found: Vec<_> = all().map(|row| row.id.to_owned()).collect();
        let sections = [('A', 16), ('B', 11), ('C', 17), ('D', 16), ('E', 8)];
        let wanted: Vec<_> =
            sections.iter().flat_map(|(section, rows)| (1..=*rows).map(move |row| format!("{section}{row}"))).collect();
        assert_eq!(found, wanted);
        assert_eq!(LIST.lines().count(), wanted.len());
    }

    #[test]
    fn titles_are_short() {
        assert!(all().all(|row| (1..=TITLE_CHARS_MAX).contains(&row.title.chars().count())));
    }
}
