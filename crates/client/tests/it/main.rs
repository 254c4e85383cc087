//! The client against real sockets.

#![expect(clippy::unwrap_used, reason = "the helpers of a test say no by panicking, too")]

mod blobs;
mod events;
mod load;
mod logs;
mod requests;
mod test_server;
mod workflows;
