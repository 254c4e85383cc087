//! Behaviour of workflows and schedules.

mod approvals;
mod bounds;
mod compensation;
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
