//! Workflows: what their tasks wait for, begin and come to.

mod approvals;
mod bounds;
mod failure;
mod graph;
mod late;
mod limits;
mod operations;
mod rerun;
mod restart;
mod saga;
mod schedules;
mod signals;
mod timers;
mod undone;
