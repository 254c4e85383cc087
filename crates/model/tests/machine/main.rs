//! State machine of a job: properties of any sequence of events, and examples of each transition.

mod fixture;
mod properties;
mod stories;
mod stories_of_the_gates;
