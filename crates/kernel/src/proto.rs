//! The protocol, as `proto/outlast/policy/v1/policy.proto` says it. For those who write a kernel in Rust.
#![expect(clippy::allow_attributes, reason = "what is generated has its own ways")]

tonic::include_proto!("outlast.policy.v1");
