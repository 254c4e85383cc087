//! State machine of a job: properties of any sequence of events, and examples of each transition.

mod life_cycles;
mod policy;
mod properties;
mod support;
