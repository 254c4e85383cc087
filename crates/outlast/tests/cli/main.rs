//! The real command against a real server, as people and scripts use it.

#![expect(clippy::unwrap_used, reason = "the helpers of a test say no by panicking, too")]

mod bench;
mod disk;
mod docs;
mod examples;
mod fixture;
mod governance;
mod jobs;
mod kill;
mod logs;
mod queues;
mod submit;
mod survive;
mod terminal;
mod usage;
mod workers;
mod workflow_kill;
mod workflows;
