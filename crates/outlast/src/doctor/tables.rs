//! Check of every record in the data directory.

use std::path::Path;
use std::time::Duration;

use store::{Embedded, Error, Options, Verification};

use super::check::Check;

const NAME: &str = "records";

pub fn check(directory: &Path) -> Check {
    // Opening would create a missing data directory.
    if !directory.join("tables").is_dir() {
        return Check::skipped(NAME, format!("{} contains no data", directory.display()));
    }
    let mut options = Options::default();
    // Keeps the journal: its retention is the server's setting.
    options.journal.keep_bytes = u64::MAX;
    options.journal.keep_for = Duration::MAX;
    match Embedded::open(directory, options).and_then(|store| store.verify()) {
        Ok(verification) => rate(&verification),
        Err(Error::InUse { pid, .. }) => in_use(pid),
        Err(error) => Check::bad(NAME, error.to_string()),
    }
}

/// A failure: a check that did not run must not look like a success.
fn in_use(pid: Option<u32>) -> Check {
    let pid = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    Check::bad(NAME, format!("not verified: in use by a server{pid}"))
        .advice("stop the server and run this command again")
}

fn rate(verification: &Verification) -> Check {
    let Verification { records, damaged, examples } = verification;
    match (damaged, examples.first()) {
        (0, _) => Check::good(NAME, format!("{records} verified")),
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
    fn a_directory_without_data_is_left_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(check(directory.path()).mark, Mark::Skipped);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_store_in_use_is_not_verified() {
        let directory = tempfile::tempdir().unwrap();
        let store = Embedded::open(directory.path(), Options::default()).unwrap();
        assert_eq!(check(directory.path()).mark, Mark::Bad);
        drop(store);
        assert_eq!(check(directory.path()).mark, Mark::Good);
    }

    #[test]
    fn damage_is_reported_with_an_example() {
        let damage = Verification { records: 9, damaged: 2, examples: vec!["x".to_owned()] };
        let check = rate(&damage);
        assert_eq!((check.mark, check.finding.as_str()), (Mark::Bad, "2 of 9 are damaged, such as x"));
    }
}
