//! Checks of this machine: open files and kernel.

use rustix::process::{Resource, getrlimit};

use super::check::Check;

/// For connections, files of the store and pipes of processes.
const OPEN_FILES_MIN: u64 = 4096;

pub fn check() -> Vec<Check> {
    vec![open_files(getrlimit(Resource::Nofile).current), kernel()]
}

/// `None`: no limit.
fn open_files(limit: Option<u64>) -> Check {
    match limit {
        Some(limit) if limit < OPEN_FILES_MIN => Check::bad("open files", format!("at most {limit}")).advice(format!(
            "run `ulimit -n 65536` before `outlast up`: a busy server needs at least {OPEN_FILES_MIN}"
        )),
        Some(limit) => Check::good("open files", format!("at most {limit}")),
        None => Check::good("open files", "no limit"),
    }
}

fn kernel() -> Check {
    let system = rustix::system::uname();
    let finding = format!(
        "{} {} on {}",
        system.sysname().to_string_lossy(),
        system.release().to_string_lossy(),
        system.machine().to_string_lossy()
    );
    Check::good("kernel", finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Mark;

    #[test]
    fn a_low_limit_of_open_files_is_reported() {
        assert_eq!(open_files(Some(1024)).mark, Mark::Bad);
        assert_eq!(open_files(Some(OPEN_FILES_MIN)).mark, Mark::Good);
        assert_eq!(open_files(None).mark, Mark::Good);
    }
}
