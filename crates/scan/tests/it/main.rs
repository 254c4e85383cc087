//! Tests of the scanner's public API, one file per behaviour.

mod encodings;
mod json;
mod masking;
mod patterns;
mod streaming;
mod support;
