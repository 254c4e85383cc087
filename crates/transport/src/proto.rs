//! Code generated from `proto/outlast/transport/v1/transport.proto`.
#![expect(clippy::allow_attributes, reason = "generated code")]

tonic::include_proto!("outlast.transport.v1");
