//! The guest's directories: read-only inputs, writable outputs, no escape from either.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use bytes::Bytes;
use wasm::{GuestExit, RunOutcome, RunSpec};

use crate::guests::guest;
use crate::support::{Fixture, recording_spec};

/// WASI error code plus 100.
const NOT_PERMITTED: u8 = 131;

/// Indices of the preopened directories.
const INPUTS: u32 = 0;
const OUTPUTS: u32 = 1;

struct Directories {
    fixture: Fixture,
    inputs: PathBuf,
    outputs: PathBuf,
}

impl Directories {
    fn new() -> Self {
        let fixture = Fixture::new();
        fs::write(fixture.directory.path().join("secret"), "secret").unwrap();
        let inputs = fixture.make_directory("inputs");
        fs::write(inputs.join("given"), "what was given").unwrap();
        let outputs = fixture.make_directory("outputs");
        Self { fixture, inputs, outputs }
    }

    async fn run(&self, component: &Bytes) -> (RunOutcome, String) {
        let (spec, printed) = recording_spec();
        let spec = RunSpec { inputs: Some(self.inputs.clone()), outputs: Some(self.outputs.clone()), ..spec };
        (self.fixture.run_spec(component, spec).await, printed.stdout())
    }
}

/// Opens a file and prints its content.
fn reads(directory: u32, path: &str) -> Bytes {
    let len = path.len();
    guest(&format!(
        r#"(data (i32.const 1024) "{path}")
        (func (export "run") (result i32)
          (call $read
            (call $open (call $directory (i32.const {directory}))
              (i32.const 1024) (i32.const {len}) (i32.const 0) (i32.const 1))
            (i64.const 1000) (i64.const 0) (i32.const 0))
          (call $check (i32.const 4))
          (call $print (i32.load (i32.const 4)) (i32.load (i32.const 8)))
          i32.const 0)"#
    ))
}

/// Creates or opens a file and writes to it.
fn writes(directory: u32, path: &str, how: u32) -> Bytes {
    let len = path.len();
    guest(&format!(
        r#"(data (i32.const 1024) "{path}") (data (i32.const 2048) "written")
        (func (export "run") (result i32)
          (call $write
            (call $open (call $directory (i32.const {directory}))
              (i32.const 1024) (i32.const {len}) (i32.const {how}) (i32.const 2))
            (i32.const 2048) (i32.const 7) (i64.const 0) (i32.const 0))
          (call $check (i32.const 8))
          i32.const 0)"#
    ))
}

#[tokio::test]
async fn a_guest_reads_its_inputs() {
    let (outcome, printed) = Directories::new().run(&reads(INPUTS, "given")).await;
    assert_eq!((outcome.exit, printed.as_str()), (GuestExit::Succeeded, "what was given"));
}

#[tokio::test]
async fn a_guest_writes_its_outputs() {
    let directories = Directories::new();
    let (outcome, _) = directories.run(&writes(OUTPUTS, "made", 1)).await;
    assert_eq!(outcome.exit, GuestExit::Succeeded);
    assert_eq!(fs::read(directories.outputs.join("made")).unwrap(), b"written");
}

#[tokio::test]
async fn stream_writes_are_complete_when_the_guest_has_ended() {
    let directories = Directories::new();
    let hasty = guest(
        r#"(data (i32.const 1024) "made") (data (i32.const 2048) "written")
        (func (export "run") (result i32)
          (call $write-via-stream
            (call $open (call $directory (i32.const 1)) (i32.const 1024) (i32.const 4) (i32.const 1) (i32.const 2))
            (i64.const 0) (i32.const 0))
          (call $check (i32.const 4))
          ;; Neither flushes nor waits.
          (call $stream-write (i32.load (i32.const 4)) (i32.const 2048) (i32.const 7) (i32.const 0))
          (call $exit (i32.const 0))
          unreachable)"#,
    );
    assert_eq!(directories.run(&hasty).await.0.exit, GuestExit::Succeeded);
    assert_eq!(fs::read(directories.outputs.join("made")).unwrap(), b"written");
}

