//! Workers, blobs, artifacts and components from the command line.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::{Server, run_alone};

const SCRIPT: &str = "#!/bin/sh
echo \"$GREETING $1\"
cat inputs/names.txt inputs/more/deep/a.txt
mkdir outputs/bin
printf '#!/bin/sh\\necho I run\\n' > outputs/bin/tool
chmod +x outputs/bin/tool
echo plain > outputs/plain.txt
echo left > outputs/left.log
";

fn write(path: &Path, text: &str, mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A directory to register.
fn worker(server: &Server) -> PathBuf {
    let directory = server.directory.path().join("tools");
    write(&directory.join("bin/greet"), SCRIPT, 0o755);
    let description = r#"{"name": "tools", "version": "2", "env": {"GREETING": "hello"},
                          "functions": [{"name": "greet", "command": ["bin/greet"]}]}"#;
    write(&directory.join("worker.json"), description, 0o644);
    directory
}

// FEATURES: C10
#[test]
fn a_registered_directory_runs_its_function_and_returns_artifacts() {
    let server = Server::start();
    let root = server.directory.path();
    let directory = worker(&server);
    let registered = server.run(["workers", "register", directory.to_str().unwrap()]).expect(0);
    let id = registered.line().to_owned();
    assert!(id.starts_with("w_"), "{registered:?}");
    assert!(registered.stderr.starts_with("1 of 1 files uploaded"), "{registered:?}");
    let again = server.run(["workers", "register", "tools"]).expect(0);
    assert_eq!(again.line(), id);
    assert!(again.stderr.starts_with("0 of 1 files uploaded"), "{again:?}");

    write(&root.join("names.txt"), "names\n", 0o644);
    write(&root.join("more/deep/a.txt"), "deep\n", 0o644);
    let arguments = [
        "submit",
        "--worker",
        &id,
        "--function",
        "greet",
        "--input",
        "names.txt=names.txt",
        "--input",
        "more=more",
        "--artifact",
        "*.txt",
        "--artifact",
        "bin/*",
        "--retries",
        "0",
        "--",
        "world",
    ];
    let job = server.run(arguments).expect(0).line().to_owned();
    let ended = server.wait_for_state(&job, &["succeeded", "failed"]);
    assert_eq!(ended["result"], "hello world\nnames\ndeep\n", "{ended}");

    let fetched = server.run(["jobs", "artifacts", &job, "--to", "back"]).expect(0);
    assert_eq!(fetched.stdout, "back/bin/tool\nback/plain.txt\n");
    assert_eq!(fs::read_to_string(root.join("back/plain.txt")).unwrap(), "plain\n");
    let mode = |name: &str| fs::metadata(root.join("back").join(name)).unwrap().permissions().mode() & 0o111;
    assert_ne!(mode("bin/tool"), 0, "it must be executable");
    assert_eq!(mode("plain.txt"), 0);
    assert!(!root.join("back/left.log").exists(), "it matches no pattern");
    // Existing files are not replaced without --force.
    server.run(["jobs", "artifacts", &job, "--to", "back"]).expect(2);
    let fetched = server.run(["jobs", "artifacts", &job, "--to", "back", "--force", "--output", "json"]).expect(0);
    assert_eq!((&fetched.json()[0]["path"], &fetched.json()[0]["file"]), (&"bin/tool".into(), &"back/bin/tool".into()));
    // Symbolic links are not followed.
    fs::create_dir(root.join("trap")).unwrap();
    std::os::unix::fs::symlink("/tmp", root.join("trap/bin")).unwrap();
    let refused = server.run(["jobs", "artifacts", &job, "--to", "trap"]).expect(1);
    assert!(refused.stderr.contains("is a symbolic link"), "{refused:?}");
}

// FEATURES: C10
#[test]
fn workers_are_listed_shown_and_deleted() {
    let server = Server::start();
    worker(&server);
    let id = server.run(["workers", "register", "tools", "--output", "json"]).expect(0).json()["id"].clone();
    let id = id.as_str().unwrap();
    for arguments in [&["workers"][..], &["workers", "list"]] {
        let table = server.run(arguments).expect(0).stdout;
        assert!(table.starts_with("ID ") && table.contains(id) && table.contains("greet"), "{table}");
    }
    let page = server.run(["workers", "--output", "json"]).expect(0).json();
    assert_eq!((&page["items"][0]["id"], &page["items"][0]["version"]), (&id.into(), &"2".into()));
    let shown = server.run(["workers", "show", id]).expect(0).stdout;
    assert!(shown.contains("bin/greet") && shown.contains("GREETING=hello"), "{shown}");
    let refused = server.run(["submit", "--worker", id, "--function", "bow"]).expect(1);
    assert!(refused.stderr.contains("its functions are: greet"), "{refused:?}");
    assert_eq!(server.run(["workers", "rm", id]).expect(0).line(), format!("{id} deleted"));
    server.run(["workers", "show", id]).expect(3);
    server.run(["workers", "show", "nonsense"]).expect(3);
    server.run(["workers", "rm", id]).expect(3);
    let refused = server.run(["submit", "--worker", id, "--", "true"]).expect(1);
    assert!(refused.stderr.contains("worker_not_found"), "{refused:?}");
}

