//! Checks the answers of docs/where.md: the named file must contain the name beside it.

use std::path::Path;

use super::{Finding, Rule};
use crate::repo::Repo;
use crate::rust::tree::normalise;

const PAGE: &str = "docs/where.md";

pub fn check(file: &Path, text: &str, repo: &Repo) -> Vec<Finding> {
    if file != Path::new(PAGE) {
        return Vec::new();
    }
    let directory = file.parent().unwrap_or(Path::new(""));
    let read = |target: &str| repo.read(&normalise(&directory.join(target)));
    let rows = (1..).zip(text.lines()).filter_map(|(line, content)| Some((line, answer(content)?)));
    rows.filter_map(|(line, (target, name))| {
        let holds = read(target).is_some_and(|source| source.contains(name));
        (!holds).then(|| Finding::new(Rule::Signpost, file, line, format!("{target} does not contain `{name}`")))
    })
    .collect()
}

/// File and name of a row: `| question | [file](target) | `name` |`.
fn answer(row: &str) -> Option<(&str, &str)> {
    let mut columns = row.strip_prefix('|')?.split('|').skip(1);
    let target = columns.next()?.split_once("](")?.1.split_once(')')?.0;
    let name = columns.next()?.trim().strip_prefix('`')?.strip_suffix('`')?;
    Some((target, name))
}

#[cfg(test)]
mod tests {
    use super::answer;

    #[test]
    fn a_row_names_a_file_and_a_name() {
        let row = "| Where is it? | [machine.rs](../crates/model/src/machine.rs) | `fn step` |";
        assert_eq!(answer(row), Some(("../crates/model/src/machine.rs", "fn step")));
        assert_eq!(answer("| question | file | name |"), None);
        assert_eq!(answer("|---|---|---|"), None);
    }
}
