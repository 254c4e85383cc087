//! The job machine from outside: properties over any sequence of events, and its transitions told as stories.

mod fixture;
mod properties;
mod stories;
mod stories_of_the_gates;