#[test]
fn an_invalid_worker_directory_is_rejected_with_a_reason() {
    let server = Server::start();
    server.run(["workers", "register", "none"]).expect(3);
    let directory = worker(&server);
    write(&directory.join("worker.json"), r#"{"functions": [{"name": "f", "command": ["bin/none"]}]}"#, 0o644);
    let refused = server.run(["workers", "register", "tools"]).expect(2);
    assert!(refused.stderr.contains("bin/none"), "{refused:?}");
    run_alone(["workers", "register", directory.to_str().unwrap(), "--server", "http://127.0.0.1:1"]).expect(2);
}

// FEATURES: C11
#[test]
fn blobs_are_uploaded_and_downloaded() {
    let server = Server::start();
    let root = server.directory.path();
    let content: String = (0..700_000).map(|number| format!("{number}\n")).collect();
    fs::write(root.join("large.txt"), &content).unwrap();
    let absent = format!("blob:{:064}", 0);
    let id = server.run(["blobs", "put", "large.txt"]).expect(0).line().to_owned();
    assert_eq!(server.run(["blobs", "put", "large.txt"]).expect(0).line(), id);
    let missing = server.run(["blobs", "missing", &id, &absent]).expect(0);
    assert_eq!(missing.line(), absent);
    assert_eq!(server.run(["blobs", "get", &id]).expect(0).stdout, content);
    server.run(["blobs", "get", &id, "--to", "copy.txt"]).expect(0);
    assert_eq!(fs::read_to_string(root.join("copy.txt")).unwrap(), content);
    server.run(["blobs", "get", &id, "--to", "copy.txt"]).expect(2);
    let downloaded =
        server.run(["blobs", "get", &id, "--to", "copy.txt", "--force", "--output", "json"]).expect(0).json();
    assert_eq!(downloaded["bytes"], content.len());
    server.run(["blobs", "get", &absent]).expect(3);
    server.run(["blobs", "get", "nonsense"]).expect(3);
    server.run(["blobs", "get", &absent, "--to", "none.txt"]).expect(3);
    assert!(!root.join("none.txt").exists());
    server.run(["blobs", "put", "none.txt"]).expect(3);
    server.run(["blobs", "put", "."]).expect(2);
    let refused = server.run(["submit", "--input", &format!("a={absent}"), "--", "true"]).expect(1);
    assert!(refused.stderr.contains("blob_missing"), "{refused:?}");
    server.run(["submit", "--input", "a=none.txt", "--", "true"]).expect(3);
    let ran = server.run(["submit", "--wait", "--input", &format!("a={id}"), "--", "wc", "-l", "inputs/a"]).expect(0);
    assert!(ran.stdout.starts_with("700000 "), "{ran:?}");
}

/// A minimal component without imports that runs `body`.
fn component(body: &str) -> Vec<u8> {
    let text = format!(
        "(component
           (core module $module (memory 1) (func (export \"run\") (result i32) {body}))
           (core instance $main (instantiate $module))
           (func $run (result (result)) (canon lift (core func $main \"run\")))
           (instance $entry (export \"run\" (func $run)))
           (export \"wasi:cli/run@0.2.0\" (instance $entry)))"
    );
    wat::parse_str(text).unwrap()
}

#[test]
fn a_component_runs_from_its_file() {
    let server = Server::start();
    let root = server.directory.path();
    fs::write(root.join("fine.wasm"), component("i32.const 0")).unwrap();
    fs::write(root.join("endless.wasm"), component("(loop $on (br $on)) unreachable")).unwrap();
    let ran = server.run(["submit", "--wait", "--output", "json", "--wasm", "fine.wasm"]).expect(0);
    let job = ran.json();
    assert_eq!(job["state"], "succeeded", "{job}");
    let blob = job["run"]["wasm"]["component"].as_str().unwrap().to_owned();
    assert_eq!(server.run(["blobs", "put", "fine.wasm"]).expect(0).line(), blob);
    server.run(["submit", "--wait", "--wasm", &blob]).expect(0);
    let ran = server.run(["submit", "--wait", "--fuel", "100000", "--wasm", "endless.wasm"]).expect(1);
    assert!(ran.stderr.contains("fuel"), "{ran:?}");
    server.run(["submit", "--wasm", "none.wasm"]).expect(3);
}

#[test]
fn a_node_is_shown_with_its_capacity_and_protections() {
    let server = Server::start();
    let page = server.run(["nodes", "--output", "json"]).expect(0).json();
    let id = page["items"][0]["id"].as_str().unwrap().to_owned();
    let table = server.run(["nodes", "list"]).expect(0).stdout;
    assert!(table.starts_with("ID ") && table.contains(&id), "{table}");
    let shown = server.run(["nodes", "show", &id]).expect(0).stdout;
    assert!(shown.contains("at a time") && shown.contains("PROTECTION"), "{shown}");
    server.run(["nodes", "show", "node_0000000000001"]).expect(3);
    server.run(["nodes", "show", "nonsense"]).expect(3);
}
