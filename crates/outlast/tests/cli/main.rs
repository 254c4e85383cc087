//! End-to-end tests of the command line against a server process.

#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod bench;
mod cutting_proxy;
mod disk;
mod docs;
mod docs_cluster;
mod examples;
mod governance;
mod jobs;
mod kill;
mod logs;
mod nodes;
mod old_spawner;
mod queues;
mod resend;
mod stack;
mod submit;
mod support;
mod survive;
mod terminal;
mod upgrade;
mod usage;
mod workers;
mod workflow_kill;
mod workflows;
