//! Tests of the scanner's public API, one file per behaviour.

mod common;
mod encodings;
mod json;
mod masking;
mod patterns;
mod streaming;
