//! A schedule from a file.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use model::view::ScheduleStart;
use serde::Deserialize;
use serde_json::{Map, Value};
use workflow::Plan;
use workflow::cron::{Cron, CronError};

use crate::definition::{self, Data, Invalid, Located, called};
use crate::exit::Usage;
use crate::{duration, ids, run};

/// Everything but the workflow itself.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rest {
    name: String,
    cron: String,
    timezone: Option<String>,
    #[serde(default)]
    inputs: Map<String, Value>,
    queue: Option<String>,
    tenant: Option<String>,
    #[serde(default)]
    catch_up: model::workflow::CatchUp,
    #[serde(default)]
    overlap: model::workflow::Overlap,
    jitter: Option<String>,
    #[serde(default)]
    paused: bool,
}

/// Reads and checks it all before anything is sent.
pub fn read(path: &Path) -> Result<ScheduleStart> {
    let file = called(path);
    let mut document = Located::parse(&definition::read(path)?, &file)?;
    let whole = document.clone();
    let refuse = |code: &str, field: &str, message: String| {
        anyhow::Error::from(Invalid::one(&file, code, field, message, whole.place_of(field)))
    };
    let Data::Map(fields) = &mut document.data else {
        return Err(refuse("wrong_type", "", "a schedule is an object with `name`, `cron` and `workflow`".to_owned()));
    };
    let Some(at) = fields.iter().position(|(name, _)| name == "workflow") else {
        return Err(refuse("missing_field", "workflow", "it is missing: a file, or the definition itself".to_owned()));
    };
    let (_, definition) = fields.remove(at);
    let plan = plan(definition, path)?;
    let rest: Rest = serde_path_to_error::deserialize(document.value()?).map_err(|error| {
        let field = error.path().to_string();
        let field = if field == "." { String::new() } else { field };
        refuse("invalid_value", &field, error.into_inner().to_string())
    })?;
    let zone = rest.timezone.as_deref().unwrap_or("UTC");
    Cron::parse(&rest.cron, zone).map_err(|error| {
        let field = if matches!(error, CronError::UnknownZone { .. }) { "timezone" } else { "cron" };
        refuse("invalid_value", field, error.to_string())
    })?;
    let jitter = rest.jitter.as_deref().map(duration::parse).transpose();
    let jitter = jitter.map_err(|error| refuse("invalid_value", "jitter", error))?.unwrap_or_default();
    if let Err(found) = plan.bind(&rest.inputs) {
        return Err(Usage(format!("the inputs in {file} do not fit {}\n{found}", plan.name)).into());
    }
    Ok(ScheduleStart {
        name: rest.name,
        cron: rest.cron,
        timezone: rest.timezone,
        definition: Some(run::source(&plan)?),
        yaml: None,
        inputs: Some(rest.inputs),
        queue: rest.queue.as_deref().map(ids::queue).transpose()?,
        tenant: rest.tenant,
        catch_up: rest.catch_up,
        overlap: rest.overlap,
        jitter_ms: u64::try_from(jitter.as_millis()).unwrap_or(u64::MAX),
        paused: rest.paused,
    })
}

/// A text is the name of a file beside this one.
fn plan(definition: Located, path: &Path) -> Result<Arc<Plan>> {
    match definition.text() {
        Some(name) => definition::open(&definition::beside(path, name)),
        None => definition::within(definition, path, "workflow"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::exit::NotFound;

    fn read_text(text: &str) -> Result<ScheduleStart> {
        let directory = tempfile::tempdir().unwrap();
        fs::write(
            directory.path().join("report.yaml"),
            "name: report\ninputs: {days: integer}\ntasks: {a: {run: 'true'}}\n",
        )
        .unwrap();
        let file = directory.path().join("nightly.yaml");
        fs::write(&file, text).unwrap();
        read(&file)
    }

    #[test]
    fn a_schedule_names_a_file_or_has_the_definition_itself() {
        let schedule = read_text(
            "name: nightly\ncron: 30 2 * * *\ntimezone: Europe/Berlin\nworkflow: ./report.yaml\njitter: 30s\n\
                inputs: {days: 1}\noverlap: replace\n",
        )
        .unwrap();
        assert_eq!((schedule.name.as_str(), schedule.jitter_ms), ("nightly", 30_000));
        assert!(schedule.definition.unwrap().as_str().contains("\"report\""));
        assert_eq!(schedule.overlap, model::workflow::Overlap::Replace);
        let schedule =
            read_text("name: n\ncron: '@daily'\nworkflow:\n  name: own\n  tasks:\n    a: {run: 'true'}\n").unwrap();
        assert!(schedule.definition.unwrap().as_str().contains("\"own\""));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let own = "workflow:\n  name: own\n  tasks:\n    a: {run: 'true'}\n";
        for (text, place) in [
            (format!("name: n\ncron: 61 * * * *\n{own}"), "nightly.yaml:2:7: cron: "),
            (format!("name: n\ncron: '@daily'\ntimezone: Europe/Berln\n{own}"), "nightly.yaml:3:11: timezone: "),
            (format!("name: n\ncron: '@daily'\njitter: 30\n{own}"), "nightly.yaml:3:9: jitter: "),
            (format!("name: n\ncron: '@daily'\n{own}croon: x\n"), "nightly.yaml:7:8: croon: "),
            ("name: n\ncron: '@daily'\n".to_owned(), "nightly.yaml:1:1: workflow: "),
            (
                "name: n\ncron: '@daily'\nworkflow:\n  name: own\n  tasks:\n    a: {needs: [b], run: 'true'}\n"
                    .to_owned(),
                "nightly.yaml:6:17: workflow.tasks.a.needs[0]: ",
            ),
            ("[1]".to_owned(), "nightly.yaml:1:1: "),
        ] {
            let error = read_text(&text).unwrap_err();
            assert!(error.is::<Invalid>(), "{text}: {error}");
            assert!(error.to_string().contains(place), "{text}: {error}");
        }
        let missing = read_text("name: n\ncron: '@daily'\nworkflow: ./other.yaml\n").unwrap_err();
        assert!(missing.is::<NotFound>(), "{missing}");
        let inputs = read_text("name: n\ncron: '@daily'\nworkflow: ./report.yaml\n").unwrap_err();
        assert!(inputs.is::<Usage>() && inputs.to_string().contains("days"), "{inputs}");
    }
}
