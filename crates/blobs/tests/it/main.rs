//! Tests of the blob store's public interface: on a real disk and against an S3 stub.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap that fails is a failed test")]

mod bucket;
mod bundles;
mod cache;
mod collection;
mod crash;
mod damage;
mod disk;
mod outputs;
mod peers;
mod round_trip;
mod s3;
mod scan;
mod support;
mod uploads;
