//! Compiles the protocol of policy services with `protox`, which needs no installed `protoc`.

use std::error::Error;

const PROTOCOL: &str = "proto/outlast/policy/v1/policy.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile([PROTOCOL], ["proto"])?;
    tonic_prost_build::configure().btree_map(".").bytes(".").compile_fds(descriptors)?;
    Ok(())
}
