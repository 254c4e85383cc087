//! The two directories: one to read, one to write, and no way out of either.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use bytes::Bytes;
use wasm::{Ended, Task, Verdict};

use crate::common::{Fixture, printing};
use crate::guests::guest;

/// The error code, counted from 0, plus 100.
const NOT_PERMITTED: u8 = 131;

/// Of the directories, the first is for inputs.
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

    async fn run(&self, component: &Bytes) -> (Ended, String) {
        let (task, printed) = printing();
        let task = Task { inputs: Some(self.inputs.clone()), outputs: Some(self.outputs.clone()), ..task };
        (self.fixture.run_task(component, task).await, printed.stdout())
    }
}

/// Opens a file and prints what is in it.
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

/// Makes a file, or opens one, and writes into it.
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
    let (ended, printed) = Directories::new().run(&reads(INPUTS, "given")).await;
    assert_eq!((ended.verdict, printed.as_str()), (Verdict::Succeeded, "what was given"));
}

#[tokio::test]
async fn a_guest_writes_its_outputs() {
    let directories = Directories::new();
    let (ended, _) = directories.run(&writes(OUTPUTS, "made", 1)).await;
    assert_eq!(ended.verdict, Verdict::Succeeded);
    assert_eq!(fs::read(directories.outputs.join("made")).unwrap(), b"written");
}

#[tokio::test]
async fn what_is_written_to_a_stream_is_there_when_the_guest_has_ended() {
    let directories = Directories::new();
    let hasty = guest(
        r#"(data (i32.const 1024) "made") (data (i32.const 2048) "written")
        (func (export "run") (result i32)
          (call $write-via-stream
            (call $open (call $directory (i32.const 1)) (i32.const 1024) (i32.const 4) (i32.const 1) (i32.const 2))
            (i64.const 0) (i32.const 0))
          (call $check (i32.const 4))
          ;; It neither flushes nor waits.
          (call $stream-write (i32.load (i32.const 4)) (i32.const 2048) (i32.const 7) (i32.const 0))
          (call $exit (i32.const 0))
          unreachable)"#,
    );
    assert_eq!(directories.run(&hasty).await.0.verdict, Verdict::Succeeded);
    assert_eq!(fs::read(directories.outputs.join("made")).unwrap(), b"written");
}

#[tokio::test]
async fn a_guest_cannot_change_its_inputs() {
    let directories = Directories::new();
    for (path, how) in [("given", 0), ("given", 8), ("new", 1)] {
        let (ended, _) = directories.run(&writes(INPUTS, path, how)).await;
        assert_eq!(ended.verdict, Verdict::ExitCode(NOT_PERMITTED), "{path} {how}");
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
        let (ended, printed) = directories.run(&reads(INPUTS, way)).await;
        assert_eq!((ended.verdict, printed.as_str()), (Verdict::ExitCode(NOT_PERMITTED), ""), "{way}");
        let (ended, _) = directories.run(&writes(OUTPUTS, way, 1)).await;
        assert_eq!(ended.verdict, Verdict::ExitCode(NOT_PERMITTED), "{way}");
    }
    assert_eq!(fs::read(absolute).unwrap(), b"secret");
}

#[tokio::test]
async fn a_link_that_a_guest_makes_leads_it_nowhere() {
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
    assert_eq!(directories.run(&climber).await.0.verdict, Verdict::ExitCode(NOT_PERMITTED));
}

#[tokio::test]
async fn a_guest_without_directories_has_none() {
    let counter = guest(
        r#"(func (export "run") (result i32)
          (call $get-directories (i32.const 0))
          (i32.load (i32.const 4)))"#,
    );
    let (task, _) = printing();
    assert_eq!(Fixture::new().run_task(&counter, task).await.verdict, Verdict::Succeeded);
}

#[tokio::test]
async fn the_directories_have_the_names_that_programs_look_for() {
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
async fn a_directory_that_is_missing_is_the_hosts_failure() {
    let mut directories = Directories::new();
    directories.inputs.push("missing");
    let (ended, _) = directories.run(&reads(INPUTS, "given")).await;
    assert!(matches!(ended.verdict, Verdict::HostFailed(text) if text.contains("/inputs")));
}
