//! The data directory: one process at a time, and specific errors.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use model::batch::Keyspace;
use store::{DataDirectory, Embedded, Error, Store};

use crate::support::{SHARD, eventually, open, open_shard, put, small};

const CHILD_DIRECTORY: &str = "STORE_TEST_LOCKED_DIRECTORY";

/// Not a test: the child process that locks the directory until it is killed.
#[test]
fn child_that_locks_the_directory() {
    let Ok(directory) = std::env::var(CHILD_DIRECTORY) else { return };
    let directory = std::path::Path::new(&directory);
    let _store = open(directory);
    fs::write(directory.join("locked"), b"").unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn a_second_process_is_rejected_with_the_pid_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "directory::child_that_locks_the_directory"])
        .env(CHILD_DIRECTORY, directory.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the lock of the child", || directory.path().join("locked").exists());
    let error = Embedded::open(directory.path(), small()).unwrap_err();
    assert!(matches!(&error, Error::InUse { pid, .. } if *pid == Some(child.id())), "{error}");
    assert!(error.to_string().contains("Stop that process"));
    child.kill().unwrap();
    child.wait().unwrap();
    open(directory.path());
}

#[test]
fn each_start_increments_the_incarnation_and_keeps_the_node_id() {
    let directory = tempfile::tempdir().unwrap();
    let node = open(directory.path()).node();
    for start in 2..5 {
        let store = open(directory.path());
        assert_eq!((store.node(), store.incarnation().0), (node, start));
    }
}

#[test]
fn the_identity_of_an_open_directory_can_be_read() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(DataDirectory::identity(directory.path()).unwrap(), None);
    let open = DataDirectory::open(directory.path()).unwrap();
    assert_eq!(DataDirectory::identity(directory.path()).unwrap(), Some((open.node(), open.incarnation())));
}

#[test]
fn a_newer_format_is_rejected_and_left_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let format = directory.path().join("format");
    fs::write(&format, "format 2\nnode 1\nincarnation 1\nmore 3\n").unwrap();
    let error = Embedded::open(directory.path(), small()).unwrap_err();
    assert!(matches!(error, Error::NewerFormat { found: 2, supported: 1, .. }), "{error}");
    assert!(fs::read_to_string(&format).unwrap().starts_with("format 2"));

    fs::write(&format, "not a format file").unwrap();
    assert!(matches!(Embedded::open(directory.path(), small()), Err(Error::Malformed { .. })));
}

#[test]
fn a_path_to_a_file_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, b"").unwrap();
    let error = Embedded::open(&file, small()).unwrap_err();
    assert!(matches!(error, Error::NotADirectory { .. }), "{error}");
    assert!(matches!(Embedded::open(&file.join("below"), small()), Err(Error::NotADirectory { .. })));
}

#[test]
fn a_read_only_directory_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o555)).unwrap();
    // Root may write to a read-only directory, but not to /proc.
    let may_write = fs::write(directory.path().join("probe"), b"").is_ok();
    let path = if may_write { std::path::Path::new("/proc/self") } else { directory.path() };
    let error = Embedded::open(path, small()).unwrap_err();
    let is_specific = matches!(error, Error::NotWritable { .. }) || may_write && matches!(error, Error::Io { .. });
    assert!(is_specific, "{error}");
}

// FEATURES: B7
#[test]
fn closing_writes_everything_to_the_tables() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut token = open_shard(&store);
    put(&store, &mut token, b"key", b"value");
    store.close().unwrap();
    let store = open(directory.path());
    assert_eq!(store.get(SHARD, Keyspace::Live, b"key").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(store.verify().unwrap().records, 2, "the record and the owner record of its shard are in the tables");
}
