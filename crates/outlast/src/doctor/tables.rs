//! Whether every record in the data directory can be read.

use std::path::Path;
use std::time::Duration;

use store::{Embedded, Error, Options, Verification};

use super::check::Check;

const NAME: &str = "records";

pub fn check(directory: &Path) -> Check {
    // Opening would make a data directory where there is none, and a check must not.
    if !directory.join("tables").is_dir() {
        return Check::skipped(NAME, format!("{} holds no data", directory.display()));
    }
    let mut options = Options::default();
    // What is kept for subscribers is the server's to decide.
    options.journal.keep_bytes = u64::MAX;
    options.journal.keep_for = Duration::MAX;
    match Embedded::open(directory, options).and_then(|store| store.verify()) {
        Ok(verification) => judge(&verification),
        Err(Error::InUse { pid, .. }) => in_use(pid),
        Err(error) => Check::bad(NAME, error.to_string()),
    }
}

/// A failure: who asks for a check must not take its absence for a good result.
fn in_use(pid: Option<u32>) -> Check {
    let pid = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    Check::bad(NAME, format!("in use by a server{pid}, not checked"))
        .advice("stop the server, then run this again: records are checked at rest")
}

fn judge(verification: &Verification) -> Check {
    let Verification { records, damaged, examples } = verification;
    match (damaged, examples.first()) {
        (0, _) => Check::good(NAME, format!("all {records} can be read")),
        (_, example) => {
            let example = example.map(|example| format!(", such as {example}")).unwrap_or_default();
            Check::bad(NAME, format!("{damaged} of {records} are damaged{example}"))
                .advice("restore the data directory from a backup")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Mark;

    #[test]
    fn a_directory_without_data_stays_without() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(check(directory.path()).mark, Mark::Skipped);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_store_is_read_at_rest_and_left_alone_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let store = Embedded::open(directory.path(), Options::default()).unwrap();
        assert_eq!(check(directory.path()).mark, Mark::Bad);
        drop(store);
        assert_eq!(check(directory.path()).mark, Mark::Good);
    }

    #[test]
    fn damage_is_told_with_an_example() {
        let damage = Verification { records: 9, damaged: 2, examples: vec!["x".to_owned()] };
        let check = judge(&damage);
        assert_eq!((check.mark, check.finding.as_str()), (Mark::Bad, "2 of 9 are damaged, such as x"));
    }
}
