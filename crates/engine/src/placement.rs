//! Which runner gets which job.
//!
//! What a job asks for is an [`ask`]: jobs that ask for the same share one. All asks that the same runners are fit for
//! share a [`fit`], which knows those runners, how busy they are, and the jobs that wait for one of them, in
//! [`line`]s. Everything is kept up to date step by step, so that neither a job nor a runner is ever compared with all
//! of the others. All of it is derived from records and from what runners say, and can be made anew.

pub(crate) mod ask;
pub(crate) mod crew;
pub(crate) mod fit;
pub(crate) mod line;
pub(crate) mod roster;
pub(crate) mod runner_list;
pub(crate) mod setup;
pub(crate) mod staff;
pub(crate) mod tenants;
pub(crate) mod unplaced;
pub(crate) mod why;
