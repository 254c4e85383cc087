//! `jobs`: submissions go into the invocation's effects.

use model::spec::JobSpec;

use crate::bindings::outlast::module::jobs::{Host, SubmitError};
use crate::guest::Guest;
use crate::limits::JOBS_MAX;

impl Host for Guest {
    fn submit(&mut self, spec: String) -> wasmtime::Result<Result<String, SubmitError>> {
        if self.capabilities.jobs.is_none() {
            return Ok(Err(SubmitError::Denied));
        }
        if let Err(error) = serde_json::from_str::<JobSpec>(&spec) {
            return Ok(Err(SubmitError::Invalid(error.to_string())));
        }
        let number = self.effects()?.jobs.len();
        if number >= JOBS_MAX {
            return Ok(Err(SubmitError::TooMany(JOBS_MAX as u32)));
        }
        self.charge(spec.len())?;
        let handle = format!("{}/{number}", self.invocation()?.id);
        self.effects()?.jobs.push(spec);
        Ok(Ok(handle))
    }

    fn status(&mut self, handle: String) -> wasmtime::Result<Option<String>> {
        Ok(self.capabilities.jobs.as_ref().and_then(|jobs| jobs.status(&handle)))
    }
}
