//! Runs all other tests as an unprivileged user.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const NOBODY: u32 = 65534;

fn copy(from: &Path, directory: &Path) -> std::path::PathBuf {
    let to = directory.join(from.file_name().unwrap());
    std::fs::copy(from, &to).unwrap();
    std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755)).unwrap();
    to
}

// FEATURES: C6
#[test]
fn all_tests_pass_as_an_unprivileged_user() {
    if !rustix::process::geteuid().is_root() {
        // The tests already run unprivileged.
        return;
    }
    // The build directory may be readable by root only.
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let tests = copy(&std::env::current_exe().unwrap(), dir.path());
    let spawner = copy(&crate::support::spawner_program(), dir.path());
    let own = dir.path().join("own");
    std::fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = Command::new(tests);
    command.args(["--test-threads=2", "--skip", "unprivileged::"]).current_dir(&own);
    command.env("TMPDIR", &own).env("OUTLAST_SPAWNER", spawner).uid(NOBODY).gid(NOBODY);
    let output = command.output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output_text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(output_text.contains(" passed") && !output_text.contains(" 0 passed"), "{output_text}");
}
