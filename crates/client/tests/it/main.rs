//! Tests of the client over real sockets.

#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod blobs;
mod events;
mod load;
mod logs;
mod requests;
mod resend;
mod test_server;
mod workflows;
