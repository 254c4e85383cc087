//! Code generated from `proto/outlast/policy/v1/policy.proto`. Public for policy services written in Rust.
#![expect(clippy::allow_attributes, reason = "generated code")]

tonic::include_proto!("outlast.policy.v1");
