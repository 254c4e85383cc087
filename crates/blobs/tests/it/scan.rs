//! Scans of worker directories on the client.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use blobs::Error;
use blobs::workers::{ManifestEntry, scan_directory};
use model::blob::BlobId;
use tempfile::TempDir;

fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("bin")).unwrap();
    fs::write(directory.path().join("bin/run"), "#!/bin/sh\necho hi\n").unwrap();
    fs::set_permissions(directory.path().join("bin/run"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(directory.path().join("data"), "data").unwrap();
    fs::write(directory.path().join("same"), "data").unwrap();
    symlink("bin/run", directory.path().join("run")).unwrap();
    directory
}

fn scan_error(directory: &Path) -> String {
    scan_directory(directory).unwrap_err().to_string()
}

// FEATURES: C10
#[test]
fn a_directory_becomes_a_manifest_and_a_list_of_files() {
    let directory = directory();
    let description = r#"{"name": "tools", "version": "3", "env": {"MODE": "fast"},
        "functions": [{"name": "greet", "command": ["bin/run"]}, {"name": "old", "version": "1", "command": ["./run"]}]}"#;
    fs::write(directory.path().join("worker.json"), description).unwrap();
    let scanned = scan_directory(directory.path()).unwrap();
    let manifest = &scanned.manifest;
    assert_eq!((manifest.name.as_str(), manifest.version.as_str()), ("tools", "3"));
    assert_eq!(manifest.env["MODE"], "fast");
    assert_eq!(manifest.function("greet", None).unwrap().version, "3");
    assert_eq!(manifest.function("old", None).unwrap().version, "1");
    assert_eq!(manifest.files.keys().collect::<Vec<_>>(), ["bin/run", "data", "run", "same"]);
    assert!(matches!(manifest.files["bin/run"], ManifestEntry::File { executable: true, bytes: 18, .. }));
    assert_eq!(manifest.files["data"], ManifestEntry::File { blob: BlobId::of(b"data"), bytes: 4, executable: false });
    assert_eq!(manifest.files["run"], ManifestEntry::Link { target: "bin/run".to_owned() });
    // Identical content is uploaded once.
    assert_eq!(scanned.files.len(), 2);
    for file in &scanned.files {
        assert_eq!(BlobId::of(&fs::read(&file.path).unwrap()), file.blob);
    }
}

#[test]
fn a_worker_without_a_description_is_named_after_its_directory() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("my-tools");
    fs::create_dir(&directory).unwrap();
    let scanned = scan_directory(&directory).unwrap();
    assert_eq!(scanned.manifest.name, "my-tools");
    assert!(scanned.manifest.functions.is_empty());
}

#[test]
fn equal_directories_have_equal_ids() {
    let (one, two) = (directory(), directory());
    for directory in [&one, &two] {
        fs::write(directory.path().join("worker.json"), r#"{"name": "x"}"#).unwrap();
    }
    let id = |directory: &TempDir| scan_directory(directory.path()).unwrap().manifest.id();
    assert_eq!(id(&one), id(&two));
    fs::set_permissions(two.path().join("data"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_ne!(id(&one), id(&two));
}

// FEATURES: C10
#[test]
fn links_that_point_outside_are_refused_with_their_path() {
    for target in ["/etc/passwd", "../outside", "bin/../../outside"] {
        let directory = directory();
        symlink(target, directory.path().join("bad-link")).unwrap();
        let error = scan_error(directory.path());
        assert!(error.contains("bad-link") && error.contains(target), "{error}");
    }
}

#[test]
fn pipes_and_sockets_are_refused_with_their_path() {
    let piped = directory();
    assert!(Command::new("mkfifo").arg(piped.path().join("bin/pipe")).status().unwrap().success());
    assert!(scan_error(piped.path()).contains("bin/pipe"));
    let connected = directory();
    let _socket = std::os::unix::net::UnixListener::bind(connected.path().join("socket")).unwrap();
    assert!(scan_error(connected.path()).contains("socket"));
}

#[test]
fn mistakes_in_the_description_are_reported() {
    for (text, expected) in [
        ("{", "worker.json"),
        (r#"{"nmae": "x"}"#, "nmae"),
        (r#"{"functions": [{"name": "f", "command": ["bin/none"]}]}"#, "not in the bundle"),
        (r#"{"functions": [{"name": "f", "command": ["./data"]}]}"#, "not executable"),
        (r#"{"functions": [{"name": "f", "command": ["/bin/sh"]}]}"#, "absolute"),
        (r#"{"name": ""}"#, "name"),
    ] {
        let directory = directory();
        fs::write(directory.path().join("worker.json"), text).unwrap();
        let error = scan_error(directory.path());
        assert!(error.contains(expected), "{text}: {error}");
    }
    let missing = tempfile::tempdir().unwrap().path().join("none");
    assert!(matches!(scan_directory(&missing), Err(Error::Io { .. })));
}
