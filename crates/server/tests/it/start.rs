//! Node start, and the errors that prevent it.

use std::fs;
use std::path::Path;

use server::{Error, Node};

use crate::support::{Server, echo, options};

async fn refused(directory: &Path, change: impl FnOnce(&mut server::Options)) -> (Error, String) {
    match Node::start(options(directory, change)).await {
        Ok(_) => panic!("the node has started"),
        Err(error) => {
            let message = error.to_string();
            (error, message)
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
        assert!(tokio::net::TcpStream::connect(old.address).await.is_err(), "the port is closed after the stop");
        server.start_again().await;
        server.get("/readyz").await.expect(200);
    }
}

#[tokio::test]
async fn a_directory_in_use_is_refused_and_its_owner_keeps_running() {
    let server = Server::start().await;
    let (error, message) = refused(server.directory(), |_| {}).await;
    assert!(matches!(error, Error::Store(store::Error::InUse { .. })), "{message}");
    assert!(message.contains(&server.directory().display().to_string()), "{message}");
    assert!(message.contains(&std::process::id().to_string()), "{message}");
    assert_eq!(server.run(&echo(1)).await["state"], "succeeded");
}

#[tokio::test]
async fn a_file_as_data_directory_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("file");
    fs::write(&file, "mine").unwrap();
    for path in [file.clone(), file.join("below")] {
        let (_, message) = refused(&path, |_| {}).await;
        assert!(message.contains(&path.display().to_string()) && message.contains("not a directory"), "{message}");
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "mine");
}

#[tokio::test]
async fn the_error_for_a_read_only_directory_names_it() {
    // Not even root can create a directory in /sys.
    let (error, message) = refused(Path::new("/sys/outlast-data"), |_| {}).await;
    assert!(matches!(error, Error::Store(store::Error::NotWritable { .. })), "{message}");
    assert!(message.contains("/sys/outlast-data") && message.contains("cannot be written"), "{message}");
}

#[tokio::test]
async fn data_of_a_newer_version_is_refused_and_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let format = directory.path().join("format");
    let newer = "format 99\nnode 1\nincarnation 1\n";
    fs::write(&format, newer).unwrap();
    let (error, message) = refused(directory.path(), |_| {}).await;
    assert!(matches!(error, Error::Store(store::Error::NewerFormat { .. })), "{message}");
    assert!(message.contains("99"), "{message}");
    assert_eq!(fs::read_to_string(format).unwrap(), newer);
}

#[tokio::test]
async fn listening_beyond_loopback_needs_the_insecure_option() {
    let directory = tempfile::tempdir().unwrap();
    let all_interfaces = |options: &mut server::Options| options.listen = "0.0.0.0:0".parse().unwrap();
    let (error, message) = refused(directory.path(), all_interfaces).await;
    assert!(matches!(error, Error::NotLoopback(_)), "{message}");
    assert!(message.contains("--insecure"), "{message}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "no file was created");

    let insecure = Server::with(|options| {
        all_interfaces(options);
        options.insecure = true;
    })
    .await;
    let request = crate::http::Request::get("/readyz").header("host", "10.0.0.7:7070");
    let loopback = std::net::SocketAddr::from(([127, 0, 0, 1], insecure.address.port()));
    request.send(loopback).await.expect(200);
}

#[tokio::test]
async fn the_error_for_an_address_in_use_names_it() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let (error, message) = refused(directory.path(), |options| options.listen = server.address).await;
    assert!(matches!(error, Error::Listen { .. }), "{message}");
    assert!(message.contains(&server.address.to_string()), "{message}");
}

#[tokio::test]
async fn the_number_of_shards_cannot_change() {
    let mut server = Server::with_shards(2).await;
    server.run(&echo(1)).await;
    server.stop().await;
    for shards in [1, 4] {
        let (error, message) = refused(server.directory(), |options| options.shards = shards).await;
        assert!(matches!(error, Error::ShardsDiffer { found: 2, .. }), "{message}");
    }
    let (error, message) = refused(server.directory(), |options| options.shards = 5_000).await;
    assert!(matches!(error, Error::ShardCount { shards: 5_000 }), "{message}");
    // The default is the stored shard count. A refused start holds no lock.
    let node = Node::start(options(server.directory(), |_| {})).await.unwrap();
    node.stop(runner::StopMode::StopProcesses).await.unwrap();
    server.start_again().await;
    assert_eq!(server.listed("/v1/jobs", 10).await.len(), 1);
    assert_eq!(server.options().shards, 2);
}
