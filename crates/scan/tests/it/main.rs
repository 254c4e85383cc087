//! What a user of the scanner sees, by behaviour.

mod common;
mod encodings;
mod json;
mod masking;
mod patterns;
mod streaming;