#[tokio::test]
async fn a_guest_cannot_change_its_inputs() {
    let directories = Directories::new();
    for (path, how) in [("given", 0), ("given", 8), ("new", 1)] {
        let (outcome, _) = directories.run(&writes(INPUTS, path, how)).await;
        assert_eq!(outcome.exit, GuestExit::ExitCode(NOT_PERMITTED), "{path} {how}");
    }
    assert_eq!(fs::read(directories.inputs.join("given")).unwrap(), b"what was given");
    assert_eq!(fs::read_dir(&directories.inputs).unwrap().count(), 1);
}

#[tokio::test]
async fn no_path_leads_out_of_a_directory() {
    let directories = Directories::new();
    for directory in [&directories.inputs, &directories.outputs] {
        symlink("../secret", directory.join("link")).unwrap();
        symlink(directories.fixture.directory.path(), directory.join("up")).unwrap();
    }
    let absolute = directories.fixture.directory.path().join("secret");
    let ways = ["../secret", "./../secret", absolute.to_str().unwrap(), "link", "up/secret", "../inputs/given"];
    for way in ways {
        let (outcome, printed) = directories.run(&reads(INPUTS, way)).await;
        assert_eq!((outcome.exit, printed.as_str()), (GuestExit::ExitCode(NOT_PERMITTED), ""), "{way}");
        let (outcome, _) = directories.run(&writes(OUTPUTS, way, 1)).await;
        assert_eq!(outcome.exit, GuestExit::ExitCode(NOT_PERMITTED), "{way}");
    }
    assert_eq!(fs::read(absolute).unwrap(), b"secret");
}

#[tokio::test]
async fn a_link_created_by_the_guest_cannot_be_followed_outside() {
    let directories = Directories::new();
    let climber = guest(
        r#"(data (i32.const 1024) "../secret") (data (i32.const 2048) "link")
        (func (export "run") (result i32)
          (call $symlink-at (call $directory (i32.const 1)) (i32.const 1024) (i32.const 9)
            (i32.const 2048) (i32.const 4) (i32.const 0))
          (call $check (i32.const 1))
          (drop (call $open (call $directory (i32.const 1)) (i32.const 2048) (i32.const 4) (i32.const 0) (i32.const 1)))
          i32.const 0)"#,
    );
    assert_eq!(directories.run(&climber).await.0.exit, GuestExit::ExitCode(NOT_PERMITTED));
}

#[tokio::test]
async fn a_guest_without_directories_has_none() {
    let counter = guest(
        r#"(func (export "run") (result i32)
          (call $get-directories (i32.const 0))
          (i32.load (i32.const 4)))"#,
    );
    let (spec, _) = recording_spec();
    assert_eq!(Fixture::new().run_spec(&counter, spec).await.exit, GuestExit::Succeeded);
}

#[tokio::test]
async fn the_directories_have_the_documented_names() {
    let namer = guest(
        r#"(func (export "run") (result i32)
          (local $list i32)
          (call $get-directories (i32.const 0))
          (local.set $list (i32.load (i32.const 0)))
          (call $print (i32.load offset=4 (local.get $list)) (i32.load offset=8 (local.get $list)))
          (call $print (i32.load offset=16 (local.get $list)) (i32.load offset=20 (local.get $list)))
          i32.const 0)"#,
    );
    assert_eq!(Directories::new().run(&namer).await.1, "/inputs/outputs");
}

#[tokio::test]
async fn a_missing_directory_is_a_host_failure() {
    let mut directories = Directories::new();
    directories.inputs.push("missing");
    let (outcome, _) = directories.run(&reads(INPUTS, "given")).await;
    assert!(matches!(outcome.exit, GuestExit::HostFailed(text) if text.contains("/inputs")));
}
