//! Compiles the protocol between nodes with `protox`, which needs no installed `protoc`.

use std::error::Error;

const PROTOCOL: &str = "proto/outlast/transport/v1/transport.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile([PROTOCOL], ["proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
