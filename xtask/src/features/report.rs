//! The feature list with its tests, as a table and as JSON.

use std::fmt::Write;

use anyhow::Result;

use super::RowCoverage;

/// Aligned columns: row, number of tests, title, and one test per line.
pub fn table(rows: &[RowCoverage]) -> String {
    let width = rows.iter().map(|coverage| coverage.row.title.chars().count()).max().unwrap_or_default();
    let mut text = format!("{:<4} {:>5}  {:<width$}  names\n", "row", "tests", "title");
    for RowCoverage { row, tests } in rows {
        let first = tests.first().map(String::as_str).unwrap_or("—");
        let _ = writeln!(text, "{:<4} {:>5}  {:<width$}  {first}", row.id, tests.len(), row.title);
        for test in tests.iter().skip(1) {
            let _ = writeln!(text, "{:<4} {:>5}  {:<width$}  {test}", "", "", "");
        }
    }
    let covered = rows.iter().filter(|coverage| !coverage.tests.is_empty()).count();
    let _ = writeln!(text, "\n{covered} of {} rows have tests.", rows.len());
    text
}

/// One object with all rows in the order of the list. Formatted by hand: a JSON map would sort A10 before A2.
pub fn json(rows: &[RowCoverage]) -> Result<String> {
    let lines = rows
        .iter()
        .map(|coverage| Ok(format!("  \"{}\": {}", coverage.row.id, serde_json::to_string(&coverage.tests)?)));
    Ok(format!("{{\n{}\n}}\n", lines.collect::<Result<Vec<_>>>()?.join(",\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::rows;

    fn sample_rows() -> Vec<RowCoverage> {
        let tests = |id: &str| {
            if id == "A2" { vec!["a::b".into(), "a::c".into()] } else { Vec::new() }
        };
        rows::all().map(|row| RowCoverage { row, tests: tests(row.id) }).collect()
    }

    #[test]
    fn json_has_every_row_in_order() {
        let text = json(&sample_rows()).unwrap();
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed.as_object().unwrap().len(), rows::all().count());
        assert_eq!(parsed["A2"], serde_json::json!(["a::b", "a::c"]));
        assert_eq!(parsed["E8"], serde_json::json!([]));
        assert!(text.find("\"A2\"") < text.find("\"A10\""));
    }

    #[test]
    fn the_test_names_in_the_table_are_aligned() {
        let text = table(&sample_rows());
        let columns: Vec<_> = text.lines().filter_map(|line| line.find("a::b").or(line.find("a::c"))).collect();
        assert_eq!(columns.len(), 2);
        assert_eq!(columns[0], columns[1]);
        assert!(text.ends_with("1 of 68 rows have tests.\n"));
    }
}
