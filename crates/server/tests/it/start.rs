//! Starting, and why a node does not.

use std::fs;
use std::path::Path;

use server::{Error, Node};

use crate::common::{Server, echo, options};

async fn refused(directory: &Path, change: impl FnOnce(&mut server::Options)) -> (Error, String) {
    match Node::start(options(directory, change)).await {
        Ok(_) => panic!("it has started"),
        Err(error) => {
            let words = error.to_string();
            (error, words)
        }
    }
}

// FEATURES: B3
#[tokio::test]
async fn a_started_node_is_alive_and_ready() {
    for shards in [1, 4] {
        let mut server = Server::with_shards(shards).await;
        assert_eq!(server.get("/healthz").await.expect(200)["status"], "alive");
        let ready = server.get("/readyz").await.expect(200);
        assert_eq!((&ready["status"], &ready["version"]), (&"ready".into(), &env!("CARGO_PKG_VERSION").into()));
        let old = server.api();
        server.stop().await;
        assert!(tokio::net::TcpStream::connect(old.address).await.is_err(), "nobody listens any more");
        server.start_again().await;
        server.get("/readyz").await.expect(200);
    }
}

#[tokio::test]
async fn a_directory_in_use_is_named_and_its_owner_goes_on() {
    let server = Server::start().await;
    let (error, words) = refused(server.directory(), |_| {}).await;
    assert!(matches!(error, Error::Store(store::Error::InUse { .. })), "{words}");
    assert!(words.contains(&server.directory().display().to_string()), "{words}");
    assert!(words.contains(&std::process::id().to_string()), "{words}");
    assert_eq!(server.run(&echo(1)).await["state"], "succeeded");
}

#[tokio::test]
async fn a_file_is_no_directory() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "mine").unwrap();
    for path in [file.clone(), file.join("below")] {
        let (_, words) = refused(&path, |_| {}).await;
        assert!(words.contains(&path.display().to_string()) && words.contains("not a directory"), "{words}");
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "mine");
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_named() {
    // Nobody, not even root, may make a directory here.
    let (error, words) = refused(Path::new("/sys/outlast-data"), |_| {}).await;
    assert!(matches!(error, Error::Store(store::Error::NotWritable { .. })), "{words}");
    assert!(words.contains("/sys/outlast-data") && words.contains("cannot be written"), "{words}");
}

#[tokio::test]
async fn data_of_a_newer_version_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let format = directory.path().join("format");
    let newer = "format 99\nnode 1\nincarnation 1\n";
    fs::write(&format, newer).unwrap();
    let (error, words) = refused(directory.path(), |_| {}).await;
    assert!(matches!(error, Error::Store(store::Error::NewerFormat { .. })), "{words}");
    assert!(words.contains("99"), "{words}");
    assert_eq!(fs::read_to_string(format).unwrap(), newer);
}

#[tokio::test]
async fn only_loopback_is_open_without_saying_so() {
    let directory = tempfile::tempdir().unwrap();
    let open = |options: &mut server::Options| options.listen = "0.0.0.0:0".parse().unwrap();
    let (error, words) = refused(directory.path(), open).await;
    assert!(matches!(error, Error::NotLoopback(_)), "{words}");
    assert!(words.contains("--insecure"), "{words}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing was made");

    let insecure = Server::with(|options| {
        open(options);
        options.insecure = true;
    })
    .await;
    let request = crate::http::Request::get("/readyz").header("host", "10.0.0.7:7070");
    let here = std::net::SocketAddr::from(([127, 0, 0, 1], insecure.address.port()));
    request.send(here).await.expect(200);
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let (error, words) = refused(directory.path(), |options| options.listen = server.address).await;
    assert!(matches!(error, Error::Listen { .. }), "{words}");
    assert!(words.contains(&server.address.to_string()), "{words}");
}

#[tokio::test]
async fn the_number_of_shards_is_set_once() {
    let mut server = Server::with_shards(2).await;
    server.run(&echo(1)).await;
    server.stop().await;
    for asked in [1, 4] {
        let (error, words) = refused(server.directory(), |options| options.shards = asked).await;
        assert!(matches!(error, Error::ShardsDiffer { found: 2, .. }), "{words}");
    }
    let (error, words) = refused(server.directory(), |options| options.shards = 5_000).await;
    assert!(matches!(error, Error::ShardCount { shards: 5_000 }), "{words}");
    // Without a number it is as it was made; a refused start has not held on to anything.
    let node = Node::start(options(server.directory(), |_| {})).await.unwrap();
    node.stop(runner::StopMode::StopProcesses).await.unwrap();
    server.start_again().await;
    assert_eq!(server.listed("/v1/jobs", 10).await.len(), 1);
    assert_eq!(server.options().shards, 2);
}
