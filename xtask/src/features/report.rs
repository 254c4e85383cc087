//! The feature list with its tests, for people and for programs.

use std::fmt::Write;

use anyhow::Result;

use super::Proof;

/// Aligned columns: row, number of tests, title, and the tests one below the other.
pub fn table(proofs: &[Proof]) -> String {
    let width = proofs.iter().map(|proof| proof.row.title.chars().count()).max().unwrap_or_default();
    let mut text = format!("{:<4} {:>5}  {:<width$}  names\n", "row", "tests", "what");
    for Proof { row, tests } in proofs {
        let first = tests.first().map(String::as_str).unwrap_or("—");
        let _ = writeln!(text, "{:<4} {:>5}  {:<width$}  {first}", row.id, tests.len(), row.title);
        for test in tests.iter().skip(1) {
            let _ = writeln!(text, "{:<4} {:>5}  {:<width$}  {test}", "", "", "");
        }
    }
    let proven = proofs.iter().filter(|proof| !proof.tests.is_empty()).count();
    let _ = writeln!(text, "\n{proven} of {} rows have tests.", proofs.len());
    text
}

/// One object with every row, in the order of the list. Written by hand because a JSON map would sort A10 before A2.
pub fn json(proofs: &[Proof]) -> Result<String> {
    let lines =
        proofs.iter().map(|proof| Ok(format!("  \"{}\": {}", proof.row.id, serde_json::to_string(&proof.tests)?)));
    Ok(format!("{{\n{}\n}}\n", lines.collect::<Result<Vec<_>>>()?.join(",\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::rows;

    fn proofs() -> Vec<Proof> {
        let tests = |id: &str| {
            if id == "A2" { vec!["a::b".into(), "a::c".into()] } else { Vec::new() }
        };
        rows::all().map(|row| Proof { row, tests: tests(row.id) }).collect()
    }

    #[test]
    fn json_has_every_row_in_order() {
        let text = json(&proofs()).unwrap();
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed.as_object().unwrap().len(), rows::all().count());
        assert_eq!(parsed["A2"], serde_json::json!(["a::b", "a::c"]));
        assert_eq!(parsed["E8"], serde_json::json!([]));
        assert!(text.find("\"A2\"") < text.find("\"A10\""));
    }

    #[test]
    fn the_names_in_the_table_are_below_each_other() {
        let text = table(&proofs());
        let columns: Vec<_> = text.lines().filter_map(|line| line.find("a::b").or(line.find("a::c"))).collect();
        assert_eq!(columns.len(), 2);
        assert_eq!(columns[0], columns[1]);
        assert!(text.ends_with("1 of 68 rows have tests.\n"));
    }
}
